/*
 * start.c - the start of the command on a glibc before 2.34, and the dlsym that only the command needs there: see
 * preload/process/old_glibc.c. Single-threaded.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define HIDDEN __attribute__((visibility("hidden")))
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif

typedef int main_fn(int argc, char **argv, char **environment);

extern int old_start(main_fn *run, int argc, char **argv, void (*init)(int, char **, char **), void (*fini)(void),
		     void (*loader_fini)(void), void *stack_end);
__asm__(".symver old_start, __libc_start_main@" FIRST);

HIDDEN int __libc_start_main(main_fn *run, int argc, char **argv, void (*init)(int, char **, char **),
			     void (*fini)(void), void (*loader_fini)(void), void *stack_end);

extern void (*const __init_array_start[])(int, char **, char **) HIDDEN;
extern void (*const __init_array_end[])(int, char **, char **) HIDDEN;

/* Run the program's constructors. From 2.34 on, libc runs them itself, unless the program passes it a function for
 * that; the older start always needs such a function. */
static void run_constructors(int argc, char **argv, char **environment)
{
	for (void (*const *each)(int, char **, char **) = __init_array_start; each < __init_array_end; each++)
		(*each)(argc, argv, environment);
}

/* Called by _start, which the linker puts into every program. */
int __libc_start_main(main_fn *run, int argc, char **argv, void (*init)(int, char **, char **), void (*fini)(void),
		      void (*loader_fini)(void), void *stack_end)
{
	return old_start(run, argc, argv, init ? init : run_constructors, fini, loader_fini, stack_end);
}

HIDDEN void *dlsym(void *restrict handle, const char *restrict name)
{
	__typeof__(&dlsym) real = dlvsym(RTLD_DEFAULT, "dlsym", FIRST);

	return real ? real(handle, name) : NULL;
}
#endif
