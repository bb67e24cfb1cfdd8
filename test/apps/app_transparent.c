/* app_transparent.c - what the driver tells a program of its memory, line by line: under the
 * caching allocator it must tell the same, to the last line.
 *
 * Ranges, attributes, free bytes, exports to another process (this program again), default pools.
 * Nothing that it prints depends on where memory lies. Thread context: one thread each.
 */
#define _GNU_SOURCE
#include "test/apps/drv.h"
#include "test/apps/child.h"

#define MIB ((size_t)1 << 20)
#define BLOCKS 9
#define TRY(call) say("%s: %d", #call, (int)(call))

static const size_t sizes[BLOCKS] = { 1, 511, 512, 5000, 100000, MIB, MIB + 1, 3 * MIB + 7, 24 * MIB + 5 };

static void start(void)
{
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&drv_context[0], 0));
	CHECK(cuCtxSetCurrent(drv_context[0]));
}

/* ---- what a pointer is ---- */

static void range_of(const char *what, CUdeviceptr block, CUdeviceptr ptr)
{
	CUdeviceptr base = 77, start_address = 77;
	size_t size = 77, range = 77;
	CUresult r = cuMemGetAddressRange(&base, &size, ptr), a, b;

	a = cuPointerGetAttribute(&start_address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr);
	b = cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr);
	say("%s: range %d, %s, %zu; start %d, %s; size %d, %zu", what, (int)r,
	    base == block ? "its base" : base == 77 ? "untouched" : "another base", size, (int)a,
	    start_address == block ? "its base" : start_address == 77 ? "untouched" : "another", (int)b,
	    range);
}

static void attributes_of(const char *what, CUdeviceptr ptr)
{
	static CUpointer_attribute which[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
	};
	unsigned long long values[6] = { 0 };
	void *data[6];
	CUmemoryPool pool = NULL;
	CUcontext context = NULL;
	CUresult r;

	for (int i = 0; i < 6; i++)
		data[i] = &values[i];
	r = cuPointerGetAttributes(6, which, data, ptr);
	say("%s: together %d: %llu %d %llu %llu %llu %llu", what, (int)r, values[0], (int)values[1],
	    values[2], values[3] & 0xff, values[4] & 0xff, values[5] & 0xff);
	for (int i = 0; i < 6; i++) {
		unsigned long long value = 0;

		r = cuPointerGetAttribute(&value, which[i], ptr);
		say("%s: attribute %d: %d, %llu", what, (int)which[i], (int)r, value & 0xffffffff);
	}
	r = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
	say("%s: context %d, %s", what, (int)r, context == drv_context[0] ? "ours" : "none");
	r = cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr);
	say("%s: pool %d, %s", what, (int)r, pool ? "one" : "none");
}

static unsigned long long id_of(CUdeviceptr ptr)
{
	unsigned long long id = 0;

	CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	return id;
}

static void pointers(void)
{
	CUdeviceptr blocks[BLOCKS];
	unsigned long long ids[BLOCKS], old;
	unsigned int one = 1, zero = 0;
	char what[64];

	for (int i = 0; i < BLOCKS; i++)
		CHECK(cuMemAlloc(&blocks[i], sizes[i]));
	for (int i = 0; i < BLOCKS; i++) {
		snprintf(what, sizeof(what), "%zu bytes", sizes[i]);
		range_of(what, blocks[i], blocks[i]);
		range_of("from its last byte", blocks[i], blocks[i] + sizes[i] - 1);
		attributes_of(what, blocks[i]);
		ids[i] = id_of(blocks[i]);
		say("one id from end to end: %s", id_of(blocks[i] + sizes[i] - 1) == ids[i] ? "yes" : "no");
		for (int k = 0; k < i; k++)
			if (ids[k] == ids[i])
				say("the id of another");
		say("aligned: %s", blocks[i] % 512 ? "no" : "yes");
	}
	range_of("one past a single byte", blocks[0], blocks[0] + 1);
	attributes_of("one past a single byte", blocks[0] + 1);
	TRY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[3]));
	TRY(cuPointerSetAttribute(&zero, CU_POINTER_ATTRIBUTE_BUFFER_ID, blocks[3]));
	old = ids[4];
	CHECK(cuMemFree(blocks[4]));
	range_of("freed", blocks[4], blocks[4]);
	attributes_of("freed", blocks[4]);
	TRY(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, blocks[4]));
	TRY(cuMemFree(blocks[4]));
	TRY(cuMemFree(blocks[5] + 512));
	CHECK(cuMemAlloc(&blocks[4], sizes[4]));
	say("a new id: %s", id_of(blocks[4]) == old ? "no" : "yes");
	for (int i = 0; i < BLOCKS; i++)
		CHECK(cuMemFree(blocks[i]));
	for (int i = 0; i < BLOCKS; i++)
		range_of("all freed", blocks[i], blocks[i]);
	attributes_of("host memory", (CUdeviceptr)(uintptr_t)sizes);
	attributes_of("nothing", 0);
}

/* ---- free memory ---- */

static void free_memory(void)
{
	size_t before, after, total, whole;
	CUdeviceptr p[40];

	CHECK(cuMemGetInfo(&before, &whole));
	for (int i = 0; i < 40; i++)
		CHECK(cuMemAlloc(&p[i], (size_t)(i + 1) * 300000));
	CHECK(cuMemGetInfo(&after, &total));
	say("less is free: %s; the total is one: %s", after < before ? "yes" : "no",
	    total == whole ? "yes" : "no");
	for (int i = 0; i < 40; i++)
		CHECK(cuMemFree(p[i]));
	CHECK(cuCtxSynchronize());
	CHECK(cuMemGetInfo(&after, &total));
	say("all is free again: %s", after == before ? "yes" : "no");
	if (after != before)
		fprintf(stderr, "free bytes: %zu, then %zu\n", before, after);
	TRY(cuMemAlloc(&p[0], total * 2));
	CHECK(cuMemAlloc(&p[0], before / 4 * 3));	/* nothing that is cached is in its way */
	CHECK(cuMemFree(p[0]));
}

/* ---- other processes ---- */

struct message { CUipcMemHandle handle[BLOCKS]; };

static CUipcMemHandle handle_of(CUdeviceptr ptr)
{
	CUipcMemHandle handle;

	CHECK(cuIpcGetMemHandle(&handle, ptr));
	return handle;
}

static int exporter(void)
{
	CUdeviceptr blocks[BLOCKS], gone;
	struct message message;
	CUipcMemHandle handle;
	char byte;

	start();
	CHECK(cuMemAlloc(&gone, 3000));
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(cuMemAlloc(&blocks[i], sizes[i]));
		CHECK(cuMemsetD8(blocks[i], (unsigned char)(0x30 + i), sizes[i]));
	}
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFree(gone));
	for (int i = 0; i < BLOCKS; i++) {
		CUipcMemHandle inside = handle_of(blocks[i] + sizes[i] - 1);

		message.handle[i] = handle_of(blocks[i]);
		if (memcmp(&inside, &message.handle[i], sizeof(inside)))
			DIE("another handle from inside");
	}
	if (cuIpcGetMemHandle(&handle, gone) != CUDA_ERROR_INVALID_VALUE)
		DIE("freed memory was exported");
	if (fwrite(&message, sizeof(message), 1, stdout) != 1 || fflush(stdout))
		DIE("cannot write");
	child_receive(&byte, 1);
	for (int i = 0; i < BLOCKS; i++) {
		if (!holds_byte(blocks[i], (unsigned char)(0x60 + i), sizes[i]))
			DIE("what the importer wrote into block %d is not there", i);
		CHECK(cuMemFree(blocks[i]));
	}
	return 0;
}

static void imports(const struct message *message)
{
	CUdeviceptr first[BLOCKS], again;
	CUipcMemHandle other;
	char what[64];

	for (int i = 0; i < BLOCKS; i++) {
		CHECK(cuIpcOpenMemHandle(&first[i], message->handle[i],
					 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		snprintf(what, sizeof(what), "imported %zu bytes", sizes[i]);
		say("%s: what was written: %s", what,
		    holds_byte(first[i], (unsigned char)(0x30 + i), sizes[i]) ? "yes" : "no");
		range_of(what, first[i], first[i]);
		range_of("from its last byte", first[i], first[i] + sizes[i] - 1);
		say("exported once more: %d", (int)cuIpcGetMemHandle(&other, first[i]));
		CHECK(cuMemsetD8(first[i], (unsigned char)(0x60 + i), sizes[i]));
	}
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < BLOCKS; i += 2) {
		CHECK(cuIpcOpenMemHandle(&again, message->handle[i],
					 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		say("opened again: %s", again == first[i] ? "at the same address" : "elsewhere");
	}
	TRY(cuIpcCloseMemHandle(first[3] + 512));
	TRY(cuMemFree(first[3]));
	for (int i = 0; i < BLOCKS; i++) {
		int closed = 0;

		while (closed < 5 && cuIpcCloseMemHandle(first[i]) == CUDA_SUCCESS)
			closed++;
		say("closed: %d times", closed);
		range_of("closed", first[i], first[i]);
	}
}

/* ---- the default pool ---- */

static uint64_t number(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	uint64_t value = 0;

	CHECK(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void used(const char *what, CUmemoryPool pool)
{
	say("%s: used %llu, high %llu", what,
	    (unsigned long long)number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
	    (unsigned long long)number(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

static void reserved(const char *what, CUmemoryPool pool)
{
	say("%s: reserved %llu", what,
	    (unsigned long long)number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

static void pools(uint64_t threshold)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
	CUmemoryPool pool, other;
	CUmemAccess_flags access;
	uint64_t zero = 0;
	CUdeviceptr a, b, c;
	CUstream stream;
	int off = 0, on = 1;

	CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	say("the threshold: %s", number(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold ? "as set" :
	    "another");
	used("before", pool);
	CHECK(cuMemAllocAsync(&a, 1, stream));
	used("1 byte", pool);
	CHECK(cuMemAllocAsync(&b, 1000000, stream));
	CHECK(cuMemAllocAsync(&c, 10 * MIB, stream));
	used("and 1000000, and 10 MiB", pool);
	range_of("of the pool", b, b + 999999);
	attributes_of("of the pool", b);
	CHECK(cuMemFreeAsync(b, stream));
	used("the second freed", pool);
	range_of("freed in order", b, b);
	TRY(cuMemFreeAsync(b, stream));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	used("the high mark reset", pool);
	CHECK(cuMemFreeAsync(a, stream));
	CHECK(cuMemFreeAsync(c, stream));
	used("all freed", pool);
	CHECK(cuStreamSynchronize(stream));
	used("synchronised", pool);
	if (!threshold)
		reserved("synchronised", pool);
	CHECK(cuMemPoolTrimTo(pool, 0));
	reserved("trimmed", pool);
	TRY(cuMemPoolGetAccess(&access, pool, &here));

	CHECK(cuMemPoolCreate(&other, &props));
	CHECK(cuDeviceSetMemPool(0, other));
	CHECK(cuMemAllocAsync(&a, 5000, stream));
	used("another pool is current", pool);
	used("that one", other);
	CHECK(cuMemAllocFromPoolAsync(&b, 7000, pool, stream));
	used("the default one by name", pool);
	CHECK(cuMemFreeAsync(b, stream));
	CHECK(cuMemFreeAsync(a, stream));
	CHECK(cuMemPoolDestroy(other));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
	CHECK(cuMemAllocAsync(&a, 6000, stream));
	used("without reuse", pool);
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
	CHECK(cuMemFreeAsync(a, stream));
	CHECK(cuStreamSynchronize(stream));
	used("at the end", pool);
	CHECK(cuStreamDestroy(stream));
}

/* Nothing is asked after it: the driver goes on counting what cuMemFree took back as used, also
 * when all is synchronised. */
static void freed_otherwise(void)
{
	CUdeviceptr ptr;

	CHECK(cuMemAllocAsync(&ptr, 10 * MIB, NULL));
	CHECK(cuMemFree(ptr));
	TRY(cuMemFree(ptr));
}

int main(int argc, char **argv)
{
	struct message message;
	struct child child;
	char byte = 0;

	if (argc > 1 && !strcmp(argv[1], "--exporter"))
		return exporter();
	child = child_start("--exporter");
	if (fread(&message, sizeof(message), 1, child.from) != 1)
		DIE("nothing from the exporter");
	start();
	pointers();
	free_memory();
	imports(&message);
	child_send(&child, &byte, 1);
	pools(0);
	pools(UINT64_MAX);
	freed_otherwise();
	CHECK(cuDevicePrimaryCtxRelease(0));
	expect(child_finish(&child, "exporter: ") == 0, "the exporter");
	say("app_transparent: done");
	return 0;
}
