/*
 * elf_file.h - an ELF file of this machine's kind, read by pread: what it is, where its symbols are.
 *
 * Trusts nothing in the file: every offset is checked against its size, nothing is mapped (a file
 * that is cut short while it is read gives an error, not SIGBUS), and no count in it makes us
 * allocate more than a few MB. No malloc.
 *
 * Thread context: one thread a struct gm_elf_file. Signal context: none, but for gm_elf_build_id.
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

/* Read exactly @bytes at @at; false when the file does not have them. */
bool gm_elf_file_read(const struct gm_elf_file *elf, void *dst, uint64_t at, size_t bytes);

/* The build id among the @bytes of @notes: its length, 0 when there is none. */
unsigned int gm_elf_build_id(const uint8_t *notes, size_t bytes, uint8_t ret_id[GM_ELF_BUILD_ID_MAX]);

/* Is @fd still the file that @elf was read from, unchanged? */
bool gm_elf_file_is(const struct gm_elf_file *elf, int fd);

#endif
