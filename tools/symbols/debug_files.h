/*
 * debug_files.h - the files on this machine that belong to a module of a snapshot: by build id.
 *
 * A snapshot may name any path. A file is opened only for reading and only if it is a regular one,
 * which O_PATH says without opening it; and it is used only if it has the module's build id.
 * Single-threaded, no signal context.
 */
#ifndef GM_TOOLS_DEBUG_FILES_H
#define GM_TOOLS_DEBUG_FILES_H

#include <stddef.h>

#include "recorder/modules/elf_file.h"

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

#endif
