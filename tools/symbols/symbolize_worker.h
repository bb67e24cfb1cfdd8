/*
 * symbolize_worker.h - names, lines and inlined functions of the frames of a snapshot, worked out
 * in a child process.
 *
 * What is parsed there (ELF, DWARF, mangled names) may be anything, by libraries that were not
 * written for that. The child has no more than a pipe to say what it found: should it die or run
 * for too long, the module that it was at is tried again without DWARF, then left out.
 * Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_SYMBOLIZE_WORKER_H
#define GM_TOOLS_SYMBOLIZE_WORKER_H

#include <jansson.h>

#include "tools/symbols/dwarf.h"

struct gm_sym_frame {
	uint32_t frame;			/* the caller's number */
	uint32_t module;		/* its place in the snapshot's "modules" */
	uint64_t offset;		/* return address, as the module's file has it */
	const char *name;		/* as recorded; "" none */
};

struct gm_sym_module {
	const char *path, *build_id;	/* hexadecimal, "" none */
	const struct gm_sym_frame *frames;	/* by offset */
	size_t count;
};

struct gm_sym_request {
	const struct gm_debug_places *places;
	struct gm_sym_frame *frames;	/* in any order: they are sorted */
	size_t frame_count;
	const json_t *modules;		/* of the snapshot */
	bool inlines;
	unsigned int cpu_seconds;	/* of one child; 0: two minutes */
	/* One level of a frame's functions, innermost first; the last one has @inlined false.
	 * Strings are valid during the call, and of any content. */
	void (*level)(void *arg, uint32_t frame, const struct gm_level *level);
	/* A module is done, the @number-th of @count; NULL: nobody wants to know. @why: "" or why not all
	 * was found, one sentence; of any content. */
	void (*done)(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why);
	void *arg;
};

/* Returns 0, -ENOMEM, or -errno when there could be no child. */
int gm_symbolize(const struct gm_sym_request *request);

#endif
