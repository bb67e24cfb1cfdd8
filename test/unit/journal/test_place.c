/* Where the journal lies: options, places that do not do, other users' traps, odd hosts. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/journal/place.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

static char dir[400], own[500];		/* a fresh directory for each test, and ours in it */

static void fresh(void)
{
	snprintf(dir, sizeof(dir), "%s/place-XXXXXX", aux_directory);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(own, sizeof(own), "%s/gpumem-%u", dir, geteuid());
	gm_sys.shm = "/nowhere";
	unsetenv("XDG_RUNTIME_DIR");
	setenv("TMPDIR", "/nowhere/at/all", 1);
}

static void in_directory(const char *directory)
{
	ck_assert_mem_eq(aux_report.path, directory, strlen(directory));
	ck_assert_int_eq(aux_report.path[strlen(directory)], '/');
	ck_assert_int_eq(access(aux_report.path, R_OK | W_OK), 0);
}

START_TEST(test_option_directory)
{
	char slashes[420];

	fresh();
	ck_assert_int_eq(aux_try_start(10, dir), 0);
	in_directory(own);
	ck_assert_str_eq(aux_report.note, "");
	aux_forget();
	snprintf(slashes, sizeof(slashes), "%s//", dir);
	ck_assert_int_eq(aux_try_start(10, slashes), 0);
	in_directory(own);
	aux_forget();
	ck_assert_int_eq(chdir(dir), 0);
	ck_assert_int_eq(mkdir("deeper", 0755), 0);
	ck_assert_int_eq(aux_try_start(10, "deeper"), 0);
	ck_assert_int_eq(chdir("/"), 0);
	gm_recorder_unlink();		/* its place was made absolute */
	ck_assert_int_eq(access(aux_report.path, F_OK), -1);
}
END_TEST

START_TEST(test_option_file)
{
	char path[500], second[510];
	struct stat st;

	fresh();
	snprintf(path, sizeof(path), "%s/my.journal", dir);
	snprintf(second, sizeof(second), "%s-2", path);
	ck_assert_int_eq(aux_try_start(10, path), 0);
	ck_assert_str_eq(aux_report.path, path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	aux_forget();
	/* What is there is never written to, not even through a link. */
	ck_assert_int_eq(symlink("/nowhere", second), 0);
	ck_assert_int_eq(aux_try_start(10, path), 0);
	ck_assert_int_eq(aux_report.path[strlen(path)], '-');
	ck_assert_str_eq(aux_report.path + strlen(path), "-3");
	gm_recorder_unlink();
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* An option that cannot be had is named, and the usual places are tried. */
START_TEST(test_option_refused)
{
	fresh();
	gm_sys.shm = dir;
	ck_assert_int_eq(aux_try_start(10, "/nowhere/to/be/found"), 0);
	in_directory(own);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "GPUMEM_JOURNAL: no such directory"));
	ck_assert_ptr_nonnull(strstr(aux_report.note, "; the journal is in /"));
	ck_assert_ptr_nonnull(strstr(aux_report.note, own));
	aux_forget();
	ck_assert_int_eq(aux_try_start(10, "/dev/null"), 0);
	in_directory(own);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "GPUMEM_JOURNAL: invalid"));
	ck_assert_int_eq(access("/dev/null-2", F_OK), -1);
	aux_forget();
	ck_assert_int_eq(aux_try_start(10, "/proc/self/maps"), 0);
	ck_assert_ptr_nonnull(strstr(aux_report.note, "GPUMEM_JOURNAL: "));
}
END_TEST

START_TEST(test_order)
{
	char runtime[450], tmp[450];

	fresh();
	snprintf(runtime, sizeof(runtime), "%s/runtime", dir);
	snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
	mkdir(runtime, 0700);
	mkdir(tmp, 0700);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	setenv("TMPDIR", tmp, 1);
	gm_sys.shm = dir;
	aux_start(10);
	in_directory(own);
	aux_forget();
	gm_sys.shm = "/nowhere";
	aux_start(10);
	in_directory(runtime);
	ck_assert_str_eq(aux_report.note, "");
	aux_forget();
	setenv("XDG_RUNTIME_DIR", "relative/path", 1);
	aux_start(10);
	in_directory(tmp);
	aux_forget();
	setenv("TMPDIR", "/nowhere", 1);
	aux_start(10);
	ck_assert_str_eq(aux_report.path, "");		/* a memfd */
	ck_assert_ptr_nonnull(strstr(aux_report.note, "in memory only"));
	aux_record(0, 0x1000, 512);
	aux_sound();
	gm_recorder_unlink();
}
END_TEST

static void in_another_directory(void)
{
	char other[540];

	snprintf(other, sizeof(other), "%s-", own);
	ck_assert_mem_eq(aux_report.path, other, strlen(other));
	ck_assert_uint_eq(strcspn(aux_report.path + strlen(other), "/"), 16);
	ck_assert_str_eq(aux_report.note, "");
	ck_assert_int_eq(access(aux_report.path, R_OK | W_OK), 0);
}

/* What somebody else may have put in our place, a link or his own directory: ours has another name then,
 * and is found by its owner. One of ours that others may look into is shut. */
START_TEST(test_traps)
{
	char elsewhere[450], first[1100];
	struct stat st;

	fresh();
	gm_sys.shm = dir;
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", dir);
	mkdir(elsewhere, 0700);
	ck_assert_int_eq(symlink(elsewhere, own), 0);
	aux_start(10);
	in_another_directory();
	ck_assert_uint_eq(aux_entries(elsewhere, ".journal"), 0);
	strcpy(first, aux_report.path);
	aux_forget();
	aux_start(10);
	ck_assert_mem_eq(aux_report.path, first, (size_t)(strrchr(first, '/') - first) + 1);
	aux_forget();

	unlink(own);
	ck_assert_int_eq(mkdir(own, 0700), 0);
	ck_assert_int_eq(chmod(own, 02750), 0);
	aux_start(10);
	in_directory(own);
	ck_assert_int_eq(stat(own, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 02700);
	gm_recorder_unlink();
	aux_forget();

	if (chown(own, 12345, 12345) == 0) {
		aux_start(10);
		in_another_directory();
		ck_assert_uint_eq(aux_entries(own, ".journal"), 0);
		aux_forget();
		ck_assert_int_eq(chown(own, geteuid(), getegid()), 0);
	}
	aux_start(10);
	in_directory(own);
	aux_forget();

	/* The host's umask takes nothing from what we make. */
	fresh();
	gm_sys.shm = dir;
	umask(0777);
	aux_start(10);
	umask(022);
	in_directory(own);
	ck_assert_str_eq(aux_report.note, "");
	ck_assert_int_eq(stat(own, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(stat(aux_report.path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(test_names)
{
	fresh();
	gm_sys.shm = dir;
	program_invocation_short_name = (char *)(uintptr_t)"-we ird/../\n\xff name.py";
	aux_start(10);
	ck_assert_ptr_nonnull(strstr(aux_report.path, "/_we_ird_..___"));
	ck_assert_ptr_null(strchr(aux_report.path, '\n'));
	aux_forget();
	program_invocation_short_name = (char *)(uintptr_t)"";
	aux_start(10);
	ck_assert_ptr_nonnull(strstr(aux_report.path, "/unknown."));
}
END_TEST

/* A host without standard descriptors: nothing of ours ever is one of them, and a write to them
 * fails meanwhile as it did before. */
static int (*real_open)(int, const char *, int, mode_t);
static unsigned int seen_low, written;

static int watched_open(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = real_open(dirfd, path, flags, mode);

	seen_low += fd >= 0 && fd < 3;
	for (int i = 0; i < 3; i++)
		written += write(i, "x", 1) >= 0 || errno != EBADF;
	return fd;
}

START_TEST(test_closed_descriptors)
{
	pid_t child;
	int status;

	fresh();
	gm_sys.shm = dir;
	real_open = gm_sys.open_file;
	gm_sys.open_file = watched_open;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		for (int i = 0; i < 1024; i++)
			close(i);
		if (aux_try_start(10, "") < 0 || seen_low || written || aux_descriptors())
			_exit(1);
		gm_recorder_unlink();
		if (seen_low || written || aux_descriptors() || access(aux_report.path, F_OK) == 0)
			_exit(2);
		/* Only one of them: the others are the host's and stay. */
		aux_forget();
		if (open("/dev/null", O_RDWR) != 0 || dup2(0, 2) != 2)
			_exit(3);
		written = 0;
		gm_sys.open_file = real_open;
		if (aux_try_start(10, "") < 0 || aux_descriptors() != 2)
			_exit(4);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* A process of its own with the rights to mount, as root or in a user namespace. */
static bool own_mounts(void)
{
	unsigned int uid = geteuid(), gid = getegid();
	FILE *file;

	if (unshare(CLONE_NEWNS) == 0)
		return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return false;
	file = fopen("/proc/self/setgroups", "w");
	if (file) {
		fputs("deny", file);
		fclose(file);
	}
	file = fopen("/proc/self/uid_map", "w");
	if (!file)
		return false;
	fprintf(file, "0 %u 1", uid);
	if (fclose(file))
		return false;
	file = fopen("/proc/self/gid_map", "w");
	if (!file)
		return false;
	fprintf(file, "0 %u 1", gid);
	return fclose(file) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static bool mount_small(const char *size)
{
	char options[64];

	snprintf(options, sizeof(options), "size=%s,mode=0777", size);
	return own_mounts() && mount("none", dir, "tmpfs", 0, options) == 0;
}

static void fill_disk(const char *path, off_t leave)
{
	static char zeros[4096];
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	while (write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros))
		;
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(ftruncate(fd, st.st_size - leave), 0);
	close(fd);
}

/* A disk that is full, for real: refused, counted, no SIGBUS; and on when there is room again. */
START_TEST(test_full_disk)
{
	static uint32_t blocks[40000];
	unsigned int recorded = 0;
	char filler[450];

	fresh();
	if (!mount_small("64m")) {
		printf("# no mount namespace to be had: not tested\n");
		return;
	}
	snprintf(own, sizeof(own), "%s/gpumem-%u", dir, geteuid());
	gm_sys.shm = dir;
	aux_start(1048576);
	in_directory(own);
	snprintf(filler, sizeof(filler), "%s/filler", dir);
	fill_disk(filler, 600 << 10);
	for (unsigned int i = 0; i < 40000; i++) {
		struct gm_alloc alloc = aux_alloc(0, 0x1000 + i * UINT64_C(4096), 512);

		recorded += gm_record_alloc(0, &alloc, &blocks[i]) == 0;
		gm_intern_string((const char *)&alloc, sizeof(alloc));
	}
	ck_assert_uint_gt(recorded, 500);
	ck_assert_uint_lt(recorded, 10000);
	aux_sound();
	aux_count_events(GM_ACTION_NONE);
	unlink(filler);
	gm_recorder_tick();
	for (unsigned int i = 0, again = 0; i < 40000 && again < 200; i++) {
		struct gm_alloc alloc = aux_alloc(0, 0x900000000 + i * UINT64_C(4096), 512);

		if (blocks[i])
			continue;
		again++;
		if (gm_record_alloc(0, &alloc, &blocks[i]) == 0)
			recorded++;
	}
	aux_sound();
	ck_assert_int_eq(gm_rec.domains[0].stats.stat[GM_STAT_ALLOCATION][0].current, recorded);
	aux_forget();

	/* Too full to begin with: elsewhere. */
	fill_disk(filler, 100 << 10);
	aux_start(1000);
	ck_assert_str_eq(aux_report.path, "");
	ck_assert_ptr_nonnull(strstr(aux_report.note, "/dev/shm: no space left"));
	umount2(dir, MNT_DETACH);
}
END_TEST

START_TEST(test_chroot)
{
	fresh();
	if (!own_mounts() || chroot(dir) < 0) {
		printf("# no root to change: not tested\n");
		return;
	}
	ck_assert_int_eq(chdir("/"), 0);
	/* Nothing there at all: no /proc, no /sys, no /dev/shm, no /tmp. */
	aux_start(10);
	ck_assert_str_eq(aux_report.path, "");
	ck_assert_uint_eq(gm_recorder_header()->start_ticks, 0);
	ck_assert_str_eq(gm_recorder_header()->boot_id, "");
	ck_assert_uint_eq(gm_recorder_header()->clock.source, 1);
	aux_record(0, 0x1000, 512);
	aux_sound();
	aux_forget();
	setenv("TMPDIR", "/", 1);
	aux_start(10);
	ck_assert_mem_eq(aux_report.path, "//gpumem-", 9);
	ck_assert_int_eq(access(aux_report.path, F_OK), 0);
	gm_recorder_unlink();
	ck_assert_int_eq(access(aux_report.path, F_OK), -1);
}
END_TEST

/* A program that runs with somebody else's rights takes no place from its environment. */
static int secure_main(void)
{
	static char tmp[300];

	if (!getauxval(AT_SECURE))
		return 77;
	snprintf(tmp, sizeof(tmp), "%s", getenv("GM_TEST_RUNTIME") ? getenv("GM_TEST_RUNTIME") : "");
	gm_sys.shm = "/nowhere";
	if (aux_try_start(10, "") < 0)
		return 3;
	gm_recorder_unlink();
	/* TMPDIR is not the environment's but /tmp, XDG_RUNTIME_DIR is nothing. */
	return *tmp && !strncmp(aux_report.path, tmp, strlen(tmp)) ? 4 : 0;
}

START_TEST(test_setuid)
{
	char program[] = "/tmp/gpumem-test-secure-XXXXXX", command[2000], self[400];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int status, fd;

	fresh();
	ck_assert_int_gt((int)n, 0);
	self[n] = '\0';
	if (geteuid() != 0) {
		printf("# not root, no setuid program to be had: not tested\n");
		return;
	}
	fd = mkstemp(program);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(chmod(aux_directory, 0755), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	snprintf(command, sizeof(command),
		 "cp '%s' %s && chown 65534 %s && chmod 4755 %s && GM_TEST_RUNTIME='%s' "
		 "XDG_RUNTIME_DIR='%s' TMPDIR='%s' %s secure", self, program, program, program, dir,
		 dir, dir, program);
	status = system(command);
	unlink(program);
	rmdir("/tmp/gpumem-65534");
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		printf("# /tmp is mounted nosuid: not tested\n");
	else
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tc;

	if (argc > 1 && !strcmp(argv[1], "secure"))
		_exit(secure_main());	/* not by exit(): no leak checker, its options are ignored too */
	suite = suite_create("place");
	tc = tcase_create("place");
	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_option_directory);
	tcase_add_test(tc, test_option_file);
	tcase_add_test(tc, test_option_refused);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_traps);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_closed_descriptors);
	tcase_add_test(tc, test_full_disk);
	tcase_add_test(tc, test_chroot);
	tcase_add_test(tc, test_setuid);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
