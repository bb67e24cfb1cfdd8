/*
 * image.h - a private copy of a journal, made consistent: what every snapshot is written from.
 *
 * One routine for the living process, the outside reader and the recovery: copy, validate every
 * offset, undo what was half done, resolve what was in flight, find the horizon. Works in memory
 * of its own got by mmap; calls no malloc; trusts nothing it reads.
 * Thread context: one thread an image. Not for signal handlers.
 */
#ifndef GM_RECORDER_IMAGE_H
#define GM_RECORDER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/format.h"

struct gm_flight {			/* an operation that had begun and not returned */
	uint64_t op, address, size, tsc;
	uint32_t tid;
	uint8_t action, kind, domain;
};

struct gm_image {
	uint8_t *base;			/* the copy, same offsets as the journal */
	size_t bytes;			/* mapped for it */
	struct gm_header *header;	/* base */
	uint64_t cut_tsc;		/* events stamped later are not part of it; UINT64_MAX: none */
	bool consistent;		/* false: copied without the locks */
	/* after gm_image_settle */
	const struct gm_event **events;	/* sorted; kept ones only */
	size_t event_count;
	uint64_t dropped[GM_DOMAINS];	/* events lost to the horizon, by domain where known */
	uint64_t dropped_total;
	struct gm_flight *flights;
	size_t flight_count;
	char error[256];		/* why a copy was refused, one sentence */
};

/* Copy the journal of this process under its locks (the copy alone). Returns 0 or -errno. */
int gm_image_copy_live(struct gm_image *image);

/* Copy from a file descriptor by pread. Returns 0, -EBADMSG when it is no journal of a version
 * known here, or -errno; @image->error says which. */
int gm_image_copy_file(struct gm_image *image, int fd);

/* Undo, resolve, sort, count. @max_events: newest ones kept; UINT64_MAX for all. 0 or -errno. */
int gm_image_settle(struct gm_image *image, uint64_t max_events);

void gm_image_free(struct gm_image *image);	/* NULL-safe fields: may be called at any stage */

/* Is the process that wrote the journal open as @fd alive? 1 yes, 0 no, -errno unknown. */
int gm_image_alive(int fd);

/* Count violations: overlapping segments, blocks that do not tile, counters that disagree with
 * the tables, dangling ids. 0 if sound. */
int gm_image_check(const struct gm_image *image,
		   void (*report)(void *arg, const char *what, uint64_t where), void *arg);

/* Accessors that check: never NULL, "" for a bad id. */
const char *gm_image_string(const struct gm_image *image, uint32_t id, uint32_t *ret_length);
const struct gm_module *gm_image_module(const struct gm_image *image, uint32_t id);	/* NULL */
uint64_t gm_image_wall_us(const struct gm_image *image, uint64_t stamp);

#endif
