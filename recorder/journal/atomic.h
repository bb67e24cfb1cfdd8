/*
 * atomic.h - short names for loads and stores of words that several threads or processes share.
 *
 * Such fields are _Atomic. Access them by these macros only, because a plain access of an _Atomic
 * field is sequentially consistent and slow.
 */
#ifndef GM_RECORDER_ATOMIC_H
#define GM_RECORDER_ATOMIC_H

#include <stdatomic.h>

#define gm_likely(x) __builtin_expect(!!(x), 1)
#define gm_unlikely(x) __builtin_expect(!!(x), 0)

#define gm_get(p) atomic_load_explicit(p, memory_order_relaxed)
#define gm_get_acquire(p) atomic_load_explicit(p, memory_order_acquire)
#define gm_set(p, v) atomic_store_explicit(p, v, memory_order_relaxed)
#define gm_set_release(p, v) atomic_store_explicit(p, v, memory_order_release)
#define gm_count(p, n) ((void)atomic_fetch_add_explicit(p, n, memory_order_relaxed))

#endif
