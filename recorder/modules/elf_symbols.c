/*
 * elf_symbols.c - which functions of an ELF file hold certain addresses: see elf_symbols.h.
 */
#include "recorder/modules/elf_symbols.h"

#include <errno.h>
#include <string.h>

#include "allocator/lock.h"

#define OPEN_REACH 16384u		/* how far a function that gives no size is believed to go */
#define LOOK_AT_CLOCK 65536u		/* steps between two readings: about 0.1 ms */
#define WORK_MOST (UINT64_C(1) << 30)	/* steps of one pass: some seconds */

/* Which of several names at one place: a function's before a label's, a global one's first. */
static uint8_t rank_of(const Elf64_Sym *symbol)
{
	unsigned int bind = ELF64_ST_BIND(symbol->st_info);
	uint8_t rank = ELF64_ST_TYPE(symbol->st_info) == STT_NOTYPE ? 1 : 4;

	if (bind == STB_GLOBAL || bind == STB_GNU_UNIQUE)
		rank = (uint8_t)(rank + 2);
	else if (bind == STB_WEAK)
		rank = (uint8_t)(rank + 1);
	return rank;
}

/* A function, or a label that others can call; in code. */
static bool is_function(const struct gm_elf_file *elf, const Elf64_Sym *symbol,
			struct gm_elf_range *ret_code)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);

	if (type != STT_FUNC && type != STT_GNU_IFUNC &&
	    (type != STT_NOTYPE || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL))
		return false;
	if (symbol->st_shndx >= elf->sections || !symbol->st_name ||
	    symbol->st_name >= elf->strings_bytes)
		return false;
	*ret_code = elf->code[symbol->st_shndx];
	return symbol->st_value >= ret_code->start && symbol->st_value < ret_code->end;
}

static size_t first_at_or_after(const struct gm_elf_scan *scan, uint64_t address)
{
	size_t low = 0, high = scan->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (scan->matches[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void offer(struct gm_elf_match *match, const Elf64_Sym *symbol, uint64_t end, uint8_t rank)
{
	uint64_t start = symbol->st_value;

	if (!symbol->st_size) {
		if (!match->open_name || start > match->open_start ||
		    (start == match->open_start && rank > match->open_rank)) {
			match->open_start = start;
			match->open_name = symbol->st_name;
			match->open_rank = rank;
		}
		return;
	}
	if (start > match->sized_start)
		match->sized_start = start;
	if (match->address < end &&
	    (!match->name || start > match->start ||
	     (start == match->start && rank > match->rank))) {
		match->start = start;
		match->name = symbol->st_name;
		match->rank = rank;
	}
}

/* Offer @symbol to every address that it may hold, or that it lies between it and another's. */
static void see(const struct gm_elf_file *elf, struct gm_elf_scan *scan, const Elf64_Sym *symbol)
{
	struct gm_elf_range code;
	uint64_t start = symbol->st_value, end, reach;
	uint8_t rank;

	scan->work++;
	if (!is_function(elf, symbol, &code) || start > scan->matches[scan->count - 1].address)
		return;
	end = symbol->st_size < code.end - start ? start + symbol->st_size : code.end;
	reach = code.end - start > OPEN_REACH ? start + OPEN_REACH : code.end;
	if (reach < end)
		reach = end;
	if (reach <= scan->matches[0].address)
		return;
	rank = rank_of(symbol);
	for (size_t i = first_at_or_after(scan, start);
	     i < scan->count && scan->matches[i].address < reach; i++) {
		offer(&scan->matches[i], symbol, end, rank);
		scan->work++;
	}
}

int gm_elf_scan(const struct gm_elf_file *elf, struct gm_elf_scan *scan, uint64_t until_ns)
{
	uint64_t looked = scan->work, first = scan->next;

	while (scan->count && scan->next < elf->symbol_count && scan->work < WORK_MOST) {
		uint64_t n = elf->symbol_count - scan->next;

		/* What is read may come from a slow disk. */
		if (scan->next != first && gm_now_ns() >= until_ns)
			return 0;
		n = n < GM_ELF_WINDOW ? n : GM_ELF_WINDOW;
		if (!gm_elf_file_read(elf, scan->window, elf->symbols_at +
				 scan->next * sizeof(Elf64_Sym), n * sizeof(Elf64_Sym)))
			return -EBADMSG;
		for (uint64_t i = 0; i < n; i++, scan->next++) {
			if (scan->work - looked > LOOK_AT_CLOCK) {
				looked = scan->work;
				if (gm_now_ns() >= until_ns)
					return 0;
			}
			see(elf, scan, &scan->window[i]);
		}
	}
	return 1;
}

uint32_t gm_elf_match_name(const struct gm_elf_match *match)
{
	if (match->name)
		return match->name;
	/* Behind another function's beginning it is not that one's any more. */
	return match->open_name && match->open_start > match->sized_start ? match->open_name : 0;
}

/* "name@@VERSION", as .symtab has it. */
static size_t without_version(char *name, size_t length)
{
	char *at = memchr(name, '@', length);

	if (at && at != name) {
		*at = '\0';
		length = (size_t)(at - name);
	}
	return length;
}

size_t gm_elf_name(const struct gm_elf_file *elf, uint32_t name, char *ret, size_t size)
{
	size_t have = 0;

	ret[0] = '\0';
	if (!name || name >= elf->strings_bytes)
		return 0;
	/* Most names are short, some are thousands of bytes. */
	for (size_t step = 256; have < size - 1; step *= 4) {
		uint64_t rest = elf->strings_bytes - name - have;
		const char *end;

		step = step < size - 1 - have ? step : size - 1 - have;
		step = step < rest ? step : (size_t)rest;
		if (!step || !gm_elf_file_read(elf, ret + have, elf->strings_at + name + have, step))
			break;
		end = memchr(ret + have, '\0', step);
		if (end)
			return without_version(ret, (size_t)(end - ret));
		have += step;
	}
	ret[have] = '\0';
	return without_version(ret, have);
}
