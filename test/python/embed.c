/*
 * embed.c - a program that loads a libpython and runs Python in it: embed LIBPYTHON [ARGUMENT...], which are
 * python's. For test_matrix.py.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*run)(int, char **) = NULL;

	if (library)
		*(void **)&run = dlsym(library, "Py_BytesMain");
	if (!run) {
		fprintf(stderr, "embed: %s\n", argc > 1 ? dlerror() : "no library is named");
		return 1;
	}
	return run(argc - 1, argv + 1);
}
