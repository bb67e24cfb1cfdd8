/*
 * hang.c - the hang oracle: a thread waits, virtual time cannot move, and nobody is left to change
 * that.
 *
 * Where the clock stands still, another host thread may still act: write the word that a kernel
 * waits for, submit more work. So a real-time grace is given, begun anew whenever any thread calls
 * the driver or anything here moves. It is extended while some other thread of the process runs (on
 * a busy machine a thread that is about to act may not get a processor for long), and while a host
 * function executes, which may sleep; but one that never returns, say because it needs a lock that
 * the waiting thread holds, is a hang like any other. After it, what waits for what is reported,
 * and the waits return an error or the process ends.
 *
 * All under fc.lock; the control calls take it.
 */
#include "test/fakecuda/stream/waiting.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_TEXTS 256
#define TEXT_SIZE 8192
#define EXTENSIONS 30		/* times the grace, for other threads that run */
#define DEFAULT_MS 300
#define EXIT_CODE 67

static bool configured, off, end_process;
static unsigned int grace_ms = DEFAULT_MS;
static CUresult verdict = CUDA_ERROR_LAUNCH_TIMEOUT;

static char *texts[MAX_TEXTS];
static size_t n_hangs;

/* As of the last look: anything else than before is progress. */
static struct {
	uint64_t calls, now_ns, seq;
	size_t pending;
	unsigned int executing;
	int64_t since_ms;
	bool reported;
} quiet;

static void configure(void)
{
	const char *what = getenv("FAKECUDA_HANG"), *ms = getenv("FAKECUDA_HANG_MS");

	if (configured)
		return;
	configured = true;
	if (ms && *ms)
		grace_ms = (unsigned int)strtoul(ms, NULL, 0);
	if (!what || !*what)
		return;
	if (!strcmp(what, "off"))
		off = true;
	else if (!strcmp(what, "exit"))
		end_process = true;
	else if (!strcmp(what, "report"))
		verdict = CUDA_SUCCESS;
	else
		fprintf(stderr, "fakecuda: FAKECUDA_HANG=%s: want exit, report or off\n", what);
}

static int64_t real_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Does the thread whose /proc stat line lies open at @fd run, or want to? */
static bool runs(int fd)
{
	char line[256];
	ssize_t n = read(fd, line, sizeof(line) - 1);
	const char *state;

	if (n <= 0)
		return false;
	line[n] = '\0';
	state = strrchr(line, ')');	/* the name before it may hold anything */
	return state && state[1] == ' ' && state[2] == 'R';
}

static bool others_run(void)
{
	long me = syscall(SYS_gettid);
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;
	bool found = false;

	if (!dir)
		return false;
	while (!found && (d = readdir(dir))) {
		char path[300];
		int fd;

		if (d->d_name[0] == '.' || atol(d->d_name) == me)
			continue;
		snprintf(path, sizeof(path), "%s/stat", d->d_name);
		fd = openat(dirfd(dir), path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		found = runs(fd);
		close(fd);
	}
	closedir(dir);
	return found;
}

static bool progress(const struct fc_wait *w)
{
	uint64_t calls = fakecuda_calls(NULL);

	if (quiet.since_ms && w->stuck_polls && quiet.calls == calls &&
	    quiet.now_ns == fc.now_ns && quiet.seq == fc.next_seq &&
	    quiet.pending == fc.n_pending && quiet.executing == fc.executing)
		return false;
	quiet.calls = calls;
	quiet.now_ns = fc.now_ns;
	quiet.seq = fc.next_seq;
	quiet.pending = fc.n_pending;
	quiet.executing = fc.executing;
	quiet.since_ms = real_ms();
	quiet.reported = false;
	return true;
}

/* ---- who waits for what ---- */

static void append(char *text, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, TEXT_SIZE - n, "%s", more);
}

static const char *name_of(const struct fc_stream *s, char *buf, size_t size)
{
	if (!s)
		snprintf(buf, size, "no stream");
	else if (s->legacy)
		snprintf(buf, size, "the legacy stream");
	else
		snprintf(buf, size, "stream %llu%s", (unsigned long long)s->id,
			 s->per_thread ? " (per-thread)" : "");
	return buf;
}

void fc_waiting_describe(const struct fc_op *op, char *buf, size_t size)
{
	struct fc_word word;
	char why[160] = "", stream[64];

	if (op->work->wait && op->state == FC_OP_RUNNING)
		fc_word_describe(op->work->wait, why, sizeof(why));
	else if (op->state == FC_OP_RUNNING && fc_memop_pending(op, &word))
		fc_word_describe(&word, why, sizeof(why));
	else if (op->state == FC_OP_RUNNING && fc_semaphore_waits(op->work))
		fc_semaphore_describe(op->work, why, sizeof(why));
	else if (op->state == FC_OP_BLOCKED)
		snprintf(why, sizeof(why), "may not start yet");
	else if (op->unmet_start || op->unmet_end)
		snprintf(why, sizeof(why), "waits for %u operations before it",
			 op->unmet_start ? op->unmet_start : op->unmet_end);
	else if (op->state == FC_OP_EXECUTING)
		snprintf(why, sizeof(why), "host function has not returned");
	else
		snprintf(why, sizeof(why), "ends at %llu ns", (unsigned long long)op->end_ns);
	snprintf(buf, size, "operation %llu %s on %s: %s", (unsigned long long)op->seq,
		 op->work->name, name_of(op->stream, stream, sizeof(stream)), why);
}

static void describe_wait(const struct fc_wait *w, char *buf, size_t size)
{
	int n = snprintf(buf, size, "a thread in %s waits for ", w->why);

	if (w->op)
		snprintf(buf + n, size - (size_t)n, "operation %llu (%s)",
			 (unsigned long long)w->op->seq, w->op->work->name);
	else
		snprintf(buf + n, size - (size_t)n, "all of context %llu up to operation %llu",
			 (unsigned long long)w->ctx->id, (unsigned long long)w->seq);
}

static void describe_all(char *text)
{
	char line[400];

	for (const struct fc_wait *w = fc.waits; w; w = w->next) {
		append(text, "  ");
		describe_wait(w, line, sizeof(line));
		append(text, line);
		append(text, "\n");
	}
	for (const struct fc_op *op = fc.pending; op; op = op->next) {
		append(text, "  ");
		fc_waiting_describe(op, line, sizeof(line));
		append(text, line);
		append(text, "\n");
	}
}

static void report(void)
{
	char *text = calloc(1, TEXT_SIZE);

	quiet.reported = true;
	n_hangs++;
	if (!text)
		return;
	append(text, "hang: virtual time cannot move and no thread does anything\n");
	describe_all(text);
	fc_log("%s", text);
	if (end_process) {
		fprintf(stderr, "fakecuda: %s", text);
		fflush(NULL);
		/* Not _exit: a library above may hook that, and call us while we hold the lock. */
		syscall(SYS_exit_group, EXIT_CODE);
	}
	if (n_hangs <= MAX_TEXTS)
		texts[n_hangs - 1] = text;
	else
		free(text);
}

CUresult fc_waiting_stuck(struct fc_wait *w)
{
	int64_t quiet_ms;

	configure();
	if (off || progress(w))
		return CUDA_SUCCESS;
	quiet_ms = real_ms() - quiet.since_ms;
	if (quiet_ms < (int64_t)grace_ms)
		return CUDA_SUCCESS;
	if (!quiet.reported) {
		if (quiet_ms < (int64_t)grace_ms * EXTENSIONS && (fc.executing || others_run()))
			return CUDA_SUCCESS;
		report();
	}
	return verdict;
}

/* ---- control ---- */

void fc_hang_reset(void)
{
	for (size_t i = 0; i < MAX_TEXTS; i++) {
		free(texts[i]);
		texts[i] = NULL;
	}
	n_hangs = 0;
	memset(&quiet, 0, sizeof(quiet));
	configured = off = end_process = false;
	grace_ms = DEFAULT_MS;
	verdict = CUDA_ERROR_LAUNCH_TIMEOUT;
}

void fc_waiting_dump(int fd)
{
	char *text = calloc(1, TEXT_SIZE);

	if (!text)
		return;
	describe_all(text);
	dprintf(fd, "hangs %zu\n%s", n_hangs, text);
	free(text);
}

FC_EXPORT size_t fakecuda_hangs(void)
{
	size_t n;

	fc_enter_control();
	n = n_hangs;
	fc_leave_control();
	return n;
}

FC_EXPORT const char *fakecuda_hang_text(size_t n)
{
	const char *text;

	fc_enter_control();
	text = n < n_hangs && n < MAX_TEXTS ? texts[n] : NULL;
	fc_leave_control();
	return text;
}

FC_EXPORT void fakecuda_set_hang_ms(unsigned int ms, int error)
{
	fc_enter_control();
	configure();
	grace_ms = ms;
	verdict = (CUresult)error;
	off = false;
	fc_leave_control();
}
