/* Files that appear whole or not at all: names, what is taken, what cannot be written. */
#define _GNU_SOURCE
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder/snapshot/outfile.h"
#include "test/suite.h"

static char room[64];
static const struct gm_outfile_words words = {
	.command = "app", .host = "box", .reason = "signal", .pid = 4711, .rank = 3, .number = 2,
	.time_us = 1763653212345678,	/* 2025-11-20 15:40:12 UTC */
};

static void setup(void)
{
	strcpy(room, "/tmp/gm_outfile.XXXXXX");
	ck_assert_ptr_ne(mkdtemp(room), NULL);
	ck_assert_int_eq(chdir(room), 0);
}

static void teardown(void)
{
	char command[256];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", room, room);
	ck_assert_int_eq(system(command), 0);
}

static unsigned int count_files(const char *directory, const char *with)
{
	DIR *dir = opendir(directory);
	unsigned int count = 0;
	struct dirent *entry;

	ck_assert_ptr_ne(dir, NULL);
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.' && strstr(entry->d_name, with) != NULL;
	rewinddir(dir);
	while ((entry = readdir(dir)))		/* nothing temporary stays behind */
		ck_assert_msg(!strstr(entry->d_name, ".tmp"), "%s", entry->d_name);
	closedir(dir);
	return count;
}

static int put(const char *template, const char *fallback, const char *text, char *path)
{
	struct gm_outfile out;
	int r = gm_outfile_open(&out, template, fallback, &words);

	if (r)
		return r;
	ck_assert_int_gt(out.fd, 2);
	ck_assert_int_gt(out.dirfd, 2);
	ck_assert_int_eq(fcntl(out.fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(write(out.fd, text, strlen(text)), (ssize_t)strlen(text));
	r = gm_outfile_commit(&out, path, 4096);
	gm_outfile_close(&out);
	return r;
}

static void holds(const char *path, const char *text)
{
	char got[64] = "";
	int fd = open(path, O_RDONLY);
	struct stat st;

	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_ge(read(fd, got, sizeof(got) - 1), 0);
	ck_assert_str_eq(got, text);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0600);
	close(fd);
}

static const struct { const char *template, *wanted; } names[] = {
	{ "gpumem.%c.%p.%r.json", "gpumem.app.4711.signal-2.json" },
	{ "/a/%h/%k-%t.json", "/a/box/3-20251120T154012Z.json" },
	{ "100%%.%x.%", "100%.%x.%" },
	{ "%%p%%", "%p%" },
	{ "", "" },
};

START_TEST(words_of_a_template)
{
	char text[256];

	gm_outfile_expand(names[_i].template, &words, text, sizeof(text));
	ck_assert_str_eq(text, names[_i].wanted);
}
END_TEST

START_TEST(words_cannot_leave_the_directory)
{
	const struct gm_outfile_words bad = { .command = "../../etc/x\n\x1b[2J", .host = "/",
					      .reason = "a/b", .rank = -1, .pid = -1 };
	/* C1, directions of writing, line breaks, and bytes that are no character: the last one is cut off in the midst */
	static const struct { const char *command, *wanted; } others[] = {
		{ "a\xc2\x9b" "2Jb", "a_2Jb" }, { "\xe2\x80\xae" "cod.exe", "_cod.exe" }, { "\xe2\x81\xa6" "a\xd8\x9c", "_a_" },
		{ "a\xe2\x80\xa8", "a_" }, { "\x9b" "2J\xff\xc0\xaf", "_2J___" }, { "\xed\xa0\x80", "___" },
		{ "gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80" },
		{ "abcdefghijklm\xe2\x82", "abcdefghijklm_" },
	};
	char text[256];

	gm_outfile_expand("%c.%h.%r.%k.%p", &bad, text, sizeof(text));
	ck_assert_str_eq(text, ".._.._etc_x__[2J._.a_b.0.18446744073709551615");
	for (unsigned int i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		const struct gm_outfile_words word = { .command = others[i].command };

		gm_outfile_expand("%c", &word, text, sizeof(text));
		ck_assert_str_eq(text, others[i].wanted);
	}
	ck_assert_uint_eq(gm_outfile_expand("%c%c%c", &words, text, 6), 5);
	ck_assert_str_eq(text, "appap");
}
END_TEST

START_TEST(time_is_utc)
{
	static const struct { uint64_t seconds; const char *wanted; } times[] = {
		{ 0, "19700101T000000Z" }, { 951782399, "20000228T235959Z" },
		{ 951782400, "20000229T000000Z" }, { 951868800, "20000301T000000Z" },
		{ 4102444799, "20991231T235959Z" }, { 4107542400, "21000301T000000Z" },
	};

	for (unsigned int i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		struct gm_outfile_words at = words;
		char text[64];

		at.time_us = times[i].seconds * 1000000;
		gm_outfile_expand("%t", &at, text, sizeof(text));
		ck_assert_str_eq(text, times[i].wanted);
	}
}
END_TEST

START_TEST(never_over_another)
{
	char path[4096], wanted[4096];

	for (int i = 1; i <= 12; i++) {
		char text[16];

		sprintf(text, "%d", i);
		ck_assert_int_eq(put("%c.json", NULL, text, path), 0);
		if (i == 1)
			snprintf(wanted, sizeof(wanted), "%s/app.json", room);
		else
			snprintf(wanted, sizeof(wanted), "%s/app-%d.json", room, i);
		ck_assert_str_eq(path, wanted);
	}
	for (int i = 1; i <= 12; i++) {
		char text[16];

		snprintf(path, sizeof(path), i == 1 ? "app.json" : "app-%d.json", i);
		sprintf(text, "%d", i);
		holds(path, text);
	}
	ck_assert_int_eq(put("plain", NULL, "a", path), 0);
	ck_assert_int_eq(put("plain", NULL, "b", path), 0);
	ck_assert_str_eq(path + strlen(room), "/plain-2");
	ck_assert_uint_eq(count_files(room, ""), 14);
}
END_TEST

START_TEST(a_directory_gets_the_usual_name)
{
	char path[4096];

	ck_assert_int_eq(mkdir("sub", 0700), 0);
	ck_assert_int_eq(put("sub/", NULL, "a", path), 0);
	ck_assert_str_eq(path + strlen(room), "/sub/gpumem.app.4711.signal-2.json");
	ck_assert_int_eq(put("sub", NULL, "b", path), 0);
	ck_assert_str_eq(path + strlen(room), "/sub/gpumem.app.4711.signal-2-2.json");
	ck_assert_int_eq(put(".", NULL, "c", path), 0);
	ck_assert_str_eq(path + strlen(room), "/./gpumem.app.4711.signal-2.json");
	ck_assert_int_eq(put("", NULL, "d", path), 0);
	ck_assert_str_eq(path + strlen(room), "/gpumem.app.4711.signal-2-2.json");
}
END_TEST

START_TEST(long_names_are_cut)
{
	char template[2000], path[4096];
	const char *name;

	memset(template, 'x', 400);
	strcpy(template + 400, "%r.json");
	for (int i = 1; i <= 3; i++) {
		ck_assert_int_eq(put(template, NULL, "a", path), 0);
		name = strrchr(path, '/') + 1;
		ck_assert_uint_eq(strlen(name), 255);
		ck_assert_str_eq(name + 250, ".json");
		if (i > 1)
			ck_assert_int_eq(name[248], '-');
	}
	/* Never within a character: 3 bytes each, 250 before the extension. */
	for (int i = 0; i < 120; i++)
		memcpy(template + 3 * i, "\xe2\x82\xac", 3);
	strcpy(template + 360, ".json");
	ck_assert_int_eq(put(template, NULL, "a", path), 0);
	name = strrchr(path, '/') + 1;
	ck_assert_uint_eq(strlen(name), 249 + 5);
	ck_assert_str_eq(name + 246, "\xe2\x82\xac.json");
	/* Directories whose names are too long for anything. */
	memset(template, 'y', 1999);
	for (int i = 300; i < 1999; i += 300)
		template[i] = '/';
	template[1999] = '\0';
	ck_assert_int_lt(put(template, NULL, "a", path), 0);
}
END_TEST

START_TEST(where_it_cannot_be_the_fallback_is_used)
{
	char path[4096];

	ck_assert_int_eq(mkdir("50%p", 0700), 0);
	ck_assert_int_eq(put("/proc/nonexistent/%c.json", NULL, "a", path), -ENOENT);
	ck_assert_int_eq(put("/proc/nonexistent/%c.json", "/proc/nonexistent/too", "a", path), -ENOENT);
	ck_assert_int_eq(put("/proc/%c.json", "50%p", "a", path), 0);	/* not a template */
	ck_assert_str_eq(path + strlen(room), "/50%p/app.json");
	holds(path, "a");
	ck_assert_int_eq(put("/dev/null/%c.json", "50%p", "b", path), 0);
	ck_assert_str_eq(path + strlen(room), "/50%p/app-2.json");
}
END_TEST

/* As `mkdir -p` would, below what is the user's; whatever the umask. */
START_TEST(missing_directories_are_made)
{
	char path[4096];
	struct stat st;

	umask(0277);
	ck_assert_int_eq(put("a/%c//b.%p/c.json", NULL, "a", path), 0);
	umask(022);
	ck_assert_str_eq(path + strlen(room), "/a/app//b.4711/c.json");
	holds(path, "a");
	ck_assert_int_eq(put("new/deep/", NULL, "b", path), 0);
	ck_assert_str_eq(path + strlen(room), "/new/deep/gpumem.app.4711.signal-2.json");
	ck_assert_int_eq(stat("new", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_int_eq(put("a/app/b.4711/c.json/d.json", NULL, "a", path), -ENOTDIR);
	ck_assert_int_eq(symlink("nowhere", "link"), 0);
	ck_assert_int_eq(put("link/a.json", NULL, "a", path), -ENOENT);
	ck_assert_int_eq(mkdir("theirs", 0777), 0);
	ck_assert_int_eq(chmod("theirs", 0777), 0);
	if (chown("theirs", 12345, 12345) == 0)
		ck_assert_int_eq(put("theirs/x/a.json", NULL, "a", path), -ENOENT);
	ck_assert_uint_eq(count_files("theirs", ""), 0);
}
END_TEST

START_TEST(what_is_no_file_is_left_alone)
{
	struct gm_outfile out;
	char path[4096];

	ck_assert_int_eq(gm_outfile_open(&out, "/dev/null", NULL, &words), 0);
	ck_assert(out.nowhere && out.fd < 0);
	gm_outfile_close(&out);
	ck_assert_int_eq(symlink("/dev/null", "null"), 0);
	ck_assert_int_eq(gm_outfile_open(&out, "null", room, &words), 0);
	ck_assert(out.nowhere);
	gm_outfile_close(&out);
	ck_assert_int_eq(put("/dev/zero", NULL, "a", path), -EINVAL);
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	ck_assert_int_eq(put("fifo", NULL, "a", path), -EINVAL);
	ck_assert_uint_eq(count_files(room, ""), 2);
}
END_TEST

/* Killed while it writes. (Where files have names from their beginning: test/security/test_leftovers.py.) */
START_TEST(a_killed_writer_leaves_nothing)
{
	struct gm_outfile out;
	int status;
	pid_t child = fork();

	if (!child) {
		if (gm_outfile_open(&out, "a.json", NULL, &words) || write(out.fd, "x", 1) != 1)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	ck_assert_uint_eq(count_files(room, ""), 0);
}
END_TEST

START_TEST(a_directory_without_permission)
{
	char path[4096];
	int status;
	pid_t child;

	ck_assert_int_eq(chmod(room, 0777), 0);
	ck_assert_int_eq(mkdir("shut", 0555), 0);
	ck_assert_int_eq(mkdir("open", 0777), 0);
	ck_assert_int_eq(chmod("open", 0777), 0);
	child = fork();
	if (!child) {
		if (geteuid() == 0 && setresuid(65534, 65534, 65534))
			_exit(2);
		if (put("shut/a.json", NULL, "a", path) != -EACCES)
			_exit(3);
		_exit(put("shut/a.json", "open", "a", path) == 0 && strstr(path, "/open/a.json") ?
		      0 : 4);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(what_is_not_committed_leaves_nothing)
{
	struct gm_outfile out;

	ck_assert_int_eq(gm_outfile_open(&out, "a.json", NULL, &words), 0);
	ck_assert_int_eq(write(out.fd, "x", 1), 1);
	gm_outfile_close(&out);
	gm_outfile_close(&out);
	ck_assert_uint_eq(count_files(room, ""), 0);
}
END_TEST

START_TEST(in_the_place_of_another)
{
	for (int public = 0; public < 2; public++) {
		mode_t mask = umask(027);
		struct gm_outfile out;
		struct stat st;

		ck_assert_int_eq(close(open("a.json", O_WRONLY | O_CREAT | O_TRUNC, 0600)), 0);
		ck_assert_int_eq(gm_outfile_create(&out, public ? "a.json" : "./a.json", public), 0);
		ck_assert_int_eq(write(out.fd, "new", 3), 3);
		ck_assert(stat("a.json", &st) == 0 && st.st_size == 0);
		ck_assert_int_eq(gm_outfile_replace(&out), 0);
		gm_outfile_close(&out);
		ck_assert(stat("a.json", &st) == 0 && st.st_size == 3);
		ck_assert_int_eq(st.st_mode & 07777, public ? 0640 : 0600);
		ck_assert_uint_eq(count_files(room, ""), 1);
		umask(mask);
	}
}
END_TEST

START_TEST(just_that_name_in_a_directory_that_is_there)
{
	char path[5000];
	struct gm_outfile out;

	ck_assert_int_eq(gm_outfile_create(&out, "none/a.json", false), -ENOENT);
	ck_assert_uint_eq(count_files(room, ""), 0);
	for (size_t bytes = 256; bytes < sizeof(path); bytes += 4700) {
		memset(path, bytes > 256 ? '/' : 'a', bytes);
		strcpy(path + bytes, "a");
		ck_assert_int_eq(gm_outfile_create(&out, path, false), -ENAMETOOLONG);
		gm_outfile_close(&out);
	}
}
END_TEST

START_TEST(closed_standard_streams_stay_closed)
{
	char path[4096];
	int status;
	pid_t child = fork();

	if (!child) {
		struct gm_outfile out;

		close(0);
		close(1);
		close(2);
		if (gm_outfile_open(&out, "a.json", NULL, &words) || out.fd < 3 || out.dirfd < 3)
			_exit(1);
		for (int fd = 0; fd < 3; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				_exit(2);
		if (gm_outfile_commit(&out, path, sizeof(path)))
			_exit(3);
		gm_outfile_close(&out);
		for (int fd = 0; fd < 100; fd++)
			if (fcntl(fd, F_GETFD) >= 0 && fd < 3)
				_exit(4);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(count_files(room, "a.json"), 1);
}
END_TEST

START_TEST(the_umask_does_not_matter)
{
	char path[4096];

	umask(0777);
	ck_assert_int_eq(put("a.json", NULL, "a", path), 0);
	umask(022);
	holds("a.json", "a");
}
END_TEST

/* Many processes, one template: every one gets a file of its own. */
START_TEST(at_once)
{
	enum { WRITERS = 8, EACH = 25 };
	pid_t children[WRITERS];
	char path[4096];

	for (int i = 0; i < WRITERS; i++) {
		children[i] = fork();
		if (!children[i]) {
			for (int k = 0; k < EACH; k++)
				if (put("same.json", NULL, "a", path))
					_exit(1);
			_exit(0);
		}
	}
	for (int i = 0; i < WRITERS; i++) {
		int status;

		waitpid(children[i], &status, 0);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_uint_eq(count_files(room, "same"), WRITERS * EACH);
}
END_TEST

/* A file system that is full, in a mount namespace of the test's own. */
START_TEST(no_room_to_create)
{
	char path[4096];
	int status;
	pid_t child = fork();

	if (!child) {
		if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mkdir("full", 0700) ||
		    mount("tmpfs", "full", "tmpfs", 0, "size=4096,nr_inodes=1"))
			_exit(77);
		_exit(put("full/a.json", ".", "a", path) == -ENOSPC ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "status %#x", status);
	ck_assert_uint_eq(count_files(room, "json"), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("outfile");
	TCase *tcase = tcase_create("outfile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, words_of_a_template, 0, (int)(sizeof(names) / sizeof(names[0])));
	tcase_add_test(tcase, words_cannot_leave_the_directory);
	tcase_add_test(tcase, time_is_utc);
	tcase_add_test(tcase, never_over_another);
	tcase_add_test(tcase, a_directory_gets_the_usual_name);
	tcase_add_test(tcase, long_names_are_cut);
	tcase_add_test(tcase, where_it_cannot_be_the_fallback_is_used);
	tcase_add_test(tcase, missing_directories_are_made);
	tcase_add_test(tcase, what_is_no_file_is_left_alone);
	tcase_add_test(tcase, a_killed_writer_leaves_nothing);
	tcase_add_test(tcase, a_directory_without_permission);
	tcase_add_test(tcase, what_is_not_committed_leaves_nothing);
	tcase_add_test(tcase, in_the_place_of_another);
	tcase_add_test(tcase, just_that_name_in_a_directory_that_is_there);
	tcase_add_test(tcase, closed_standard_streams_stay_closed);
	tcase_add_test(tcase, the_umask_does_not_matter);
	tcase_add_test(tcase, at_once);
	tcase_add_test(tcase, no_room_to_create);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
