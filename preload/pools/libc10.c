/*
 * libc10.c - PyTorch's pool: the functions by which its CUDA allocator reports every block.
 *
 * libc10.so defines them, for PyTorch's profiler. libc10_cuda.so calls them through its PLT: for each block that it
 * hands out or takes back, while it holds a lock of its own, and for each request that it cannot serve. This library
 * defines them too, and is loaded before libc10.so, so the calls come here. Each call is recorded and passed on to the
 * libc10 of its caller, because a process may have several.
 *
 * The reported size is that of the block, which PyTorch has rounded up. A block that is freed while another stream uses
 * it is reported at the free, when PyTorch's own history says free_requested.
 *
 * Thread context: any; PyTorch holds locks. Signal context: none. Lock: "lock" (rank pool), for @reporters.
 */
#include <string.h>

#include "preload/hooks/record.h"
#include "preload/pools/next_symbol.h"
#include "preload/pools/pools_change.h"
#include "preload/process/say.h"
#include "preload/triggers/trigger.h"
#include "recorder/modules/modules.h"

#define REPORTERS 256u			/* entries; those of unloaded objects are reused */
#define CUDA 1				/* c10::DeviceType */

struct device { int8_t type, index; };	/* c10::Device, passed in a register */

typedef void usage_fn(void *block, int64_t bytes, size_t allocated, size_t reserved,
		      struct device device);
typedef void oom_fn(int64_t bytes, size_t allocated, size_t reserved, struct device device);

/* PyTorch has had two signatures: with size_t (since 2.0) and with int64_t. One function type serves both, because all
 * these arguments are 64-bit integers. */
enum { NEW, OLD, SIGNATURES };
static const char *const usage_names[SIGNATURES] = {
	"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
	"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
};
static const char *const oom_names[SIGNATURES] = {
	"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
	"_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
};

/* An object that calls us (a libc10_cuda.so), and the real functions for its calls. They are looked up once, and
 * checked again after a dlclose.
 *
 * An entry is filled in only while its generation is 0. A reader without the lock trusts the range if the generation
 * equals the current one both before and after it reads the range. From then on the reader may use the whole entry:
 * the entry is not reused while its object is loaded, and the object is loaded because it is calling us. */
struct reporter {
	_Alignas(64) _Atomic(uint32_t) generation;	/* gm_modules_generation() at the last check; 0: unused */
	_Atomic(uintptr_t) start, bytes;	/* range of the caller's object */
	usage_fn *usage[SIGNATURES];	/* the real functions; NULL: no object defines it */
	oom_fn *oom[SIGNATURES];
	uint16_t module;		/* for all calls from the object; 0: depends on the stack */
	_Atomic(struct gm_program_pool *) pools[GM_MAX_DEVICES];	/* NULL: not opened yet, or there is none */
	struct gm_object caller, real;	/* the caller's object; the object with the real functions */
	uint64_t caller_identity, real_identity;
};
static struct reporter reporters[REPORTERS];
static _Atomic(uint32_t) reporter_count;
static _Atomic(struct reporter *) recent = reporters;	/* the entry of a recent caller, which is tried first */
static struct gm_lock lock = { .rank = GM_RANK_POOL };	/* for changes of @reporters and @reporter_count */

/* ---- find the caller's entry -------------------------------------------------------------------- */

/* Return what distinguishes @object from another object at its place; 0: no object. */
static uint64_t identity_of(const struct gm_object *object)
{
	struct gm_object_identity identity;

	return object->start && gm_object_identify(object, &identity) ? identity.hash : 0;
}

/* Fill in @reporter for code at @caller in object @of. The caller holds the lock, or owns @reporter. */
static void look_for(struct reporter *reporter, const struct gm_object *of, uintptr_t caller)
{
	struct gm_object object;

	reporter->caller = *of;
	reporter->real = (struct gm_object){ 0 };
	gm_set_release(&reporter->start, of->start);	/* release: readers see generation 0 before the new range */
	gm_set_release(&reporter->bytes, of->end - of->start);
	for (unsigned int d = 0; d < GM_MAX_DEVICES; d++)
		gm_set(&reporter->pools[d], NULL);
	for (unsigned int i = 0; i < SIGNATURES; i++) {
		reporter->usage[i] = (usage_fn *)gm_next_symbol(caller, usage_names[i], &object);
		if (reporter->usage[i])
			reporter->real = object;
		reporter->oom[i] = (oom_fn *)gm_next_symbol(caller, oom_names[i], &object);
		if (reporter->oom[i] && !reporter->real.start)
			reporter->real = object;
	}
	reporter->module = gm_pools_recording() ? gm_modules_of_caller((const void *)caller) : 0;
	reporter->caller_identity = identity_of(&reporter->caller);
	reporter->real_identity = identity_of(&reporter->real);
}

/* Objects may have been unloaded: are both objects of the entry still the ones that were looked up? */
static bool still_there(const struct reporter *reporter)
{
	struct gm_object caller, real = { 0 };

	return gm_object_find(reporter->caller.start, &caller) &&
	       identity_of(&caller) == reporter->caller_identity &&
	       (!reporter->real.start || (gm_object_find(reporter->real.start, &real) &&
					identity_of(&real) == reporter->real_identity));
}

/* Return an unused entry; when the table is full, the entry of an unloaded object; NULL: all objects are still loaded.
 * Without exact look-ups no entry is reused, because the look-up may miss a loaded object that is calling us. */
static struct reporter *free_place_locked(uint32_t generation)
{
	static uint32_t looked;		/* the generation in which all objects were last found loaded */
	uint32_t count = gm_get(&reporter_count);

	if (count < REPORTERS) {
		gm_set_release(&reporter_count, count + 1);
		return &reporters[count];
	}
	if (looked == generation || !gm_object_is_exact())
		return NULL;
	for (uint32_t i = 0; i < REPORTERS; i++) {
		struct reporter *reporter = &reporters[i];

		if (gm_get(&reporter->generation) == generation ||
		    (gm_get(&reporter->generation) && still_there(reporter)))
			continue;
		gm_set(&reporter->generation, 0);
		return reporter;
	}
	looked = generation;
	return NULL;
}

/* Find or make the entry of @object. Returns NULL when the table is full, or the lock was not free in time. */
static struct reporter *reporter_slow(const struct gm_object *object, uintptr_t caller)
{
	struct reporter *found = NULL;
	uint32_t generation;

	if (!gm_lock(&lock))
		return NULL;
	generation = gm_modules_generation();
	for (uint32_t i = 0; i < gm_get(&reporter_count) && !found; i++) {
		struct reporter *reporter = &reporters[i];

		if (!gm_get(&reporter->generation) || reporter->caller.start != object->start)
			continue;
		if (still_there(reporter))
			found = reporter;
		else
			gm_set(&reporter->generation, 0);
	}
	if (!found) {
		found = free_place_locked(generation);
		if (found)
			look_for(found, object, caller);
	}
	if (found)
		gm_set_release(&found->generation, generation);
	gm_unlock(&lock);
	return found;
}

/* Look up the object of @caller and return its entry. If the table has no entry for the object, fill in @spare. */
__attribute__((noinline))
static struct reporter *reporter_anew(uintptr_t caller, struct reporter *spare)
{
	struct gm_object object = { 0 };	/* stays zero for code outside of objects (JIT) */
	struct reporter *reporter = gm_object_find(caller, &object) ? reporter_slow(&object, caller) : NULL;

	if (!reporter) {
		memset(spare, 0, sizeof(*spare));
		look_for(spare, &object, caller);
		reporter = spare;
	}
	return reporter;
}

/* Is @reporter a valid entry whose object contains @caller? Reads without the lock: see struct reporter. */
static inline bool is_of(const struct reporter *reporter, uintptr_t caller, uint32_t generation)
{
	return gm_get_acquire(&reporter->generation) == generation &&
	       caller - gm_get_acquire(&reporter->start) < gm_get_acquire(&reporter->bytes) &&
	       gm_get_acquire(&reporter->generation) == generation;
}

/* Search the table without the lock, from the newest entry, because older objects may have been unloaded. Returns NULL
 * if no entry matches. */
static struct reporter *reporter_known(uintptr_t caller)
{
	for (uint32_t i = gm_get_acquire(&reporter_count); i-- > 0;)
		if (is_of(&reporters[i], caller, gm_modules_generation()))
			return &reporters[i];
	return NULL;
}

/* Return the entry of @caller. Never NULL: an object without an entry is looked up into @spare at every call, which is
 * slower, but PyTorch's profiler still gets its call. */
__attribute__((noinline))
static struct reporter *reporter_of(uintptr_t caller, struct reporter *spare)
{
	struct reporter *reporter = reporter_known(caller);

	if (!reporter)
		return reporter_anew(caller, spare);
	gm_set_release(&recent, reporter);
	return reporter;
}

/* ---- reports ------------------------------------------------------------------------------------ */

__attribute__((noinline))
static struct gm_program_pool *open_pool(struct reporter *reporter, uint32_t device)
{
	uint64_t key = reporter->real.start ? reporter->real.start : reporter->caller.start;
	uint8_t domain = gm_pool_open(GM_POOL_LIBC10, device, gm_pool_name_id("pytorch"), key);
	struct gm_program_pool *pool = gm_pool_of(domain);

	gm_set_release(&reporter->pools[device], pool);	/* release: after the stores that make the pool ready */
	return pool;
}

static inline struct gm_program_pool *pool_of(struct reporter *reporter, int device)
{
	struct gm_program_pool *pool;

	if ((unsigned int)device >= GM_MAX_DEVICES)
		return NULL;
	pool = gm_get_acquire(&reporter->pools[device]);
	return gm_likely(pool) ? pool : open_pool(reporter, (uint32_t)device);
}

/* Record a report, then pass it on to the real function. @bytes is negative when a block is taken back. */
GM_LIVES_INLINE void report_usage(struct reporter *reporter, unsigned int which, void *block, int64_t bytes,
				  size_t allocated, size_t reserved, struct device device, const void *caller)
{
	bool ours = device.type == CUDA && gm_pools_recording();
	struct gm_program_pool *pool = ours ? pool_of(reporter, device.index) : NULL;

	if (gm_likely(pool)) {
		gm_record_told(pool->lives.pool, allocated, reserved);
		if (bytes > 0)
			gm_pool_give_now(pool, (uintptr_t)block, (uint64_t)bytes, 0, caller, reporter->module);
		else if (bytes < 0)
			gm_pool_take_now(pool, (uintptr_t)block);
	}
	if (reporter->usage[which])
		reporter->usage[which](block, bytes, allocated, reserved, device);
}

/* As report_usage, but look @caller up first: it does not match @recent, or uses the old signature. */
__attribute__((noinline))
static void tell_usage_of(unsigned int which, void *block, int64_t bytes, size_t allocated, size_t reserved,
			  struct device device, const void *caller)
{
	struct reporter spare, *reporter = reporter_of((uintptr_t)caller, &spare);

	report_usage(reporter, which, block, bytes, allocated, reserved, device, caller);
}

static void note_oom(struct reporter *reporter, int64_t bytes, size_t allocated, size_t reserved,
		     int device, const void *caller)
{
	struct gm_program_pool *pool = pool_of(reporter, device);
	struct gm_failure failure = {
		.requested_bytes = (uint64_t)bytes, .result = CUDA_ERROR_OUT_OF_MEMORY,
		.reserved_bytes = reserved, .cached_bytes = reserved - allocated,
		.domain = pool ? pool->lives.domain : 0,
		.kind = GM_KIND_DEVICE, .entry = "c10::reportOutOfMemoryToProfiler",
	};
	struct gm_alloc alloc = { 0 };

	if (!pool || bytes <= 0)
		return;
	gm_record_told(pool->lives.pool, allocated, reserved);
	gm_record_memory_of((uint8_t)device, &failure.free_bytes, &failure.total_bytes);
	gm_alloc_caller(&alloc, caller);
	failure.stack = alloc.stack;
	failure.module = alloc.module;
	gm_oom_report_pool(&failure);
}

/* Define both functions with one signature. PyTorch calls them for host memory, too, while its profiler runs. */
#define SIGNATURE(which, usage_name, oom_name) \
	GM_PUBLIC usage_fn usage_name; \
	GM_PUBLIC oom_fn oom_name; \
	\
	void usage_name(void *block, int64_t bytes, size_t allocated, size_t reserved, \
			struct device device) \
	{ \
		const void *caller = GM_CALLER; \
		struct reporter *reporter = gm_get_acquire(&recent); \
		\
		if (gm_likely(which == NEW && is_of(reporter, (uintptr_t)caller, gm_modules_generation()))) \
			report_usage(reporter, which, block, bytes, allocated, reserved, device, caller); \
		else \
			tell_usage_of(which, block, bytes, allocated, reserved, device, caller); \
	} \
	\
	void oom_name(int64_t bytes, size_t allocated, size_t reserved, struct device device) \
	{ \
		const void *caller = GM_CALLER; \
		struct reporter spare, *reporter = reporter_of((uintptr_t)caller, &spare); \
		\
		if (device.type == CUDA && gm_pools_recording()) \
			note_oom(reporter, bytes, allocated, reserved, device.index, caller); \
		if (reporter->oom[which]) \
			reporter->oom[which](bytes, allocated, reserved, device); \
	}

SIGNATURE(NEW, _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE,
	  _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE)
SIGNATURE(OLD, _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE,
	  _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE)

/* ---- versions that report nothing ---------------------------------------------------------------- */

void gm_libc10_loaded(const char *path)
{
	static _Atomic(uint32_t) said;
	const char *slash = strrchr(path, '/');

	if (gm_state.options.verbose && !strncmp(slash ? slash + 1 : path, "libc10_cuda.so", 14) &&
	    gm_object_lacks("libc10", usage_names[NEW]) &&
	    gm_object_lacks("libc10", usage_names[OLD]) && !atomic_exchange(&said, 1))
		gm_say_always("this PyTorch tells nobody of its tensors: only the memory that it has "
			      "from the driver is seen");
}
