/* child.h - a child process that runs the same program, with two pipes to its parent.
 *
 * CUDA does not survive fork(), so the child is started by fork and exec before the parent's first CUDA call. The
 * child waits on its stdin. The parent echoes the child's output, so that the output of both is one sequence.
 *
 * Thread context: the parent's only thread.
 */
#ifndef TEST_APPS_CHILD_H
#define TEST_APPS_CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
	pid_t pid;
	int to;		/* its stdin */
	FILE *from;	/* its stdout */
};

/* Start this program again with @argument as its only argument. */
static inline struct child child_start(const char *argument)
{
	struct child child;
	int in[2], out[2];

	fflush(stdout);
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
		perror("pipe2");
		exit(1);
	}
	child.pid = fork();
	if (child.pid < 0) {
		perror("fork");
		exit(1);
	}
	if (child.pid == 0) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", program_invocation_name, argument, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	child.to = in[1];
	child.from = fdopen(out[0], "r");
	return child;
}

static inline void child_send(struct child *child, const void *data, size_t bytes)
{
	if (write(child->to, data, bytes) != (ssize_t)bytes) {
		perror("write to the child");
		exit(1);
	}
}

/* In the child: read exactly @bytes from the parent. Returns whether they came. */
static inline bool child_receive(void *data, size_t bytes)
{
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = read(STDIN_FILENO, (char *)data + got, bytes - got);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/* Echo the child's lines, each behind @prefix, up to and including the line that begins with @last; NULL: up to the
 * end. Returns whether that line came. */
static inline bool child_echo(struct child *child, const char *prefix, const char *last)
{
	char line[1024];

	while (fgets(line, sizeof(line), child->from)) {
		printf("%s%s", prefix, line);
		fflush(stdout);
		if (last && !strncmp(line, last, strlen(last)))
			return true;
	}
	return last == NULL;
}

/* Close the child's stdin, echo the rest of its output, and reap it. Returns its exit status, or 128 plus the
 * signal. */
static inline int child_finish(struct child *child, const char *prefix)
{
	int status = 0;

	close(child->to);
	child_echo(child, prefix, NULL);
	fclose(child->from);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
