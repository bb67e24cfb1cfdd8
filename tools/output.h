/*
 * output.h - where a verb's result goes: standard output, or a file that is there whole or not at
 * all. Single-threaded.
 */
#ifndef GM_TOOLS_OUTPUT_H
#define GM_TOOLS_OUTPUT_H

#include <stdio.h>

struct gm_output {
	FILE *file;
	char path[4096];		/* "" for standard output */
	char temporary[4112];
};

/* Open for @path, or standard output when it is NULL or "-". Returns 0 or -errno. */
int gm_output_open(struct gm_output *output, const char *path);

/* Put what was written where it belongs (@keep), or take it back. Returns 0 or -errno. */
int gm_output_close(struct gm_output *output, int keep);

#endif
