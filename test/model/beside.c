/*
 * beside.c - run each program of beside.def many times. In each run another thread begins a capture just before one
 * driver call (see beside.h), or in each step before the call of one number. All runs together have a capture before
 * each call.
 *
 * usage: beside TABLE [PROGRAM [some]]. If TABLE does not exist, it is made, in a run without the library: it lists
 * the calls that the driver refuses during a capture. some: half of the kinds of captures. Prints a line for each
 * program, a line for each name of a call that the library made during a capture, and a line for each failure. Exit 1:
 * there were failures.
 *
 * A capture is global or relaxed, and of one of these kinds (passes, below, has which are combined, and which have
 * one capture a step):
 *   around:    it ends just after that call
 *   seen:      the same after an earlier capture
 *   to-end:    it ends when the program's own call has returned
 *   span:      it ends some calls of the program later
 * A lock of the library may delay its beginning until then.
 *
 * Thread context: the parent has one thread and makes no CUDA call; the process of a program has the program's
 * thread and the thread that captures.
 */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/fakecuda/fakecuda.h"
#include "test/model/beside.h"

#define LIMIT_S 30
#define STEPS 512
#define NAMES 256
#define JOBS 2
#define LOOKS 3				/* looks at a sleeping thread before it counts as blocked */
#define LOOK_NS 200000
#define SPANNED 8			/* calls of the program that a capture spans */
#define CALLS_MOST 5000u

static const struct program { const char *name, *environment; void (*run)(struct scene *); }
programs[] = {
#define PROGRAM(name, environment, what) { #name, environment, beside_##name },
#include "test/model/beside.def"
#undef PROGRAM
};
#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

enum { GLOBAL, RELAXED };
static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED };
static const char *const mode_names[] = { "global", "relaxed" };
enum { AROUND, SEEN, TO_END, SPAN };
static const char *const variant_names[] = { "around", "seen", "to-end", "span" };

/* One way to run one program, and its result for the parent. */
struct run {
	size_t program;
	unsigned int call, mode, variant;	/* call: from 1; of the first capture */
	bool each_step;				/* call is counted from the step's beginning, and each step has a capture */
	_Atomic(bool) reached;
};

/* Data of all programs, shared by their processes. */
static struct shared {
	unsigned char refused[PROGRAMS][STEPS][2];	/* by the driver alone */
	struct { _Atomic(int) taken; char name[48]; _Atomic(unsigned long) count; } names[NAMES];
	struct run run[JOBS];
} *shared;

static struct run *run;
static bool bare;			/* this run makes the table */
static bool some;			/* not all kinds of captures */

/* ---- the thread that captures ---- */

static struct {
	struct scene *scene;
	CUstream stream;
	CUdeviceptr block;
	_Atomic(pid_t) id;
	sem_t begin, end, told;
	_Atomic(int) begun, ended;	/* how many captures */
	_Atomic(bool) busy;		/* the thread has been told to go on */
	CUresult result;		/* of ending the last capture */
} other;

static void capture(CUstreamCaptureMode mode)
{
	uint32_t value = 1, words = WORDS;
	void *args[] = { &other.block, &value, &words };
	CUgraph graph = NULL;

	CHECK(cuStreamBeginCapture(other.stream, mode));
	other.begun++;
	other.busy = false;
	sem_post(&other.told);
	while (sem_wait(&other.end))
		;
	other.busy = true;
	cuLaunchKernel(other.scene->fill[0], 1, 1, 1, 1, 1, 1, 0, other.stream, args, NULL);
	other.result = cuStreamEndCapture(other.stream, &graph);
	if (graph)
		CHECK(cuGraphDestroy(graph));
	other.ended++;
	sem_post(&other.told);
}

static void *captures(void *arg)
{
	(void)arg;
	CHECK(cuCtxSetCurrent(other.scene->context[0]));
	other.id = (pid_t)syscall(SYS_gettid);
	for (;;) {
		while (sem_wait(&other.begin))
			;
		other.busy = true;
		capture(modes[run->mode]);
		other.busy = false;
	}
	return NULL;
}

static bool sleeps(pid_t thread)
{
	char path[64], stat[512];
	const char *state;
	ssize_t bytes;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = fd >= 0 ? read(fd, stat, sizeof(stat) - 1) : -1;
	close(fd);
	stat[bytes > 0 ? bytes : 0] = '\0';
	state = strrchr(stat, ')');
	return state && state[2] == 'S';
}

/* Wait until the other thread has counted to @wanted, or a lock that this thread holds keeps it from that. */
static void wait_for(const _Atomic(int) *counter, int wanted)
{
	struct timespec until;

	for (int seen = 0; *counter < wanted && seen < LOOKS;) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		if (!sem_timedwait(&other.told, &until) || !other.busy || !sleeps(other.id))
			seen = 0;
		else
			seen++;
	}
}

/* Wait while no lock is held. */
static void wait_long_for(const _Atomic(int) *counter, int wanted)
{
	while (*counter < wanted)
		sem_wait(&other.told);
}

static void start_other(struct scene *scene)
{
	pthread_t thread;

	other.scene = scene;
	other.block = get(WORDS * 4);
	CHECK(cuStreamCreate(&other.stream, CU_STREAM_NON_BLOCKING));
	sem_init(&other.begin, 0, 0);
	sem_init(&other.end, 0, 0);
	sem_init(&other.told, 0, 0);
	must(!pthread_create(&thread, NULL, captures, NULL), "no thread");
	while (!other.id)
		sched_yield();
	if (run->variant != SEEN)
		return;
	sem_post(&other.begin);
	sem_post(&other.end);
	wait_long_for(&other.ended, 1);
	must(!other.result, "the capture before is lost: %d", (int)other.result);
}

/* ---- a step ---- */

static struct {
	const char *name;
	unsigned int number;
	char call[48];			/* the call before which the capture began; "": no capture */
	int captures;			/* how many captures were begun before */
	unsigned int spanned;		/* how many steps the capture has lasted */
	bool late;			/* a lock delayed its beginning or end */
} step;
static unsigned int calls;

static bool is_steps_own(const char *entry)
{
	size_t length = strlen(step.name);

	return !strncmp(entry, step.name, length) && (!entry[length] || entry[length] == '_');
}

static void count_name(const char *entry)
{
	for (int i = 0; i < NAMES; i++) {
		if (!shared->names[i].taken && !__atomic_exchange_n((int *)&shared->names[i].taken, 1,
								    __ATOMIC_ACQ_REL))
			strcpy(shared->names[i].name, entry);
		if (!strcmp(shared->names[i].name, entry)) {
			shared->names[i].count++;
			return;
		}
	}
}

static void begin_capture(const char *entry)
{
	run->reached = true;
	strcpy(step.call, entry);
	step.spanned = 0;
	step.captures = other.ended;
	sem_post(&other.begin);
	wait_for(&other.begun, step.captures + 1);
	step.late = other.begun == step.captures;
}

static void watched(void *arg, const char *entry, int relaxed, int result)
{
	(void)arg;
	if (result < 0 && ++calls == run->call && !*step.call)
		begin_capture(entry);
	if (result < 0 && *step.call && (relaxed || !is_steps_own(entry)))
		count_name(entry);
	if (result >= 0 && calls == run->call && run->variant <= SEEN && *step.call &&
	    other.ended == step.captures) {
		sem_post(&other.end);
		wait_for(&other.ended, step.captures + 1);
		step.late |= other.ended == step.captures;
	}
}

void step_begin(const char *name)
{
	step.name = name;
	must(step.number < STEPS, "too many steps");
	if (run->each_step)
		calls = 0;
	fakecuda_watch(watched, NULL);
}

static bool is_refusal(CUresult result)
{
	return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
	       result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/* Check that the capture is lost if and only if the call was refused, and that the driver alone also refuses this call
 * when the program makes it. */
static bool judge(CUresult result)
{
	unsigned char *drivers = &shared->refused[run->program][step.number][run->mode];
	bool refused = is_refusal(result), lost = other.result != CUDA_SUCCESS;

	must(refused == lost, "step %u, %s, beside %s: CUresult %d, and the capture ends with %d",
	     step.number, step.name, step.call, (int)result, (int)other.result);
	if (bare && refused)
		*drivers = 1;
	must(!refused || *drivers, "step %u, %s, beside %s: refused, not by the driver alone",
	     step.number, step.name, step.call);
	must(!refused || run->variant >= TO_END || step.late || is_steps_own(step.call) ||
	     !strcmp(step.call, "cuEventQuery"), "step %u, %s, refused beside %s", step.number,
	     step.name, step.call);
	return refused;
}

static bool end_capture(CUresult result)
{
	bool refused;

	if (run->variant >= TO_END)
		sem_post(&other.end);
	wait_long_for(&other.ended, step.captures + 1);
	refused = judge(result);
	*step.call = '\0';
	return refused;
}

bool step_end(CUresult result)
{
	bool refused = false;

	fakecuda_watch(NULL, NULL);
	if (*step.call && (run->variant != SPAN || is_refusal(result) || ++step.spanned == SPANNED))
		refused = end_capture(result);
	step.number++;
	return refused;
}

void synchronise(void)
{
	if (*step.call)
		end_capture(CUDA_SUCCESS);
	CHECK(cuCtxSynchronize());
}

/* ---- a program ---- */

static CUipcMemHandle handle_of_other;

CUipcMemHandle exported(void)
{
	return handle_of_other;
}

/* Start a process that exports memory and lives until this process has ended. */
static void start_exporter(void)
{
	int there[2], back[2];
	CUcontext context;
	CUdeviceptr first, ptr;

	must(!pipe(there) && !pipe(back), "no pipe");
	if (fork()) {
		close(there[1]);
		close(back[0]);
		must(read(there[0], &handle_of_other, sizeof(handle_of_other)) ==
		     (ssize_t)sizeof(handle_of_other), "nothing exported");
		return;
	}
	close(back[1]);
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&first, 5000));
	CHECK(cuMemAlloc(&ptr, 5000));
	CHECK(cuIpcGetMemHandle(&handle_of_other, ptr));
	must(write(there[1], &handle_of_other, sizeof(handle_of_other)) > 0, "no handle told");
	while (read(back[0], &first, 1) > 0)
		;
	_exit(0);
}

static void run_program(struct run *state)
{
	int (*driver_check)(void), (*library_check)(void);
	char environment[256], *at = environment, *word;
	struct scene scene;

	alarm(LIMIT_S);
	run = state;
	snprintf(environment, sizeof(environment), "%s", programs[run->program].environment);
	while ((word = strsep(&at, " ")) && *word)
		putenv(strdup(word));
	if (getenv("BESIDE_EXPORTER"))
		start_exporter();
	scene_open(&scene, 1);
	start_other(&scene);
	programs[run->program].run(&scene);
	synchronise();
	driver_check = (int (*)(void))control("fakecuda_check");
	library_check = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");
	must(!driver_check(), "the driver's structures are wrong");
	must(!library_check || !library_check(), "the library's structures are wrong");
	exit(0);
}

/* ---- all of them ---- */

/* The kind "seen" does not depend on the mode, so one mode is enough. A thread-local capture is a relaxed one to threads
 * other than its own, so none is thread-local. A process has one capture only in two cases: the capture must be the
 * first that the library meets, or the driver refuses the program's call, so that later steps have nothing to do. */
static const struct pass { unsigned int mode, variant; bool some, each_step; } passes[] = {
	{ GLOBAL, AROUND, true, false }, { GLOBAL, SEEN, false, true }, { GLOBAL, TO_END, false, false },
	{ RELAXED, AROUND, true, true }, { RELAXED, TO_END, true, true }, { RELAXED, SPAN, false, true },
};

static pid_t pids[JOBS];
static unsigned long failed, ran;

static void start(size_t program, unsigned int call, const struct pass *pass, int at)
{
	shared->run[at] = (struct run){ .program = program, .call = call, .mode = pass->mode,
					.variant = pass->variant, .each_step = pass->each_step };
	fflush(NULL);
	pids[at] = fork();
	if (pids[at])
		return;
	run_program(&shared->run[at]);
}

/* Wait for a process. Returns its free place, and whether its call was reached. */
static int reap(bool *ret_reached)
{
	int status, at = 0;
	pid_t pid = wait(&status);
	struct run *was;

	while (at < JOBS - 1 && pids[at] != pid)
		at++;
	was = &shared->run[at];
	pids[at] = 0;
	ran++;
	*ret_reached = was->reached;
	if (status) {
		failed++;
		printf("failed: %s, call %u, %s, %s: %s %d\n", programs[was->program].name, was->call,
		       mode_names[was->mode], variant_names[was->variant],
		       WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return at;
}

/* Run the program for call 1, 2, ... until it, or each of its steps, makes no more calls. */
static unsigned int enumerate(size_t program, const struct pass *pass)
{
	unsigned int call = 0, running = 0;
	bool more = true, reached;

	for (int at = 0; more && call < CALLS_MOST; call++) {
		if (running == JOBS) {
			at = reap(&reached);
			more = more && reached;
		} else {
			at = (int)running++;
		}
		if (more)
			start(program, call + 1, pass, at);
		else
			running--;
	}
	for (; running; running--)
		reap(&reached);
	return call;
}

static void enumerate_program(size_t program)
{
	unsigned long failed_before = failed, ran_before = ran;
	unsigned int calls_most = 0;

	for (size_t i = 0; i < sizeof(passes) / sizeof(passes[0]); i++) {
		unsigned int n;

		if (bare ? passes[i].variant != AROUND : some && !passes[i].some)
			continue;
		n = enumerate(program, &passes[i]);
		calls_most = n > calls_most ? n : calls_most;
	}
	printf("program %s: %u calls, %lu runs, %lu failed\n", programs[program].name, calls_most,
	       ran - ran_before, failed - failed_before);
}

static bool table(const char *path, bool make)
{
	FILE *file = fopen(path, make ? "wx" : "r");
	size_t got;

	if (!file)
		return false;
	got = make ? fwrite(shared->refused, sizeof(shared->refused), 1, file)
		   : fread(shared->refused, sizeof(shared->refused), 1, file);
	return fclose(file) == 0 && got == 1;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	unsetenv("BESIDE_EXPORTER");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bare = !table(argv[1], false);
	some = argc > 3 && !strcmp(argv[3], "some");
	for (size_t i = 0; i < PROGRAMS; i++)
		if (argc == 2 || !strcmp(argv[2], programs[i].name))
			enumerate_program(i);
	for (int i = 0; i < NAMES && shared->names[i].taken; i++)
		printf("beside %s: %lu\n", shared->names[i].name, shared->names[i].count);
	printf("%lu runs, %lu failed\n", ran, failed);
	if (bare && !table(argv[1], true))
		return 2;
	return failed != 0;
}
