/* app_pools.c - memory pools: of both devices and of the host, destroyed with memory live, shared
 * with another process (this program again, which exports).
 *
 * Thread context: one thread.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>

#include "test/apps/drv.h"
#include "test/apps/child.h"

#define TRY(call) say("%s: %d", #call, (int)(call))

static CUmemoryPool make_pool(CUmemLocationType type, int id, bool shared)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = type, .id = id } };
	CUmemoryPool pool;

	if (shared)
		props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK(cuMemPoolCreate(&pool, &props));
	return pool;
}

static void both_devices(void)
{
	CUmemoryPool here = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, false);
	CUmemoryPool there = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 1, false), normal;
	CUstream mine, other;
	CUdeviceptr p[6];

	CHECK(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
	CHECK(cuCtxPushCurrent(drv_context[1]));
	CHECK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	CHECK(cuCtxPopCurrent(NULL));
	CHECK(cuMemAllocFromPoolAsync(&p[0], 100000, here, mine));
	CHECK(cuMemAllocFromPoolAsync(&p[1], 200000, there, mine));
	CHECK(cuMemAllocAsync(&p[2], 300000, other));
	checkpoint(2, "pools of both devices, and a stream of the other");
	CHECK(cuDeviceGetDefaultMemPool(&normal, 1));
	CHECK(cuMemAllocFromPoolAsync(&p[3], 400000, normal, mine));
	CHECK(cuDeviceSetMemPool(1, there));
	CHECK(cuMemAllocAsync(&p[4], 500000, other));
	CHECK(cuMemAllocAsync(&p[5], 600000, CU_STREAM_PER_THREAD));
	CHECK(cuDeviceSetMemPool(1, normal));
	checkpoint(2, "the default pool by its name, another one as the device's");
	CHECK(cuMemPoolDestroy(there));
	checkpoint(2, "a pool destroyed with memory live");
	for (int i = 0; i < 6; i++)
		CHECK(cuMemFreeAsync(p[i], i == 2 || i == 4 ? other : mine));
	CHECK(cuStreamSynchronize(mine));
	CHECK(cuStreamSynchronize(other));
	checkpoint(2, "all freed");
	CHECK(cuMemPoolTrimTo(here, 0));
	CHECK(cuMemPoolDestroy(here));
	CHECK(cuStreamDestroy(mine));
	CHECK(cuStreamDestroy(other));
	checkpoint(2, "pools destroyed");
}

/* The handle of a destroyed pool comes back for another device's. */
static void handles_again(void)
{
	for (int i = 0; i < 6; i++) {
		CUmemoryPool pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, i % 2, false);
		CUdeviceptr ptr;

		CHECK(cuMemAllocFromPoolAsync(&ptr, 1000u << i, pool, NULL));
		if (i == 3)
			checkpoint(2, "the fourth of some pools");
		CHECK(cuMemFreeAsync(ptr, NULL));
		CHECK(cuCtxSynchronize());
		CHECK(cuMemPoolDestroy(pool));
	}
	checkpoint(2, "none of them left");
}

static void on_the_host(void)
{
	CUmemoryPool pool;
	CUdeviceptr ptr;
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_HOST } };

	if (cuMemPoolCreate(&pool, &props)) {
		say("no pools on the host here");
		return;
	}
	CHECK(cuMemAllocFromPoolAsync(&ptr, 50000, pool, NULL));
	checkpoint(2, "a pool on the host");
	CHECK(cuMemFreeAsync(ptr, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemPoolDestroy(pool));
	checkpoint(2, "freed");
}

/* ---- two processes ---- */

struct message {
	int fd;				/* in the exporter */
	CUmemPoolPtrExportData pointer;
};

static int exporter(void)
{
	struct message message;
	CUmemoryPool pool;
	CUdeviceptr ptr;
	char byte;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	pool = make_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, true);
	CHECK(cuMemAllocFromPoolAsync(&ptr, 6 << 20, pool, NULL));
	CHECK(cuMemsetD8Async(ptr, 0x44, 6 << 20, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemPoolExportToShareableHandle(&message.fd, pool,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemPoolExportPointer(&message.pointer, ptr));
	if (fwrite(&message, sizeof(message), 1, stdout) != 1 || fflush(stdout))
		DIE("cannot write");
	child_receive(&byte, 1);	/* until the importer is done */
	CHECK(cuMemFree(ptr));
	CHECK(cuMemPoolDestroy(pool));
	return 0;
}

/* The descriptor of a child of ours, by the kernel: no socket between us. */
static int descriptor_of(pid_t pid, int fd)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0), copy;

	if (process < 0)
		return -1;
	copy = (int)syscall(SYS_pidfd_getfd, process, fd, 0);
	close(process);
	return copy;
}

static void imported(struct child *child)
{
	struct message message;
	CUmemoryPool pool;
	CUdeviceptr ptr;
	int fd;

	if (fread(&message, sizeof(message), 1, child->from) != 1)
		DIE("nothing from the exporter");
	fd = descriptor_of(child->pid, message.fd);
	if (fd < 0)
		DIE("pidfd_getfd");
	CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemPoolImportPointer(&ptr, pool, &message.pointer));
	expect(holds_byte(ptr, 0x44, 6 << 20), "another process's pool");
	checkpoint(2, "a pointer of another process's pool");
	CHECK(cuMemFreeAsync(ptr, NULL));
	CHECK(cuCtxSynchronize());
	checkpoint(2, "freed here");
	CHECK(cuMemPoolDestroy(pool));
	expect(child_finish(child, "exporter: ") == 0, "the exporter");
}

int main(int argc, char **argv)
{
	struct child child;

	if (argc > 1 && !strcmp(argv[1], "--exporter"))
		return exporter();
	child = child_start("--exporter");
	CHECK(cuInit(0));
	need_devices(2);
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRetain(&drv_context[i], i));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	both_devices();
	handles_again();
	on_the_host();
	imported(&child);
	for (int i = 0; i < 2; i++)
		CHECK(cuDevicePrimaryCtxRelease(i));
	say("app_pools: done");
	return 0;
}
