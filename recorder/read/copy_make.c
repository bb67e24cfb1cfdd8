/*
 * copy_make.c - copy a journal from its file; and the validation with which every copy begins.
 *
 * The writer may be alive. The tables are copied between two readings of the words that change with every
 * operation (operation and event counters, undo areas); if both readings agree, the copy shows one
 * moment. The append-only areas come last, so that they hold all records to which tables and events
 * refer. Sizes are checked before anything is mapped. Holes of the file cost nothing. Thread context: one
 * thread for each copy. May block in pread.
 */
#define _GNU_SOURCE
#include "recorder/read/copy_internal.h"
#include "recorder/journal/journal.h"
#include "recorder/journal/sys.h"
#include "recorder/modules/names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STABLE_TRIES 4
#define DOMAIN_MOST UINT64_C(65536)	/* bytes: later versions may add members at the end of a domain */
#define EVENTS_AT_ONCE (UINT64_C(1) << 20)
#define READ_MOST 64u		/* bytes read for each byte on the disk, because some files are compressed */

#define REFUSE(copy, ...) \
	(snprintf((copy)->error, sizeof((copy)->error), __VA_ARGS__), -EBADMSG)

uint64_t gm_copy_readable(const struct gm_region *region)
{
	uint64_t n = gm_min_u64(region->capacity,
				__atomic_load_n((const uint64_t *)&region->used, __ATOMIC_ACQUIRE));

	n = gm_min_u64(n, __atomic_load_n((const uint64_t *)&region->populated, __ATOMIC_ACQUIRE));
	return region->item_bytes ? n - n % region->item_bytes : n & ~UINT64_C(7);
}

static uint64_t most(unsigned int r)
{
	return r == GM_REGION_DOMAINS ? GM_DOMAINS * DOMAIN_MOST : gm_plan_most(r);
}

static int validate_region(struct gm_copy *copy, unsigned int r, uint64_t file_bytes)
{
	const struct gm_region *region = &copy->header->regions[r];
	uint32_t item = region->item_bytes;

	if (region->offset % 4096 || region->offset < GM_HEADER_BYTES ||
	    region->offset > file_bytes || region->capacity > file_bytes - region->offset)
		return REFUSE(copy, "damaged: the area '%s' lies outside the file",
			      gm_region_name(r));
	if (r == GM_REGION_DOMAINS &&
	    (item < sizeof(struct gm_domain) || item > DOMAIN_MOST || item % _Alignof(struct gm_domain)))
		return REFUSE(copy, "damaged: records of %u bytes in 'domains'", item);
	if (r != GM_REGION_DOMAINS && item != gm_plan_item_bytes(r))
		return REFUSE(copy, "damaged: records of %u bytes in '%s'", item, gm_region_name(r));
	if (region->capacity > most(r))
		return REFUSE(copy, "damaged: %llu bytes for '%s' are more than any journal has",
			      (unsigned long long)region->capacity, gm_region_name(r));
	for (unsigned int other = 0; other < r; other++) {
		const struct gm_region *b = &copy->header->regions[other];

		if (region->offset < b->offset + b->capacity &&
		    b->offset < region->offset + region->capacity)
			return REFUSE(copy, "damaged: the areas '%s' and '%s' overlap",
				      gm_region_name(other), gm_region_name(r));
	}
	return 0;
}

uint64_t gm_copy_longest(void)
{
	uint64_t longest = GM_HEADER_BYTES;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		longest += most(r);
	return longest;
}

int gm_copy_validate(struct gm_copy *copy, uint64_t file_bytes)
{
	const struct gm_header *header = copy->header;

	if (header->magic != GM_MAGIC)
		return REFUSE(copy, "not a journal of gpumem");
	if (header->byte_order != GM_BYTE_ORDER)
		return REFUSE(copy, "a journal from a machine of another byte order");
	if (header->version != GM_FORMAT_VERSION)
		return REFUSE(copy, "a journal of format %u; this gpumem reads format %u",
			      header->version, GM_FORMAT_VERSION);
	if (header->header_bytes != GM_HEADER_BYTES || header->region_count != GM_REGION_COUNT)
		return REFUSE(copy, "damaged: its header describes another layout");
	if (file_bytes > gm_copy_longest())
		return REFUSE(copy, "damaged: %llu bytes is no size of a journal",
			      (unsigned long long)file_bytes);
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		int error = validate_region(copy, r, file_bytes);

		if (error)
			return error;
	}
	return 0;
}

static int read_at(struct gm_copy *copy, int fd, uint64_t offset, void *into, uint64_t length)
{
	ssize_t n = gm_file_get(fd, into, length, offset);

	if (n < 0)
		return (int)n;
	return (uint64_t)n == length ? 0 : REFUSE(copy, "cut off: it ends at byte %llu",
						  (unsigned long long)offset + (uint64_t)n);
}

/* Find the first data in [@offset, @end) of the file: it lies in [@offset, @ret_stop). False: there is only
 * a hole. A file system without holes reports data everywhere. */
static bool next_data(int fd, uint64_t *offset, uint64_t end, uint64_t *ret_stop)
{
	off_t data = *offset < end ? lseek(fd, (off_t)*offset, SEEK_DATA) : (off_t)end;
	off_t hole;

	*ret_stop = end;
	if ((data < 0 && errno == ENXIO) || data >= (off_t)end)
		return false;
	if (data < 0)
		return true;
	*offset = (uint64_t)data;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole > data)
		*ret_stop = gm_min_u64(end, (uint64_t)hole);
	return true;
}

/* Check that @bytes more are in proportion to the file's bytes on the disk. Otherwise a huge hole of a file system
 * that does not report holes would be read. */
static int may_read(struct gm_copy *copy, uint64_t bytes)
{
	copy->held += bytes;
	if (copy->on_disk == UINT64_MAX || copy->held / READ_MOST <= copy->on_disk)
		return 0;
	return REFUSE(copy, "damaged: more than %llu bytes in use, and %llu on the disk",
		      (unsigned long long)copy->held, (unsigned long long)copy->on_disk);
}

/* Read a part of the file into the same place of the copy. Holes are skipped, because the copy is zero there.
 * This holds for a second reading, too, because a journal never gets new holes. */
static int read_sparse(struct gm_copy *copy, int fd, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length, stop;

	for (; next_data(fd, &offset, end, &stop); offset = stop) {
		int r = may_read(copy, stop - offset);

		if (!r)
			r = read_at(copy, fd, offset, copy->base + offset, stop - offset);
		if (r)
			return r;
	}
	return 0;
}

/* Remove chunks that were never used. Returns how many bytes the other chunks take. */
static uint64_t pack(uint8_t *at, uint64_t bytes)
{
	uint64_t kept = 0;

	for (uint64_t from = 0; from < bytes; from += GM_CHUNK_BYTES) {
		if (!((const struct gm_chunk *)(const void *)(at + from))->generation)
			continue;
		if (kept != from)
			memcpy(at + kept, at + from, GM_CHUNK_BYTES);
		kept += GM_CHUNK_BYTES;
	}
	return kept;
}

/* Read the chunks of events and put them one after the other, because their region may be thousands of times larger
 * than the chunks in it. A chunk does not depend on its place. */
static int read_events(struct gm_copy *copy, int fd)
{
	const struct gm_region *region = &copy->header->regions[GM_REGION_EVENTS];
	uint64_t offset = region->offset, end = offset + gm_copy_readable(region), stop, kept = 0;

	for (; next_data(fd, &offset, end, &stop); offset = stop) {
		uint64_t bytes, first = offset / GM_CHUNK_BYTES * GM_CHUNK_BYTES;
		int r;

		bytes = gm_min_u64(stop - first, EVENTS_AT_ONCE);
		bytes = (bytes + GM_CHUNK_BYTES - 1) / GM_CHUNK_BYTES * GM_CHUNK_BYTES;
		r = may_read(copy, bytes);
		if (!r)
			r = read_at(copy, fd, first, copy->base + region->offset + kept, bytes);
		if (r)
			return r;
		kept += pack(copy->base + region->offset + kept, bytes);
		stop = first + bytes;
	}
	copy->copied[GM_REGION_EVENTS] = kept;
	return 0;
}

static int read_regions(struct gm_copy *copy, int fd, const enum gm_region_id *list, size_t count)
{
	int r = 0;

	for (size_t i = 0; !r && i < count; i++) {
		const struct gm_region *region = &copy->header->regions[list[i]];

		copy->copied[list[i]] = gm_copy_readable(region);
		r = read_sparse(copy, fd, region->offset, copy->copied[list[i]]);
	}
	return r;
}

/* Read the header again. Its layout must not have changed, because every offset was checked against it. */
static int read_header(struct gm_copy *copy, int fd)
{
	int r = read_at(copy, fd, 0, copy->base, GM_HEADER_BYTES);

	for (unsigned int i = 0; !r && i < GM_REGION_COUNT; i++) {
		const struct gm_region *a = &copy->layout[i], *b = &copy->header->regions[i];

		if (a->offset != b->offset || a->capacity != b->capacity ||
		    a->item_bytes != b->item_bytes)
			r = REFUSE(copy, "damaged: its layout changes while it is read");
	}
	return r ? r : gm_copy_validate(copy, copy->bytes);
}

static uint64_t mixed(uint64_t sum, const void *from, size_t bytes)
{
	const uint64_t *words = from;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		sum = sum * 31 + words[i];
	return sum;
}

/* Return a sum over the words that change whenever a table changes. If the sum is the same before and after
 * copying, no table has changed in between. Statistics are part of it, because without history an operation
 * writes no event, and it has taken its number before it changes the tables. */
static uint64_t moving(const struct gm_copy *copy)
{
	uint64_t sum = copy->header->horizon;

	for (size_t i = 0; i < gm_copy_items(copy, GM_REGION_THREADS); i++) {
		const struct gm_thread *thread = (const struct gm_thread *)
			(copy->base + copy->header->regions[GM_REGION_THREADS].offset) + i;

		sum = sum * 31 + thread->operations;
		sum = sum * 31 + thread->events;
		sum = sum * 31 + thread->flight_op;
		sum = sum * 31 + thread->pool_op;
	}
	for (unsigned int d = 0; d < GM_DOMAINS; d++) {
		const struct gm_domain *domain = gm_copy_domain(copy, d);

		if (!domain)
			break;
		sum = sum * 31 + domain->undo_op;
		sum = sum * 31 + domain->undo_count;
		sum = sum * 31 + domain->counts.events;
		sum = mixed(sum, domain->live_bytes, sizeof(domain->live_bytes));
		sum = mixed(sum, &domain->stats, sizeof(domain->stats));
	}
	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_TCACHES); i++) {
		const struct gm_tcache_record *tcache = gm_copy_tcache(copy, i);

		sum = sum * 31 + tcache->undo_op;
		sum = sum * 31 + tcache->counts.events;
		sum = mixed(sum, tcache->tallies, sizeof(tcache->tallies));
	}
	return sum;
}

static int read_moving(struct gm_copy *copy, int fd, uint64_t *ret_sum)
{
	static const enum gm_region_id first[] = { GM_REGION_THREADS, GM_REGION_DOMAINS, GM_REGION_TCACHES };
	int r = read_header(copy, fd);

	if (!r)
		r = read_regions(copy, fd, first, 3);
	if (!r)
		*ret_sum = moving(copy);
	return r;
}

static int read_tables(struct gm_copy *copy, int fd)
{
	static const enum gm_region_id tables[] = {
		GM_REGION_SEGMENTS, GM_REGION_BLOCKS, GM_REGION_USAGE, GM_REGION_LIVES, GM_REGION_SITES
	};
	uint64_t before, after = 0;
	int r = read_moving(copy, fd, &before);

	for (unsigned int try = 0; !r && try < STABLE_TRIES; try++) {
		r = read_regions(copy, fd, tables, sizeof(tables) / sizeof(tables[0]));
		if (!r)
			r = read_moving(copy, fd, &after);
		copy->consistent = !r && before == after;
		if (copy->consistent)
			break;
		before = after;
	}
	return r;
}

/* Return how long the file must be to hold all bytes that its header says are in use. */
static uint64_t needed_bytes(const struct gm_header *header)
{
	uint64_t needed = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		uint64_t used = gm_copy_readable(&header->regions[r]);

		if (used && header->regions[r].offset + used > needed)
			needed = header->regions[r].offset + used;
	}
	return needed;
}

/* Read and check the header, then map memory for the whole copy. */
static int open_copy(struct gm_copy *copy, int fd)
{
	uint64_t file_bytes;
	struct stat st;
	int r;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return REFUSE(copy, "not a regular file");
	copy->on_disk = st.st_blocks ? (uint64_t)st.st_blocks * 512 : UINT64_MAX;
	if (st.st_size < (off_t)GM_HEADER_BYTES)
		return REFUSE(copy, st.st_size ? "not a journal of gpumem: only %lld bytes" :
			      "an empty file (%lld bytes)", (long long)st.st_size);
	r = gm_copy_map(copy, GM_HEADER_BYTES);
	if (r)
		return r;
	r = read_at(copy, fd, 0, copy->base, GM_HEADER_BYTES);
	file_bytes = copy->header->file_bytes;
	if (!r)
		r = gm_copy_validate(copy, file_bytes);
	if (!r && needed_bytes(copy->header) > (uint64_t)st.st_size)
		r = REFUSE(copy, "cut off: %lld of %llu bytes are there", (long long)st.st_size,
			   (unsigned long long)needed_bytes(copy->header));
	if (r)
		return r;
	memcpy(copy->layout, copy->header->regions, sizeof(copy->layout));
	munmap(copy->base, copy->bytes);
	return gm_copy_map(copy, file_bytes);
}

static int copy_file(struct gm_copy *copy, int fd, bool events)
{
	static const enum gm_region_id last[] = {
		GM_REGION_STACKS, GM_REGION_FRAMES, GM_REGION_MODULES, GM_REGION_SETTINGS,
		GM_REGION_FAILURES, GM_REGION_STRINGS
	};
	int r = open_copy(copy, fd);

	copy->cut_tsc = UINT64_MAX;
	if (!r)
		r = read_tables(copy, fd);
	if (!r && events)
		r = read_events(copy, fd);
	/* Read the horizon again, because it may have risen. Then read the areas to which the events refer:
	 * their records were published before the events. */
	if (!r)
		r = read_header(copy, fd);
	return r ? r : read_regions(copy, fd, last, sizeof(last) / sizeof(last[0]));
}

static int make_copy(struct gm_copy *copy, int fd, bool events)
{
	char error[sizeof(copy->error)];
	int r;

	memset(copy, 0, sizeof(*copy));
	r = copy_file(copy, fd, events);
	if (r) {
		if (!copy->error[0])
			snprintf(copy->error, sizeof(copy->error), "%s", strerror(-r));
		memcpy(error, copy->error, sizeof(error));
		gm_copy_free(copy);
		memcpy(copy->error, error, sizeof(error));
	}
	return r;
}

int gm_copy_from_file(struct gm_copy *copy, int fd)
{
	return make_copy(copy, fd, true);
}

int gm_copy_tables(struct gm_copy *copy, int fd)
{
	return make_copy(copy, fd, false);
}
