/*
 * names.c - the words of snapshots for the numbers of the format. The driver's codes are literals, because this
 * floor includes no CUDA header; the codes have never changed.
 */
#include "recorder/modules/names.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "recorder/journal/format.h"

/* Define a function that returns the name of each of @count numbers. */
#define NAMES(function, count, ...) \
	const char *function(unsigned int number) \
	{ \
		static const char *const names[] = { __VA_ARGS__ }; \
		\
		_Static_assert(sizeof(names) / sizeof(names[0]) == (count), "all have a name"); \
		return number < (count) && names[number] ? names[number] : "unknown"; \
	}

NAMES(gm_kind_name, GM_KIND_COUNT,
	[GM_KIND_DEVICE] = "device", [GM_KIND_MANAGED] = "managed",
	[GM_KIND_ARRAY] = "array", [GM_KIND_HOST] = "host", [GM_KIND_VMM] = "vmm",
	[GM_KIND_POOL] = "pool", [GM_KIND_IPC] = "ipc", [GM_KIND_GRAPH] = "graph",
	[GM_KIND_EXTERNAL] = "external")

NAMES(gm_action_name, GM_ACTION_COUNT,
	[GM_ACTION_NONE] = "none", [GM_ACTION_ALLOC] = "alloc",
	[GM_ACTION_FREE_REQUESTED] = "free_requested",
	[GM_ACTION_FREE_COMPLETED] = "free_completed",
	[GM_ACTION_SEGMENT_ALLOC] = "segment_alloc",
	[GM_ACTION_SEGMENT_FREE] = "segment_free",
	[GM_ACTION_SEGMENT_MAP] = "segment_map",
	[GM_ACTION_SEGMENT_UNMAP] = "segment_unmap", [GM_ACTION_OOM] = "oom",
	[GM_ACTION_SNAPSHOT] = "snapshot", [GM_ACTION_ANNOTATE] = "annotate")

NAMES(gm_block_state_name, GM_BLOCK_UNMAPPED + 1,
	[GM_BLOCK_ACTIVE] = "active_allocated", [GM_BLOCK_PENDING] = "active_pending_free",
	[GM_BLOCK_INACTIVE] = "inactive", [GM_BLOCK_FREEING] = "active_allocated",
	[GM_BLOCK_CACHED] = "inactive", [GM_BLOCK_UNMAPPED] = "unmapped")

NAMES(gm_stat_name, GM_STAT_COUNT,
	[GM_STAT_ALLOCATION] = "allocation", [GM_STAT_SEGMENT] = "segment",
	[GM_STAT_ACTIVE] = "active", [GM_STAT_INACTIVE_SPLIT] = "inactive_split",
	[GM_STAT_ALLOCATED_BYTES] = "allocated_bytes",
	[GM_STAT_RESERVED_BYTES] = "reserved_bytes",
	[GM_STAT_ACTIVE_BYTES] = "active_bytes",
	[GM_STAT_INACTIVE_SPLIT_BYTES] = "inactive_split_bytes",
	[GM_STAT_REQUESTED_BYTES] = "requested_bytes")

NAMES(gm_pool_class_name, GM_POOL_CLASSES,
	[GM_POOL_ALL] = "all", [GM_POOL_SMALL] = "small_pool", [GM_POOL_LARGE] = "large_pool")

NAMES(gm_region_name, GM_REGION_COUNT,
	[GM_REGION_DOMAINS] = "domains", [GM_REGION_THREADS] = "threads",
	[GM_REGION_SEGMENTS] = "segments", [GM_REGION_BLOCKS] = "blocks",
	[GM_REGION_USAGE] = "usage", [GM_REGION_TCACHES] = "thread_caches",
	[GM_REGION_LIVES] = "pool_blocks", [GM_REGION_SITES] = "sites",
	[GM_REGION_MODULES] = "modules",
	[GM_REGION_STRINGS] = "strings", [GM_REGION_STACKS] = "stacks",
	[GM_REGION_FRAMES] = "frames", [GM_REGION_SETTINGS] = "settings",
	[GM_REGION_FAILURES] = "failures", [GM_REGION_EVENTS] = "events")

NAMES(gm_life_name, GM_LIFE_CRASHED + 1,
	[GM_LIFE_RUNNING] = "running", [GM_LIFE_EXITING] = "exiting",
	[GM_LIFE_CLEAN] = "clean", [GM_LIFE_CRASHED] = "crashed")

static NAMES(signal_name, 32,
	[1] = "SIGHUP", [2] = "SIGINT", [3] = "SIGQUIT", [4] = "SIGILL", [5] = "SIGTRAP",
	[6] = "SIGABRT", [7] = "SIGBUS", [8] = "SIGFPE", [9] = "SIGKILL", [10] = "SIGUSR1",
	[11] = "SIGSEGV", [12] = "SIGUSR2", [13] = "SIGPIPE", [14] = "SIGALRM", [15] = "SIGTERM",
	[16] = "SIGSTKFLT", [17] = "SIGCHLD", [18] = "SIGCONT", [19] = "SIGSTOP", [20] = "SIGTSTP",
	[21] = "SIGTTIN", [22] = "SIGTTOU", [23] = "SIGURG", [24] = "SIGXCPU", [25] = "SIGXFSZ",
	[26] = "SIGVTALRM", [27] = "SIGPROF", [28] = "SIGWINCH", [29] = "SIGPOLL", [30] = "SIGPWR",
	[31] = "SIGSYS")

const char *gm_signal_name(int32_t signal)
{
	return signal_name((uint32_t)signal);
}

bool gm_signal_is_wish(const char *name)
{
	return !strcmp(name, "SIGTERM") || !strcmp(name, "SIGINT") || !strcmp(name, "SIGHUP");
}

const char *gm_error_text(int error)
{
	static const struct { int error; const char *text; } known[] = {
		{ EACCES, "permission denied" }, { EPERM, "not permitted" },
		{ ENOSPC, "no space left" }, { EDQUOT, "quota exceeded" },
		{ EROFS, "read-only file system" }, { ENOENT, "no such directory" },
		{ ENOTDIR, "not a directory" }, { EISDIR, "is a directory" },
		{ EMFILE, "too many open files" }, { ENFILE, "too many open files in the system" },
		{ ENOMEM, "out of memory" }, { EIO, "input/output error" },
		{ EAGAIN, "no thread or memory to be had" }, { ENAMETOOLONG, "name too long" },
		{ EEXIST, "name is taken" }, { EFBIG, "file too large" },
		{ ETIMEDOUT, "took too long" }, { EINVAL, "invalid" }, { ELOOP, "a symbolic link" },
		{ ENOSYS, "not available here" }, { ENODATA, "nothing was recorded" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].error == (error < 0 ? -error : error))
			return known[i].text;
	return "an unexpected error";
}

const char *gm_register_name(uint32_t machine, unsigned int index)
{
	static const char *const x86_64[] = {
		"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
		"r12", "r13", "r14", "r15", "rip", "eflags",
	};
	static const char *const aarch64[] = {
		"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
		"x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24",
		"x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc", "pstate",
	};

	if (machine == EM_X86_64 && index < sizeof(x86_64) / sizeof(x86_64[0]))
		return x86_64[index];
	if (machine == EM_AARCH64 && index < sizeof(aarch64) / sizeof(aarch64[0]))
		return aarch64[index];
	return NULL;
}

NAMES(gm_limit_name, GM_LIMIT_COUNT,
	"driver", "memory_limit", "per_process_memory_fraction",
	"gpumem_set_per_process_memory_fraction", "gpumem_ctl")

const char *gm_result_name(int32_t result)
{
	static const struct { int32_t result; const char *name; } names[] = {
		{ 0, "CUDA_SUCCESS" }, { 1, "CUDA_ERROR_INVALID_VALUE" },
		{ 2, "CUDA_ERROR_OUT_OF_MEMORY" }, { 3, "CUDA_ERROR_NOT_INITIALIZED" },
		{ 4, "CUDA_ERROR_DEINITIALIZED" }, { 46, "CUDA_ERROR_DEVICE_UNAVAILABLE" },
		{ 100, "CUDA_ERROR_NO_DEVICE" }, { 101, "CUDA_ERROR_INVALID_DEVICE" },
		{ 201, "CUDA_ERROR_INVALID_CONTEXT" }, { 205, "CUDA_ERROR_MAP_FAILED" },
		{ 214, "CUDA_ERROR_ECC_UNCORRECTABLE" }, { 304, "CUDA_ERROR_OPERATING_SYSTEM" },
		{ 400, "CUDA_ERROR_INVALID_HANDLE" }, { 401, "CUDA_ERROR_ILLEGAL_STATE" },
		{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" },
		{ 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED" },
		{ 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" },
		{ 719, "CUDA_ERROR_LAUNCH_FAILED" }, { 800, "CUDA_ERROR_NOT_PERMITTED" },
		{ 801, "CUDA_ERROR_NOT_SUPPORTED" }, { 802, "CUDA_ERROR_SYSTEM_NOT_READY" },
		{ 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" },
		{ 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" }, { 999, "CUDA_ERROR_UNKNOWN" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].result == result)
			return names[i].name;
	return "unknown";
}
