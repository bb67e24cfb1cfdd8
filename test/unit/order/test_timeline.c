/*
 * The timeline and limbo, exhaustively: every order in which two threads, one that reuses memory, a poll and a GPU can
 * make their steps. One thread works on a block and frees it; another works, captures, and frees a block of its own;
 * whoever is handed the first block works on it at once. There are two streams, in one context or two. Blocks are freed
 * by cudaFree, or in the order of their streams; then each stream has an event of its own behind its frees, from the
 * beginning or from some step of the poller on. In no order is a block used by two owners at a time, or taken for free
 * while its work is pending, is a mark recorded in a context that captures, or does a block stay in limbo for good. Then
 * with rules switched off: some order is wrong.
 *
 * A state is all that there is: the GPU, where the threads are, and all memory of the code. Each is gone into once. A
 * thread stands still before every call, and between the hook of a submission and the submission itself.
 */
/* Memory is hashed and copied in each step, so pieces are as small as the code allows. */
#define SLAB_BYTES 4096u
#define MARK_BYTES 512u

#include "test/rules/rules.c"
#include "preload/order/timeline.c"
#include "preload/order/timeline_streams.c"
#include "preload/order/reuse.c"
#include "preload/order/reuse_limbo.c"
#include "preload/order/reuse_wait.c"

#include <check.h>
#include <stdio.h>

#include "test/rules/check.h"
#include "test/suite.h"

#define STREAMS 2u
#define OPS 8u
#define TICKETS 24u
#define DEEPEST 40u			/* steps of one order */
#define BLOCK 1u			/* freed by the worker */
#define OTHER 3u			/* freed by the capturer, on the second stream */

enum actor { WORKER, CAPTURER, REUSER, POLLER, GPU_0, GPU_1, ACTORS };

/* One program; each member is one of two ways. */
struct program {
	bool two_contexts;		/* the second stream has one of its own */
	bool peers;			/* its work uses the block, too */
	bool captures_first;		/* the first stream's context captures, not the second's */
	bool ordered;			/* blocks are freed in the order of their streams */
	bool captures_early;		/* before the second stream is given work */
	bool told_late;			/* frees in stream order have no events before the poller says so */
};
#define PROGRAMS 32u			/* from the half on ordered, from the last quarter on told_late */
#ifdef __SANITIZE_ADDRESS__		/* looks for errors of memory, not of order */
#define EACH 5u
#else
#define EACH 1u
#endif

struct op { uint8_t owner, after[STREAMS]; };	/* owner: whose use of the block it is; 0 none */

struct world {
	struct op ops[STREAMS][OPS];
	uint8_t count[STREAMS], done[STREAMS], at[ACTORS];
	uint8_t tickets[TICKETS][STREAMS], tickets_used;
	uint8_t capturing;		/* context; 0 none */
	uint8_t freed_at[STREAMS];	/* what its stream had been given when a block was freed in its order */
	bool freed, is_free, taken, wrong;
	bool other_freed, other_is_free;
	unsigned int looks, looks_seen;
};

static struct state {
	struct world w;
	struct gm_reuse_hot hot;
	size_t used;			/* of the arena */
	char own[sizeof(own)], again[sizeof(again)];
	uint8_t arena[256 * 1024] __attribute__((aligned(64)));
} now;
static struct program program;
static struct gm_reuse *reuse;
static unsigned long states, wrongs;

static uint32_t context_of_stream(unsigned int s)
{
	return s && program.two_contexts ? 2 : 1;
}

/* ---- the backend ---- */

static void *memory_of_arena(void *arg, size_t bytes)
{
	void *at = now.arena + now.used;

	(void)arg;
	now.used += (bytes + 63) & ~(size_t)63;
	return now.used <= sizeof(now.arena) ? at : NULL;
}

static uint64_t new_event(void *arg, uint32_t context, uint64_t handle)
{
	(void)arg;
	(void)context;
	(void)handle;
	return ++now.w.tickets_used < TICKETS ? now.w.tickets_used : 0;
}

static int record_context(void *arg, uint64_t handle, uint64_t event)
{
	(void)arg;
	now.w.wrong |= now.w.capturing == handle;	/* it is invalidated */
	for (unsigned int s = 0; s < STREAMS; s++)
		now.w.tickets[event][s] = context_of_stream(s) == handle ? now.w.count[s] : 0;
	return 0;
}

static int query_event(void *arg, uint64_t event)
{
	(void)arg;
	for (unsigned int s = 0; s < STREAMS; s++)
		if (now.w.done[s] < now.w.tickets[event][s])
			return 0;
	return 1;
}

static int wait_event(void *arg, uint64_t event)
{
	(void)arg;
	(void)event;
	return -EBUSY;			/* nobody waits here */
}

static int record_one(void *arg, uint64_t key, uint64_t *ticket)
{
	if (!*ticket)
		*ticket = new_event(arg, 0, 0);
	memset(now.w.tickets[*ticket], 0, sizeof(now.w.tickets[*ticket]));
	now.w.tickets[*ticket][key - 1] = now.w.count[key - 1];
	return *ticket ? 0 : -ENOMEM;
}

static int record_freed(void *arg, uint32_t context, uint64_t stream, uint64_t event)
{
	(void)arg;
	(void)context;
	memset(now.w.tickets[event], 0, sizeof(now.w.tickets[event]));
	now.w.tickets[event][stream - 1] = now.w.count[stream - 1];
	return 0;
}

static int is_idle(void *arg, uint32_t context, uint64_t stream)
{
	(void)arg;
	now.w.wrong |= now.w.capturing == context;
	return now.w.done[stream - 1] == now.w.count[stream - 1];
}

static struct op *push(unsigned int s, uint8_t owner)
{
	struct op *op = &now.w.ops[s][now.w.count[s]++];

	ck_assert_uint_lt(now.w.count[s], OPS);
	*op = (struct op){ .owner = owner };
	return op;
}

static int wait_on_stream(void *arg, uint64_t key, uint64_t ticket)
{
	(void)arg;
	memcpy(push((unsigned int)key - 1, 0)->after, now.w.tickets[ticket], STREAMS);
	return 0;
}

static void drop_ticket(void *arg, uint64_t ticket)
{
	(void)arg;
	(void)ticket;
}

static uint32_t context_of_owner(void *arg, uint32_t owner)
{
	(void)arg;
	return owner;
}

static bool is_only_context(void *arg, uint32_t context, uint64_t key)
{
	(void)arg;
	(void)context;
	(void)key;
	return !program.two_contexts;
}

/* Is work of @owner pending? */
static bool is_used(uint8_t owner)
{
	for (unsigned int s = 0; s < STREAMS; s++)
		for (unsigned int n = now.w.done[s]; n < now.w.count[s]; n++)
			if (now.w.ops[s][n].owner == owner)
				return true;
	return false;
}

static size_t complete_block(void *arg, const struct gm_reuse_item *items, size_t count)
{
	(void)arg;
	for (size_t i = 0; i < count; i++) {
		now.w.wrong |= is_used((uint8_t)items[i].block);
		if (items[i].block == BLOCK)
			now.w.is_free = true;
		else
			now.w.other_is_free = true;
	}
	return count;
}

static void looks(void *arg)
{
	(void)arg;
	now.w.looks++;
}

static const struct gm_reuse_ops ops = {
	.time = { .event = new_event, .record = record_context, .query = query_event, .wait = wait_event,
		  .memory = memory_of_arena, .record_on = record_freed, .idle = is_idle },
	.record_stream = record_one, .stream_wait = wait_on_stream, .query = query_event, .drop = drop_ticket,
	.context_of = context_of_owner, .is_only = is_only_context, .complete = complete_block, .forget_streams = looks,
};

/* ---- the actors' steps: false where it cannot make one ---- */

static void meet_context(uint32_t context)
{
	if (!gm_timeline_has(&reuse->time, context))
		gm_timeline_add(&reuse->time, context, context, gm_timeline_ends(&reuse->time));
}

static void hook(unsigned int s)
{
	meet_context(context_of_stream(s));
	gm_reuse_note_other(&now.hot, s + 1);
	if (!gm_reuse_passes(&now.hot, s + 1))
		gm_reuse_submit(reuse, s + 1);
}

/* As the cache does. False: it is in limbo. */
static bool free_block(uint32_t block, unsigned int s)
{
	uint32_t context = context_of_stream(s);
	struct gm_stream_track like = { .key = s + 1, .stream = s + 1, .context = context };
	struct gm_reuse_item item = { block, context, 512 };
	uint64_t early;

	if (program.ordered) {
		now.w.freed_at[s] = now.w.count[s];
		gm_timeline_stream_add(&reuse->time, &like, false);
		if (reuse->time.reported)
			gm_timeline_stream_freed(&reuse->time, s + 1, s + 1, true);
	}
	return gm_reuse_freed(reuse, &item, program.ordered ? s + 1 : 0, context, &early);
}

static void free_the_block(void)
{
	now.w.freed = true;
	if (free_block(BLOCK, 0))
		now.w.is_free = true;
}

static void free_the_other(void)
{
	now.w.other_freed = true;
	if (free_block(OTHER, 1))
		now.w.other_is_free = true;
}

static bool worker(uint8_t at)
{
	switch (at) {
	case 0: case 3: hook(0); return true;
	case 1: push(0, 1); return true;
	case 2: free_the_block(); return true;
	case 4: push(0, 0); return true;
	default: return false;
	}
}

static bool capturer(uint8_t at)
{
	uint8_t context = program.captures_first ? 1 : (uint8_t)context_of_stream(1);

	static const uint8_t early[] = { 2, 0, 1, 3 };

	switch (program.captures_early && at < 4 ? early[at] : at) {
	case 0: hook(1); return true;
	case 1:
		push(1, program.ordered ? OTHER : program.peers && !now.w.freed ? BLOCK : 0);
		return true;
	case 2:
		meet_context(context);
		gm_reuse_capture_begins(reuse, context);
		now.w.capturing = context;
		return true;
	case 3:
		now.w.capturing = 0;
		gm_reuse_capture_ended(reuse, context);
		return true;
	case 4:
		if (program.ordered)
			free_the_other();
		return true;
	default: return false;
	}
}

/* On the other stream than the one that may still use the block. */
static bool reuser(uint8_t at)
{
	switch (at) {
	case 0:
		if (!now.w.is_free)
			return false;
		hook(!program.peers);
		return true;
	case 1: push(!program.peers, 2); return true;
	default: return false;
	}
}

/* What is said to be past its frees is. */
static void look_at_streams(uint8_t at)
{
	bool ended;

	if (at == 0 && program.told_late)
		gm_reuse_mark_streams(reuse);
	else
		gm_reuse_look_streams(reuse, false);
	for (unsigned int s = 0; s < STREAMS && reuse->time.reported; s++)
		now.w.wrong |= gm_timeline_stream_frees(&reuse->time, s + 1, &ended) == GM_FREES_PASSED &&
			       now.w.done[s] < now.w.freed_at[s];
}

static bool poller(uint8_t at)
{
	if (at >= (program.ordered && !program.told_late ? 1 : 2))
		return false;
	if (program.ordered)
		look_at_streams(at);
	if (at || !program.told_late)
		gm_reuse_poll(reuse);
	return true;
}

/* A kernel ends: then no other owner's may be under way. */
static bool gpu(unsigned int s)
{
	const struct op *op = &now.w.ops[s][now.w.done[s]];

	if (now.w.done[s] == now.w.count[s])
		return false;
	for (unsigned int i = 0; i < STREAMS; i++)
		if (now.w.done[i] < op->after[i])
			return false;
	for (unsigned int i = 0; i < STREAMS && op->owner == 2; i++)
		for (unsigned int n = now.w.done[i]; n < now.w.count[i]; n++)
			now.w.wrong |= now.w.ops[i][n].owner == 1;
	now.w.done[s]++;
	return true;
}

static bool step(enum actor actor)
{
	uint8_t at = now.w.at[actor];
	bool done = false;

	switch (actor) {
	case WORKER: done = worker(at); break;
	case CAPTURER: done = capturer(at); break;
	case REUSER: done = reuser(at); break;
	case POLLER: done = poller(at); break;
	case GPU_0: done = gpu(0); break;
	case GPU_1: done = gpu(1); break;
	default: break;
	}
	if (done && actor < GPU_0)
		now.w.at[actor]++;
	return done;
}

/* ---- all orders ---- */

#define SEEN (1u << 18)
static uint64_t *seen;

/* False: this state was gone into before. */
static bool is_new(void)
{
	const uint64_t *words = (const uint64_t *)(const void *)now.arena;
	const uint8_t *bytes = (const uint8_t *)&now.w;
	uint64_t hash = 1469598103934665603u, at;

	for (size_t i = 0; i < sizeof(now.w); i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	bytes = (const uint8_t *)&now.hot;
	for (size_t i = 0; i < sizeof(now.hot); i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	for (size_t i = 0; i < now.used / 8; i++)
		if (words[i])
			hash = (hash ^ words[i] ^ i << 48) * UINT64_C(0x9e3779b97f4a7c15);
	for (at = hash % SEEN; seen[at] && seen[at] != hash; at = (at + 1) % SEEN)
		;
	if (seen[at])
		return false;
	seen[at] = hash;
	ck_assert_uint_lt(++states, SEEN / 2);
	return true;
}

/* Nobody can make a step: what was freed has come back, or does now. */
static void at_the_end(void)
{
	for (unsigned int i = 0; i < 4 && reuse->items; i++)
		gm_reuse_poll(reuse);
	now.w.wrong |= !now.w.is_free || now.w.other_freed != now.w.other_is_free || reuse->items ||
		       gm_reuse_check(reuse);
}

static void explore(unsigned int depth)
{
	static struct state states_before[DEEPEST];	/* malloc would give each back to the kernel, and fault it in again */
	struct state *before = &states_before[depth];
	bool any = false;

	ck_assert_uint_lt(depth, DEEPEST);
	memcpy(before, &now, offsetof(struct state, arena) + now.used);
	for (enum actor actor = 0; actor < ACTORS && !wrongs; actor++) {
		memcpy(own, before->own, sizeof(own));
		memcpy(&again, before->again, sizeof(again));
		if (!step(actor))
			continue;
		any = true;
		memcpy(now.own, own, sizeof(own));
		memcpy(now.again, &again, sizeof(again));
		wrongs += now.w.wrong;
		if (!now.w.wrong && is_new())
			explore(depth + 1);
		if (now.used > before->used)
			memset(now.arena + before->used, 0, now.used - before->used);
		memcpy(&now, before, offsetof(struct state, arena) + before->used);
	}
	if (!any && !wrongs) {
		at_the_end();
		wrongs += now.w.wrong;
	}
}

static void explore_program(unsigned int number)
{
	program = (struct program){ .two_contexts = number & 1, .captures_first = number & 2, .captures_early = number & 4,
				    .peers = number & 8 && number < 16, .ordered = number >= 16,
				    .told_late = number >= 24 };
	memset(&now, 0, sizeof(now));
	memset(own, 0, sizeof(own));
	memset(&again, 0, sizeof(again));
	memset(seen, 0, SEEN * sizeof(*seen));
	states = 0;
	reuse = gm_reuse_new(&ops, &now.hot);
	reuse->time.reported = !program.told_late;
	reuse->time.streams_room = 8;
	if (program.peers && program.two_contexts)
		gm_timeline_touches(&reuse->time, 2, 1);
	explore(0);
}

static void setup(void)
{
	seen = calloc(SEEN, sizeof(*seen));
	states = wrongs = 0;
}

START_TEST(test_every_order)
{
	gm_rules_read(NULL);
	explore_program((unsigned int)_i * EACH);
	fprintf(stderr, "# program %d: %lu states\n", _i, states);
	ck_assert_uint_eq(wrongs, 0);
	ck_assert_uint_gt(states, 1000);
}
END_TEST

static const char *const switchable[] = { "limbo", "peers", "transition", "capture-events", "capture-hold" };

START_TEST(test_each_rule)
{
	gm_rules_read(switchable[_i]);
	ck_assert_uint_ne(gm_rules_off, 0);
	for (unsigned int number = 0; number < PROGRAMS && !wrongs; number++)
		explore_program(number);
	gm_rules_read(NULL);
	ck_assert_msg(wrongs > 0, "without %s no order is wrong", switchable[_i]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("timeline");
	Suite *suite = suite_create("timeline");

	tcase_set_timeout(tcase, 200);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, test_every_order, 0, (PROGRAMS - 1) / EACH + 1);
	if (EACH == 1)
		tcase_add_loop_test(tcase, test_each_rule, 0, (int)(sizeof(switchable) / sizeof(switchable[0])));
	return run_suite(suite);
}
