/*
 * storm.cc - threads that allocate and free without pause, while the rest of the process does what
 * is hard on a recorder that walks stacks: for test_storms.py.
 *
 * usage: storm SECONDS THREADS LIBRARIES MODE...
 *
 * LIBRARIES is a directory with libstorm0.so ... libstorm5.so, copies of one. Modes, each in a thread
 * of its own, all at once where several are named:
 *	load	libraries come and go; they allocate in their constructors and destructors
 *	fork	children that leave by _exit, exit, exec, a crash; posix_spawn
 *	throw	exceptions from the callers of the driver, through destructors that free and throw
 *	signal	handlers at 1 kHz of real time and of processor time; SIGUSR1 at 20 Hz
 *	thread	threads come and go, with thread_local objects that free
 *	cancel	pthread_cancel at a random moment
 *	hang	two threads each hold what the other wants: to see that the watchdog sees it
 * All memory is freed before it ends; the last line has the counts of calls that returned.
 *
 * The driver is found by dlopen, as bindings of other languages do.
 */
#include <cxxabi.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "test/preload/programs/storm.h"

#define SLOTS 48
#define NOT_INITIALIZED 3	/* what the driver says to a forked child */

struct storm storm;

static int (*alloc_async)(uint64_t *address, size_t bytes, void *stream);
static int (*free_async)(uint64_t address, void *stream);
static int (*set_current)(void *context);
static void *context;
static const char *libraries;
static std::atomic<bool> stopped, throwing, loading;
static std::atomic<uint64_t> children, loads, threads, signals, thrown, cancelled, inside;
static thread_local volatile bool in_call;	/* of this thread: the driver has not returned */

static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		_exit(90);
}

static void wrong(const char *what, long value)
{
	char line[200];

	__atomic_add_fetch(&storm.errors, 1, __ATOMIC_RELAXED);
	snprintf(line, sizeof(line), "wrong: %s %ld\n", what, value);
	say(line);
}

static void nap(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

/* ---- allocating -------------------------------------------------------------------------------- */

struct random {
	uint64_t state;

	unsigned operator()(unsigned below)
	{
		state = state * 6364136223846793005u + 1442695040888963407u;
		return (unsigned)(state >> 33) % below;
	}
};

/* One allocation, from whichever call; freed with it. */
class held {
public:
	void take(size_t bytes, bool async)
	{
		int r;

		in_call = true;
		r = async ? alloc_async(&address_, bytes, NULL) : storm.alloc(&address_, bytes);
		in_call = false;
		if (r)
			return wrong("allocation", r);
		async_ = async;
		__atomic_add_fetch(&storm.allocations, 1, __ATOMIC_RELAXED);
	}

	void give_back()
	{
		int r;

		if (!address_)
			return;
		in_call = true;
		r = async_ ? free_async(address_, NULL) : storm.free(address_);
		in_call = false;
		address_ = 0;
		if (r)
			return wrong("free", r);
		__atomic_add_fetch(&storm.frees, 1, __ATOMIC_RELAXED);
	}

	bool empty() const { return !address_; }
	~held() { give_back(); }

private:
	uint64_t address_ = 0;
	bool async_ = false;
};

/* Its destructor frees, then throws and catches something of its own, allocating meanwhile. */
class noisy {
public:
	noisy() { held_.take(2048, false); }
	~noisy()
	{
		held_.give_back();
		try {
			held other;

			other.take(1024, true);
			throw std::string("from a destructor");
		} catch (const std::string &) {
			thrown++;
		}
	}

private:
	held held_;
};

static __attribute__((noinline)) void once(struct random &random, held *slots)
{
	held &slot = slots[random(SLOTS)];

	if (slot.empty())
		slot.take(512 + random(100000), random(2));
	else
		slot.give_back();
	if (throwing && random(8) == 0)
		throw std::runtime_error("after the driver returned");
}

/* The stacks differ in depth and in their frames. */
static __attribute__((noinline)) void deeper(struct random &random, held *slots, unsigned depth)
{
	volatile char frame[64] = { (char)depth };

	if (depth && throwing && depth % 4 == 0) {
		noisy object;

		deeper(random, slots, depth - 1);
	} else if (depth) {
		deeper(random, slots, depth - 1);
	} else {
		once(random, slots);
	}
	(void)frame[depth % 64];
}

static void step(struct random &random, held *slots)
{
	try {
		deeper(random, slots, random(16));
	} catch (const std::runtime_error &) {
		thrown++;
	}
}

static std::atomic<uint64_t> seed;

static void *allocates(void *)
{
	struct random random = { ++seed };
	held slots[SLOTS];

	set_current(context);
	while (!stopped) {
		step(random, slots);
		if (random(64) == 0)	/* the others want the processor, too */
			nap(50);
	}
	return NULL;
}

/* ---- what happens meanwhile -------------------------------------------------------------------- */

static void *loads_and_unloads(void *)
{
	struct random random = { ++seed };
	void *handles[6] = {};

	set_current(context);
	while (!stopped || handles[0] || handles[1] || handles[2] || handles[3] || handles[4] || handles[5]) {
		unsigned i = random(6);
		std::string path = std::string(libraries) + "/libstorm" + std::to_string(i) + ".so";

		if (handles[i]) {
			if (dlclose(handles[i]))
				wrong("dlclose", i);
			handles[i] = NULL;
			continue;
		}
		if (stopped)
			continue;
		handles[i] = dlopen(path.c_str(), random(2) ? RTLD_NOW : RTLD_LAZY);
		if (!handles[i]) {
			say(dlerror());
			wrong("dlopen", i);
			return NULL;
		}
		((void (*)(int))dlsym(handles[i], "storm_work"))((int)random(5));
		loads++;
	}
	return NULL;
}

enum { LEAVE, CALL, EXEC, ABORT, CRASH, KILLED, EXIT, SPAWN, ENDS };

static void *nowhere = (void *)8;

static __attribute__((noreturn)) void child(int how, int status)
{
	uint64_t address;
	int r;

	switch (how) {
	case CALL:
		r = storm.alloc(&address, 512);
		_exit(r == NOT_INITIALIZED ? status : 99);
	case EXEC:
		execl("/bin/sh", "sh", "-c", "exit $0", std::to_string(status).c_str(), (char *)NULL);
		_exit(98);
	case ABORT:
		abort();
	case CRASH:
		*(volatile int *)*(void *volatile *)&nowhere = 0;
		_exit(97);
	case KILLED:
		raise(SIGKILL);
		_exit(96);
	case EXIT:
		exit(status);
	default:
		_exit(status);
	}
}

static void spawn(int status)
{
	std::string text = std::to_string(status);
	const char *words[] = { "sh", "-c", "exit $0", text.c_str(), NULL };
	pid_t pid;
	int r = posix_spawn(&pid, "/bin/sh", NULL, NULL, (char **)words, environ);

	if (r)
		return wrong("posix_spawn", r);
	while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	if (r != pid || status != (atoi(text.c_str()) << 8))
		wrong("a spawned child's status", status);
}

static void *forks(void *)
{
	static const int ends[ENDS] = { [LEAVE] = 0, [CALL] = 0, [EXEC] = 0, [ABORT] = SIGABRT,
					[CRASH] = SIGSEGV, [KILLED] = SIGKILL, [EXIT] = 0, [SPAWN] = 0 };

	set_current(context);
	for (int n = 0; !stopped; n++) {
		int how = n % ENDS, status = 10 + n % 80, want, got = 0;
		pid_t pid, r;

		children++;
		/* Whoever forks while others load may not run the loader's clean-up in the child. */
		if (how == EXIT && loading)
			how = LEAVE;
		if (how == SPAWN) {
			spawn(status);
			continue;
		}
		want = ends[how] ? ends[how] : status << 8;
		pid = fork();
		if (pid == 0)
			child(how, status);
		while ((r = waitpid(pid, &got, 0)) < 0 && errno == EINTR)
			;
		if (r != pid || (got & ~0x80) != want) {
			wrong("a child of kind", how);
			wrong("and its status", got);
		}
	}
	return NULL;
}

static void count_signal(int)
{
	signals++;
}

static void begin_signals()
{
	struct sigaction action = {};
	struct sigevent event = {};
	struct itimerspec every = { { 0, 1000000 }, { 0, 1000000 } };
	struct itimerval of_work = { { 0, 1000 }, { 0, 1000 } };
	timer_t timer;

	action.sa_handler = count_signal;
	sigaction(SIGPROF, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGALRM;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL) ||
	    setitimer(ITIMER_PROF, &of_work, NULL))
		wrong("timers", errno);
}

static void *asks_for_snapshots(void *)
{
	while (!stopped) {
		kill(getpid(), SIGUSR1);
		nap(50000);
	}
	return NULL;
}

/* A thread that lives for a few calls; what it holds at its end is freed by a thread_local object. */
static void *short_lived(void *arg)
{
	static thread_local held last;
	struct random random = { ++seed };
	held slots[SLOTS];

	set_current(context);
	for (unsigned i = random(8); i; i--)
		step(random, slots);
	if (last.empty())
		last.take(4096, random(2));
	threads++;
	if ((uintptr_t)arg % 2)
		pthread_exit(NULL);
	return NULL;
}

static void *starts_threads(void *)
{
	pthread_t ids[12];

	while (!stopped) {
		unsigned count = 0;

		for (; count < 12; count++) {
			int r = pthread_create(&ids[count], NULL, short_lived, (void *)(uintptr_t)count);

			if (r) {
				wrong("pthread_create", r);
				break;
			}
		}
		while (count)
			pthread_join(ids[--count], NULL);
	}
	return NULL;
}

/* Tells, once the thread is cancelled, whether that was inside the driver's call. */
static void *to_be_cancelled(void *)
{
	struct random random = { ++seed };
	held slots[SLOTS];

	set_current(context);
	try {
		for (;;) {
			step(random, slots);
			if (random(32) == 0)
				nap(1);		/* a cancellation point of the program's own */
		}
	} catch (abi::__forced_unwind &) {
		if (in_call)
			inside++;
		in_call = false;
		throw;
	}
	return NULL;
}

static void *cancels(void *)
{
	struct random random = { ++seed };
	pthread_t ids[4];
	void *result;

	while (!stopped) {
		for (pthread_t &id : ids) {
			if (pthread_create(&id, NULL, to_be_cancelled, NULL))
				abort();
		}
		nap(random(3000));
		for (pthread_t id : ids) {
			pthread_cancel(id);
			pthread_join(id, &result);
			if (result == PTHREAD_CANCELED)
				cancelled++;
			else
				wrong("a cancelled thread", 0);
		}
	}
	return NULL;
}

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

extern "C" __attribute__((noinline)) void storm_stuck(pthread_mutex_t *first, pthread_mutex_t *second)
{
	pthread_mutex_lock(first);
	nap(200000);
	pthread_mutex_lock(second);
	pthread_mutex_unlock(second);
	pthread_mutex_unlock(first);
}

static void *hangs(void *)
{
	storm_stuck(&one, &other);
	return NULL;
}

static void *hangs_too(void *)
{
	storm_stuck(&other, &one);
	return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static void load_driver()
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned), (*retain)(void **, int);

	if (!driver) {
		say("no driver\n");
		exit(70);
	}
	init = (int (*)(unsigned))dlsym(driver, "cuInit");
	retain = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
	set_current = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
	storm.alloc = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
	storm.free = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
	alloc_async = (int (*)(uint64_t *, size_t, void *))dlsym(driver, "cuMemAllocAsync");
	free_async = (int (*)(uint64_t, void *))dlsym(driver, "cuMemFreeAsync");
	if (init(0) || retain(&context, 0) || set_current(context)) {
		say("no context\n");
		exit(71);
	}
}

static void start(std::vector<pthread_t> &ids, void *(*body)(void *))
{
	pthread_t id;

	if (pthread_create(&id, NULL, body, NULL))
		abort();
	ids.push_back(id);
}

static void start_mode(std::vector<pthread_t> &ids, const std::string &mode)
{
	if (mode == "load")
		start(ids, loads_and_unloads);
	else if (mode == "fork")
		start(ids, forks);
	else if (mode == "signal")
		start(ids, asks_for_snapshots);
	else if (mode == "thread")
		start(ids, starts_threads);
	else if (mode == "cancel")
		start(ids, cancels);
	else if (mode == "hang")
		start(ids, hangs), start(ids, hangs_too);
	else if (mode != "throw")
		exit(2);
}

int main(int argc, char **argv)
{
	static const struct rlimit no_core = { 0, 0 };
	std::vector<pthread_t> ids;
	struct timespec now, end;

	if (argc < 4)
		return 2;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &no_core);
	libraries = argv[3];
	load_driver();
	held first;		/* from here on the library has a record, and SIGUSR1 is its */
	first.take(512, false);
	for (int i = 4; i < argc; i++) {
		throwing = throwing || !strcmp(argv[i], "throw");
		loading = loading || !strcmp(argv[i], "load");
		if (!strcmp(argv[i], "signal"))
			begin_signals();
	}
	say("storming\n");
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += atoi(argv[1]);
	for (int i = 0; i < atoi(argv[2]); i++)
		start(ids, allocates);
	for (int i = 4; i < argc; i++)
		start_mode(ids, argv[i]);
	do {
		nap(20000);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	stopped = true;
	for (pthread_t id : ids)
		pthread_join(id, NULL);
	first.give_back();
	printf("{\"allocations\": %lu, \"frees\": %lu, \"errors\": %lu, \"children\": %lu, \"loads\": %lu, "
	       "\"threads\": %lu, \"signals\": %lu, \"thrown\": %lu, \"cancelled\": %lu, \"inside\": %lu}\n",
	       storm.allocations, storm.frees, storm.errors, children.load(), loads.load(), threads.load(),
	       signals.load(), thrown.load(), cancelled.load(), inside.load());
	return storm.errors != 0;
}
