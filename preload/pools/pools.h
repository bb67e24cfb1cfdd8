/*
 * pools.h - what the program hands out of the memory that it got: pools of libc10 (PyTorch), of NVTX's
 * memory extension, and of whoever calls gpumem_pool_* (gpumem.h).
 *
 *   pools.c        a pool's blocks and the pieces that it holds: what is told goes into the record
 *   held.c         the pieces, by address
 *   libc10.c       PyTorch's functions, defined here and passed on
 *   next_symbol.c  where the real ones are
 *
 * A pool holds whatever of the driver's memory it has handed a block out of: that piece is found, and
 * recorded, with the first block in it. It ends when the program gives it back, with what is
 * still handed out in it.
 *
 * Nothing here calls the driver, and no wait is without an end: those who tell hold locks of their own.
 * Thread context: any, while the library runs. Signal context: none. Lock: a pool's (GM_RANK_POOL), never
 * two.
 */
#ifndef GM_PRELOAD_POOLS_H
#define GM_PRELOAD_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/order/context.h"
#include "recorder/record/pools.h"

/* Can something be recorded now, in this process? */
bool gm_pools_recording(void);

/* The id of a pool's name, of which at most 256 bytes are kept; 0: it has none, or there is no room. */
uint32_t gm_pool_name_id(const char *name);

/* The pool of (@source, @device, @name, @key), made when it is new; @name: a string id. Returns its
 * domain; 0 when there is none. */
uint8_t gm_pool_open(enum gm_pool_source source, uint32_t device, uint32_t name, uint64_t key);

/* The domain of the first pool that has @name and @device, whatever its source; 0: none. */
uint8_t gm_pool_find(const char *name, uint32_t device);

/* [@address, +@size) is handed out, or taken back. @caller: __builtin_return_address(0) of whoever was
 * told. Returns 0; -ENOENT where nothing is handed out at @address; -ENOMEM, -ETIMEDOUT. All are
 * counted. */
int gm_pool_give(uint8_t domain, uint64_t address, uint64_t size, uint64_t stream, const void *caller);
int gm_pool_take(uint8_t domain, uint64_t address);

/* How long the block is, about, that is handed out at @address; 0: none is. */
uint64_t gm_pool_size_at(uint8_t domain, uint64_t address);

/* It has this name from now on, a string id. */
void gm_pool_name(uint8_t domain, uint64_t address, uint32_t name);

/* The device whose memory has @address; where none is known to have it, that which the thread worked on
 * last. */
uint8_t gm_pool_device_of(uint64_t address);

/* All that is handed out in [@address, +@size) is taken back. */
void gm_pool_take_all(uint8_t domain, uint64_t address, uint64_t size);

/* The library was told of a loaded object at @path: says, once and if option verbose wants it, that this
 * PyTorch tells nothing. Takes no lock and looks up no module. */
void gm_libc10_loaded(const char *path);

/* What a pool holds of a context that ends. */
extern const struct gm_context_watcher gm_pools_of_contexts GM_HIDDEN;

#endif
