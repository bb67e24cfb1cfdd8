/*
 * elf_file.c - an ELF file of this machine's kind, read by pread: see elf_file.h.
 */
#define _GNU_SOURCE
#include "recorder/modules/elf_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/journal/sys.h"

#define SECTIONS_AT_ONCE 32u
#define SEGMENTS_MAX 256u		/* of which notes are looked for; there are about ten */
#define NOTES_BYTES 4096u		/* of one note section that are looked at */
#define NAMES_BYTES 65536u		/* of the names of sections: beyond, .debug_info is not found */

bool gm_elf_file_read(const struct gm_elf_file *elf, void *dst, uint64_t at, size_t bytes)
{
	uint8_t *to = dst;

	if (at > elf->bytes || bytes > elf->bytes - at)
		return false;
	while (bytes) {
		ssize_t n = pread(elf->fd, to, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)		/* cut short meanwhile */
			return false;
		to += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return true;
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

/* ET_REL: what several debug files have in common (dwz) says it is that. */
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

/* .symtab has all that .dynsym has. Stripped of its contents (NOBITS, in a .debug file) it is of
 * another type. */
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
	elf->code = gm_sys.map(NULL, count * sizeof(*elf->code), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (elf->code == MAP_FAILED) {
		elf->code = NULL;
		return -ENOMEM;
	}
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
