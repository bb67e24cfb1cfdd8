/*
 * old_glibc.c - let the library and the command run on every glibc from 2.17 on, whichever they were built with.
 *
 * The linker binds each function to its newest version. A loader that lacks the version stops every program into
 * which the library is preloaded. So functions with a version after GLIBC_2.17 are defined here, hidden, and the
 * linker takes these before it looks into libc.
 *
 * Up to glibc 2.33, threads and the loader's functions are in libpthread and libdl. If the library named these two
 * files, they would be loaded into every program. Before 2.30 the loader also refuses a versioned name, even a weak
 * one, that is in another file than at link time. So these functions are looked up: dlvsym in the loaded objects, the
 * others by dlvsym. A program that uses CUDA has libpthread and libdl, because libcuda needs them.
 *
 * Not in sanitizer builds, because their runtimes intercept the same functions.
 * Threads and signals: as for the function of libc. Addresses are stored atomically, and two threads that look one up
 * at the same time find the same address.
 */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))
/* The version of functions that the machine's first glibc had. */
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define ROBUST "GLIBC_2.12"
#else
#define FIRST "GLIBC_2.17"
#define ROBUST "GLIBC_2.17"
#endif

/* ---- libdl ------------------------------------------------------------------------------------- */

typedef void *dlvsym_fn(void *restrict handle, const char *restrict name, const char *restrict version);

/*
 * dlvsym is looked up when the host first asks for a function. At that moment the host's sanitizer may be starting, and
 * no function of libc that it intercepts may be called. So this code reads the loader's own list and compares texts
 * by itself. No lock is needed: libc never leaves the list, nor does libdl if it came at the start. On systems that
 * have a libdl, nothing can be added to the list while libdl is not loaded.
 */
static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* Find the function @name in @object by its GNU hash table; NULL: not defined there. */
static void *find_in(const struct link_map *object, const char *name)
{
	const ElfW(Sym) *symbols = NULL;
	const uint32_t *table = NULL, *buckets, *chain;
	const char *strings = NULL;
	uint32_t hash = hash_of(name), i;

	for (const ElfW(Dyn) *dynamic = object->l_ld; dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (const void *)dynamic->d_un.d_ptr;
		else if (dynamic->d_tag == DT_STRTAB)
			strings = (const void *)dynamic->d_un.d_ptr;
		else if (dynamic->d_tag == DT_GNU_HASH)
			table = (const void *)dynamic->d_un.d_ptr;
	}
	if (!symbols || !strings || !table || !table[0])
		return NULL;
	/* The table begins with the counts of buckets, of symbols without a hash, and of words of the filter, and the
	 * filter's shift. Then come the filter and the buckets. */
	buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	chain = buckets + table[0];
	i = buckets[hash % table[0]];
	if (i < table[1])
		return NULL;
	for (;; i++) {
		uint32_t here = chain[i - table[1]];

		if ((here | 1) == (hash | 1) && symbols[i].st_shndx != SHN_UNDEF &&
		    same(strings + symbols[i].st_name, name))
			return (void *)(object->l_addr + symbols[i].st_value);
		if (here & 1)		/* the last of the bucket */
			return NULL;
	}
}

static dlvsym_fn *find_dlvsym(void)
{
	for (const struct link_map *object = _r_debug.r_map; object; object = object->l_next) {
		const char *name = object->l_name;
		dlvsym_fn *found;

		for (const char *c = name; *c; c++)
			if (*c == '/')
				name = c + 1;
		if (!same(name, "libc.so.6") && !same(name, "libdl.so.2"))
			continue;
		found = find_in(object, "dlvsym");
		if (found)
			return found;
	}
	return NULL;
}

/* RTLD_NEXT and the search path depend on the caller. The caller is this file here, which lies in the same object. */
HIDDEN void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
	static dlvsym_fn *real;
	dlvsym_fn *found = __atomic_load_n(&real, __ATOMIC_ACQUIRE);

	if (!found) {
		found = find_dlvsym();
		__atomic_store_n(&real, found, __ATOMIC_RELEASE);
	}
	return found ? found(handle, name, version) : NULL;
}

static void *find_function(void **at, const char *name, const char *version)
{
	void *found = __atomic_load_n(at, __ATOMIC_ACQUIRE);

	if (found)
		return found;
	found = dlvsym(RTLD_DEFAULT, name, version);
	__atomic_store_n(at, found, __ATOMIC_RELEASE);
	return found;
}

/* Define function NAME of libdl or libpthread; it returns OTHERWISE when there is no such function. */
#define FUNCTION(type, name, finder, version, otherwise, params, args) \
	HIDDEN type name params \
	{ \
		static void *at; \
		__typeof__(&name) real = finder(&at, #name, version); \
		\
		return real ? real args : (otherwise); \
	}

FUNCTION(int, dladdr, find_function, FIRST, 0, (const void *address, Dl_info *info), (address, info))
FUNCTION(char *, dlerror, find_function, FIRST, NULL, (void), ())
FUNCTION(void *, dlopen, find_function, FIRST, NULL, (const char *name, int flags), (name, flags))

/* ---- libpthread -------------------------------------------------------------------------------- */

/* Find a function of libpthread. libpthread is not in the default scope if it came with a library that the program
 * opened by dlopen. */
static void *find_thread_function(void **at, const char *name, const char *version)
{
	void *found = find_function(at, name, version), *library;

	if (found)
		return found;
	library = dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD);
	found = library ? dlvsym(library, name, version) : NULL;
	dlerror();			/* clear the error, so that the program does not find it */
	__atomic_store_n(at, found, __ATOMIC_RELEASE);
	return found;
}

#define THREAD_FUNCTION(name, version, error, params, args) \
	FUNCTION(int, name, find_thread_function, version, error, params, args)

THREAD_FUNCTION(pthread_create, FIRST, EAGAIN,
		(pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*run)(void *),
		 void *restrict arg),
		(thread, attr, run, arg))
THREAD_FUNCTION(pthread_join, FIRST, ESRCH, (pthread_t thread, void **result), (thread, result))
THREAD_FUNCTION(pthread_attr_setstacksize, FIRST, ENOSYS, (pthread_attr_t *attr, size_t bytes), (attr, bytes))
THREAD_FUNCTION(pthread_mutexattr_init, FIRST, ENOSYS, (pthread_mutexattr_t *attr), (attr))
THREAD_FUNCTION(pthread_mutexattr_destroy, FIRST, ENOSYS, (pthread_mutexattr_t *attr), (attr))
THREAD_FUNCTION(pthread_mutexattr_setpshared, FIRST, ENOSYS, (pthread_mutexattr_t *attr, int shared), (attr, shared))
THREAD_FUNCTION(pthread_mutexattr_setrobust, ROBUST, ENOSYS, (pthread_mutexattr_t *attr, int robust), (attr, robust))
THREAD_FUNCTION(pthread_mutex_trylock, FIRST, EBUSY, (pthread_mutex_t *mutex), (mutex))
THREAD_FUNCTION(pthread_mutex_consistent, ROBUST, ENOSYS, (pthread_mutex_t *mutex), (mutex))

/* On Linux this is sigprocmask, except that it returns the error. */
HIDDEN int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict before)
{
	int saved = errno, r = sigprocmask(how, set, before) ? errno : 0;

	errno = saved;
	return r;
}

/* ---- calls of the kernel ----------------------------------------------------------------------- */

HIDDEN int fstat(int fd, struct stat *ret_stat)
{
	return (int)syscall(SYS_fstat, fd, ret_stat);
}

HIDDEN int fstatat(int fd, const char *restrict path, struct stat *restrict ret_stat, int flags)
{
	return (int)syscall(SYS_newfstatat, fd, path, ret_stat, flags);
}

HIDDEN int stat(const char *restrict path, struct stat *restrict ret_stat)
{
	return fstatat(AT_FDCWD, path, ret_stat, 0);
}

HIDDEN int lstat(const char *restrict path, struct stat *restrict ret_stat)
{
	return fstatat(AT_FDCWD, path, ret_stat, AT_SYMLINK_NOFOLLOW);
}

HIDDEN ssize_t getrandom(void *buffer, size_t bytes, unsigned int flags)
{
	return syscall(SYS_getrandom, buffer, bytes, flags);
}

HIDDEN int memfd_create(const char *name, unsigned int flags)
{
	return (int)syscall(SYS_memfd_create, name, flags);
}

HIDDEN void *reallocarray(void *list, size_t count, size_t bytes)
{
	size_t all;

	if (__builtin_mul_overflow(count, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(list, all);
}
#endif
