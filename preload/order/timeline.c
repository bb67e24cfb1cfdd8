/*
 * timeline.c - contexts, their marks, and up to which point each has passed: see timeline.h.
 *
 * The marks of a context become complete in the order of their recording, because each comes after all work before it.
 * So the list of a context is a queue: marks are appended under "order" and taken off the front under "retire".
 *
 * Events are recorded again and never destroyed; they end with their context. A mark is never unmapped, and a track is
 * not reused while marks point to it. So a thread that holds a mark reads both without a lock.
 *
 * Thread context: any. Signal context: none.
 */
#include "preload/order/timeline.h"

#include <errno.h>

#include "allocator/rules.h"

#ifndef MARK_BYTES			/* fewer in test_timeline.c */
#define MARK_BYTES 16384u		/* marks are made in pieces of this size */
#endif

void gm_timeline_init(struct gm_timeline *t, const struct gm_timeline_ops *ops, uint64_t now)
{
	t->ops = *ops;
	t->lock.rank = GM_RANK_LEAF;
	t->now = now;
	t->ends = 1;
	t->streams_room = GM_TIMELINE_STREAMS;
}

/* ---- contexts ---------------------------------------------------------------------------------- */

/* Lock-free: the result was true at some instant during the call. An id is never used twice. */
static struct gm_track *find(struct gm_timeline *t, uint32_t id)
{
	for (uint32_t i = 0; i < t->used; i++)
		if (t->tracks[i].id == id && t->tracks[i].life != GM_TRACK_UNUSED)
			return &t->tracks[i];
	return NULL;
}

bool gm_timeline_has(struct gm_timeline *t, uint32_t id)
{
	return find(t, id) != NULL;
}

/* The new track has not passed the present point, because a later free may still carry that point. */
static int add_locked(struct gm_timeline *t, uint32_t id, uint64_t handle)
{
	uint32_t at = 0;

	while (at < t->used && (t->tracks[at].life != GM_TRACK_UNUSED || t->tracks[at].marks))
		at++;
	if (at == GM_TIMELINE_CONTEXTS) {
		t->overflowed = true;
		return -ENOSPC;
	}
	t->tracks[at].id = id;
	t->tracks[at].handle = handle;
	t->tracks[at].captures = 0;
	t->tracks[at].late = 0;
	t->tracks[at].passed = t->tracks[at].marked = t->now - 1;
	t->tracks[at].life = GM_TRACK_LIVE;
	if (at == t->used)
		t->used++;
	return 0;
}

/* The context may have ended while the caller looked its handle up. @ends tells, because ends are counted under the
 * lock. */
int gm_timeline_add(struct gm_timeline *t, uint32_t id, uint64_t handle, uint32_t ends)
{
	int r = 0;

	if (!gm_lock(&t->lock))
		return -ENOSPC;
	if (t->ends != ends)
		r = -ESTALE;
	else if (!find(t, id) && handle)
		r = add_locked(t, id, handle);
	gm_unlock(&t->lock);
	return r;
}

static bool is_alive(const struct gm_track *track)
{
	return track->life == GM_TRACK_LIVE || track->life == GM_TRACK_ENDING;
}

uint32_t gm_timeline_of_handle(struct gm_timeline *t, uint64_t handle)
{
	for (uint32_t i = 0; handle && i < t->used; i++)
		if (is_alive(&t->tracks[i]) && t->tracks[i].handle == handle)
			return t->tracks[i].id;
	return 0;
}

bool gm_timeline_alone(struct gm_timeline *t, uint32_t id, uint64_t handle)
{
	bool alone = (id || handle) && !t->overflowed && !t->everybody;

	for (uint32_t i = 0; i < t->used && alone; i++)
		alone = !is_alive(&t->tracks[i]) ||
			(handle ? t->tracks[i].handle == handle : t->tracks[i].id == id);
	return alone;
}

void gm_timeline_ending(struct gm_timeline *t, uint32_t id, bool ending)
{
	struct gm_track *track;

	if (!gm_lock(&t->lock))
		return;
	track = find(t, id);
	if (track && track->life != GM_TRACK_ENDED)
		track->life = ending ? GM_TRACK_ENDING : GM_TRACK_LIVE;
	gm_timeline_streams_ending_locked(t, id, ending);
	gm_unlock(&t->lock);
}

static void unuse_mark_locked(struct gm_timeline *t, struct gm_mark *mark)
{
	mark->track->marks--;
	mark->next = t->unused;
	t->unused = mark;
}

/* Release the spare events and the marks of an ended context. Marks in use are released by their last user. */
static void end_locked(struct gm_timeline *t, struct gm_track *track)
{
	struct gm_mark *mark;

	while ((mark = track->spare)) {
		track->spare = mark->next;
		unuse_mark_locked(t, mark);
	}
	while ((mark = track->oldest)) {
		track->oldest = mark->next;
		mark->passed = true;
		if (!mark->users)
			unuse_mark_locked(t, mark);
	}
	track->newest = NULL;
	track->life = track->marks ? GM_TRACK_ENDED : GM_TRACK_UNUSED;
}

static void forget_pairs_locked(struct gm_timeline *t, uint32_t id)
{
	for (uint32_t i = 0; i < t->pairs; i++)
		if (t->pair[i] >> 32 == id || (uint32_t)t->pair[i] == id)
			t->pair[i] = 0;
}

void gm_timeline_ended(struct gm_timeline *t, uint32_t id)
{
	struct gm_track *track;

	if (!gm_lock(&t->lock))
		return;
	t->ends++;
	track = find(t, id);
	if (track)
		end_locked(t, track);
	gm_timeline_streams_ended_locked(t, id);
	forget_pairs_locked(t, id);
	t->moves++;
	gm_unlock(&t->lock);
}

void gm_timeline_captures(struct gm_timeline *t, uint32_t id, bool begins)
{
	struct gm_track *track = find(t, id);
	_Atomic(uint32_t) *count = !id ? &t->captures : track ? &track->captures : NULL;

	if (count && begins)
		++*count;
	else if (count && *count)
		--*count;
}

bool gm_timeline_is_capturing(struct gm_timeline *t, uint32_t id)
{
	bool any = t->captures;

	for (uint32_t i = 0; i < t->used && !any; i++)
		any = is_alive(&t->tracks[i]) && (!id || t->tracks[i].id == id) && t->tracks[i].captures;
	return any;
}

void gm_timeline_touches(struct gm_timeline *t, uint32_t who, uint32_t whose)
{
	uint64_t pair = (uint64_t)who << 32 | whose;
	uint32_t at = 0;

	if (!who || !whose) {
		t->everybody = true;
		return;
	}
	for (uint32_t i = 0; i < t->pairs; i++)
		if (t->pair[i] == pair)
			return;
	if (who == whose || !gm_lock(&t->lock))
		return;
	while (at < t->pairs && t->pair[at])
		at++;
	if (at == GM_TIMELINE_PAIRS)
		t->everybody = true;
	else
		t->pair[at] = pair;
	if (at == t->pairs && at < GM_TIMELINE_PAIRS)
		t->pairs++;
	gm_unlock(&t->lock);
}

void gm_timeline_everybody(struct gm_timeline *t)
{
	t->everybody = true;
}

/* ---- events ------------------------------------------------------------------------------------ */

static struct gm_mark *unused_mark_locked(struct gm_timeline *t)
{
	struct gm_mark *mark = t->unused;

	if (!mark) {
		mark = t->ops.memory(t->ops.arg, MARK_BYTES);
		if (!mark)
			return NULL;
		for (unsigned int i = 1; i < MARK_BYTES / sizeof(*mark); i++)
			mark[i - 1].next = &mark[i];
	}
	t->unused = mark->next;
	return mark;
}

/* Make a mark with a new event. NULL: out of memory, no event, or the context has ended meanwhile. */
static struct gm_mark *make_mark(struct gm_timeline *t, struct gm_track *track, uint32_t id, uint64_t handle)
{
	uint64_t event = t->ops.event(t->ops.arg, id, handle);
	struct gm_mark *mark = NULL;

	if (!event || !gm_lock(&t->lock))
		return NULL;
	if (track->id == id && track->life == GM_TRACK_LIVE)
		mark = unused_mark_locked(t);
	if (mark) {
		*mark = (struct gm_mark){ .track = track, .event = event };
		track->marks++;
	}
	gm_unlock(&t->lock);
	return mark;
}

/* Get a mark of the context that @track belongs to now, and the context's handle. Returns 0, with NULL if the context
 * has ended or the track is unused; -EAGAIN: the context is about to end; -EBUSY: no lock; -ENOMEM. */
static int new_mark(struct gm_timeline *t, struct gm_track *track, struct gm_mark **ret_mark, uint64_t *ret_handle)
{
	struct gm_mark *mark = NULL;
	uint8_t life;
	uint32_t id;

	*ret_mark = NULL;
	if (!gm_lock(&t->lock))
		return -EBUSY;
	life = track->life;
	id = track->id;
	*ret_handle = track->handle;
	if (life == GM_TRACK_LIVE && track->spare) {
		mark = track->spare;
		track->spare = mark->next;
	}
	gm_unlock(&t->lock);
	if (life == GM_TRACK_ENDING)
		return -EAGAIN;
	if (life == GM_TRACK_LIVE && !mark) {
		mark = make_mark(t, track, id, *ret_handle);
		if (!mark)
			return -ENOMEM;
	}
	if (mark) {
		mark->next = NULL;
		mark->users = 0;
		mark->passed = false;
	}
	*ret_mark = mark;
	return 0;
}

void gm_timeline_put_locked(struct gm_timeline *t, struct gm_mark *mark)
{
	struct gm_track *track = mark->track;

	if (track->life == GM_TRACK_ENDED) {
		unuse_mark_locked(t, mark);
		if (!track->marks)
			track->life = GM_TRACK_UNUSED;
	} else {
		mark->next = track->spare;
		track->spare = mark;
	}
}

void gm_timeline_put(struct gm_timeline *t, struct gm_mark *mark)
{
	if (!mark || !gm_lock(&t->lock))
		return;
	gm_timeline_put_locked(t, mark);
	gm_unlock(&t->lock);
}

struct gm_mark *gm_timeline_take(struct gm_timeline *t, uint32_t id)
{
	struct gm_track *track = find(t, id);
	struct gm_mark *mark = NULL;
	uint64_t handle;

	if (!track || new_mark(t, track, &mark, &handle))
		return NULL;
	return mark;
}

/* ---- marks ------------------------------------------------------------------------------------- */

static int mark_track(struct gm_timeline *t, struct gm_track *track, uint64_t point)
{
	struct gm_mark *mark;
	uint64_t handle;
	int r = new_mark(t, track, &mark, &handle);

	if (r || !mark)
		return r;
	r = t->ops.record(t->ops.arg, handle, mark->event);
	if (r) {
		gm_timeline_put(t, mark);
		return r;
	}
	mark->point = point;
	mark->late = track->late;
	if (!gm_lock(&t->lock))
		return -EBUSY;		/* the event is lost; the next mark covers the same work */
	if (track->life == GM_TRACK_ENDED) {
		gm_timeline_put_locked(t, mark);
	} else {
		if (track->newest)
			track->newest->next = mark;
		else
			track->oldest = mark;
		track->newest = mark;
		track->marked = point;
	}
	gm_unlock(&t->lock);
	return 0;
}

static void around(const struct gm_timeline *t, bool begin)
{
	if (t->ops.around)
		t->ops.around(t->ops.arg, begin);
}

static bool is_unmarked(const struct gm_timeline *t, const struct gm_track *track)
{
	return is_alive(track) && track->marked < t->freed;
}

bool gm_timeline_mark(struct gm_timeline *t, uint64_t point, enum gm_mark_how how)
{
	bool done = !t->overflowed;

	around(t, true);
	for (uint32_t i = 0; i < t->used; i++) {
		struct gm_track *track = &t->tracks[i];
		bool wanted = how == GM_MARK_EVERY ? is_alive(track) : is_unmarked(t, track);

		if (!wanted || (how == GM_MARK_LAZY && track->oldest))
			continue;
		if (!((track->captures || t->captures) && gm_rule(GM_RULE_CAPTURE_EVENTS)) &&
		    !mark_track(t, track, point))
			continue;
		done = false;
		if (how == GM_MARK_SUBMISSION)
			track->late = point;
	}
	around(t, false);
	return done;
}

void gm_timeline_late(struct gm_timeline *t, uint64_t point)
{
	for (uint32_t i = 0; i < t->used; i++)
		if (is_alive(&t->tracks[i]) && t->tracks[i].marked < point)
			t->tracks[i].late = point;
}

bool gm_timeline_unmarked(struct gm_timeline *t)
{
	for (uint32_t i = 0; i < t->used; i++)
		if (is_unmarked(t, &t->tracks[i]))
			return true;
	return false;
}

static void raise_to(_Atomic(uint64_t) *word, uint64_t value)
{
	uint64_t old = *word;

	while (old < value && !__atomic_compare_exchange_n((uint64_t *)word, &old, value, false, __ATOMIC_ACQ_REL,
							   __ATOMIC_RELAXED))
		continue;
}

/* Return the track's oldest mark. Under "retire" no other thread takes it off, unless the context ends. */
static struct gm_mark *oldest(struct gm_timeline *t, struct gm_track *track)
{
	struct gm_mark *mark = NULL;

	if (!gm_lock(&t->lock))
		return NULL;
	if (track->life == GM_TRACK_LIVE)
		mark = track->oldest;
	gm_unlock(&t->lock);
	return mark;
}

static void pop(struct gm_timeline *t, struct gm_track *track, struct gm_mark *mark)
{
	if (!gm_lock(&t->lock))
		return;
	if (track->oldest == mark) {
		raise_to(&track->passed, mark->point);
		track->oldest = mark->next;
		if (!track->oldest)
			track->newest = NULL;
		mark->passed = true;
		t->moves++;
		if (!mark->users)
			gm_timeline_put_locked(t, mark);
	}
	gm_unlock(&t->lock);
}

static bool has_marks(const struct gm_timeline *t)
{
	for (uint32_t i = 0; i < t->used; i++)
		if (t->tracks[i].oldest)
			return true;
	return false;
}

bool gm_timeline_poll(struct gm_timeline *t)
{
	struct gm_mark *mark;
	bool any = false;

	if (!has_marks(t))
		return false;
	around(t, true);
	for (uint32_t i = 0; i < t->used; i++) {
		struct gm_track *track = &t->tracks[i];

		while (track->oldest && (mark = oldest(t, track)) && t->ops.query(t->ops.arg, mark->event) == 1) {
			pop(t, track, mark);
			any = true;
		}
	}
	around(t, false);
	return any;
}

static bool is_past(struct gm_timeline *t, const struct gm_track *track, uint64_t point)
{
	struct gm_mark *mark;
	bool past;

	if (!is_alive(track) || track->passed >= point)
		return true;
	mark = gm_timeline_use(t, track->id, point);
	if (!mark)
		return track->passed >= point;
	past = gm_mark_has_ended(mark) ||
	       (track->life == GM_TRACK_LIVE && t->ops.query(t->ops.arg, mark->event) == 1);
	gm_timeline_unuse(t, mark);
	return past;
}

bool gm_timeline_ask(struct gm_timeline *t, uint64_t point)
{
	bool past = !t->overflowed;

	around(t, true);
	for (uint32_t i = 0; i < t->used && past; i++)
		past = is_past(t, &t->tracks[i], point);
	around(t, false);
	return past;
}

void gm_timeline_pass(struct gm_timeline *t, uint32_t context, uint64_t point)
{
	for (uint32_t i = 0; i < t->used; i++)
		if (is_alive(&t->tracks[i]) && (!context || t->tracks[i].id == context) &&
		    t->tracks[i].passed < point) {
			raise_to(&t->tracks[i].passed, point);
			t->moves++;
		}
}

/* ---- passed points ----------------------------------------------------------------------------- */

static uint64_t passed_by(const struct gm_track *track)
{
	return is_alive(track) ? track->passed : UINT64_MAX;
}

static uint64_t passed_by_every(struct gm_timeline *t, uint32_t but)
{
	uint64_t point = t->overflowed ? 0 : UINT64_MAX;

	for (uint32_t i = 0; i < t->used; i++)
		if (!but || t->tracks[i].id != but) {
			uint64_t passed = passed_by(&t->tracks[i]);

			point = passed < point ? passed : point;
		}
	return point;
}

uint64_t gm_timeline_passed(struct gm_timeline *t, uint32_t context)
{
	const struct gm_track *track;

	if (!context || t->overflowed)
		return passed_by_every(t, 0);
	track = find(t, context);
	return track ? passed_by(track) : UINT64_MAX;
}

uint64_t gm_timeline_marked(struct gm_timeline *t, uint32_t context)
{
	const struct gm_track *track = context ? find(t, context) : NULL;
	uint64_t point = UINT64_MAX;

	for (uint32_t i = 0; !context && i < t->used; i++)
		if (is_alive(&t->tracks[i]) && t->tracks[i].marked < point)
			point = t->tracks[i].marked;
	return track ? track->marked : point;
}

uint64_t gm_timeline_passed_by_others(struct gm_timeline *t, uint32_t context)
{
	uint64_t point = UINT64_MAX, passed;

	if (t->everybody || !context || !gm_rule(GM_RULE_OWN_CONTEXT))
		return passed_by_every(t, context);
	for (uint32_t i = 0; i < t->pairs; i++) {
		uint64_t pair = t->pair[i];

		if (!pair || (uint32_t)pair != context || !gm_rule(GM_RULE_PEERS))
			continue;
		passed = gm_timeline_passed(t, (uint32_t)(pair >> 32));
		point = passed < point ? passed : point;
	}
	return point;
}

uint64_t gm_timeline_passed_by_all(struct gm_timeline *t, uint32_t context)
{
	uint64_t own = gm_timeline_passed(t, context), others = gm_timeline_passed_by_others(t, context);

	return own < others ? own : others;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

struct gm_mark *gm_timeline_use(struct gm_timeline *t, uint32_t context, uint64_t from)
{
	struct gm_track *track = find(t, context);
	struct gm_mark *mark = NULL;

	if (!track || !gm_lock(&t->lock))
		return NULL;
	if (track->id == context)
		for (mark = track->oldest; mark && mark->point < from; mark = mark->next)
			;
	if (mark)
		mark->users++;
	gm_unlock(&t->lock);
	return mark;
}

int gm_timeline_wait(struct gm_timeline *t, const struct gm_mark *mark)
{
	if (gm_mark_has_ended(mark))
		return 0;
	return mark->track->life == GM_TRACK_ENDING ? -EAGAIN : t->ops.wait(t->ops.arg, mark->event);
}

void gm_timeline_unuse(struct gm_timeline *t, struct gm_mark *mark)
{
	if (!gm_lock(&t->lock))
		return;
	if (!--mark->users && mark->passed)
		gm_timeline_put_locked(t, mark);
	gm_unlock(&t->lock);
}

bool gm_timeline_last_marks(struct gm_timeline *t, bool (*fn)(void *arg, uint64_t event), void *arg)
{
	for (uint32_t i = 0; i < t->used; i++) {
		struct gm_mark *mark = NULL;
		bool more = true;

		if (!gm_lock(&t->lock))
			return false;
		if (t->tracks[i].life == GM_TRACK_LIVE)
			mark = t->tracks[i].newest;
		if (mark)
			mark->users++;
		gm_unlock(&t->lock);
		if (mark) {
			more = fn(arg, mark->event);
			gm_timeline_unuse(t, mark);
		}
		if (!more)
			return false;
	}
	return true;
}
