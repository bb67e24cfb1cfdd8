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
#include <time.h>
#include <unistd.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "recorder/record/lives_change.h"
#include "recorder/record/pools.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

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
	struct gm_copy copy;
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

	aux_copy(&copy);
	ck_assert_uint_eq(gm_copy_items(&copy, GM_REGION_SETTINGS), 2);
	gm_copy_free(&copy);
	gm_recorder_unlink();
	ck_assert_int_eq(access(aux_report.path, F_OK), -1);
	aux_record(0, 0x1000, 512);	/* goes on, into memory */
	gm_recorder_unlink();
	aux_sound();
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

static bool disk_is_full;
static uint64_t disk_left;

/* Others fill the file system: all that is left is what is given back. */
static int advise_full(void *addr, size_t bytes, int advice)
{
	int r;

	if (advice == 23 && disk_is_full && bytes > disk_left) {
		errno = EFAULT;
		return -1;
	}
	r = madvise(addr, bytes, advice);
	if (advice == 23 && disk_is_full)
		disk_left -= bytes;
	if (advice == MADV_REMOVE && r == 0)
		disk_left += bytes;
	return r;
}

/* Room is set aside in the tables, as much as they use; then the memory of later history is theirs. */
START_TEST(test_disk_is_full)
{
	const struct gm_region *events, *blocks, *segments;
	uint64_t ahead, number = 3000;
	struct gm_copy copy;

	gm_sys.advise = advise_full;
	aux_start(1048576);
	gm_recorder_hold_alive();	/* with a helper, history is got ahead of need */
	events = gm_region(GM_REGION_EVENTS);
	blocks = gm_region(GM_REGION_BLOCKS);
	segments = gm_region(GM_REGION_SEGMENTS);
	for (uint64_t i = 1; i <= number; i++)
		aux_record(0, i << 30, 4096);
	gm_recorder_keep_up();
	ahead = gm_get(&events->populated) - gm_get(&events->used);
	ck_assert_uint_ge(ahead, 65536);
	ck_assert_uint_ge(gm_get(&blocks->populated), 2 * gm_get(&blocks->used) - 65536);
	ck_assert_uint_ge(gm_get(&segments->populated), 2 * gm_get(&segments->used) - 65536);
	disk_is_full = true;
	gm_rec.history = 0;		/* the program takes none of it */
	for (unsigned int i = 0; i < 2400; i++)	/* in what was set aside */
		aux_record(0, ++number << 30, 4096);
	ck_assert(!gm_recorder_is_short());
	ck_assert_uint_eq(disk_left, 0);
	while (gm_get(&blocks->used) + 128 <= gm_get(&blocks->populated) &&
	       gm_get(&segments->used) + 128 <= gm_get(&segments->populated))
		aux_record(0, ++number << 30, 4096);
	aux_record(0, ++number << 30, 4096);	/* in what history gives */
	ck_assert(!gm_recorder_is_short());
	ck_assert_uint_gt(disk_left, 0);
	ck_assert_uint_lt(gm_get(&events->populated) - gm_get(&events->used), 4096);
	aux_sound();
	aux_copy(&copy);
	ck_assert_uint_gt(copy.event_count, 1000);
	gm_copy_free(&copy);
	disk_left = 0;
	while (!gm_recorder_is_short()) {	/* and then no more */
		struct gm_alloc alloc = aux_alloc(0, ++number << 30, 4096);
		uint32_t block;

		gm_record_alloc(0, &alloc, &block);
	}
	ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current, (int64_t)number - 1);
	aux_sound();
}
END_TEST

/* The next level of a pool's lines is set aside, too; and a block without a line is said to be missing. */
START_TEST(test_disk_is_full_for_pools)
{
	struct gm_handed block = { .address = 0x10000000, .size = 512 };
	struct gm_lives lives = { .domain = 0 };
	int r = 0;

	gm_sys.advise = advise_full;
	aux_start(64);
	ck_assert(gm_lives_begin(&lives, gm_record_pool(GM_POOL_API, 0, gm_intern_string("mine", 4), 5), 0));
	disk_is_full = true;
	for (unsigned int i = 0; i < 1500; i++, block.address += 512)
		ck_assert_int_eq(gm_lives_add(&lives, &block), 0);
	ck_assert_ptr_eq(gm_get(&lives.newest), &lives.level[1]);
	ck_assert(!gm_recorder_is_short());
	disk_left = 0;
	for (unsigned int i = 0; i < 1 << 16 && !r; i++, block.address += 512)
		r = gm_lives_add(&lives, &block);
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(gm_region(GM_REGION_LIVES)->refused, 1);
	ck_assert(gm_recorder_is_short());
	aux_sound();
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

#define LARGE_PAGE 65536u

static int large_page(void)
{
	return LARGE_PAGE;
}

static int advise_large_pages(void *addr, size_t bytes, int advice)
{
	if ((uintptr_t)addr % LARGE_PAGE) {
		errno = EINVAL;
		return -1;
	}
	return madvise(addr, bytes, advice);
}

static void *map_large_pages(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	uint8_t *room = mmap(addr, bytes + LARGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uintptr_t at = ((uintptr_t)room + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;

	ck_assert_ptr_null(addr);
	if (room == MAP_FAILED)
		return room;
	return mmap((void *)at, bytes, prot, flags | MAP_FIXED, fd, offset);
}

/* A kernel with pages of 64 KiB, as many for aarch64 have: it maps, and takes advice for, whole ones only, and the
 * areas of the journal begin within them. */
START_TEST(test_large_pages)
{
	gm_sys.page = large_page;
	gm_sys.advise = advise_large_pages;
	gm_sys.map = map_large_pages;
	aux_start(1048576);
	ck_assert_str_eq(aux_report.note, "");
	ck_assert_uint_eq((uintptr_t)gm_rec.base % LARGE_PAGE, 0);
	fill_up(20000);
	ck_assert_uint_gt(file_memory(), MIB);
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)
		ck_assert_uint_eq(gm_get(&gm_region(r)->refused), 0);
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
	aux_forget();
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
	aux_forget();
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
	aux_publish_modules(1, AUX_MODULES);
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
	ck_assert_ptr_nonnull(strstr(aux_report.note, "GPUMEM_JOURNAL: "));
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

		aux_forget();
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
	r = gm_copy_alive(fd);
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

/* The header of @journal under another name beside it: for who looks, a journal of the same process. */
static void copy_header(const char *journal, unsigned int number, char ret[1100])
{
	static char header[GM_HEADER_BYTES];
	int fd = open(journal, O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(read(fd, header, sizeof(header)), sizeof(header));
	close(fd);
	snprintf(ret, 1100, "%.*s/app.%d.%016x.journal", (int)(strrchr(journal, '/') - journal), journal,
		 (int)getpid(), number);
	fd = open(ret, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, header, sizeof(header)), sizeof(header));
	close(fd);
}

/* Beside very many living processes the dead are found all the same, whether they come before or after
 * them in the directory. */
START_TEST(test_sweep_of_many)
{
	char path[9][1024], living[1024], copied[1100];
	pid_t child = living_child(living, sizeof(living));
	unsigned int left = 0;

	for (unsigned int i = 0; i < 9; i++) {
		end(living_child(path[i], sizeof(path[i])));
		for (unsigned int k = 0; k < 100; k++)
			copy_header(living, 100 * i + k, copied);
	}
	aux_start(100);
	for (unsigned int i = 0; i < 9; i++) {
		ck_assert_int_eq(access(path[i], F_OK), i >= 5 ? 0 : -1);
		left += access(path[i], F_OK) == 0;
	}
	ck_assert_uint_eq(left, 4);
	ck_assert_int_eq(access(living, F_OK), 0);
	ck_assert_int_eq(access(copied, F_OK), 0);
	end(child);
}
END_TEST

/* One that says that its process ended cleanly (which could not remove it) goes, and is none of the four. */
START_TEST(test_sweep_of_clean_ends)
{
	const uint32_t life = GM_LIFE_CLEAN;
	char clean[1024], dead[1024];
	int fd;

	end(living_child(dead, sizeof(dead)));
	end(living_child(clean, sizeof(clean)));
	fd = open(clean, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, &life, sizeof(life), offsetof(struct gm_header, life)), sizeof(life));
	close(fd);
	aux_start(100);
	ck_assert_int_eq(access(clean, F_OK), -1);
	ck_assert_int_eq(access(dead, F_OK), 0);
}
END_TEST

/* A file beside @beside: the name of a journal of @pid, @bytes of @head, so many seconds old. */
static void put_strange(const char *beside, const char *format, pid_t pid, const void *head,
			size_t bytes, int seconds, char ret[1100])
{
	const struct timespec then = { .tv_sec = time(NULL) - seconds };
	const struct timespec times[2] = { then, then };
	char name[100];
	int fd;

	snprintf(name, sizeof(name), format, (int)pid);
	snprintf(ret, 1100, "%.*s/%s", (int)(strrchr(beside, '/') - beside), beside, name);
	fd = open(ret, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, head, bytes), (ssize_t)bytes);
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

/* Of the version before this one, and two hours old. */
static void make_older(const char *path)
{
	const struct timespec then = { .tv_sec = time(NULL) - 7200 };
	const struct timespec times[2] = { then, then };
	const uint32_t version = GM_FORMAT_VERSION - 1;
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

/* What never came to be a journal goes if it is old, ours by its name and nobody's; what is of an
 * older version counts among the dead; everything else stays. */
START_TEST(test_sweep_of_strangers)
{
	static const struct {
		const char *name;
		uint64_t magic;
		int seconds;
		bool of_living, goes;
	} strangers[] = {
		{ "app.x.%d.0123456789abcdef.journal", 0, 7200, false, true },
		{ "app.y.%d.0123456789abcdef.journal", 0, 60, false, false },
		{ "app.z.%d.0123456789abcdef.journal", 0, 7200, true, false },
		{ "app.%d.0123.journal", 0, 7200, false, false },
		{ "%d.0123456789abcdef.journal", 0, 7200, false, false },
		{ "app.v.%d.0123456789abcdef.journal", 0x4141414141414141, 7200, false, false },
		{ "app.w.%d.0123456789abcdef.journal", GM_MAGIC, 7200, false, false },
	};
	enum { STRANGERS = sizeof(strangers) / sizeof(strangers[0]) };
	char path[STRANGERS][1100], older[1024], dead[4][1024];
	pid_t gone = fork();

	if (gone == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
	end(living_child(older, sizeof(older)));
	for (int i = 0; i < STRANGERS; i++) {
		uint64_t head[2] = { strangers[i].magic, 99 };

		put_strange(older, strangers[i].name, strangers[i].of_living ? getpid() : gone, head,
			    sizeof(head), strangers[i].seconds, path[i]);
	}
	make_older(older);
	for (int i = 0; i < 4; i++)
		end(living_child(dead[i], sizeof(dead[i])));
	aux_start(100);
	ck_assert_int_eq(access(older, F_OK), -1);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(access(dead[i], F_OK), 0);
	for (int i = 0; i < STRANGERS; i++)
		ck_assert_msg((access(path[i], F_OK) != 0) == strangers[i].goes, "%s", path[i]);
}
END_TEST

/* The mapping is not a forked child's. */
START_TEST(test_not_inherited)
{
	const void *base;
	unsigned char resident;
	pid_t child;
	int status;

	aux_start(1000);
	base = gm_recorder_header();
	ck_assert_int_eq(mincore((void *)(uintptr_t)base, 4096, &resident), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(mincore((void *)(uintptr_t)base, 4096, &resident) < 0 && errno == ENOMEM ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *tc = tcase_create("journal");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_single_test(tc, test_header);
	tcase_add_single_test(tc, test_small_shm);
	tcase_add_single_test(tc, test_history_keeps_some);
	tcase_add_single_test(tc, test_disk_is_full);
	tcase_add_single_test(tc, test_disk_is_full_for_pools);
	tcase_add_single_test(tc, test_no_populate);
	tcase_add_single_test(tc, test_file_limit);
	tcase_add_single_test(tc, test_large_pages);
	tcase_add_single_test(tc, test_address_space_limit);
	tcase_add_single_test(tc, test_mlockall);
	tcase_add_single_loop_test(tc, test_nth_call_fails, 1, 70);
	tcase_add_single_loop_test(tc, test_all_calls_fail, 1, 30);
	tcase_add_test(tc, test_alive);
	tcase_add_test(tc, test_sweep);
	tcase_add_test(tc, test_sweep_of_many);
	tcase_add_test(tc, test_sweep_of_clean_ends);
	tcase_add_test(tc, test_sweep_of_strangers);
	tcase_add_single_test(tc, test_not_inherited);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
