/* constructor.c - a library whose constructor calls back: frames through the loader. */
#include <stddef.h>

extern void unwind_test_hook(void) __attribute__((weak));

static __attribute__((constructor)) void begin(void)
{
	if (unwind_test_hook)
		unwind_test_hook();
}
