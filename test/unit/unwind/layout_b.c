/* layout_b.c - layout_a.c with a larger frame. */
#define FRAME "72"
#define CFA "80"
#include "layout_a.c"
