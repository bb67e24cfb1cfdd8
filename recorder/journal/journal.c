/*
 * journal.c - the journal's file as memory: see journal.h.
 *
 * The recorder must never kill its host. SIGXFSZ: the file is never longer than RLIMIT_FSIZE. SIGBUS:
 * a page is touched only after MADV_POPULATE_WRITE (on older kernels fallocate) has granted it. The
 * memory limit of the cgroup: budget.c.
 */
#define _GNU_SOURCE
#include "recorder/journal/journal.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "recorder/journal/budget.h"
#include "recorder/journal/probe.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

#define STEP (64 * KIB)			/* growth in one step: some microseconds under a lock */
#define WHOLE_MOST (32 * MIB)		/* length of a journal that is fully backed from the start */
#define REVIEW_STEP (256 * KIB)
/* the reserve: memory backed beyond the present need (aside_of) */
#define ASIDE_LEAST (128 * KIB)		/* segments, blocks: at least 1,024 records each */
#define ASIDE_USAGE (16 * KIB)		/* usage: at least 256 rows */
#define ASIDE_MOST MIB			/* of each table at most */
#define GROWTH_MOST MIB			/* growth ahead of need: a thread alone takes 0.4 ms for it */
#define PART (64 * KIB)			/* the part of it that a thread takes at once */
#define PATIENCE 64u			/* requests refused between two attempts to grow */
#define AHEAD_WAIT_NS UINT64_C(10000000)	/* wait for the lock to grow ahead of need */

/* ---- mapping ---- */

/* Back @bytes at @at by memory. Returns 0 or -errno. On a full file system madvise fails with EFAULT, which
 * becomes -ENOSPC. Keeps the host's errno, because this runs inside its calls of the driver. Rounds @at down to
 * a page of the kernel, which may be larger than a page of the layout and may hold other areas, too. */
static int populate(uint8_t *at, uint64_t bytes)
{
	uint64_t before = (uintptr_t)at & ((uint64_t)gm_sys.page() - 1);
	int saved_errno = errno, error = 0;

	at -= before;
	bytes += before;
	for (int tries = 0; tries < 10; tries++) {
		error = gm_sys.advise(at, bytes, MADV_POPULATE_WRITE) < 0 ? errno : 0;
		if (error != EAGAIN && error != EINTR)
			break;
	}
	errno = saved_errno;
	return error == EFAULT ? -ENOSPC : -error;
}

/* Map the file, but not in forked children, which would write into their parent's journal. */
static int map_file(int fd, uint64_t bytes, uint8_t **ret_base)
{
	uint8_t *base = gm_map(bytes, MAP_SHARED, fd);
	int r;

	if (!base)
		return -errno;
	if (gm_sys.advise(base, bytes, MADV_DONTFORK) < 0) {
		r = -errno;
		gm_sys.unmap(base, bytes);
		return r;
	}
	gm_sys.advise(base, bytes, MADV_DONTDUMP);
	gm_sys.advise(base, bytes, MADV_NOHUGEPAGE);
	*ret_base = base;
	return 0;
}

/* Try to map a journal of at most @span bytes. */
static int map_within(int fd, uint64_t span, uint64_t history_events, bool whole,
		      struct gm_journal_map *map)
{
	int r = gm_plan_make(span, history_events, &map->plan);

	if (r < 0)
		return r;
	if (gm_sys.truncate(fd, (off_t)map->plan.file_bytes) < 0)
		return -errno;
	if (whole && gm_sys.allocate(fd, 0, 0, (off_t)map->plan.file_bytes) < 0)
		return -errno;
	r = map_file(fd, map->plan.file_bytes, &map->base);
	if (r < 0)
		return r;
	map->whole = whole;
	if (whole)
		return 0;
	r = populate(map->base, GM_HEADER_BYTES);
	if (r < 0)
		gm_sys.unmap(map->base, map->plan.file_bytes);
	return r;
}

int gm_journal_map(int fd, uint64_t budget_bytes, uint64_t history_events,
		   struct gm_journal_map *ret_map)
{
	uint64_t span = gm_min_u64(gm_budget_span(), UINT64_C(1) << 40);
	bool whole = false;
	int r = 0;

	memset(ret_map, 0, sizeof(*ret_map));
	for (int tries = 0; tries < 32; tries++) {
		r = map_within(fd, span, history_events, whole, ret_map);
		if (r == 0)
			return 0;
		if (r == -EINVAL && !whole) {
			/* Linux before 5.14 lacks MADV_POPULATE_WRITE: allocate the whole file. */
			whole = true;
			span = gm_min_u64(span, gm_min_u64(budget_bytes, WHOLE_MOST));
			continue;
		}
		/* Try half of the length if the host's address space, locked memory or file length is
		 * limited, or if the file system limits files or is nearly full. */
		if (r != -ENOMEM && r != -EAGAIN && r != -EFBIG && !(r == -ENOSPC && whole))
			return r;
		span = gm_min_u64(span, ret_map->plan.file_bytes) / 2;
	}
	return r;
}

static void describe(struct gm_header *header, const struct gm_journal_map *map)
{
	header->version = GM_FORMAT_VERSION;
	header->byte_order = GM_BYTE_ORDER;
	header->header_bytes = GM_HEADER_BYTES;
	header->region_count = GM_REGION_COUNT;
	header->file_bytes = map->plan.file_bytes;
	header->history_events = (uint64_t)map->plan.chunks * GM_CHUNK_EVENTS;
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		struct gm_region *region = &header->regions[r];

		region->offset = map->plan.offset[r];
		region->capacity = map->plan.capacity[r];
		region->item_bytes = gm_plan_item_bytes(r);
		gm_set(&region->populated, map->whole ? map->plan.capacity[r] : 0);
	}
}

int gm_journal_format(const struct gm_journal_map *map, uint64_t budget_bytes)
{
	struct gm_header *header = (struct gm_header *)(void *)map->base;
	const uint64_t *offset = map->plan.offset;

	describe(header, map);
	memcpy(gm_rec.layout, header->regions, sizeof(gm_rec.layout));
	gm_set(&gm_rec.lost, GM_LOST_NOT);
	gm_rec.base = map->base;
	gm_rec.bytes = map->plan.file_bytes;
	gm_rec.domains = (void *)(map->base + offset[GM_REGION_DOMAINS]);
	gm_rec.threads = (void *)(map->base + offset[GM_REGION_THREADS]);
	gm_rec.segments = (void *)(map->base + offset[GM_REGION_SEGMENTS]);
	gm_rec.blocks = (void *)(map->base + offset[GM_REGION_BLOCKS]);
	gm_rec.usage = (void *)(map->base + offset[GM_REGION_USAGE]);
	gm_rec.tcaches = (void *)(map->base + offset[GM_REGION_TCACHES]);
	gm_rec.lives = (void *)(map->base + offset[GM_REGION_LIVES]);
	gm_rec.sites = (void *)(map->base + offset[GM_REGION_SITES]);
	gm_rec.stack_area = map->base + offset[GM_REGION_STACKS];
	gm_set(&gm_rec.sites_full, 0);
	gm_rec.events = map->base + offset[GM_REGION_EVENTS];
	gm_rec.budget = gm_rec.budget_most = budget_bytes;
	gm_rec.populated = map->whole ? map->plan.file_bytes : GM_HEADER_BYTES;
	gm_set(&gm_rec.left, gm_budget_cgroup_left());
	gm_rec.limited = gm_get(&gm_rec.left) != UINT64_MAX;
	gm_rec.review_at = gm_rec.populated + REVIEW_STEP;
	gm_set(&gm_rec.review, 0);
	memset(gm_rec.patience, 0, sizeof(gm_rec.patience));
	memset(gm_rec.aside, 0, sizeof(gm_rec.aside));
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		/* Back small regions, and regions that fill in no order, as a whole. */
		bool all = r == GM_REGION_DOMAINS || r == GM_REGION_FAILURES ||
			   r == GM_REGION_SETTINGS;
		uint64_t first = r == GM_REGION_DOMAINS ? GM_DOMAIN_POOLS * sizeof(struct gm_domain) :
				 all ? map->plan.capacity[r] : 1;
		int error;

		if (r == GM_REGION_EVENTS)	/* backed as events are written; may have no room at all */
			continue;
		error = gm_region_reserve_locked(header, r, first);
		if (error < 0)
			return error;
		/* Id 0 names no record, and neither does offset 0 in an area of varying records. */
		gm_set(&header->regions[r].used, all ? first :
		       gm_plan_item_bytes(r) ? gm_plan_item_bytes(r) : 8);
	}
	gm_set(&header->regions[GM_REGION_SETTINGS].used, 0);
	return 0;
}

/* ---- growth ---- */

/* May @region grow by @more? The history stops at half of the budget (but may always have a sixteenth),
 * interned areas stop at three quarters, so the tables are the last to find no memory. */
static bool affordable(enum gm_region_id id, const struct gm_region *region, uint64_t more)
{
	uint64_t after = gm_rec.populated + more;

	switch (id) {
	case GM_REGION_EVENTS:
		return after <= gm_rec.budget / 2 ||
		       (gm_get(&region->populated) + more <= gm_rec.budget / 16 &&
			after <= gm_rec.budget);
	case GM_REGION_STRINGS:
	case GM_REGION_STACKS:
	case GM_REGION_FRAMES:
	case GM_REGION_SITES:
		return after <= gm_rec.budget / 4 * 3;
	default:
		return after <= gm_rec.budget;
	}
}

void gm_helper_wake(struct gm_header *header)
{
	if (gm_get(&header->has_helper))
		gm_syscall(SYS_futex, (long)(uintptr_t)&header->request, FUTEX_WAKE, 1, 0, 0, 0);
}

/* Count memory that is now backed. If a control group has a limit, ask the helper thread from time to time
 * to see how much is left, because the program uses up the limit, too. */
static void grown(struct gm_header *header, uint64_t bytes)
{
	gm_rec.populated += bytes;
	if (!gm_rec.limited || gm_rec.populated < gm_rec.review_at)
		return;
	gm_rec.review_at = gm_rec.populated + REVIEW_STEP;
	gm_set(&gm_rec.review, 1);
	gm_helper_wake(header);
}

/* Does region @id hold the record of live memory? */
static bool is_table(enum gm_region_id id)
{
	return id == GM_REGION_SEGMENTS || id == GM_REGION_BLOCKS || id == GM_REGION_USAGE ||
	       id == GM_REGION_LIVES;
}

/* Return how many bytes of region @id to back beyond the @bytes that it needs now: as many again, within limits;
 * for the lines of pools their next level. The reserve exists because other programs may fill the file system, and
 * the record of live memory matters more than the history. */
static uint64_t aside_of(enum gm_region_id id, uint64_t bytes)
{
	uint64_t least = id == GM_REGION_USAGE ? ASIDE_USAGE : ASIDE_LEAST;
	uint64_t most = gm_min_u64(ASIDE_MOST, gm_rec.budget / 16);

	if (!is_table(id))
		return 0;
	if (id == GM_REGION_LIVES)
		return gm_min_u64(bytes << GM_LIVES_LEVEL_BITS, most);
	return gm_min_u64(bytes < least ? least : bytes, most);
}

/* Refill the reserve of a table that has room for @bytes but little more: by one step; for the lines of pools, which
 * grow seldom and by a level at a time, by the whole reserve. Keep within three quarters of the budget, because only
 * the tables use the last quarter. If the memory is refused, try again when half of the remaining reserve is used. */
static void set_aside_locked(struct gm_header *header, enum gm_region_id id, uint64_t bytes)
{
	struct gm_region *region = &header->regions[id];
	uint64_t populated = gm_get(&region->populated);
	uint64_t wanted = id == GM_REGION_LIVES ? bytes + aside_of(id, bytes) : populated + STEP;
	uint64_t upto = gm_min_u64(region->capacity, gm_whole_pages(wanted));

	if (upto <= populated || gm_rec.populated + (upto - populated) > gm_rec.budget / 4 * 3 ||
	    populate(gm_rec.base + region->offset + populated, upto - populated) < 0) {
		gm_rec.aside[id] = (populated - bytes) / 2;
		return;
	}
	grown(header, upto - populated);
	gm_set_release(&region->populated, upto);
	gm_rec.aside[id] = aside_of(id, bytes);
}

/* Return memory that was backed for later events to the file system, because a table needs room there. Returns false
 * when there was none. */
static bool give_way_locked(struct gm_header *header)
{
	struct gm_region *region = &header->regions[GM_REGION_EVENTS];
	uint64_t populated = gm_get(&region->populated), page = (uint64_t)gm_sys.page();
	uint8_t *at = gm_rec.base + region->offset;
	uint8_t *from = at + gm_get(&region->used) + page - 1, *end = at + populated;
	const struct gm_growth *g = &gm_rec.growth;

	/* Whole pages only, because other areas may share the first and the last page (populate). */
	from -= (uintptr_t)from % page;
	end -= (uintptr_t)end % page;
	if (from >= end || gm_get(&g->working) || g->next != g->upto)
		return false;
	gm_rec.patience[GM_REGION_EVENTS] = PATIENCE;
	gm_set_release(&region->populated, (uint64_t)(from - at));
	if (gm_sys.advise(from, (size_t)(end - from), MADV_REMOVE) < 0) {
		gm_set_release(&region->populated, populated);
		return false;
	}
	gm_rec.populated -= (uint64_t)(end - from);
	return true;
}

void gm_region_refuse(struct gm_header *header, enum gm_region_id id)
{
	bool first = !gm_recorder_is_short();

	gm_count(&header->regions[id].refused, 1);
	if (first && gm_recorder_is_short())
		gm_helper_wake(header);
}

bool gm_recorder_is_short(void)
{
	const struct gm_header *header = gm_header_get();

	return header && (gm_get(&header->regions[GM_REGION_SEGMENTS].refused) ||
			  gm_get(&header->regions[GM_REGION_BLOCKS].refused) ||
			  gm_get(&header->regions[GM_REGION_LIVES].refused));
}

/* Count a refusal, but not of a pool's next level: the lower levels may still have room, and lives.c counts the blocks
 * that find none. */
static void refuse(struct gm_header *header, enum gm_region_id id)
{
	if (id != GM_REGION_LIVES)
		gm_region_refuse(header, id);
}

int gm_region_reserve_locked(struct gm_header *header, enum gm_region_id id, uint64_t bytes)
{
	struct gm_region *region = &header->regions[id];
	uint64_t populated = gm_get(&region->populated), step = STEP, upto;
	int r = -ENOSPC;

	if (gm_likely(bytes + gm_rec.aside[id] <= populated))
		return 0;
	if (bytes <= populated) {
		set_aside_locked(header, id, bytes);
		return 0;
	}
	if (bytes > region->capacity)
		goto refuse;
	if (gm_rec.patience[id]) {
		gm_rec.patience[id]--;
		goto refuse;
	}
	/* Grow by a whole step. Grow by just the needed pages if a step is too much, or if other threads are growing
	 * the region and this thread did not wait for them. */
	if (id == GM_REGION_EVENTS && gm_get(&gm_rec.growth.working))
		step = 0;
	upto = gm_min_u64(region->capacity, gm_whole_pages(bytes > populated + step || populated == 0 ?
					     bytes : populated + step));
	if (!affordable(id, region, upto - populated))
		upto = gm_whole_pages(bytes);
	if (affordable(id, region, upto - populated)) {
		r = populate(gm_rec.base + region->offset + populated, upto - populated);
		if (r == -ENOSPC && is_table(id) && give_way_locked(header)) {
			upto = gm_whole_pages(bytes);
			r = populate(gm_rec.base + region->offset + populated, upto - populated);
		}
	}
	if (r < 0) {
		gm_rec.patience[id] = PATIENCE;
		goto refuse;
	}
	grown(header, upto - populated);
	gm_set_release(&region->populated, upto);
	gm_rec.aside[id] = aside_of(id, bytes);
	if (id == GM_REGION_LIVES && bytes + gm_rec.aside[id] > upto)
		set_aside_locked(header, id, bytes);
	return 0;
refuse:
	refuse(header, id);
	return r;
}

/* Take a part of the growth under way, or begin a new growth towards @bytes. Returns the length of the part; 0 when
 * there is nothing to grow, or other threads have all remaining parts. */
static uint64_t part_locked(struct gm_header *header, enum gm_region_id id, uint64_t bytes,
			    uint64_t *ret_from)
{
	const struct gm_region *region = &header->regions[id];
	struct gm_growth *g = &gm_rec.growth;

	if (g->next == g->upto && !gm_get(&g->working)) {
		g->from = g->next = g->upto = gm_get(&region->populated);
		bytes = gm_min_u64(gm_min_u64(bytes, region->capacity), g->from + GROWTH_MOST);
		if (bytes <= g->from || gm_rec.patience[id] ||
		    !affordable(id, region, bytes - g->from))
			return 0;
		g->upto = bytes;
		g->failed = false;
		grown(header, bytes - g->from);
	}
	*ret_from = g->next;
	bytes = gm_min_u64(g->upto - g->next, PART);
	g->next += bytes;
	gm_set(&g->working, gm_get(&g->working) + (bytes != 0));
	return bytes;
}

/* Finish a part; the last one publishes all parts. Threads that did not wait may have backed and counted some of the
 * same pages, so do not count those twice. */
static void part_done_locked(struct gm_region *region, enum gm_region_id id, bool failed)
{
	struct gm_growth *g = &gm_rec.growth;
	uint64_t populated = gm_get(&region->populated);

	g->failed = g->failed || failed;
	gm_set(&g->working, gm_get(&g->working) - 1);
	if (gm_get(&g->working) || g->next != g->upto)
		return;
	gm_rec.populated -= g->failed ? g->upto - g->from : gm_min_u64(populated, g->upto) - g->from;
	if (g->failed)
		gm_rec.patience[id] = PATIENCE;
	else if (populated < g->upto)
		gm_set_release(&region->populated, g->upto);
}

bool gm_region_reserve_ahead(struct gm_header *header, enum gm_region_id id, uint64_t bytes)
{
	struct gm_region *region = &header->regions[id];
	uint64_t from, part;
	bool failed;

	if (!gm_lock_within(&gm_rec.journal, AHEAD_WAIT_NS))
		return false;
	part = part_locked(header, id, bytes, &from);
	gm_unlock(&gm_rec.journal);
	if (!part)
		return false;
	failed = populate(gm_rec.base + region->offset + from, part) < 0;
	/* Wait for the full time of gm_lock: without part_done_locked this growth would never end, and none could
	 * follow. */
	if (!gm_lock(&gm_rec.journal))
		return false;
	part_done_locked(region, id, failed);
	gm_unlock(&gm_rec.journal);
	return !failed;
}

uint32_t gm_region_take_many(enum gm_region_id id, uint32_t count, bool nested)
{
	struct gm_header *header = gm_header_get();
	struct gm_region *region = &header->regions[id];
	uint64_t used, size = region->item_bytes * (uint64_t)count;
	uint32_t index = 0;

	if (!gm_lock_unless_nested(&gm_rec.journal, nested)) {
		refuse(header, id);
		return 0;
	}
	used = gm_get(&region->used);
	if (gm_region_reserve_locked(header, id, used + size) == 0) {
		index = (uint32_t)(used / region->item_bytes);
		gm_set_release(&region->used, used + size);
	}
	gm_unlock(&gm_rec.journal);
	return index;
}

/* ---- the loss of the file ---- */

/* Make private memory of the journal's size. Its regions count as full, so nothing new is recorded, and hold only
 * zeros, so nothing is found. */
static uint8_t *make_blank(void)
{
	uint8_t *blank = gm_map_private(gm_rec.bytes);
	struct gm_header *header = (struct gm_header *)(void *)blank;

	if (!blank)
		return NULL;
	madvise(blank, gm_rec.bytes, MADV_DONTFORK);
	madvise(blank, gm_rec.bytes, MADV_DONTDUMP);
	memcpy(header->regions, gm_rec.layout, sizeof(gm_rec.layout));
	header->region_count = GM_REGION_COUNT;
	header->file_bytes = gm_rec.bytes;
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		gm_set(&header->regions[r].used, header->regions[r].capacity);
		gm_set(&header->regions[r].populated, header->regions[r].capacity);
	}
	return blank;
}

bool gm_recorder_lose(const void *address)
{
	const uint8_t *at = address;
	uint32_t not_yet = GM_LOST_NOT;
	uint8_t *blank;

	if (!gm_header_get() || at < gm_rec.base || at >= gm_rec.base + gm_rec.bytes)
		return false;
	/* Another thread is replacing the mapping, or has done so: retry the access. */
	if (!atomic_compare_exchange_strong(&gm_rec.lost, &not_yet, GM_LOST_JUST_NOW))
		return true;
	blank = make_blank();
	/* mremap replaces the mapping at once, so no thread ever finds a hole. */
	if (!blank || mremap(blank, gm_rec.bytes, gm_rec.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			     gm_rec.base) == MAP_FAILED)
		return false;
	gm_set(&gm_rec.left_out, UINT32_MAX);	/* no events */
	gm_set_release(&gm_rec.lost, GM_LOST);
	return true;
}

bool gm_recorder_is_lost(void)
{
	return gm_get(&gm_rec.lost) != GM_LOST_NOT;
}
