/*
 * resolve.c - looks driver functions up in every way there is, and prints what it got: the object
 * that the address lies in, and what a call of it gives. test_resolve.py compares.
 *
 * usage: resolve CASE [library]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int alloc_fn(unsigned long long *address, size_t bytes);
typedef int gpa_fn(const char *name, void **ret, int version, uint64_t flags);
typedef int gpa2_fn(const char *name, void **ret, int version, uint64_t flags, int *found);

extern int cuInit(unsigned int flags) __attribute__((weak));
extern int cuMemAlloc_v2(unsigned long long *address, size_t bytes) __attribute__((weak));
extern int cuMemCreate(void *handle, size_t bytes, void *properties, unsigned long long flags)
	__attribute__((weak));

static const char *place(const void *address)
{
	Dl_info info;
	const char *slash;

	if (!address)
		return "NULL";
	if (!dladdr(address, &info) || !info.dli_fname)
		return "?";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static void show(const char *what, void *address)
{
	printf("%s: %s\n", what, place(address));
}

static void call(const char *what, void *address, size_t bytes)
{
	unsigned long long result = 0;
	int r;

	if (!address) {
		printf("%s: NULL\n", what);
		return;
	}
	r = ((alloc_fn *)address)(&result, bytes);
	printf("%s: %d %llx\n", what, r, result);
}

static void *driver(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW);

	if (!handle) {
		printf("no driver: %s\n", dlerror());
		exit(2);
	}
	return handle;
}

/* The first look-up in it finds the driver: nothing of that may show in dlerror(). */
static void by_handle(const char *path)
{
	void *handle = driver(path);
	const char *error;

	dlerror();
	show("cuMemAlloc_v2", dlsym(handle, "cuMemAlloc_v2"));
	error = dlerror();
	printf("dlerror after success: %s\n", error ? error : "none");
	show("cuMemAlloc", dlsym(handle, "cuMemAlloc"));
	show("cuMemAllocAsync_ptsz", dlsym(handle, "cuMemAllocAsync_ptsz"));
	show("cuInit", dlsym(handle, "cuInit"));
	show("cuMemcpy", dlsym(handle, "cuMemcpy"));
	show("cuGetProcAddress_v2", dlsym(handle, "cuGetProcAddress_v2"));
	show("printf", dlsym(handle, "printf"));
	printf("cuMemCreate: %s\n", dlsym(handle, "cuMemCreate") ? "found" : "NULL");
	error = dlerror();
	printf("dlerror after failure: %s\n", error && strstr(error, "cuMemCreate") ? "names it" :
	       error ? error : "none");
	call("cuMemAlloc_v2", dlsym(handle, "cuMemAlloc_v2"), 64);
	call("cuMemAlloc_v2 out of memory", dlsym(handle, "cuMemAlloc_v2"), (size_t)1 << 41);
	printf("calls: %d\n", *(int *)dlsym(handle, "standin_calls"));
	show("the driver's own look-up", *(void **)dlsym(handle, "standin_own"));
	/* Once more, now that everything was found: the same answers. */
	show("cuMemAlloc_v2", dlsym(handle, "cuMemAlloc_v2"));
	printf("dlclose: %d\n", dlclose(handle));
}

static void by_version(const char *path)
{
	void *handle = driver(path), *f = NULL;
	gpa2_fn *gpa2 = (gpa2_fn *)dlsym(handle, "cuGetProcAddress_v2");
	gpa_fn *gpa = (gpa_fn *)dlsym(handle, "cuGetProcAddress");
	void *self = NULL;
	int found = 9, r;

	r = gpa2("cuMemAlloc", &f, 13000, 0, &found);
	printf("cuMemAlloc 13000: %d %d %s %d\n", r, found, place(f),
	       f == dlsym(handle, "cuMemAlloc_v2"));
	r = gpa2("cuMemAlloc", &f, 2000, 0, &found);
	printf("cuMemAlloc 2000: %d %d %s %d\n", r, found, place(f),
	       f == dlsym(handle, "cuMemAlloc"));
	r = gpa("cuMemAlloc", &f, 3020, 0);
	printf("v1 cuMemAlloc 3020: %d %s %d\n", r, place(f), f == dlsym(handle, "cuMemAlloc_v2"));
	r = gpa2("cuMemAllocAsync", &f, 11020, 0, &found);
	call("cuMemAllocAsync legacy", f, 5);
	r = gpa2("cuMemAllocAsync", &f, 11020, 2, &found);
	call("cuMemAllocAsync per thread", f, 5);
	f = &found;
	r = gpa2("cuMemAlloc_v2", &f, 13000, 0, &found);
	printf("a name with a suffix: %d %d %s\n", r, found, place(f));
	r = gpa2("cuNoSuchThing", &f, 13000, 0, &found);
	printf("an unknown name: %d %d %s\n", r, found, place(f));
	r = gpa2("cuMemcpy", &f, 13000, 0, NULL);
	printf("cuMemcpy: %d %s\n", r, place(f));
	gpa2("cuGetProcAddress", &self, 13000, 0, &found);
	printf("cuGetProcAddress of itself: %d\n", self == (void *)gpa2);
	gpa2("cuGetProcAddress", &self, 11030, 0, &found);
	printf("cuGetProcAddress v1 of itself: %d\n", self == (void *)gpa);
}

/* There is no driver in the process. */
static void nowhere(void)
{
	void *global = dlopen(NULL, RTLD_NOW);
	const char *error;
	unsigned long long address = 77;

	dlerror();
	show("RTLD_DEFAULT cuMemAlloc_v2", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
	error = dlerror();
	printf("dlerror: %s\n", error && strstr(error, "cuMemAlloc_v2") ? "names it" : "none");
	show("RTLD_DEFAULT cuLaunchKernel", dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
	show("RTLD_DEFAULT cuInit", dlsym(RTLD_DEFAULT, "cuInit"));
	show("global handle cuMemFree_v2", dlsym(global, "cuMemFree_v2"));
	printf("RTLD_DEFAULT printf: %s\n", dlsym(RTLD_DEFAULT, "printf") ? "found" : "NULL");
	printf("weak cuInit: %s\n", cuInit ? "there" : "NULL");
	/* Ours are there for whoever links them; a call says what cuInit would have been for. */
	if (cuMemAlloc_v2)
		printf("cuMemAlloc_v2: %d, address %s\n", cuMemAlloc_v2(&address, 8),
		       address == 77 ? "untouched" : "written");
}

/* A driver that only its own handle reaches: RTLD_LOCAL. */
static void local(const char *path)
{
	void *handle = driver(path);

	call("RTLD_DEFAULT cuMemAlloc_v2", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), 9);
	if (cuMemAlloc_v2)
		call("linked cuMemAlloc_v2", (void *)cuMemAlloc_v2, 9);
	if (cuMemCreate)
		printf("a function that this driver lacks: %d\n", cuMemCreate(NULL, 1, NULL, 0));
	printf("calls: %d\n", *(int *)dlsym(handle, "standin_calls"));
}

static void shim(const char *path, const char *driver_path)
{
	void *handle = driver(path);

	call("alone", dlsym(handle, "cuMemAlloc_v2"), 3);
	show("alone", dlsym(handle, "cuMemCreate"));
	driver(driver_path);
	call("beside the driver", dlsym(handle, "cuMemAlloc_v2"), 3);
}

/* Name, version and flags on each line of stdin, or a name alone: where it lies and what it is called. */
static void all(const char *path)
{
	void *handle = driver(path), *f;
	gpa2_fn *gpa2 = (gpa2_fn *)dlsym(handle, "cuGetProcAddress_v2");
	char line[256], name[128];
	int version, flags, found, n;
	Dl_info info;

	while (fgets(line, sizeof(line), stdin)) {
		n = sscanf(line, "%127s %d %d", name, &version, &flags);
		f = NULL;
		if (n == 1)
			f = dlsym(handle, name);
		else if (n == 3)
			gpa2(name, &f, version, (uint64_t)flags, &found);
		if (!f)
			printf("%.*s: NULL\n", (int)strcspn(line, "\n"), line);
		else
			printf("%.*s: %s %s\n", (int)strcspn(line, "\n"), line, place(f),
			       dladdr(f, &info) && info.dli_sname ? info.dli_sname : "?");
	}
}

/* Loaded so that it prefers its own symbols: out of our reach, and unharmed. */
static void deepbind(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);

	call("deepbind", handle ? dlsym(handle, "cuMemAlloc_v2") : NULL, 4);
}

static const char *thread_path;
static pthread_barrier_t barrier;

static void *look_up(void *arg)
{
	void *handle;

	(void)arg;
	pthread_barrier_wait(&barrier);
	handle = dlopen(thread_path, RTLD_NOW);
	return handle ? dlsym(handle, "cuMemAlloc_v2") : NULL;
}

static void threads(const char *path)
{
	pthread_t thread[16];
	void *got[16];
	int same = 1;

	thread_path = path;
	pthread_barrier_init(&barrier, NULL, 16);
	for (int i = 0; i < 16; i++)
		pthread_create(&thread[i], NULL, look_up, NULL);
	for (int i = 0; i < 16; i++)
		pthread_join(thread[i], &got[i]);
	for (int i = 1; i < 16; i++)
		same &= got[i] == got[0];
	printf("same: %d\n", same);
	show("in", got[0]);
}

int next_probe(int depth) __attribute__((weak));
int cuNextProbe(int depth) __attribute__((weak));

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "libcuda.so.1";

	if (!strcmp(what, "handle"))
		by_handle(path);
	else if (!strcmp(what, "version"))
		by_version(path);
	else if (!strcmp(what, "nowhere"))
		nowhere();
	else if (!strcmp(what, "local"))
		local(path);
	else if (!strcmp(what, "shim"))
		shim(path, argv[3]);
	else if (!strcmp(what, "all"))
		all(path);
	else if (!strcmp(what, "deepbind"))
		deepbind(path);
	else if (!strcmp(what, "threads"))
		threads(path);
	else if (!strcmp(what, "next"))
		printf("%d %d\n", next_probe ? next_probe(0) : -3, cuNextProbe ? cuNextProbe(0) : -3);
	else
		return 2;
	return 0;
}
