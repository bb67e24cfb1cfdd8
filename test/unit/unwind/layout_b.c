/* layout_b.c - layout_a.c with a larger frame. */
#define FRAME "0x48"
#define CFA "80"
#include "layout_a.c"
