/*
 * scenarios_handover.c - threads with a stream each hand memory to one another by events, end, and begin. Now and
 * then only one thread has work for a while, and others begin again in the middle of it.
 *
 * HANDOVER_SEED=n: another program; HANDOVER_STEPS=n: a longer one.
 *
 * Thread context: THREADS at a time, and the thread that starts them.
 */
#include <pthread.h>
#include <sched.h>

#include "test/model/scenario.h"

#define THREADS 4
#define LIVES 3				/* threads in each place, one after the other */
#define PARCELS 16
#define ALONE 60			/* works of the thread that is alone */

struct parcel { CUdeviceptr p; CUevent event; uint32_t value; bool async; };

static struct parcel parcels[PARCELS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct scene scene;
static _Atomic(unsigned int) alone;	/* works so far of the thread that is alone; 0: none is alone */

struct runner { uint64_t state; int number; CUstream stream; };

static unsigned int draw(struct runner *runner, unsigned int below)
{
	runner->state = runner->state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(runner->state >> 33) % below;
}

static unsigned long number_of(const char *name, unsigned long standard)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 10) : standard;
}

/* ---- memory ---- */

static struct parcel make(struct runner *runner)
{
	struct parcel parcel = { .value = draw(runner, 1u << 30), .async = draw(runner, 3) == 0 };
	size_t bytes = draw(runner, 8) ? (size_t)4096 << draw(runner, 3) : 2 * MIB;

	parcel.p = parcel.async ? get_async(bytes, runner->stream) : get(bytes);
	fill(&scene, runner->stream, parcel.p, parcel.value);
	return parcel;
}

/* End a parcel, which is in the order of this thread's stream by now. */
static void end(struct runner *runner, const struct parcel *parcel)
{
	if (draw(runner, 8) == 0)
		expect_words(runner->stream, parcel->p, parcel->value);
	if (parcel->async || draw(runner, 4) == 0)
		give_async(parcel->p, runner->stream);
	else
		give(parcel->p);
}

static bool hand_on(struct runner *runner, const struct parcel *parcel)
{
	struct parcel *place = &parcels[draw(runner, PARCELS)];
	CUevent event;
	bool done;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(event, runner->stream));
	pthread_mutex_lock(&lock);
	done = !place->p;
	if (done) {
		*place = *parcel;
		place->event = event;
	}
	pthread_mutex_unlock(&lock);
	if (!done)
		CHECK(cuEventDestroy(event));
	return done;
}

static bool take(struct runner *runner, struct parcel *ret)
{
	struct parcel *place = &parcels[draw(runner, PARCELS)];

	pthread_mutex_lock(&lock);
	*ret = *place;
	*place = (struct parcel){ 0 };
	pthread_mutex_unlock(&lock);
	if (!ret->p)
		return false;
	CHECK(cuStreamWaitEvent(runner->stream, ret->event, 0));
	CHECK(cuEventDestroy(ret->event));
	return true;
}

/* ---- threads ---- */

static void step(struct runner *runner)
{
	struct parcel parcel;

	if (draw(runner, 2)) {
		parcel = make(runner);
		if (draw(runner, 4) == 0 || !hand_on(runner, &parcel))
			end(runner, &parcel);
	} else if (take(runner, &parcel)) {
		if (draw(runner, 2))
			fill(&scene, runner->stream, parcel.p, ++parcel.value);
		end(runner, &parcel);
	}
}

static void all_alone(struct runner *runner)
{
	for (alone = 1; alone <= ALONE; alone++) {
		struct parcel parcel = make(runner);

		end(runner, &parcel);
		if (draw(runner, 8) == 0)
			sched_yield();
	}
	alone = 0;
}

/* Let one thread work alone. Some threads go on before it is done. */
static void let_one_alone(struct runner *runner)
{
	unsigned int until = 1 + draw(runner, 2 * ALONE);

	while (alone && alone < until)
		sched_yield();
}

static void begin(struct runner *runner)
{
	CHECK(cuCtxSetCurrent(scene.context[0]));
	runner->stream = CU_STREAM_PER_THREAD;
	if (draw(runner, 3))
		CHECK(cuStreamCreate(&runner->stream, CU_STREAM_NON_BLOCKING));
}

static void *run(void *arg)
{
	struct runner *runner = arg;

	begin(runner);
	for (unsigned long i = number_of("HANDOVER_STEPS", 200); i; i--) {
		if (runner->number == 0 && i % 64 == 0)
			all_alone(runner);
		else if (runner->number)
			let_one_alone(runner);
		step(runner);
	}
	if (runner->stream != CU_STREAM_PER_THREAD)
		CHECK(cuStreamDestroy(runner->stream));
	return NULL;
}

void scenario_handover(void)
{
	static struct runner runners[THREADS];
	pthread_t threads[THREADS];

	scene_open(&scene, 1);
	for (int life = 0; life < LIVES; life++) {
		for (int t = 0; t < THREADS; t++) {
			if (!life)
				runners[t] = (struct runner){ .number = t,
							      .state = number_of("HANDOVER_SEED", 1) * 977 + (unsigned int)t };
			must(!pthread_create(&threads[t], NULL, run, &runners[t]), "no thread");
		}
		for (int t = 0; t < THREADS; t++)
			pthread_join(threads[t], NULL);
	}
	runners[0].stream = scene.s;
	for (int i = 0; i < PARCELS; i++)
		if (parcels[i].p) {
			CHECK(cuStreamWaitEvent(scene.s, parcels[i].event, 0));
			end(&runners[0], &parcels[i]);
		}
	CHECK(cuCtxSynchronize());
}
