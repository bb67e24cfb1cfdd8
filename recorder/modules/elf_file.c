/*
 * elf_file.c - read an ELF file of this machine's kind and find functions in it: see elf_file.h.
 */
#define _GNU_SOURCE
#include "recorder/modules/elf_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "recorder/journal/atomic.h"
#include "recorder/journal/sys.h"

#define SECTIONS_AT_ONCE 32u
#define SEGMENTS_MAX 256u		/* segments searched for notes; files have about ten */
#define NOTES_BYTES 4096u		/* how much of a note section is read */
#define OPEN_REACH 16384u		/* how long a function without a size may be */
#define LOOK_AT_CLOCK 65536u		/* steps between two readings: about 0.1 ms */
#define WORK_MOST (UINT64_C(1) << 30)	/* steps of one pass: some seconds */
#define NAMES_BYTES 65536u		/* how much of the section names is searched for .debug_info */

static _Atomic(uint32_t) stopped;

void gm_elf_files_stop(void)
{
	gm_set_release(&stopped, 1);
}

bool gm_elf_files_stopped(void)
{
	return gm_get_acquire(&stopped);
}

bool gm_elf_file_read(const struct gm_elf_file *elf, void *dst, uint64_t at, size_t bytes)
{
	/* A short read means that the file was truncated meanwhile. */
	return at <= elf->bytes && bytes <= elf->bytes - at && !gm_elf_files_stopped() &&
	       gm_file_get(elf->fd, dst, bytes, at) == (ssize_t)bytes;
}

static void remember(struct gm_elf_file *elf, const struct stat *st)
{
	elf->bytes = (uint64_t)st->st_size;
	elf->device = (uint64_t)st->st_dev;
	elf->inode = (uint64_t)st->st_ino;
	elf->mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
			(uint64_t)st->st_mtim.tv_nsec;
}

bool gm_elf_file_is(const struct gm_elf_file *elf, int fd)
{
	struct gm_elf_file now;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	remember(&now, &st);
	return now.device == elf->device && now.inode == elf->inode && now.bytes == elf->bytes &&
	       now.mtime_ns == elf->mtime_ns;
}

/* Is this an ELF file of this machine? ET_REL is allowed, because dwz files of shared debug data have that type. */
static bool is_native(const Elf64_Ehdr *header)
{
#if defined(__aarch64__)
	const uint16_t machine = EM_AARCH64;
#else
	const uint16_t machine = EM_X86_64;
#endif

	return !memcmp(header->e_ident, ELFMAG, SELFMAG) &&
	       header->e_ident[EI_CLASS] == ELFCLASS64 &&
	       header->e_ident[EI_DATA] == ELFDATA2LSB && header->e_machine == machine &&
	       header->e_type >= ET_REL && header->e_type <= ET_DYN &&
	       (!header->e_shnum || header->e_shentsize == sizeof(Elf64_Shdr)) &&
	       (!header->e_phnum || header->e_phentsize == sizeof(Elf64_Phdr));
}

/* ELF notes: sizes, type, name, descriptor, each padded to 4 bytes. */
unsigned int gm_elf_build_id(const uint8_t *notes, size_t bytes, uint8_t ret_id[GM_ELF_BUILD_ID_MAX])
{
	size_t at = 0;

	while (bytes - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		size_t name = at + sizeof(note);

		memcpy(&note, notes + at, sizeof(note));
		if (note.n_namesz > bytes || note.n_descsz > bytes)
			break;
		at = name + ((note.n_namesz + 3u) & ~3u);
		if (at > bytes || note.n_descsz > bytes - at)
			break;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(notes + name, "GNU", 4) && note.n_descsz &&
		    note.n_descsz <= GM_ELF_BUILD_ID_MAX) {
			memcpy(ret_id, notes + at, note.n_descsz);
			return note.n_descsz;
		}
		at += (note.n_descsz + 3u) & ~3u;
		if (at > bytes)
			break;
	}
	return 0;
}

static void find_build_id(struct gm_elf_file *elf, uint64_t at, uint64_t bytes)
{
	uint8_t notes[NOTES_BYTES];
	size_t have = bytes < sizeof(notes) ? (size_t)bytes : sizeof(notes);

	if (!elf->build_id_bytes && gm_elf_file_read(elf, notes, at, have))
		elf->build_id_bytes = gm_elf_build_id(notes, have, elf->build_id);
}

static void read_segments(struct gm_elf_file *elf)
{
	Elf64_Phdr segment;

	for (uint64_t i = 0; i < elf->header.e_phnum && i < SEGMENTS_MAX; i++) {
		if (!gm_elf_file_read(elf, &segment, elf->header.e_phoff + i * sizeof(segment),
				 sizeof(segment)))
			return;
		if (segment.p_type == PT_NOTE)
			find_build_id(elf, segment.p_offset, segment.p_filesz);
	}
}

static bool fits(const struct gm_elf_file *elf, const Elf64_Shdr *section)
{
	return section->sh_offset <= elf->bytes && section->sh_size <= elf->bytes - section->sh_offset;
}

/* Note a symbol table. .symtab wins, because it has every symbol of .dynsym. An empty one (in a stripped file) has
 * type NOBITS and is not seen here. */
static void see_symbols(struct gm_elf_file *elf, const Elf64_Shdr *section)
{
	Elf64_Shdr strings;

	if (!fits(elf, section) || section->sh_entsize != sizeof(Elf64_Sym) || elf->all_symbols ||
	    section->sh_size < 2 * sizeof(Elf64_Sym) || section->sh_link >= elf->header.e_shnum ||
	    !gm_elf_file_read(elf, &strings, elf->header.e_shoff + section->sh_link * sizeof(strings),
			 sizeof(strings)) ||
	    strings.sh_type != SHT_STRTAB || !fits(elf, &strings))
		return;
	elf->all_symbols = section->sh_type == SHT_SYMTAB;
	elf->symbols_at = section->sh_offset;
	elf->symbol_count = section->sh_size / sizeof(Elf64_Sym);
	elf->strings_at = strings.sh_offset;
	elf->strings_bytes = strings.sh_size;
}

static void see_name(struct gm_elf_file *elf, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
	static const char wanted[] = ".debug_info";
	char name[sizeof(wanted)];

	if (elf->has_debug_info || section->sh_type == SHT_NOBITS || !section->sh_size ||
	    section->sh_name > NAMES_BYTES || section->sh_name > names->sh_size ||
	    names->sh_offset > elf->bytes)
		return;
	if (gm_elf_file_read(elf, name, names->sh_offset + section->sh_name, sizeof(name)))
		elf->has_debug_info = !memcmp(name, wanted, sizeof(wanted));
}

static void see_section(struct gm_elf_file *elf, uint32_t number, const Elf64_Shdr *names,
			const Elf64_Shdr *section)
{
	if ((section->sh_flags & (SHF_ALLOC | SHF_EXECINSTR)) == (SHF_ALLOC | SHF_EXECINSTR) &&
	    section->sh_size <= UINT64_MAX - section->sh_addr)
		elf->code[number] = (struct gm_elf_range){
			section->sh_addr, section->sh_addr + section->sh_size };
	if (section->sh_type == SHT_SYMTAB || section->sh_type == SHT_DYNSYM)
		see_symbols(elf, section);
	else if (section->sh_type == SHT_NOTE && fits(elf, section))
		find_build_id(elf, section->sh_offset, section->sh_size);
	else if (!(section->sh_flags & SHF_ALLOC))
		see_name(elf, names, section);
}

static int read_sections(struct gm_elf_file *elf)
{
	Elf64_Shdr some[SECTIONS_AT_ONCE], names = { 0 };
	uint32_t count = elf->header.e_shnum;

	if (!count)
		return 0;
	if (elf->header.e_shstrndx < count &&
	    !gm_elf_file_read(elf, &names, elf->header.e_shoff +
			 (uint64_t)elf->header.e_shstrndx * sizeof(names), sizeof(names)))
		return -EBADMSG;
	elf->code = gm_map_private(count * sizeof(*elf->code));
	if (!elf->code)
		return -ENOMEM;
	elf->sections = count;
	for (uint32_t i = 0; i < count; i += SECTIONS_AT_ONCE) {
		uint32_t n = count - i < SECTIONS_AT_ONCE ? count - i : SECTIONS_AT_ONCE;

		if (!gm_elf_file_read(elf, some, elf->header.e_shoff + i * sizeof(some[0]),
				 n * sizeof(some[0])))
			return -EBADMSG;
		for (uint32_t j = 0; j < n; j++)
			see_section(elf, i + j, &names, &some[j]);
	}
	return 0;
}

int gm_elf_file_begin(struct gm_elf_file *ret_elf, int fd)
{
	struct gm_elf_file elf = { .fd = fd };
	struct stat st;
	int r;

	memset(ret_elf, 0, sizeof(*ret_elf));
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(elf.header))
		return -EBADMSG;
	remember(&elf, &st);
	if (!gm_elf_file_read(&elf, &elf.header, 0, sizeof(elf.header)) || !is_native(&elf.header) ||
	    elf.header.e_shoff > elf.bytes || elf.header.e_phoff > elf.bytes)
		return -EBADMSG;
	r = read_sections(&elf);
	if (r) {
		gm_elf_file_end(&elf);
		return r;
	}
	read_segments(&elf);
	*ret_elf = elf;
	return 0;
}

void gm_elf_file_end(struct gm_elf_file *elf)
{
	if (elf->code)
		gm_sys.unmap(elf->code, elf->sections * sizeof(*elf->code));
	elf->code = NULL;
	elf->sections = 0;
}

/* ---- which functions hold certain addresses ---- */

/* Rank the names of one place: functions before labels, global names before others. */
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

/* Is @symbol a function, or a label that other files can call, inside code? */
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

/* Offer @symbol to every address within its reach: its function may contain the address, or may be where a function
 * without a size ends. */
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

		/* Look at the clock before each read, because the disk may be slow. */
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
	/* A function without a size ends where the next function begins. */
	return match->open_name && match->open_start > match->sized_start ? match->open_name : 0;
}

/* Cut the version from "name@@VERSION", which is how .symtab has names. */
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
	/* Most names are short, but some have thousands of bytes. */
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
