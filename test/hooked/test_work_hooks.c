/*
 * Every hook of a call that gives the GPU work reports that work exactly once: before the real call, of
 * the right stream, and with the right meaning of the default stream. It reports nothing when the
 * driver cannot be reached. The rows come from hooks.def, so that no hook is forgotten; the driver's
 * functions are replaced by one that counts.
 */
#include "test/hooked/hooked.h"

struct row {
	const char *name, *params;
	void *hook;
	enum gm_hook_class class;
	bool made;			/* by GM_WORK */
};

static const struct row rows[] = {
#define GM_HOOK(class, name, type, params, args) \
	{ #name, #params, (void *)name, GM_CLASS_##class, false },
#define GM_WORK(class, name, type, params, args, stream, per_thread, flags) \
	{ #name, #params, (void *)name, GM_CLASS_##class, true },
#include "preload/hooks/hooks.def"
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct row *submitting[ROWS];
static int submitting_count;

/* Submit work, but memory may begin to live there, so they are of another class. */
static const char *const others[] = { "cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload",
				      "cuGraphUpload_ptsz" };

/* In several places the driver is told of several streams at once. */
#define DEVICES 3

static unsigned int told, called, marked;
static CUstream told_stream[8];
static bool told_per_thread, told_before;
static int answer;

void __wrap_gm_work_slow(CUstream stream, bool per_thread);
void __wrap_gm_work_slow(CUstream stream, bool per_thread)
{
	told_stream[told++ % 8] = stream;
	told_per_thread = per_thread;
	told_before = called == 0;
}

void __wrap_gm_host_submitted_slow(CUstream stream, bool per_thread);
void __wrap_gm_host_submitted_slow(CUstream stream, bool per_thread)
{
	ck_assert(stream == told_stream[marked % 8]);
	ck_assert(per_thread == told_per_thread);
	ck_assert(called > 0);
	marked++;
}

static CUresult driver(void)
{
	called++;
	return (CUresult)answer;
}

/* The number of the parameter that is a stream; -1 none. */
static int stream_of(const char *params)
{
	int n = 0, depth = 0;

	for (const char *p = params; *p; p++) {
		depth += *p == '(';
		depth -= *p == ')';
		if (*p == ',' && depth == 1)
			n++;
		if (strncmp(p, "CUstream ", 9) == 0)
			return n;
	}
	return -1;
}

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), n = strlen(end);

	return length >= n && strcmp(name + length - n, end) == 0;
}

static bool submits(const struct row *row)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(row->name, others[i]) == 0)
			return true;
	return row->class == GM_CLASS_WORK;
}

#define STREAM ((CUstream)(uintptr_t)0x5550)

/* Arguments are zeroes, but for the stream, and what the stream is found in. As the ABI has it, an
 * integer register is one whatever it holds. */
static CUresult call(const struct row *row)
{
	typedef CUresult any(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			     uint64_t, uint64_t, uint64_t, uint64_t);
	static CUDA_LAUNCH_PARAMS list[DEVICES];
	static CUlaunchConfig config;
	int at = stream_of(row->params);
	uint64_t a[11] = { 0 };

	if (at >= 0)
		a[at] = (uintptr_t)STREAM;
	if (strncmp(row->name, "cuLaunchKernelEx", 16) == 0) {
		config.hStream = STREAM;
		a[0] = (uintptr_t)&config;
	}
	if (strstr(row->name, "MultiDevice")) {
		for (int i = 0; i < DEVICES; i++)
			list[i].hStream = (CUstream)((uintptr_t)STREAM + (uintptr_t)i);
		a[0] = (uintptr_t)list;
		a[1] = DEVICES;
	}
	told = called = marked = 0;
	return ((any *)row->hook)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
				  a[10]);
}

static void exchange(void)
{
	void **slots = (void **)(void *)&gm_real;

	for (size_t i = 0; i < sizeof(gm_real) / sizeof(void *); i++)
		slots[i] = (void *)driver;
}

static void setup(void)
{
	begin();
	exchange();
	gm_order_hot.attention = GM_REUSE_OPEN;		/* nothing passes by the short cut */
}

static CUstream expected(const struct row *row)
{
	bool has = stream_of(row->params) >= 0 || strstr(row->name, "KernelEx") ||
		   strstr(row->name, "MultiDevice");

	return has ? STREAM : NULL;
}

static void check_tells(const struct row *row)
{
	unsigned int times = strstr(row->name, "MultiDevice") ? DEVICES : 1;

	ck_assert_msg(call(row) == CUDA_SUCCESS, "%s", row->name);
	ck_assert_msg(told == times, "%s: told %u times", row->name, told);
	ck_assert_msg(called >= 1, "%s: the driver was not called", row->name);
	ck_assert_msg(told_before, "%s: told after the real call", row->name);
	ck_assert_msg(told_stream[0] == expected(row), "%s: told of another stream", row->name);
	for (unsigned int i = 1; i < times; i++)
		ck_assert(told_stream[i] == (CUstream)((uintptr_t)STREAM + i));
	ck_assert_msg(told_per_thread == (ends_with(row->name, "_ptsz") ||
					  ends_with(row->name, "_ptds")),
		      "%s: in the other form", row->name);
}

/* What the driver refused is passed on, and is nothing that the host could look at. */
static void check_refused(const struct row *row)
{
	ck_assert_msg(call(row) == CUDA_ERROR_INVALID_VALUE, "%s", row->name);
	ck_assert_msg(!marked, "%s: marked as submitted", row->name);
	ck_assert_msg(!gm_inside, "%s: left inside", row->name);
}

/* While the host can look at what kernels write, each launch is marked, once it was made. */
static void check_marked(const struct row *row)
{
	bool launches = strncmp(row->name, "cuLaunch", 8) == 0 ||
			strncmp(row->name, "cuGraphLaunch", 13) == 0;

	if (!launches)
		return;
	OK(call(row));
	ck_assert_msg(marked == told, "%s: marked %u times", row->name, marked);
}

/* While nothing of the order counts (allocator native) nobody is told. */
static void check_off(const struct row *row)
{
	OK(call(row));
	ck_assert_msg(!told && !marked, "%s: told", row->name);
	ck_assert_msg(called >= 1, "%s: the driver was not called", row->name);
}

START_TEST(test_all)
{
	static void (*const checks[])(const struct row *row) = {
		check_tells, check_refused, check_marked, check_off
	};

	setup();
	if (checks[_i] == check_refused || checks[_i] == check_marked)
		gm_host_memory_made();
	if (checks[_i] == check_refused)
		answer = CUDA_ERROR_INVALID_VALUE;
	if (checks[_i] == check_off)
		gm_order_on = false;
	for (int i = 0; i < submitting_count; i++)
		checks[_i](submitting[i]);
}
END_TEST

START_TEST(test_rows)
{
	int made = 0;

	for (size_t i = 0; i < ROWS; i++) {
		made += rows[i].made;
		ck_assert_msg(!rows[i].made || rows[i].class == GM_CLASS_WORK, "%s: of what class?",
			      rows[i].name);
	}
	ck_assert_int_gt(made, 140);
	ck_assert_int_gt(submitting_count, made);
	ck_assert_int_eq(stream_of("(CUhostFn fn, void *(*x)(int, int), CUstream s)"), 2);
	ck_assert_int_eq(stream_of("(CUstreamCallback fn, int x)"), -1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("work hooks");
	TCase *tc = tcase_create("work hooks");

	for (size_t i = 0; i < ROWS; i++)
		if (submits(&rows[i]))
			submitting[submitting_count++] = &rows[i];
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_rows);
	tcase_add_loop_test(tc, test_all, 0, 4);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
