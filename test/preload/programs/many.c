/*
 * many.c - threads that allocate and free at once, every kind, on two devices, some from one thread
 * to another, and that retain and release their primary context now and then, while the main
 * thread takes snapshots. Then a checkpoint, a reset of both devices, and another checkpoint. Ends
 * by SIGKILL where asked, before the reset.
 *
 * usage: many THREADS ROUNDS SEED [kill]
 *
 * Thread context: as it says. The driver is found by dlopen, as bindings of other languages do; what
 * the whole program exports by the same name comes first (a preloaded library, or one linked in).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "test/apps/checkpoint.h"

#define SLOTS 64	/* pointers on their way from one thread to another */
#define KEPT 32		/* of each thread's own */
#define PAGE ((size_t)2 << 20)

enum what { LINEAR, MANAGED, ASYNC, HOST, HANDLE, MAPPED, WHATS };

struct thing {
	enum what what;
	uint64_t value;
	CUdeviceptr address;	/* of a handle that is mapped */
};

static struct {
	PFN_cuInit_v2000 init;
	PFN_cuDevicePrimaryCtxRetain_v7000 retain;
	PFN_cuDevicePrimaryCtxRelease_v11000 release_primary;
	PFN_cuDevicePrimaryCtxReset_v11000 reset;
	PFN_cuMemGetInfo_v3020 mem_info;
	PFN_cuCtxSetCurrent_v4000 set_current;
	PFN_cuCtxSynchronize_v2000 synchronize;
	PFN_cuMemAlloc_v3020 alloc;
	PFN_cuMemAllocManaged_v6000 managed;
	PFN_cuMemFree_v3020 free;
	PFN_cuMemAllocAsync_v11020 alloc_async;
	PFN_cuMemFreeAsync_v11020 free_async;
	PFN_cuMemHostAlloc_v2020 host_alloc;
	PFN_cuMemFreeHost_v2000 free_host;
	PFN_cuMemCreate_v10020 create;
	PFN_cuMemRelease_v10020 release;
	PFN_cuMemAddressReserve_v10020 reserve;
	PFN_cuMemAddressFree_v10020 unreserve;
	PFN_cuMemMap_v10020 map;
	PFN_cuMemUnmap_v10020 unmap;
	PFN_cuMemRetainAllocationHandle_v11000 retain_handle;
} cu;

static CUcontext contexts[2];
static _Atomic(struct thing *) on_the_way[SLOTS];
static long rounds;
static _Atomic(long) errors;

static void *entry(void *driver, const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);

	if (!function)
		function = dlsym(driver, name);
	if (!function)
		DIE("no %s", name);
	return function;
}

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (!driver)
		DIE("%s", dlerror());
	cu.init = (PFN_cuInit_v2000)entry(driver, "cuInit");
	cu.retain = (PFN_cuDevicePrimaryCtxRetain_v7000)entry(driver, "cuDevicePrimaryCtxRetain");
	cu.release_primary = (PFN_cuDevicePrimaryCtxRelease_v11000)
		entry(driver, "cuDevicePrimaryCtxRelease_v2");
	cu.reset = (PFN_cuDevicePrimaryCtxReset_v11000)entry(driver, "cuDevicePrimaryCtxReset_v2");
	cu.mem_info = (PFN_cuMemGetInfo_v3020)entry(driver, "cuMemGetInfo_v2");
	cu.set_current = (PFN_cuCtxSetCurrent_v4000)entry(driver, "cuCtxSetCurrent");
	cu.synchronize = (PFN_cuCtxSynchronize_v2000)entry(driver, "cuCtxSynchronize");
	cu.alloc = (PFN_cuMemAlloc_v3020)entry(driver, "cuMemAlloc_v2");
	cu.managed = (PFN_cuMemAllocManaged_v6000)entry(driver, "cuMemAllocManaged");
	cu.free = (PFN_cuMemFree_v3020)entry(driver, "cuMemFree_v2");
	cu.alloc_async = (PFN_cuMemAllocAsync_v11020)entry(driver, "cuMemAllocAsync");
	cu.free_async = (PFN_cuMemFreeAsync_v11020)entry(driver, "cuMemFreeAsync");
	cu.host_alloc = (PFN_cuMemHostAlloc_v2020)entry(driver, "cuMemHostAlloc");
	cu.free_host = (PFN_cuMemFreeHost_v2000)entry(driver, "cuMemFreeHost");
	cu.create = (PFN_cuMemCreate_v10020)entry(driver, "cuMemCreate");
	cu.release = (PFN_cuMemRelease_v10020)entry(driver, "cuMemRelease");
	cu.reserve = (PFN_cuMemAddressReserve_v10020)entry(driver, "cuMemAddressReserve");
	cu.unreserve = (PFN_cuMemAddressFree_v10020)entry(driver, "cuMemAddressFree");
	cu.map = (PFN_cuMemMap_v10020)entry(driver, "cuMemMap");
	cu.unmap = (PFN_cuMemUnmap_v10020)entry(driver, "cuMemUnmap");
	cu.retain_handle = (PFN_cuMemRetainAllocationHandle_v11000)
		entry(driver, "cuMemRetainAllocationHandle");
}

/* A handle, mapped; every other one lives by its mapping alone. */
static CUresult make_mapped(size_t bytes, const CUmemAllocationProp *prop, struct thing *thing)
{
	CUmemGenericAllocationHandle handle, again;
	CUresult r = cu.create(&handle, PAGE, prop, 0);

	if (!r)
		r = cu.reserve(&thing->address, PAGE, 0, 0, 0);
	if (!r)
		r = cu.map(thing->address, PAGE, 0, handle, 0);
	if (!r && bytes % 4 == 0)
		r = cu.retain_handle(&again, (void *)thing->address) || cu.release(again);
	if (!r && bytes % 2)
		return cu.release(handle);
	thing->value = handle;
	return r;
}

static CUresult make(struct thing *thing, size_t bytes, int device)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
						   .id = device } };
	CUdeviceptr ptr = 0;
	void *host = NULL;
	CUresult r;

	switch (thing->what) {
	case LINEAR:
		r = cu.alloc(&ptr, bytes);
		break;
	case MANAGED:
		r = cu.managed(&ptr, bytes, CU_MEM_ATTACH_GLOBAL);
		break;
	case ASYNC:
		r = cu.alloc_async(&ptr, bytes, NULL);
		break;
	case HOST:
		r = cu.host_alloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE);
		ptr = (CUdeviceptr)(uintptr_t)host;
		break;
	case HANDLE:
		return cu.create((CUmemGenericAllocationHandle *)&thing->value, PAGE, &prop, 0);
	default:
		return make_mapped(bytes, &prop, thing);
	}
	thing->value = ptr;
	return r;
}

static CUresult end(const struct thing *thing)
{
	switch (thing->what) {
	case LINEAR:
	case MANAGED:
		return cu.free(thing->value);
	case ASYNC:
		return cu.free_async(thing->value, NULL);
	case HOST:
		return cu.free_host((void *)(uintptr_t)thing->value);
	case HANDLE:
		return cu.release(thing->value);
	default:
		if (thing->value && cu.release(thing->value))
			return CUDA_ERROR_UNKNOWN;
		return cu.unmap(thing->address, PAGE) || cu.unreserve(thing->address, PAGE);
	}
}

static bool is_there(const struct thing *thing)
{
	return thing->value || thing->address;
}

/* Give @thing to whoever comes by; end what lay there. */
static void pass_on(struct thing thing, unsigned int slot)
{
	struct thing *box = malloc(sizeof(*box)), *old;

	if (!box)
		DIE("malloc");
	*box = thing;
	old = atomic_exchange(&on_the_way[slot % SLOTS], box);
	if (old && end(old))
		errors++;
	free(old);
}

static void *worker(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	int device = (int)(seed & 1);
	struct thing kept[KEPT] = { 0 };

	if (cu.set_current(contexts[device]))
		DIE("cuCtxSetCurrent");
	for (long i = 0; i < rounds; i++) {
		struct thing *thing = &kept[rand_r(&seed) % KEPT];
		struct thing new = { .what = (enum what)(rand_r(&seed) % WHATS) };
		CUcontext same;

		if (rand_r(&seed) % 16 == 0 &&
		    (cu.retain(&same, device) || cu.release_primary(device)))
			errors++;
		if (make(&new, 1u + (unsigned)rand_r(&seed) % 100000, device)) {
			errors++;
		} else if (rand_r(&seed) % 4 == 0 && new.what != ASYNC) {
			pass_on(new, (unsigned int)rand_r(&seed));	/* to another context */
		} else {
			if (is_there(thing) && end(thing))
				errors++;
			*thing = new;
		}
	}
	for (int i = 0; i < KEPT; i += 2) {	/* the other half stays */
		if (is_there(&kept[i]) && end(&kept[i]))
			errors++;
	}
	return NULL;
}

static void take_snapshots(_Atomic(int) *left)
{
	typedef int snapshot_fn(const char *path);
	snapshot_fn *snapshot = (snapshot_fn *)dlsym(RTLD_DEFAULT, "gpumem_snapshot");
	const char *dir = getenv("CHECKPOINT_DIR");
	char path[4096];

	for (int i = 0; snapshot && dir && *left; i++) {
		snprintf(path, sizeof(path), "%s/live.%d.json", dir, i % 8);
		unlink(path);
		if (snapshot(path))
			errors++;
	}
}

static _Atomic(int) running;

static void *counted(void *arg)
{
	worker(arg);
	running--;
	return NULL;
}

static void synchronize(int device)
{
	if (cu.set_current(contexts[device]) || cu.synchronize())
		DIE("cuCtxSynchronize");
}

static void mem_info(int device, size_t *ret_free, size_t *ret_total)
{
	if (cu.set_current(contexts[device]) || cu.mem_info(ret_free, ret_total))
		DIE("cuMemGetInfo");
}

static void reset_both(void)
{
	for (int i = 0; i < 2; i++) {
		if (cu.reset(i) || cu.retain(&contexts[i], i))
			DIE("no reset");
	}
}

int main(int argc, char **argv)
{
	static const struct checkpoint_driver driver = { synchronize, mem_info };
	pthread_t threads[64];
	int count = argc > 1 ? atoi(argv[1]) : 4;
	unsigned int seed = argc > 3 ? (unsigned int)atoi(argv[3]) : 1;

	rounds = argc > 2 ? atol(argv[2]) : 1000;
	find_driver();
	if (cu.init(0) || cu.retain(&contexts[0], 0) || cu.retain(&contexts[1], 1) || count > 64)
		DIE("no start");
	running = count;
	for (int i = 0; i < count; i++) {
		void *arg = (void *)(uintptr_t)(seed * 100 + (unsigned)i);

		if (pthread_create(&threads[i], NULL, counted, arg))
			DIE("pthread_create");
	}
	take_snapshots(&running);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	say("all stopped, %ld errors", (long)errors);
	checkpoint_with(&driver, "", 2, "all stopped");
	if (argc > 4)
		kill(getpid(), SIGKILL);
	reset_both();
	checkpoint_with(&driver, "", 2, "both devices reset");
	return errors != 0;
}
