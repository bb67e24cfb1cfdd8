/*
 * model.c - run thousands of seeded random programs, each in its own process (see world.h).
 *
 * usage: model [-t THREADS | -T THREADS] [-j JOBS] [-k] FIRST COUNT
 * -t: threads run at once and share nothing. -T: threads take turns at one program.
 * -k: kill each program (SIGKILL) at a step that its seed chooses.
 * Prints one line of totals, and one line "seed N: ..." for each failed program. Exit 1: some failed.
 * A program ends with status 0; 1: a wrong word or result (its line is on stderr); 66: a race; 67: a hang
 * (fakecuda.h). The caller chooses the preloaded library. A run without a library shows that the programs are
 * correct.
 *
 * Thread context: the parent makes no CUDA call and has one thread.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

#define STEPS 160
#define LIMIT_S 60

struct totals { _Atomic(unsigned long) steps, refused, reused, driver, drawn[DREW_COUNT]; };
static struct totals *totals;
static uint64_t running_seed;
static bool killed;			/* kill each program at one of its steps */

unsigned int draw(struct world *world, unsigned int below)
{
	world->state = world->state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(world->state >> 33) % below;
}

void fault(struct world *world, const char *file, int line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "seed %llu, step %lu, %s:%d: ", (unsigned long long)running_seed, world->steps,
		file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

/* ---- a world ---- */

static void open_streams(struct world *world)
{
	for (int i = 0; i < STREAMS; i++)
		world->stream[i].context = -1;
	context_first_stream(world);
	for (int c = 0; c < CONTEXTS && world->alone; c++)
		if (world->context[c].handle)
			world->stream[1 + c] = (struct stream){ .handle = CU_STREAM_LEGACY, .context = c };
	if (!world->threads && draw(world, 3) == 0)
		world->stream[4] = (struct stream){ .handle = CU_STREAM_PER_THREAD, .context = 0,
						    .blocking = true };
}

void world_open(struct world *world, uint64_t seed, int thread, bool alone)
{
	int threads = world->threads;

	memset(world, 0, sizeof(*world));
	world->threads = threads;
	for (int i = 0; i < BLOCKS; i++)
		world->block[i].stream = -1;
	world->state = seed * 0x9e3779b97f4a7c15u + (uint64_t)thread * 77777 + 1;
	for (int i = 0; i < 4; i++)
		draw(world, 2);
	world->alone = alone;
	world->tight = getenv("MODEL_TIGHT") != NULL;
	MUST(world, cuDeviceGetCount(&world->devices));
	context_open(world, 0, 0, true);
	if (draw(world, 3) == 0 && world->devices > 1)
		context_open(world, 1, 1, true);
	if (draw(world, 5) == 0 && alone)
		context_open(world, 2, 0, false);
	open_streams(world);
	context_flag(world);
	world->one_stream = draw(world, 2);
}

static void free_some(struct world *world)
{
	int id = any_block(world, false);

	if (id < 0)
		return;
	if (draw(world, 4) == 0)
		memory_free_async(world, id);
	else
		memory_free(world, id);
}

void world_step(struct world *world)
{
	int id;

	world->steps++;
	if (world->one_stream && draw(world, 60) == 0)
		world->one_stream = false;
	if (world->flag_value && draw(world, 8) == 0)
		flag_set(world);
	switch (draw(world, 42)) {
	case 0 ... 8: memory_alloc(world); break;
	case 9 ... 11: memory_alloc_async(world); break;
	case 12 ... 19: free_some(world); break;
	case 20 ... 26: work_fill(world); break;
	case 27 ... 29: work_copy(world); break;
	case 30: work_programmatic(world); break;
	case 31: flag_wait(world); break;
	case 32: streams_change(world); break;
	case 33: synchronise(world); break;
	case 34: context_change(world); break;
	case 35: work_host_function(world); break;
	case 36:
		if (world->alone)
			graph_make(world);
		break;
	case 37: graph_launch(world); break;
	case 38:
		if (world->alone && draw(world, 4) == 0)
			capture_refused(world);
		else
			graph_drop(world, (int)draw(world, GRAPHS));
		break;
	case 39:
		if (draw(world, 3) == 0)
			context_begin_or_end(world);
		break;
	case 40: work_peer_copy(world); break;
	default:
		id = any_block(world, true);
		if (id >= 0)
			memory_check(world, id);
	}
}

void world_close(struct world *world)
{
	world->one_stream = false;
	flag_set(world);
	context_synchronise_all(world);
	memory_seen(world, -1);
	for (int i = 0; i < BLOCKS; i++)
		if (world->block[i].words && world->block[i].known)
			memory_check(world, i);
	for (int i = 0; i < GRAPHS; i++)
		graph_drop(world, i);
	for (int i = 0; i < BLOCKS; i++)
		if (world->block[i].words)
			memory_free(world, i);
	totals->steps += world->steps;
	totals->refused += world->refused;
	totals->reused += world->reused;
	for (int i = 0; i < DREW_COUNT; i++)
		totals->drawn[i] += world->drawn[i];
}

/* ---- a program ---- */

struct part { uint64_t seed; int thread; bool alone; };

static void one_step(struct world *world, const struct part *part, int number)
{
	static int (*check)(void);

	check = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");
	if (killed && part->thread == 0 && (uint64_t)number == part->seed * 31 % STEPS)
		kill(getpid(), SIGKILL);
	world_step(world);
	if (check && part->alone && check())
		FAULT(world, "the library's own structures are wrong");
}

static void *run_part(void *arg)
{
	const struct part *part = arg;
	static __thread struct world world;

	world_open(&world, part->seed, part->thread, part->alone);
	for (int i = 0; i < STEPS; i++)
		one_step(&world, part, i);
	world_close(&world);
	return NULL;
}

static bool step_in_turn(struct world *world, uint64_t seed, int number)
{
	struct part part = { seed, 0, true };

	if (number < STEPS)
		one_step(world, &part, number);
	else
		world_close(world);
	return number < STEPS;
}

/* Choose the driver's properties by the seed, before the first call. */
static void choose_driver(uint64_t seed)
{
	static const char *const failing[] = {
		"cuMemAlloc_v2:3:2:2", "cuMemAlloc_v2:0:1:2", "cuMemAllocAsync:1:3:2",
		"cuCtxRecordEvent:2:5:2", "cuCtxRecordEvent:0:-1:2", "cuMemGetInfo_v2:0:-1:2",
	};

	/* With one device the library does not ask for the current context each time (context.h). */
	if (seed % 2)
		setenv("FAKECUDA_DEVICES", "1", 1);
	if (seed % 3 == 1) {
		setenv("FAKECUDA_CAPACITY", "96MiB", 1);
		setenv("MODEL_TIGHT", "1", 1);
	}
	if (seed % 16 == 5) {
		setenv("FAKECUDA_FAIL", failing[seed / 16 % (sizeof(failing) / sizeof(failing[0]))], 1);
		setenv("MODEL_TIGHT", "1", 1);
	}
}

static void run_program(uint64_t seed, int threads, bool turns)
{
	int (*driver_check)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "fakecuda_check");
	uint64_t (*calls)(const char *) =
		(uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "fakecuda_calls");
	void (*await)(const char *, enum fakecuda_wait);
	struct part part[8];
	pthread_t thread[8];

	alarm(LIMIT_S);
	choose_driver(seed);
	running_seed = seed;
	/* A kernel may read the flag after the flag has moved on to a later value. */
	await = (void (*)(const char *, enum fakecuda_wait))dlsym(RTLD_DEFAULT, "fakecuda_wait_kernel");
	await("await_flag", FAKECUDA_WAIT_GEQ);
	if (cuInit(0))
		_exit(2);
	if (turns)
		turns_run(seed, threads, step_in_turn);
	for (int i = 0; i < threads && !turns; i++) {
		part[i] = (struct part){ seed, i, threads == 1 };
		if (threads > 1 && pthread_create(&thread[i], NULL, run_part, &part[i]))
			_exit(2);
	}
	if (threads == 1 && !turns)
		run_part(&part[0]);
	for (int i = 0; threads > 1 && !turns && i < threads; i++)
		pthread_join(thread[i], NULL);
	totals->driver += calls("cuMemAlloc_v2") + calls("cuMemAllocAsync");
	if (driver_check()) {
		fprintf(stderr, "seed %llu: the driver's structures are wrong\n",
			(unsigned long long)seed);
		exit(1);
	}
	exit(0);
}

static bool reap(uint64_t *seeds, pid_t *pids, int jobs)
{
	int status;
	pid_t pid = wait(&status);

	for (int i = 0; i < jobs; i++) {
		if (pids[i] != pid)
			continue;
		pids[i] = 0;
		if (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			return true;
		if (status || killed)
			printf("seed %llu: %s %d\n", (unsigned long long)seeds[i],
			       WIFSIGNALED(status) ? "signal" : "status",
			       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return status == 0 && !killed;
	}
	return true;
}

int main(int argc, char **argv)
{
	uint64_t first, count, seeds[16];
	int option, threads = 1, jobs = 2, running = 0, at;
	unsigned long failed = 0;
	pid_t pids[16] = { 0 };
	bool turns = false;

	while ((option = getopt(argc, argv, "t:T:j:k")) != -1) {
		turns |= option == 'T';
		if (option == 't' || option == 'T')
			threads = atoi(optarg);
		else if (option == 'j')
			jobs = atoi(optarg);
		else if (option == 'k')
			killed = true;
		else
			return 2;
	}
	if (argc - optind != 2 || threads < 1 || threads > (turns ? TURNS : 8) || jobs < 1 || jobs > 16)
		return 2;
	first = strtoull(argv[optind], NULL, 10);
	count = strtoull(argv[optind + 1], NULL, 10);
	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (uint64_t seed = first; seed < first + count; seed++) {
		if (running == jobs) {
			failed += !reap(seeds, pids, jobs);
			running--;
		}
		for (at = 0; pids[at]; at++)
			;
		fflush(stdout);
		seeds[at] = seed;
		pids[at] = fork();
		if (!pids[at])
			run_program(seed, threads, turns);
		running++;
	}
	for (; running; running--)
		failed += !reap(seeds, pids, jobs);
	printf("%llu programs, %lu steps, %lu addresses handed out again, %lu refused for want of memory, "
	       "%lu allocations of the driver's, %lu failed\n", (unsigned long long)count, totals->steps,
	       totals->reused, totals->refused, totals->driver, failed);
	printf("drawn: %lu contexts created, %lu destroyed, %lu devices reset, %lu released; %lu blocks gone with them, "
	       "%lu outlived them; %lu freed with another context current, %lu peer copies\n",
	       totals->drawn[DREW_CREATED], totals->drawn[DREW_DESTROYED], totals->drawn[DREW_RESET],
	       totals->drawn[DREW_RELEASED], totals->drawn[DREW_GONE], totals->drawn[DREW_SURVIVED],
	       totals->drawn[DREW_FREED_ELSEWHERE], totals->drawn[DREW_PEER_COPIES]);
	return failed != 0;
}
