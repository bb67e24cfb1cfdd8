/*
 * test_cfi.c - call frame information by hand and by the thousand: expressions and encodings one
 * by one; and every row of the tables of whole libraries, compared with what readelf makes of
 * them. Further libraries to compare may be named as arguments.
 */
#define _GNU_SOURCE
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorder/unwind/cfi.h"
#include "recorder/modules/object.h"
#include "test/suite.h"

/* ---- a source over an array ------------------------------------------------------------ */

#define BASE UINT64_C(0x10000)

struct bytes {
	const uint8_t *data;
	size_t count;
};

static size_t read_bytes(void *ctx, void *dst, uintptr_t address, size_t want)
{
	const struct bytes *bytes = ctx;
	size_t at = address - BASE;

	if (address < BASE || at >= bytes->count)
		return 0;
	if (want > bytes->count - at)
		want = bytes->count - at;
	memcpy(dst, bytes->data + at, want);
	return want;
}

static struct gm_cfi_source source_of(struct bytes *bytes)
{
	return (struct gm_cfi_source){ read_bytes, bytes, BASE, BASE + bytes->count };
}

static bool load_plus_one(void *ctx, uintptr_t address, uintptr_t *ret_word)
{
	(void)ctx;
	*ret_word = address + 1;
	return address != 0xbad;
}

static int evaluate(const uint8_t *ops, size_t count, const uintptr_t *initial, uintptr_t *value)
{
	uint8_t data[300];
	struct bytes bytes = { data, count + 1 };
	struct gm_cfi_source source = source_of(&bytes);
	uintptr_t regs[GM_CFI_REGS];

	for (unsigned int i = 0; i < GM_CFI_REGS; i++)
		regs[i] = 1000 + i;
	ck_assert_uint_lt(count, 128);
	data[0] = (uint8_t)count;
	memcpy(data + 1, ops, count);
	return gm_cfi_evaluate(&source, BASE, regs, initial, load_plus_one, NULL, value);
}

#define EXPECT(wanted, ...) do { \
	static const uint8_t ops_[] = { __VA_ARGS__ }; \
	uintptr_t value_ = 0; \
	ck_assert_int_eq(evaluate(ops_, sizeof(ops_), NULL, &value_), 0); \
	ck_assert_uint_eq(value_, (uintptr_t)(wanted)); \
} while (0)

#define REFUSE(...) do { \
	static const uint8_t ops_[] = { __VA_ARGS__ }; \
	uintptr_t value_ = 0; \
	ck_assert_int_eq(evaluate(ops_, sizeof(ops_), NULL, &value_), -EBADMSG); \
} while (0)

START_TEST(expressions)
{
	uintptr_t cfa = 77, value;

	EXPECT(1007 + 8, 0x77, 8);				/* breg7 8 */
	EXPECT(1006 - 16, 0x76, 0x70);				/* breg6 -16 */
	EXPECT(1006 - 16 + 1, 0x76, 0x70, 0x06);		/* deref */
	EXPECT(5, 0x35);					/* lit5 */
	EXPECT(200, 0x08, 200);					/* const1u */
	EXPECT(-56, 0x09, 200);					/* const1s */
	EXPECT(0xfffe, 0x0a, 0xfe, 0xff);			/* const2u */
	EXPECT(-2, 0x0b, 0xfe, 0xff);				/* const2s */
	EXPECT(UINT32_MAX, 0x0c, 0xff, 0xff, 0xff, 0xff);	/* const4u */
	EXPECT(-1, 0x0d, 0xff, 0xff, 0xff, 0xff);		/* const4s */
	EXPECT(UINT64_C(0x0807060504030201), 0x0e, 1, 2, 3, 4, 5, 6, 7, 8);
	EXPECT(128, 0x10, 0x80, 0x01);				/* constu */
	EXPECT(-128, 0x11, 0x80, 0x7f);				/* consts */
	EXPECT(6, 0x33, 0x12, 0x22);				/* lit3 dup plus */
	EXPECT(3, 0x33, 0x34, 0x13);				/* drop */
	EXPECT(2, 0x36, 0x33, 0x1a);				/* 6 and 3 */
	EXPECT(7, 0x36, 0x33, 0x21);				/* or */
	EXPECT(18, 0x36, 0x33, 0x1e);				/* mul */
	EXPECT(48, 0x36, 0x33, 0x24);				/* shl */
	EXPECT(1, 0x36, 0x32, 0x25);				/* shr */
	EXPECT(0, 0x09, 0xfa, 0x33, 0x2a);			/* -6 ge 3 */
	EXPECT(1, 0x34, 0x33, 0x31, 0x1c, 0x2a);		/* 4 ge 3 - 1 */
	EXPECT(106, 0x36, 0x23, 100);				/* plus_uconst */
	/* glibc's PLT: rsp + 8 + ((rip & 15) >= 11) * 8, at rip 1016 */
	EXPECT(1007 + 8, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22);
	ck_assert_int_eq(evaluate((const uint8_t *)"\x23\x08", 2, &cfa, &value), 0);
	ck_assert_uint_eq(value, 85);				/* the initial value */
}
END_TEST

START_TEST(bad_expressions)
{
	REFUSE(0x06);				/* nothing on the stack */
	REFUSE(0x34, 0x32, 0x1b);		/* a division: no table has one */
	REFUSE(0x30, 0x28, 0, 0);		/* nor a branch */
	REFUSE(0x0c, 1, 2);			/* cut short */
	REFUSE(0x10, 0x80, 0x80);		/* a number without an end */
	REFUSE(0xff);				/* no such operation */
	REFUSE(0x0a, 0xad, 0x0b, 0x06);		/* memory that cannot be read */
	REFUSE(0x8f, 0);			/* no such register */
	REFUSE(0x30, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12,	/* more than the stack holds */
	       0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12);
	REFUSE(0x30, 0x13);			/* nothing left */
}
END_TEST

START_TEST(numbers)
{
	static const uint8_t data[] = {
		0xe5, 0x8e, 0x26,		/* uleb 624485 */
		0xc0, 0xbb, 0x78,		/* sleb -123456 */
		0x10, 0x00,			/* udata2 */
		0xf0, 0xff, 0xff, 0xff,		/* pcrel sdata4 at +8 */
		0x04, 0x00, 0x00, 0x00,		/* datarel udata4 */
	};
	struct bytes bytes = { data, sizeof(data) };
	struct gm_cfi_source source = source_of(&bytes);
	struct gm_cfi_cursor c;

	gm_cfi_cursor_open(&c, &source, BASE, source.end);
	ck_assert_uint_eq(gm_cfi_uleb(&c), 624485);
	ck_assert_int_eq(gm_cfi_sleb(&c), -123456);
	ck_assert_uint_eq(gm_cfi_pointer(&c, 0x02, 0), 16);
	ck_assert_uint_eq(gm_cfi_pointer(&c, 0x1b, 0), BASE + 8 - 16);
	ck_assert_uint_eq(gm_cfi_pointer(&c, 0x33, 0x5000), 0x5004);
	ck_assert(!c.failed);
	gm_cfi_unsigned(&c, 1);
	ck_assert(c.failed);
	gm_cfi_cursor_open(&c, &source, BASE + 20, source.end);
	ck_assert(c.failed);
	gm_cfi_cursor_open(&c, &source, BASE - 1, source.end);
	ck_assert(c.failed);
}
END_TEST

/* ---- whole libraries ------------------------------------------------------------------- */

static char *const *further;

static size_t read_memory(void *ctx, void *dst, uintptr_t address, size_t bytes)
{
	(void)ctx;
	memcpy(dst, (const void *)address, bytes);
	return bytes;
}

struct library {
	const char *path;
	uintptr_t base;
	struct gm_object object;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct library *library = arg;
	const char *name = info->dlpi_name;
	char self[4096];
	ssize_t length;

	(void)size;
	if (!name[0]) {
		length = readlink("/proc/self/exe", self, sizeof(self) - 1);
		self[length > 0 ? length : 0] = 0;
		name = self;
	}
	if (strcmp(name, library->path) != 0)
		return 0;
	library->base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
			return gm_object_find(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
					      &library->object) ? 1 : -1;
	return -1;
}

static int register_named(const char *name)
{
	static const char *const names[GM_CFI_REGS] = {
		"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
		"r12", "r13", "r14", "r15", "ra"
	};

	for (int i = 0; i < GM_CFI_REGS; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static bool rule_is(const struct gm_cfi_row *row, int reg, const char *said)
{
	switch (row->how[reg]) {
	case GM_CFI_SAME:
	case GM_CFI_UNDEFINED:
		return !strcmp(said, "u") || !strcmp(said, "s");
	case GM_CFI_OFFSET:
		return said[0] == 'c' && atol(said + 1) == row->value[reg];
	case GM_CFI_VAL_OFFSET:
		return said[0] == 'v' && said[1] != 'e' && atol(said + 1) == row->value[reg];
	case GM_CFI_REGISTER:
		return said[0] == 'r' && atol(said + 1) == row->value[reg];
	case GM_CFI_EXPRESSION:
		return !strcmp(said, "exp");
	case GM_CFI_VAL_EXPRESSION:
		return !strcmp(said, "vexp");
	}
	return false;
}

static bool cfa_is(const struct gm_cfi_row *row, const char *said)
{
	char name[16];
	long offset;

	if (row->cfa_is_expression)
		return !strcmp(said, "exp");
	return sscanf(said, "%15[a-z0-9]%ld", name, &offset) == 2 &&
	       register_named(name) == row->cfa_register && offset == row->cfa_offset;
}

/* One line of readelf's: "LOC CFA reg reg ..."; @columns as its heading said. */
static void compare_row(const struct library *library, char *line, const int *columns, int count)
{
	struct gm_cfi_source source = { read_memory, NULL, library->object.start,
					library->object.end };
	struct gm_cfi_frame frame;
	char *rest, *word = strtok_r(line, " \n", &rest);
	uintptr_t pc = strtoul(word, NULL, 16);
	int err = gm_cfi_find(&source, library->object.eh_frame_hdr, library->base + pc, &frame);

	ck_assert_msg(err == 0, "%s at %#lx: error %d", library->path, (unsigned long)pc, err);
	word = strtok_r(NULL, " \n", &rest);
	ck_assert_msg(cfa_is(&frame.row, word), "%s at %#lx: CFA is %s", library->path,
		      (unsigned long)pc, word);
	for (int i = 0; i < count; i++) {
		word = strtok_r(NULL, " \n", &rest);
		ck_assert_ptr_nonnull(word);
		if (rest[0] == '(')		/* "r9 (r9)": number and name of a register */
			strtok_r(NULL, " \n", &rest);
		ck_assert_msg(columns[i] < 0 || rule_is(&frame.row, columns[i], word),
			      "%s at %#lx: column %d is %s", library->path, (unsigned long)pc,
			      i, word);
	}
}

static int read_columns(char *line, int *columns)
{
	char *rest, *word;
	int count = 0;

	strtok_r(line, " \n", &rest);			/* LOC */
	strtok_r(NULL, " \n", &rest);			/* CFA */
	while ((word = strtok_r(NULL, " \n", &rest)) && count < 64)
		columns[count++] = register_named(word);
	return count;
}

static long compare_library(const char *path)
{
	struct library library = { .path = path };
	char command[4200], line[2048];
	int columns[64], count = 0;
	bool in_entry = false;
	uintptr_t begin = 0, end = 0;
	long rows = 0;
	FILE *pipe;

	ck_assert_msg(dl_iterate_phdr(find_library, &library) == 1, "%s is not loaded", path);
	ck_assert_uint_ne(library.object.eh_frame_hdr, 0);
	snprintf(command, sizeof(command), "readelf --wide -wF '%s' 2>/dev/null", path);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	while (fgets(line, sizeof(line), pipe)) {
		char *range = strstr(line, " FDE ") ? strstr(line, "pc=") : NULL;

		if (strstr(line, ".debug_frame"))
			break;				/* not what is loaded */
		if (range) {
			in_entry = true;
			begin = strtoul(range + 3, &range, 16);
			end = strtoul(range + 2, NULL, 16);
		} else if (strstr(line, " CIE ") || line[0] == '\n') {
			in_entry = false;
		} else if (in_entry && strstr(line, "LOC")) {
			count = read_columns(line, columns);
		} else if (in_entry) {
			uintptr_t pc = strtoul(line, NULL, 16);

			if (pc < begin || pc >= end)	/* a row for no instruction */
				continue;
			compare_row(&library, line, columns, count);
			rows++;
		}
	}
	pclose(pipe);			/* it also fails for want of separate debugging data */
	printf("# %s: %ld rows\n", path, rows);
	fflush(stdout);
	return rows;
}

START_TEST(every_row_of_loaded_libraries)
{
	static const char *const names[] = { "libstdc++.so.6", "libgcc_s.so.1", "libunwind.so.8" };
	char self[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	Dl_info info;

	ck_assert(length > 0);
	self[length] = 0;
	ck_assert_int_gt(compare_library(self), 100);
	ck_assert(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &info));
	ck_assert_int_gt(compare_library(info.dli_fname), 10000);
	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct link_map *map = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);

		ck_assert_msg(map != NULL, "%s", dlerror());
		ck_assert_int_gt(compare_library(map->l_name), 100);
	}
	for (char *const *path = further; *path; path++) {
		struct link_map *map = dlopen(*path, RTLD_LAZY | RTLD_LOCAL);

		ck_assert_msg(map != NULL, "%s", dlerror());
		compare_library(map->l_name);
	}
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("cfi");
	TCase *tcase = tcase_create("cfi");

	(void)argc;
	further = argv + 1;
	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, expressions);
	tcase_add_test(tcase, bad_expressions);
	tcase_add_test(tcase, numbers);
	tcase_add_test(tcase, every_row_of_loaded_libraries);
	return run_suite(suite);
}
