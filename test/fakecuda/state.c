/*
 * state.c - the one struct fc_state: configuration, the lock, and the control calls that are about
 * the driver as a whole.
 *
 * fc.lock is the only lock that protects fc; it ranks above fail.c's and the log's. fork() waits
 * for it, so a child never inherits a half-made change; in a child of the process that called
 * cuInit every entry returns 3 before it touches anything here. No signal context.
 */
#include "test/fakecuda/state.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/fakecuda/fail.h"

struct fc_state fc = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.pending_tail = &fc.pending,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static FILE *log_file;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

bool fc_parse_bytes(const char *text, size_t *ret_bytes)
{
	static const char units[] = "kmgt";
	char *end;
	unsigned long long n = strtoull(text, &end, 0);
	const char *unit;

	if (end == text)
		return false;
	if (*end && (unit = strchr(units, tolower((unsigned char)*end)))) {
		n <<= 10 * (unit - units + 1);
		end++;
		if (!strcasecmp(end, "ib") || !strcasecmp(end, "b"))
			end += strlen(end);
	}
	if (*end)
		return false;
	*ret_bytes = n;
	return true;
}

static size_t env_bytes(const char *name, size_t fallback)
{
	const char *text = getenv(name);
	size_t n;

	if (!text || !*text)
		return fallback;
	if (fc_parse_bytes(text, &n))
		return n;
	fprintf(stderr, "fakecuda: %s=%s: not a size\n", name, text);
	return fallback;
}

static void read_environment(void)
{
	const char *text = getenv("FAKECUDA_LOG");
	size_t capacity = env_bytes("FAKECUDA_CAPACITY", (size_t)8 << 30);
	size_t other = env_bytes("FAKECUDA_OTHER_BYTES", 0);
	size_t devices = env_bytes("FAKECUDA_DEVICES", 2);

	if (text && *text && !log_file)
		log_file = !strcmp(text, "-") ? stderr : fopen(text, "ae");
	fc.n_devices = devices > FC_MAX_DEVICES ? FC_MAX_DEVICES : (int)devices;
	for (int i = 0; i < fc.n_devices; i++) {
		fc.devices[i].ordinal = i;
		fc.devices[i].capacity = capacity / FC_CHUNK * FC_CHUNK;
		fc.devices[i].other_bytes = other;
		fc.devices[i].fd = -1;
	}
	fc.driver_version = (int)env_bytes("FAKECUDA_DRIVER_VERSION", 13000);
	fc.kernel_ns = env_bytes("FAKECUDA_KERNEL_NS", 10000);
	fc.step_ns = env_bytes("FAKECUDA_STEP_NS", 10000);
	text = getenv("FAKECUDA_FAIL");
	if (text && fc_fail_parse(text))
		fprintf(stderr, "fakecuda: FAKECUDA_FAIL=%s: want entry:skip:times:error[,...]\n",
			text);
}

/* Waits have real time limits that a change of the wall clock must not stretch. */
static void make_condition(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fc.changed, &attr);
	pthread_condattr_destroy(&attr);
}

static void configure(void)
{
	make_condition();
	pthread_atfork(fc_lock, fc_unlock, fc_unlock);
	read_environment();
	fc.configured = true;
}

void fc_configure(void)
{
	pthread_once(&once, configure);
}

void fc_lock(void)
{
	pthread_mutex_lock(&fc.lock);
}

void fc_unlock(void)
{
	pthread_mutex_unlock(&fc.lock);
}

bool fc_forked(void)
{
	pid_t pid = __atomic_load_n(&fc.pid, __ATOMIC_ACQUIRE);

	return pid && pid != getpid();
}

void fc_enter_control(void)
{
	fc_configure();
	fc_lock();
}

void fc_leave_control(void)
{
	fc_unlock();
}

void fc_log(const char *fmt, ...)
{
	va_list ap;

	if (!log_file)
		return;
	pthread_mutex_lock(&log_lock);
	fprintf(log_file, "fakecuda[%d]: ", (int)getpid());
	va_start(ap, fmt);
	vfprintf(log_file, fmt, ap);
	va_end(ap);
	fputc('\n', log_file);
	fflush(log_file);
	pthread_mutex_unlock(&log_lock);
}

/* ---- initialisation ---- */

CUresult fc_cuInit(unsigned int Flags)
{
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (fc_forked())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!fc.n_devices)
		return CUDA_ERROR_NO_DEVICE;
	if (!fc.pid)
		__atomic_store_n(&fc.pid, getpid(), __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult fc_cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = fc.driver_version;
	return CUDA_SUCCESS;
}

FC_EXPORT void fakecuda_reset(void)
{
	fc_enter_control();
	fc_clock_reset();
	fc_capture_reset();
	fc_graph_reset();
	fc_waiting_reset();
	fc_module_reset();
	fc_array_reset();
	fc_vmm_reset();
	fc_ipc_reset();
	fc_event_reset();
	fc_stream_reset();
	fc_pool_reset();	/* frees in streams' tails refer to pools */
	fc_context_reset();
	fc_race_reset();
	fc_tree_reset();
	fc_phys_reset();
	fc_device_reset();
	fc_handle_reset();
	fc_kernel_reset();
	fakecuda_fail(NULL, 0, 0, 0);
	fakecuda_reset_calls();
	fc.now_ns = 0;
	__atomic_store_n(&fc.pid, 0, __ATOMIC_RELEASE);
	read_environment();
	fc_leave_control();
}

/* ---- the truth ---- */

void fc_account(struct fc_device *dev, enum fakecuda_kind kind, int64_t bytes, int count)
{
	if (!dev)
		dev = &fc.devices[0];
	dev->live_bytes[kind] += (uint64_t)bytes;
	dev->live_count[kind] += (uint64_t)count;
}

static uint64_t over_devices(int device,
			     uint64_t (*get)(const struct fc_device *, unsigned int),
			     unsigned int arg)
{
	uint64_t n = 0;

	fc_enter_control();
	for (int i = 0; i < fc.n_devices; i++)
		if (device < 0 || device == i)
			n += get(&fc.devices[i], arg);
	fc_leave_control();
	return n;
}

static uint64_t get_bytes(const struct fc_device *dev, unsigned int kind)
{
	return dev->live_bytes[kind];
}

static uint64_t get_count(const struct fc_device *dev, unsigned int kind)
{
	return dev->live_count[kind];
}

static uint64_t get_charged(const struct fc_device *dev, unsigned int unused)
{
	(void)unused;
	return dev->charged;
}

FC_EXPORT uint64_t fakecuda_live_bytes(int device, enum fakecuda_kind kind)
{
	unsigned int k = (unsigned int)kind;

	return k < FAKECUDA_KINDS ? over_devices(device, get_bytes, k) : 0;
}

FC_EXPORT uint64_t fakecuda_live_count(int device, enum fakecuda_kind kind)
{
	unsigned int k = (unsigned int)kind;

	return k < FAKECUDA_KINDS ? over_devices(device, get_count, k) : 0;
}

FC_EXPORT uint64_t fakecuda_charged_bytes(int device)
{
	return over_devices(device, get_charged, 0);
}

FC_EXPORT void fakecuda_set_other_bytes(int device, size_t bytes)
{
	fc_enter_control();
	if (device >= 0 && device < fc.n_devices)
		fc.devices[device].other_bytes = bytes;
	fc_leave_control();
}
