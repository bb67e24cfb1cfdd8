/*
 * elf_symbols.h - which functions of an ELF file hold certain addresses: one pass over its symbol
 * table for all of them.
 *
 * Symbols are not in order, and there may be millions; addresses are few. So the table is read in
 * windows, and each symbol looked up among the sorted addresses: no memory but the addresses' own.
 * A pass may be stopped by the clock and continued later. A hostile table (every function as long as
 * the file) is abandoned when it would cost too much; what was found stays.
 *
 * Thread context: one thread a scan. Signal context: none.
 */
#ifndef GM_RECORDER_ELF_SYMBOLS_H
#define GM_RECORDER_ELF_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "recorder/modules/elf_file.h"

#define GM_ELF_WINDOW 2048u		/* symbols read at once */

struct gm_elf_match {
	uint64_t address;		/* an instruction's, as the file has it; the caller's */
	uint64_t start;			/* of the function that holds it */
	uint64_t open_start;		/* of the nearest below that does not say how long it is */
	uint64_t sized_start;		/* of the nearest below that does */
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

/* Where in the string table the name of @match's function is, after a pass; 0: it has none. */
uint32_t gm_elf_match_name(const struct gm_elf_match *match);

/* Copy the name at @name into @ret, without a symbol version, cut at @size - 1, a NUL after it.
 * Returns its length; 0 none. */
size_t gm_elf_name(const struct gm_elf_file *elf, uint32_t name, char *ret, size_t size);

#endif
