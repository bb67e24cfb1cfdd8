/*
 * symbols.h - names, source lines and inlined functions of native frames, from the files of this machine.
 * Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_SYMBOLS_H
#define GM_TOOLS_SYMBOLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recorder/modules/elf_file.h"

/* ---- demangle.c ------------------------------------------------------------------------------- */

/*
 * C++ and Rust names are demangled by libiberty. In a build without it, symbols stay as they are.
 */

/* @symbol demangled; @symbol itself when it is not mangled, longer than 8 KiB, or would come out
 * longer than 16 KiB. Static memory, valid until the next call. */
const char *gm_demangle(const char *symbol);

/* ---- debug_files.c ---------------------------------------------------------------------------- */

/*
 * The files of this machine that belong to a module of a snapshot, which may name any path. A file is opened only
 * for reading and only if it is a regular one, which O_PATH says without opening it; and it is used only if it
 * has the module's build id.
 */

struct gm_debug_places {
	const char *const *debug_dirs;	/* --debug-dir, before all others */
	size_t debug_dir_count;
	const char *sysroot;		/* NULL: none */
};

struct gm_debug_file {
	struct gm_elf_file elf;		/* elf.fd -1: not found */
	char path[4096];
};

struct gm_debug_files {
	struct gm_debug_file symbols;	/* the file with the best symbol table */
	struct gm_debug_file dwarf;	/* a file with .debug_info; its own descriptor */
};

struct gm_build_id { uint8_t bytes[GM_ELF_BUILD_ID_MAX]; unsigned int count; };

/* Hexadecimal digits as a build id; false when they are none. */
bool gm_build_id_parse(const char *text, struct gm_build_id *ret);

/* The files of the module that was loaded from @path. What was not found has fd -1. */
void gm_debug_files_find(const struct gm_debug_places *places, const char *path,
			 const struct gm_build_id *id, struct gm_debug_files *ret);
void gm_debug_files_close(struct gm_debug_files *files);

/* Open @path if it is a regular ELF file with this build id. Returns 0 or -errno. */
int gm_debug_file_open(const char *path, const struct gm_build_id *id, struct gm_debug_file *ret);
void gm_debug_file_close(struct gm_debug_file *file);

/* ---- dwarf.c ---------------------------------------------------------------------------------- */

/*
 * From addresses to lines and inlined functions, by elfutils' libdw. It is opened when it is needed, not linked:
 * gpumem runs where it is missing, and says so. Debug information may be damaged or hostile, and libdw was not
 * written for that: all of this runs in the worker process alone (symbolize_worker.c), which may die of it.
 */

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

#define GM_NO_LIBDW "libdw"		/* a reason that begins so: it is not there */
#define GM_NO_DEBUG "no debug information"

/* Is libdw installed? NULL, or why it cannot be used, in one sentence. */
const char *gm_dwarf_missing(void);

/* Answer @request from @file. Returns NULL, or why it could not, in one sentence. */
const char *gm_dwarf_resolve(const struct gm_debug_places *places,
			     const struct gm_debug_file *file,
			     const struct gm_dwarf_request *request);

/* ---- symbolize_worker.c ----------------------------------------------------------------------- */

/*
 * Names, lines and inlined functions of the frames of a snapshot, worked out in a child process. What is parsed
 * there (ELF, DWARF, mangled names) may be anything, by libraries that were not written for that. The child has
 * no more than a pipe to say what it found: should it die or run for too long, the module that it was at is
 * tried again without DWARF, then left out.
 */

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
	bool only_lines;		/* modules without debug information need no names that the process knew */
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

/* ---- names.c ---------------------------------------------------------------------------------- */

/*
 * The same, put into a snapshot: a function that was inlined becomes a frame of its own before the frame that it is in.
 */

struct gm_snapshot;

struct gm_names {
	const struct gm_debug_places *places;
	bool no_inlines;
	bool shown;			/* of what verbs show alone, 65,536 frames at most, in seconds */
	void (*done)(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why);
	void *arg;
	size_t wanted, named, lined, inlined;	/* frames: asked for, found; added */
};

/* Returns 0 or -errno; the numbers are in @names. */
int gm_names_find(struct gm_snapshot *snapshot, struct gm_names *names);

/* What every verb does with a snapshot whose stacks it shows: give its native frames lines and inlined functions, where
 * the files that the snapshot names are here with the same build id. Where that fails for a reason that the user can
 * mend (no libdw, a program without debug information) it is said once. What was found is kept by build id, for the
 * next snapshot of the same program. Returns 0 or -ENOMEM. */
int gm_names_show(const char *verb, struct gm_snapshot *snapshot);

/* From now on it does nothing: for --no-lines. */
void gm_names_off(void);

/* From now on it does not say why there are no lines: for who draws on the terminal. */
void gm_names_hush(void);

#endif
