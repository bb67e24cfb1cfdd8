/*
 * span.h - from any address inside cached memory to the block that covers it: O(1), without a lock.
 *
 * Addresses are cut into granules of 2 MiB. A granule's word names the block that covers its first
 * byte and, where blocks begin inside it, a page of 512-byte slots with a bitmap of beginnings.
 * Blocks are known by where they begin, free and used ones alike, so that handing a block out or
 * taking it back changes nothing here: only segments that come and go, splits and merges do.
 *
 * Writers hold the domain's lock (one writer per segment at a time). Readers hold nothing: the
 * answer was true at some moment of the call; who needs more looks at the block's record under the
 * lock. Memory is taken from @memory and kept for the life of the process; removed segments'
 * pages are used again. Thread context: any. Signal context: gm_span_find only. Fork: forgotten.
 */
#ifndef GM_ALLOCATOR_SPAN_H
#define GM_ALLOCATOR_SPAN_H

#include <stddef.h>
#include <stdint.h>

struct gm_span;

/* @memory: zeroed, never given back; NULL: none left. Returns NULL when there is none. */
struct gm_span *gm_span_new(void *(*memory)(void *arg, size_t bytes), void *arg);

/* A segment [@address, +@bytes) appears with one block; multiples of 512. 0 or -ENOMEM (nothing
 * changed). It reserves what its splits may need, so that gm_span_split cannot fail. */
int gm_span_add(struct gm_span *span, uint64_t address, uint64_t bytes, uint32_t block);
void gm_span_remove(struct gm_span *span, uint64_t address, uint64_t bytes);

/* A block begins at @address now; before, the block before it reached over it. */
void gm_span_split(struct gm_span *span, uint64_t address, uint32_t block);

/* No block begins at @address any more: @into, which begins before, reaches over it. @bytes: what
 * the vanished block took. */
void gm_span_merge(struct gm_span *span, uint64_t address, uint64_t bytes, uint32_t into);

/* The block that covers @address; 0: none of ours. */
uint32_t gm_span_find(const struct gm_span *span, uint64_t address);

#endif
