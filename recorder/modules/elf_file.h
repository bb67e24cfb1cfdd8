/*
 * elf_file.h - an ELF file of this machine's kind, read by pread: what it is, and which of its
 * functions hold certain addresses.
 *
 * Nothing in the file is trusted: every offset is checked against its size, nothing is mapped (a
 * file that is truncated while it is read gives an error, not SIGBUS), and no count in it makes us
 * allocate more than a few MB. No malloc.
 *
 * Symbols are not in order, and there may be millions; addresses are few. So the table is read
 * once, in windows, and each symbol is looked up among the sorted addresses, which takes no other
 * memory. A pass may be stopped by the clock and continued later. A hostile table (every function
 * as long as the file) is abandoned when it would cost too much; what was found stays.
 *
 * Thread context: one thread a struct gm_elf_file, and a scan. Signal context: none, but for
 * gm_elf_build_id.
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
	int fd;				/* the caller's: neither opened nor closed here */
	uint64_t bytes;			/* size of the file */
	uint64_t device, inode, mtime_ns;
	Elf64_Ehdr header;
	uint64_t symbols_at, symbol_count;	/* .symtab, else .dynsym; 0: neither */
	uint64_t strings_at, strings_bytes;	/* the names of those */
	bool all_symbols;		/* it is .symtab */
	bool has_debug_info;		/* there is a section .debug_info */
	struct gm_elf_range *code;	/* by section number: its addresses; start == end: no code */
	uint32_t sections;
	uint32_t build_id_bytes;	/* 0: it has none */
	uint8_t build_id[GM_ELF_BUILD_ID_MAX];
};

/* Learn what @fd is. Returns 0; -EBADMSG when it is no regular file, no ELF file of this machine's
 * kind, or damaged; -ENOMEM; or -errno of a read. gm_elf_file_end gives back what it took, which is
 * nothing after a failure. */
int gm_elf_file_begin(struct gm_elf_file *ret_elf, int fd);
void gm_elf_file_end(struct gm_elf_file *elf);

/* Read no ELF file from now on: a thread has crashed, and the file may lie on a mount that does not
 * answer. Every later gm_elf_file_read fails, in all threads; nobody waits for one under way.
 * Async-signal-safe. */
void gm_elf_files_stop(void);
bool gm_elf_files_stopped(void);

/* Read exactly @bytes at @at; false when the file does not have them, or after gm_elf_files_stop. */
bool gm_elf_file_read(const struct gm_elf_file *elf, void *dst, uint64_t at, size_t bytes);

/* The build id among the @bytes of @notes: its length, 0 when there is none. */
unsigned int gm_elf_build_id(const uint8_t *notes, size_t bytes, uint8_t ret_id[GM_ELF_BUILD_ID_MAX]);

/* Is @fd still the file that @elf was read from, unchanged? */
bool gm_elf_file_is(const struct gm_elf_file *elf, int fd);

#define GM_ELF_WINDOW 2048u		/* symbols read at once */

struct gm_elf_match {
	uint64_t address;		/* an instruction's, as the file has it; the caller's */
	uint64_t start;			/* of the function that contains it */
	uint64_t open_start;		/* of the nearest symbol below that has no size */
	uint64_t sized_start;		/* of the nearest symbol below that has one */
	uint32_t name, open_name;	/* in the string table; 0 none */
	uint8_t rank, open_rank;
	uint16_t user16;		/* the caller's */
	uint32_t user32;		/* the caller's */
};

struct gm_elf_scan {
	struct gm_elf_match *matches;	/* sorted by address */
	size_t count;
	Elf64_Sym *window;		/* room for GM_ELF_WINDOW */
	uint64_t next;			/* symbol to go on with; 0 at the beginning */
	uint64_t work;			/* steps so far */
};

/* Go on with a pass. @until_ns: CLOCK_MONOTONIC at which to stop, UINT64_MAX: none. Returns 1 when
 * it is complete, 0 when there is more to do, -EBADMSG when the file cannot be read. */
int gm_elf_scan(const struct gm_elf_file *elf, struct gm_elf_scan *scan, uint64_t until_ns);

/* After a pass: the offset in the string table of the name of @match's function; 0: it has none. */
uint32_t gm_elf_match_name(const struct gm_elf_match *match);

/* Copy the name at @name into @ret, without a symbol version, cut at @size - 1, a NUL after it.
 * Returns its length; 0 none. */
size_t gm_elf_name(const struct gm_elf_file *elf, uint32_t name, char *ret, size_t size);

#endif
