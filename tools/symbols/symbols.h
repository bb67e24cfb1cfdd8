/*
 * symbols.h - find names, source lines and inlined functions of native frames in the files of this machine.
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

/* Return @symbol demangled, in a static buffer; @symbol itself if it is not mangled, is longer than 8 KiB, or would
 * become longer than 16 KiB. */
const char *gm_demangle(const char *symbol);

/* ---- debug_files.c ---------------------------------------------------------------------------- */

/*
 * Find the files of this machine that belong to a module of a snapshot. A snapshot may name any path, so a file is
 * opened only for reading and only if it is a regular file (O_PATH tells that without an open). It is used only if it
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
	struct gm_debug_file dwarf;	/* a file with .debug_info, perhaps the same, with a descriptor of its own */
};

struct gm_build_id { uint8_t bytes[GM_ELF_BUILD_ID_MAX]; unsigned int count; };

/* Parse lower-case hexadecimal digits. Return false if @text is no build id. */
bool gm_build_id_parse(const char *text, struct gm_build_id *ret);

/* Find the files of the module that was loaded from @path ("": by @id alone). A file that is not found has fd -1. Free
 * with gm_debug_files_close. */
void gm_debug_files_find(const struct gm_debug_places *places, const char *path,
			 const struct gm_build_id *id, struct gm_debug_files *ret);
void gm_debug_files_close(struct gm_debug_files *files);

/* Open @path if it is a regular ELF file with this build id. Return 0, -ESTALE (another build id) or -errno. */
int gm_debug_file_open(const char *path, const struct gm_build_id *id, struct gm_debug_file *ret);
void gm_debug_file_close(struct gm_debug_file *file);

/* ---- dwarf.c ---------------------------------------------------------------------------------- */

/*
 * Find lines and inlined functions of addresses with elfutils' libdw. libdw is opened with dlopen when it is needed, so
 * that gpumem also runs without it. Debug information may be damaged or hostile, and libdw was not written for that: so
 * it is read only in the worker process (symbolize_worker.c), which may crash.
 */

/* One of the functions at an address. Strings are valid during the call; "" and 0: unknown. */
struct gm_level {
	const char *name;		/* a symbol, or a plain name */
	const char *file;
	uint32_t line;
	bool inlined;			/* into the next level */
};

struct gm_dwarf_request {
	const uint64_t *addresses;	/* of instructions, ascending */
	size_t count;
	bool inlines;			/* false: one level for each address */
	/* Called with the levels of each address for which any are known, innermost first. Called again if a second
	 * unit claims the address. */
	void (*found)(void *arg, size_t index, const struct gm_level *levels, size_t count);
	void *arg;
};

#define GM_LEVELS_MOST 128u		/* of one address; of more levels the innermost are dropped */

#define GM_NO_LIBDW "libdw"		/* the beginning of the reason if libdw is missing */
#define GM_NO_DEBUG "no debug information"

/* Return NULL if libdw can be used, else one sentence that says why not. */
const char *gm_dwarf_missing(void);

/* Answer @request from @file. Return NULL, or one sentence that says what is missing. */
const char *gm_dwarf_resolve(const struct gm_debug_places *places,
			     const struct gm_debug_file *file,
			     const struct gm_dwarf_request *request);

/* ---- symbolize_worker.c ----------------------------------------------------------------------- */

/*
 * Find the names, lines and inlined functions of the frames of a snapshot, in a child process. The child parses ELF,
 * DWARF and mangled names of any content, with libraries that were not written for that, and sends its results through
 * a pipe. If the child dies or takes too long, a new child tries the same module without DWARF; if that fails, too, the
 * module is left out.
 */

struct gm_sym_frame {
	uint32_t frame;			/* a number of the caller's */
	uint32_t module;		/* index in the snapshot's "modules" */
	uint64_t offset;		/* return address, as an address of the module's file */
	const char *name;		/* as recorded; "": none */
};

struct gm_sym_module {
	const char *path, *build_id;	/* @build_id: hexadecimal; "": none */
	const struct gm_sym_frame *frames;	/* by offset */
	size_t count;
};

struct gm_sym_request {
	const struct gm_debug_places *places;
	struct gm_sym_frame *frames;	/* in any order; gm_symbolize sorts them */
	size_t frame_count;
	const json_t *modules;		/* of the snapshot */
	bool inlines;
	bool keep_names;		/* look for no name of a frame that has one already */
	unsigned int cpu_seconds;	/* of one child; 0: two minutes */
	/* Called for each level of a frame, innermost first; the last one has @inlined false. Strings are valid during
	 * the call, and may have any content. */
	void (*level)(void *arg, uint32_t frame, const struct gm_level *level);
	/* Called when a module is done, the @number-th of @count; or NULL. @why: "", or one sentence, of any content,
	 * that says what is missing. */
	void (*done)(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why);
	void *arg;
};

/* Return 0, -ENOMEM, or -errno if no child could be started. */
int gm_symbolize(const struct gm_sym_request *request);

/* ---- names.c ---------------------------------------------------------------------------------- */

/*
 * Put names, lines and inlined functions into a snapshot. An inlined function becomes a frame of its own, before the
 * frame that it was inlined into.
 */

struct gm_snapshot;

struct gm_names {
	const struct gm_debug_places *places;
	bool no_inlines;
	bool shown;			/* only frames that verbs show, at most 65,536, and only for a few seconds */
	void (*done)(void *arg, const struct gm_sym_module *module, size_t number, size_t count, const char *why);
	void *arg;
	/* Results, in frames: asked for; found with a name, with a line; inlined ones that were added. */
	size_t wanted, named, lined, inlined;
};

/* Return 0 or -errno. The counts are in @names. */
int gm_names_find(struct gm_snapshot *snapshot, struct gm_names *names);

/* Give the native frames of @snapshot lines and inlined functions; every verb that shows stacks calls this. The files
 * that the snapshot names must be on this machine with the same build id. If not, one line on stderr says so once,
 * provided the user can change the reason: no libdw, or a program without debug information. Answers are kept by build
 * id, for the next snapshot of the same program. Return 0 or -ENOMEM. */
int gm_names_show(const char *verb, struct gm_snapshot *snapshot);

/* Make gm_names_show do nothing from now on (--no-lines). */
void gm_names_off(void);

/* Let gm_names_show print nothing from now on: for verbs that draw on the whole terminal. */
void gm_names_hush(void);

#endif
