/*
 * simulate.c - run a trace through the library's own heap: see replay.h. Several threads may each run one.
 */
#include "tools/replay/replay.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/pages_heap.h"
#include "tools/read/table.h"

#define IDEAL_BASE UINT64_C(0x7f0000000000)
#define IDEAL_BYTES (UINT64_C(1) << 46)	/* the largest segment, because addresses are finite even without a limit */
#define IDEAL_SLOTS (UINT64_C(1) << 61)
#define IDEAL_END IDEAL_SLOTS		/* end of rising addresses */
#define CHECK_EVERY 4096u
#define SLOTS 65536u			/* in an order other than rising each segment gets a slot of addresses */
#define SLOT_BYTES (UINT64_C(1) << 40)

struct simulation {
	const struct gm_trace *trace;
	struct gm_heap *heap;
	struct gm_undo undo;		/* empty: no change is undone here */
	struct gm_stats stats;
	struct gm_segment *segments;
	struct gm_block *blocks;
	struct gm_free_link *links;
	uint32_t segment_limit, block_limit;
	uint32_t segment_fresh, block_fresh, segment_unused, block_unused, first_segment;
	uint32_t *block_of;		/* by id of the trace */
	uint64_t *direct_of;		/* by id of the trace: bytes of memory that bypasses the cache */
	void **memory;			/* every allocation, to free at the end */
	size_t memory_count;
	struct gm_simulate_how how;
	uint64_t used, ideal_next;
	uint32_t slots;			/* used so far */
	size_t driver_next;		/* the line from which on to look for the driver's next recorded call */
	uint64_t live, held;		/* bytes requested; bytes of blocks, until their frees are complete */
	uint64_t spare;			/* bytes of pages that are mapped nowhere */
	uint64_t pages;			/* bytes of all pages */
	uint64_t pages_from;		/* the first address for pages */
	uint32_t *handles;		/* see reserve in struct gm_heap_ops */
	uint64_t operations, past;	/* @past: operations that a wait for the device has passed, whatever the lag */
	struct gm_simulation *result;
};

static void differ(struct simulation *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void differ(struct simulation *sim, const char *format, ...)
{
	va_list args;

	if (sim->result->difference[0])
		return;
	va_start(args, format);
	vsnprintf(sim->result->difference, sizeof(sim->result->difference), format, args);
	va_end(args);
}

/* ---- records ---- */

static uint32_t segment_new(void *arg)
{
	struct simulation *sim = arg;
	uint32_t id = sim->segment_unused;

	if (id)
		sim->segment_unused = sim->segments[id].next;
	else if (sim->segment_fresh < sim->segment_limit)
		id = sim->segment_fresh++;
	else
		return GM_NONE;
	memset(&sim->segments[id], 0, sizeof(sim->segments[id]));
	sim->segments[id].next = sim->first_segment;
	if (sim->first_segment)
		sim->segments[sim->first_segment].prev = id;
	sim->first_segment = id;
	return id;
}

static void segment_drop(void *arg, uint32_t id)
{
	struct simulation *sim = arg;
	struct gm_segment *s = &sim->segments[id];

	if (s->prev)
		sim->segments[s->prev].next = s->next;
	else
		sim->first_segment = s->next;
	if (s->next)
		sim->segments[s->next].prev = s->prev;
	s->next = sim->segment_unused;
	sim->segment_unused = id;
}

static uint32_t block_new(void *arg, bool goes_back)
{
	struct simulation *sim = arg;
	uint32_t id = sim->block_unused;

	(void)goes_back;
	if (id)
		sim->block_unused = sim->blocks[id].next;
	else if (sim->block_fresh < sim->block_limit)
		id = sim->block_fresh++;
	else
		return GM_NONE;
	memset(&sim->blocks[id], 0, sizeof(sim->blocks[id]));
	return id;
}

static void block_drop(void *arg, uint32_t id)
{
	struct simulation *sim = arg;

	sim->blocks[id].state = GM_BLOCK_UNUSED;
	sim->blocks[id].next = sim->block_unused;
	sim->block_unused = id;
}

static void *memory(void *arg, size_t bytes)
{
	struct simulation *sim = arg;
	void **place = gm_list_add(&sim->memory, &sim->memory_count, sizeof(*place));

	if (!place)
		return NULL;
	*place = calloc(1, bytes);
	return *place;
}

/* ---- events of the replay ---- */

static void tell(struct simulation *sim, const char *action, uint64_t address, uint64_t bytes, uint64_t stream)
{
	if (sim->how.into)
		gm_replayed_event(sim->how.into, sim->operations, action, address, bytes, stream);
}

static void tell_block(struct simulation *sim, const char *action, uint32_t block)
{
	tell(sim, action, sim->blocks[block].address, sim->blocks[block].size, sim->blocks[block].stream);
}

/* ---- the driver ---- */

/* Return the driver's next recorded call, which must be @op; if it is another, note a difference and return NULL. */
static const struct gm_trace_line *recorded_call(struct simulation *sim, enum gm_trace_op op)
{
	const struct gm_trace *trace = sim->trace;

	for (; sim->driver_next < trace->count; sim->driver_next++) {
		const struct gm_trace_line *line = &trace->lines[sim->driver_next];

		if (line->op == op) {
			sim->driver_next++;
			return line;
		}
		if (line->op == GM_TRACE_SEGMENT_ALLOC || line->op == GM_TRACE_SEGMENT_FREE) {
			differ(sim, "line %u: the recording %s a segment here, the replay does not",
			       line->number, line->op == GM_TRACE_SEGMENT_ALLOC ? "gets" : "frees");
			return NULL;
		}
	}
	differ(sim, "the replay asks the driver for more than was recorded");
	return NULL;
}

static void use(struct simulation *sim, uint64_t bytes)
{
	sim->used += bytes;
	if (sim->used > sim->result->peak_used_bytes)
		sim->result->peak_used_bytes = sim->used;
}

/* Return the address that the ideal device gives to a segment. */
static uint64_t ideal_address(struct simulation *sim, uint64_t bytes)
{
	uint32_t slot = sim->slots;
	uint64_t address = sim->ideal_next;

	if (!sim->how.order || bytes > SLOT_BYTES || slot == SLOTS) {
		sim->ideal_next += bytes;
		return address;
	}
	sim->slots++;
	slot = sim->how.order == 1 ? SLOTS - 1 - slot
				   : (slot * (2 * 7919 * sim->how.order + 1)) % SLOTS;
	return IDEAL_SLOTS + slot * SLOT_BYTES;
}

static int driver_alloc(void *arg, uint64_t bytes, uint64_t stream, uint64_t *ret_address)
{
	struct simulation *sim = arg;
	const struct gm_trace_line *line;

	if (!sim->how.follow) {
		if (bytes > IDEAL_BYTES || bytes > sim->how.capacity || sim->used > sim->how.capacity - bytes ||
		    bytes > IDEAL_END - sim->ideal_next)
			return -ENOMEM;
		use(sim, bytes);
		*ret_address = ideal_address(sim, bytes);
		tell(sim, "segment_alloc", *ret_address, bytes, stream);
		return 0;
	}
	line = recorded_call(sim, GM_TRACE_SEGMENT_ALLOC);
	if (!line)
		return -ECANCELED;
	if (line->bytes != bytes || line->stream != stream) {
		differ(sim, "line %u: a segment of %llu bytes for stream %llu was recorded, the "
		       "replay wants %llu for %llu", line->number, (unsigned long long)line->bytes,
		       (unsigned long long)line->stream, (unsigned long long)bytes,
		       (unsigned long long)stream);
		return -ECANCELED;
	}
	*ret_address = line->address;
	return 0;
}

static void driver_free(void *arg, uint64_t address, uint64_t bytes, uint64_t stream)
{
	struct simulation *sim = arg;
	const struct gm_trace_line *line;

	if (!sim->how.follow) {
		sim->used -= bytes;
		tell(sim, "segment_free", address, bytes, stream);
		return;
	}
	line = recorded_call(sim, GM_TRACE_SEGMENT_FREE);
	if (line && (line->address != address || line->bytes != bytes))
		differ(sim, "line %u: the segment at %llx was freed, the replay frees %llx",
		       line->number, (unsigned long long)line->address,
		       (unsigned long long)address);
}

/* The pages heap gets any amount of addresses, and pages, each one handle, as long as the device has memory. */
static int reserve(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes, const uint32_t **ret_handles)
{
	struct simulation *sim = arg;

	sim->handles = memory(sim, bytes / GM_HEAP_PAGE * sizeof(*sim->handles));
	if (!sim->handles)
		return -ENOMEM;
	*ret_handles = sim->handles;
	*ret_address = sim->pages_from = sim->ideal_next;
	*ret_bytes = bytes;
	sim->ideal_next += bytes;
	return 0;
}

static int map_pages(void *arg, uint64_t address, uint64_t bytes)
{
	struct simulation *sim = arg;
	uint64_t fresh = bytes > sim->spare ? bytes - sim->spare : 0;

	if (fresh > sim->how.capacity || sim->used > sim->how.capacity - fresh)
		return -ENOMEM;
	use(sim, fresh);
	sim->pages += fresh;
	if (sim->pages > sim->result->peak_pages_bytes)
		sim->result->peak_pages_bytes = sim->pages;
	sim->spare -= bytes - fresh;
	for (uint64_t at = 0; at < bytes; at += GM_HEAP_PAGE)
		sim->handles[(address - sim->pages_from + at) / GM_HEAP_PAGE] = 1;
	return 0;
}

static void unmap_pages(void *arg, uint64_t address, uint64_t bytes)
{
	struct simulation *sim = arg;

	(void)address;
	sim->spare += bytes;
}

static void trim_pages(void *arg)
{
	struct simulation *sim = arg;

	sim->used -= sim->spare;
	sim->pages -= sim->spare;
	sim->spare = 0;
}

static uint64_t point(void *arg)
{
	return ((struct simulation *)arg)->operations;
}

/* Return the operation that the device has passed: @lag operations ago or, if later, that of the last wait for the
 * device. */
static uint64_t passed(void *arg, uint64_t stream)
{
	const struct simulation *sim = arg;
	uint64_t past = sim->operations > sim->how.lag ? sim->operations - sim->how.lag : 0;

	(void)stream;
	return past > sim->past ? past : sim->past;
}

static void synchronize(void *arg)
{
	struct simulation *sim = arg;

	sim->past = sim->operations;
}

/* ---- the run ---- */

static void refuse(struct simulation *sim, uint64_t bytes, uint64_t stream)
{
	tell(sim, "oom", 0, bytes, stream);
	if (!sim->result->failed++)
		sim->result->failed_bytes = bytes;
}

static void allocate(struct simulation *sim, const struct gm_trace_line *line)
{
	struct gm_heap_request request = { line->bytes, line->stream, false };
	uint32_t id = GM_NONE;
	int r;

	if (!line->bytes)
		return;			/* a null pointer: no heap is asked */
	r = gm_heap_alloc(sim->heap, &request, &id);
	sim->result->allocations++;
	if (r == -ENOMEM || (r && !sim->how.follow)) {	/* also a request above the heap's limit */
		refuse(sim, line->bytes, line->stream);
		sim->result->missed++;
		if (sim->how.follow && line->address)
			differ(sim, "line %u: the replay runs out of memory, the recording did not",
			       line->number);
		return;
	}
	if (r) {
		differ(sim, "line %u: %s", line->number, strerror(-r));
		return;
	}
	sim->block_of[line->id] = id;
	tell_block(sim, "alloc", id);
	sim->live += line->bytes;
	if (sim->live > sim->result->peak_live_bytes)
		sim->result->peak_live_bytes = sim->live;
	sim->held += sim->blocks[id].size;
	if (sim->held > sim->result->peak_held_bytes)
		sim->result->peak_held_bytes = sim->held;
	if (sim->how.follow && sim->blocks[id].address != line->address)
		differ(sim, "line %u: allocation of %llu bytes at %llx, recorded at %llx",
		       line->number, (unsigned long long)line->bytes,
		       (unsigned long long)sim->blocks[id].address,
		       (unsigned long long)line->address);
}

/* Try a request that was refused when it was recorded, and free it at once, because nobody knows how long it would have
 * lived. */
static void attempt(struct simulation *sim, const struct gm_trace_line *line)
{
	struct gm_heap_request request = { line->bytes, line->stream, false };
	uint32_t id = GM_NONE;

	/* Without any limit it is always served, which tells nothing; it must not count in the peak either. */
	if (!line->bytes || (sim->how.capacity == GM_HEAP_UNLIMITED && sim->heap->config.limit == GM_HEAP_UNLIMITED))
		return;
	if (gm_heap_alloc(sim->heap, &request, &id)) {
		refuse(sim, line->bytes, line->stream);
		return;
	}
	gm_heap_free_requested(sim->heap, id);
	gm_heap_free_completed(sim->heap, id);
}

/* Allocate memory that bypasses the cache. If the device has not enough, empty the cache first. */
static void take_directly(struct simulation *sim, const struct gm_trace_line *line)
{
	uint64_t freed;

	if (line->bytes > sim->how.capacity || sim->used > sim->how.capacity - line->bytes)
		gm_heap_release(sim->heap, UINT64_MAX, true, &freed);
	if (line->bytes > sim->how.capacity || sim->used > sim->how.capacity - line->bytes) {
		refuse(sim, line->bytes, line->stream);
		sim->result->missed++;
		return;
	}
	use(sim, line->bytes);
	sim->direct_of[line->id] = line->bytes;
	sim->live += line->bytes;
	if (sim->live > sim->result->peak_live_bytes)
		sim->result->peak_live_bytes = sim->live;
}

static void request(struct simulation *sim, uint32_t block)
{
	if (!block || sim->blocks[block].state != GM_BLOCK_ACTIVE)
		return;
	sim->live -= sim->blocks[block].requested;
	tell_block(sim, "free_requested", block);
	gm_heap_free_requested(sim->heap, block);
}

static void complete(struct simulation *sim, uint32_t *block)
{
	if (*block && sim->blocks[*block].state == GM_BLOCK_PENDING) {
		sim->held -= sim->blocks[*block].size;
		tell_block(sim, "free_completed", *block);
		gm_heap_free_completed(sim->heap, *block);
	}
	*block = GM_NONE;
}

static void step(struct simulation *sim, const struct gm_trace_line *line)
{
	uint32_t *block = &sim->block_of[line->id];
	uint64_t freed;

	sim->operations++;
	switch (line->op) {
	case GM_TRACE_ALLOC:
		allocate(sim, line);
		break;
	case GM_TRACE_REQUEST:
		request(sim, *block);
		break;
	case GM_TRACE_COMPLETE:
		complete(sim, block);
		break;
	case GM_TRACE_FREE:
		request(sim, *block);
		complete(sim, block);
		break;
	case GM_TRACE_EMPTY:
		gm_heap_release(sim->heap, UINT64_MAX, true, &freed);
		break;
	case GM_TRACE_REFUSED:
		attempt(sim, line);
		break;
	case GM_TRACE_DIRECT:
		take_directly(sim, line);
		break;
	case GM_TRACE_DIRECT_FREE:
		sim->used -= sim->direct_of[line->id];
		sim->live -= sim->direct_of[line->id];
		sim->direct_of[line->id] = 0;
		break;
	default:
		break;
	}
}

static int prepare(struct simulation *sim, const struct gm_heap_config *config,
		   const struct gm_heap_ops *ops)
{
	struct gm_heap_setup setup = {
		.config = config, .ops = ops, .undo = &sim->undo, .stats = &sim->stats,
		.memory = memory, .memory_arg = sim,
	};
	size_t ids = (size_t)sim->trace->ids + 1;

	/* Each allocation makes at most one segment and two blocks. In the pages heap free addresses are also cut where
	 * their memory ends. */
	sim->segment_limit = (uint32_t)ids + 1;
	sim->block_limit = config->class == &gm_pages_class ? 8 * (uint32_t)ids + 1024 : 2 * (uint32_t)ids + 2;
	sim->segment_fresh = sim->block_fresh = 1;
	sim->segments = memory(sim, sim->segment_limit * sizeof(*sim->segments));
	sim->blocks = memory(sim, sim->block_limit * sizeof(*sim->blocks));
	sim->links = memory(sim, sim->block_limit * sizeof(*sim->links));
	sim->block_of = memory(sim, ids * sizeof(*sim->block_of));
	sim->direct_of = memory(sim, ids * sizeof(*sim->direct_of));
	if (!sim->segments || !sim->blocks || !sim->links || !sim->block_of || !sim->direct_of)
		return -ENOMEM;
	setup.segments = sim->segments;
	setup.blocks = sim->blocks;
	setup.links = sim->links;
	if (sim->how.check) {		/* only the check reads the page map */
		setup.map = gm_page_map_new(memory, sim);
		if (!setup.map)
			return -ENOMEM;
	}
	sim->heap = gm_heap_new(&setup);
	return sim->heap ? 0 : -ENOMEM;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int gm_simulate(const struct gm_trace *trace, const struct gm_heap_config *config,
		const struct gm_simulate_how *how, struct gm_simulation *ret)
{
	struct simulation sim = { .trace = trace, .how = *how, .ideal_next = IDEAL_BASE, .result = ret };
	const struct gm_heap_ops ops = {
		.segment_new = segment_new, .segment_drop = segment_drop, .block_new = block_new,
		.block_drop = block_drop, .driver_alloc = driver_alloc, .driver_free = driver_free,
		.reserve = reserve, .map = map_pages, .unmap = unmap_pages, .trim = trim_pages,
		.point = point, .passed = passed, .synchronize = synchronize, .arg = &sim,
	};
	int r;

	memset(ret, 0, sizeof(*ret));
	/* Let large tables be fresh pages from the kernel each time; calloc need not clear these. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	if (trace->ids >= UINT32_MAX / 8 - 256)
		return -E2BIG;
	r = prepare(&sim, config, &ops);
	ret->ns = now_ns();
	for (size_t i = 0; !r && i < trace->count && !ret->difference[0]; i++) {
		step(&sim, &trace->lines[i]);
		if (how->check && (i % CHECK_EVERY == 0 || i == trace->count - 1))
			ret->violations += how->check(sim.heap, sim.first_segment);
	}
	ret->ns = now_ns() - ret->ns;
	ret->operations = sim.operations;
	if (!r && how->into)
		gm_replayed_heap(how->into, sim.heap, sim.first_segment);
	if (!r) {
		ret->stats = sim.stats;
		ret->pages_moved = config->class == &gm_pages_class ? gm_pages(sim.heap)->moved : 0;
	}
	for (size_t i = 0; i < sim.memory_count; i++)
		free(sim.memory[i]);
	free(sim.memory);
	return r;
}
