/*
 * copy_events.c - the events of a copy: validate, sort and count them; and find the operations that had
 * begun but not returned.
 *
 * An event is kept when its commit word names its chunk's generation and its place, its fields are
 * in range, its stamp is after the horizon and not after the cut, and its operation was not taken
 * back. Events are ordered by (stamp, thread slot, place).
 * Thread context: one thread a copy.
 */
#include "recorder/read/copy_internal.h"

#include <errno.h>
#include <string.h>

struct scan {
	struct gm_copy *copy;
	struct gm_pair *pairs;		/* stamp, event */
	size_t count;
	uint64_t undone_op[GM_DOMAINS];	/* by domain: the operation that was taken back; 0: none */
	uint64_t *undone_of;		/* by thread slot: the operation of its thread cache or pool that
					 * was taken back */
	struct gm_chunk *requests;	/* memory for the events that GM_FREE_AT_ONCE adds: the next chunk */
	bool any_undone;
	uint64_t kept[GM_DOMAINS], undone[GM_DOMAINS], old[GM_DOMAINS];
	struct gm_frees frees;
	int16_t *flight_of;		/* by thread slot: index of its flight; -1: none */
	bool *complete;			/* by flight: an event or a table shows that it is complete */
};

int gm_resolve_flights(struct gm_copy *copy)
{
	size_t threads = gm_copy_items(copy, GM_REGION_THREADS);
	const struct gm_thread *thread = (const void *)
		(copy->base + copy->header->regions[GM_REGION_THREADS].offset);

	if (threads > GM_MAX_THREADS)
		threads = GM_MAX_THREADS;
	copy->flights = gm_scratch_get(&copy->scratch, threads * sizeof(*copy->flights));
	if (!copy->flights)
		return -ENOMEM;
	for (size_t i = 0; i < threads; i++, thread++) {
		if (!thread->flight_op)
			continue;
		if (thread->flight_action == GM_ACTION_NONE ||
		    thread->flight_action >= GM_ACTION_COUNT ||
		    thread->flight_kind >= GM_KIND_COUNT || thread->flight_domain >= GM_DOMAINS) {
			copy->damage++;
			continue;
		}
		copy->flights[copy->flight_count++] = (struct gm_flight){
			.op = thread->flight_op, .address = thread->flight_address,
			.size = thread->flight_size, .tsc = thread->flight_tsc, .tid = thread->tid,
			.action = thread->flight_action, .kind = thread->flight_kind,
			.domain = thread->flight_domain,
		};
	}
	return 0;
}

static inline void saw_op(struct scan *scan, uint64_t op)
{
	uint64_t slot = op >> GM_OP_SLOT_SHIFT;
	int flight = slot < GM_MAX_THREADS ? scan->flight_of[slot] : -1;

	if (flight >= 0 && scan->copy->flights[flight].op == op)
		scan->complete[flight] = true;
}

/* Note an event that shows who owned an address. Events of VMM and graph memory do not count, because each change
 * of such memory allocates the same block again. Events of pools do not count either, because a pool hands out
 * memory that its segment still has. */
static void note_owner(struct gm_frees *frees, const struct gm_event *event)
{
	const struct gm_owned of = { event->address, event->size, event->kind, 0, event->domain };

	if (event->kind != GM_KIND_VMM && event->kind != GM_KIND_GRAPH &&
	    event->domain < GM_DOMAIN_POOLS &&
	    (event->action == GM_ACTION_ALLOC || event->action == GM_ACTION_FREE_COMPLETED))
		gm_frees_note(frees, &of, event->tsc, event->action == GM_ACTION_FREE_COMPLETED);
}

static bool was_undone(const struct scan *scan, const struct gm_event *event)
{
	uint64_t slot = event->op >> GM_OP_SLOT_SHIFT;

	return event->op && (event->op == scan->undone_op[event->domain] ||
			     (slot < GM_MAX_THREADS && event->op == scan->undone_of[slot]));
}

static void scan_event(struct scan *scan, const struct gm_event *event)
{
	struct gm_copy *copy = scan->copy;

	if (event->action == GM_ACTION_NONE || event->action >= GM_ACTION_COUNT ||
	    event->kind >= GM_KIND_COUNT || event->domain >= GM_DOMAINS) {
		copy->damage++;
		return;
	}
	if (event->tsc > copy->cut_tsc)
		return;
	if (scan->any_undone && was_undone(scan, event)) {
		scan->undone[event->domain]++;
		return;
	}
	saw_op(scan, event->op);
	if (scan->frees.count)
		note_owner(&scan->frees, event);
	if (event->tsc <= copy->header->horizon) {
		scan->old[event->domain]++;
		return;
	}
	scan->kept[event->domain]++;
	scan->pairs[scan->count++] = (struct gm_pair){ event->tsc, (uintptr_t)event };
}

static inline bool is_at_once(const struct gm_event *event)
{
	return event->action == GM_ACTION_FREE_COMPLETED && event->flags & GM_FREE_AT_ONCE;
}

/* Does @chunk have a valid event with GM_FREE_AT_ONCE? */
static bool has_at_once(const struct gm_chunk *chunk)
{
	const struct gm_event *event = (const struct gm_event *)chunk + 1;
	bool found = false;

	for (unsigned int place = 1; place <= GM_CHUNK_EVENTS && chunk->generation; place++, event++)
		found |= event->commit == (chunk->generation << 8 | place) && is_at_once(event);
	return found;
}

/* Make the free_requested event that @event, a record with GM_FREE_AT_ONCE, includes. The new event gets the same place
 * in @requests, and scan_chunk copies the chunk's head there. Returns the new event. */
static const struct gm_event *request_of(struct gm_chunk *requests, const struct gm_event *event, unsigned int place)
{
	struct gm_event *request = (struct gm_event *)requests + place;

	*request = *event;
	request->how = GM_ACTION_FREE_REQUESTED;
	return request;
}

static void scan_chunk(struct scan *scan, const struct gm_chunk *chunk)
{
	const struct gm_event *event = (const struct gm_event *)chunk + 1;
	struct gm_chunk *requests = scan->requests;
	uint64_t commit = chunk->generation << 8;
	bool used = false;

	for (unsigned int place = 1; place <= GM_CHUNK_EVENTS; place++, event++) {
		if (event->commit != (commit | place))
			continue;
		if (requests && is_at_once(event)) {
			scan_event(scan, request_of(requests, event, place));
			used = true;
		}
		scan_event(scan, event);
	}
	if (used) {
		*requests = *chunk;
		scan->requests = (struct gm_chunk *)((uint8_t *)requests + GM_CHUNK_BYTES);
	}
}

/* Sort the chunks by (thread slot, when they were opened). Returns the sorted list. */
static struct gm_pair *order_chunks(struct gm_copy *copy, struct gm_pair *chunks,
				    struct gm_pair *scratch, size_t *count)
{
	const uint8_t *base = copy->base + copy->header->regions[GM_REGION_EVENTS].offset;
	struct gm_pair *order;
	size_t used = 0;

	for (size_t c = 0; c < *count; c++) {
		const struct gm_chunk *chunk = (const void *)(base + c * GM_CHUNK_BYTES);

		if (chunk->generation)
			chunks[used++] = (struct gm_pair){ chunk->first_tsc, (uintptr_t)chunk };
	}
	order = gm_pairs_sort(chunks, scratch, used);
	for (size_t c = 0; c < used; c++)
		order[c].key = ((const struct gm_chunk *)order[c].value)->slot;
	*count = used;
	return gm_pairs_sort(order, order == chunks ? scratch : chunks, used);
}

/* Find complete operations by the tables, because their events may be dropped or never written. */
static void scan_tables(struct scan *scan)
{
	const struct gm_copy *copy = scan->copy;
	const struct gm_block *block = (const void *)
		(copy->base + copy->header->regions[GM_REGION_BLOCKS].offset);

	for (size_t i = copy->copied[GM_REGION_BLOCKS] / sizeof(*block); i > 1; i--)
		saw_op(scan, block[i - 1].op);
}

/* Treat this operation as incomplete, even if a record seen later names it. */
static void forget_flight(struct scan *scan, uint64_t op)
{
	int16_t *flight = &scan->flight_of[op >> GM_OP_SLOT_SHIFT];

	if (*flight >= 0 && scan->copy->flights[*flight].op == op)
		*flight = -1;
}

static int begin(struct scan *scan, struct gm_copy *copy)
{
	memset(scan, 0, sizeof(*scan));
	scan->copy = copy;
	scan->undone_of = gm_scratch_get(&copy->scratch, GM_MAX_THREADS * (sizeof(*scan->flight_of) +
					sizeof(*scan->undone_of)) + copy->flight_count + 1);
	if (!scan->undone_of)
		return -ENOMEM;
	scan->flight_of = (int16_t *)(scan->undone_of + GM_MAX_THREADS);
	scan->complete = (bool *)(scan->flight_of + GM_MAX_THREADS);
	memset(scan->flight_of, 0xff, GM_MAX_THREADS * sizeof(*scan->flight_of));
	for (size_t i = 0; i < copy->flight_count; i++) {
		uint64_t slot = copy->flights[i].op >> GM_OP_SLOT_SHIFT;

		if (slot < GM_MAX_THREADS)
			scan->flight_of[slot] = (int16_t)i;
	}
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		scan->undone_op[d] = domain ? domain->undo_op : 0;
		if (!scan->undone_op[d])
			continue;
		scan->any_undone = true;
		/* An operation that was taken back is not complete, even if an unused record still names it. */
		if (scan->undone_op[d] >> GM_OP_SLOT_SHIFT < GM_MAX_THREADS)
			forget_flight(scan, scan->undone_op[d]);
	}
	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_THREADS); i++) {
		uint64_t op = gm_copy_thread(copy, i)->pool_op;

		if (!op || op >> GM_OP_SLOT_SHIFT != i || i >= GM_MAX_THREADS)
			continue;
		scan->any_undone = true;
		scan->undone_of[i] = op;
	}
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++) {
		uint64_t op = gm_copy_tcache(copy, i)->undo_op;

		if (!op || op >> GM_OP_SLOT_SHIFT >= GM_MAX_THREADS)
			continue;
		scan->any_undone = true;
		scan->undone_of[op >> GM_OP_SLOT_SHIFT] = op;
		forget_flight(scan, op);
	}
	return 0;
}

/* Drop the flights that are over: their effect is recorded and was not taken back. */
static void drop_complete_flights(struct scan *scan)
{
	struct gm_copy *copy = scan->copy;
	size_t kept = 0;

	for (size_t i = 0; i < copy->flight_count; i++)
		if (!scan->complete[i])
			copy->flights[kept++] = copy->flights[i];
	copy->flight_count = kept;
}

/* Count the events that were written but are missing here. Without a horizon no event was ever dropped: a
 * difference is then an event that a dying writer had counted but not committed. */
static void count_dropped(struct scan *scan)
{
	struct gm_copy *copy = scan->copy;
	const struct gm_thread *thread = (const void *)
		(copy->base + copy->header->regions[GM_REGION_THREADS].offset);
	uint64_t written = 0, there = 0, sum = 0;

	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_THREADS); i++)
		written += thread[i].events;
	for (unsigned int d = 0; d < GM_DOMAINS && copy->header->horizon; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);
		uint64_t found = scan->kept[d] + scan->undone[d];

		copy->dropped[d] = scan->old[d];
		if (domain && gm_less_u64(domain->counts.events, found) > scan->old[d])
			copy->dropped[d] = domain->counts.events - found;
		there += found;
		sum += copy->dropped[d];
	}
	if (copy->header->horizon && gm_less_u64(written, there) > sum)
		sum = written - there;
	copy->dropped_total = sum + copy->header->events_lost;
}

/* Keep only the newest @max events. Events of one stamp (one operation) stay together. */
static void trim(struct gm_copy *copy, uint64_t max)
{
	size_t first;

	if (copy->event_count <= max)
		return;
	first = copy->event_count - max;
	while (first < copy->event_count && first &&
	       copy->events[first]->tsc == copy->events[first - 1]->tsc)
		first++;
	for (size_t i = 0; i < first; i++)
		copy->dropped[copy->events[i]->domain]++;
	copy->dropped_total += first;
	copy->events += first;
	copy->event_count -= first;
}

static int collect(struct scan *scan)
{
	struct gm_copy *copy = scan->copy;
	const struct gm_frees *frees = &scan->frees;
	size_t chunks = copy->copied[GM_REGION_EVENTS] / GM_CHUNK_BYTES;
	struct gm_pair *list = gm_scratch_get(&copy->scratch, (chunks + 1) * sizeof(*list));
	struct gm_pair *scratch = gm_scratch_get(&copy->scratch, (chunks + 1) * sizeof(*scratch));
	size_t at_once = 0;
	struct gm_pair *order;
	int r;

	if (!list || !scratch)
		return -ENOMEM;
	order = order_chunks(copy, list, scratch, &chunks);
	for (size_t c = 0; c < chunks; c++)
		at_once += has_at_once((const struct gm_chunk *)order[c].value);
	scan->requests = at_once ? gm_scratch_get(&copy->scratch, at_once * GM_CHUNK_BYTES) : NULL;
	scan->pairs = gm_scratch_get(&copy->scratch, (chunks + at_once + frees->count + 1) * GM_CHUNK_EVENTS *
				    sizeof(*scan->pairs));
	if ((at_once && !scan->requests) || !scan->pairs)
		return -ENOMEM;
	for (size_t c = 0; c < chunks; c++)
		scan_chunk(scan, (const struct gm_chunk *)order[c].value);
	gm_scratch_drop(&copy->scratch, list);
	gm_scratch_drop(&copy->scratch, scratch);
	scan_tables(scan);
	drop_complete_flights(scan);
	count_dropped(scan);
	r = gm_frees_complete(copy, &scan->frees);
	/* The program did not write the made events, so they count as neither kept nor dropped. Keep them even
	 * if their operation was taken back. */
	scan->any_undone = false;
	scan->requests = NULL;
	for (size_t c = 0; !r && c < frees->made_count; c++)
		scan_chunk(scan, (const void *)((const uint8_t *)frees->made + c * GM_CHUNK_BYTES));
	return r;
}

int gm_resolve_events(struct gm_copy *copy, uint64_t max_events)
{
	struct gm_pair *scratch, *order;
	struct scan scan;
	int r = begin(&scan, copy);

	if (!r)
		r = gm_frees_begin(copy, &scan.frees);
	if (!r)
		r = collect(&scan);
	if (r)
		return r;
	scratch = gm_scratch_get(&copy->scratch, (scan.count + 1) * sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	order = gm_pairs_sort(scan.pairs, scratch, scan.count);
	/* Write the list of pointers over the pairs. This is safe: a pointer is shorter than a pair, so
	 * writing never overtakes reading. */
	copy->events = (const struct gm_event **)(void *)order;
	for (size_t i = 0; i < scan.count; i++)
		copy->events[i] = (const struct gm_event *)order[i].value;
	copy->event_count = scan.count;
	if (scan.count)
		copy->end_tsc = copy->events[scan.count - 1]->tsc;
	gm_scratch_drop(&copy->scratch, order == scan.pairs ? scratch : scan.pairs);
	gm_scratch_drop(&copy->scratch, scan.undone_of);
	trim(copy, max_events);
	if (copy->header->history_newest)
		trim(copy, copy->header->history_newest);
	return 0;
}
