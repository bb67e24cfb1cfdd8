/*
 * turns.c - a random program of several threads that take turns. One thread allocates a block, another uses it,
 * a third frees it. Each thread has its own default stream, and now and then a thread ends and another begins.
 *
 * Only one thread makes a call at a time, and hands over as programs do that keep all order themselves.
 *
 * Thread context: the world belongs to the thread that has the turn.
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "world.h"

#define FIRST_OWN 4			/* slot of the first thread's default stream */

enum what { OPEN, STEP, END };

static struct turn {
	pthread_t thread;
	sem_t go;
	enum what what;
	int index;
} turns[TURNS];

static struct {
	struct world world;
	uint64_t seed;
	bool (*step)(struct world *world, uint64_t seed, int number);
	int number;
	bool more;
	sem_t done;
} program;

/* ---- a thread's own stream ---- */

static int own_slot(int thread)
{
	return FIRST_OWN + thread;
}

static bool is_used(const struct world *world, int slot)
{
	for (int i = 0; i < BLOCKS; i++)
		if (world->block[i].words && world->block[i].stream == slot)
			return true;
	for (int i = 0; i < GRAPHS; i++)
		if (world->graph[i].exec && world->graph[i].stream == slot)
			return true;
	return false;
}

/* Note the thread's own stream. After the thread has ended, only its last event orders later work behind its work. */
static void own_stream(struct world *world)
{
	int slot = own_slot(world->thread);
	struct stream *stream = &world->stream[slot];

	if (stream->ghost && !stream->tainted && !is_used(world, slot))
		*stream = (struct stream){ .context = -1 };
	if (stream->context >= 0 || world->flag_value || world->one_stream || draw(world, 8))
		return;
	*stream = (struct stream){ .handle = CU_STREAM_PER_THREAD, .context = 0, .blocking = true,
				   .owner = world->thread + 1 };
}

/* Record the thread's last event, for work that comes after its work. */
static void record_end(struct world *world)
{
	const struct stream *stream = &world->stream[own_slot(world->thread)];

	if (stream->context < 0 || stream->owner != world->thread + 1 || stream->ghost)
		return;
	taint_of_legacy(world, own_slot(world->thread));
	MUST(world, cuCtxSetCurrent(world->context[0].handle));
	MUST(world, cuEventRecord(world->ends[world->thread], CU_STREAM_PER_THREAD));
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
}

/* ---- turns ---- */

static void take(struct world *world, const struct turn *turn)
{
	world->thread = turn->index;
	if (turn->what == OPEN) {
		world_open(world, program.seed, 0, true);
		return;
	}
	MUST(world, cuCtxSetCurrent(world->context[world->current].handle));
	own_stream(world);
	program.more = program.step(world, program.seed, program.number++);
	record_end(world);
}

static void *run(void *arg)
{
	struct turn *turn = arg;
	bool ends = false;

	while (!ends) {
		while (sem_wait(&turn->go))
			;
		ends = turn->what == END;
		if (!ends)
			take(&program.world, turn);
		sem_post(&program.done);
	}
	return NULL;
}

static void begin(struct turn *turn)
{
	if (pthread_create(&turn->thread, NULL, run, turn))
		_exit(2);
}

static void hand_over(struct turn *turn, enum what what)
{
	turn->what = what;
	sem_post(&turn->go);
	while (sem_wait(&program.done))
		;
	if (what == END)
		pthread_join(turn->thread, NULL);
}

static void end(struct turn *turn)
{
	struct stream *stream = &program.world.stream[own_slot(turn->index)];

	hand_over(turn, END);
	stream->ghost = stream->owner != 0;
}

void turns_run(uint64_t seed, int threads, bool (*step)(struct world *world, uint64_t seed, int number))
{
	program.seed = seed;
	program.step = step;
	program.world.threads = threads;
	sem_init(&program.done, 0, 0);
	for (int t = 0; t < threads; t++) {
		turns[t].index = t;
		sem_init(&turns[t].go, 0, 0);
		begin(&turns[t]);
	}
	hand_over(&turns[0], OPEN);
	for (program.more = true; program.more;) {
		struct turn *turn = &turns[draw(&program.world, (unsigned int)threads)];

		if (draw(&program.world, 24) == 0) {
			end(turn);
			begin(turn);
		}
		hand_over(turn, STEP);
	}
	for (int t = 0; t < threads; t++)
		end(&turns[t]);
}
