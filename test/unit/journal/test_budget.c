/* How much the journal may take, and how that is laid out. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "recorder/journal/budget.h"
#include "recorder/read/copy.h"
#include "recorder/journal/journal.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

#define MIB (UINT64_C(1) << 20)

/* Every span: regions apart, aligned, inside; half for the tables; more never gives less. */
START_TEST(test_plans)
{
	uint64_t tables_before = 0, events_before = 0;
	struct gm_plan plan;

	ck_assert_int_eq(gm_plan_make(0, 1000, &plan), -ENOSPC);
	ck_assert_int_eq(gm_plan_make(MIB, 1000, &plan), -ENOSPC);
	for (uint64_t span = 3 * MIB / 2; span < UINT64_C(1) << 33; span += span / 7 + 4097) {
		uint64_t end = GM_HEADER_BYTES, tables;

		if (gm_plan_make(span, UINT64_MAX, &plan) == -ENOSPC) {
			ck_assert_uint_lt(span, GM_BUDGET_LEAST);
			continue;
		}
		for (unsigned int r = 0; r < GM_REGION_COUNT; r++) {
			ck_assert_uint_eq(plan.offset[r], end);
			ck_assert_uint_eq(plan.capacity[r] % 4096, 0);
			end += plan.capacity[r];
		}
		ck_assert_uint_eq(plan.file_bytes, end);
		ck_assert_uint_le(end, span);
		tables = plan.capacity[GM_REGION_SEGMENTS] + plan.capacity[GM_REGION_BLOCKS];
		ck_assert_uint_ge(tables + 16 * MIB, tables_before);
		tables_before = tables;
		events_before = plan.capacity[GM_REGION_EVENTS];
	}
	ck_assert_uint_gt(events_before, UINT64_C(1) << 32);
	ck_assert_int_eq(gm_plan_make(UINT64_C(1) << 33, 0, &plan), 0);
	ck_assert_uint_eq(plan.capacity[GM_REGION_EVENTS], 0);
	ck_assert_int_eq(gm_plan_make(UINT64_C(1) << 33, 1048576, &plan), 0);
	ck_assert_uint_eq(plan.chunks, 16645);
}
END_TEST

START_TEST(test_cgroups)
{
	static char proc[300], cgroup[300];

	snprintf(proc, sizeof(proc), "%s/proc", aux_directory);
	snprintf(cgroup, sizeof(cgroup), "%s/cg", aux_directory);
	gm_sys.proc = proc;
	gm_sys.cgroup = cgroup;
	ck_assert_uint_eq(gm_budget_cgroup_left(), UINT64_MAX);	/* no /proc */
	ck_assert_uint_eq(gm_budget(800 * MIB), 100 * MIB);

	/* v2: the tightest above counts; cache that would go first is not used. */
	aux_put_file("proc/self/cgroup", "0::/a/b\n");
	aux_put_file("cg/a/b/memory.max", "max\n");
	aux_put_file("cg/a/memory.max", "1000000\n");
	aux_put_file("cg/a/memory.current", "700000\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 300000);
	aux_put_file("cg/a/memory.stat", "anon 1\nfile 2\ninactive_file 100000\nactive_file 3\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 400000);
	aux_put_file("cg/a/b/memory.max", "500\n");
	aux_put_file("cg/a/b/memory.current", "600\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 0);
	ck_assert_uint_eq(gm_budget(UINT64_MAX), 0);

	/* v1, in a container that sees only its own root. */
	aux_put_file("proc/self/cgroup",
		 "12:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n1:name=systemd:/docker/x\n0::/\n");
	aux_put_file("cg/memory/memory.limit_in_bytes", "2000000\n");
	aux_put_file("cg/memory/memory.usage_in_bytes", "500000\n");
	aux_put_file("cg/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 100000\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 1600000);
	aux_put_file("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), UINT64_MAX);
	aux_put_file("proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   64000 kB\n");
	ck_assert_uint_eq(gm_budget(UINT64_MAX), 2000 * 1024);
	aux_put_file("proc/self/cgroup", "nonsense\n::\n0:\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), UINT64_MAX);
	/* Too little everywhere: no journal, and it is said. */
	aux_put_file("proc/meminfo", "MemAvailable:   60000 kB\n");
	ck_assert_int_eq(aux_try_start(1000, ""), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "/dev/shm: no space left"));
}
END_TEST

static void use(const char *mib)
{
	char bytes[64];

	snprintf(bytes, sizeof(bytes), "%s000000\n", mib);
	aux_put_file("cg/a/memory.current", bytes);
}

static uint64_t file_memory(void)
{
	struct stat st;

	ck_assert_int_eq(stat(aux_report.path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void record_much(void)
{
	static uint64_t address = 0x1000;

	for (unsigned int i = 0; i < 20000; i++) {
		uint32_t block = aux_record(0, address += 4096, 512);

		gm_record_free(0, block, 0, 0);
	}
}

/* The program takes what its control group had left when the journal began: that grows no more, and is
 * not copied, until there is room again. */
START_TEST(test_program_takes_the_rest)
{
	static char proc[300], cgroup[300];
	struct gm_copy copy;
	uint64_t before;

	snprintf(proc, sizeof(proc), "%s/proc", aux_directory);
	snprintf(cgroup, sizeof(cgroup), "%s/cg", aux_directory);
	aux_put_file("proc/self/cgroup", "0::/a\n");
	aux_put_file("proc/meminfo", "MemAvailable: 64000000 kB\n");
	aux_put_file("cg/a/memory.max", "256000000\n");
	aux_put_file("cg/a/memory.stat", "inactive_file 0\n");
	use("6");
	gm_sys.proc = proc;
	gm_sys.cgroup = cgroup;
	aux_start(1000000);
	aux_record(0, 0x500, 512);
	before = file_memory();
	ck_assert_uint_gt(gm_rec.budget, 7 * MIB);
	use("253");
	gm_recorder_tick();
	record_much();
	ck_assert_uint_lt(file_memory(), before + MIB / 2);	/* an eighth of 3 MB at a time */
	use("255");
	gm_recorder_tick();
	memset(&copy, 0, sizeof(copy));
	ck_assert_int_eq(gm_copy_from_process(&copy), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(copy.error, "control group"));
	use("6");
	gm_recorder_tick();
	record_much();
	ck_assert_uint_gt(file_memory(), before + 2 * MIB);
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	gm_copy_free(&copy);
	aux_sound();
}
END_TEST

/* A journal that grows has it looked at, soon and not only at the next tick. */
START_TEST(test_growth_is_looked_at)
{
	static char proc[300], cgroup[300];

	snprintf(proc, sizeof(proc), "%s/proc", aux_directory);
	snprintf(cgroup, sizeof(cgroup), "%s/cg", aux_directory);
	gm_sys.proc = proc;
	gm_sys.cgroup = cgroup;
	use("6");
	aux_start(1000000);
	gm_recorder_keep_up();
	ck_assert_uint_eq(gm_get(&gm_rec.review), 0);
	use("253");
	record_much();
	ck_assert_uint_eq(gm_get(&gm_rec.review), 1);
	gm_recorder_keep_up();
	ck_assert_uint_eq(gm_get(&gm_rec.review), 0);
	ck_assert_uint_le(gm_rec.budget, gm_rec.populated + 3000000 / 8);
	/* Without a limit nobody is woken. */
	aux_forget();
	aux_put_file("cg/a/memory.max", "max\n");
	aux_start(1000000);
	record_much();
	ck_assert_uint_eq(gm_get(&gm_rec.review), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("budget");
	TCase *tc = tcase_create("budget");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_plans);
	tcase_add_test(tc, test_cgroups);
	tcase_add_test(tc, test_program_takes_the_rest);
	tcase_add_test(tc, test_growth_is_looked_at);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
