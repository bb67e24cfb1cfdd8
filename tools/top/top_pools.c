/*
 * top_pools.c - which blocks of the driver's are pieces of pools, by a journal's tables: see top.h. One thread.
 *
 * tools/read/level.c does the same for a snapshot, where the history is asked, too. What is live now and a
 * pool's is within the pieces that the pool holds now.
 */
#include <errno.h>
#include <stdlib.h>

#include "recorder/read/copy.h"
#include "tools/top/top.h"

static int by_start(const void *a, const void *b)
{
	const struct gm_top_piece *p = a, *q = b;

	if (p->device != q->device)
		return p->device < q->device ? -1 : 1;
	if (p->start != q->start)
		return p->start < q->start ? -1 : 1;
	return p->end < q->end ? -1 : p->end > q->end;
}

static bool is_piece(const struct gm_segment *segment)
{
	return segment && segment->domain >= GM_DOMAIN_POOLS && (segment->flags & GM_SEGMENT_HELD) &&
	       segment->size <= UINT64_MAX - segment->address;
}

int gm_top_pieces_open(struct gm_top_pieces *ret, const struct gm_copy *copy)
{
	size_t count = 0;

	*ret = (struct gm_top_pieces){ .count = 0 };
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_SEGMENTS); id++)
		count += is_piece(gm_copy_segment(copy, id));
	ret->list = calloc(count + 1, sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	for (uint32_t id = 1; id < gm_copy_items(copy, GM_REGION_SEGMENTS); id++) {
		const struct gm_segment *segment = gm_copy_segment(copy, id);
		const struct gm_domain *domain = is_piece(segment) ? gm_copy_domain(copy, segment->domain) : NULL;

		if (domain)
			ret->list[ret->count++] = (struct gm_top_piece){
				domain->pool.device, segment->address, segment->address + segment->size
			};
	}
	qsort(ret->list, ret->count, sizeof(*ret->list), by_start);
	return 0;
}

/* The last piece that begins at @block or before has all of it, or none has: pieces are whole blocks of the
 * driver's, and of those that begin at one address the longest comes last. */
bool gm_top_pieces_have(const struct gm_top_pieces *pieces, const struct gm_block *block)
{
	size_t low = 0, high = pieces->count;
	const struct gm_top_piece *piece;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		piece = &pieces->list[middle];
		if (piece->device != block->domain ? piece->device < block->domain : piece->start <= block->address)
			low = middle + 1;
		else
			high = middle;
	}
	piece = low ? &pieces->list[low - 1] : NULL;
	return piece && piece->device == block->domain && block->address < piece->end &&
	       piece->end - block->address >= block->requested;
}

void gm_top_pieces_close(struct gm_top_pieces *pieces)
{
	free(pieces->list);
}
