/*
 * say.c - see say.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "preload/options/text.h"
#include "preload/process/say.h"
#include "preload/process/state.h"

#define LINE_BYTES 2304			/* two paths and the words around them */

static struct {
	bool known;
	dev_t device;
	ino_t inode;
	mode_t mode;
} at_start;
static _Atomic(int) lines;

void gm_say_remember(void)
{
	struct stat st;
	int kept = errno;

	if (fstat(STDERR_FILENO, &st) == 0) {
		at_start.device = st.st_dev;
		at_start.inode = st.st_ino;
		at_start.mode = st.st_mode;
		at_start.known = true;
	}
	errno = kept;
}

static bool stderr_is_what_it_was(void)
{
	struct stat st;

	return at_start.known && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == at_start.device &&
	       st.st_ino == at_start.inode && st.st_mode == at_start.mode;
}

/* Write with SIGPIPE blocked, because the reader of a pipe may have ended, and the signal would hit the host. */
static void write_quietly(const char *text, size_t bytes)
{
	const struct timespec now = { 0, 0 };
	sigset_t pipe_signal, before, pending;
	int cancel = gm_cancel_off();
	ssize_t n;

	sigemptyset(&pipe_signal);
	sigaddset(&pipe_signal, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
	n = write(STDERR_FILENO, text, bytes);
	if (n < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe_signal, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	gm_cancel_back(cancel);
}

static void write_line(const char *const *texts)
{
	char text[LINE_BYTES];
	struct gm_line line = { text, sizeof(text) - 1, 0 };
	size_t used;

	gm_line_add(&line, "gpumem: ");
	for (; *texts; texts++)
		gm_line_add(&line, *texts);
	used = strlen(text);
	for (size_t i = 0; i < used; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = '?';	/* values from the environment may hold anything */
	text[used++] = '\n';
	write_quietly(text, used);
}

void gm_say_list(bool always, const char *const *texts)
{
	int n = always ? 0 : atomic_fetch_add(&lines, 1);
	int kept = errno;

	if (n <= GM_SAY_LINES && stderr_is_what_it_was())
		write_line(n < GM_SAY_LINES ? texts :
			   (const char *const[]){ "more is not said here", NULL });
	errno = kept;
}
