/*
 * c10_cuda.cc - a stand-in for libc10_cuda.so: a caching allocator above the driver, with PyTorch's sizes,
 * best fit, splits and merges, that tells libc10 of every block with its lock held. See c10.h.
 */
#include "test/preload/programs/torch/c10.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include <cuda.h>

#undef cuMemAlloc
#undef cuMemFree
#define MIB ((uint64_t)1 << 20)
#define RESERVATION (4096 * MIB)

struct block {
	uint64_t address, size;
	bool small, used, expandable;
	block *prev, *next;
};
struct by_size {
	bool operator()(const block *a, const block *b) const
	{
		return a->size != b->size ? a->size < b->size : a->address < b->address;
	}
};

static struct {
	std::mutex mutex;
	int8_t device;
	bool expandable;
	uint64_t limit, next_page[2];
	struct account account;
	std::set<block *, by_size> idle[2];
	std::unordered_map<uint64_t, block *> live;
	std::map<uint64_t, CUmemGenericAllocationHandle> pages;
	struct log *log;
	std::vector<uint32_t> slots;
	std::unordered_map<uint64_t, uint32_t> slot_of;
} pool;

static struct {
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*free)(CUdeviceptr);
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
	CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
	CUresult (*unmap)(CUdeviceptr, size_t);
	CUresult (*release)(CUmemGenericAllocationHandle);
	CUresult (*set_current)(CUcontext);
	CUresult (*get_current)(CUcontext *);
} cu;
static CUcontext context;

template <typename F> static void find(void *library, F &function, const char *name)
{
	function = (F)dlsym(library, name);
	if (!function)
		abort();
}

void pool_begin(int device, int expandable, uint64_t limit)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	find(library, cu.alloc, "cuMemAlloc_v2");
	find(library, cu.free, "cuMemFree_v2");
	find(library, cu.reserve, "cuMemAddressReserve");
	find(library, cu.create, "cuMemCreate");
	find(library, cu.map, "cuMemMap");
	find(library, cu.access, "cuMemSetAccess");
	find(library, cu.unmap, "cuMemUnmap");
	find(library, cu.release, "cuMemRelease");
	find(library, cu.set_current, "cuCtxSetCurrent");
	find(library, cu.get_current, "cuCtxGetCurrent");
	cu.get_current(&context);
	pool.device = (int8_t)device;
	pool.expandable = expandable != 0;
	pool.limit = limit;
}

static void tell(uint64_t address, int64_t bytes)
{
	c10::reportMemoryUsageToProfiler((void *)address, bytes, pool.account.live_bytes,
					 pool.account.reserved_bytes, { 1, pool.device });
}

/* ---- memory of the driver's ---- */

static uint64_t page_size(bool small)
{
	return small ? 2 * MIB : 20 * MIB;
}

/* Map pages behind the last ones: a block of them, joined to the one before if that is idle. */
static block *map_pages(uint64_t bytes, bool small)
{
	uint64_t size = page_size(small), total = (bytes + size - 1) / size * size, address;
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};

	if (pool.account.reserved_bytes + total > pool.limit)
		return nullptr;
	if (!pool.next_page[small]) {
		CUdeviceptr first;

		if (cu.reserve(&first, RESERVATION, 0, 0, 0))
			return nullptr;
		pool.next_page[small] = first;
	}
	address = pool.next_page[small];
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location = access.location = { CU_MEM_LOCATION_TYPE_DEVICE, { pool.device } };
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	for (uint64_t at = address; at < address + total; at += size) {
		CUmemGenericAllocationHandle handle;

		if (cu.create(&handle, size, &prop, 0) || cu.map(at, size, 0, handle, 0))
			abort();
		pool.pages[at] = handle;
	}
	cu.access(address, total, &access, 1);
	pool.next_page[small] += total + size;		/* a hole: pieces stay apart */
	pool.account.segments++;
	pool.account.reserved_bytes += total;
	return new block{ address, total, small, false, true, nullptr, nullptr };
}

static block *new_segment(uint64_t bytes, bool small)
{
	uint64_t size = small ? 2 * MIB : bytes < 10 * MIB ? 20 * MIB :
			(bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	CUdeviceptr address;

	if (pool.expandable)
		return map_pages(bytes, small);
	if (pool.account.reserved_bytes + size > pool.limit || cu.alloc(&address, size))
		return nullptr;
	pool.account.segments++;
	pool.account.reserved_bytes += size;
	return new block{ address, size, small, false, false, nullptr, nullptr };
}

static void drop_segment(block *whole)
{
	if (!whole->expandable && cu.free(whole->address))
		abort();
	for (uint64_t at = whole->address, size = page_size(whole->small);
	     whole->expandable && at < whole->address + whole->size; at += size) {
		if (cu.unmap(at, size) || cu.release(pool.pages[at]))
			abort();
		pool.pages.erase(at);
	}
	pool.account.segments--;
	pool.account.reserved_bytes -= whole->size;
	delete whole;
}

static void empty_cache()
{
	for (int small = 0; small < 2; small++)
		for (auto at = pool.idle[small].begin(); at != pool.idle[small].end();) {
			block *whole = *at;

			if (whole->prev || whole->next) {
				++at;
				continue;
			}
			at = pool.idle[small].erase(at);
			drop_segment(whole);
		}
}

/* ---- blocks ---- */

static void log_block(uint64_t address, uint64_t bytes)
{
	uint32_t slot;

	if (!pool.log || pool.slots.empty())
		return;
	slot = pool.slots.back();
	pool.slots.pop_back();
	pool.slot_of[address] = slot;
	__atomic_store_n(&pool.log->busy, slot + 1, __ATOMIC_SEQ_CST);
	pool.log->slots[slot] = { address, bytes };
}

static void log_end(uint64_t address)
{
	auto at = pool.slot_of.find(address);

	if (at == pool.slot_of.end())
		return;
	__atomic_store_n(&pool.log->busy, at->second + 1, __ATOMIC_SEQ_CST);
	pool.slots.push_back(at->second);
}

static void log_done(uint64_t address, bool freed)
{
	auto at = pool.slot_of.find(address);

	if (at == pool.slot_of.end())
		return;
	if (freed) {
		pool.log->slots[at->second] = { 0, 0 };
		pool.slot_of.erase(at);
	}
	__atomic_store_n(&pool.log->busy, 0, __ATOMIC_SEQ_CST);
}

static block *take_idle(uint64_t bytes, bool small)
{
	block like = { 0, bytes, small, false, false, nullptr, nullptr };
	auto at = pool.idle[small].lower_bound(&like);
	block *found = at == pool.idle[small].end() ? nullptr : *at;

	if (found)
		pool.idle[small].erase(at);
	return found;
}

static void *alloc_locked(size_t asked)
{
	uint64_t bytes = asked < 512 ? 512 : (asked + 511) / 512 * 512;
	bool small = bytes <= MIB;
	block *found = take_idle(bytes, small);

	if (!found)
		found = new_segment(bytes, small);
	if (!found) {
		empty_cache();
		found = new_segment(bytes, small);
	}
	if (!found) {
		pool.account.ooms++;
		c10::reportOutOfMemoryToProfiler((int64_t)bytes, pool.account.live_bytes,
						 pool.account.reserved_bytes, { 1, pool.device });
		return nullptr;
	}
	if (small || pool.expandable ? found->size - bytes >= 512 : found->size - bytes > MIB) {
		block *rest = new block{ found->address + bytes, found->size - bytes, small, false,
					 found->expandable, found, found->next };

		if (rest->next)
			rest->next->prev = rest;
		found->next = rest;
		found->size = bytes;
		pool.idle[small].insert(rest);
	}
	found->used = true;
	pool.live[found->address] = found;
	pool.account.allocations++;
	pool.account.live++;
	pool.account.live_bytes += found->size;
	if (pool.account.live_bytes > pool.account.peak_bytes)
		pool.account.peak_bytes = pool.account.live_bytes;
	log_block(found->address, found->size);
	tell(found->address, (int64_t)found->size);
	log_done(found->address, false);
	return (void *)found->address;
}

/* @other, idle, becomes part of @into beside it. */
static void merge(block *into, block *other)
{
	pool.idle[other->small].erase(other);
	if (other == into->prev) {
		into->address = other->address;
		into->prev = other->prev;
		if (into->prev)
			into->prev->next = into;
	} else {
		into->next = other->next;
		if (into->next)
			into->next->prev = into;
	}
	into->size += other->size;
	delete other;
}

static void free_locked(void *ptr)
{
	auto at = pool.live.find((uint64_t)ptr);
	block *freed = at == pool.live.end() ? abort(), nullptr : at->second;
	uint64_t size = freed->size;

	log_end((uint64_t)ptr);
	pool.live.erase(at);
	pool.account.frees++;
	pool.account.live--;
	pool.account.live_bytes -= size;
	freed->used = false;
	if (freed->prev && !freed->prev->used)
		merge(freed, freed->prev);
	if (freed->next && !freed->next->used)
		merge(freed, freed->next);
	pool.idle[freed->small].insert(freed);
	tell((uint64_t)ptr, -(int64_t)size);
	log_done((uint64_t)ptr, true);
}

void *pool_alloc(size_t bytes)
{
	std::lock_guard<std::mutex> lock(pool.mutex);

	return alloc_locked(bytes);
}

static void *alloc_there(size_t bytes)
{
	cu.set_current(context);
	return pool_alloc(bytes);
}

void *pool_backward(size_t bytes)
{
	return c10_backward(alloc_there, bytes);
}

void pool_free(void *ptr)
{
	std::lock_guard<std::mutex> lock(pool.mutex);

	free_locked(ptr);
}

void pool_empty_cache(void)
{
	std::lock_guard<std::mutex> lock(pool.mutex);

	empty_cache();
}

void pool_account(struct account *ret)
{
	std::lock_guard<std::mutex> lock(pool.mutex);

	*ret = pool.account;
}

int pool_layout(const char *path)
{
	std::lock_guard<std::mutex> lock(pool.mutex);
	FILE *out = fopen(path, "w");
	std::vector<const block *> heads;

	if (!out)
		return -1;
	for (auto &one : pool.live)
		if (!one.second->prev)
			heads.push_back(one.second);
	for (auto &idle : pool.idle)
		for (const block *one : idle)
			if (!one->prev)
				heads.push_back(one);
	for (const block *head : heads) {
		uint64_t size = 0;

		for (const block *at = head; at; at = at->next)
			size += at->size;
		fprintf(out, "segment %llu %llu %s\n", (unsigned long long)head->address, (unsigned long long)size,
			head->small ? "small" : "large");
		for (const block *at = head; at; at = at->next)
			fprintf(out, "block %llu %llu %s\n", (unsigned long long)at->address,
				(unsigned long long)at->size, at->used ? "active_allocated" : "inactive");
	}
	return fclose(out);
}

/* ---- the storm ---- */

static void storm(int steps, unsigned int seed, look_fn *look, int *wrong)
{
	std::mt19937 random(seed);
	std::vector<void *> mine;

	cu.set_current(context);
	for (int i = 0; i < steps; i++) {
		uint32_t what = random() % 100;
		uint64_t bytes = what < 60 ? 1 + random() % 20000 : what < 95 ? 1 + random() % (3 * MIB) :
				 1 + random() % (30 * MIB);

		if (mine.size() < 4 || (random() % 2 && mine.size() < 200)) {
			void *got = pool_alloc(bytes);

			if (got)
				mine.push_back(got);
		} else {
			size_t at = random() % mine.size();

			pool_free(mine[at]);
			mine[at] = mine.back();
			mine.pop_back();
		}
		if (random() % 500 == 0)
			pool_empty_cache();
		if (look && random() % 200 == 0) {
			std::lock_guard<std::mutex> lock(pool.mutex);

			*wrong += look(&pool.account) != 0;
		}
	}
	for (void *block : mine)
		if (!pool.log)
			pool_free(block);
}

int pool_storm(int threads, int steps, unsigned int seed, look_fn *look, const char *log)
{
	std::vector<std::thread> all;
	std::vector<int> wrong((size_t)threads, 0);
	int sum = 0;

	if (log) {
		int fd = open(log, O_RDWR | O_CREAT, 0600);

		if (fd < 0 || ftruncate(fd, sizeof(struct log)))
			abort();
		pool.log = (struct log *)mmap(nullptr, sizeof(struct log), PROT_READ | PROT_WRITE,
					      MAP_SHARED, fd, 0);
		for (uint32_t i = LOG_SLOTS; i-- > 0;)
			pool.slots.push_back(i);
	}
	for (int i = 0; i < threads; i++)
		all.emplace_back(storm, steps, seed + (unsigned int)i, look, &wrong[(size_t)i]);
	for (int i = 0; i < threads; i++) {
		all[(size_t)i].join();
		sum += wrong[(size_t)i];
	}
	return sum;
}
