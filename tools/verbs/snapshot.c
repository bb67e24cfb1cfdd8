/*
 * snapshot.c - gpumem snapshot PID: a snapshot of a living process, asked for from outside. One thread.
 *
 * No signal is sent. This process leaves a request in the journal's header and wakes the helper thread by the futex
 * word there. If the helper has not begun within 200 ms (it is stopped, starved or dead), this process copies the
 * journal as it is and undoes unfinished changes, and the snapshot says that it is not consistent. Only the header is
 * mapped, for the request; everything else is read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "recorder/journal/format.h"
#include "recorder/read/copy.h"
#include "recorder/snapshot/snapshot.h"
#include "tools/read/attach.h"
#include "tools/read/input.h"
#include "tools/verbs/arguments.h"
#include "tools/write/output.h"
#include "tools/show/show.h"

#define ANSWER_MS 200			/* for the helper to begin */
#define BEGUN_MS 5000			/* for its copy of the journal */
#define WRITE_MS 120000			/* for its snapshot */
#define OTHERS_MS 15000			/* the same for another user's process, which may be hostile */

static uint32_t load(const _Atomic(uint32_t) *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
}

/* Wait until @word reaches @value (numbers may wrap). Returns false after @limit_ms, or if the process has died or has
 * been stopped for a second. */
static bool reached(const struct gm_attached *of, pid_t pid, const _Atomic(uint32_t) *word,
		    uint32_t value, int limit_ms)
{
	const struct timespec pause = { 0, 2000000 };
	int stopped = 0;

	for (int waited = 0;; waited += 2) {
		if ((int32_t)(load(word) - value) >= 0)
			return true;
		if (waited >= limit_ms || gm_attach_was_cut())
			return false;
		if (waited % 100 == 98) {
			stopped = gm_attach_stopped(pid) ? stopped + 1 : 0;
			if (stopped == 10 || gm_copy_alive(of->fd) == 0)
				return false;
		}
		nanosleep(&pause, NULL);
	}
}

/* Return how many milliseconds to wait for a snapshot that was begun. */
static int patience(const struct gm_attached *of)
{
	return of->owner == geteuid() ? WRITE_MS : OTHERS_MS;
}

/* Ask the helper thread for a snapshot. Returns 0 and the path; -ETIMEDOUT: no answer; -EIO: the helper wrote no file,
 * because that failed or the program wants none. */
static int ask(const struct gm_attached *of, pid_t pid, struct gm_header *header, char *ret_path,
	       size_t bytes)
{
	uint32_t number, reason = GM_REQUEST_OUTSIDE;

	if (!load(&header->has_helper))
		return -ETIMEDOUT;
	__atomic_store_n((uint32_t *)&header->request_reason, GM_REQUEST_OUTSIDE, __ATOMIC_RELEASE);
	number = __atomic_add_fetch((uint32_t *)&header->request, 1, __ATOMIC_ACQ_REL);
	syscall(SYS_futex, (uint32_t *)&header->request, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	/* Withdraw a request that was not begun, because a process that continues later would write another snapshot.
	 * Wait for one that was begun. */
	if (!reached(of, pid, &header->copied, number, ANSWER_MS) &&
	    (__atomic_compare_exchange_n((uint32_t *)&header->request_reason, &reason, GM_REQUEST_NONE,
					 false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ||
	     !reached(of, pid, &header->copied, number, BEGUN_MS)))
		return -ETIMEDOUT;
	if (!reached(of, pid, &header->answered, number, patience(of)))
		return -ETIMEDOUT;
	snprintf(ret_path, bytes, "%.*s", (int)sizeof(header->last_outside) - 1,
		 header->last_outside);
	return ret_path[0] ? 0 : -EIO;
}

/* One snapshot: of whom, where it goes, and how it went. */
struct taking {
	const struct gm_attached *of;
	pid_t pid;
	const char *to;			/* the file that the user named; NULL: the process chooses */
	struct gm_output output;	/* of @to */
	char path[4096];		/* of the snapshot; while @asked, of the file that the process wrote */
	bool asked;			/* the process answered with a file */
	bool wrote_none;		/* the process answered without a file */
	bool unwritten;			/* writing @to failed */
};

/* Write the snapshot of @copy to @t->to, or by the template in the journal. Another user's journal does not choose the
 * path. Returns 0 or -errno. */
static int write_copy(struct taking *t, const struct gm_copy *copy)
{
	struct gm_snapshot_request request = { .reason = "outside" };
	char template[sizeof(copy->header->output)] = "";
	struct timespec now;
	int r;

	clock_gettime(CLOCK_REALTIME, &now);
	request.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
	if (t->to) {
		r = gm_snapshot_emit(copy, &request, fileno(t->output.file));
		t->unwritten = r != 0;
		return r;
	}
	if (t->of->owner == geteuid())
		memcpy(template, copy->header->output, sizeof(template) - 1);
	if (!strcmp(template, "/dev/null"))	/* the program wants no snapshots, but the user asked for one */
		template[0] = '\0';
	return gm_snapshot_write(copy, &request, template[0] ? template : "gpumem.%c.%p.%r.json", 0, ".",
				 t->path, sizeof(t->path));
}

/* Make the snapshot without the helper. Returns 0 or -errno. */
static int take(struct taking *t)
{
	struct gm_copy copy;
	int r;

	memset(&copy, 0, sizeof(copy));
	r = gm_copy_from_file(&copy, t->of->fd);
	if (!r)
		r = gm_copy_resolve(&copy, UINT64_MAX);
	if (!r)
		r = write_copy(t, &copy);
	else if (copy.error[0])
		fprintf(stderr, "gpumem snapshot: %s\n", gm_show_clean(copy.error));
	if (r == -EBADMSG && !copy.error[0])
		fputs("gpumem snapshot: damaged: it would be out of all proportion\n", stderr);
	gm_copy_free(&copy);
	return r;
}

/* Copy the file that the helper wrote to the file that the user named. The path is from the journal, so the file must
 * be a regular file of the journal's owner. Returns 0 or -errno. */
static int make_copy(struct taking *t)
{
	int in = gm_input_regular(t->path, O_NOFOLLOW), r = 0;
	char buffer[65536];
	struct stat st;
	ssize_t n = 0;

	if (in < 0)
		return in;
	if (fstat(in, &st) || st.st_uid != t->of->owner)
		r = -EPERM;
	while (!r && (n = read(in, buffer, sizeof(buffer))) > 0)
		if (fwrite(buffer, 1, (size_t)n, t->output.file) != (size_t)n) {
			r = -errno;
			t->unwritten = true;
		}
	if (!r && n < 0)
		r = -errno;
	close(in);
	return r;
}

/* Wait for the lock of the journal, because two requests that are served together would get one file. The lock ends
 * with the descriptor, so with the process. Wait at most @limit_ms, because the holder may be stopped. */
static void wait_for_turn(int fd, int limit_ms)
{
	const struct timespec pause = { 0, 2000000 };

	for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK &&
	     waited < limit_ms; waited += 2)
		nanosleep(&pause, NULL);
}

/* Get a snapshot: ask the helper and, if it does not answer with a file, copy the journal. Returns 0 or -errno. */
static int obtain(struct taking *t)
{
	struct gm_header *header;
	int r = -ETIMEDOUT;

	wait_for_turn(t->of->fd, patience(t->of));
	if (t->of->writable) {
		header = gm_attach_map(t->of, GM_HEADER_BYTES);
		if (header)
			r = ask(t->of, t->pid, header, t->path, sizeof(t->path));
		gm_attach_unmap();
	}
	t->wrote_none = r == -EIO;
	t->asked = r != -ETIMEDOUT && !t->wrote_none;
	if (!t->asked)
		return take(t);
	return !r && t->to ? make_copy(t) : r;
}

/* Get a snapshot into the file that the user named. Returns 0 or -errno. */
static int obtain_to(struct taking *t)
{
	int r = gm_output_open(&t->output, t->to, false), end;
	bool named;

	if (r) {
		t->unwritten = true;
		return r;
	}
	named = t->output.file != stdout;
	r = obtain(t);
	end = gm_output_close(&t->output, r);
	t->unwritten |= !r && end;
	r = end;
	if (r && t->asked && t->path[0])
		fprintf(stderr, "gpumem snapshot: it stays where the process wrote it: %s\n", gm_show_path(t->path));
	if (!r && t->asked && t->of->owner == geteuid())
		unlink(t->path);		/* that file was written for us alone */
	snprintf(t->path, sizeof(t->path), "%s", named ? t->to : "");
	return r;
}

static int one(const char *word, const char *to)
{
	struct taking t = { .to = to };
	struct gm_attached attached;
	char *end;
	long pid = strtol(word, &end, 10);
	int r;

	if (*end || pid <= 0) {
		fprintf(stderr, "gpumem snapshot: '%s' is not a process id\n", gm_show_clean(word));
		return GM_EXIT_USAGE;
	}
	r = gm_attach(pid, &attached);
	if (r) {
		fprintf(stderr, "gpumem snapshot: %ld: %s\n", pid, gm_attach_explain(pid, r));
		return GM_EXIT_INPUT;
	}
	t.of = &attached;
	t.pid = (pid_t)pid;
	r = to ? obtain_to(&t) : obtain(&t);
	close(attached.fd);
	if (r) {
		fprintf(stderr, "gpumem snapshot: %ld: %s%s%s\n", pid, t.unwritten ? gm_show_clean(to) : "",
			t.unwritten ? ": " : "", strerror(-r));
		return t.unwritten ? GM_EXIT_FAILED : GM_EXIT_INPUT;
	}
	if (!t.asked)
		fprintf(stderr, "gpumem snapshot: %ld %s: copied from outside, not consistent\n", pid,
			t.wrote_none ? "wrote none" : "gave no answer");
	if (t.path[0])
		puts(gm_show_path(t.path));
	return GM_EXIT_OK;
}

int gm_verb_snapshot(int argc, char **argv)
{
	const char *output = NULL;
	const struct gm_argument arguments[] = { { "output", GM_ARG_TEXT, &output }, { NULL, 0, NULL } };
	int status = gm_arguments(argc, argv, arguments, 1, INT_MAX);

	if (status >= 0)
		return status;
	if (output && argc - optind > 1)
		return gm_inputs_wrong("snapshot", argc - optind);
	if (gm_output_check("snapshot", output, ".json"))
		return GM_EXIT_USAGE;
	status = GM_EXIT_OK;
	for (int i = optind; i < argc; i++) {
		int s = one(argv[i], output);

		status = s > status ? s : status;
	}
	return gm_show_finish("snapshot", status);
}
