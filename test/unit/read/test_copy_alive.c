/* Does the writer of a journal live? By its identity, and by the mutex that the kernel marks. */
#include "test/unit/journal/journal_builder.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "recorder/read/copy.h"
#include "test/suite.h"

static struct jb jb;

static void setup(void)
{
	jb_new(&jb, (struct jb_plan){ 16, 16, 4, 4096 });
}

static void teardown(void)
{
	jb_free_all(&jb);
}

static uint64_t field_of_stat(const char *path, int field)
{
	char text[1024], *at;
	FILE *f = fopen(path, "r");
	size_t n;

	ck_assert_ptr_ne(f, NULL);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	at = strrchr(text, ')');
	for (int i = 2; i < field; i++)
		at = strchr(at + 1, ' ');
	return strtoull(at, NULL, 10);
}

/* Describe process @pid in the header as the recorder would. */
static void describe(pid_t pid)
{
	char path[64];
	struct stat st;
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

	ck_assert_ptr_ne(f, NULL);
	ck_assert_int_eq(fscanf(f, "%39s", jb.h->boot_id), 1);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	jb.h->start_ticks = field_of_stat(path, 22);
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	ck_assert_int_eq(stat(path, &st), 0);
	jb.h->pid_namespace = st.st_ino;
	jb.h->pid = pid;
}

static int alive(void)
{
	int fd = jb_file(&jb), r = gm_copy_alive(fd);

	close(fd);
	return r;
}

START_TEST(alive_by_identity)
{
	pid_t child;

	describe(getpid());
	ck_assert_int_eq(alive(), 1);
	jb.h->start_ticks++;		/* the pid was used again */
	ck_assert_int_eq(alive(), 0);
	jb.h->start_ticks--;
	jb.h->boot_id[0] ^= 1;		/* before a reboot */
	ck_assert_int_eq(alive(), 0);
	jb.h->boot_id[0] ^= 1;
	jb.h->pid_namespace++;		/* out of sight: it cannot be told */
	ck_assert_int_eq(alive(), -EXDEV);
	jb.h->pid_namespace--;
	jb.h->start_ticks = 0;
	ck_assert_int_eq(alive(), -ENODATA);
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	describe(child);
	ck_assert_int_eq(alive(), 1);
	kill(child, SIGKILL);
	siginfo_t info;
	waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
	ck_assert_int_eq(alive(), 0);		/* a zombie */
	waitpid(child, NULL, 0);
	ck_assert_int_eq(alive(), 0);
}
END_TEST

static void init_robust(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(mutex, &attr);
}

/* The kernel marks the mutex of the dead; what it says then needs no pid. */
START_TEST(alive_by_mutex)
{
	int fd = jb_file(&jb), pipes[2];
	struct gm_header *header = mmap(NULL, GM_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
					fd, 0);
	pid_t child;
	char c;

	ck_assert_ptr_ne(header, MAP_FAILED);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (!child) {
		init_robust(&header->alive);
		pthread_mutex_lock(&header->alive);
		header->has_helper = 1;
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(pipes[0], &c, 1), 1);
	describe(child);
	header->pid = child;
	header->pid_namespace = jb.h->pid_namespace;
	header->start_ticks = jb.h->start_ticks;
	memcpy(header->boot_id, jb.h->boot_id, sizeof(header->boot_id));
	ck_assert_int_eq(gm_copy_alive(fd), 1);
	header->pid_namespace++;	/* out of sight, but the mutex is held */
	ck_assert_int_eq(gm_copy_alive(fd), 1);
	header->pid_namespace--;
	/* A copy of the file, looked at after the process has gone: its word never changes. */
	memcpy(jb.mem, header, GM_HEADER_BYTES);
	ck_assert_int_eq(alive(), 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_int_eq(gm_copy_alive(fd), 0);
	ck_assert_int_eq(alive(), 0);
	header->pid = getpid();		/* whatever else is said: the word is believed */
	ck_assert_int_eq(gm_copy_alive(fd), 0);
	munmap(header, GM_HEADER_BYTES);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy_alive");
	TCase *tcase = tcase_create("copy_alive");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, alive_by_identity);
	tcase_add_test(tcase, alive_by_mutex);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
