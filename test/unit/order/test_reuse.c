/*
 * Reuse of freed memory, against a GPU that judges it (reuse_gpu.h): random programs of three host
 * threads, four streams and two contexts, each of which ends and has no race natively; under the
 * library none may have a race, a wait that the driver's own free would not have done, or a hang.
 * Then with each rule switched off: a program must fail. REUSE_RUNS=n: so many programs.
 *
 * Simulated threads take turns at every call, and between the hook of a submission and the
 * submission itself. What a thread remembers (own[]) is exchanged with the turn.
 */
#include "test/rules/rules.c"
#include "preload/order/timeline.c"
#include "preload/order/reuse.c"
#include "preload/order/reuse_limbo.c"
#include "preload/order/reuse_wait.c"

#include <check.h>
#include <stdio.h>

#include "test/rules/check.h"
#include "test/suite.h"
#include "test/unit/order/reuse_gpu.h"

#define SLOTS 4u
#define STEPS 40u

struct slot { uint32_t block, streams; };	/* the streams that worked on it */
struct thread {
	struct slot slots[SLOTS];
	unsigned int steps;
	uint32_t owes;			/* a flag that somebody's kernel waits for; 0: none */
	bool busy;			/* it is within a call */
	char own[sizeof(own)];
};

static struct gm_reuse_hot hot;
static struct gm_reuse *reuse;
static struct thread threads[THREADS];
static uint64_t keys[STREAMS];
static unsigned int deep, violations;
static uint32_t flags_used, capturer;	/* thread + 1 */

static void step(unsigned int t);

/* ---- turns ---- */

static bool can_step(unsigned int t)
{
	return !threads[t].busy && threads[t].steps < STEPS;
}

static void others(void)
{
	unsigned int t = draw(THREADS);

	if (draw(gpu.lasts && !gpu.under_way ? 16 : 2) && can_step(t))
		step(t);
	else if (!advance_some())
		for (t = 0; t < THREADS; t++)
			if (can_step(t))
				step(t);
}

/* While somebody waits: the others wait for nothing, so that they return. */
static void others_meanwhile(void)
{
	deep++;
	others();
	deep--;
}

static bool stuck(void)
{
	for (unsigned int t = 0; t < THREADS; t++)
		if (can_step(t))
			return false;
	return !advance_some();
}

static void yield(unsigned int s)
{
	uint32_t thread = gpu.thread;

	deep++;
	for (uint32_t n = gpu.lasts && s ? draw(96) : draw(3); n; n--)
		others();
	deep--;
	gpu.thread = thread;
}

/* ---- what a program does ---- */

static void submit(unsigned int s, struct slot *slot, uint32_t flag, uint32_t sets)
{
	uint32_t context = gpu.streams[s].context;
	unsigned int looks = gpu.looks;
	struct op *op;

	if (!gm_timeline_has(&reuse->time, context))
		gm_timeline_add(&reuse->time, context, context, gm_timeline_ends(&reuse->time));
	gm_reuse_note_other(&hot, keys[s]);
	if (!gm_reuse_passes(&hot, keys[s]))
		gm_reuse_submit(reuse, keys[s]);
	gpu.streams[s].under_way++;
	gpu.under_way += s != 0;
	yield(s);
	gpu.under_way -= s != 0;
	gpu.streams[s].under_way--;
	op = push_op(s);
	if (looks != gpu.looks)
		gm_reuse_submitted(reuse, keys[s]);
	op->flag = flag;
	op->sets = sets;
	if (slot) {
		slot->streams |= 1u << s;
		touch(slot->block, s, op);
	}
}

static uint32_t free_block(uint32_t context)
{
	uint32_t first = draw(BLOCKS);

	for (uint32_t i = 0; i < BLOCKS; i++) {
		struct block *b = &gpu.blocks[(first + i) % BLOCKS];

		if (b->state == BLOCK_FREE && b->context == context)
			return (first + i) % BLOCKS;
	}
	return 0;
}

static void do_malloc(struct slot *slot, bool may_wait)
{
	uint32_t context = 1 + !draw(4), block = free_block(context);

	if (!block && gm_reuse_poll(reuse))
		block = free_block(context);
	if (!block && may_wait && draw(2) && !gm_reuse_wait(reuse))
		block = free_block(context);
	if (!block) {
		if (++gpu.blocks_used == BLOCKS)
			abort();
		block = gpu.blocks_used;
		gpu.blocks[block].context = context;
	}
	gpu.blocks[block].generation++;
	gpu.blocks[block].state = BLOCK_USED;
	*slot = (struct slot){ .block = block };
}

/* As the cache does: before the block can be handed out. */
static void tell_free(unsigned int s)
{
	struct gm_stream_track like = { .key = keys[s], .stream = s + 1, .context = gpu.streams[s].context };

	if (!reuse->time.reported || !gm_timeline_has(&reuse->time, like.context))
		return;
	gpu.streams[s].told = gpu.streams[s].count;
	gm_timeline_stream_add(&reuse->time, &like, false);
	gm_timeline_stream_freed(&reuse->time, keys[s], s + 1, true);
}

/* Streams are looked at, or told of from now on. Who is said to have passed what was freed since has. */
static void look_at_streams(void)
{
	unsigned int fresh = draw(STREAMS);
	struct gm_stream_track like = { .key = keys[fresh], .stream = fresh + 1,
					.context = gpu.streams[fresh].context };
	bool ended;

	if (reuse->time.reported && !gpu.streams[fresh].gone)	/* it gets memory of its own */
		gm_timeline_stream_add(&reuse->time, &like, true);
	if (reuse->time.reported || draw(4))
		gm_reuse_look_streams(reuse, !draw(4));
	else
		gm_reuse_mark_streams(reuse);
	for (unsigned int s = 0; s < STREAMS && reuse->time.reported; s++)
		gpu.races += gm_timeline_stream_frees(&reuse->time, keys[s], &ended) == GM_FREES_PASSED &&
			     gpu.streams[s].done < gpu.streams[s].told;
}

static void do_free(struct slot *slot, unsigned int s, bool stream_ordered)
{
	struct block *b = &gpu.blocks[slot->block];
	struct gm_reuse_item item = { slot->block, b->context, 512 * (slot->block + 1) };
	uint64_t early;

	if (!stream_ordered)
		native_free(b->context);
	else
		tell_free(s);
	b->state = BLOCK_PENDING;
	slot->block = 0;
	if (!gm_reuse_freed(reuse, &item, stream_ordered ? keys[s] : 0, gpu.streams[s].context, &early))
		return;
	gpu.recycled += gpu.captures;		/* early, though no event can be recorded */
	b->state = BLOCK_FREE;
}

/* With one context, or with all of them. */
static void do_synchronise(void)
{
	uint32_t until[STREAMS], thread = gpu.thread, context = draw(CONTEXTS);
	uint64_t begun = gm_reuse_sync_begin(reuse);
	bool done;

	for (unsigned int s = 0; s < STREAMS; s++)
		until[s] = context && context != gpu.streams[s].context ? 0 : gpu.streams[s].count;
	deep++;
	do {
		done = true;
		for (unsigned int s = 0; s < STREAMS; s++)
			done &= gpu.streams[s].done >= until[s];
		if (!done && stuck())
			abort();		/* natively, too: the test is wrong */
		if (!done)
			others();
	} while (!done);
	deep--;
	gpu.thread = thread;
	gm_reuse_sync_done(reuse, context, begun);
}

/* A kernel waits for a flag: its setter, a thread, does nothing that blocks natively until then. */
static void do_flag_kernel(unsigned int s)
{
	unsigned int setter = draw(THREADS);

	for (unsigned int t = 0; t < THREADS; t++)
		if (threads[t].owes || (threads[t].busy && t != gpu.thread))
			return;
	if ((threads[setter].steps >= STEPS && setter != gpu.thread) || flags_used + 1 == FLAGS)
		return;
	threads[setter].owes = ++flags_used;
	submit(s, NULL, flags_used, 0);
}

/* By the host, or by a kernel on a stream that nothing waits on. In single-stream mode, and while its
 * transition lasts, such a kernel of a thread that frees nothing itself would have to wait for
 * another thread's free: known, and told in the report of this part. */
static void pay(struct thread *thread)
{
	unsigned int s = draw(STREAMS);

	if (draw(2) && hot.many && !(hot.attention & GM_REUSE_TRANSITION) && !gpu.streams[s].gone &&
	    gpu.streams[s].done == gpu.streams[s].count && !gpu.streams[s].under_way)
		submit(s, NULL, 0, thread->owes);
	else
		gpu.flags[thread->owes] = true;
	thread->owes = 0;
}

static void do_capture(unsigned int t)
{
	if (!capturer) {
		uint32_t context = 1 + draw(CONTEXTS - 1);

		capturer = t + 1;
		if (!gm_timeline_has(&reuse->time, context))
			gm_timeline_add(&reuse->time, context, context, gm_timeline_ends(&reuse->time));
		gm_reuse_capture_begins(reuse, context);
		gpu.captures++;
		gpu.capture_context = context;
	} else if (capturer == t + 1) {
		capturer = 0;
		gpu.captures--;
		gm_reuse_capture_ended(reuse, gpu.capture_context);
	}
}

static void do_destroy(unsigned int s)
{
	unsigned int left = 0;

	for (unsigned int i = 0; i < STREAMS; i++)
		left += !gpu.streams[i].gone;
	if (left < 3 || gpu.streams[s].under_way)
		return;
	gm_reuse_stream_ends(reuse, keys[s]);
	gm_timeline_stream_ended(&reuse->time, keys[s]);
	gpu.streams[s].gone = true;
}

/* The streams of a program: many keep to one for a while, some nearly always. */
static unsigned int a_stream(void)
{
	unsigned int s = draw(gpu.keeps) ? 0 : draw(STREAMS);

	while (gpu.streams[s].gone)
		s = (s + 1) % STREAMS;
	return s;
}

/* May work of @s use it? */
static bool is_within(const struct slot *slot, unsigned int s)
{
	return gpu.peers || gpu.blocks[slot->block].context == gpu.streams[s].context;
}

static void act(unsigned int t)
{
	struct thread *thread = &threads[t];
	struct slot *slot = &thread->slots[draw(SLOTS)];
	uint32_t what = draw(gpu.lasts ? 53 : 64);	/* which ends with frees */
	unsigned int s = a_stream();

	if (what < 20) {
		if (!slot->block)
			do_malloc(slot, !deep);
	} else if (what < 36) {
		submit(s, slot->block && is_within(slot, s) ? slot : NULL, 0, 0);
	} else if (what < 48) {
		if (slot->block && !thread->owes)
			do_free(slot, s, false);
	} else if (what < 53) {
		if (slot->block && !(slot->streams & ~(1u << s)))
			do_free(slot, s, true);
	} else if (what < 58) {
		do_flag_kernel(s);
	} else if (what < 60) {
		if (thread->owes)
			pay(thread);
	} else if (what < 61) {
		if (!thread->owes && !deep && !capturer)
			do_synchronise();
	} else if (what < 63) {
		do_capture(t);
	} else {
		do_destroy(s);
	}
}

static void step(unsigned int t)
{
	struct thread *thread = &threads[t];
	char mine[sizeof(own)];

	memcpy(mine, own, sizeof(own));
	memcpy(own, thread->own, sizeof(own));
	gpu.thread = t;
	thread->busy = true;
	thread->steps++;
	act(t);
	if (!draw(4))
		look_at_streams();
	if (thread->steps == STEPS && thread->owes)
		pay(thread);
	if (thread->steps == STEPS && capturer == t + 1)
		do_capture(t);
	thread->busy = false;
	memcpy(thread->own, own, sizeof(own));
	memcpy(own, mine, sizeof(own));
	violations += (unsigned int)gm_reuse_check(reuse);
	gpu.returns += gpu.many && !hot.many;
	gpu.many = hot.many;
}

static bool running(void)
{
	bool any = false;

	for (unsigned int t = 0; t < THREADS; t++)
		any |= can_step(t);
	return any;
}

static void start(uint64_t seed)
{
	static const uint32_t contexts[STREAMS] = { 1, 1, 1, 2 };
	struct gpu fresh = { .random = seed * 2 + 1, .fails = seed % 4 == 0, .others = others_meanwhile,
			     .keeps = seed % 7 < 2 ? 24 : seed % 5 < 3 ? 3 : 12, .lasts = seed % 7 < 2,
			     .stuck = stuck, .peers = seed % 8 != 3 };

	memory_back();
	gpu = fresh;
	memset(threads, 0, sizeof(threads));
	memset(own, 0, sizeof(own));
	for (unsigned int s = 0; s < STREAMS; s++) {
		gpu.streams[s].context = contexts[s];
		keys[s] = s + 1;
	}
	deep = violations = 0;
	flags_used = capturer = 0;
	gm_rules_single = 1 + (uint32_t)(seed % 3);
	reuse = gm_reuse_new(&gpu_ops, &hot);
	reuse->time.reported = seed % 3 != 0;
	for (uint32_t c = 1; c < CONTEXTS && gpu.peers; c++)
		gm_timeline_touches(&reuse->time, c, 3 - c);
}

/* Everything ends, and everything freed comes back. Returns what is still in limbo. */
static uint64_t finish(void)
{
	while (advance_some())
		;
	for (unsigned int i = 0; i < 100 && reuse->items; i++)
		gm_reuse_poll(reuse);
	violations += (unsigned int)gm_reuse_check(reuse);
	return reuse->items;
}

struct verdict { unsigned int looked_at, races, waits, hangs, invalidated, recycled, broken, left, waited, transitions, returns; };

static void one_program(uint64_t seed, struct verdict *v)
{
	start(seed);
	while (running())
		others();
	v->left += finish() != 0;
	v->races += gpu.races;
	v->waits += gpu.waits;
	v->hangs += gpu.hangs;
	v->invalidated += gpu.invalidated;
	v->recycled += gpu.recycled;
	v->broken += violations;
	v->waited += gpu.waited;
	v->looked_at += (unsigned int)reuse->time.streams_moves;
	v->transitions += gpu.transitions;
	v->returns += gpu.returns;
}

static unsigned int wrongs(const struct verdict *v)
{
	return v->races + v->waits + v->hangs + v->invalidated + v->recycled + v->broken + v->left;
}

#ifdef __SANITIZE_ADDRESS__		/* looks for errors of memory, not of order */
#define PROGRAMS 2000u
#else
#define PROGRAMS 10000u
#endif

static uint64_t runs(uint64_t standard)
{
	const char *text = getenv("REUSE_RUNS");

	return text ? strtoull(text, NULL, 10) : standard;
}

START_TEST(test_programs)
{
	struct verdict v = { 0 };

	gm_rules_read(NULL);
	for (uint64_t seed = 1; seed <= runs(PROGRAMS); seed++) {
		one_program(seed, &v);
		ck_assert_msg(!wrongs(&v), "seed %llu: races %u, waits %u, hangs %u, captures "
			      "invalidated %u, recycled %u, structure %u, left %u",
			      (unsigned long long)seed, v.races, v.waits, v.hangs, v.invalidated,
			      v.recycled, v.broken, v.left);
	}
	/* They did what they are for. */
	ck_assert_uint_gt(v.waited, 100);
	ck_assert_uint_gt(v.transitions, 100);
	ck_assert_uint_gt(v.returns, 100);
	ck_assert_uint_gt(v.looked_at, 100);
	fprintf(stderr, "# waited %u, transitions %u, single-stream mode came back %u times\n", v.waited,
		v.transitions, v.returns);
}
END_TEST

static const char *const switchable[] = {
	"seal", "wait-sealed", "wait-host-frees", "wait-own", "one-context", "limbo", "peers",
	"transition", "transition-point", "transition-every", "single-complete", "single-others",
	"single-late", "stream-free", "capture-events",
	"capture-hold",
};

START_TEST(test_each_rule)
{
	struct verdict v = { 0 };
	uint64_t seed = 0;

	gm_rules_read(switchable[_i]);
	ck_assert_uint_ne(gm_rules_off, 0);
	while (!wrongs(&v) && ++seed <= 200000)
		one_program(seed, &v);
	gm_rules_read(NULL);
	fprintf(stderr, "# %s: seed %llu: races %u waits %u hangs %u invalidated %u recycled %u left %u broken %u\n",
		switchable[_i], (unsigned long long)seed, v.races, v.waits, v.hangs, v.invalidated,
		v.recycled, v.left, v.broken);
	ck_assert_msg(wrongs(&v) > 0, "without %s no program fails", switchable[_i]);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("reuse");
	Suite *suite = suite_create("reuse");

	tcase_set_timeout(tcase, 100);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, test_programs);
	if (PROGRAMS >= 10000)
		tcase_add_loop_test(tcase, test_each_rule, 0,
				    (int)(sizeof(switchable) / sizeof(switchable[0])));
	return run_suite(suite);
}
