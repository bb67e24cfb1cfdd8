/* app_ipc.c - memory of another process, opened by its handle: twice, of two
 * allocations, closed wrongly, and still open when the context ends.
 *
 * The exporter is this program again. Thread context: one thread each.
 */
#define _GNU_SOURCE
#include "test/apps/drv.h"
#include "test/apps/child.h"

#define MIB ((size_t)1 << 20)
#define TRY(call) say("%s: %d", #call, (int)(call))

struct message {
	CUipcMemHandle big, small;
};

static void start(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
}

static int exporter(void)
{
	struct message message;
	CUdeviceptr big, small;
	char byte;

	start();
	CHECK(cuMemAlloc(&big, 6 * MIB));
	CHECK(cuMemAlloc(&small, 70000));
	CHECK(cuMemsetD8(big, 0x55, 6 * MIB));
	CHECK(cuCtxSynchronize());
	CHECK(cuIpcGetMemHandle(&message.big, big));
	CHECK(cuIpcGetMemHandle(&message.small, small));
	if (fwrite(&message, sizeof(message), 1, stdout) != 1 || fflush(stdout))
		DIE("cannot write");
	child_receive(&byte, 1);	/* until the importer is done */
	CHECK(cuMemFree(big));
	CHECK(cuMemFree(small));
	return 0;
}

static void opened_twice(const struct message *message)
{
	CUdeviceptr first, second, other, own;

	CHECK(cuMemAlloc(&own, 2 * MIB));
	CHECK(cuIpcOpenMemHandle(&first, message->big, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	expect(holds_byte(first, 0x55, 6 * MIB), "another process's memory");
	checkpoint(1, "opened");
	CHECK(cuIpcOpenMemHandle(&second, message->big, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	say("opened again, at the same address: %s", first == second ? "yes" : "no");
	CHECK(cuIpcOpenMemHandle(&other, message->small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	checkpoint(1, "opened again, and another one");
	TRY(cuMemFree(first));
	TRY(cuIpcCloseMemHandle(own));
	TRY(cuIpcCloseMemHandle(first + 512));
	CHECK(cuIpcCloseMemHandle(second));
	checkpoint(1, "closed once of twice");
	CHECK(cuIpcCloseMemHandle(first));
	CHECK(cuIpcCloseMemHandle(other));
	TRY(cuIpcCloseMemHandle(first));
	CHECK(cuMemFree(own));
	checkpoint(1, "all closed");
}

static void open_at_the_end(const struct message *message)
{
	CUdeviceptr ptr;

	CHECK(cuIpcOpenMemHandle(&ptr, message->big, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	checkpoint(1, "opened once more");
	CHECK(cuDevicePrimaryCtxReset(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
	checkpoint(1, "reset while open");
	CHECK(cuIpcOpenMemHandle(&ptr, message->big, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	checkpoint(1, "and opened after it");
	CHECK(cuIpcCloseMemHandle(ptr));
	checkpoint(1, "closed");
}

int main(int argc, char **argv)
{
	struct message message;
	struct child child;

	if (argc > 1 && !strcmp(argv[1], "--exporter"))
		return exporter();
	child = child_start("--exporter");
	if (fread(&message, sizeof(message), 1, child.from) != 1)
		DIE("nothing from the exporter");
	start();
	opened_twice(&message);
	open_at_the_end(&message);
	CHECK(cuDevicePrimaryCtxRelease(0));
	expect(child_finish(&child, "exporter: ") == 0, "the exporter");
	say("app_ipc: done");
	return 0;
}
