/*
 * scene.c - building blocks for the small programs of scenario.h: a device, its streams, memory, work.
 *
 * Thread context: the caller's.
 */
#include <pthread.h>
#include <unistd.h>

#include "test/model/scenario.h"

static const char ptx[] =
	".version 8.0\n.target sm_75\n.address_size 64\n"
	".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n){ret;}\n"
	".visible .entry copy(.param .u64 d, .param .u64 s, .param .u32 n){ret;}\n"
	".visible .entry wait_flag(.param .u64 p, .param .u32 v){ret;}\n";

void *control(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found)
		DIE("no %s: the fake driver is needed", name);
	return found;
}

void scene_open(struct scene *scene, int contexts)
{
	CHECK(cuInit(0));
	memset(scene, 0, sizeof(*scene));
	for (int c = contexts - 1; c >= 0; c--) {
		CUmodule module;

		CHECK(cuDevicePrimaryCtxRetain(&scene->context[c], c));
		CHECK(cuCtxSetCurrent(scene->context[c]));
		CHECK(cuModuleLoadData(&module, ptx));
		CHECK(cuModuleGetFunction(&scene->fill[c], module, "fill"));
		CHECK(cuModuleGetFunction(&scene->copy[c], module, "copy"));
		CHECK(cuModuleGetFunction(&scene->await[c], module, "wait_flag"));
	}
	CHECK(cuStreamCreate(&scene->s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&scene->t, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&scene->u, CU_STREAM_NON_BLOCKING));
}

#define TOGETHER 4u

static struct scene shared;
static void (*done_together)(unsigned int number);

static void *do_together(void *arg)
{
	CHECK(cuCtxSetCurrent(shared.context[0]));
	done_together((unsigned int)(uintptr_t)arg);
	return NULL;
}

void scene_together(void (*what)(unsigned int number))
{
	pthread_t thread[TOGETHER];

	scene_open(&shared, 1);
	done_together = what;
	for (uintptr_t i = 0; i < TOGETHER; i++)
		pthread_create(&thread[i], NULL, do_together, (void *)i);
	for (unsigned int i = 0; i < TOGETHER; i++)
		pthread_join(thread[i], NULL);
}

void slow_from_here(void)
{
	((void (*)(const char *, uint64_t))control("fakecuda_set_kernel_ns"))("fill", SLOW_NS);
}

void must(bool condition, const char *format, ...)
{
	va_list args;

	if (condition)
		return;
	fputs("not as expected: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

bool cached(void)
{
	const char *allocator = getenv("GPUMEM_ALLOCATOR");

	return dlsym(RTLD_DEFAULT, "gpumem_empty_cache") && !(allocator && !strcmp(allocator, "native"));
}

/* ---- memory ---- */

CUdeviceptr get(size_t bytes)
{
	CUdeviceptr ptr;

	CHECK(cuMemAlloc(&ptr, bytes));
	((void (*)(uint64_t, size_t))control("fakecuda_note_alloc"))(ptr, bytes);
	return ptr;
}

CUdeviceptr get_async(size_t bytes, CUstream stream)
{
	CUdeviceptr ptr;

	CHECK(cuMemAllocAsync(&ptr, bytes, stream));
	((void (*)(uint64_t, size_t))control("fakecuda_note_alloc"))(ptr, bytes);
	return ptr;
}

void give(CUdeviceptr ptr)
{
	((void (*)(uint64_t))control("fakecuda_note_free"))(ptr);
	CHECK(cuMemFree(ptr));
}

void give_async(CUdeviceptr ptr, CUstream stream)
{
	((void (*)(uint64_t))control("fakecuda_note_free"))(ptr);
	CHECK(cuMemFreeAsync(ptr, stream));
}

void get_pile(struct pile *pile)
{
	for (unsigned int i = 0; i < PILE; i++)
		pile->block[i] = get(3 * MIB);
}

void give_pile(const struct pile *pile)
{
	for (unsigned int i = 0; i < PILE; i++)
		give(pile->block[i]);
}

/* ---- work ---- */

void fill_in(struct scene *scene, int which, CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	uint32_t words = WORDS;
	void *args[] = { &ptr, &value, &words };

	CHECK(cuCtxPushCurrent(scene->context[which]));
	CHECK(cuLaunchKernel(scene->fill[which], 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	CHECK(cuCtxPopCurrent(NULL));
}

void fill(struct scene *scene, CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	fill_in(scene, 0, stream, ptr, value);
}

void expect_words(CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	uint32_t words[WORDS];

	CHECK(cuMemcpyDtoHAsync(words, ptr, sizeof(words), stream));
	CHECK(cuStreamSynchronize(stream));
	for (unsigned int i = 0; i < WORDS; i++)
		must(words[i] == value, "word %u is %u, not %u", i, words[i], value);
}

CUdeviceptr flag_new(void)
{
	CUdeviceptr flag;

	CHECK(cuMemAlloc(&flag, 4096));
	CHECK(cuMemsetD32(flag, 0, 1024));
	CHECK(cuCtxSynchronize());
	return flag;
}

void flag_await(struct scene *scene, int which, CUstream stream, CUdeviceptr flag)
{
	uint32_t value = 1;
	void *args[] = { &flag, &value };

	CHECK(cuCtxPushCurrent(scene->context[which]));
	CHECK(cuLaunchKernel(scene->await[which], 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
	CHECK(cuCtxPopCurrent(NULL));
}

/* Set the flag as another process or a device would, not by work of this program. */
void flag_set(struct scene *scene, CUdeviceptr flag)
{
	const uint32_t one = 1;

	(void)scene;
	((int (*)(uint64_t, const void *, size_t))control("fakecuda_write"))(flag, &one, sizeof(one));
}
