/*
 * cache_pages.c - memory of pages heaps, by the driver's virtual memory management: see cache_pages.h.
 *
 *	addresses   | page | page |      | page |           |      cuMemAddressReserve, once
 *	handles     |  h1  |  h2  |  0   |  h3  |  0 ...          cuMemCreate, 2 MiB each
 *	spare         h4 h5                                       unmapped, not given back: mapped first
 *
 * A moment is a number, one for each time that the GPU is asked. What is freed gets the present one; then the number
 * goes up and an event is recorded behind all work. When that event is complete, the GPU is past every free with that
 * number or a lower one. While a stream captures, no such event can be recorded, so one is recorded before a capture
 * begins. A free that the host has seen complete, because it waited or because the block was in limbo, has moment 0:
 * it needs no event.
 *
 * What was freed in the order of a stream, from a default pool, needs no event of all work where that stream is
 * known to have got to it (cache_stream_frees.c): a program may wait for just that memory with other work.
 *
 * Thread context: any, inside a hook. Signal context: none. Lock: growth; what concerns moments is atomic.
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

/* Either region has room for all of the device's memory, and holes: addresses cost nothing. */
#define ADDRESSES 8u			/* times the device's memory */
#define ADDRESSES_LEAST 2u
#define PAGE GM_HEAP_PAGE
#define LATELY_NS UINT64_C(2000000000)	/* of these, compaction_time is what moving may take */
#define SPARE_PART 8u			/* of the device, or a limit: with less free, pages move whatever it takes */

struct gm_cache_pages {
	uint64_t address, bytes;
	CUmemAllocationProp prop;
	uint64_t spares, held;		/* handles: unmapped ones, and all */
	uint64_t unmapped_ns;		/* what it took to unmap the spare ones */
	uint64_t counted_ns;		/* gm_now_ns when heap->moving_ns was looked at */
	bool plenty;			/* of memory was left when pages were mapped last */
	bool costly;			/* what gm_cache_pages_costly said last */
	size_t mapped_bytes;		/* of this struct, with its arrays */
	CUmemGenericAllocationHandle *spare, *handles;	/* @handles: by page */
	uint8_t domain;
	bool of_pool;			/* of the default pool, not of a context */
};

static _Atomic(uint64_t) moment = 1, passed;
static _Atomic(bool) freed;		/* something since the last event */
/* Events that are not known to be complete, the oldest first. Where a capture begins there may be a second. */
#define ASKED_MOST 2u
static struct gm_lock asking = { .rank = GM_RANK_MOMENTS };
static struct { uint64_t ticket, moment; } asked[ASKED_MOST];
static uint32_t asked_count;
static _Atomic(uint64_t) peers[GM_MAX_DEVICES];	/* a bit for each device that may use its memory, besides itself */

/* ---- moments ---- */

uint64_t gm_cache_pages_moment(void *arg)
{
	uint64_t now = moment;		/* before @freed: whoever finds that asks for this moment, too */

	if (((const struct gm_cache_heap *)arg)->seen)
		return 0;
	freed = true;
	return now;
}

uint64_t gm_cache_pages_passed(void *arg, uint64_t stream)
{
	const struct gm_cache_heap *heap = arg;
	uint64_t own = 0;

	if (!gm_rule(GM_RULE_PAGES))
		return moment;
	if (heap->kind == GM_KIND_POOL && stream != UINT64_MAX)
		own = gm_cache_stream_passed(stream);
	return own > passed ? own : passed;
}

bool gm_cache_pages_wanted(void *arg)
{
	const struct gm_cache_heap *heap = arg;

	return gm_rule(GM_RULE_AWAIT) && gm_cache_request.waits && heap->heap->idle && (freed || passed + 1 < moment);
}

uint64_t gm_cache_pages_now(void)
{
	return moment;
}

/* Nothing was freed with the present moment, as far as is known: whoever just frees is not counted. */
uint64_t gm_cache_pages_turn(void)
{
	return freed ? atomic_fetch_add(&moment, 1) : moment - 1;
}

int gm_cache_pages_waits(uint64_t until)
{
	int r = 0;

	if (!gm_lock_try(&asking))
		return passed < until;	/* somebody is at it */
	if (passed < until && asked_count)
		r = 1;
	else if (passed < until && freed)
		r = gm_capturing() ? -EAGAIN : 1;
	gm_unlock(&asking);
	return r;
}

uint64_t gm_cache_pages_progress(void)
{
	return passed;
}

/* What is complete is passed. */
static void look_locked(void)
{
	while (asked_count && gm_ticket_query(NULL, asked[0].ticket) == 1) {
		gm_ticket_drop(NULL, asked[0].ticket);
		passed = asked[0].moment;
		asked[0] = asked[1];
		asked_count--;
	}
}

/* An event for what was freed since the last one; where there is no room, in place of that. */
static void ask_locked(void)
{
	uint32_t at = asked_count < ASKED_MOST ? asked_count : ASKED_MOST - 1;
	uint64_t ticket = 0, last;

	if (!atomic_exchange(&freed, false))
		return;
	last = atomic_fetch_add(&moment, 1);
	if (!gm_order_ticket(&ticket)) {
		freed = true;
		return;
	}
	if (at < asked_count)
		gm_ticket_drop(NULL, asked[at].ticket);
	asked[at].ticket = ticket;
	asked[at].moment = last;
	asked_count = at + 1;
}

void gm_cache_pages_look(void)
{
	if (!gm_lock_try(&asking))
		return;
	look_locked();
	if (!asked_count) {
		ask_locked();
		look_locked();		/* perhaps nothing is pending */
	}
	gm_unlock(&asking);
}

void gm_cache_pages_capture_begins(void)
{
	if (!freed || !gm_lock(&asking))
		return;
	look_locked();
	ask_locked();
	gm_unlock(&asking);
}

/* ---- handles ---- */

/* What the driver does not take stays spare. */
static void release(struct gm_cache_pages *pages, uint64_t keep)
{
	for (; pages->spares > keep && !GM_REAL(cuMemRelease)(pages->spare[pages->spares - 1]); pages->spares--)
		pages->held--;
}

/* @count spare pages more, or none. */
static CUresult make(struct gm_cache_pages *pages, uint64_t count)
{
	uint64_t before = pages->spares;
	CUresult result = CUDA_SUCCESS;

	for (uint64_t i = 0; i < count && !result; i++) {
		result = GM_REAL(cuMemCreate)(&pages->spare[pages->spares], PAGE, &pages->prop, 0);
		pages->spares += !result;
		pages->held += !result;
	}
	if (result)
		release(pages, before);
	return result;
}

static CUmemGenericAllocationHandle *handle_at(const struct gm_cache_pages *pages, uint64_t address)
{
	return &pages->handles[(address - pages->address) / PAGE];
}

/* What is mapped from @address on becomes spare. What cannot stays mapped until it is wanted there. */
static void unmap(struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	if (!bytes || GM_REAL(cuMemUnmap)(address, bytes))
		return;
	for (uint64_t at = address; at < address + bytes; at += PAGE) {
		pages->spare[pages->spares++] = *handle_at(pages, at);
		*handle_at(pages, at) = 0;
	}
}

/* How @device may use the memory. Of a pool's, as the driver says it of the pool. */
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

/* A peer that a context was given access to may turn out to have none; one that the pool was opened to has it. */
static CUresult allow(const struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	int devices = gm_device_count() < (int)GM_MAX_DEVICES ? gm_device_count() : (int)GM_MAX_DEVICES;
	CUmemAccessDesc who[GM_MAX_DEVICES];
	size_t count = 0;
	CUresult result;

	for (int i = 0; !i || i < devices; i++) {	/* its own device first */
		CUdevice d = i ? (pages->domain + i) % devices : pages->domain;
		CUmemAccess_flags flags = access_of(pages, d);

		if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			who[count++] = (CUmemAccessDesc){
				.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d }, .flags = flags };
	}
	result = GM_REAL(cuMemSetAccess)(address, bytes, who, count);
	return result && count > 1 && !pages->of_pool ? GM_REAL(cuMemSetAccess)(address, bytes, who, 1) : result;
}

static CUresult map(struct gm_cache_pages *pages, uint64_t address, uint64_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t at = address;

	for (; at < address + bytes; at += PAGE) {
		if (*handle_at(pages, at))
			continue;
		result = GM_REAL(cuMemMap)(at, PAGE, 0, pages->spare[pages->spares - 1], 0);
		if (result)
			break;
		*handle_at(pages, at) = pages->spare[--pages->spares];
	}
	if (!result)
		result = allow(pages, address, bytes);
	if (result)
		unmap(pages, address, at - address);
	return result;
}

/* The next run of mapped pages from *@at on; 0 bytes: there is none. */
static uint64_t next_run(const struct gm_cache_pages *pages, uint64_t *at)
{
	uint64_t end = pages->address + pages->bytes, to;

	while (*at < end && !*handle_at(pages, *at))
		*at += PAGE;
	for (to = *at; to < end && *handle_at(pages, to);)
		to += PAGE;
	return to - *at;
}

/* ---- for the heap ---- */

int gm_cache_pages_reserve(void *arg, uint64_t bytes, uint64_t *ret_address, uint64_t *ret_bytes)
{
	const struct gm_cache_heap *heap = arg;

	(void)bytes;
	*ret_address = heap->pages->address;
	*ret_bytes = heap->pages->bytes;
	return 0;
}

/* After a fault cudaMalloc says so, and handles of memory may know nothing of contexts: is this one sound? Also, is
 * plenty left when the heap has got @bytes more? */
static bool is_sound(struct gm_cache_heap *heap, uint64_t bytes)
{
	size_t free_bytes = 0, total_bytes = 0;
	enum gm_limit which;
	uint64_t limit = gm_cache_limit(heap->domain, &which);

	gm_cache_fault(GM_REAL(cuMemGetInfo_v2)(&free_bytes, &total_bytes));
	heap->pages->plenty = free_bytes > total_bytes / SPARE_PART + bytes &&
			      gm_cache_within_limit(heap->domain, limit / SPARE_PART + bytes);
	gm_cache_request.result = (CUresult)heap->faulted;
	return !heap->faulted;
}

/* What moving takes is forgotten at the rate at which it may be spent. */
bool gm_cache_pages_costly(void *arg)
{
	struct gm_cache_heap *heap = arg;
	struct gm_cache_pages *pages = heap->pages;
	double part = gm_state.options.compaction_time;
	uint64_t now, spent = heap->moving_ns, forgotten;

	pages->costly = false;
	if (!pages->plenty || part >= 1 || !spent)
		return false;
	now = gm_now_ns();
	forgotten = pages->counted_ns ? (uint64_t)(part * (double)(now - pages->counted_ns)) : 0;
	pages->counted_ns = now;
	if (forgotten > spent)
		forgotten = spent;
	heap->moving_ns -= forgotten;
	pages->costly = spent - forgotten > (uint64_t)(part * (double)LATELY_NS);
	return pages->costly;
}

int gm_cache_pages_map(void *arg, uint64_t address, uint64_t bytes)
{
	struct gm_cache_heap *heap = arg;
	struct gm_cache_pages *pages = heap->pages;
	uint64_t before = pages->spares, count = bytes / PAGE, fresh = count > before ? count - before : 0;
	struct gm_relaxed relaxed;
	CUresult result = CUDA_SUCCESS;
	int r = -EIO;			/* what nothing can serve is not tried in other ways */

	if (!is_sound(heap, fresh * PAGE))
		return r;
	if (fresh && pages->costly && !pages->plenty)
		return -EAGAIN;		/* there was plenty, but not for so much, or others have had it since */
	if (fresh && !gm_cache_within_limit(heap->domain, fresh * PAGE))
		return -ENOMEM;
	gm_writers_look();
	relaxed = gm_relax();
	if (fresh)
		result = make(pages, fresh);
	if (result == CUDA_ERROR_OUT_OF_MEMORY && !gm_cache_is_past_device(heap)) {
		gm_cache_back_done(heap->domain);	/* what is on its way may be enough */
		gm_pool_trim(heap->domain);
		result = make(pages, fresh);
		r = -ENOMEM;
	}
	if (!result) {
		uint64_t began = gm_now_ns();

		result = map(pages, address, bytes);
		if (count > fresh) {
			heap->moving_ns += pages->unmapped_ns + (gm_now_ns() - began) / count * (count - fresh);
			pages->unmapped_ns = 0;
		}
		if (result && fresh)
			release(pages, before);
		r = -ENOMEM;
	}
	gm_unrelax(&relaxed);
	heap->segments = pages->held * PAGE;
	if (heap->segments > heap->segments_high)
		heap->segments_high = heap->segments;
	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result ? -EIO : 0;	/* any other error is not one of cudaMalloc, whose turn it is */
	gm_cache_request.result = result;
	return r;
}

void gm_cache_pages_unmap(void *arg, uint64_t address, uint64_t bytes)
{
	struct gm_cache_heap *heap = arg;
	struct gm_relaxed relaxed = gm_relax();
	uint64_t began = gm_now_ns();

	unmap(heap->pages, address, bytes);
	heap->pages->unmapped_ns += gm_now_ns() - began;
	gm_unrelax(&relaxed);
}

void gm_cache_pages_trim(void *arg)
{
	struct gm_cache_heap *heap = arg;
	struct gm_relaxed relaxed = gm_relax();

	release(heap->pages, 0);
	heap->pages->unmapped_ns = 0;
	heap->segments = heap->pages->held * PAGE;
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

/* Arrays for @bytes of addresses. */
static struct gm_cache_pages *make_arrays(uint64_t bytes)
{
	size_t array = bytes / PAGE * sizeof(CUmemGenericAllocationHandle);
	size_t whole = sizeof(struct gm_cache_pages) + 2 * array;
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
	pages->spare = (CUmemGenericAllocationHandle *)(pages + 1);
	pages->handles = pages->spare + bytes / PAGE;
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
	if (!of_pool)			/* a pool's memory is not for network cards */
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
		*ret_context = heap->handle;
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

	if (!gm_state.options.expandable_segments || !gm_cache_on() || domain >= GM_MAX_DEVICES ||
	    peer >= GM_MAX_DEVICES || domain == peer ||
	    atomic_fetch_or(&peers[domain], UINT64_C(1) << peer) >> peer & 1)
		return;
	for (struct gm_cache_heap *heap = NULL; (heap = gm_cache_heap_next(heap, domain));) {
		if (!gm_cache_growth_lock(domain))
			continue;
		relaxed = gm_relax();
		if (heap->pages && !heap->pages->of_pool)
			allow_all(heap->pages);
		gm_unrelax(&relaxed);
		gm_cache_growth_unlock(domain);
	}
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
