/*
 * reuse_gpu.h - a GPU for the tests of reuse.h: streams, contexts, events, kernels that wait for a
 * flag, captures; and the two judges. Included by one test, single-threaded.
 *
 *   race   work on a block whose earlier owner's work is not ordered before it
 *   wait   for work that no free of the waiting thread would have waited for natively
 *
 * It knows nothing of points and marks: order is told by vector clocks, native waits by what was submitted.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS 4u
#define CONTEXTS 3u			/* 1 .. 2 are used; 0: none */
#define OPS 256u
#define TICKETS 4096u
#define BLOCKS 512u
#define TOUCHES 2048u
#define THREADS 3u
#define FLAGS 64u

struct op { uint32_t flag, sets; uint32_t clock[STREAMS], after[STREAMS]; };
struct stream { uint32_t context, count, done, under_way, told; bool gone; struct op ops[OPS]; };
struct ticket { bool live; uint32_t contexts, at[STREAMS]; };
struct touch { uint32_t block, generation, stream, op; };
struct block { uint32_t context, generation; uint8_t state; };
enum { BLOCK_NONE, BLOCK_FREE, BLOCK_USED, BLOCK_PENDING };

/* What a thread's own synchronous free of memory of a context would have waited for. */
struct native { uint32_t at[STREAMS]; };

static struct gpu {
	struct stream streams[STREAMS];
	struct ticket tickets[TICKETS];
	struct block blocks[BLOCKS];
	struct touch touches[TOUCHES];
	struct native native[THREADS][CONTEXTS], any[CONTEXTS];
	bool flags[FLAGS];
	uint32_t tickets_used, blocks_used, touches_used, captures, capture_context, thread;
	uint64_t random;
	bool fails;			/* some events cannot be recorded */
	bool peers;			/* contexts use each other's memory */
	bool many;			/* the library was not in single-stream mode at the last look */
	uint32_t keeps;			/* work goes to the first stream but for one in so many */
	bool lasts;			/* calls for other streams last, and so does their work */
	uint32_t under_way;		/* such calls */
	unsigned int races, waits, hangs, invalidated, recycled, waited, transitions, records, looks, returns;
	void (*others)(void);		/* let other threads and the GPU go on for a step */
	bool (*stuck)(void);
} gpu;

static uint32_t draw(uint32_t below)
{
	gpu.random = gpu.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(gpu.random >> 33) % below;
}

/* ---- events ---- */

static bool is_complete(const struct ticket *t)
{
	for (unsigned int s = 0; s < STREAMS; s++)
		if (gpu.streams[s].done < t->at[s])
			return false;
	return true;
}

static uint64_t new_ticket(void)
{
	if (++gpu.tickets_used == TICKETS)
		abort();
	gpu.tickets[gpu.tickets_used].live = true;
	return gpu.tickets_used;
}

static void record_stream_at(struct ticket *t, unsigned int s)
{
	t->at[s] = gpu.streams[s].count;
	t->contexts |= 1u << gpu.streams[s].context;
}

/* ---- of contexts: a context's handle is its id ---- */

static uint64_t new_event(void *arg, uint32_t context, uint64_t handle)
{
	(void)arg;
	(void)context;
	(void)handle;
	return new_ticket();
}

static int record_context(void *arg, uint64_t handle, uint64_t event)
{
	struct ticket *t = &gpu.tickets[event];

	(void)arg;
	gpu.records++;
	if (gpu.fails && !draw(4))
		return -5;
	if (gpu.captures && gpu.capture_context == handle) {
		gpu.invalidated++;
		return -11;
	}
	memset(t->at, 0, sizeof(t->at));
	for (unsigned int s = 0; s < STREAMS; s++)
		if (gpu.streams[s].context == handle)
			record_stream_at(t, s);
	return 0;
}

/* Streams are known by key: number + 1, + 16 for each life of the stream. */
static unsigned int stream_of(uint64_t key)
{
	return (unsigned int)((key - 1) & 15);
}

static int record_stream(void *arg, uint64_t key, uint64_t *ticket)
{
	(void)arg;
	gpu.records++;
	if (gpu.streams[stream_of(key)].gone)
		return -5;
	if (!*ticket)
		*ticket = new_ticket();
	memset(gpu.tickets[*ticket].at, 0, sizeof(gpu.tickets[*ticket].at));
	record_stream_at(&gpu.tickets[*ticket], stream_of(key));
	return 0;
}

static struct op *push_op(unsigned int s)
{
	struct stream *stream = &gpu.streams[s];
	struct op *op = &stream->ops[stream->count];

	if (stream->count == OPS)
		abort();
	memset(op, 0, sizeof(*op));
	if (stream->count)
		memcpy(op->clock, stream->ops[stream->count - 1].clock, sizeof(op->clock));
	op->clock[s] = ++stream->count;
	return op;
}

/* The stream's later work comes after the ticket, and after all that this comes after. */
static int stream_wait(void *arg, uint64_t key, uint64_t ticket)
{
	const struct ticket *t = &gpu.tickets[ticket];
	struct op *op = push_op(stream_of(key));

	(void)arg;
	gpu.transitions++;
	memcpy(op->after, t->at, sizeof(op->after));	/* the event may be recorded anew */
	for (unsigned int s = 0; s < STREAMS; s++) {
		const struct op *last = t->at[s] ? &gpu.streams[s].ops[t->at[s] - 1] : NULL;

		/* A device-side wait for what no free would have waited for. */
		gpu.waits += t->at[s] > gpu.any[gpu.streams[s].context].at[s];
		for (unsigned int i = 0; last && i < STREAMS; i++)
			if (op->clock[i] < last->clock[i])
				op->clock[i] = last->clock[i];
	}
	return 0;
}

static int query(void *arg, uint64_t ticket)
{
	(void)arg;
	if (!gpu.tickets[ticket].live)
		abort();
	return is_complete(&gpu.tickets[ticket]);
}

static int wait_ticket(void *arg, uint64_t ticket)
{
	const struct ticket *t = &gpu.tickets[ticket];
	uint32_t thread = gpu.thread;

	(void)arg;
	for (unsigned int s = 0; s < STREAMS; s++) {
		uint32_t context = gpu.streams[s].context;

		if (gpu.streams[s].done < t->at[s])
			gpu.waits += t->at[s] > gpu.native[thread][context].at[s];
	}
	gpu.waited++;
	while (!is_complete(t)) {
		if (!gpu.tickets[ticket].live)
			abort();
		if (gpu.stuck()) {
			gpu.hangs++;
			break;
		}
		gpu.others();
		gpu.thread = thread;
	}
	return 0;
}

static void drop_ticket(void *arg, uint64_t ticket)
{
	(void)arg;
	if (!gpu.tickets[ticket].live)
		abort();
	gpu.tickets[ticket].live = false;
}

/* ---- memory: owners are contexts ---- */

static uint32_t context_of(void *arg, uint32_t owner)
{
	(void)arg;
	return owner;
}

/* ---- of streams on which something was freed: the backend names them by number + 1 ---- */

static int record_freed(void *arg, uint32_t context, uint64_t stream, uint64_t event)
{
	struct ticket *t = &gpu.tickets[event];

	(void)arg;
	(void)context;
	if (gpu.streams[stream - 1].gone)
		abort();
	if (gpu.fails && !draw(4))
		return -5;
	memset(t->at, 0, sizeof(t->at));
	record_stream_at(t, (unsigned int)stream - 1);
	return 0;
}

static int is_idle(void *arg, uint32_t context, uint64_t stream)
{
	(void)arg;
	(void)context;
	if (gpu.streams[stream - 1].gone || gpu.captures)
		abort();
	return gpu.streams[stream - 1].done == gpu.streams[stream - 1].count;
}

/* The second context counts for nothing here: that early frees stand in its way, too, is wanted. */
static bool is_only(void *arg, uint32_t context, uint64_t key)
{
	(void)arg;
	return gpu.streams[stream_of(key)].context == context;
}


/* The host has seen the work of its last owner complete. */
static size_t complete(void *arg, const struct gm_reuse_item *items, size_t count)
{
	(void)arg;
	for (size_t i = 0; i < count; i++) {
		if (gpu.blocks[items[i].block].state != BLOCK_PENDING)
			abort();
		for (uint32_t n = 0; n < gpu.touches_used; n++)
			gpu.races += gpu.touches[n].block == items[i].block &&
				     gpu.touches[n].generation == gpu.blocks[items[i].block].generation &&
				     gpu.touches[n].op >= gpu.streams[gpu.touches[n].stream].done;
		gpu.blocks[items[i].block].state = BLOCK_FREE;
	}
	return count;
}

static void *memories[64];
static unsigned int memories_used;

static void *memory(void *arg, size_t bytes)
{
	(void)arg;
	if (memories_used == sizeof(memories) / sizeof(memories[0]))
		abort();
	return memories[memories_used++] = calloc(1, bytes);
}

/* Of a program that is over. */
static void memory_back(void)
{
	while (memories_used)
		free(memories[--memories_used]);
}

static void looks(void *arg)
{
	(void)arg;
	gpu.looks++;
}

static const struct gm_reuse_ops gpu_ops = {
	.time = { .event = new_event, .record = record_context, .query = query, .wait = wait_ticket, .memory = memory,
		  .record_on = record_freed, .idle = is_idle },
	.record_stream = record_stream, .stream_wait = stream_wait, .query = query, .drop = drop_ticket,
	.context_of = context_of, .is_only = is_only, .complete = complete, .forget_streams = looks,
};

/* ---- work ---- */

/* @block's new owner works on it: is all work of earlier owners before that? */
static void touch(uint32_t block, unsigned int s, const struct op *op)
{
	for (uint32_t i = 0; i < gpu.touches_used; i++) {
		const struct touch *t = &gpu.touches[i];

		if (t->block == block && t->generation < gpu.blocks[block].generation &&
		    t->op >= gpu.streams[t->stream].done && op->clock[t->stream] <= t->op)
			gpu.races++;
	}
	if (gpu.touches_used == TOUCHES)
		abort();
	gpu.touches[gpu.touches_used++] = (struct touch){ block, gpu.blocks[block].generation, s,
							  gpu.streams[s].count - 1 };
}

/* The head of @s ends, if it can. */
static bool advance(unsigned int s)
{
	struct stream *stream = &gpu.streams[s];
	const struct op *op = &stream->ops[stream->done];

	if (stream->done == stream->count || (op->flag && !gpu.flags[op->flag]))
		return false;
	for (unsigned int i = 0; i < STREAMS; i++)
		if (gpu.streams[i].done < op->after[i])
			return false;
	if (op->sets)
		gpu.flags[op->sets] = true;
	stream->done++;
	return true;
}

static bool advance_some(void)
{
	unsigned int first = draw(STREAMS);

	for (unsigned int i = 0; i < STREAMS; i++)
		if (advance((first + i) % STREAMS))
			return true;
	return false;
}

/* The driver's own free of memory of @context would wait for this; a submission that another
 * thread is in the midst of may be among it. */
static void native_free(uint32_t context)
{
	for (unsigned int s = 0; s < STREAMS; s++) {
		uint32_t at = gpu.streams[s].count + gpu.streams[s].under_way;

		if (gpu.streams[s].context != context)
			continue;
		gpu.native[gpu.thread][context].at[s] = at;
		gpu.any[context].at[s] = at;
	}
}
