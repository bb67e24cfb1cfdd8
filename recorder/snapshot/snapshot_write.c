/*
 * snapshot_write.c - write a snapshot to its own file: see snapshot.h.
 *
 * The writing thread blocks SIGXFSZ, so that a limit of file sizes makes the write fail instead of killing
 * the program.
 * Thread context: any one thread. Signal context: none.
 */
#define _GNU_SOURCE
#include "recorder/snapshot/snapshot.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "recorder/snapshot/outfile.h"

#define TRIES 3u			/* attempts, in case the host closes our descriptor */

static int fill_unsignalled(const struct gm_copy *copy,
			    const struct gm_snapshot_request *request, const struct gm_outfile *out)
{
	const struct timespec at_once = { 0, 0 };
	sigset_t too_large, before, pending;
	bool was_pending;
	int r;

	sigemptyset(&too_large);
	sigaddset(&too_large, SIGXFSZ);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGXFSZ);
	if (pthread_sigmask(SIG_BLOCK, &too_large, &before))
		return -EINVAL;
	r = gm_snapshot_emit(copy, request, out->fd);
	/* Take back the SIGXFSZ of our own write. One that was pending before is the host's, and stays. */
	if (r == -EFBIG && !was_pending)
		while (sigtimedwait(&too_large, NULL, &at_once) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int gm_snapshot_write(const struct gm_copy *copy, const struct gm_snapshot_request *request,
		      const char *template, unsigned int number, const char *fallback_dir,
		      char *ret_path, size_t ret_path_bytes)
{
	const struct gm_header *header = copy->header;
	char command[sizeof(header->command) + 1], host[sizeof(header->host) + 1];
	struct gm_outfile_words words = {
		.command = command, .host = host, .pid = header->pid, .rank = header->rank,
		.reason = request->reason, .number = number, .time_us = request->time_us,
	};
	struct gm_outfile out;
	int r = -EBADF;

	memcpy(command, header->command, sizeof(header->command));
	memcpy(host, header->host, sizeof(header->host));
	command[sizeof(header->command)] = host[sizeof(header->host)] = '\0';
	if (!words.time_us)
		words.time_us = gm_copy_wall_us(copy, copy->end_tsc ? copy->end_tsc :
						 header->clock.stamp[1]);
	gm_outfile_expand(template, &words, ret_path, ret_path_bytes);
	/* Try again if the host has closed every descriptor, and ours with them. */
	for (unsigned int tries = 0; tries < TRIES; tries++) {
		r = gm_outfile_open(&out, template, fallback_dir, &words);
		if (!r && out.nowhere)
			snprintf(ret_path, ret_path_bytes, "/dev/null");
		if (r || out.nowhere)
			return r;
		out.naming = request->naming;
		r = fill_unsignalled(copy, request, &out);
		if (!r)
			r = gm_outfile_commit(&out, ret_path, ret_path_bytes);
		gm_outfile_close(&out);
		if (r != -EBADF)
			break;
	}
	return r;
}
