/*
 * crash.c - a host program that allocates device memory and then dies in the way that its argument
 * says, or waits to be killed: for the tests of the crash handler.
 *
 *	crash WAY [N]
 *
 * The driver is loaded by dlopen; with CRASH_HOOKED its functions are those of this very program, which
 * has the hooks linked in. 4096 and 65536 bytes are live when it dies.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long address_t;

static struct {
	int (*alloc)(address_t *address, size_t bytes);
	int (*free)(address_t address);
	int (*set)(void *context);
} driver;
static void *context;
static int argument;

static void load(void)
{
	void *handle = getenv("CRASH_HOOKED") ? RTLD_DEFAULT : dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(handle, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(handle,
								     "cuDevicePrimaryCtxRetain");

	driver.alloc = (int (*)(address_t *, size_t))dlsym(handle, "cuMemAlloc_v2");
	driver.free = (int (*)(address_t))dlsym(handle, "cuMemFree_v2");
	driver.set = (int (*)(void *))dlsym(handle, "cuCtxSetCurrent");
	if (init(0) || retain(&context, 0) || driver.set(context))
		exit(70);
}

static void say(const char *text)
{
	ssize_t ignored = write(1, text, strlen(text));

	(void)ignored;
}

static void pause_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static void wait_to_be_killed(void)
{
	say("waiting\n");
	pause_ms(60000);
	_exit(71);
}

/* ---- ways to die ------------------------------------------------------------------------------- */

static volatile int *volatile nowhere;
static volatile int zero;

__attribute__((noinline)) static void touch(void)
{
	*nowhere = 1;
}

static void way_segv(void)
{
	nowhere = (int *)0x10;
	touch();
}

static void way_gp(void)		/* no address at all: the kernel says SI_KERNEL */
{
	nowhere = (int *)0x8000000000000000;
	touch();
}

static void way_call(void)
{
	void (*volatile function)(void) = NULL;

	function();
	say("");			/* no tail call */
}

static void way_bus(void)
{
	int fd = memfd_create("short", 0);
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	page[0] = 1;
}

static void way_fpe(void)
{
	zero = (4711 + argument) / zero;
}

static void way_ill(void)
{
#if defined(__aarch64__)
	__asm__ volatile("udf #0");
#else
	__asm__ volatile("ud2");
#endif
}

static void way_trap(void)
{
#if defined(__aarch64__)
	__asm__ volatile("brk #0");
#else
	__asm__ volatile("int3");
#endif
}

static void way_abort(void)
{
	abort();
}

static void way_terminate(void)		/* as an exception that nobody catches */
{
	void *handle = dlopen("libstdc++.so.6", RTLD_NOW);
	void (*terminate)(void) = (void (*)(void))dlsym(handle, "_ZSt9terminatev");

	terminate();
}

static void way_raise(void)
{
	raise(argument);
	pause_ms(20000);
}

static void way_kill(void)
{
	kill(getpid(), argument);
	pause_ms(20000);
}

static void way_queue(void)
{
	sigqueue(getpid(), argument, (union sigval){ .sival_int = 4711 });
	pause_ms(20000);
}

static void way_malloc(void)		/* malloc aborts with its own lock held */
{
	char *last = malloc(1000);

	*(size_t *)(void *)(last + malloc_usable_size(last)) = (size_t)-1;
	*(char *volatile *)&last = malloc(100000);
}

static int deeper(int n);
static int (*volatile go)(int) = deeper;

static int deeper(int n)
{
	volatile char frame[4096];

	frame[0] = (char)n;
	return frame[0] + go(n + 1) + frame[0];
}

static void way_overflow(void)
{
	printf("%d\n", deeper(0));
}

/* With nothing below it. */
static void use_other_stack(size_t bytes)
{
	char *memory = mmap(NULL, 4096 + bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t other = { .ss_sp = memory + 4096, .ss_size = bytes };

	mprotect(memory, 4096, PROT_NONE);
	sigaltstack(&other, NULL);
}

static void way_overflow_altstack(void)
{
	use_other_stack((size_t)(argument ? argument : 65536));
	way_overflow();
}

static void way_least_altstack(void)	/* what the kernel itself needs, and @argument bytes */
{
	use_other_stack((size_t)sysconf(_SC_MINSIGSTKSZ) + (size_t)argument);
	way_segv();
}

static void in_handler(int number)
{
	(void)number;
	way_segv();
}

static void way_handler(void)		/* a crash in a signal handler on an alternate stack */
{
	struct sigaction action = { .sa_handler = in_handler, .sa_flags = SA_ONSTACK };

	use_other_stack((size_t)(argument ? argument : 65536));
	sigaction(SIGUSR2, &action, NULL);
	raise(SIGUSR2);
}

static void way_driver(void)		/* in the driver, in the midst of a call */
{
	driver.alloc((address_t *)0x10, 512);
}

static void way_library(void)		/* in the code of the library itself, if it is there */
{
	int (*stats)(int, void *, int) = (int (*)(int, void *, int))dlsym(RTLD_DEFAULT,
									 "gpumem_memory_stats");

	if (stats)
		stats(0, (void *)0x10, 100);
	way_segv();
}

static pthread_barrier_t barrier;

static void *crash_together(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&barrier);
	way_segv();
	return NULL;
}

static void way_threads(void)
{
	pthread_t threads[64];

	pthread_barrier_init(&barrier, NULL, (unsigned int)argument);
	for (int i = 0; i < argument; i++)
		pthread_create(&threads[i], NULL, crash_together, NULL);
	pthread_join(threads[0], NULL);
	pause_ms(20000);
}

static void way_thread(void)
{
	argument = 1;
	way_threads();
}

static void way_small_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 1);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16384);
	pthread_create(&thread, &attributes, crash_together, NULL);
	pthread_join(thread, NULL);
}

static void way_closed(void)
{
	close_range(0, ~0u, 0);
	way_segv();
}

/* ---- with handlers of the program's own -------------------------------------------------------- */

static sigjmp_buf back;
static struct sigaction found;

static void jump_back(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

static void way_own(void)		/* takes its faults as they come */
{
	struct sigaction action = { .sa_handler = jump_back };

	sigaction(SIGSEGV, &action, NULL);
	for (volatile int i = 0; i < 100; i++)
		if (!sigsetjmp(back, 1))
			way_segv();
	say("100 faults\n");
	exit(0);
}

static void put_back(int number)
{
	say("own handler\n");
	sigaction(number, &found, NULL);
	raise(number);
}

static void way_chain(void)		/* as Python's faulthandler: put back what was found, raise it */
{
	struct sigaction action = { .sa_handler = put_back };

	sigaction(SIGSEGV, &action, &found);
	way_segv();
}

static void call_found(int number, siginfo_t *info, void *uc)
{
	say("own handler\n");
	if (found.sa_flags & SA_SIGINFO)
		found.sa_sigaction(number, info, uc);
	else
		signal(number, SIG_DFL);
}

static void way_call_found(void)	/* or calls it */
{
	struct sigaction action = { .sa_sigaction = call_found, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, &found);
	way_segv();
	signal(SIGSEGV, SIG_DFL);
	way_segv();
}

static void way_restored(void)		/* has had one for a while */
{
	struct sigaction action = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &action, &found);
	raise(SIGTERM);
	sigaction(SIGTERM, &found, NULL);
	raise(SIGTERM);
	pause_ms(20000);
}

static void own_term(int number)
{
	(void)number;
	say("own handler\n");
	_exit(5);
}

static void way_own_term(void)
{
	signal(SIGTERM, own_term);
	wait_to_be_killed();
}

/* ---- other processes --------------------------------------------------------------------------- */

static void wait_child(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	printf("child: %d%s\n", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status),
	       WCOREDUMP(status) ? " core" : "");
	fflush(stdout);
	exit(0);
}

static void way_child(void)		/* a child that never calls CUDA dies */
{
	pid_t pid = fork();

	if (pid == 0) {
		if (argument)
			way_kill();
		way_segv();
	}
	wait_child(pid);
}

static void way_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		syscall(SYS_kill, syscall(SYS_getpid), SIGTERM);
		_exit(1);
	}
	wait_child(pid);
}

static void way_exec(void)		/* once the helper thread is there: it has made a snapshot */
{
	int (*snapshot)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "gpumem_snapshot");

	if (snapshot)
		snapshot(NULL);
	execlp("sh", "sh", "-c", "echo waiting; read line; kill -SEGV $$", (char *)NULL);
}

/* ---- under load -------------------------------------------------------------------------------- */

static void *churn(void *arg)
{
	address_t live[16] = { 0 };
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	driver.set(context);
	for (;;) {
		unsigned int i = (unsigned int)rand_r(&seed) % 16;

		if (live[i])
			driver.free(live[i]);
		live[i] = 0;
		if (driver.alloc(&live[i], 256u << (unsigned int)rand_r(&seed) % 8))
			_exit(72);
	}
	return NULL;
}

static void way_load(void)		/* until it is killed */
{
	pthread_t thread;

	for (int i = 1; i < argument; i++)
		pthread_create(&thread, NULL, churn, (void *)(uintptr_t)i);
	say("waiting\n");
	churn(NULL);
}

static void way_many(void)		/* a history that takes a while to be written */
{
	address_t address;

	for (int i = 0; i < argument; i++) {
		driver.alloc(&address, 512);
		driver.free(address);
	}
	say("waiting\n");
	raise(SIGUSR1);
	way_segv();
}

static void way_free_all(void)
{
	exit(0);
}

static const struct { const char *name; void (*die)(void); } ways[] = {
	{ "segv", way_segv }, { "gp", way_gp }, { "call", way_call }, { "bus", way_bus },
	{ "fpe", way_fpe }, { "ill", way_ill }, { "trap", way_trap }, { "abort", way_abort },
	{ "terminate", way_terminate }, { "raise", way_raise }, { "kill", way_kill },
	{ "queue", way_queue }, { "malloc", way_malloc }, { "overflow", way_overflow },
	{ "overflow_altstack", way_overflow_altstack }, { "handler", way_handler },
	{ "least_altstack", way_least_altstack }, { "driver", way_driver },
	{ "library", way_library },
	{ "threads", way_threads }, { "thread", way_thread }, { "small_stack", way_small_stack },
	{ "closed", way_closed }, { "own", way_own }, { "chain", way_chain },
	{ "call_found", way_call_found }, { "restored", way_restored },
	{ "own_term", way_own_term }, { "child", way_child }, { "vfork", way_vfork },
	{ "exec", way_exec }, { "load", way_load }, { "many", way_many },
	{ "wait", wait_to_be_killed }, { "exit", way_free_all },
};

int main(int argc, char **argv)
{
	address_t address;

	prctl(PR_SET_DUMPABLE, 1);
	if (argc < 2)
		return 2;
	argument = argc > 2 ? atoi(argv[2]) : 0;
	load();
	if (driver.alloc(&address, 4096) || driver.alloc(&address, 65536))
		return 70;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(argv[1], ways[i].name))
			ways[i].die();
	return 2;
}
