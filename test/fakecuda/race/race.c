/*
 * race.c - the race detector: what comes before what, whatever the clock did.
 *
 * Every operation has a vector clock for its start and one for its end, made from what the program
 * said: stream order, events, waits, graphs, host synchronisation and queries that succeeded. That
 * something happened to be complete counts for nothing. An operation is judged when it is
 * submitted; where it comes after a wait for a word in memory, once that wait is over, since only
 * then is it known which write it came after. Reported are
 *
 *   unordered   two operations touch the same bytes of a block, one writes
 *   reused      two operations use the same bytes in different lives of the memory: the block was
 *               handed out again, and a use in its old life is not ordered before one in its new
 *   freed       a stream-ordered free is not ordered after a use of the memory
 *   gone        the host unmapped or freed memory without having seen a use of it complete
 *
 * A kernel that waits for a word is taken to touch its other parameters after the word changed; for
 * lives and unmapping it counts from its start. A word changed by the host hands over what the host
 * knows at that moment.
 *
 * All under fc.lock. Nothing here fails, waits or submits; without memory it switches itself off.
 */
#include "test/fakecuda/race/race.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stream_info {		/* of a live stream: stream->race */
	uint32_t lane;		/* since its first operation */
	bool has_lane;
};

/* The last operation of a destroyed stream: what waits for the whole context waits for it too. */
struct ghost {
	uint64_t ctx_id;
	bool blocking;
	struct race_op *last;
	struct ghost *next;
};

static bool off, configured;
static struct race_op *unresolved, **unresolved_tail = &unresolved;
static struct race_op **unseen;		/* counted: not known to be seen by the host */
static size_t n_unseen, max_unseen, purged_at;
static struct ghost *ghosts;

bool race_on(void)
{
	if (!configured) {
		configured = true;
		off = race_config_off();
	}
	return !off;
}

void race_broken(void)
{
	if (!off)
		fc_log("race detector: out of memory, off from here on");
	off = true;
}

struct race_op *race_unresolved(void)
{
	return unresolved;
}

/* ---- objects ---- */

struct race_op *race_op_new(void)
{
	struct race_op *ro = calloc(1, sizeof(*ro));

	if (!ro) {
		race_broken();
		return NULL;
	}
	ro->refs = 1;
	strcpy(ro->name, "host access");
	return ro;
}

struct race_op *race_op_get(struct race_op *ro)
{
	if (ro)
		ro->refs++;
	return ro;
}

void race_op_put(struct race_op *ro)
{
	if (!ro || --ro->refs)
		return;
	race_vc_free(&ro->start);
	race_vc_free(&ro->end);
	free(ro->uses);
	free(ro);
}

struct race_use *race_op_use(struct race_op *ro, uint64_t start, uint64_t end, uint64_t life,
			     enum race_kind kind)
{
	struct race_use *grown = realloc(ro->uses, (ro->n_uses + 1) * sizeof(*grown));

	if (!grown) {
		race_broken();
		return NULL;
	}
	ro->uses = grown;
	grown[ro->n_uses] = (struct race_use){
		.start = start, .end = end, .point = start, .life = life, .kind = kind };
	return &grown[ro->n_uses++];
}

void race_op_range(struct race_op *ro, uint64_t start, uint64_t end, enum race_kind kind)
{
	while (start < end) {
		uint64_t from, to, life;
		struct fc_alloc *next;

		if (race_block_at(start, &from, &to, &life)) {
			if (to > end)
				to = end;
			race_op_use(ro, start, to, life, kind);
			start = to;
			continue;
		}
		next = fc_alloc_next(start);
		if (!next || next->base >= end)
			break;
		start = next->base;
	}
}

static void add_uses(struct race_op *ro, const struct fc_work *w)
{
	for (size_t i = 0; i < w->n_ranges; i++) {
		const struct fc_range *r = &w->ranges[i];
		size_t n = ro->n_uses;

		if (w->kind == FC_WORK_MEMOP || (w->wait && w->wait->ptr == r->ptr)) {
			race_op_range(ro, r->ptr, r->ptr + 4, RACE_WORD);
		} else if (r->use) {
			uint64_t from, to, life;
			struct race_use *use;

			if (!race_block_at(r->ptr, &from, &to, &life))
				continue;
			use = race_op_use(ro, from, to, life, RACE_USE);
			if (use)
				use->point = r->ptr;
		} else {
			race_op_range(ro, r->ptr, r->ptr + r->size,
				      r->write ? RACE_WRITE : RACE_READ);
		}
		for (; w->wait && n < ro->n_uses; n++)
			ro->uses[n].late = ro->uses[n].kind != RACE_WORD;
	}
}

/* ---- order ---- */

/* Join into @vc what the dependencies of @kind say. False: one is not resolved yet. */
static bool join_deps(const struct fc_op *op, enum fc_dep_kind kind, struct race_vc *vc)
{
	bool all = true;

	for (size_t i = 0; i < op->n_deps; i++) {
		const struct race_op *on = op->deps[i].on->race;

		if (op->deps[i].kind != kind || !on)
			continue;
		race_vc_join(vc, kind == FC_AFTER_START ? &on->start : &on->end);
		all &= kind == FC_AFTER_START ? on->start_ok : on->end_ok;
	}
	return all;
}

static void resolve_start(struct race_op *ro)
{
	struct fc_op *op = ro->op;
	struct stream_info *info = op->stream ? op->stream->race : NULL;
	bool all = join_deps(op, FC_AFTER_END, &ro->start);

	all &= join_deps(op, FC_AFTER_START, &ro->start);
	if (!all)
		return;
	ro->start_ok = true;
	race_vc_join(&ro->end, &ro->start);
	join_deps(op, FC_END_AFTER_END, &ro->end);
	ro->epoch = race_lane_next(&ro->end, info && info->has_lane ? info->lane + 1 : 0,
				   &ro->lane);
	if (info && !info->has_lane) {
		info->lane = ro->lane;
		info->has_lane = true;
		race_lane_claim(info->lane);
	}
	race_vc_set(&ro->end, ro->lane, ro->epoch);
	for (size_t i = 0; i < ro->n_uses; i++)
		race_access_start(ro, &ro->uses[i]);
}

static void resolve_end(struct race_op *ro)
{
	if (ro->waits || !join_deps(ro->op, FC_END_AFTER_END, &ro->end))
		return;
	ro->end_ok = true;
	for (size_t i = 0; i < ro->n_uses; i++)
		race_access_end(ro, &ro->uses[i]);
}

static void leave_unresolved(struct race_op *ro)
{
	if (!ro->prevp)
		return;
	*ro->prevp = ro->next;
	if (ro->next)
		ro->next->prevp = ro->prevp;
	else
		unresolved_tail = ro->prevp;
	ro->prevp = NULL;
	ro->next = NULL;
	race_op_put(ro);
}

static void resolve(struct race_op *ro)
{
	if (!ro->start_ok)
		resolve_start(ro);
	if (ro->start_ok && !ro->end_ok)
		resolve_end(ro);
	if (ro->end_ok)
		leave_unresolved(ro);
}

/* Dependencies point to earlier submissions: one pass in order settles all that can be. */
void race_resolve_all(void)
{
	struct race_op *next;

	for (struct race_op *ro = unresolved; ro; ro = next) {
		next = ro->next;
		resolve(ro);
	}
}

/* ---- what the host has seen ---- */

static void purge_unseen(void)
{
	const struct race_vc *vc = race_host_vc();
	size_t kept = 0;

	if (race_host_separate() || n_unseen < 2 * purged_at + 64)
		return;
	for (size_t i = 0; i < n_unseen; i++) {
		struct race_op *ro = unseen[i];

		if (ro->end_ok && race_vc_knows(vc, ro->lane, ro->epoch))
			race_op_put(ro);
		else
			unseen[kept++] = ro;
	}
	n_unseen = purged_at = kept;
}

static void add_unseen(struct race_op *ro)
{
	if (n_unseen == max_unseen) {
		size_t max = max_unseen ? 2 * max_unseen : 256;
		struct race_op **grown = realloc(unseen, max * sizeof(*grown));

		if (!grown) {
			race_broken();
			return;
		}
		unseen = grown;
		max_unseen = max;
	}
	unseen[n_unseen++] = race_op_get(ro);
}

/* Operations that are not resolved may come after less than the host knows now. */
static void host_learned(void)
{
	purge_unseen();
	if (!unresolved && !race_host_separate())
		race_access_prune(race_host_vc());
}

void fc_race_host_saw(struct fc_op *op)
{
	const struct race_op *ro = op->race;

	if (!race_on() || !ro || !ro->end_ok)
		return;
	race_host_learn(&ro->end);
	host_learned();
}

void fc_race_host_saw_ctx(struct fc_ctx *ctx, uint64_t seq)
{
	if (!race_on())
		return;
	for (size_t i = 0; i < n_unseen; i++)
		if (unseen[i]->ctx_id == ctx->id && unseen[i]->seq <= seq && unseen[i]->end_ok)
			race_host_learn(&unseen[i]->end);
	host_learned();
}

/* ---- streams that are gone ---- */

static void purge_ghosts(void)
{
	const struct race_vc *vc = race_host_vc();

	for (struct ghost **at = &ghosts, *g; !race_host_separate() && (g = *at);) {
		if (g->last->end_ok && race_vc_knows(vc, g->last->lane, g->last->epoch)) {
			*at = g->next;
			race_op_put(g->last);
			free(g);
		} else {
			at = &g->next;
		}
	}
}

void fc_race_stream_destroyed(struct fc_stream *s)
{
	struct race_op *last = s->tail ? s->tail->race : NULL;
	struct ghost *g;

	if (!race_on() || !last)
		return;
	purge_ghosts();
	g = calloc(1, sizeof(*g));
	if (!g) {
		race_broken();
		return;
	}
	g->ctx_id = s->ctx->id;
	g->blocking = !(s->flags & CU_STREAM_NON_BLOCKING);
	g->last = race_op_get(last);
	g->next = ghosts;
	ghosts = g;
}

/* The engine has no dependency on a destroyed stream whose work has ended: whether it had by then
 * is chance, and the order holds all the same. */
static void join_ghosts(struct race_op *ro, const struct fc_op *op)
{
	bool legacy = op->stream && op->stream->legacy;
	bool whole = !op->stream && (!strcmp(op->work->name, "cuCtxRecordEvent") ||
				     !strcmp(op->work->name, "cuMemFree"));

	if (!legacy && !whole)
		return;
	for (const struct ghost *g = ghosts; g; g = g->next)
		if (g->ctx_id == op->ctx->id && (whole || g->blocking) && g->last->end_ok)
			race_vc_join(&ro->start, &g->last->end);
}

void fc_race_stream_ended(struct fc_stream *s)
{
	struct stream_info *info = s->race;

	if (!info)
		return;
	if (info->has_lane)
		race_lane_disown(info->lane);
	free(info);
	s->race = NULL;
}

/* ---- operations ---- */

struct race_op *race_of(struct fc_op *op)
{
	if (!op->race)
		op->race = race_op_new();
	return op->race;
}

void fc_race_submit(struct fc_op *op)
{
	struct race_op *ro;

	fc_waiting_committed(op);
	ro = race_on() ? race_of(op) : NULL;
	if (!ro)
		return;
	if (op->stream && !op->stream->race)
		op->stream->race = calloc(1, sizeof(struct stream_info));
	ro->op = op;
	ro->seq = op->seq;
	ro->ctx_id = op->ctx->id;
	ro->stream_id = op->stream ? op->stream->id : 0;
	ro->stream_legacy = op->stream && op->stream->legacy;
	ro->waits = op->work->wait || fc_memop_waits(op->work) || fc_semaphore_waits(op->work);
	snprintf(ro->name, sizeof(ro->name), "%s", op->work->name);
	add_uses(ro, op->work);
	race_vc_join(&ro->start, race_host_vc());
	join_ghosts(ro, op);
	add_unseen(ro);
	ro->next = NULL;
	ro->prevp = unresolved_tail;
	*unresolved_tail = race_op_get(ro);
	unresolved_tail = &ro->next;
	resolve(ro);
}

void fc_race_op_ended(struct fc_op *op)
{
	struct race_op *ro = op->race;

	if (!ro)
		return;
	leave_unresolved(ro);
	ro->op = NULL;
	op->race = NULL;
	race_op_put(ro);
}

/* ---- control ---- */

static void forget_all(void)
{
	while (unresolved)
		leave_unresolved(unresolved);
	race_access_reset();
	race_life_reset();
	for (size_t i = 0; i < n_unseen; i++)
		race_op_put(unseen[i]);
	free(unseen);
	unseen = NULL;
	n_unseen = max_unseen = purged_at = 0;
	while (ghosts) {
		struct ghost *g = ghosts;

		ghosts = g->next;
		race_op_put(g->last);
		free(g);
	}
}

void fc_race_reset(void)
{
	forget_all();
	race_host_reset();
	race_word_reset();
	race_clock_reset();
	race_tree_reset();
	race_report_reset();
	configured = false;
}

FC_EXPORT void fakecuda_race_enable(int on)
{
	fc_enter_control();
	race_on();
	if (!on)
		forget_all();
	off = !on;
	fc_leave_control();
}

void fc_race_dump(int fd)
{
	dprintf(fd, "races %zu, accesses kept %zu, operations not seen complete %zu, lanes %u\n",
		race_report_count(), race_access_count(), n_unseen, race_lane_count());
}
