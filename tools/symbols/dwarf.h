/*
 * dwarf.h - from addresses to lines and inlined functions, by elfutils' libdw.
 *
 * libdw is opened when it is needed, not linked: gpumem runs where it is missing, and says so.
 * Debug information may be damaged or hostile, and libdw was not written for that: all of this runs in
 * the worker process of `gpumem symbolize` alone (symbolize_worker.h), which may die of it.
 * Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_DWARF_H
#define GM_TOOLS_DWARF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/symbols/debug_files.h"

/* One function at an address. Strings are valid during the call; "" and 0: not known. */
struct gm_level {
	const char *name;		/* as a symbol table has it, or a plain name */
	const char *file;
	uint32_t line;
	bool inlined;			/* into the next one */
};

struct gm_dwarf_request {
	const uint64_t *addresses;	/* of instructions, ascending */
	size_t count;
	bool inlines;			/* without: one level for each address */
	/* Called for each address that something is known of, innermost level first; again where two
	 * units claim it. */
	void (*found)(void *arg, size_t index, const struct gm_level *levels, size_t count);
	void *arg;
};

#define GM_LEVELS_MOST 128u		/* of deeper ones the innermost are dropped */

/* Is libdw installed? NULL, or why it cannot be used, in one sentence. */
const char *gm_dwarf_missing(void);

/* Answer @request from @file. Returns NULL, or why it could not, in one sentence. */
const char *gm_dwarf_resolve(const struct gm_debug_places *places,
			     const struct gm_debug_file *file,
			     const struct gm_dwarf_request *request);

#endif
