/*
 * test_elf_symbols.c - addresses to function names: against nm on this program, the C and the C++
 * library, whole and stripped; labels, aliases and gaps; a pass in slices; files of any content.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocator/lock.h"
#include "recorder/modules/elf_file.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/unwind/helper.h"
#include "test/seed.h"

#define MOST 400000

/* Functions as nm prints them. */
static struct function { uint64_t start, end; char *name; } functions[MOST];
static size_t function_count;
static Elf64_Sym window[GM_ELF_WINDOW];
static struct gm_elf_match matches[MOST];

static int by_start(const void *a, const void *b)
{
	const struct function *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void ask_nm(const char *flags, const char *path)
{
	char command[512], line[65536];
	unsigned long long start, size;
	FILE *nm;
	int at;

	snprintf(command, sizeof(command), "nm -S --defined-only %s '%s'", flags, path);
	nm = popen(command, "r");
	ck_assert_ptr_nonnull(nm);
	while (function_count)
		free(functions[--function_count].name);
	while (fgets(line, sizeof(line), nm)) {
		char type;

		if (sscanf(line, "%llx %llx %c %n", &start, &size, &type, &at) != 3 ||
		    !strchr("tTwWi", type) || !size)
			continue;
		line[strcspn(line, "@\n")] = '\0';
		ck_assert_uint_lt(function_count, MOST);
		functions[function_count++] = (struct function){ start, start + size,
								 strdup(line + at) };
	}
	ck_assert_int_eq(pclose(nm), 0);
	qsort(functions, function_count, sizeof(functions[0]), by_start);
}

static int open_it(const char *path, struct gm_elf_file *elf)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gm_elf_file_begin(elf, fd), 0);
	return fd;
}

/* Is @name one of the names of the innermost function at @address? */
static bool nm_agrees(uint64_t address, const char *name)
{
	uint64_t innermost = 0;
	bool any = false, found = false;

	for (int pass = 0; pass < 2; pass++) {
		size_t low = 0, high = function_count;

		while (low < high) {
			size_t middle = (low + high) / 2;

			if (functions[middle].start <= address)
				low = middle + 1;
			else
				high = middle;
		}
		for (size_t i = low; i-- > 0 && functions[i].start + (1 << 20) > address;) {
			const struct function *f = &functions[i];

			if (f->end <= address)
				continue;
			if (!pass && (!any || f->start > innermost)) {
				any = true;
				innermost = f->start;
			} else if (pass && f->start == innermost) {
				found |= !strcmp(f->name, name);
			}
		}
	}
	return any ? found : name[0] == '\0';
}

/* Every function's first, last and middle byte, as sorted addresses. */
static size_t probe_all(void)
{
	size_t n = 0;

	for (size_t i = 0; i < function_count && n + 3 < MOST; i++) {
		const struct function *f = &functions[i];

		matches[n++] = (struct gm_elf_match){ .address = f->start };
		matches[n++] = (struct gm_elf_match){ .address = f->start + (f->end - f->start) / 2 };
		matches[n++] = (struct gm_elf_match){ .address = f->end - 1 };
	}
	return n;
}

static int by_address(const void *a, const void *b)
{
	const struct gm_elf_match *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

/* Names of all that nm knows. @slices: how often the pass shall stop at least. Returns how many. */
static size_t compare(const char *path, const char *nm_flags, bool slices)
{
	struct gm_elf_scan scan = { .matches = matches, .window = window };
	unsigned int stops = 0;
	struct gm_elf_file elf;
	static char name[20000];
	int fd = open_it(path, &elf), r;

	ask_nm(nm_flags, path);
	scan.count = probe_all();
	qsort(matches, scan.count, sizeof(matches[0]), by_address);
	while (!(r = gm_elf_scan(&elf, &scan, slices ? 1 : UINT64_MAX)))
		stops++;
	ck_assert_int_eq(r, 1);
	if (slices)
		ck_assert_uint_gt(stops, 0);
	for (size_t i = 0; i < scan.count; i++) {
		gm_elf_name(&elf, gm_elf_match_name(&matches[i]), name, sizeof(name));
		ck_assert_msg(nm_agrees(matches[i].address, name), "%s: %#llx is not '%s'", path,
			      (unsigned long long)matches[i].address, name);
	}
	gm_elf_file_end(&elf);
	close(fd);
	return scan.count;
}

static const char *loaded(const char *part)
{
	static char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	char *slash = NULL;

	while (!slash && fgets(line, sizeof(line), maps))
		if (strstr(line, part))
			slash = strchr(line, '/');
	fclose(maps);
	ck_assert_msg(slash != NULL, "%s is not loaded", part);
	slash[strcspn(slash, "\n")] = '\0';
	return slash;
}

START_TEST(test_libraries)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert_int_gt(length, 0);
	self[length] = '\0';
	ck_assert_uint_gt(compare(self, "", false), 100);
	ck_assert_uint_gt(compare(loaded("libc.so"), "-D", false), 3000);
	ck_assert_ptr_nonnull(dlopen("libstdc++.so.6", RTLD_NOW));
	ck_assert_uint_gt(compare(loaded("libstdc++"), "-D", true), 3000);
}
END_TEST

#if defined(__aarch64__)
#define BINUTILS "aarch64-linux-gnu-"	/* the shell may be of another machine, by qemu */
#else
#define BINUTILS ""
#endif

/* The same program stripped in the ways that distributions do. */
START_TEST(test_stripped)
{
	static const struct { const char *command, *nm; } ways[] = {
		{ "cp '%s' '%s'", "" },
		{ BINUTILS "strip --strip-debug '%s' -o '%s'", "" },
		{ BINUTILS "strip --strip-all '%s' -o '%s'", "-D" },
		{ BINUTILS "objcopy --only-keep-debug '%s' '%s'", "" },
	};
	char path[512], command[2048], self[512];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);	/* the shell's own is not ours */

	ck_assert_int_gt(length, 0);
	self[length] = '\0';
	snprintf(path, sizeof(path), "%s/stripped", aux_directory);
	snprintf(command, sizeof(command), ways[_i].command, self, path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_uint_gt(compare(path, ways[_i].nm, false), 20);
}
END_TEST

static const char *name_at(const struct gm_elf_file *elf, uint64_t address)
{
	struct gm_elf_match one = { .address = address };
	struct gm_elf_scan scan = { .matches = &one, .count = 1, .window = window };
	static char name[4][100];
	static unsigned int turn;
	char *ret = name[turn++ % 4];

	ck_assert_int_eq(gm_elf_scan(elf, &scan, UINT64_MAX), 1);
	gm_elf_name(elf, gm_elf_match_name(&one), ret, sizeof(name[0]));
	return ret;
}

START_TEST(test_shapes)
{
	struct gm_elf_file elf;
	int fd = open_it(helper_path("nobuildid.so"), &elf);
	uint64_t at = 0;

	ck_assert(elf.all_symbols && !elf.build_id_bytes);
	ask_nm("", helper_path("nobuildid.so"));
	for (size_t i = 0; i < function_count; i++)
		if (!strcmp(functions[i].name, "shape_sized"))
			at = functions[i].start;
	ck_assert_uint_ne(at, 0);
	ck_assert_str_eq(name_at(&elf, at), "shape_sized");	/* not its weak alias */
	ck_assert_str_eq(name_at(&elf, at + 15), "shape_sized");
	ck_assert_str_eq(name_at(&elf, at + 16), "shape_inner");
	ck_assert_str_eq(name_at(&elf, at + 20), "shape_sized");
	ck_assert_str_eq(name_at(&elf, at + 31), "shape_sized");
	ck_assert_str_eq(name_at(&elf, at + 32), "");		/* nobody's */
	ck_assert_str_eq(name_at(&elf, at + 64), "shape_label");
	ck_assert_str_eq(name_at(&elf, at + 64 + 16383), "shape_label");
	ck_assert_str_eq(name_at(&elf, at + 64 + 16384), "");	/* too far */
	ck_assert_str_eq(name_at(&elf, at + 128 + 20000), "shape_end");
	ck_assert_str_eq(name_at(&elf, at + (1 << 20)), "");	/* behind the section */
	ck_assert_str_eq(name_at(&elf, 0), "");
	ck_assert_str_eq(name_at(&elf, UINT64_MAX), "");
	gm_elf_file_end(&elf);
	close(fd);
}
END_TEST

START_TEST(test_not_elf)
{
	static const char *const paths[] = { "/dev/zero", "/dev/null", "/", "/proc/self/maps",
					     "/etc/passwd" };
	struct gm_elf_file elf;
	int pipes[2];

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(gm_elf_file_begin(&elf, fd), -EBADMSG);
		close(fd);
	}
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(gm_elf_file_begin(&elf, pipes[0]), -EBADMSG);
	ck_assert_int_eq(gm_elf_file_begin(&elf, -1), -EBADF);
}
END_TEST

static uint64_t state;
static uint64_t draw(void)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return state >> 33;
}

/* Where a change does harm: the headers, the symbols, the names, the notes. */
static uint64_t place(const struct gm_elf_file *elf)
{
	switch (draw() % 6) {
	case 0: return draw() % sizeof(Elf64_Ehdr);
	case 1: return elf->header.e_phoff + draw() % (elf->header.e_phnum * sizeof(Elf64_Phdr));
	case 2: case 3:
		return elf->header.e_shoff + draw() % (elf->header.e_shnum * sizeof(Elf64_Shdr));
	case 4: return elf->symbols_at + draw() % (elf->symbol_count * sizeof(Elf64_Sym));
	default: return draw() % elf->bytes;
	}
}

static void scan_any(int fd)
{
	struct gm_elf_file elf;
	struct gm_elf_scan scan = { .matches = matches, .count = 300, .window = window };
	char name[300];

	if (gm_elf_file_begin(&elf, fd))
		return;
	for (size_t i = 0; i < scan.count; i++)
		matches[i] = (struct gm_elf_match){ .address = i * 97 };
	/* Whatever the table says, it is over at some time: the clock is asked often enough. */
	gm_elf_scan(&elf, &scan, gm_now_ns() + 20000000);
	for (size_t i = 0; i < scan.count; i++) {
		size_t length = gm_elf_name(&elf, gm_elf_match_name(&matches[i]), name,
					    sizeof(name));

		ck_assert_uint_lt(length, sizeof(name));
		ck_assert_uint_eq(strlen(name), length);
	}
	gm_elf_file_end(&elf);
	ck_assert_ptr_null(elf.code);
}

/* Damaged in a few places, cut short, or both. */
START_TEST(test_damaged)
{
	static const uint64_t odd[] = { 0, 1, 7, 0x7fffffff, 0xffffffff, UINT64_MAX, UINT64_MAX - 63,
					UINT64_C(1) << 63, UINT64_C(1) << 32, 0xff00 };
	unsigned long rounds = aux_effort(1000);
	struct gm_elf_file whole;
	int in = open_it(helper_path("nobuildid.so"), &whole);
	int fd = memfd_create("damaged", MFD_CLOEXEC);
	uint8_t *good = malloc(whole.bytes), *bad = malloc(whole.bytes);

	state = test_seed() + (uint64_t)_i;
	ck_assert(gm_elf_file_read(&whole, good, 0, whole.bytes));
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t bytes = whole.bytes;

		memcpy(bad, good, whole.bytes);
		for (uint64_t n = 1 + draw() % 4; n--;) {
			uint64_t at = place(&whole) & ~UINT64_C(3);
			uint64_t word = draw() % 2 ? odd[draw() % 10] : draw() * draw();
			size_t width = (size_t)1 << draw() % 4;

			if (at + width <= whole.bytes)
				memcpy(bad + at, &word, width);
		}
		if (!(draw() % 8))
			bytes = draw() % whole.bytes;
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		ck_assert_int_eq(pwrite(fd, bad, bytes, 0), (ssize_t)bytes);
		scan_any(fd);
	}
	gm_elf_file_end(&whole);
	close(in);
	close(fd);
	free(good);
	free(bad);
}
END_TEST

#define COSTLY_SYMBOLS 20000u
#define COSTLY_ADDRESSES 60000u

/* Sections: none, code, symbols, names. Every symbol is as long as the code. */
static int costly_file(void)
{
	static struct {
		Elf64_Ehdr header;
		Elf64_Shdr sections[4];
		Elf64_Sym symbols[COSTLY_SYMBOLS];
		char names[16];
	} file;
	int fd = memfd_create("costly", MFD_CLOEXEC), self = open("/proc/self/exe", O_RDONLY);

	ck_assert_int_eq(pread(self, &file.header, sizeof(file.header), 0), sizeof(file.header));
	close(self);
	file.header.e_phnum = 0;
	file.header.e_shnum = 4;
	file.header.e_shstrndx = 3;
	file.header.e_shoff = offsetof(__typeof__(file), sections);
	file.sections[1] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_addr = 4096,
					 .sh_size = COSTLY_ADDRESSES,
					 .sh_flags = SHF_ALLOC | SHF_EXECINSTR };
	file.sections[2] = (Elf64_Shdr){ .sh_type = SHT_SYMTAB, .sh_entsize = sizeof(Elf64_Sym),
					 .sh_offset = offsetof(__typeof__(file), symbols),
					 .sh_size = sizeof(file.symbols), .sh_link = 3 };
	file.sections[3] = (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_size = sizeof(file.names),
					 .sh_offset = offsetof(__typeof__(file), names) };
	for (unsigned int i = 1; i < COSTLY_SYMBOLS; i++)
		file.symbols[i] = (Elf64_Sym){ .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					       .st_shndx = 1, .st_value = 4096, .st_name = 1,
					       .st_size = UINT64_MAX };
	memcpy(file.names + 1, "endless", 7);
	ck_assert_int_eq(write(fd, &file, sizeof(file)), sizeof(file));
	return fd;
}

/* The clock is looked at within a step of bounded work, and there is an end to all work. */
START_TEST(test_costly)
{
	struct gm_elf_scan scan = { .matches = matches, .count = COSTLY_ADDRESSES,
				    .window = window };
	struct gm_elf_file elf;
	char name[16];
	int fd = costly_file();

	ck_assert_int_eq(gm_elf_file_begin(&elf, fd), 0);
	for (size_t i = 0; i < scan.count; i++)
		matches[i] = (struct gm_elf_match){ .address = 4096 + i };
	for (int i = 0; i < 20; i++) {
		uint64_t before = scan.work;

		ck_assert_int_eq(gm_elf_scan(&elf, &scan, 1), 0);
		ck_assert_uint_le(scan.work - before, 3 * COSTLY_ADDRESSES);
	}
	scan.work = UINT64_C(1) << 30;
	ck_assert_int_eq(gm_elf_scan(&elf, &scan, UINT64_MAX), 1);
	ck_assert_uint_lt(scan.next, 100);
	gm_elf_name(&elf, gm_elf_match_name(&matches[7]), name, sizeof(name));
	ck_assert_str_eq(name, "endless");
	gm_elf_file_end(&elf);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("elf_symbols");
	TCase *tc = tcase_create("elf_symbols");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_libraries);
	tcase_add_loop_test(tc, test_stripped, 0, 4);
	tcase_add_test(tc, test_shapes);
	tcase_add_test(tc, test_not_elf);
	tcase_add_loop_test(tc, test_damaged, 0, 3);
	tcase_add_test(tc, test_costly);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
