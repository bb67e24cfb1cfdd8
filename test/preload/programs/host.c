/*
 * host.c - host programs with unusual habits, one a mode, for test_host.py.
 *
 * usage: host MODE [ARG]. Each mode allocates through the driver API (dlopen, as any library
 * would), does what it is named after, allocates again, frees half, and prints what it saw.
 * The output must be the same with and without the library.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static CUresult (*init)(unsigned int);
static CUresult (*device_get)(CUdevice *, int);
static CUresult (*retain)(CUcontext *, CUdevice);
static CUresult (*set_current)(CUcontext);
static CUresult (*mem_alloc)(CUdeviceptr *, size_t);
static CUresult (*mem_free)(CUdeviceptr);
static int out_fd = 1;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (n > 0 && write(out_fd, line, (size_t)n) != n)
		_exit(90);
}

/* The CUDA part of every mode: 0, or the first error. */
static int begin(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;
	CUcontext context;
	CUresult r;

	if (!driver) {
		say("no driver\n");
		return -1;
	}
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&device_get = dlsym(driver, "cuDeviceGet");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&mem_alloc = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&mem_free = dlsym(driver, "cuMemFree_v2");
	if ((r = init(0)) || (r = device_get(&device, 0)) || (r = retain(&context, device)) ||
	    (r = set_current(context)))
		say("begin: %d\n", (int)r);
	return (int)r;
}

/* @count allocations of 1 MiB, every second one freed again. */
static void churn(const char *when, int count)
{
	int bad = 0;

	for (int i = 0; i < count; i++) {
		CUdeviceptr p = 0;

		if (mem_alloc(&p, MIB))
			bad++;
		else if (i % 2 && mem_free(p))
			bad++;
	}
	say("%s: %d allocations, %d errors\n", when, count, bad);
}

static void nap(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void *allocating_thread(void *arg)
{
	CUcontext *context = arg;

	set_current(*context);
	for (;;) {
		CUdeviceptr p = 0;

		if (!mem_alloc(&p, 4096))
			mem_free(p);
		pthread_testcancel();
	}
	return NULL;
}

static CUcontext current(void)
{
	CUcontext c = NULL;
	CUresult (*get)(CUcontext *);

	*(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxGetCurrent");
	get(&c);
	return c;
}

static void mode_closefds(void)
{
	int keep = fcntl(1, F_DUPFD, 100);
	int next[4];

	churn("before", 4);
	for (int fd = 0; fd < 1024; fd++)
		if (fd != keep)
			close(fd);
	out_fd = keep;
	churn("closed", 4);
	nap(300);	/* a helper thread may wake up now */
	for (int i = 0; i < 4; i++)
		next[i] = open("/dev/null", O_RDWR);
	say("numbers: %d %d %d %d\n", next[0], next[1], next[2], next[3]);
	churn("after", 4);
}

static int clone_child(void *arg)
{
	/* No CUDA here: a raw clone's child that shares our memory and then ends. */
	*(volatile int *)arg = 42;
	syscall(SYS_exit, 7);
	return 0;
}

static int clone_calls(void *arg)
{
	CUdeviceptr p = 0;

	*(volatile int *)arg = mem_alloc(&p, 4096) ? 1 : mem_free(p) ? 2 : 42;
	syscall(SYS_exit, 7);
	return 0;
}

static void one_clone(const char *name, int (*fn)(void *), int flags)
{
	size_t stack = 1 << 20;
	char *memory = mmap(NULL, stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	int child = clone(fn, memory + stack, flags | SIGCHLD, word);

	if (child < 0 || waitpid(child, &status, 0) != child)
		say("%s: clone %s\n", name, strerror(errno));
	else if (WIFEXITED(status))
		say("%s: exit %d word %d\n", name, WEXITSTATUS(status), *word);
	else
		say("%s: signal %d\n", name, WTERMSIG(status));
}

static void mode_clone(void)
{
	churn("before", 4);
	one_clone("copy", clone_child, 0);
	one_clone("vm", clone_child, CLONE_VM);
	one_clone("copy calls", clone_calls, 0);
	one_clone("vm calls", clone_calls, CLONE_VM | CLONE_VFORK);
	churn("after", 4);
}

static void mode_vfork(void)
{
	int status = 0;
	pid_t child;

	churn("before", 4);
	child = vfork();
	if (child == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(9);
	}
	waitpid(child, &status, 0);
	say("vfork exec: %d\n", WEXITSTATUS(status));
	child = vfork();
	if (child == 0)
		_exit(5);
	waitpid(child, &status, 0);
	say("vfork _exit: %d\n", WEXITSTATUS(status));
	churn("after", 4);
}

static void mode_fork(void)
{
	int status = 0;
	pid_t child;

	churn("before", 4);
	child = fork();
	if (child == 0) {
		CUdeviceptr p = 0;
		CUresult r = mem_alloc(&p, 4096);

		say("child: alloc %d\n", (int)r);
		exit(0);
	}
	waitpid(child, &status, 0);
	say("child: status %d\n", status);
	churn("after", 4);
}

static void mode_setuid(void)
{
	churn("before", 4);
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		say("setuid: %s\n", strerror(errno));
	say("uid %d\n", (int)getuid());
	churn("after", 4);
}

static void mode_cancel(void)
{
	CUcontext context = current();
	pthread_t threads[4];

	churn("before", 4);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, allocating_thread, &context);
		nap(20);
		for (int i = 0; i < 4; i++)
			pthread_cancel(threads[i]);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	churn("after", 4);
}

static volatile sig_atomic_t handled;
static void on_signal(int number)
{
	handled = number;
}

static void mode_handler(void)
{
	signal(SIGUSR1, on_signal);
	churn("before", 4);
	raise(SIGUSR1);
	say("own handler: %s\n", handled == SIGUSR1 ? "ran" : "did not run");
	churn("after", 4);
}

static void mode_mlockall(void)
{
	struct rusage use;

	churn("locked", 4);
	getrusage(RUSAGE_SELF, &use);
	say("resident: %s\n", use.ru_maxrss < 128 * 1024 ? "small" : "large");
}

static void limit_files(void)
{
	struct rlimit limit = { 4096, 4096 };

	if (setrlimit(RLIMIT_FSIZE, &limit))
		say("setrlimit: %s\n", strerror(errno));
}

static void mode_sleep(const char *arg)
{
	churn("before", 4);
	say("ready\n");
	nap(arg ? atol(arg) : 1000);
	churn("after", 4);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "basic";
	const char *arg = argc > 2 ? argv[2] : NULL;

	/* These two must be in force before the first CUDA call, when the library starts. */
	if (!strcmp(mode, "fsize"))
		limit_files();
	if (!strcmp(mode, "mlockall") && mlockall(MCL_FUTURE))
		say("mlockall: %s\n", strerror(errno));
	if (begin())
		return 3;
	if (!strcmp(mode, "basic"))
		churn("basic", 8);
	else if (!strcmp(mode, "closefds"))
		mode_closefds();
	else if (!strcmp(mode, "clone"))
		mode_clone();
	else if (!strcmp(mode, "vfork"))
		mode_vfork();
	else if (!strcmp(mode, "fork"))
		mode_fork();
	else if (!strcmp(mode, "setuid"))
		mode_setuid();
	else if (!strcmp(mode, "cancel"))
		mode_cancel();
	else if (!strcmp(mode, "handler"))
		mode_handler();
	else if (!strcmp(mode, "mlockall"))
		mode_mlockall();
	else if (!strcmp(mode, "fsize"))
		churn("limited", 8);
	else if (!strcmp(mode, "sleep"))
		mode_sleep(arg);
	else if (!strcmp(mode, "_exit")) {
		churn("last", 4);
		_exit(6);
	} else if (!strcmp(mode, "quick_exit")) {
		churn("last", 4);
		quick_exit(8);
	} else if (!strcmp(mode, "abort")) {
		churn("last", 4);
		abort();
	} else
		return 2;
	return 0;
}
