/*
 * output.h - where a verb's result goes: standard output, or a file that is there whole or not at
 * all. Single-threaded.
 */
#ifndef GM_TOOLS_OUTPUT_H
#define GM_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "recorder/snapshot/outfile.h"

struct gm_output {
	FILE *file;
	struct gm_outfile out;		/* .fd: -1 where it is no file that gets a name */
};

/* Open for @path, or standard output when it is NULL, "-" or "/dev/stdout". A new file is for its owner
 * alone, as snapshots are, or, @public, for all whom the umask lets; it takes the place of what had its name, links
 * included. A device or a pipe is written to; a pipe that nobody reads is waited for three seconds. Returns 0
 * or -errno. */
int gm_output_open(struct gm_output *output, const char *path, bool public);

/* Put what was written where it belongs or, after an @error, take it back. Returns @error, else 0 or -errno. */
int gm_output_close(struct gm_output *output, int error);

#endif
