/* demo_app.cu - an ordinary CUDA program: the main job of `make demo`.
 *
 *   demo_app                     do everything once, free it, exit
 *   demo_app --wait SECONDS      do everything, print "waiting", keep it all that long, free it
 *   demo_app --leak              do everything and exit without freeing
 *   demo_app --loop [--max-seconds S] [--threads N] [--count-file FILE]
 *                                allocate and free until killed, for S seconds at most (60)
 *
 * It launches kernels on several streams and takes memory of every sort an application does:
 * cudaMalloc, cudaMallocAsync, managed, pitched, pinned, virtual memory management through the
 * driver, an allocation shared with another process, and more than there is, which fails and is
 * caught. In --loop FILE is mapped as 64 pairs of 64-bit counters, one pair a thread: calls that
 * allocated and have returned, calls that freed and have returned. They are there whatever kills
 * the program, which is how a test knows what a recovered journal must hold.
 */
#include <cudaTypedefs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <vector>

#include "test/apps/app.h"
#include "test/apps/child.h"

#define STREAMS 4
#define WORDS (1u << 18)	/* 1 MiB each */

struct work {
	cudaStream_t stream[STREAMS];
	uint32_t *device[STREAMS], *async[STREAMS];
	void *managed, *pitched, *pinned, *shared;
	CUdeviceptr virtual_range;
	CUmemGenericAllocationHandle virtual_handle;
	size_t virtual_bytes;
};

static void take_memory(struct work *work)
{
	size_t pitch;

	for (int i = 0; i < STREAMS; i++) {
		CHECK(cudaStreamCreateWithFlags(&work->stream[i], cudaStreamNonBlocking));
		CHECK(cudaMalloc(&work->device[i], WORDS * sizeof(uint32_t)));
		CHECK(cudaMallocAsync(&work->async[i], WORDS * sizeof(uint32_t), work->stream[i]));
	}
	CHECK(cudaMallocManaged(&work->managed, 3 << 20));
	CHECK(cudaMallocPitch(&work->pitched, &pitch, 1000, 300));
	expect(pitch >= 1000 && pitch % 256 == 0, "pitched");
	CHECK(cudaMallocHost(&work->pinned, 1 << 20));
	CHECK(cudaMalloc(&work->shared, 5 << 20));
	CHECK(cudaMemset(work->shared, 0x5a, 5 << 20));
	memset(work->pinned, 7, 1 << 20);
	CHECK(cudaMemcpy(work->managed, work->pinned, 1 << 20, cudaMemcpyDefault));
	expect(holds_byte(work->managed, 7, 1 << 20), "managed from pinned");
}

static void launch_kernels(struct work *work)
{
	bool right = true;

	for (int i = 0; i < STREAMS; i++) {
		fill<<<blocks_for(WORDS), 256, 0, work->stream[i]>>>(work->device[i], 1000u + i,
								     WORDS);
		fill<<<blocks_for(WORDS), 256, 0, work->stream[i]>>>(work->async[i], 10u, WORDS);
		add<<<blocks_for(WORDS), 256, 0, work->stream[i]>>>(work->async[i], 5u + i, WORDS);
		CHECK(cudaGetLastError());
	}
	for (int i = 0; i < STREAMS; i++) {
		CHECK(cudaStreamSynchronize(work->stream[i]));
		right = right && holds_word(work->device[i], 1000u + i, WORDS) &&
			holds_word(work->async[i], 15u + i, WORDS);
	}
	expect(right, "kernels on 4 streams");
}

static void map_virtual_memory(struct work *work)
{
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};
	size_t granularity = 0;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = 0;
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CHECK_DRIVER(DRIVER(cuMemGetAllocationGranularity, 10020)(
		&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	work->virtual_bytes = 2 * granularity;
	CHECK_DRIVER(DRIVER(cuMemAddressReserve, 10020)(&work->virtual_range, work->virtual_bytes,
							0, 0, 0));
	CHECK_DRIVER(DRIVER(cuMemCreate, 10020)(&work->virtual_handle, work->virtual_bytes, &prop,
						0));
	CHECK_DRIVER(DRIVER(cuMemMap, 10020)(work->virtual_range, work->virtual_bytes, 0,
					     work->virtual_handle, 0));
	CHECK_DRIVER(DRIVER(cuMemSetAccess, 10020)(work->virtual_range, work->virtual_bytes,
						   &access, 1));
	CHECK(cudaMemset((void *)work->virtual_range, 0x21, work->virtual_bytes));
	expect(holds_byte((void *)work->virtual_range, 0x21, work->virtual_bytes),
	       "virtual memory management");
}

/* Ask for more than any device has; the program goes on. */
static void run_out_of_memory(void)
{
	size_t free_bytes, total_bytes;
	void *ptr = NULL;
	cudaError_t error;

	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	error = cudaMalloc(&ptr, 2 * total_bytes);
	expect(error == cudaErrorMemoryAllocation && !ptr, "out of memory, caught");
	expect(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess,
	       "and cleared");
}

static void share_with(struct child *child, struct work *work)
{
	cudaIpcMemHandle_t handle;

	CHECK(cudaIpcGetMemHandle(&handle, work->shared));
	child_send(child, &handle, sizeof(handle));
	expect(child_finish(child, "importer: ") == 0, "shared with another process");
	expect(holds_byte(work->shared, 0xa5, 5 << 20), "and written there");
}

/* The other process: import, look, write. */
static int importer(void)
{
	cudaIpcMemHandle_t handle;
	void *ptr;

	if (!child_receive(&handle, sizeof(handle)))
		return 1;
	CHECK(cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess));
	expect(holds_byte(ptr, 0x5a, 5 << 20), "imported");
	CHECK(cudaMemset(ptr, 0xa5, 5 << 20));
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaIpcCloseMemHandle(ptr));
	return 0;
}

static void give_back(struct work *work)
{
	CHECK_DRIVER(DRIVER(cuMemUnmap, 10020)(work->virtual_range, work->virtual_bytes));
	CHECK_DRIVER(DRIVER(cuMemRelease, 10020)(work->virtual_handle));
	CHECK_DRIVER(DRIVER(cuMemAddressFree, 10020)(work->virtual_range, work->virtual_bytes));
	for (int i = 0; i < STREAMS; i++) {
		CHECK(cudaFreeAsync(work->async[i], work->stream[i]));
		CHECK(cudaStreamSynchronize(work->stream[i]));
		CHECK(cudaFree(work->device[i]));
		CHECK(cudaStreamDestroy(work->stream[i]));
	}
	CHECK(cudaFree(work->managed));
	CHECK(cudaFree(work->pitched));
	CHECK(cudaFree(work->shared));
	CHECK(cudaFreeHost(work->pinned));
}

/* ---- --loop ---- */

struct loop {
	double end;			/* on CLOCK_MONOTONIC */
	volatile uint64_t *counters;	/* two for each thread */
};

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct loop_thread {
	const struct loop *loop;
	unsigned index;
};

/* Up to 64 allocations live at once, of many sizes, from cudaMalloc and cudaMallocAsync in turn.
 * A counter is raised after the call has returned, never before. */
static void *loop_body(void *arg)
{
	const struct loop_thread *self = (const struct loop_thread *)arg;
	volatile uint64_t *counters = self->loop->counters + 2 * self->index;
	uint32_t random = 12345 + self->index;
	struct { void *ptr; bool async; } live[64] = {};
	cudaStream_t stream;

	CHECK(cudaSetDevice(0));
	CHECK(cudaStreamCreate(&stream));
	while (seconds_now() < self->loop->end) {
		unsigned slot;
		size_t bytes;

		random = random * 1664525u + 1013904223u;
		slot = random >> 26;
		bytes = 512 + (random >> 12) % 100000;
		if (live[slot].ptr) {
			if (live[slot].async)
				CHECK(cudaFreeAsync(live[slot].ptr, stream));
			else
				CHECK(cudaFree(live[slot].ptr));
			live[slot].ptr = NULL;
			counters[1]++;
			continue;
		}
		live[slot].async = (random >> 25) & 1;
		if (live[slot].async)
			CHECK(cudaMallocAsync(&live[slot].ptr, bytes, stream));
		else
			CHECK(cudaMalloc(&live[slot].ptr, bytes));
		counters[0]++;
	}
	for (auto &one : live) {
		if (!one.ptr)
			continue;
		CHECK(cudaFree(one.ptr));
		counters[1]++;
	}
	CHECK(cudaStreamDestroy(stream));
	return NULL;
}

#define COUNTER_BYTES (128 * sizeof(uint64_t))

static int loop(const char *count_file, unsigned threads, double max_seconds)
{
	int fd = count_file ? open(count_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	int flags = count_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	struct loop shared = { seconds_now() + max_seconds, NULL };
	std::vector<struct loop_thread> args(threads);
	std::vector<pthread_t> ids(threads);
	uint64_t allocations = 0, frees = 0;

	if (count_file && (fd < 0 || ftruncate(fd, COUNTER_BYTES)))
		DIE("cannot make %s", count_file);
	shared.counters = (volatile uint64_t *)mmap(NULL, COUNTER_BYTES, PROT_READ | PROT_WRITE,
						    flags, fd, 0);
	if (shared.counters == MAP_FAILED)
		DIE("cannot map the counters");
	say("looping");
	for (unsigned i = 0; i < threads; i++) {
		args[i] = { &shared, i };
		if (pthread_create(&ids[i], NULL, loop_body, &args[i]))
			DIE("pthread_create");
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		allocations += shared.counters[2 * i];
		frees += shared.counters[2 * i + 1];
	}
	expect(allocations > 0 && allocations == frees, "every allocation freed");
	return 0;
}

static void wait_seconds(double seconds)
{
	double end = seconds_now() + seconds;

	say("waiting");
	while (seconds_now() < end)
		usleep(50000);	/* a signal may cut it short; the clock decides */
}

int main(int argc, char **argv)
{
	double wait = 0, max_seconds = 60;
	const char *count_file = NULL;
	bool leak = false, looping = false;
	unsigned threads = 1;
	struct child child;
	struct work work = {};

	for (int i = 1; i < argc; i++) {
		bool more = i + 1 < argc;

		if (!strcmp(argv[i], "--importer"))
			return importer();
		else if (!strcmp(argv[i], "--leak"))
			leak = true;
		else if (!strcmp(argv[i], "--loop"))
			looping = true;
		else if (!strcmp(argv[i], "--wait") && more)
			wait = atof(argv[++i]);
		else if (!strcmp(argv[i], "--max-seconds") && more)
			max_seconds = atof(argv[++i]);
		else if (!strcmp(argv[i], "--threads") && more)
			threads = (unsigned)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--count-file") && more)
			count_file = argv[++i];
		else
			DIE("unknown argument %s", argv[i]);
	}
	if (threads < 1 || threads > 64)
		DIE("--threads: 1 to 64");
	if (looping)
		return loop(count_file, threads, max_seconds);

	child = child_start("--importer");
	take_memory(&work);
	launch_kernels(&work);
	map_virtual_memory(&work);
	run_out_of_memory();
	share_with(&child, &work);
	checkpoint("everything live");
	if (wait > 0)
		wait_seconds(wait);
	if (!leak) {
		give_back(&work);
		checkpoint("everything freed");
	}
	say("demo_app: done");
	return 0;
}
