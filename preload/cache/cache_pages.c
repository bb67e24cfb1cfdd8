/*
 * cache_pages.c - memory of pages heaps, by the driver's virtual memory management: see cache_pages.h.
 *
 * 	addresses   | page | page | page |      | page |      |      cuMemAddressReserve, once
 * 	extents     |  1   |  2   | rest |  0   |  1   |  0 ...      the heap's array: gm_heap_ops.reserve
 * 	handles     |  h1  |  h2         |      |  h3  |             cuMemCreate, of one or more pages
 * 	spare         h4 h5                                          unmapped, not given back: used first
 *
 * The driver maps or unmaps a handle of 16 MiB as fast as one of 2 MiB. But while a part of a handle is live, the rest
 * of the handle cannot move. So a handle has only a small part of the heap's memory. It has a single page unless nearly
 * all of the device is free, because memory that cannot move would later cause refusals; and if compaction_time is 1.
 * Spare handles that are smaller than the wanted ones, or larger than all the wanted memory, are given back for new
 * ones.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: growth.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "allocator/page_map.h"
#include "allocator/rules.h"
#include "preload/order/order.h"
#include "preload/cache/cache_internal.h"
#include "preload/cache/cache_pages.h"
#include "preload/process/say.h"
#include "recorder/journal/sys.h"

/* Each region has room for all of the device's memory and for holes, because addresses cost nothing. */
#define ADDRESSES 8u			/* times the device's memory */
#define ADDRESSES_LEAST 2u
#define PAGE GM_HEAP_PAGE
#define LATELY_NS UINT64_C(2000000000)	/* moving pages may take the part compaction_time of this time */
#define SPARE_PART 8u			/* of the device or limit: with less free, pages move at any cost */
/* A handle has at most one part in HANDLES_OF_HEAP of the heap's memory, and at most HANDLE_MOST bytes. It has one
 * page if more than one part in HANDLES_PART of the device, or of a limit, is in use. */
#define HANDLES_OF_HEAP 64u
#define HANDLE_MOST (UINT64_C(16) << 20)
#define HANDLES_PART 10u

struct spare { CUmemGenericAllocationHandle handle; uint64_t bytes; };

struct gm_cache_pages {
	uint64_t address, bytes;
	CUmemAllocationProp prop;
	uint64_t held;			/* bytes of all handles */
	uint64_t spares, spare_bytes;	/* unmapped handles, and their bytes */
	uint64_t unmapped_ns;		/* time that unmapping the spare handles took */
	uint64_t counted_ns;		/* gm_now_ns at the last look at heap->moving.spent_ns */
	bool plenty;			/* much memory was left when pages were mapped last */
	bool roomy;			/* and enough for larger handles */
	bool costly;			/* last result of gm_cache_pages_costly */
	size_t mapped_bytes;		/* bytes of this struct and its arrays */
	struct spare *spare;
	CUmemGenericAllocationHandle *handles;	/* by the first page of each */
	uint32_t *extents;		/* one for each page */
	uint8_t domain;
	bool of_pool;			/* for the default pool, not for a context */
};

static _Atomic(uint64_t) peers[GM_MAX_DEVICES];	/* a bit for each other device that may use its memory */
static _Atomic(uint64_t) settled[GM_MAX_DEVICES];	/* a bit for each that has access by now, or cannot have it */

/* ---- handles ---- */

/* Give the last spare handle back to the driver. Returns its bytes; 0: the driver refuses, and the handle stays. */
static uint64_t release_one(struct gm_cache_pages *pages)
{
	const struct spare *last = &pages->spare[pages->spares - 1];

	if (GM_REAL(cuMemRelease)(last->handle))
		return 0;
	pages->spares--;
	pages->spare_bytes -= last->bytes;
	pages->held -= last->bytes;
	return last->bytes;
}

static void release(struct gm_cache_pages *pages, uint64_t keep_bytes)
{
	while (pages->spare_bytes > keep_bytes && release_one(pages))
		continue;
}

static void add_spare(struct gm_cache_pages *pages, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
	pages->spare[pages->spares++] = (struct spare){ handle, bytes };
	pages->spare_bytes += bytes;
}

static CUresult make(struct gm_cache_pages *pages, uint64_t bytes)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = GM_REAL(cuMemCreate)(&handle, bytes, &pages->prop, 0);

	if (result)
		return result;
	add_spare(pages, handle, bytes);
	pages->held += bytes;
	return result;
}

static uint64_t page_of(const struct gm_cache_pages *pages, uint64_t address)
{
	return (address - pages->address) / PAGE;
}

/* Unmap the handles in [@address, +@bytes), which become spare. If the driver refuses, they stay mapped until clear()
 * needs the addresses. */
static void unmap(struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	uint64_t end = page_of(pages, address + bytes);

	if (!bytes || GM_REAL(cuMemUnmap)(address, bytes))
		return;
	for (uint64_t page = page_of(pages, address), count; page < end; page += count) {
		count = pages->extents[page];
		add_spare(pages, pages->handles[page], count * PAGE);
		for (uint64_t i = 0; i < count; i++)
			pages->extents[page + i] = 0;
	}
}

/* Make sure that nothing is mapped there. Unmaps what an earlier unmap() could not. Returns false if that fails
 * again. */
static bool clear(struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	uint64_t end = page_of(pages, address + bytes);

	for (uint64_t page = page_of(pages, address), first; page < end; page++) {
		if (!pages->extents[page])
			continue;
		first = page - (pages->extents[page] & GM_HANDLE_REST ? pages->extents[page] & ~GM_HANDLE_REST : 0);
		unmap(pages, pages->address + first * PAGE, pages->extents[first] * PAGE);
		if (pages->extents[page])
			return false;
	}
	return true;
}

/* Return how @device may access the memory; for a pool's memory, as the driver reports it for the pool. */
static CUmemAccess_flags access_of(const struct gm_cache_pages *pages, CUdevice device)
{
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

	if (device == pages->domain)
		return flags;
	if (!pages->of_pool)
		return peers[pages->domain] >> device & 1 ? flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return GM_REAL(cuMemPoolGetAccess)(&flags, gm_pool_handle(pages->domain), &location)
		       ? CU_MEM_ACCESS_FLAGS_PROT_NONE : flags;
}

/* Set the access of all devices. If a peer of a context cannot have access, the other peers get it all the same. For
 * a pool, every device that the pool is open to must get access. */
static CUresult allow(const struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	int devices = gm_device_count() < (int)GM_MAX_DEVICES ? gm_device_count() : (int)GM_MAX_DEVICES;
	CUmemAccessDesc who[GM_MAX_DEVICES];
	size_t count = 0;
	CUresult result;

	for (int i = 0; !i || i < devices; i++) {	/* the memory's own device first */
		CUdevice d = i ? (pages->domain + i) % devices : pages->domain;
		CUmemAccess_flags flags = access_of(pages, d);

		if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			who[count++] = (CUmemAccessDesc){
				.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d }, .flags = flags };
	}
	result = GM_REAL(cuMemSetAccess)(address, bytes, who, count);
	if (!result || count == 1 || pages->of_pool)
		return result;
	result = GM_REAL(cuMemSetAccess)(address, bytes, who, 1);
	for (size_t i = 1; !result && i < count; i++)
		GM_REAL(cuMemSetAccess)(address, bytes, &who[i], 1);
	return result;
}

/* Map spare handle @i at @address. */
static CUresult put(struct gm_cache_pages *pages, uint64_t i, uint64_t address)
{
	struct spare spare = pages->spare[i];
	uint64_t page = page_of(pages, address), count = spare.bytes / PAGE;
	CUresult result = GM_REAL(cuMemMap)(address, spare.bytes, 0, spare.handle, 0);

	if (result)
		return result;
	pages->spare[i] = pages->spare[--pages->spares];
	pages->spare_bytes -= spare.bytes;
	pages->handles[page] = spare.handle;
	for (uint64_t n = 1; n < count; n++)
		pages->extents[page + n] = (uint32_t)n | GM_HANDLE_REST;
	pages->extents[page] = (uint32_t)count;
	return result;
}

/* Find a spare handle of at least @bytes and at most @room bytes; else make one of @bytes. *@ret: its index. New
 * handles may have *@may bytes in all: if that is not enough, give spare handles back first. */
static CUresult get_spare(struct gm_cache_pages *pages, uint64_t bytes, uint64_t room, uint64_t *may, uint64_t *ret)
{
	uint64_t released = 1;
	CUresult result;

	for (uint64_t i = pages->spares; i-- > 0;)
		if (pages->spare[i].bytes >= bytes && pages->spare[i].bytes <= room) {
			*ret = i;
			return CUDA_SUCCESS;
		}
	for (; *may < bytes && pages->spares && released; *may += released)
		released = release_one(pages);
	result = make(pages, bytes);
	*may -= result || *may < bytes ? 0 : bytes;
	*ret = pages->spares - 1;
	return result;
}

/* Put memory behind all of the addresses: spare handles of at least @most bytes, and new handles of @most bytes. The
 * last handle may be smaller. If this fails, nothing is mapped. */
static CUresult map(struct gm_cache_pages *pages, uint64_t address, uint64_t bytes, uint64_t most)
{
	uint64_t may = bytes > pages->spare_bytes ? bytes - pages->spare_bytes : 0, before = pages->spare_bytes;
	CUresult result = clear(pages, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	uint64_t done = 0, spare, size;

	while (!result && done < bytes) {
		size = bytes - done < most ? bytes - done : most;
		result = get_spare(pages, size, bytes - done, &may, &spare);
		size = result ? 0 : pages->spare[spare].bytes;
		if (!result)
			result = put(pages, spare, address + done);
		done += result ? 0 : size;
	}
	if (!result)
		result = allow(pages, address, bytes);
	if (result) {
		unmap(pages, address, done);
		release(pages, before);
	}
	return result;
}

/* Return the bytes of the next run of mapped pages from *@at on, and move *@at to its beginning; 0: there is none. */
static uint64_t next_run(const struct gm_cache_pages *pages, uint64_t *at)
{
	uint64_t end = pages->address + pages->bytes, to;

	while (*at < end && !pages->extents[page_of(pages, *at)])
		*at += PAGE;
	for (to = *at; to < end && pages->extents[page_of(pages, to)];)
		to += PAGE;
	return to - *at;
}

/* ---- for the heap ---- */

int gm_cache_pages_reserve(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes,
			   const uint32_t **ret_handles)
{
	const struct gm_cache_heap *heap = arg;

	(void)bytes;
	*ret_address = heap->pages->address;
	*ret_bytes = heap->pages->bytes;
	*ret_handles = heap->pages->extents;
	return 0;
}

/* May the heap get memory? Not after a fault of the context, which cudaMalloc would report but cuMemCreate may not.
 * Also find out whether plenty of memory is left when the heap has got @bytes more, and whether there is room for
 * larger handles. */
static bool is_sound(struct gm_cache_heap *heap, uint64_t bytes)
{
	size_t free_bytes = 0, total_bytes = 0;
	enum gm_limit which;
	uint64_t limit = gm_cache_limit(heap->domain, &which);

	gm_cache_fault(GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes));
	heap->pages->plenty = free_bytes > total_bytes / SPARE_PART + bytes &&
			      gm_cache_within_limit(heap->domain, limit / SPARE_PART + bytes);
	heap->pages->roomy = free_bytes > total_bytes - total_bytes / HANDLES_PART &&
			     gm_cache_within_limit(heap->domain, limit - limit / HANDLES_PART);
	gm_cache_request.result = (CUresult)heap->faulted;
	return !heap->faulted;
}

/* Time spent on moving is forgotten at the rate at which it may be spent. */
bool gm_cache_pages_costly(void *arg)
{
	struct gm_cache_heap *heap = arg;
	struct gm_cache_pages *pages = heap->pages;
	double part = gm_state.options.compaction_time;
	uint64_t now, spent = heap->moving.spent_ns, forgotten;

	pages->costly = false;
	if (!pages->plenty || part >= 1 || !spent)
		return false;
	now = gm_now_ns();
	forgotten = pages->counted_ns ? (uint64_t)(part * (double)(now - pages->counted_ns)) : 0;
	pages->counted_ns = now;
	if (forgotten > spent)
		forgotten = spent;
	heap->moving.spent_ns -= forgotten;
	pages->costly = spent - forgotten > (uint64_t)(part * (double)LATELY_NS);
	return pages->costly;
}

/* Return the size of the handles for @bytes more memory. A pool that gives its memory back at each synchronisation
 * gets it anew afterwards, which is fastest with few handles. */
static uint64_t handle_bytes(const struct gm_cache_heap *heap, uint64_t bytes)
{
	const struct gm_cache_pages *pages = heap->pages;
	uint64_t high = heap->segments_high > pages->held + bytes ? heap->segments_high : pages->held + bytes;
	uint64_t wanted = high / (gm_rules_handles ? gm_rules_handles : HANDLES_OF_HEAP), most = PAGE;

	if (!gm_rules_handles && (!pages->roomy || gm_state.options.compaction_time >= 1))
		return PAGE;
	if (pages->of_pool && !gm_pool_keeps(pages->domain))
		wanted = bytes;
	while (most < HANDLE_MOST && most * 2 <= wanted)
		most *= 2;
	return most;
}

int gm_cache_pages_map(void *arg, uint64_t address, uint64_t bytes)
{
	struct gm_cache_heap *heap = arg;
	struct gm_cache_pages *pages = heap->pages;
	uint64_t fresh = bytes > pages->spare_bytes ? bytes - pages->spare_bytes : 0, began, size;
	struct gm_relaxed relaxed;
	CUresult result;
	int r = -EIO;			/* a request larger than the device is not tried in other ways */

	if (!is_sound(heap, fresh))
		return r;
	if (fresh && pages->costly && !pages->plenty)
		return -EAGAIN;		/* plenty of memory was left, but no longer or not for so much */
	if (fresh && !gm_cache_within_limit(heap->domain, fresh))
		return -ENOMEM;
	gm_writers_look();
	relaxed = gm_relax();
	size = handle_bytes(heap, bytes);
	began = gm_now_ns();
	result = map(pages, address, bytes, size);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && !gm_cache_is_past_device(heap)) {
		gm_cache_back_done(heap->domain);	/* segments on their way back may be enough */
		gm_pool_trim(heap->domain);
		result = map(pages, address, bytes, size);
		r = -ENOMEM;
	}
	if (!result && bytes > fresh) {
		heap->moving.spent_ns += pages->unmapped_ns +
				   gm_passed_ns(&began, LATELY_NS) / (bytes / PAGE) * ((bytes - fresh) / PAGE);
		pages->unmapped_ns = 0;
	}
	gm_unrelax(&relaxed);
	gm_cache_request.grown |= pages->held > heap->segments;
	heap->segments = pages->held;
	if (heap->segments > heap->segments_high)
		heap->segments_high = heap->segments;
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result ? -EIO : 0;	/* any other error: the driver's cudaMalloc decides */
	gm_cache_request.result = result;
	return r;
}

void gm_cache_pages_unmap(void *arg, uint64_t address, uint64_t bytes)
{
	struct gm_cache_heap *heap = arg;
	struct gm_relaxed relaxed = gm_relax();
	uint64_t began = gm_now_ns();

	unmap(heap->pages, address, bytes);
	heap->pages->unmapped_ns += gm_passed_ns(&began, LATELY_NS);
	gm_unrelax(&relaxed);
}

void gm_cache_pages_trim(void *arg)
{
	struct gm_cache_heap *heap = arg;
	struct gm_relaxed relaxed = gm_relax();

	release(heap->pages, 0);
	heap->pages->unmapped_ns = 0;
	heap->segments = heap->pages->held;
	gm_unrelax(&relaxed);
}

/* ---- reservations ---- */

static bool is_supported(CUdevice device)
{
	int yes = 0;

	return GM_REAL(cuMemCreate) && GM_REAL(cuMemAddressReserve) && GM_REAL(cuMemSetAccess) &&
	       gm_order_has_context_events() && device < (CUdevice)GM_MAX_DEVICES &&
	       !GM_REAL(cuDeviceGetAttribute)(&yes, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) &&
	       yes;
}

/* Make the struct, with arrays for @bytes of addresses. */
static struct gm_cache_pages *make_arrays(uint64_t bytes)
{
	size_t count = bytes / PAGE;
	size_t whole = sizeof(struct gm_cache_pages) +
		       count * (sizeof(struct spare) + sizeof(CUmemGenericAllocationHandle) + sizeof(uint32_t));
	int saved_errno = errno;
	struct gm_cache_pages *pages = gm_sys.map(NULL, whole, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pages == MAP_FAILED) {
		errno = saved_errno;
		return NULL;
	}
	gm_sys.advise(pages, whole, MADV_DONTFORK);
	errno = saved_errno;
	pages->mapped_bytes = whole;
	pages->spare = (struct spare *)(pages + 1);
	pages->handles = (CUmemGenericAllocationHandle *)(pages->spare + count);
	pages->extents = (uint32_t *)(pages->handles + count);
	return pages;
}

static struct gm_cache_pages *reserve(CUdevice device, bool of_pool)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	struct gm_cache_pages *pages;
	size_t total, granularity;
	uint64_t bytes, least;
	CUdeviceptr address;
	int rdma = 0;

	if (GM_REAL(cuDeviceTotalMem_v2)(&total, device) ||
	    GM_REAL(cuMemGetAllocationGranularity)(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ||
	    PAGE % granularity)
		return NULL;
	if (!of_pool)			/* network cards cannot use a pool's memory */
		GM_REAL(cuDeviceGetAttribute)(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
					      device);
	prop.allocFlags.gpuDirectRDMACapable = rdma != 0;
	least = (total / PAGE + 1) * PAGE * ADDRESSES_LEAST;
	for (bytes = least / ADDRESSES_LEAST * ADDRESSES; result && bytes >= least; bytes /= 2)
		result = GM_REAL(cuMemAddressReserve)(&address, bytes / PAGE * PAGE, PAGE, 0, 0);
	if (result)
		return NULL;
	bytes = bytes * 2 / PAGE * PAGE;
	pages = make_arrays(bytes);
	if (!pages) {
		GM_REAL(cuMemAddressFree)(address, bytes);
		return NULL;
	}
	pages->address = address;
	pages->bytes = bytes;
	pages->prop = prop;
	pages->domain = (uint8_t)device;
	pages->of_pool = of_pool;
	return pages;
}

struct gm_cache_pages *gm_cache_pages_new(uint8_t domain, bool of_pool)
{
	static _Atomic(bool) said;
	struct gm_relaxed relaxed = gm_relax();
	struct gm_cache_pages *pages = is_supported(domain) ? reserve(domain, of_pool) : NULL;

	gm_unrelax(&relaxed);
	if (!pages && !atomic_exchange(&said, true))
		gm_say("expandable_segments:True has no effect: the driver cannot map memory into reserved addresses, "
		       "or cannot say when the GPU is done with it (before 12.5)");
	return pages;
}

void gm_cache_pages_end(struct gm_cache_pages *pages)
{
	struct gm_relaxed relaxed = gm_relax();
	int saved_errno = errno;
	uint64_t bytes;

	for (uint64_t at = pages->address; (bytes = next_run(pages, &at)); at += bytes)
		unmap(pages, at, bytes);
	release(pages, 0);
	GM_REAL(cuMemAddressFree)(pages->address, pages->bytes);
	gm_sys.unmap(pages, pages->mapped_bytes);
	errno = saved_errno;
	gm_unrelax(&relaxed);
}

bool gm_cache_pages_owner(uint32_t block, CUcontext *ret_context, CUmemoryPool *ret_pool)
{
	const struct gm_cache_heap *heap;
	struct gm_block copy;

	*ret_context = NULL;
	*ret_pool = NULL;
	heap = gm_state.options.expandable_segments ? gm_cache_heap_of(block, &copy) : NULL;
	if (!heap || !gm_cache_heap_in_pages(heap))
		return false;
	if (heap->kind == GM_KIND_POOL)
		*ret_pool = gm_pool_handle(heap->domain);
	else
		*ret_context = heap->at.handle;
	return true;
}

bool gm_cache_pages_covers(CUdeviceptr address)
{
	CUmemoryPool pool;
	CUcontext context;

	return gm_state.options.expandable_segments && gm_cache_on() &&
	       gm_cache_pages_owner(gm_page_map_find(gm_cache_page_map, address), &context, &pool);
}

/* ---- peers ---- */

static void allow_all(const struct gm_cache_pages *pages)
{
	uint64_t bytes;

	for (uint64_t at = pages->address; (bytes = next_run(pages, &at)); at += bytes)
		allow(pages, at, bytes);
}

void gm_cache_pages_peer(uint8_t domain, uint8_t peer)
{
	struct gm_relaxed relaxed;
	bool all = true;

	if (!gm_state.options.expandable_segments || !gm_cache_on() || domain >= GM_MAX_DEVICES ||
	    peer >= GM_MAX_DEVICES || domain == peer || settled[domain] >> peer & 1)
		return;
	atomic_fetch_or(&peers[domain], UINT64_C(1) << peer);
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));) {
		if (!gm_cache_growth_lock(domain)) {
			all = false;
			continue;
		}
		relaxed = gm_relax();
		if (heap->pages && !heap->pages->of_pool)
			allow_all(heap->pages);
		gm_unrelax(&relaxed);
		gm_cache_growth_unlock(domain);
	}
	/* Only from now on may another thread's copy skip this work. Earlier it could reach memory without access. */
	if (all)
		atomic_fetch_or(&settled[domain], UINT64_C(1) << peer);
}

void gm_cache_pages_open(uint8_t domain, uint8_t peer)
{
	int can = 1;

	if (domain >= GM_MAX_DEVICES || peer >= GM_MAX_DEVICES || settled[domain] >> peer & 1)
		return;
	if (domain != peer && !GM_REAL(cuDeviceCanAccessPeer)(&can, peer, domain) && can)
		gm_cache_pages_peer(domain, peer);
	else if (!can)
		atomic_fetch_or(&settled[domain], UINT64_C(1) << peer);
}

CUresult gm_cache_pages_pool_access(uint8_t domain, const CUmemAccessDesc *who, size_t count)
{
	CUresult result = CUDA_SUCCESS;
	struct gm_relaxed relaxed;
	uint64_t bytes;

	if (!gm_cache_growth_lock(domain))
		return CUDA_SUCCESS;
	relaxed = gm_relax();
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));) {
		if (!heap->pages || !heap->pages->of_pool)
			continue;
		for (uint64_t at = heap->pages->address; !result && (bytes = next_run(heap->pages, &at)); at += bytes)
			result = GM_REAL(cuMemSetAccess)(at, bytes, who, count);
	}
	gm_unrelax(&relaxed);
	gm_cache_growth_unlock(domain);
	return result;
}
