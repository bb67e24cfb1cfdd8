/*
 * check.c - every structural rule of the living journal, counted: for tests and debugging.
 *
 * The tables are checked in a journal copy, as those of any other journal are. Here is what only their
 * writer has: the chunk pool, and how far the regions have grown.
 * Thread context: any thread that holds no lock. Signal context: none.
 */
#include "recorder/read/copy.h"
#include "recorder/record/tables.h"

#define TRIES 10u			/* for a copy of one moment, on a busy machine */
#define INSIST(cond) do { if (!(cond)) bad++; } while (0)

static int check_tables(void)
{
	struct gm_copy copy = { .base = NULL };
	int bad = 1;

	for (unsigned int i = 0; i < TRIES && !copy.consistent; i++) {
		gm_copy_free(&copy);
		if (gm_copy_from_process(&copy) < 0)
			return 1;
	}
	if (copy.consistent && gm_copy_settle(&copy, UINT64_MAX) == 0)
		bad = gm_copy_check(&copy, NULL, NULL) + (copy.undone != 0);
	gm_copy_free(&copy);
	return bad;
}

static int check_pool_locked(const struct gm_header *header)
{
	const struct gm_chunk_pool *pool = &gm_rec.pool;
	uint32_t owned = 0, shared = gm_rec.shared_slot.chunk != NULL;
	int bad = 0;

	for (uint32_t i = 1; i < gm_rec.slots_used; i++)
		owned += gm_rec.slots[i].chunk != NULL;
	for (uint32_t i = 0; i < pool->closed_count; i++) {
		uint32_t index = pool->closed[(pool->closed_first + i) % pool->chunks];
		const struct gm_chunk *chunk = (const void *)(gm_rec.events +
							      (uint64_t)index * GM_CHUNK_BYTES);

		INSIST(index < pool->fresh);
		INSIST(gm_get(&chunk->state) == GM_CHUNK_CLOSED);
	}
	INSIST(owned == pool->owned);
	INSIST(owned + shared + pool->closed_count == pool->fresh);
	INSIST(pool->fresh <= pool->chunks);
	INSIST((uint64_t)pool->fresh * GM_CHUNK_BYTES ==
	       gm_get(&header->regions[GM_REGION_EVENTS].used));
	return bad;
}

static int check_regions_locked(const struct gm_header *header)
{
	uint64_t populated = GM_HEADER_BYTES;
	int bad = 0;

	for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
		const struct gm_region *region = &header->regions[r];

		INSIST(gm_get(&region->used) <= gm_get(&region->populated));
		INSIST(gm_get(&region->populated) <= region->capacity);
		INSIST(region->offset + region->capacity <= header->file_bytes);
		populated += gm_get(&region->populated);
	}
	INSIST(populated == gm_rec.populated);
	INSIST(gm_rec.populated <= gm_rec.budget);
	INSIST(!gm_get(&gm_rec.undo_overflows));
	return bad;
}

int gm_recorder_check(void)
{
	const struct gm_header *header = gm_header_get();
	int bad;

	if (!header)
		return 0;
	bad = check_tables();
	if (!gm_lock(&gm_rec.journal))
		return bad + 1;
	bad += check_pool_locked(header);
	bad += check_regions_locked(header);
	gm_unlock(&gm_rec.journal);
	return bad;
}
