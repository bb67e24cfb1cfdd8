/*
 * memory.h - between the files that own device memory: tree, arenas, address ranges, allocations.
 */
#ifndef FC_MEMORY_H
#define FC_MEMORY_H

#include "test/fakecuda/state.h"

/* ---- phys.c: a device's arena ---- */

/* fc_arena_alloc - @size bytes of @dev with an address, charged: from 2 MiB on in chunks of its
 * own, below that 512 bytes apart in a chunk shared within @ctx. *ret_host: its contents. */
CUresult fc_arena_alloc(struct fc_device *dev, struct fc_ctx *ctx, size_t size, uint64_t *ret_ptr,
			uint8_t **ret_host);
void fc_arena_free(struct fc_device *dev, uint64_t ptr, size_t size);

/* fc_arena_segment - like fc_arena_alloc, always whole chunks. Freed by fc_arena_free. */
CUresult fc_arena_segment(struct fc_device *dev, size_t size, uint64_t *ret_ptr,
			  uint8_t **ret_host);

/* fc_arena_extend - the @size bytes from @ptr on, if they are free. */
CUresult fc_arena_extend(struct fc_device *dev, uint64_t ptr, size_t size);

/* fc_arena_span - contents of @ptr in any arena. True: it lies in one; *ret_p is NULL where nothing
 * is behind it. */
bool fc_arena_span(uint64_t ptr, size_t n, uint8_t **ret_p, size_t *ret_run);

/* fc_arena_start - make @dev's arena if it has none yet. */
CUresult fc_arena_start(struct fc_device *dev);
int fc_arena_check(void);

/* ---- others.c ---- */

/* fc_device_others - what other processes have of @dev. fc_device_charge - this one has @bytes more of it. */
size_t fc_device_others(const struct fc_device *dev);
void fc_device_charge(struct fc_device *dev, ssize_t bytes);

/* fc_device_fits - has @dev so many bytes left? */
bool fc_device_fits(const struct fc_device *dev, size_t bytes);

/* ---- share.c ---- */

/* fc_phys_shared - like fc_phys_new, with a memfd of its own; @dev NULL: host memory, not charged.
 * fc_phys_import - the memory behind such a memfd (@fd stays the caller's). */
CUresult fc_phys_shared(struct fc_device *dev, size_t size, struct fc_phys **ret_phys);
CUresult fc_phys_import(int fd, struct fc_phys **ret_phys);
/* A program may close descriptors that are not its own, and open others under their numbers.
 * fc_fd_inode - what @fd is; 0: nothing. fc_fd_close - close it if it still is @inode. */
uint64_t fc_fd_inode(int fd);
void fc_fd_close(int fd, uint64_t inode);

/* fc_phys_export - a new descriptor of it, or -1. fc_phys_is_fd - is @fd one of it?
 * fc_phys_map_at - its first @size bytes at @va, for the program itself. 0 or -1. */
int fc_phys_export(const struct fc_phys *p);
bool fc_phys_is_fd(const struct fc_phys *p, int fd);
int fc_phys_map_at(const struct fc_phys *p, uint64_t va, size_t size);

/* ---- region.c: addresses without memory ---- */

/* fc_region_take - @size (a multiple of 4 KiB) at a multiple of @align, at @wanted if that is
 * free. 0: none left. @low: below 4 GiB. fc_region_give - back again; it must be one taken. */
uint64_t fc_region_take(size_t size, size_t align, uint64_t wanted, bool low);
void fc_region_give(uint64_t va);
/* fc_region_has - is @ptr in a region (and so never the program's own memory)? */
bool fc_region_has(uint64_t ptr);
/* fc_region_find - the taken range around @ptr. False: none. */
bool fc_region_find(uint64_t ptr, uint64_t *ret_base, size_t *ret_size);
void fc_region_reset(void);

/* ---- mem.c ---- */

/* fc_mem_new - an allocation record, entered, accounted (@accounted: the kind's public one, -1 for
 * none). NULL: no memory for it. */
struct fc_alloc *fc_mem_new(enum fc_alloc_kind kind, struct fc_device *dev, struct fc_ctx *ctx,
			    uint64_t base, size_t size, uint8_t *host);
/* fc_mem_drop - out of the tree and of the accounts, its memory given back, by kind. No wait. */
void fc_mem_drop(struct fc_alloc *a);
/* fc_mem_is_base - the allocation that starts at @ptr and is not being freed, or NULL. */
struct fc_alloc *fc_mem_is_base(uint64_t ptr);

/* fc_mem_free_waiting - wait for all work of its context, then free it. A failure of that work is
 * returned, and the memory stays. */
CUresult fc_mem_free_waiting(struct fc_alloc *a, const char *why);

/* fc_mem_free_async - cuMemFreeAsync of memory that no pool gave. */
CUresult fc_mem_free_async(struct fc_alloc *a, struct fc_stream *s);

/* How kinds made elsewhere give back what they hold, called by fc_mem_drop. */
void fc_pool_block_drop(struct fc_alloc *a);
void fc_ipc_drop(struct fc_alloc *a);
void fc_vmm_mapping_drop(struct fc_alloc *a);

/* fc_vmm_handle_types - as what the memory behind a mapping may be exported. */
CUmemAllocationHandleType fc_vmm_handle_types(const struct fc_alloc *a);
void fc_external_drop(struct fc_alloc *a);

int fc_tree_check(void);

#endif
