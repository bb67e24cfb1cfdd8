/*
 * test_shared.c - processes that share the devices (FAKECUDA_SHARED): what one has the others have not, until it frees
 * it or dies.
 */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

static char path[] = "/tmp/fakecuda-shared-XXXXXX";

static CUdeviceptr have(size_t bytes)
{
	CUdeviceptr p;

	start(0);
	return cuMemAlloc(&p, bytes) ? 0 : p;
}

static void make_file(void)
{
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	setenv("FAKECUDA_SHARED", path, 1);
	setenv("FAKECUDA_CAPACITY", "1GiB", 1);
}

/* A process that has 600 MiB, and frees (@line 'f') or waits for its end. */
static pid_t begin(int *ret_tell, int *ret_hear)
{
	int tell[2], hear[2];
	char byte = 0;
	pid_t pid;

	ck_assert_int_eq(pipe(tell) | pipe(hear), 0);
	pid = fork();
	if (!pid) {
		CUdeviceptr p = have(600 * MIB);

		byte = p != 0;
		if (write(hear[1], &byte, 1) == 1 && read(tell[0], &byte, 1) == 1) {
			byte = cuMemFree(p) == 0;
			if (write(hear[1], &byte, 1) == 1)
				pause();
		}
		_exit(1);
	}
	ck_assert_int_eq(read(hear[0], &byte, 1), 1);
	ck_assert_int_eq(byte, 1);
	*ret_tell = tell[1];
	*ret_hear = hear[0];
	return pid;
}

START_TEST(test_freed_or_dead)
{
	size_t free_bytes, total;
	siginfo_t info;
	int tell, hear;
	CUdeviceptr p;
	pid_t pid;
	char byte = 'f';

	make_file();
	pid = begin(&tell, &hear);
	ck_assert_uint_eq(have(600 * MIB), 0);
	ck_assert_int_eq(cuMemGetInfo(&free_bytes, &total), 0);
	ck_assert_uint_eq(free_bytes, total - 600 * MIB);
	ck_assert_uint_ne(p = have(400 * MIB), 0);
	ck_assert_int_eq(cuMemFree(p), 0);
	if (_i) {			/* it is a zombie until somebody waits for it */
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	} else {
		ck_assert_int_eq(write(tell, &byte, 1), 1);
		ck_assert_int_eq(read(hear, &byte, 1), 1);
	}
	ck_assert_uint_ne(have(600 * MIB), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared");
	TCase *tc = new_case(suite, "shared");

	tcase_add_loop_test(tc, test_freed_or_dead, 0, 2);
	return run_suite(suite);
}
