/*
 * scenarios_wait.c - the program's own waits, and the calls of other threads meanwhile (see scenario.h).
 *
 * Thread context: threads that a scenario stops at chosen calls.
 */
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "test/model/scenario.h"

/* A thread that stops in its first call of @entry: before the call has any effect (@before), or when it is done. */
struct actor {
	struct scene *scene;
	void (*act)(struct actor *actor);
	const char *entry;		/* NULL: the thread does not stop */
	bool before;
	CUdeviceptr p;
	CUevent event;
	CUcontext context;
	sem_t held, go;
	_Atomic(pid_t) id;		/* set when the thread is about to act */
	_Atomic(bool) over;
	unsigned int skip;		/* how many of these calls pass before it stops */
	pthread_t thread;
};

static void hold(void *arg, const char *entry, int relaxed, int result)
{
	struct actor *actor = arg;

	(void)relaxed;
	if (!actor->entry || strcmp(entry, actor->entry) || (result < 0) != actor->before ||
	    actor->skip-- > 0)
		return;
	actor->entry = NULL;
	sem_post(&actor->held);
	sem_wait(&actor->go);
}

static void *run_actor(void *arg)
{
	void (*watch)(void (*)(void *, const char *, int, int), void *);
	struct actor *actor = arg;

	watch = (void (*)(void (*)(void *, const char *, int, int), void *))control("fakecuda_watch");
	CHECK(cuCtxSetCurrent(actor->scene->context[0]));
	watch(hold, actor);
	actor->act(actor);
	watch(NULL, NULL);
	actor->over = true;
	sem_post(&actor->held);			/* for a thread that waits for a stop that does not come */
	return NULL;
}

static void begin(struct actor *actor)
{
	sem_init(&actor->held, 0, 0);
	sem_init(&actor->go, 0, 0);
	pthread_create(&actor->thread, NULL, run_actor, actor);
}

static void go_on(struct actor *actor)
{
	sem_post(&actor->go);
	pthread_join(actor->thread, NULL);
}

static void act_free(struct actor *actor)
{
	((void (*)(uint64_t))control("fakecuda_note_free"))(actor->p);
	actor->id = (pid_t)syscall(SYS_gettid);
	CHECK(cuMemFree(actor->p));
}

/* Wait until @actor sleeps or has ended. Only a lock of the library can make it sleep here. */
static void await_asleep(const struct actor *actor)
{
	char path[64], line[256], state = 0;
	bool known;
	FILE *file;

	while (state != 'S' && !actor->over) {
		usleep(1000);
		if (!actor->id)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)actor->id);
		file = fopen(path, "r");
		known = file && fgets(line, sizeof(line), file) &&
			sscanf(strrchr(line, ')'), ") %c", &state) == 1;
		if (file)
			fclose(file);
		if (!known && !actor->over)	/* the thread may end between the two calls */
			DIE("%s cannot be read", path);
	}
}

/* A waiting free has found that only its own context has work, and waits for a lock. Another device gets its first
 * work, and memory that this work uses is freed. Only then does the wait begin. */
void scenario_free_waits_elsewhere(void)
{
	struct scene scene;
	struct actor first = { .scene = &scene, .act = act_free, .entry = "cuCtxRecordEvent" };
	struct actor second = { .scene = &scene, .act = act_free };
	CUstream there, beside;
	CUdeviceptr left, p, q;

	scene_open(&scene, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	p = get(2 * MIB);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	first.p = get(2 * MIB);
	second.p = get(2 * MIB);
	left = get(2 * MIB);
	slow_from_here();
	fill(&scene, scene.s, left, 1);
	give_async(left, scene.s);
	fill(&scene, scene.t, first.p, 1);	/* the remaining memory has its event */
	begin(&first);
	if (cached())
		sem_wait(&first.held);
	begin(&second);
	if (cached())
		await_asleep(&second);
	fill_in(&scene, 1, there, p, 1);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	give_async(p, there);
	go_on(&first);
	go_on(&second);
	q = get(2 * MIB);
	fill_in(&scene, 1, beside, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(beside, q, 2);
}

static void act_wait(struct actor *actor)
{
	CHECK(cuEventSynchronize(actor->event));
}

/* Check that @host has the copy of what fill() wrote with 5. If the copy is still missing, nothing has waited for
 * it. */
static void copied(const void *host)
{
	const volatile uint32_t *words = host;

	((void (*)(uint64_t, size_t, int))control("fakecuda_note_access"))((uintptr_t)host, WORDS * 4, 0);
	for (unsigned int i = 0; i < WORDS; i++)
		must(words[i] == 5, "word %u is %u, not 5", i, words[i]);
}

/* A thread waits for an event, which another thread records again at that moment on an idle stream. A later free
 * must still wait for the copy behind which the event was recorded first. */
void scenario_event_again(void)
{
	struct scene scene;
	struct actor waiter = { .scene = &scene, .act = act_wait, .entry = "cuEventSynchronize",
				.before = true };
	CUdeviceptr p;
	void *host;

	scene_open(&scene, 1);
	CHECK(cuMemHostAlloc(&host, WORDS * 4, 0));
	CHECK(cuEventCreate(&waiter.event, CU_EVENT_DISABLE_TIMING));
	p = get(WORDS * 4);
	slow_from_here();
	fill(&scene, scene.s, p, 5);
	CHECK(cuMemcpyDtoHAsync(host, p, WORDS * 4, scene.s));
	CHECK(cuEventRecord(waiter.event, scene.s));
	begin(&waiter);
	sem_wait(&waiter.held);
	CHECK(cuEventRecord(waiter.event, scene.t));
	go_on(&waiter);
	give(p);
	copied(host);
}

/* ---- a context ends ---- */

static void act_destroy(struct actor *actor)
{
	CHECK(cuCtxDestroy(actor->context));
}

/* Make a stream of @context that has the handle of @before. */
static CUstream stream_again(CUcontext context, CUstream before)
{
	CUstream stream = NULL;

	CHECK(cuCtxPushCurrent(context));
	for (unsigned int i = 0; i < 64 && stream != before; i++)
		CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxPopCurrent(NULL));
	must(stream == before, "the driver gave another handle: this shows nothing");
	return stream;
}

/* The driver has ended a context, but the call has not returned yet. A stream of another device, which has had no work
 * before, gets the handle of one of the context's streams. */
void scenario_handle_while_context_ends(void)
{
	CUctxCreateParams params = { 0 };
	struct scene scene;
	struct actor ender = { .scene = &scene, .act = act_destroy, .entry = "cuCtxDestroy_v2" };
	CUstream stream, again, beside;
	CUdeviceptr other, p, q;

	scene_open(&scene, 2);
	other = get(4096);
	CHECK(cuCtxCreate(&ender.context, &params, 0, 0));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = get(4096);
	CHECK(cuMemsetD32Async(p, 1, 1024, stream));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	p = get(BIG);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	fill(&scene, scene.s, other, 1);
	CHECK(cuCtxSynchronize());
	begin(&ender);
	sem_wait(&ender.held);
	again = stream_again(scene.context[1], stream);
	slow_from_here();
	fill_in(&scene, 1, again, p, 1);
	go_on(&ender);
	give(p);
	fill(&scene, scene.s, other, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	q = get(BIG);
	fill_in(&scene, 1, beside, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(beside, q, 2);
}

/* A context ends. A stream of another device gets the handle of one of its streams, and a new context gets the
 * context's handle. A wait for the new context is no wait for the copy on that stream. */
void scenario_handles_after_context(void)
{
	CUctxCreateParams params = { 0 };
	CUcontext context, again;
	struct scene scene;
	CUstream stream;
	CUdeviceptr p;
	void *host;

	scene_open(&scene, 2);
	CHECK(cuMemHostAlloc(&host, WORDS * 4, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(cuCtxCreate(&context, &params, 0, 0));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	p = get(WORDS * 4);
	CHECK(cuMemcpyDtoHAsync(host, p, WORDS * 4, stream));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxDestroy(context));
	stream = stream_again(scene.context[1], stream);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	p = get(WORDS * 4);
	slow_from_here();
	fill_in(&scene, 1, stream, p, 5);
	CHECK(cuMemcpyDtoHAsync(host, p, WORDS * 4, stream));
	for (unsigned int i = 0; i < 64; i++) {
		CHECK(cuCtxCreate(&again, &params, 0, 0));
		if (again == context)
			break;
	}
	must(again == context, "the driver gave another handle: this shows nothing");
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[1]));
	give(p);
	copied(host);
}

static void act_alloc(struct actor *actor)
{
	CHECK(cuCtxSetCurrent(actor->context));
	actor->id = (pid_t)syscall(SYS_gettid);
	actor->p = get_async(4096, CU_STREAM_LEGACY);
}

/* The device's pool has no context any more. Two threads with a context each request memory at the same moment.
 * From then on the pool's heap is in one of these contexts. */
void scenario_pool_homes(void)
{
	int (*check)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");
	CUctxCreateParams params = { 0 };
	struct scene scene;
	CUcontext context;
	CUdeviceptr p;

	scene_open(&scene, 1);
	for (unsigned int skip = 0; skip < 6; skip++) {
		struct actor one = { .scene = &scene, .act = act_alloc, .entry = "cuCtxGetCurrent",
				     .skip = skip };
		struct actor other = { .scene = &scene, .act = act_alloc };

		CHECK(cuCtxCreate(&context, &params, 0, 1));
		p = get_async(4096, CU_STREAM_LEGACY);
		give_async(p, CU_STREAM_LEGACY);
		CHECK(cuCtxDestroy(context));
		CHECK(cuCtxCreate(&one.context, &params, 0, 1));
		CHECK(cuCtxCreate(&other.context, &params, 0, 1));
		begin(&one);
		sem_wait(&one.held);
		begin(&other);
		await_asleep(&other);
		go_on(&one);
		go_on(&other);
		must(!check || !check(), "the pool's heap is at home in another context, held at %u", skip);
		CHECK(cuCtxSetCurrent(one.context));
		give_async(one.p, CU_STREAM_LEGACY);
		give_async(other.p, CU_STREAM_LEGACY);
		CHECK(cuCtxDestroy(one.context));
		CHECK(cuCtxDestroy(other.context));
		CHECK(cuCtxSetCurrent(scene.context[0]));
	}
}

/* ---- another context is blocked ---- */

/* Get blocks of which two do not fit, so each is served only if the one before is free. */
static void take_in_turn(struct scene *scene)
{
	for (uint32_t i = 0; i < 8; i++) {
		CUdeviceptr p = get(60 * MIB);

		fill(scene, scene->s, p, i);
		fill(scene, scene->t, get(4096), i);
		CHECK(cuCtxSynchronize());
		give(p);
	}
}

/* The driver's free waits only for its own context, even if another context is blocked. */
static void blocked_elsewhere(void)
{
	struct scene scene;
	CUdeviceptr flag;
	CUstream there;

	scene_open(&scene, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	flag = flag_new();
	flag_await(&scene, 1, there, flag);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	take_in_turn(&scene);
	flag_set(&scene, flag);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuCtxSynchronize());
}

void scenario_blocked_elsewhere(void)
{
	blocked_elsewhere();
}

void scenario_blocked_elsewhere_waits(void)
{
	blocked_elsewhere();
}

/* While a stream captures, no event of its context can be recorded, but events of other contexts can. */
static void captured_elsewhere(void)
{
	struct scene scene;
	CUdeviceptr p;
	CUstream there;
	CUgraph graph;

	scene_open(&scene, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	p = get(4096);
	fill_in(&scene, 1, there, p, 1);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamBeginCapture(there, CU_STREAM_CAPTURE_MODE_RELAXED));
	fill_in(&scene, 1, there, p, 2);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	take_in_turn(&scene);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamEndCapture(there, &graph));
	CHECK(cuGraphDestroy(graph));
}

void scenario_captured_elsewhere(void)
{
	captured_elsewhere();
}

void scenario_captured_elsewhere_deferred(void)
{
	captured_elsewhere();
}

/* A stream joins a capture that began on another device. No event of either context can be recorded then. */
void scenario_joined_capture(void)
{
	CUdeviceptr p, q, other;
	CUevent fork, join;
	struct scene scene;
	CUstream there, beside;
	CUgraph graph;

	scene_open(&scene, 2);
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	other = get(4096);
	fill(&scene, scene.t, other, 1);
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	p = get(BIG);
	q = get(4096);
	fill_in(&scene, 1, beside, p, 1);
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[0]));
	CHECK(cuStreamBeginCapture(scene.s, CU_STREAM_CAPTURE_MODE_RELAXED));
	fill(&scene, scene.s, other, 2);
	CHECK(cuEventRecord(fork, scene.s));
	CHECK(cuStreamWaitEvent(there, fork, 0));
	fill_in(&scene, 1, there, q, 2);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	give(p);
	fill_in(&scene, 1, beside, get(4096), 3);
	p = get(BIG);
	fill_in(&scene, 1, beside, p, 4);
	CHECK(cuEventRecord(join, there));
	CHECK(cuCtxSetCurrent(scene.context[0]));
	CHECK(cuStreamWaitEvent(scene.s, join, 0));
	CHECK(cuStreamEndCapture(scene.s, &graph));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuCtxSetCurrent(scene.context[1]));
	expect_words(beside, p, 4);
	give(p);
	fill_in(&scene, 1, beside, q, 5);
}

/* Free blocks in the order of a stream that comes after the block's own. Two blocks do not fit. */
static void hand_over_in_turn(struct scene *scene)
{
	CUevent event;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (uint32_t i = 0; i < 8; i++) {
		CUdeviceptr p = get_async(60 * MIB, scene->t);

		fill(scene, scene->t, p, i);
		CHECK(cuEventRecord(event, scene->t));
		CHECK(cuStreamWaitEvent(scene->u, event, 0));
		fill(scene, scene->u, p, i + 1);
		give_async(p, scene->u);
		CHECK(cuStreamSynchronize(scene->u));
		CHECK(cuStreamSynchronize(scene->t));
	}
}

void scenario_freed_elsewhere_beside_flag(void)
{
	struct scene scene;
	CUdeviceptr flag;

	scene_open(&scene, 1);
	flag = flag_new();
	flag_await(&scene, 0, scene.s, flag);
	hand_over_in_turn(&scene);
	flag_set(&scene, flag);
	CHECK(cuCtxSynchronize());
}

void scenario_freed_elsewhere_beside_capture(void)
{
	struct scene scene;
	CUdeviceptr p;
	CUgraph graph;

	scene_open(&scene, 1);
	p = get(4096);
	fill(&scene, scene.s, p, 1);
	CHECK(cuCtxSynchronize());
	CHECK(cuStreamBeginCapture(scene.s, CU_STREAM_CAPTURE_MODE_RELAXED));
	fill(&scene, scene.s, p, 2);
	hand_over_in_turn(&scene);
	CHECK(cuStreamEndCapture(scene.s, &graph));
	CHECK(cuGraphDestroy(graph));
}

/* The only stream of a context has waited for an event and done nothing else. A free there comes after the event. */
void scenario_freed_behind_a_wait(void)
{
	CUctxCreateParams params = { 0 };
	struct scene scene;
	CUcontext context;
	CUdeviceptr p, q;
	CUevent event;
	CUstream there;

	scene_open(&scene, 1);
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	p = get(BIG);
	slow_from_here();
	fill(&scene, scene.s, p, 1);
	CHECK(cuEventRecord(event, scene.s));
	CHECK(cuCtxCreate(&context, &params, 0, 0));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamWaitEvent(there, event, 0));
	give_async(p, there);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	q = get(BIG);
	fill(&scene, scene.t, q, 2);
	CHECK(cuCtxSynchronize());
	expect_words(scene.t, q, 2);
}

/* The program frees memory that a copy of another device still reads (which is the program's responsibility). The
 * copy must not read data of the memory's next owner. */
void scenario_copied_then_blocked(void)
{
	struct scene scene;
	CUdeviceptr p, q, other;
	CUstream there;

	scene_open(&scene, 2);
	other = get(2 * MIB);
	CHECK(cuCtxSetCurrent(scene.context[1]));
	CHECK(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
	p = get(BIG);
	fill_in(&scene, 1, there, p, 1);
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxSetCurrent(scene.context[0]));
	slow_from_here();
	fill(&scene, scene.s, other, 3);
	CHECK(cuMemcpyDtoDAsync(other, p, WORDS * 4, scene.s));
	CHECK(cuCtxSetCurrent(scene.context[1]));
	give(p);
	q = get(BIG);
	fill_in(&scene, 1, there, q, 2);
	CHECK(cuCtxSetCurrent(scene.context[0]));
	CHECK(cuCtxSynchronize());
	expect_words(scene.s, other, 1);
}
