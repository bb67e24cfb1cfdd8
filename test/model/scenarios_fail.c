/*
 * scenarios_fail.c - let every driver call of the cache fail, at every place in a program; and the arithmetic of
 * a library that shares memory between processes (see scenario.h).
 *
 * Thread context: one thread, except in fail_taken_over. ipc_*: the importer is another process of the same program.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/model/scenario.h"

/* ---- the n-th call fails ---- */

#define HELD 6

struct held { CUdeviceptr ptr; uint32_t value; };

static const char *served = "";		/* every request is served although this call fails; "": some may fail */

static void drop(struct held *held, CUstream stream)
{
	CUresult result = stream ? cuMemFreeAsync(held->ptr, stream) : cuMemFree(held->ptr);

	/* If the driver refuses a free, the program still has the block and tries again. */
	if (result)
		CHECK(cuMemFree(held->ptr));
	held->ptr = 0;
}

static void take(struct scene *scene, struct held *held, size_t bytes, CUstream stream)
{
	static uint32_t value;
	uint32_t words = WORDS;
	CUresult result = stream ? cuMemAllocAsync(&held->ptr, bytes, stream)
				 : cuMemAlloc(&held->ptr, bytes);
	void *args[] = { &held->ptr, &held->value, &words };

	must(!result || !served[0], "%s fails: cudaMalloc of %zu bytes, which does not call that, says %d", served,
	     bytes, result);
	if (result) {
		held->ptr = 0;
		return;
	}
	held->value = ++value;
	CHECK(cuLaunchKernel(scene->fill[0], 1, 1, 1, 1, 1, 1, 0, scene->s, args, NULL));
	if (stream && stream != scene->s)
		CHECK(cuStreamSynchronize(stream));
}

static void program(struct scene *scene, struct held held[HELD])
{
	take(scene, &held[0], 3 * MIB, NULL);
	take(scene, &held[1], 4096, NULL);
	take(scene, &held[2], 2 * MIB, scene->s);
	if (held[0].ptr)
		drop(&held[0], NULL);
	take(scene, &held[3], 3 * MIB, NULL);
	take(scene, &held[4], 25 * MIB, NULL);
	if (held[1].ptr)
		drop(&held[1], scene->s);
	if (held[4].ptr)
		drop(&held[4], NULL);
	take(scene, &held[5], 40 * MIB, NULL);
	if (held[2].ptr)
		drop(&held[2], scene->s);
	take(scene, &held[0], 45 * MIB, NULL);
}

static void clean_up(struct scene *scene, struct held held[HELD], const char *entry, long n)
{
	int (*check)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");

	must(!check || !check(), "%s, call %ld: the library's structures are wrong", entry, n);
	for (int i = 0; i < HELD; i++) {
		if (!held[i].ptr)
			continue;
		expect_words(scene->s, held[i].ptr, held[i].value);
		CHECK(cuMemFree(held[i].ptr));
		held[i].ptr = 0;
	}
	CHECK(cuCtxSynchronize());
	must(!check || !check(), "%s, call %ld, after it: the library's structures are wrong", entry, n);
}

static const char *const entries[] = {
	"cuMemAlloc_v2", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFree_v2", "cuMemGetInfo_v2",
	"cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2",
	"cuCtxRecordEvent", "cuStreamWaitEvent", "cuStreamCreate", "cuStreamQuery",
	"cuStreamGetCaptureInfo", "cuStreamIsCapturing", "cuStreamGetCtx", "cuStreamGetId",
	"cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
	"cuThreadExchangeStreamCaptureMode", "cuDeviceTotalMem_v2", "cuPointerGetAttribute",
	"cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuMemPoolGetAttribute",
};

/* The same for memory in pages. The driver's own cudaMalloc calls none of these. */
static const char *const of_pages[] = { "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease" };

/* Let @entry fail at each place in a program. @anew: the cache is empty at its start; otherwise it has what the program
 * before left. Returns how often the program calls @entry. */
static unsigned int fail_places(struct scene *scene, struct held held[HELD], const char *entry, int error, bool anew)
{
	void (*fail)(const char *, long, long, int) =
		(void (*)(const char *, long, long, int))dlsym(RTLD_DEFAULT, "fakecuda_fail");
	uint64_t (*calls)(const char *) =
		(uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "fakecuda_calls");
	int64_t (*empty)(void) = (int64_t (*)(void))dlsym(RTLD_DEFAULT, "gpumem_empty_cache");
	unsigned int places = 0;

	for (long n = 0, done = 0; !done; n++, places++) {
		bool all = n == 60;	/* at last, let it fail for ever */
		uint64_t so_far;

		if (anew && empty)
			empty();
		so_far = calls(entry);
		fail(entry, all ? 0 : n, all ? -1 : 1, error);
		program(scene, held);
		if (n < 60 && calls(entry) - so_far <= (uint64_t)n)
			n = 59;
		done = all;
		fail(NULL, 0, 0, 0);
		clean_up(scene, held, entry, all ? -1 : n);
	}
	return places;
}

/* Let each call fail in turn with @error. Nothing may crash or be lost, and the same memory is available afterwards. */
static void fail_each(int error)
{
	const size_t own = sizeof(entries) / sizeof(entries[0]), pages = sizeof(of_pages) / sizeof(of_pages[0]);
	size_t before, after, total;
	struct held held[HELD] = { 0 };
	unsigned int places = 0;
	struct scene scene;

	scene_open(&scene, 1);
	program(&scene, held);
	clean_up(&scene, held, "none", 0);
	CHECK(cuMemGetInfo(&before, &total));
	for (size_t e = 0; e < 2 * (own + pages); e++) {
		const char *entry = e / 2 < own ? entries[e / 2] : of_pages[e / 2 - own];

		served = e / 2 < own ? "" : entry;
		places += fail_places(&scene, held, entry, error, e % 2);
	}
	served = "";
	program(&scene, held);
	clean_up(&scene, held, "none", 0);
	CHECK(cuMemGetInfo(&after, &total));
	must(after + 4 * MIB >= before, "%zu bytes are lost", before - after);
	printf("%u places\n", places);
}

void scenario_fail_each_memory(void)
{
	fail_each(CUDA_ERROR_OUT_OF_MEMORY);
}

void scenario_fail_each_unknown(void)
{
	fail_each(CUDA_ERROR_UNKNOWN);
}

/* ---- failures while a stream takes over memory whose free is not complete ---- */

struct setting { struct scene *scene; CUdeviceptr flag; };

static void *sets_flag(void *arg)
{
	const struct setting *setting = arg;

	CHECK(cuCtxSetCurrent(setting->scene->context[0]));
	usleep(20000);
	CHECK(cuStreamWriteValue32(setting->scene->u, setting->flag, 1, 0));
	return NULL;
}

/* Most of the device's memory was freed behind a flag, and another stream requests it; the flag is set soon. */
static void fail_taking_over(struct scene *scene, const char *entry, long n)
{
	void (*fail)(const char *, long, long, int) =
		(void (*)(const char *, long, long, int))dlsym(RTLD_DEFAULT, "fakecuda_fail");
	int (*check)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gpumem_test_check");
	struct setting setting = { scene, flag_new() };
	CUdeviceptr p = get_async(60 * MIB, scene->s), q = 0;
	pthread_t thread;
	CUresult result;

	fill(scene, scene->s, p, 1);
	flag_await(scene, 0, scene->s, setting.flag);
	give_async(p, scene->s);
	pthread_create(&thread, NULL, sets_flag, &setting);
	fail(entry, n, 1, CUDA_ERROR_UNKNOWN);
	result = cuMemAllocAsync(&q, 56 * MIB, scene->t);
	fail(NULL, 0, 0, 0);
	must(!result || result == CUDA_ERROR_UNKNOWN, "%s, call %ld: %d", entry, n, result);
	must(!check || !check(), "%s, call %ld: the library's structures are wrong", entry, n);
	if (!result) {
		fill(scene, scene->t, q, 2);
		expect_words(scene->t, q, 2);
		CHECK(cuMemFreeAsync(q, scene->t));
	}
	pthread_join(thread, NULL);
	CHECK(cuCtxSynchronize());
	give(setting.flag);
}

void scenario_fail_taken_over(void)
{
	static const char *const called[] = { "cuStreamWaitEvent", "cuEventRecord", "cuEventQuery", "cuEventCreate",
		"cuCtxRecordEvent", "cuStreamQuery", "cuMemGetInfo_v2" };
	struct scene scene;

	scene_open(&scene, 1);
	for (size_t i = 0; i < sizeof(called) / sizeof(called[0]); i++)
		for (long n = 0; n < 5; n++)
			fail_taking_over(&scene, called[i], n);
}

/* ---- IPC as UCX does it ---- */

struct message { CUipcMemHandle handle; size_t offset, bytes; };

static void import(int in, int out)
{
	struct message message;
	struct scene scene;
	CUdeviceptr base;
	char answer = 'k';

	if (read(in, &message, sizeof(message)) != sizeof(message))
		_exit(1);
	scene_open(&scene, 1);
	CHECK(cuIpcOpenMemHandle(&base, message.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	expect_words(scene.s, base + message.offset, 77);
	fill(&scene, scene.s, base + message.offset, 78);
	CHECK(cuCtxSynchronize());
	CHECK(cuIpcCloseMemHandle(base));
	if (write(out, &answer, 1) != 1)
		_exit(1);
}

void scenario_importer(void)
{
	if (getenv("SCENARIO_IN"))
		import(atoi(getenv("SCENARIO_IN")), atoi(getenv("SCENARIO_OUT")));
}

/* Start the importer, before any CUDA call here. */
static pid_t start_importer(bool preloaded, int *ret_to, int *ret_from)
{
	int to[2], from[2];
	char text[16];
	pid_t pid;

	must(!pipe(to) && !pipe(from), "no pipe");
	pid = fork();
	if (!pid) {
		snprintf(text, sizeof(text), "%d", to[0]);
		setenv("SCENARIO_IN", text, 1);
		snprintf(text, sizeof(text), "%d", from[1]);
		setenv("SCENARIO_OUT", text, 1);
		if (!preloaded)
			unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", "scenarios", "importer", NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	*ret_to = to[1];
	*ret_from = from[0];
	return pid;
}

/* Share a pointer into a block: send the handle of the block's base and the offset, which the importer adds. */
static void share(bool preloaded, size_t bytes)
{
	struct message message;
	CUdeviceptr neighbour, p, base, flat;
	struct scene scene;
	int to, from, status;
	pid_t pid = start_importer(preloaded, &to, &from);
	char answer = 0;

	if (getenv("SCENARIO_WRITERS") && !preloaded && !dlopen(getenv("SCENARIO_WRITERS"), RTLD_NOW))
		DIE("%s", dlerror());
	scene_open(&scene, 1);
	neighbour = get(bytes);
	p = get(bytes);
	fill(&scene, scene.s, neighbour, 5);
	flat = p + 8192;
	fill(&scene, scene.s, flat, 77);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemGetAddressRange(&base, &message.bytes, flat));
	must(base == p && message.bytes == bytes, "%llx and %zu bytes of %llx",
	     (unsigned long long)base, message.bytes, (unsigned long long)p);
	CHECK(cuIpcGetMemHandle(&message.handle, base));
	message.offset = flat - base;
	must(write(to, &message, sizeof(message)) == sizeof(message), "the importer is gone");
	must(read(from, &answer, 1) == 1 && answer == 'k', "the importer failed");
	must(waitpid(pid, &status, 0) == pid && !status, "the importer: %d", status);
	expect_words(scene.s, flat, 78);
	expect_words(scene.s, neighbour, 5);
	give(p);
	give(neighbour);
}

void scenario_ipc_preloaded(void)
{
	share(true, MIB);
}

/* The importer runs without our library. The exporter's library is known to share memory. */
void scenario_ipc_plain_importer(void)
{
	share(false, 3 * MIB);
}
