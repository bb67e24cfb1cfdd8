/*
 * elf_file.h - read an ELF file of this machine's kind by pread: its identity, and the functions that hold
 * certain addresses.
 *
 * The file is not trusted. Every offset is checked against the size of the file, and no count in the file
 * makes us allocate more than a few MB. The file is not mapped, so truncating it gives an error, not
 * SIGBUS. No malloc.
 *
 * There may be millions of symbols in no order, but the addresses are few. So the table is read once, in
 * windows, and each symbol is looked up among the sorted addresses, which needs no other memory. A pass can
 * be stopped by the clock and continued later. A hostile table (every function as long as the file) is
 * abandoned when it costs too much; the names found so far stay.
 *
 * Thread context: one thread for each struct gm_elf_file and each scan. Signal context: none, except
 * gm_elf_build_id and gm_elf_files_stop.
 */
#ifndef GM_RECORDER_ELF_FILE_H
#define GM_RECORDER_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_ELF_BUILD_ID_MAX 32u

struct gm_elf_range { uint64_t start, end; };

struct gm_elf_file {
	int fd;				/* the caller opens and closes it */
	uint64_t bytes;			/* size of the file */
	uint64_t device, inode, mtime_ns;
	Elf64_Ehdr header;
	uint64_t symbols_at, symbol_count;	/* .symtab, else .dynsym; 0: neither */
	uint64_t strings_at, strings_bytes;	/* the names of these symbols */
	bool all_symbols;		/* the symbols are those of .symtab */
	bool has_debug_info;		/* there is a section .debug_info */
	struct gm_elf_range *code;	/* addresses of each section, by number; start == end: no code */
	uint32_t sections;
	uint32_t build_id_bytes;	/* 0: the file has none */
	uint8_t build_id[GM_ELF_BUILD_ID_MAX];
};

/* Read the headers of @fd. Returns 0; -EBADMSG when @fd is no regular file, no ELF file of this machine's
 * kind, or damaged; -ENOMEM; or -errno of a read. After success, gm_elf_file_end frees the memory. */
int gm_elf_file_begin(struct gm_elf_file *ret_elf, int fd);
void gm_elf_file_end(struct gm_elf_file *elf);

/* Stop reading ELF files, because a thread has crashed and a file may lie on a mount that does not answer.
 * Every later gm_elf_file_read fails, in all threads. Does not wait for a read under way.
 * Async-signal-safe. */
void gm_elf_files_stop(void);
bool gm_elf_files_stopped(void);

/* Read exactly @bytes at @at. Returns false when the file is shorter, or after gm_elf_files_stop. */
bool gm_elf_file_read(const struct gm_elf_file *elf, void *dst, uint64_t at, size_t bytes);

/* Find the build id in @bytes of @notes. Returns its length; 0: there is none. */
unsigned int gm_elf_build_id(const uint8_t *notes, size_t bytes, uint8_t ret_id[GM_ELF_BUILD_ID_MAX]);

/* address of an instruction in the file; set by the caller */
bool gm_elf_file_is(const struct gm_elf_file *elf, int fd);

#define GM_ELF_WINDOW 2048u		/* symbols read at once */

struct gm_elf_match {
	uint64_t address;		/* of an instruction, as the file has it; set by the caller */
	uint64_t start;			/* of the function that contains it */
	uint64_t open_start;		/* of the nearest symbol below without a size */
	uint64_t sized_start;		/* of the nearest symbol below with a size */
	uint32_t name, open_name;	/* offsets in the string table; 0: none */
	uint8_t rank, open_rank;
	uint16_t user16;		/* for the caller */
	uint32_t user32;		/* for the caller */
};

struct gm_elf_scan {
	struct gm_elf_match *matches;	/* sorted by address */
	size_t count;
	Elf64_Sym *window;		/* room for GM_ELF_WINDOW */
	uint64_t next;			/* the next symbol; 0 at the beginning */
	uint64_t work;			/* steps so far */
};

/* Continue a pass. @until_ns: when to stop, by CLOCK_MONOTONIC; UINT64_MAX: never. Returns 1 when the pass
 * is complete; 0 when there is more to do; -EBADMSG when the file cannot be read. */
int gm_elf_scan(const struct gm_elf_file *elf, struct gm_elf_scan *scan, uint64_t until_ns);

/* After a pass, return the name of @match's function as an offset in the string table; 0: none. */
uint32_t gm_elf_match_name(const struct gm_elf_match *match);

/* Copy the name at offset @name into @ret without its symbol version, cut at @size - 1, with a NUL.
 * Returns the length; 0: no name. */
size_t gm_elf_name(const struct gm_elf_file *elf, uint32_t name, char *ret, size_t size);

#endif
