/*
 * test_ipc.c - two processes and the same bytes: memory handles, pools, VMM descriptors, events.
 *
 * The importer is forked before cuInit; the two talk over a socket pair, in lock step.
 */
#include "common.h"

#include <sys/socket.h>
#include <sys/wait.h>

static int wire;		/* this side's end */
static pid_t importer;

static void put(const void *p, size_t n)
{
	ck_assert_int_eq(write(wire, p, n), (ssize_t)n);
}

static void get(void *p, size_t n)
{
	ck_assert_int_eq(recv(wire, p, n, MSG_WAITALL), (ssize_t)n);
}

static void put_fd(int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(wire, &msg, 0), 1);
}

static int get_fd(void)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd;

	ck_assert_int_eq(recvmsg(wire, &msg, 0), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

static void meet(void)
{
	char c = 'x';

	put(&c, 1);
	get(&c, 1);
}

/* True in the importer. */
static bool two_processes(void)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	importer = fork();
	wire = ends[importer == 0];
	close(ends[importer != 0]);
	start(0);
	return importer == 0;
}

static void finish(void)
{
	int status;

	if (!importer)
		_exit(0);
	ck_assert_int_eq(waitpid(importer, &status, 0), importer);
	ck_assert_int_eq(status, 0);
}

static uint32_t read_word(CUdeviceptr p)
{
	uint32_t v;

	ok(cuMemcpyDtoH(&v, p, 4));
	return v;
}

static void import_memory(void)
{
	CUdeviceptr p, again, base;
	CUipcMemHandle h;
	size_t size;

	get(&h, sizeof(h));
	fails(cuIpcOpenMemHandle(&p, h, 0), CUDA_ERROR_INVALID_VALUE);
	memset(h.reserved + 56, 0xaa, 8);		/* means nothing */
	ok(cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ok(cuMemGetAddressRange(&base, &size, p));
	ck_assert_uint_eq(base, p);
	ck_assert_uint_eq(size, 1000);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_IPC), 1000);
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	ck_assert_uint_eq(read_word(p), 42);
	ok(cuMemsetD32(p + 4, 43, 1));
	ok(cuCtxSynchronize());
	meet();
	ok(cuIpcOpenMemHandle(&again, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ck_assert_uint_eq(again, p);
	fails(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	ok(cuIpcCloseMemHandle(p));
	ok(cuIpcCloseMemHandle(p));
	fails(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fakecuda_live_count(0, FAKECUDA_IPC), 0);
	meet();
}

START_TEST(memory_handles)
{
	CUdeviceptr first, p, async;
	CUipcMemHandle h, interior;

	if (two_processes()) {
		import_memory();
		finish();
	}
	ok(cuMemAlloc(&first, 100));
	ok(cuMemAlloc(&p, 1000));
	ok(cuMemAllocAsync(&async, 1000, NULL));
	ok(cuMemsetD32(p, 42, 1));
	ok(cuCtxSynchronize());
	fails(cuIpcGetMemHandle(&h, async), CUDA_ERROR_INVALID_VALUE);
	ok(cuIpcGetMemHandle(&h, p));
	ok(cuIpcGetMemHandle(&interior, p + 512));	/* of an interior pointer: the base's */
	ck_assert(!memcmp(&h, &interior, sizeof(h)));
	fails(cuIpcOpenMemHandle(&first, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	      CUDA_ERROR_INVALID_CONTEXT);
	put(&interior, sizeof(interior));
	meet();
	ck_assert_uint_eq(read_word(p + 4), 43);
	meet();
	finish();
}
END_TEST

static void import_pool(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr p;
	int fd = get_fd();

	ok(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	get(&data, sizeof(data));
	ok(cuMemPoolImportPointer(&p, pool, &data));
	ck_assert_uint_eq(read_word(p), 7);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_IPC), 5000);
	fails(cuMemAllocFromPoolAsync(&p, 100, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFreeAsync(p, NULL));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_IPC), 0);
	ok(cuMemPoolDestroy(pool));
	meet();
}

START_TEST(pools)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr p;
	int fd;

	if (two_processes()) {
		import_pool();
		finish();
	}
	ok(cuMemPoolCreate(&pool, &props));
	ok(cuMemAllocFromPoolAsync(&p, 5000, pool, NULL));
	ok(cuMemsetD32(p, 7, 1));
	ok(cuCtxSynchronize());
	ok(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0));
	put_fd(fd);
	ok(cuMemPoolExportPointer(&data, p));
	put(&data, sizeof(data));
	meet();
	finish();
}
END_TEST

static CUdeviceptr map(CUmemGenericAllocationHandle h, size_t size)
{
	CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr va;

	ok(cuMemAddressReserve(&va, size, 0, 0, 0));
	ok(cuMemMap(va, size, 0, h, 0));
	ok(cuMemSetAccess(va, size, &desc, 1));
	return va;
}

static void import_vmm(void)
{
	CUmemGenericAllocationHandle h;
	CUmemAllocationProp prop;
	CUdeviceptr va;
	int fd = get_fd();

	ok(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	ok(cuMemGetAllocationPropertiesFromHandle(&prop, h));
	ck_assert_int_eq(prop.location.id, 1);
	ck_assert_uint_eq(fakecuda_live_bytes(1, FAKECUDA_IPC), 4 * MIB);
	ck_assert_uint_eq(fakecuda_live_bytes(1, FAKECUDA_VMM), 0);
	va = map(h, 4 * MIB);
	meet();			/* the exporter lets go of it */
	meet();
	ck_assert_uint_eq(read_word(va + 4 * MIB - 4), 99);
	ok(cuMemUnmap(va, 4 * MIB));
	ok(cuMemRelease(h));
	ck_assert_uint_eq(fakecuda_live_count(-1, FAKECUDA_IPC), 0);
}

START_TEST(vmm_descriptors)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
	};
	CUmemGenericAllocationHandle h, own;
	CUdeviceptr va;
	int fd;

	if (two_processes()) {
		import_vmm();
		finish();
	}
	ok(cuMemCreate(&h, 4 * MIB, &prop, 0));
	ok(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(cuMemImportFromShareableHandle(&own, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ck_assert_uint_eq(own, h);		/* one more reference to its own */
	ok(cuMemRelease(own));
	put_fd(fd);
	close(fd);
	va = map(h, 4 * MIB);
	ok(cuMemsetD32(va, 99, MIB));
	ok(cuCtxSynchronize());
	meet();
	ok(cuMemUnmap(va, 4 * MIB));
	ok(cuMemRelease(h));
	ck_assert_uint_eq(fakecuda_charged_bytes(1), 0);
	meet();
	finish();
}
END_TEST

static void import_event(void)
{
	CUipcEventHandle h;
	CUstream s;
	CUevent e;

	get(&h, sizeof(h));
	ok(cuIpcOpenEventHandle(&e, h));
	ok(cuEventSynchronize(e));
	ok(cuEventQuery(e));
	ok(cuStreamCreate(&s, 0));
	ok(cuStreamWaitEvent(s, e, 0));
	ok(cuStreamSynchronize(s));
	ok(cuEventRecord(e, s));		/* and back */
	meet();
	meet();
}

START_TEST(events)
{
	CUipcEventHandle h;
	CUevent e, plain;
	CUstream s;

	if (two_processes()) {
		import_event();
		finish();
	}
	ok(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	fails(cuIpcGetEventHandle(&h, plain), CUDA_ERROR_INVALID_HANDLE);
	fails(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	ok(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	ok(cuStreamCreate(&s, 0));
	ok(launch(function("spin"), s, NULL));
	ok(cuEventRecord(e, s));
	ok(cuIpcGetEventHandle(&h, e));
	put(&h, sizeof(h));
	meet();
	ok(cuEventSynchronize(e));
	meet();
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ipc");
	TCase *tc = new_case(suite, "ipc");

	tcase_add_test(tc, memory_handles);
	tcase_add_test(tc, pools);
	tcase_add_test(tc, vmm_descriptors);
	tcase_add_test(tc, events);
	return run_suite(suite);
}
