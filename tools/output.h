/*
 * output.h - where a verb's result goes: standard output, or a file that is there whole or not at
 * all. Single-threaded.
 */
#ifndef GM_TOOLS_OUTPUT_H
#define GM_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

struct gm_output {
	FILE *file;
	char path[4096];		/* "" for standard output */
	char temporary[4144];		/* its name until it is whole; "" while it has none */
	bool nameless;
	int lock;			/* held as long as it has that name; -1: none */
};

/* Open for @path, or standard output when it is NULL or "-". A new file is for all whom the umask
 * lets; gm_output_open_private: for its owner, as snapshots are. Returns 0 or -errno. */
int gm_output_open(struct gm_output *output, const char *path);
int gm_output_open_private(struct gm_output *output, const char *path);

/* Put what was written where it belongs (@keep), or take it back. Returns 0 or -errno. */
int gm_output_close(struct gm_output *output, int keep);

#endif
