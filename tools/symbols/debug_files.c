/*
 * debug_files.c - find the files of this machine that belong to a module: see symbols.h. One thread.
 */
#define _GNU_SOURCE
#include "tools/symbols/symbols.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/read/input.h"

#define SYSTEM_DEBUG "/usr/lib/debug"

bool gm_build_id_parse(const char *text, struct gm_build_id *ret)
{
	size_t length = strlen(text);

	memset(ret, 0, sizeof(*ret));
	if (!length || length % 2 || length / 2 > sizeof(ret->bytes) ||
	    strspn(text, "0123456789abcdef") != length)
		return false;
	for (; ret->count < length / 2; ret->count++) {
		unsigned int byte;

		sscanf(text + 2 * ret->count, "%2x", &byte);
		ret->bytes[ret->count] = (uint8_t)byte;
	}
	return true;
}

int gm_debug_file_open(const char *path, const struct gm_build_id *id, struct gm_debug_file *ret)
{
	int fd = gm_input_regular(path, 0), r;

	ret->elf.fd = -1;
	if (fd < 0)
		return fd;
	r = gm_elf_file_begin(&ret->elf, fd);
	if (!r && (ret->elf.build_id_bytes != id->count ||
		   memcmp(ret->elf.build_id, id->bytes, id->count))) {
		gm_elf_file_end(&ret->elf);
		r = -ESTALE;
	}
	if (r) {
		close(fd);
		ret->elf.fd = -1;
		return r;
	}
	snprintf(ret->path, sizeof(ret->path), "%s", path);
	return 0;
}

void gm_debug_file_close(struct gm_debug_file *file)
{
	if (file->elf.fd < 0)
		return;
	close(file->elf.fd);
	gm_elf_file_end(&file->elf);
	file->elf.fd = -1;
}

/* Return 0 without symbols, 1 with dynamic symbols only, 2 with all symbols. */
static unsigned int quality(const struct gm_debug_file *file)
{
	if (file->elf.fd < 0 || !file->elf.symbol_count)
		return 0;
	return file->elf.all_symbols ? 2 : 1;
}

static bool complete(const struct gm_debug_files *files)
{
	return quality(&files->symbols) == 2 && files->dwarf.elf.fd >= 0;
}

/* Try one path. Keep the file if its symbols are better than those found so far, or if it is the first with debug
 * information. */
__attribute__((format(printf, 3, 4)))
static void try(struct gm_debug_files *files, const struct gm_build_id *id, const char *format, ...)
{
	struct gm_debug_file found;
	char path[sizeof(found.path)];
	va_list args;
	int length;

	if (complete(files))
		return;
	va_start(args, format);
	length = vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof(path) || gm_debug_file_open(path, id, &found))
		return;
	if (found.elf.has_debug_info && files->dwarf.elf.fd < 0 &&
	    gm_debug_file_open(path, id, &files->dwarf))
		files->dwarf.elf.fd = -1;
	if (quality(&found) > quality(&files->symbols)) {
		gm_debug_file_close(&files->symbols);
		files->symbols = found;
	} else {
		gm_debug_file_close(&found);
	}
}

void gm_debug_files_find(const struct gm_debug_places *places, const char *path,
			 const struct gm_build_id *id, struct gm_debug_files *ret)
{
	const char *name = basename(path);
	char hex[2 * GM_ELF_BUILD_ID_MAX + 2];
	size_t n = 0;

	for (unsigned int i = 0; i < id->count; i++)
		n += (size_t)sprintf(hex + n, i ? "%02x" : "%02x/", id->bytes[i]);
	ret->symbols.elf.fd = ret->dwarf.elf.fd = -1;
	for (size_t i = 0; i < places->debug_dir_count; i++) {
		const char *dir = places->debug_dirs[i];

		try(ret, id, "%s/.build-id/%s.debug", dir, hex);
		try(ret, id, "%s/.build-id/%s", dir, hex);
		if (name[0]) {
			try(ret, id, "%s/%s", dir, name);
			try(ret, id, "%s/%s.debug", dir, name);
		}
	}
	if (places->sysroot) {
		try(ret, id, "%s" SYSTEM_DEBUG "/.build-id/%s.debug", places->sysroot, hex);
		if (path[0] == '/') {
			try(ret, id, "%s%s", places->sysroot, path);
			try(ret, id, "%s" SYSTEM_DEBUG "%s.debug", places->sysroot, path);
		}
	}
	try(ret, id, SYSTEM_DEBUG "/.build-id/%s.debug", hex);
	if (path[0] == '/') {
		try(ret, id, "%s", path);
		try(ret, id, SYSTEM_DEBUG "%s.debug", path);
	}
}

void gm_debug_files_close(struct gm_debug_files *files)
{
	gm_debug_file_close(&files->symbols);
	gm_debug_file_close(&files->dwarf);
}
