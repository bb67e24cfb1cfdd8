/*
 * output.h - where a verb's result goes: standard output, or a file that appears complete or not at all.
 * Single-threaded.
 */
#ifndef GM_TOOLS_OUTPUT_H
#define GM_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "recorder/snapshot/outfile.h"

struct gm_output {
	FILE *file;
	struct gm_outfile out;		/* .fd is -1 for standard output, a device or a pipe */
};

/* Open @path for writing; NULL, "-" and "/dev/stdout" are standard output. A new file has mode 0600, as snapshots have,
 * or, if @public, 0666 less the umask, and replaces a file or link of that name. A device or pipe is written to; a pipe
 * without a reader is waited for three seconds. Return 0 or -errno. */
int gm_output_open(struct gm_output *output, const char *path, bool public);

/* Close @output, and give a new file its name or, after an @error, remove it. Return @error, else 0 or -errno. */
int gm_output_close(struct gm_output *output, int error);

#endif
