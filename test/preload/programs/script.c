/*
 * script.c - a host program that does what its arguments say, one word after the other, and prints
 * what it saw: for the tests of triggers, exits, forks and the API.
 *
 *	script 'alloc 100' 'fork' 'alloc 5' 'exit 3' 'end' 'return'
 *
 * The driver is loaded by dlopen: libcuda.so.1, or what DRIVER names. Memory is a stack: alloc
 * pushes, free pops. fork, clone, vfork, thread: the words up to 'end' are the child's.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload/api/gpumem.h"

#define WAIT_MS 30000
#define TOO_MUCH ((size_t)1 << 41)	/* libstandin.c refuses it, whatever allocates */

typedef unsigned long long address_t;

static struct {
	int (*alloc)(address_t *address, size_t bytes);
	int (*free)(address_t address);
	int (*retain)(void **context, int device);
	int (*set)(void *context);
	int (*release)(int device);
} driver;

static address_t stack[1 << 16];
static int depth, late_frees, destructor_frees, destructor_release;

static void load(void)
{
	const char *path = getenv("DRIVER");
	void *handle = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *context = NULL;
	int (*init)(unsigned int);

	if (!handle) {
		printf("no driver\n");
		exit(70);
	}
	init = (int (*)(unsigned int))dlsym(handle, "cuInit");
	driver.alloc = (int (*)(address_t *, size_t))dlsym(handle, "cuMemAlloc_v2");
	driver.free = (int (*)(address_t))dlsym(handle, "cuMemFree_v2");
	driver.retain = (int (*)(void **, int))dlsym(handle, "cuDevicePrimaryCtxRetain");
	driver.set = (int (*)(void *))dlsym(handle, "cuCtxSetCurrent");
	driver.release = (int (*)(int))dlsym(handle, "cuDevicePrimaryCtxRelease_v2");
	if (init)
		init(0);
	if (driver.retain && driver.set && driver.retain(&context, 0) == 0)
		driver.set(context);
}

static int allocate(size_t bytes)
{
	address_t address = 0;
	int r;

	if (!driver.alloc)
		load();
	r = driver.alloc(&address, bytes);
	if (r == 0)
		stack[depth++] = address;
	return r;
}

static void free_last(void)
{
	if (depth)
		driver.free(stack[--depth]);
}

/* ---- things that happen late ------------------------------------------------------------------- */

static void at_exit(void)
{
	for (; late_frees; late_frees--)
		free_last();
}

static __attribute__((destructor)) void destructor(void)
{
	for (; destructor_frees; destructor_frees--)
		free_last();
	/* As the runtime cleans up; what comes after it is another program's business. */
	if (destructor_release) {
		driver.release(0);
		allocate(999);
	}
}

static void observer(void *arg, int device, uint64_t requested, uint64_t total, uint64_t left)
{
	printf("observer %s: device %d requested %llu total %s free %s\n", (const char *)arg, device,
	       (unsigned long long)requested, total ? "known" : "0", left <= total ? "less" : "more");
	if (depth)
		free_last();
}

static void own_handler(int number)
{
	static const char text[] = "own handler\n";
	ssize_t ignored = write(1, text, sizeof(text) - 1);

	(void)number;
	(void)ignored;
}

static void exit_handler(int number)
{
	(void)number;
	_exit(23);
}

/* ---- looking ----------------------------------------------------------------------------------- */

static void pause_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static int count_files(const char *directory, const char *part)
{
	DIR *d = opendir(directory);
	const struct dirent *entry;
	int n = 0;

	while (d && (entry = readdir(d)))
		n += strstr(entry->d_name, part) && strstr(entry->d_name, ".json") &&
		     entry->d_name[0] != '.' && !strstr(entry->d_name, ".tmp");
	if (d)
		closedir(d);
	return n;
}

/* Wait until the output directory has @want files with @part in their names. */
static void wait_files(const char *part, int want)
{
	const char *directory = getenv("OUT");
	int n = -1;

	for (int ms = 0; ms < WAIT_MS && n < want; ms += 5) {
		n = count_files(directory, part);
		if (n < want)
			pause_ms(5);
	}
	printf("files %s: %d\n", part, n);
}

/* Fail to allocate until there are @want such files: failures in between need not be shown. */
static void fail_until(const char *part, int want)
{
	const char *directory = getenv("OUT");

	for (int ms = 0; ms < WAIT_MS && count_files(directory, part) < want; ms += 5) {
		allocate(TOO_MUCH);
		pause_ms(5);
	}
}

static void show_disposition(int number)
{
	struct sigaction action;

	sigaction(number, NULL, &action);
	printf("disposition %d: %s\n", number, action.sa_handler == SIG_DFL ? "default" :
	       action.sa_handler == SIG_IGN ? "ignored" :
	       action.sa_handler == own_handler ? "own" : "handler");
}

static int count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = -2;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Wait until there are no more than @most. */
static void wait_threads(int most)
{
	for (int ms = 0; ms < WAIT_MS && count_threads() > most; ms += 5)
		pause_ms(5);
}

static void show_stat(const char *name)
{
	struct gpumem_stat stats[256];
	int n = gpumem_memory_stats(0, stats, 256);

	for (int i = 0; i < n; i++)
		if (!strcmp(stats[i].name, name))
			printf("%s: %lld\n", name, (long long)stats[i].value);
	if (n < 0)
		printf("%s: error %d\n", name, n);
}

/* ---- the words --------------------------------------------------------------------------------- */

static int run(char **word);

static char **after_end(char **word)
{
	for (int open = 1; *word && open; word++)
		open += !strcmp(*word, "end") ? -1 :
			!strcmp(*word, "fork") || !strcmp(*word, "clone") || !strcmp(*word, "thread") ||
			!strcmp(*word, "detached");
	return word;
}

static void wait_child(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		printf("child: signal %d\n", WTERMSIG(status));
	else
		printf("child: exit %d\n", WEXITSTATUS(status));
}

static void *run_thread(void *arg)
{
	run(arg);
	return NULL;
}

/* What starts something that runs words itself. Returns where to go on, NULL: no such word. */
static char **start(char **word)
{
	pthread_t thread;
	pid_t pid;

	fflush(stdout);
	if (!strcmp(*word, "fork") || !strcmp(*word, "clone")) {
		pid = !strcmp(*word, "fork") ? fork() :
		      (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			exit(run(word + 1));
		wait_child(pid);
	} else if (!strcmp(*word, "vfork")) {
		pid = vfork();
		if (pid == 0)
			_exit(9);
		wait_child(pid);
		return word + 1;
	} else if (!strcmp(*word, "thread") || !strcmp(*word, "detached")) {
		pthread_create(&thread, NULL, run_thread, word + 1);
		if (!strcmp(*word, "thread"))
			pthread_join(thread, NULL);
		else
			pthread_detach(thread);
	} else {
		return NULL;
	}
	return after_end(word + 1);
}

static bool starts(const char *word, const char *name, const char **ret_rest)
{
	size_t n = strlen(name);

	if (strncmp(word, name, n) || (word[n] && word[n] != ' '))
		return false;
	*ret_rest = word[n] ? word + n + 1 : "";
	return true;
}

static bool leave(const char *word)
{
	const char *rest;

	if (starts(word, "exit", &rest))
		exit(atoi(rest));
	if (starts(word, "_exit", &rest)) {
		fflush(stdout);
		_exit(atoi(rest));
	}
	if (starts(word, "_Exit", &rest)) {
		fflush(stdout);
		_Exit(atoi(rest));
	}
	if (starts(word, "quick_exit", &rest)) {
		fflush(stdout);
		quick_exit(atoi(rest));
	}
	if (starts(word, "pthread_exit", &rest)) {
		fflush(stdout);
		pthread_exit(NULL);
	}
	if (starts(word, "abort", &rest)) {
		fflush(stdout);
		abort();
	}
	if (starts(word, "execute", &rest)) {
		fflush(stdout);
		execlp("sh", "sh", "-c", rest, (char *)NULL);
		_exit(71);
	}
	if (starts(word, "kill", &rest)) {
		fflush(stdout);
		kill(getpid(), atoi(rest));
		return true;
	}
	return false;
}

static bool memory(const char *word)
{
	const char *rest;

	if (starts(word, "alloc", &rest)) {
		int r = allocate(strtoul(rest, NULL, 0));

		if (r)
			printf("alloc: %d\n", r);
	} else if (starts(word, "many", &rest)) {
		for (int n = atoi(rest); n > 0; n--)
			allocate(16);
	} else if (starts(word, "storm", &rest)) {
		int failed = 0;

		for (int n = atoi(rest); n > 0; n--)
			failed += allocate(TOO_MUCH) == 2;
		printf("failed: %d\n", failed);
	} else if (starts(word, "free", &rest)) {
		free_last();
	} else if (starts(word, "release", &rest)) {
		printf("release: %d\n", driver.release ? driver.release(0) : -1);
	} else if (starts(word, "atexit", &rest)) {
		late_frees = atoi(rest);
		atexit(at_exit);
	} else if (starts(word, "destructor", &rest)) {
		destructor_frees = atoi(rest);
	} else if (starts(word, "destructor_release", &rest)) {
		destructor_release = 1;
	} else {
		return false;
	}
	return true;
}

static bool look(const char *word)
{
	const char *rest;

	if (starts(word, "files", &rest)) {
		char part[64] = "";
		int n = 0;

		sscanf(rest, "%63s %d", part, &n);
		wait_files(part, n);
	} else if (starts(word, "fail_until", &rest)) {
		char part[64] = "";
		int n = 0;

		sscanf(rest, "%63s %d", part, &n);
		fail_until(part, n);
	} else if (starts(word, "disposition", &rest)) {
		show_disposition(atoi(rest));
	} else if (starts(word, "threads", &rest)) {
		printf("threads: %d\n", count_threads());
	} else if (starts(word, "until_threads", &rest)) {
		wait_threads(atoi(rest));
	} else if (starts(word, "getenv", &rest)) {
		printf("%s=%s\n", rest, getenv(rest) ? getenv(rest) : "(unset)");
	} else if (starts(word, "system", &rest)) {
		fflush(stdout);
		printf("system: %d\n", system(rest));
	} else if (starts(word, "say", &rest)) {
		printf("%s\n", rest);
	} else {
		return false;
	}
	return true;
}

static bool change(const char *word)
{
	const char *rest;

	if (starts(word, "handler", &rest)) {
		signal(atoi(rest), own_handler);
	} else if (starts(word, "exit_handler", &rest)) {
		signal(atoi(rest), exit_handler);
	} else if (starts(word, "ignore", &rest)) {
		signal(atoi(rest), SIG_IGN);
	} else if (starts(word, "chdir", &rest)) {
		printf("chdir: %d\n", chdir(rest));
	} else if (starts(word, "close", &rest)) {
		close(atoi(rest));
	} else if (starts(word, "stderr_to", &rest)) {
		int fd = open(rest, O_WRONLY | O_CREAT | O_TRUNC, 0644);

		if (fd >= 0 && fd != 2) {
			dup2(fd, 2);
			close(fd);
		}
	} else if (starts(word, "sleep", &rest)) {
		pause_ms(atol(rest));
	} else if (starts(word, "setenv", &rest)) {
		putenv(strdup(rest));
	} else {
		return false;
	}
	return true;
}

/* enabled, context, stacks and max_entries, from the left: "history all state native 100". What is
 * missing is "all", or no limit; NULL is none. */
static int switch_history(const char *rest)
{
	char words[3][64] = { "all", "all", "all" };
	unsigned long long most = SIZE_MAX;
	const char *given[3];

	sscanf(rest, "%63s %63s %63s %llu", words[0], words[1], words[2], &most);
	for (int i = 0; i < 3; i++)
		given[i] = strcmp(words[i], "NULL") ? words[i] : NULL;
	return gpumem_record_memory_history(given[0], given[1], given[2], (size_t)most);
}

static char *last_observer;
static int64_t ranges[64];
static int range_count;

/* Returns 1 for a range that was begun, else the error. */
static int push_range(int64_t range)
{
	if (range > 0 && range_count < 64)
		ranges[range_count++] = range;
	return range > 0 ? 1 : (int)range;
}

/* The newest that has not ended; of the first range, where none is left: an old value. */
static int64_t pop_range(void)
{
	return ranges[range_count > 0 ? --range_count : 0];
}

static bool api(const char *word)
{
	const char *rest;

	if (starts(word, "snapshot", &rest))
		printf("snapshot: %d\n", gpumem_snapshot(*rest ? rest : NULL));
	else if (starts(word, "annotate", &rest))
		printf("annotate: %d\n", gpumem_annotate(rest));
	else if (starts(word, "range_start", &rest))
		printf("range_start: %d\n", push_range(gpumem_range_start(rest)));
	else if (starts(word, "range_end", &rest))
		printf("range_end: %d\n", gpumem_range_end(*rest ? atoll(rest) : pop_range()));
	else if (starts(word, "unobserver", &rest))
		printf("unobserver: %d\n", gpumem_unregister_oom_observer(observer, last_observer));
	else if (starts(word, "history", &rest))
		printf("history: %d\n", switch_history(rest));
	else if (starts(word, "observer", &rest))
		printf("observer: %d\n", gpumem_register_oom_observer(observer, last_observer = strdup(rest)));
	else if (starts(word, "allocated", &rest))
		printf("allocated: %lld reserved %lld max %lld %lld\n",
		       (long long)gpumem_memory_allocated(atoi(rest)),
		       (long long)gpumem_memory_reserved(atoi(rest)),
		       (long long)gpumem_max_memory_allocated(atoi(rest)),
		       (long long)gpumem_max_memory_reserved(atoi(rest)));
	else if (starts(word, "stat", &rest))
		show_stat(rest);
	else if (starts(word, "count", &rest))
		printf("count: %d\n", gpumem_memory_stats(0, NULL, 0));
	else if (starts(word, "summary", &rest))
		printf("summary: %d\n", gpumem_memory_summary(0, stdout));
	else if (starts(word, "reset_peak", &rest))
		printf("reset_peak: %d\n", gpumem_reset_peak_memory_stats(0));
	else if (starts(word, "reset_accumulated", &rest))
		printf("reset_accumulated: %d\n", gpumem_reset_accumulated_memory_stats(0));
	else if (starts(word, "empty_cache", &rest))
		printf("empty_cache: %lld\n", (long long)gpumem_empty_cache());
	else if (starts(word, "fraction_of", &rest))
		printf("fraction_of: %g\n", gpumem_get_per_process_memory_fraction(atoi(rest)));
	else if (starts(word, "fraction", &rest))
		printf("fraction: %d\n", gpumem_set_per_process_memory_fraction(atof(rest), 0));
	else
		return false;
	return true;
}

static int run(char **word)
{
	while (*word && strcmp(*word, "end") != 0) {
		char **on = start(word);

		if (!on && !memory(*word) && !leave(*word) && !look(*word) && !change(*word) &&
		    !api(*word)) {
			printf("what is '%s'?\n", *word);
			exit(72);
		}
		word = on ? on : word + 1;
	}
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run(argv + 1);
}
