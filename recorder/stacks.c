/*
 * stacks.c - the stack of an operation: see stacks.h.
 *
 * Owns the table of stacks seen: by a hash of 64 bits of their return addresses, lossy. An entry is
 * two words that are only believed together: the hash is stored xor the value, so that words of
 * two different writes give neither's hash. What an unload made stale is in the hash, too: the
 * generation of the modules.
 */
#include "recorder/stacks.h"

#include <stdatomic.h>
#include <stddef.h>

#include "recorder/modules.h"
#include "recorder/recorder.h"

#define SEEN 8192u			/* entries; a power of two */

struct seen {
	_Atomic(uint64_t) key;		/* hash ^ value */
	_Atomic(uint64_t) value;	/* stack id << 16 | module; 0 empty */
};

static struct seen seen[SEEN];
static uintptr_t own_start, own_end;
static _Atomic(uint32_t) depth;		/* frames; 0: nothing is captured */

void gm_stacks_init(uintptr_t start, uintptr_t end)
{
	own_start = start;
	own_end = end;
}

void gm_stacks_configure(bool native, unsigned int frames)
{
	if (frames > GM_STACK_DEPTH_MAX)
		frames = GM_STACK_DEPTH_MAX;
	atomic_store_explicit(&depth, native ? frames : 0, memory_order_relaxed);
}

void gm_stacks_forget(void)
{
	for (size_t i = 0; i < SEEN; i++)
		atomic_store_explicit(&seen[i].value, 0, memory_order_relaxed);
	atomic_store_explicit(&depth, 0, memory_order_relaxed);
}

bool gm_stacks_wanted(void)
{
	return atomic_load_explicit(&depth, memory_order_relaxed) != 0;
}

static uint64_t hash_of(const uintptr_t *pcs, int count, unsigned int flags)
{
	uint64_t a = UINT64_C(0x9e3779b97f4a7c15) + gm_modules_generation();
	uint64_t b = ((uint64_t)count << 8) + flags;

	/* Two chains, so that one multiplication does not wait for the other. */
	for (int i = 0; i < count; i++) {
		a = (a ^ pcs[i]) * UINT64_C(0xff51afd7ed558ccd);
		b = (b + pcs[i]) * UINT64_C(0xc4ceb9fe1a85ec53);
		b ^= b >> 29;
	}
	return (a ^ a >> 32) + (b ^ b >> 31) * 3;
}

/* Frames never seen together: each to its module and offset, then the stack to its id. */
static uint32_t intern(const uintptr_t *pcs, int count, bool truncated)
{
	uint32_t ids[GM_STACK_DEPTH_MAX];

	for (int i = 0; i < count; i++) {
		struct gm_frame frame = { 0 };

		frame.module = gm_modules_lookup(pcs[i], &frame.offset);
		ids[i] = gm_intern_frame(&frame);
	}
	return gm_intern_stack(ids, (uint32_t)count, truncated);
}

uint32_t gm_stacks_capture(const struct gm_regs *from, uint16_t *ret_module)
{
	uintptr_t pcs[GM_STACK_DEPTH_MAX + 8];
	int limit = (int)atomic_load_explicit(&depth, memory_order_relaxed);
	unsigned int flags = 0;
	uint64_t hash, value;
	struct seen *entry;
	int count, own = 0;
	uint32_t stack;

	if (!limit)
		return GM_NONE;
	count = gm_unwind(from, pcs, limit + 8, &flags);
	while (own < count && pcs[own] >= own_start && pcs[own] < own_end)
		own++;
	count -= own;
	if (count > limit) {
		count = limit;
		flags |= GM_UNWIND_MORE;
	}
	flags &= GM_UNWIND_TRUNCATED | GM_UNWIND_MORE;
	hash = hash_of(pcs + own, count, flags);
	entry = &seen[(hash >> 20) % SEEN];
	value = atomic_load_explicit(&entry->value, memory_order_acquire);
	if (value && (atomic_load_explicit(&entry->key, memory_order_acquire) ^ value) == hash) {
		*ret_module = (uint16_t)value;
		return (uint32_t)(value >> 16);
	}
	*ret_module = gm_modules_asker(pcs + own, count);
	stack = intern(pcs + own, count, flags != 0);
	if (stack) {
		value = (uint64_t)stack << 16 | *ret_module;
		atomic_store_explicit(&entry->value, value, memory_order_release);
		atomic_store_explicit(&entry->key, hash ^ value, memory_order_release);
	}
	return stack;
}
