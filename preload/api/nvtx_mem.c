/*
 * nvtx_mem.c - NVTX's memory extension: heaps that a program announces as suballocators become pools, and their
 * regions become blocks (preload/pools/pools.h).
 *
 * Layouts and numbers are those of nvtx3/nvToolsExtMem.h, compatibility 0x0102. They are declared here, so that
 * the build needs no NVTX header. The slots for permissions stay empty, because permissions are for memory
 * checkers, and NVTX accepts empty slots.
 *
 * Thread context: any. Signal context: none. Lock: heaps_lock, over a pool's own.
 */
#include <stddef.h>
#include <string.h>

#include "preload/api/nvtx.h"
#include "preload/pools/pools.h"

#define HEAPS 4096u			/* a suballocator may announce a heap for each of its pieces */

enum { MODULE_MEM = 1, COMPATIBLE = 0x0102 };
enum { USAGE_SUB_ALLOCATOR = 1, TYPE_VIRTUAL_ADDRESS = 1, REF_POINTER = 1, REF_HANDLE = 2 };
enum { HEAP_REGISTER, HEAP_UNREGISTER, HEAP_RESET, REGIONS_REGISTER, REGIONS_RESIZE,
       REGIONS_UNREGISTER, REGIONS_NAME, SLOTS };	/* NVTX3EXT_CBID_nvtxMem* */
#define NO_TOOL ((void *)(intptr_t)-1)

/* Every struct that the program passes begins with struct head. Later versions of NVTX may have longer ones. */
struct head { uint16_t compatible, size; uint32_t field; };
struct range { size_t size; const void *ptr; };
struct heap_desc {
	struct head head;
	uint32_t usage, type;
	size_t range_bytes;
	const struct range *range;
	uint32_t category, message_type;
	const void *message;
};
struct register_batch {			/* @head.field: type */
	struct head head;
	void *heap;
	size_t count, bytes;		/* of an element */
	const void *elements;		/* struct range */
	void **handles;
};
struct resize_batch { struct head head; size_t count, bytes; const void *elements; };
struct unregister_batch {		/* @head.field: REF_* */
	struct head head;
	size_t count, bytes;
	const void *elements;		/* pointers, or handles */
};
struct name_desc {
	uint32_t ref, name_type;
	uint64_t region;
	const void *name;
	uint32_t category, reserved;
};
struct name_batch { struct head head; size_t count, bytes; const void *elements; };

/* Heaps of the same name on a device are one pool. The handle of a heap is the address of its record. The handle of a
 * region is the region's address, with the heap's place + 1 in the highest 16 bits. */
static struct heap { uint64_t address, size; uint8_t domain; } heaps[HEAPS];
static _Atomic(uint32_t) heap_count;	/* how many places were ever used */
static struct gm_lock heaps_lock = { .rank = GM_RANK_NONE };
#define ADDRESS_BITS 48

static bool readable(const struct head *head, size_t bytes)
{
	return head && head->compatible == COMPATIBLE && head->size >= bytes && gm_pools_recording();
}

static struct heap *heap_of(const void *handle)
{
	const struct heap *at = handle;

	return at >= heaps && at < heaps + HEAPS && at->domain ? &heaps[at - heaps] : NULL;
}

/* Find the heap with the region of @ref. *@address: the address of the region. */
static struct heap *heap_of_region(uint32_t type, uint64_t ref, uint64_t *address)
{
	uint64_t place = ref >> ADDRESS_BITS, asked = 0;
	uint32_t count = gm_get_acquire(&heap_count);

	*address = ref & ((UINT64_C(1) << ADDRESS_BITS) - 1);
	if (type == REF_HANDLE)
		return place && place <= HEAPS && heaps[place - 1].domain ? &heaps[place - 1] : NULL;
	for (struct heap *heap = heaps; type == REF_POINTER && heap < heaps + count; heap++) {
		uint8_t pool = __atomic_load_n(&heap->domain, __ATOMIC_RELAXED);	/* the heap may be ending */
		uint64_t bit = pool ? UINT64_C(1) << (pool - GM_DOMAIN_POOLS) : asked;

		if (!(asked & bit) && gm_pool_size_at(pool, *address))	/* ask each pool once */
			return heap;
		asked |= bit;
	}
	return NULL;
}

/* Return the place of the heap at @address in @pool; if it has none, a free place; NULL: there is none. */
static struct heap *place_of(uint8_t pool, uint64_t address)
{
	uint32_t count = gm_get(&heap_count);
	struct heap *unused = NULL;

	for (struct heap *heap = heaps; heap < heaps + count; heap++) {
		if (heap->domain == pool && heap->address == address)
			return heap;
		if (!heap->domain && !unused)
			unused = heap;
	}
	return unused ? unused : count < HEAPS ? &heaps[count] : NULL;
}

static void *heap_register(const void *domain, const struct heap_desc *desc)
{
	struct heap *heap;
	uint64_t address;
	uint32_t name;
	uint8_t pool;

	(void)domain;
	if (!desc || !readable(&desc->head, sizeof(*desc)) || desc->usage != USAGE_SUB_ALLOCATOR ||
	    desc->type != TYPE_VIRTUAL_ADDRESS || !desc->range ||
	    desc->range_bytes < sizeof(*desc->range) || !desc->range->ptr)
		return NO_TOOL;
	address = (uintptr_t)desc->range->ptr;
	name = gm_nvtx_message_id((int32_t)desc->message_type, desc->message);
	if (!name)
		name = gm_pool_name_id("nvtx heap");
	pool = gm_pool_open(GM_POOL_NVTX, gm_pool_device_of(address), name, 0);
	if (!pool || !gm_lock(&heaps_lock))
		return NO_TOOL;
	heap = place_of(pool, address);
	if (heap) {
		*heap = (struct heap){ address, desc->range->size, pool };
		if (heap == heaps + gm_get(&heap_count))
			gm_set_release(&heap_count, gm_get(&heap_count) + 1);
	}
	gm_unlock(&heaps_lock);
	return heap ? heap : NO_TOOL;
}

static void heap_reset(const void *domain, void *handle)
{
	struct heap *heap = heap_of(handle);

	(void)domain;
	if (heap && gm_pools_recording())
		gm_pool_take_all(heap->domain, heap->address, heap->size);
}

static void heap_unregister(const void *domain, void *handle)
{
	struct heap *heap = heap_of(handle);

	heap_reset(domain, handle);
	if (!heap || !gm_lock(&heaps_lock))
		return;
	__atomic_store_n(&heap->domain, 0, __ATOMIC_RELAXED);
	gm_unlock(&heaps_lock);
}

static void regions_register(const void *domain, const struct register_batch *batch)
{
	struct heap *heap;

	(void)domain;
	if (!batch || !readable(&batch->head, sizeof(*batch)))
		return;
	for (size_t i = 0; batch->handles && i < batch->count; i++)
		batch->handles[i] = NO_TOOL;
	heap = heap_of(batch->heap);
	if (!heap || batch->head.field != TYPE_VIRTUAL_ADDRESS || !batch->elements ||
	    batch->bytes < sizeof(struct range))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		const struct range *range = (const void *)((const char *)batch->elements + i * batch->bytes);
		uint64_t address = (uintptr_t)range->ptr;

		if (!gm_pool_give(gm_pool_of(heap->domain), address, range->size, 0,
					__builtin_return_address(0), 0) &&
		    batch->handles)
			batch->handles[i] = (void *)(uintptr_t)((uint64_t)(heap - heaps + 1) << ADDRESS_BITS |
								address);
	}
}

static void regions_resize(const void *domain, const struct resize_batch *batch)
{
	(void)domain;
	if (!batch || !readable(&batch->head, sizeof(*batch)) || !batch->elements ||
	    batch->bytes < sizeof(struct range))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		const struct range *range = (const void *)((const char *)batch->elements + i * batch->bytes);
		uint64_t address;
		struct heap *heap = heap_of_region(REF_POINTER, (uintptr_t)range->ptr, &address);

		if (heap && !gm_pool_take(gm_pool_of(heap->domain), address))
			gm_pool_give(gm_pool_of(heap->domain), address, range->size, 0,
					__builtin_return_address(0), 0);
	}
}

static void regions_unregister(const void *domain, const struct unregister_batch *batch)
{
	(void)domain;
	if (!batch || !readable(&batch->head, sizeof(*batch)) || !batch->elements || batch->bytes < sizeof(uint64_t))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		uint64_t ref, address;
		struct heap *heap;

		memcpy(&ref, (const char *)batch->elements + i * batch->bytes, sizeof(ref));
		heap = heap_of_region(batch->head.field, ref, &address);
		if (heap)
			gm_pool_take(gm_pool_of(heap->domain), address);
	}
}

static void regions_name(const void *domain, const struct name_batch *batch)
{
	(void)domain;
	if (!batch || !readable(&batch->head, sizeof(*batch)) || !batch->elements ||
	    batch->bytes < sizeof(struct name_desc))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		const struct name_desc *desc = (const void *)((const char *)batch->elements + i * batch->bytes);
		uint64_t address;
		struct heap *heap = heap_of_region(desc->ref, desc->region, &address);

		if (heap)
			gm_pool_name(heap->domain, address, gm_nvtx_message_id((int32_t)desc->name_type, desc->name));
	}
}

/* ---- attaching --------------------------------------------------------------------------------- */

struct segment { size_t id, count; intptr_t *slots; };
struct module {				/* nvtxExtModuleInfo_t */
	uint16_t version, size, id, compatible;
	size_t segment_count;
	struct segment *segments;
	void *export_function;
	const void *more;
};

GM_PUBLIC int InitializeInjectionNvtxExtension(struct module *module);

/* Called by NVTX for each extension in each library that uses it. Returns 1; 0 for other extensions, or when option
 * nvtx is off, and NVTX goes on without us. */
int InitializeInjectionNvtxExtension(struct module *module)
{
	const intptr_t ours[SLOTS] = {
		[HEAP_REGISTER] = (intptr_t)heap_register, [HEAP_UNREGISTER] = (intptr_t)heap_unregister,
		[HEAP_RESET] = (intptr_t)heap_reset, [REGIONS_REGISTER] = (intptr_t)regions_register,
		[REGIONS_RESIZE] = (intptr_t)regions_resize,
		[REGIONS_UNREGISTER] = (intptr_t)regions_unregister, [REGIONS_NAME] = (intptr_t)regions_name,
	};

	if (!gm_nvtx_is_wanted() || !module || module->size < sizeof(*module) ||
	    module->id != MODULE_MEM || module->compatible != COMPATIBLE || !module->segment_count ||
	    !module->segments->slots || module->segments->count < SLOTS)
		return 0;
	memcpy(module->segments->slots, ours, sizeof(ours));
	return 1;
}
