/*
 * opens.c - run a program and write down every file that it opens once it has been hit by one of the
 * signals that end programs: by ptrace, so that a system call made past the C library is seen too.
 *
 * "Once": from the first futex call on that the thread makes that was hit. By then the library has told its
 * threads to open nothing more. One that was outside of any system call at that moment may have looked just
 * before: its next call, and that one only, is not written down.
 *
 *	opens LOG PROGRAM [ARGUMENT...]
 *
 * LOG gets a line "flags path" each. Ends as the program did; 77: ptrace is not allowed here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 256

static pid_t hit;			/* the thread that got the signal */
static bool crashed;
static FILE *out;
static struct thread { pid_t pid; bool in_call, had_one; } threads[THREADS];

static struct thread *thread_of(pid_t pid)
{
	struct thread *t = threads;

	while (t < threads + THREADS - 1 && t->pid && t->pid != pid)
		t++;
	t->pid = pid;
	return t;
}

static void tell(pid_t pid, uint64_t address, uint64_t flags)
{
	char path[4096] = "?";

	for (size_t i = 0; i < sizeof(path) - 1; i++) {
		struct iovec to = { path + i, 1 }, from = { (void *)(uintptr_t)(address + i), 1 };

		if (process_vm_readv(pid, &to, 1, &from, 1, 0) != 1 || !path[i])
			break;
		path[i + 1] = '\0';
	}
	fprintf(out, "%#llx %s\n", (unsigned long long)flags, path);
	fflush(out);
}

static void look_at_call(pid_t pid)
{
	struct __ptrace_syscall_info info;
	struct thread *t = thread_of(pid);
	bool may_be_late;

	memset(&info, 0, sizeof(info));
	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) < 0)
		return;
	t->in_call = info.op == PTRACE_SYSCALL_INFO_ENTRY;
	if (!crashed && pid == hit && t->in_call && info.entry.nr == SYS_futex) {
		crashed = true;
		for (size_t i = 0; i < THREADS; i++)
			threads[i].had_one = threads[i].in_call;
	}
	if (!crashed || !t->in_call)
		return;
	may_be_late = !t->had_one;
	t->had_one = true;
	if (may_be_late)
		return;
	switch (info.entry.nr) {
#ifdef SYS_open
	case SYS_open:
		tell(pid, info.entry.args[0], info.entry.args[1]);
		break;
	case SYS_creat:
		tell(pid, info.entry.args[0], O_CREAT);
		break;
#endif
	case SYS_openat:
	case SYS_openat2:
		tell(pid, info.entry.args[1], info.entry.nr == SYS_openat ? info.entry.args[2] : 0);
		break;
	case SYS_open_by_handle_at:
	case SYS_memfd_create:
		fprintf(out, "%#llx system call %d\n", 0ull, (int)info.entry.nr);
		break;
	}
}

static bool is_fatal(int number)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (signals[i] == number)
			return true;
	return false;
}

/* What the stopped thread is to go on with. */
static int signal_of(pid_t pid, int status)
{
	int number = WSTOPSIG(status);

	if (number == (SIGTRAP | 0x80)) {
		look_at_call(pid);
		return 0;
	}
	if (status >> 16 || number == SIGSTOP || number == SIGTRAP)
		return 0;		/* an event, a new thread */
	if (!hit && is_fatal(number))
		hit = pid;
	return number;
}

static void end_as(int status)
{
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status));
	signal(WTERMSIG(status), SIG_DFL);
	raise(WTERMSIG(status));
	exit(125);
}

int main(int argc, char **argv)
{
	int status = 0;
	pid_t child, pid;

	if (argc < 3)
		return 2;
	out = fopen(argv[1], "we");
	if (!out)
		return 2;
	child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		raise(SIGSTOP);
		execv(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 2;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (ptrace(PTRACE_SETOPTIONS, child, NULL,
		   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
		   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) < 0)
		return 77;
	ptrace(PTRACE_SYSCALL, child, NULL, NULL);
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (WIFSTOPPED(status))
			ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal_of(pid, status));
		else if (pid == child)
			end_as(status);
	}
	return 2;
}
