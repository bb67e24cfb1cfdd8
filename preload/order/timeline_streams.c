/*
 * timeline_streams.c - up to which point each stream has passed the frees in its own order: see timeline.h.
 *
 * Memory that was freed in the order of a stream may be used by that stream again at once. It may go to another stream,
 * or back to the driver, when the host has seen that the work before the free is complete. A mark of the whole context
 * would show that too late, because it also comes after the work of other streams, for example a kernel that waits for
 * a request which needs just this memory. So a free records an event on its own stream: one event for each stream,
 * recorded anew each time.
 *
 * A free first records the event, then gets its point. A look-up first takes a point, then queries the event: if the
 * event is complete, the stream has passed all frees up to that point. If a free could not record the event, it is
 * counted (missed). Until the event is recorded again, it proves nothing, and the stream is queried as a whole. Such a
 * query may say "not yet" because of later work.
 *
 * An event belongs to its stream until the stream has ended and is complete. Then another stream gets the event.
 *
 * Locks: the timeline's own lock guards the table. Events are looked at and waited for under "retire", streams are
 * queried under "order". A thread that takes and releases both after a stream's end knows that no other thread still
 * uses the stream's name.
 * Thread context: any. Signal context: none.
 */
#include "preload/order/timeline.h"

#include <errno.h>

static uint16_t *bucket_of(struct gm_timeline *t, uint64_t key)
{
	return &t->buckets[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (t->streams_room / 4 - 1)];
}

static struct gm_stream_track *find_locked(struct gm_timeline *t, uint64_t key)
{
	uint32_t at = t->streams ? *bucket_of(t, key) : 0;

	while (at && t->streams[at].key != key)
		at = t->streams[at].next;
	return at ? &t->streams[at] : NULL;
}

/* Find stream @key and hold the lock. NULL: the stream is not known, and the lock is not held. If the lock fails, a
 * free may go unnoted, so from then on nothing is known of streams. */
static struct gm_stream_track *lock_stream(struct gm_timeline *t, uint64_t key)
{
	struct gm_stream_track *stream;

	if (!gm_lock(&t->lock)) {
		t->blind = true;
		return NULL;
	}
	stream = find_locked(t, key);
	if (!stream)
		gm_unlock(&t->lock);
	return stream;
}

bool gm_timeline_stream_copy(struct gm_timeline *t, uint64_t key, struct gm_stream_track *ret_copy)
{
	const struct gm_stream_track *stream = lock_stream(t, key);

	if (!stream)
		return false;
	*ret_copy = *stream;
	gm_unlock(&t->lock);
	return true;
}

bool gm_timeline_stream_next(struct gm_timeline *t, uint32_t *at, struct gm_stream_track *ret_copy)
{
	bool found = false;

	if (!gm_lock(&t->lock))
		return false;
	while (!found && ++*at <= t->streams_used)
		found = t->streams[*at].key && t->streams[*at].passed != UINT64_MAX;
	if (found)
		*ret_copy = t->streams[*at];
	gm_unlock(&t->lock);
	return found;
}

/* ---- the table --------------------------------------------------------------------------------- */

static void drop_locked(struct gm_timeline *t, uint32_t at)
{
	uint16_t *link = bucket_of(t, t->streams[at].key);

	while (*link != at)
		link = &t->streams[*link].next;
	*link = t->streams[at].next;
	t->streams[at] = (struct gm_stream_track){ .next = (uint16_t)t->streams_unused };
	t->streams_unused = at;
}

/* Return an unused index; 0: none. If the table is full, first drop all streams that have ended and are complete. */
static uint32_t place_locked(struct gm_timeline *t)
{
	size_t bytes = (t->streams_room + 1) * sizeof(*t->streams);
	uint32_t at;

	if (!t->streams) {
		t->streams = t->ops.memory(t->ops.arg, bytes + t->streams_room / 4 * sizeof(*t->buckets));
		if (!t->streams)
			return 0;
		t->buckets = (uint16_t *)(t->streams + t->streams_room + 1);
	}
	if (!t->streams_unused && t->streams_used == t->streams_room)
		for (at = 1; at <= t->streams_room; at++)
			if (t->streams[at].passed == UINT64_MAX)
				drop_locked(t, at);
	at = t->streams_unused;
	if (at)
		t->streams_unused = t->streams[at].next;
	else if (t->streams_used < t->streams_room)
		at = ++t->streams_used;
	return at;
}

void gm_timeline_stream_add(struct gm_timeline *t, const struct gm_stream_track *like, bool fresh)
{
	bool reported = t->reported;
	uint32_t at;

	if (!gm_lock(&t->lock))
		return;
	at = find_locked(t, like->key) ? 0 : place_locked(t);
	if (at) {
		t->streams[at] = *like;
		t->streams[at].born = ++t->streams_born;
		t->streams[at].missed = !(fresh && reported);
		t->streams[at].next = *bucket_of(t, like->key);
		*bucket_of(t, like->key) = (uint16_t)at;
	}
	gm_unlock(&t->lock);
}

/* The stream has ended, or its context has, and no free on it is pending: give its event back. */
static void complete_locked(struct gm_timeline *t, struct gm_stream_track *stream)
{
	t->streams_ended -= stream->ended;
	t->streams_over++;
	stream->ended = true;
	stream->stream = 0;
	stream->passed = UINT64_MAX;
	if (stream->mark)
		gm_timeline_put_locked(t, stream->mark);
	stream->mark = NULL;
}

static bool is_covered(const struct gm_stream_track *stream)
{
	return stream->recorded == stream->missed;
}

void gm_timeline_stream_ended(struct gm_timeline *t, uint64_t key)
{
	struct gm_stream_track *stream = lock_stream(t, key);

	if (!stream)
		return;
	if (!stream->ended) {
		stream->ended = true;
		stream->stream = 0;
		t->streams_ended++;
		if (!is_covered(stream) || !stream->mark)
			stream->freed = gm_timeline_free(t);	/* the context has to pass this point */
	}
	gm_unlock(&t->lock);
}

void gm_timeline_streams_ending_locked(struct gm_timeline *t, uint32_t context, bool ending)
{
	for (uint32_t at = 1; at <= t->streams_used; at++)
		if (t->streams[at].key && t->streams[at].context == context)
			t->streams[at].ending = ending;
}

void gm_timeline_streams_ended_locked(struct gm_timeline *t, uint32_t context)
{
	for (uint32_t at = 1; at <= t->streams_used; at++)
		if (t->streams[at].key && t->streams[at].context == context && t->streams[at].passed != UINT64_MAX)
			complete_locked(t, &t->streams[at]);
}

/* ---- frees ------------------------------------------------------------------------------------- */

/* @mark was recorded after @copy was made: make it the event of that stream. Returns the stream's event, which another
 * thread may have set first. NULL: the stream is complete, or not known any more. */
static struct gm_mark *adopt(struct gm_timeline *t, const struct gm_stream_track *copy, struct gm_mark *mark)
{
	struct gm_stream_track *stream = lock_stream(t, copy->key);
	struct gm_mark *stands = NULL;

	if (!stream)
		return NULL;
	if (stream->born == copy->born && stream->passed != UINT64_MAX) {
		if (!stream->mark)
			stream->mark = mark;
		stands = stream->mark;
	}
	gm_unlock(&t->lock);
	return stands;
}

static bool record_on(struct gm_timeline *t, const struct gm_mark *mark, uint64_t name)
{
	return !t->ops.record_on(t->ops.arg, 0, name, mark->event);
}

static bool record(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t name)
{
	struct gm_mark *mark = copy->mark ? copy->mark : gm_timeline_take(t, copy->context), *stands;
	bool done = mark && record_on(t, mark, name);

	if (copy->mark)
		return done;
	stands = done ? adopt(t, copy, mark) : NULL;
	if (stands == mark && mark)
		return true;
	gm_timeline_put(t, mark);
	return stands && record_on(t, stands, name);
}

void gm_timeline_stream_freed(struct gm_timeline *t, uint64_t key, uint64_t name, bool may_record)
{
	struct gm_stream_track copy, *stream;
	bool done;

	if (!gm_timeline_stream_copy(t, key, &copy))
		return;
	done = may_record && !copy.ending && record(t, &copy, name);
	stream = lock_stream(t, key);
	if (!stream)
		return;
	if (!done)
		stream->missed++;
	else if (stream->recorded < copy.missed)
		stream->recorded = copy.missed;
	stream->freed = gm_timeline_free(t);
	gm_unlock(&t->lock);
}

/* ---- how far they have come -------------------------------------------------------------------- */

static bool is_pending(const struct gm_stream_track *stream)
{
	bool reported = is_covered(stream) || stream->ended || stream->freed >= stream->asked;

	return stream->passed < (reported ? stream->freed : stream->asked);
}

/* Note the result of a look-up that began with @copy: the stream has passed all frees up to @point (@complete), or it
 * has not. @covers: if complete, the frees that @copy counts need no event any more. */
static void answered(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point, bool complete,
		     bool covers)
{
	struct gm_stream_track *stream = lock_stream(t, copy->key);

	if (!stream)
		return;
	if (stream->born == copy->born && stream->passed != UINT64_MAX) {
		if (stream->asked < point)
			stream->asked = point;
		if (complete && stream->passed < point) {
			t->streams_moves += is_pending(stream);
			stream->passed = point;
		}
		if (complete && covers && stream->recorded < copy->missed)
			stream->recorded = copy->missed;
		if (complete && copy->ended)
			complete_locked(t, stream);
	}
	gm_unlock(&t->lock);
}

/* Look up the stream by its event, or, if it ended without an event, by its context. */
static void look(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point)
{
	bool complete = copy->passed >= copy->freed;

	if (copy->passed == UINT64_MAX || copy->ending || t->blind)
		return;
	/* No event, but idle when it was queried, and nothing freed since; or its context was never given work. */
	if (is_covered(copy) && !copy->mark && copy->passed && !t->overflowed) {
		answered(t, copy, point, true, false);
		return;
	}
	/* Some frees have no event, for example because they were not reported yet: after the stream's end its context
	 * tells. */
	if (!is_covered(copy) || !copy->mark) {
		if (copy->ended)
			answered(t, copy, point, gm_timeline_passed(t, copy->context) >= copy->freed, false);
		return;
	}
	if (!complete) {
		if (t->ops.around)
			t->ops.around(t->ops.arg, true);
		complete = t->ops.query(t->ops.arg, copy->mark->event) == 1;
		if (t->ops.around)
			t->ops.around(t->ops.arg, false);
	}
	answered(t, copy, point, complete, false);
}

uint64_t gm_timeline_stream_look(struct gm_timeline *t, uint64_t key, uint64_t point)
{
	struct gm_stream_track copy;

	if (gm_timeline_stream_copy(t, key, &copy))
		look(t, &copy, point);
	return gm_timeline_stream_passed(t, key);
}

bool gm_timeline_stream_asks(const struct gm_stream_track *copy)
{
	return !is_covered(copy) && copy->stream && !copy->ending;
}

bool gm_timeline_stream_ask(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point)
{
	bool covers = t->reported;		/* read first: a free that does not see it came before the query */
	const struct gm_stream_track *stream = lock_stream(t, copy->key);
	bool named = stream && stream->born == copy->born && stream->stream && !stream->ending;
	int idle;

	if (stream)
		gm_unlock(&t->lock);
	if (!named || t->blind)
		return false;
	idle = t->ops.idle(t->ops.arg, copy->context, copy->stream);
	answered(t, copy, point, idle == 1, covers);
	return idle == 1;
}

void gm_timeline_stream_mark(struct gm_timeline *t, const struct gm_stream_track *copy, uint64_t point)
{
	struct gm_mark *mark;
	struct gm_stream_track *stream;

	if (is_covered(copy) || gm_timeline_stream_ask(t, copy, point))
		return;
	mark = copy->stream && !copy->mark && !copy->ending ? gm_timeline_take(t, copy->context) : NULL;
	if (!mark)
		return;
	stream = t->ops.record_on(t->ops.arg, copy->context, copy->stream, mark->event) ? NULL
										     : lock_stream(t, copy->key);
	/* If a free has set an event meanwhile, keep that one: it comes after everything that this one covers. */
	if (stream && stream->born == copy->born && !stream->mark && stream->passed != UINT64_MAX) {
		stream->mark = mark;
		stream->recorded = copy->missed;
		stream->freed = gm_timeline_free(t);	/* an upper bound */
		mark = NULL;
	}
	if (stream)
		gm_unlock(&t->lock);
	gm_timeline_put(t, mark);
}

uint64_t gm_timeline_stream_passed(struct gm_timeline *t, uint64_t key)
{
	struct gm_stream_track copy;

	return !t->blind && gm_timeline_stream_copy(t, key, &copy) ? copy.passed : 0;
}

enum gm_stream_frees gm_timeline_stream_frees(struct gm_timeline *t, uint64_t key, bool *ret_ended)
{
	struct gm_stream_track copy;

	*ret_ended = false;
	if (t->blind || !gm_timeline_stream_copy(t, key, &copy))
		return GM_FREES_UNKNOWN;
	*ret_ended = copy.ended;
	if (is_covered(&copy) || copy.ended)
		return is_pending(&copy) ? GM_FREES_PENDING : GM_FREES_PASSED;
	if (!copy.stream)
		return GM_FREES_UNKNOWN;
	return !copy.asked || is_pending(&copy) ? GM_FREES_PENDING : GM_FREES_PASSED;
}

bool gm_timeline_streams_pending(struct gm_timeline *t)
{
	struct gm_stream_track copy;
	bool pending = false;

	for (uint32_t at = 0; !pending && gm_timeline_stream_next(t, &at, &copy);)
		pending = is_pending(&copy);
	return pending;
}

bool gm_timeline_stream_wait(struct gm_timeline *t, uint64_t key, bool may_record,
			     int (*wait)(void *arg, uint64_t event), void *arg)
{
	struct gm_stream_track copy;
	struct gm_mark *mark;
	bool done;

	if (t->blind || !gm_timeline_stream_copy(t, key, &copy) || copy.ending)
		return false;
	if (is_covered(&copy) && copy.mark)
		return !wait(arg, copy.mark->event);
	mark = may_record && copy.stream ? gm_timeline_take(t, copy.context) : NULL;
	done = mark && record_on(t, mark, copy.stream) && !wait(arg, mark->event);
	gm_timeline_put(t, mark);
	return done;
}
