/* The journal as a file: what it says, how it grows, what hosts may limit; and its liveness. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/budget.h"
#include "recorder/clock.h"
#include "recorder/image.h"
#include "recorder/journal.h"
#include "recorder/state.h"
#include "recorder/sys.h"
#include "test/unit/aux_journal.h"

#define MIB (UINT64_C(1) << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1		/* terabytes of shadow: no limits of memory can be set */
#else
#define UNDER_SANITIZER 0
#endif

static uint64_t file_memory(void)	/* bytes that the journal's file has from its file system */
{
	struct stat st;

	ck_assert_int_eq(stat(aux_report.path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(test_header)
{
	char where[600];
	const struct gm_header *header;
	unsigned int open_before;
	struct gm_image image;
	struct stat st;

	open_before = aux_descriptors();
	ck_assert_ptr_null(gm_recorder_header());
	aux_start(1000000);
	header = gm_recorder_header();
	ck_assert_uint_eq(aux_descriptors(), open_before);
	ck_assert_str_eq(aux_report.note, "");
	snprintf(where, sizeof(where), "%s/gpumem-%u/test_journal.%d.", aux_directory, geteuid(),
		 (int)getpid());
	ck_assert_mem_eq(aux_report.path, where, strlen(where));
	ck_assert_str_eq(strrchr(aux_report.path, '.'), ".journal");
	ck_assert_int_eq(stat(aux_report.path, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq((uint64_t)st.st_size, header->file_bytes);
	*strrchr(where, '/') = '\0';
	ck_assert_int_eq(stat(where, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0700);
	ck_assert_uint_lt(file_memory(), 2 * MIB);	/* starts small */

	ck_assert_uint_eq(header->magic, GM_MAGIC);
	ck_assert_int_eq(header->pid, getpid());
	ck_assert_uint_gt(header->pid_namespace, 0);
	ck_assert_uint_gt(header->start_ticks, 0);
	ck_assert_uint_eq(strlen(header->boot_id), 36);
	ck_assert_str_eq(header->command, "test_journal");
	ck_assert_ptr_nonnull(strstr(header->command_line, "test_journal"));
	ck_assert_str_eq(header->output, "/nowhere/gpumem.%p.json");
	ck_assert_str_eq(header->gpumem_version, "0.0-test");
	ck_assert_int_eq(header->rank, 3);
	ck_assert_uint_eq(header->life, GM_LIFE_RUNNING);
	ck_assert_uint_ge(header->history_events, 1000000);
	aux_sound();

	aux_image(&image);
	ck_assert_uint_eq(gm_image_items(&image, GM_REGION_SETTINGS), 2);
	gm_image_free(&image);
	gm_recorder_unlink();
	ck_assert_int_eq(access(aux_report.path, F_OK), -1);
	aux_record(0, 0x1000, 512);	/* goes on, into memory */
	gm_recorder_unlink();
	aux_sound();
}
END_TEST

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

/* Fill everything there is; the file may not take more than the budget. */
static void fill_up(unsigned int allocations)
{
	static unsigned int before;

	for (unsigned int i = before; i < before + allocations; i++) {
		struct gm_alloc alloc = aux_alloc(0, 0x1000 + i * UINT64_C(4096), 512);
		char text[64];

		gm_record_alloc(0, &alloc, &(uint32_t){ 0 });
		for (unsigned int k = 0; k < 4; k++)
			gm_record_note(GM_ACTION_ANNOTATE, 0, k, 0);
		snprintf(text, sizeof(text), "a string that nobody has seen: %u", i);
		gm_intern_string(text, (uint32_t)strlen(text));
	}
	before += allocations;
	aux_sound();
	aux_count_events(GM_ACTION_NONE);
}

static uint64_t lent_space;

static int lend_space(int fd, struct statvfs *ret)
{
	(void)fd;
	*ret = (struct statvfs){ .f_frsize = 4096, .f_blocks = lent_space / 4096,
				 .f_bavail = lent_space / 4096 };
	return 0;
}

/* A container's 64 MiB /dev/shm: an eighth of it at most, and half of that for history. */
START_TEST(test_small_shm)
{
	gm_sys.space = lend_space;
	lent_space = 64 * MIB;
	aux_start(1048576);
	ck_assert_uint_eq(aux_report.budget_bytes, 8 * MIB);
	fill_up(60000);
	ck_assert_uint_le(file_memory(), 8 * MIB);
	ck_assert_uint_ge(file_memory(), 7 * MIB);
	ck_assert_uint_ge(gm_get(&gm_region(GM_REGION_EVENTS)->populated), MIB);
	ck_assert_uint_ge(gm_get(&gm_region(GM_REGION_SEGMENTS)->used) /
			  sizeof(struct gm_segment), 15000);
	ck_assert_uint_gt(gm_region(GM_REGION_STRINGS)->refused, 0);
}
END_TEST

/* Tables first: with all of their half and more used, the history still has its sixteenth. */
START_TEST(test_history_keeps_some)
{
	gm_sys.space = lend_space;
	lent_space = 64 * MIB;
	aux_start(1048576);
	gm_rec.pool.chunks = 0;		/* none is written for now */
	fill_up(20000);
	gm_rec.pool.chunks = gm_rec.pool.limit;
	fill_up(1000);
	ck_assert_uint_ge(gm_get(&gm_region(GM_REGION_EVENTS)->populated), 8 * MIB / 16 / 2);
	ck_assert_uint_le(gm_get(&gm_region(GM_REGION_EVENTS)->populated), 8 * MIB / 16);
	ck_assert_uint_le(file_memory(), 8 * MIB);
}
END_TEST

static int no_populate(void *addr, size_t bytes, int advice)
{
	if (advice == 23) {
		errno = EINVAL;
		return -1;
	}
	return madvise(addr, bytes, advice);
}

/* A kernel before 5.14 cannot say that a page is not to be had: all of it is allocated at once,
 * so there is less of it. */
START_TEST(test_no_populate)
{
	gm_sys.advise = no_populate;
	aux_start(1048576);
	ck_assert_uint_le(gm_recorder_header()->file_bytes, 32 * MIB);
	ck_assert_uint_ge(file_memory(), gm_recorder_header()->file_bytes);
	ck_assert_uint_gt(gm_recorder_header()->history_events, 50000);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "history: cut to"));
	fill_up(60000);
	ck_assert_uint_eq(gm_recorder_header()->events_lost, 0);
}
END_TEST

START_TEST(test_file_limit)
{
	struct rlimit limit = { 4 * MIB, RLIM_INFINITY };

	/* Not a byte beyond it: SIGXFSZ would kill this process. */
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	aux_start(1048576);
	ck_assert_uint_le(gm_recorder_header()->file_bytes, 4 * MIB);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "history: cut to"));
	fill_up(20000);
	gm_recorder_forget();
	limit.rlim_cur = MIB / 2;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(aux_try_start(1000, ""), -ENOSPC);
	ck_assert_str_ne(aux_report.note, "");
}
END_TEST

START_TEST(test_address_space_limit)
{
	struct rlimit limit = { 400 * MIB, RLIM_INFINITY };

	if (UNDER_SANITIZER)
		return;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	aux_start(1048576);
	ck_assert_uint_le(gm_recorder_header()->file_bytes, 25 * MIB);
	fill_up(20000);
	free(malloc(300 * MIB));
	gm_recorder_forget();
	limit.rlim_cur = 30 * MIB;
	setrlimit(RLIMIT_AS, &limit);
	ck_assert_int_lt(aux_try_start(1048576, ""), 0);
}
END_TEST

/* mlockall(MCL_FUTURE) would bring a new mapping into memory whole, all of its capacity. */
START_TEST(test_mlockall)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	if (UNDER_SANITIZER)
		return;
	setrlimit(RLIMIT_MEMLOCK, &limit);
	if (mlockall(MCL_FUTURE) < 0) {
		printf("# mlockall is not allowed here: not tested\n");
		return;
	}
	aux_start(1048576);
	ck_assert_uint_gt(gm_recorder_header()->file_bytes, 100 * MIB);
	ck_assert_uint_lt(file_memory(), 4 * MIB);
	fill_up(2000);
	ck_assert_uint_lt(file_memory(), 8 * MIB);
	munlockall();
}
END_TEST

static void no_journals_in(const char *directory)
{
	char own[700];

	snprintf(own, sizeof(own), "%s/gpumem-%u", directory, geteuid());
	ck_assert_uint_eq(aux_entries(own, ".journal"), 0);
}

/* Everything that the start asks of the system fails once: it still starts, elsewhere or smaller,
 * or it says why not; nothing is left behind. */
START_TEST(test_nth_call_fails)
{
	unsigned int open_before = aux_descriptors();
	char own[600];
	int r;

	ck_assert_ptr_nonnull(mkdtemp(strcat(strcpy(own, aux_directory), "/nth-XXXXXX")));
	gm_sys.shm = own;
	setenv("TMPDIR", own, 1);
	unsetenv("XDG_RUNTIME_DIR");
	aux_sys_wrap();
	aux_fail_at = (unsigned int)_i;
	r = aux_try_start(100000, "");
	aux_fail_at = 0;
	ck_assert_uint_eq(aux_descriptors(), open_before);
	if (r < 0) {
		ck_assert_ptr_null(gm_recorder_header());
		ck_assert_str_ne(aux_report.note, "");
		ck_assert_int_eq(gm_record_free(0, 1, 0, 0), -ENODEV);
		no_journals_in(own);
		ck_assert_int_eq(aux_try_start(100000, ""), 0);
	}
	aux_record(0, 0x1000, 512);
	aux_sound();
	gm_recorder_unlink();
	no_journals_in(own);
}
END_TEST

/* From the n-th call on all of them fail: no journal at all, and the host does not notice. */
START_TEST(test_all_calls_fail)
{
	unsigned int open_before = aux_descriptors();

	setenv("TMPDIR", aux_directory, 1);
	aux_sys_wrap();
	aux_fail_at = (unsigned int)_i;
	aux_fail_on = true;
	ck_assert_int_lt(aux_try_start(100000, aux_directory), 0);
	ck_assert_uint_gt(aux_calls, aux_fail_at);
	ck_assert_uint_eq(aux_descriptors(), open_before);
	ck_assert_ptr_null(gm_recorder_header());
	ck_assert_ptr_nonnull(strstr(aux_report.note, "nothing is recorded"));
}
END_TEST

static void *hold(void *arg)
{
	int *ready = arg;

	gm_recorder_hold_alive();
	if (write(ready[1], "x", 1) != 1)
		abort();
	for (;;)
		pause();
	return NULL;
}

/* A process with a journal and a helper that holds its mutex. Returns its pid, and its journal. */
static pid_t living_child(char *ret_path, size_t size)
{
	int ready[2];
	pid_t child;
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		pthread_t helper;

		gm_recorder_forget();
		aux_start(100);
		if (write(ready[1], aux_report.path, strlen(aux_report.path) + 1) < 0 ||
		    pthread_create(&helper, NULL, hold, ready))
			_exit(1);
		for (;;)
			pause();
	}
	for (size_t n = 0; n < size && read(ready[0], ret_path + n, 1) == 1 && ret_path[n]; n++)
		;
	ck_assert_int_eq((int)read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

static int alive(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;

	ck_assert_int_ge(fd, 0);
	r = gm_image_alive(fd);
	close(fd);
	return r;
}

static void end(pid_t child)
{
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

START_TEST(test_alive)
{
	char path[1024];
	pid_t child = living_child(path, sizeof(path));

	ck_assert_int_eq(alive(path), 1);
	end(child);
	ck_assert_int_eq(alive(path), 0);
	unlink(path);
}
END_TEST

/* Dead journals go, but for the four newest; the living one and what is no journal stay. */
START_TEST(test_sweep)
{
	char path[9][1024], living[1024], strange[1100];
	unsigned int left = 0;
	pid_t child = living_child(living, sizeof(living));

	for (unsigned int i = 0; i < 9; i++)
		end(living_child(path[i], sizeof(path[i])));
	/* Each of them left four older ones at most. */
	for (unsigned int i = 0; i < 9; i++) {
		bool there = access(path[i], F_OK) == 0;

		left += there;
		ck_assert(there == (i >= 4));
	}
	ck_assert_uint_eq(left, 5);
	snprintf(strange, sizeof(strange), "%s", path[8]);
	snprintf(strrchr(strange, '/'), 100, "/strange.1.2.journal");
	close(open(strange, O_CREAT | O_WRONLY, 0600));
	aux_start(100);
	for (unsigned int i = 0; i < 9; i++)
		ck_assert_int_eq(access(path[i], F_OK), i >= 5 ? 0 : -1);
	ck_assert_int_eq(access(living, F_OK), 0);
	ck_assert_int_eq(access(strange, F_OK), 0);
	ck_assert_int_eq(access(aux_report.path, F_OK), 0);
	ck_assert_int_eq(alive(living), 1);
	end(child);
}
END_TEST

/* The mapping is not a forked child's. */
START_TEST(test_not_inherited)
{
	uint64_t bytes;
	const void *base;
	unsigned char resident;
	pid_t child;
	int status;

	aux_start(1000);
	base = gm_recorder_mapping(&bytes);
	ck_assert_uint_eq(bytes, gm_recorder_header()->file_bytes);
	ck_assert_int_eq(mincore((void *)(uintptr_t)base, 4096, &resident), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(mincore((void *)(uintptr_t)base, 4096, &resident) < 0 && errno == ENOMEM ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

static void put_file(const char *name, const char *content)
{
	char path[512], *slash;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", aux_directory, name);
	for (slash = strchr(path + strlen(aux_directory) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(content, file);
	fclose(file);
}

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
	put_file("proc/self/cgroup", "0::/a/b\n");
	put_file("cg/a/b/memory.max", "max\n");
	put_file("cg/a/memory.max", "1000000\n");
	put_file("cg/a/memory.current", "700000\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 300000);
	put_file("cg/a/memory.stat", "anon 1\nfile 2\ninactive_file 100000\nactive_file 3\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 400000);
	put_file("cg/a/b/memory.max", "500\n");
	put_file("cg/a/b/memory.current", "600\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 0);
	ck_assert_uint_eq(gm_budget(UINT64_MAX), 0);

	/* v1, in a container that sees only its own root. */
	put_file("proc/self/cgroup",
		 "12:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n1:name=systemd:/docker/x\n0::/\n");
	put_file("cg/memory/memory.limit_in_bytes", "2000000\n");
	put_file("cg/memory/memory.usage_in_bytes", "500000\n");
	put_file("cg/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 100000\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), 1600000);
	put_file("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), UINT64_MAX);
	put_file("proc/meminfo", "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   64000 kB\n");
	ck_assert_uint_eq(gm_budget(UINT64_MAX), 2000 * 1024);
	put_file("proc/self/cgroup", "nonsense\n::\n0:\n");
	ck_assert_uint_eq(gm_budget_cgroup_left(), UINT64_MAX);
	/* Too little everywhere: no journal, and it is said. */
	put_file("proc/meminfo", "MemAvailable:   60000 kB\n");
	ck_assert_int_eq(aux_try_start(1000, ""), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "nothing is recorded"));
}
END_TEST

static void *take_stamps(void *arg)
{
	uint64_t *stamps = arg;

	for (unsigned int i = 0; i < 20000; i++)
		stamps[i] = gm_stamp();
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

START_TEST(test_clock)
{
	static const char *const sources[] = { "kvm-clock\n", "tsc-early\n", "hpet\n", "" };
	static uint64_t stamps[4 * 20000];
	static char name[300];
	pthread_t threads[4];

	snprintf(name, sizeof(name), "%s/clocksource", aux_directory);
	gm_sys.clocksource = name;
	for (unsigned int i = 0; i < 4; i++) {
		put_file("clocksource", sources[i]);
		gm_clock_init();
		/* Not the TSC: CLOCK_MONOTONIC in ns. */
		ck_assert_uint_lt(gm_stamp() - gm_now_ns() + UINT64_C(60000000000),
				  UINT64_C(120000000000));
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, take_stamps, &stamps[i * 20000]);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int k = 1; k < 20000; k++)
			ck_assert_uint_gt(stamps[i * 20000 + k], stamps[i * 20000 + k - 1]);
	qsort(stamps, 4 * 20000, sizeof(uint64_t), by_value);
	for (unsigned int k = 1; k < 4 * 20000; k++)
		ck_assert_uint_ne(stamps[k], stamps[k - 1]);
	aux_start(100);
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 1);
	gm_recorder_forget();
	put_file("clocksource", "tsc\n");
	aux_start(100);
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 0);
	gm_recorder_tick();
	ck_assert_uint_eq(gm_recorder_header()->clock.sequence % 2, 0);
	ck_assert_uint_gt(gm_recorder_header()->clock.stamp[1],
			  gm_recorder_header()->clock.stamp[0]);
}
END_TEST

/* A stamp taken before a message is below one taken after it: the order of free and alloc. */
struct ball { _Atomic(uint64_t) stamp; char pad[56]; };
static struct ball balls[2];

static void *play(void *arg)
{
	unsigned int me = (unsigned int)(uintptr_t)arg;
	uint64_t wrong = 0, last = 0;

	for (unsigned int i = 0; i < 20000; i++) {
		uint64_t theirs;

		if (me == 0 || i)
			gm_set_release(&balls[me].stamp, gm_stamp_before());
		while ((theirs = gm_get_acquire(&balls[!me].stamp)) == last)
			__builtin_ia32_pause();
		if (theirs == UINT64_MAX)
			break;
		wrong += gm_stamp() <= theirs;
		last = theirs;
	}
	gm_set_release(&balls[me].stamp, UINT64_MAX);
	return (void *)(uintptr_t)wrong;
}

START_TEST(test_stamps_follow_messages)
{
	pthread_t threads[2];

	gm_clock_init();
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, play, (void *)i), 0);
	for (unsigned int i = 0; i < 2; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *tc = tcase_create("journal");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_header);
	tcase_add_test(tc, test_plans);
	tcase_add_test(tc, test_small_shm);
	tcase_add_test(tc, test_history_keeps_some);
	tcase_add_test(tc, test_no_populate);
	tcase_add_test(tc, test_file_limit);
	tcase_add_test(tc, test_address_space_limit);
	tcase_add_test(tc, test_mlockall);
	tcase_add_loop_test(tc, test_nth_call_fails, 1, 70);
	tcase_add_loop_test(tc, test_all_calls_fail, 1, 30);
	tcase_add_test(tc, test_alive);
	tcase_add_test(tc, test_sweep);
	tcase_add_test(tc, test_not_inherited);
	tcase_add_test(tc, test_cgroups);
	tcase_add_test(tc, test_clock);
	tcase_add_test(tc, test_stamps_follow_messages);
	suite_add_tcase(suite, tc);
	srunner_set_tap(sr, "-");
	srunner_run_all(sr, CK_SILENT);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
