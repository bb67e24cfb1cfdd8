/* Snapshots in files: names, limits, full disks, and what falls back into memory. */
#include "test/unit/read/parsed_snapshot.h"
#include "test/suite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *scratch(void)
{
	static char room[64];

	strcpy(room, "/tmp/gm_snapshot.XXXXXX");
	ck_assert_ptr_ne(mkdtemp(room), NULL);
	ck_assert_int_eq(chdir(room), 0);
	return room;
}

static void clean(const char *room)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", room);
	ck_assert_int_eq(system(command), 0);
}

static unsigned int files_in(const char *directory)
{
	DIR *dir = opendir(directory);
	unsigned int found = 0;

	ck_assert_ptr_ne(dir, NULL);
	for (struct dirent *entry; (entry = readdir(dir));)
		found += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return found;
}

static void much_history(void)
{
	for (uint64_t i = 1; i <= 3000; i++)
		jb_event(&jb, 1, OP(1, i), GM_ACTION_OOM, 0, 10 * i, 0x7f0000000000, i);
	settle(UINT64_MAX);
}

START_TEST(written_to_its_file)
{
	char *room = scratch(), path[4096], wanted[256];
	int fd;

	much_history();
	request.reason = "signal";
	ck_assert_int_eq(gm_snapshot_write(&copy, &request, "gpumem.%c.%p.%h.%k.%r.json", 1, NULL,
					   path, sizeof(path)), 0);
	snprintf(wanted, sizeof(wanted), "%s/gpumem.app.4711.box.0.signal-1.json", room);
	ck_assert_str_eq(path, wanted);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	parse(fd);
	close(fd);
	ck_assert_int_eq(num("history/events"), 3000);
	ck_assert_uint_eq(files_in(room), 1);
	clean(room);
}
END_TEST

/* RLIMIT_FSIZE: an error and no signal, and the limit's own signal is not left pending. */
START_TEST(a_limit_on_file_size)
{
	char *room = scratch(), path[4096];
	struct rlimit limit = { 50000, RLIM_INFINITY };
	sigset_t pending, now;

	much_history();
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(gm_snapshot_write(&copy, &request, "a.json", 1, NULL, path, sizeof(path)),
			 -EFBIG);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	ck_assert(!sigismember(&pending, SIGXFSZ));
	ck_assert(!sigismember(&now, SIGXFSZ));
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	ck_assert_uint_eq(files_in(room), 0);
	clean(room);
}
END_TEST

static int on_small_disk(const char *options, int (*body)(void))
{
	int status;
	pid_t child = fork();

	if (!child) {
		if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir("disk", 0700) ||
		    mount("tmpfs", "disk", "tmpfs", 0, options))
			_exit(77);
		_exit(body());
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

static int full_disk(void)
{
	char path[4096];

	if (gm_snapshot_write(&copy, &request, "disk/a.json", 1, ".", path, sizeof(path)) != -ENOSPC)
		return 1;
	return files_in("disk") ? 2 : 0;
}

START_TEST(a_full_disk)
{
	char *room = scratch();

	much_history();
	ck_assert_int_eq(on_small_disk("size=32768", full_disk), 0);
	clean(room);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("snapshot_file");
	TCase *tcase = tcase_create("snapshot_file");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, written_to_its_file);
	tcase_add_test(tcase, a_limit_on_file_size);
	tcase_add_test(tcase, a_full_disk);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
