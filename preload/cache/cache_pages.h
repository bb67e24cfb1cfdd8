/*
 * cache_pages.h - memory of a pages heap (allocator/pages_heap.h): one reservation of addresses, and pages of the
 * driver's that are mapped where they are needed. For expandable_segments:True.
 *
 * A page is unmapped only when the host has seen the GPU past everything that was submitted before it was freed:
 * neither mapping nor unmapping is work of a stream. One event of every context tells that. It is recorded when memory
 * is needed or given back, and before a capture begins, never at a free. Only gm_cache_await waits for it, and that has
 * an end.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: the device's growth lock, unless a function says
 * otherwise.
 */
#ifndef GM_PRELOAD_CACHE_PAGES_H
#define GM_PRELOAD_CACHE_PAGES_H

#include "preload/cache/cache_heap.h"

/* Addresses on the device of @domain; NULL: its driver has no such memory, or there are none. Without a lock. */
struct gm_cache_pages *gm_cache_pages_new(uint8_t domain);
/* All memory, and the addresses, back to the driver. Nothing uses them any more. */
void gm_cache_pages_end(struct gm_cache_pages *pages);

/* For a pages heap: as struct gm_heap_ops has them, of a struct gm_cache_heap. */
int gm_cache_pages_reserve(void *heap, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes);
int gm_cache_pages_map(void *heap, uint64_t address, uint64_t bytes);
void gm_cache_pages_unmap(void *heap, uint64_t address, uint64_t bytes);
void gm_cache_pages_trim(void *heap);
uint64_t gm_cache_pages_moment(void *heap);	/* locked, as the next */
uint64_t gm_cache_pages_passed(void *heap);

/* Look which frees the GPU is past by now, and have it tell of the later ones. Never waits. No lock is needed. */
void gm_cache_pages_look(void);
/* A capture is about to begin: have the GPU tell of what was freed so far, while it still can. No lock held. */
void gm_cache_pages_capture_begins(void);
/* What is freed from now on has this moment or a later one. */
uint64_t gm_cache_pages_now(void);
/* Is something freed up to @moment that the GPU is not known to be past? 0: no; 1: yes; -EAGAIN: that is known only
 * after the end of a capture. A number that rises when some of it is. */
int gm_cache_pages_waits(uint64_t moment);
uint64_t gm_cache_pages_progress(void);

/* The context that a program finds the block in, which the driver knows none of; NULL: no block of a pages heap. */
CUcontext gm_cache_pages_context(uint32_t block);

/* Is @address in memory of a pages heap, handed out or not? */
bool gm_cache_pages_covers(CUdeviceptr address);

/* The device @peer may use what pages heaps of @domain have, and will have. No lock held. */
void gm_cache_pages_peer(uint8_t domain, uint8_t peer);

#endif
