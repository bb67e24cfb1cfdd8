/*
 * test_imports.c - which part of a segment a handle means, and the parts that are open.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hooks/imports.h"
#include "test/suite.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static CUipcMemHandle some_handle(unsigned int seed)
{
	CUipcMemHandle handle;

	memset(&handle, 0, sizeof(handle));
	for (unsigned int i = 0; i < 56; i++)
		handle.reserved[i] = (char)(seed * 31 + i * 7);
	return handle;
}

/* Writes and reads back; the driver's bytes stay, and the others are zero again. */
static void goes_round(uint64_t offset, uint64_t size, uint64_t segment, uint64_t want_size)
{
	CUipcMemHandle plain = some_handle((unsigned int)size), handle = plain;
	uint64_t got_offset = 9, got_size = 9;

	ck_assert(gm_part_write(&handle, offset, size, segment));
	ck_assert_mem_eq(&handle, &plain, 56);
	ck_assert(gm_part_read(&handle, &got_offset, &got_size));
	ck_assert_uint_eq(got_offset, offset);
	ck_assert_uint_eq(got_size, want_size);
	ck_assert_mem_eq(&handle, &plain, sizeof(handle));
}

START_TEST(parts_go_round)
{
	uint64_t seed = 88172645463325252u;

	goes_round(512, 1, 2 * MIB, 1);
	goes_round(0, 1, 2 * MIB, 1);
	goes_round(0, 20 * MIB - 1, 20 * MIB, 20 * MIB - 1);
	goes_round(0, 100 * GIB - 7, 100 * GIB, 100 * GIB - 7);
	goes_round(64 * MIB - 512, 128 * MIB - 1, GIB, 128 * MIB - 1);
	goes_round(64 * MIB, 5, GIB, 512);		/* far inside: rounded up */
	goes_round(100 * GIB, 20 * GIB + 1, 130 * GIB, 20 * GIB + 512);
	for (int i = 0; i < 2000; i++) {
		uint64_t offset, size;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		offset = (seed >> 40) % (1u << 17) * 512;
		size = 1 + (seed >> 13) % ((1u << 27) - 1);
		goes_round(offset, size, GIB, size);
	}
}
END_TEST

START_TEST(nothing_to_say)
{
	CUipcMemHandle handle = some_handle(1), plain = handle;
	uint64_t offset, size;

	ck_assert(gm_part_write(&handle, 0, 4 * MIB, 4 * MIB));
	ck_assert_mem_eq(&handle, &plain, sizeof(handle));
	ck_assert(!gm_part_read(&handle, &offset, &size));
	ck_assert(!gm_part_write(&handle, 100, 5, MIB));
	ck_assert(!gm_part_write(&handle, 200 * GIB, 5, 300 * GIB));
	ck_assert_mem_eq(&handle, &plain, sizeof(handle));
}
END_TEST

/* What others write there is theirs: not taken for ours, and left alone. */
START_TEST(strange_bytes)
{
	CUipcMemHandle handle = some_handle(2), other = some_handle(3);
	uint64_t offset, size;

	memset(handle.reserved + 56, 0x5a, 8);
	ck_assert(!gm_part_read(&handle, &offset, &size));
	ck_assert_int_eq(handle.reserved[60], 0x5a);
	ck_assert(gm_part_write(&other, 512, 100, MIB));
	memcpy(handle.reserved + 56, other.reserved + 56, 8);	/* of another handle */
	ck_assert(!gm_part_read(&handle, &offset, &size));
}
END_TEST

#define BASE UINT64_C(0x7f1000000000)

START_TEST(open_and_close)
{
	struct gm_import import;

	ck_assert(!gm_imports_any());
	ck_assert_int_eq(gm_import_closing(BASE, &import), 0);
	ck_assert_int_eq(gm_import_opened(BASE, 20 * MIB, 512, 100), 0);
	ck_assert_int_eq(gm_import_opened(BASE, 20 * MIB, 512, 100), 0);
	ck_assert_int_eq(gm_import_opened(BASE, 20 * MIB, MIB, 3 * MIB), 0);
	ck_assert_int_eq(gm_import_find(BASE + 512 + 99, &import), 1);
	ck_assert_uint_eq(import.address, BASE + 512);
	ck_assert_int_eq(gm_import_find(BASE + 512 + 100, &import), -ENOENT);
	ck_assert_int_eq(gm_import_find(BASE, &import), -ENOENT);
	ck_assert_int_eq(gm_import_find(BASE + 4 * MIB - 1, &import), 1);
	ck_assert_int_eq(gm_import_find(BASE + 20 * MIB, &import), 0);
	ck_assert_int_eq(gm_import_closing(BASE, &import), -EINVAL);
	ck_assert_int_eq(gm_import_closing(BASE + 1024, &import), 0);
	ck_assert_int_eq(gm_import_closing(BASE + 512, &import), 1);
	ck_assert_uint_eq(import.base, BASE);
	ck_assert_int_eq(gm_import_find(BASE + 512, &import), 1);
	ck_assert_int_eq(gm_import_closing(BASE + 512, &import), 1);
	ck_assert_int_eq(gm_import_closing(BASE + 512, &import), 0);
	ck_assert_int_eq(gm_import_find(BASE + 512, &import), -ENOENT);
	/* The whole of it too: then the driver's word is good for all of it. */
	ck_assert_int_eq(gm_import_opened(BASE, 20 * MIB, 0, 0), 0);
	ck_assert_int_eq(gm_import_find(BASE + 10 * MIB, &import), 0);
	ck_assert_int_eq(gm_import_closing(BASE, &import), 1);
	gm_import_ended(BASE + MIB);
	ck_assert_int_eq(gm_import_find(BASE + MIB, &import), 0);
	ck_assert_int_eq(gm_import_closing(BASE, &import), 0);
}
END_TEST

START_TEST(many)
{
	struct gm_import import;

	for (uint64_t i = 0; i < 3000; i++)
		ck_assert_int_eq(gm_import_opened(BASE + i / 8 * 20 * MIB, 20 * MIB, i % 8 * MIB, MIB), 0);
	for (uint64_t i = 0; i < 3000; i++) {
		uint64_t address = BASE + i / 8 * 20 * MIB + i % 8 * MIB;

		ck_assert_int_eq(gm_import_find(address + 5, &import), 1);
		ck_assert_int_eq(gm_import_closing(address, &import), 1);
		ck_assert_uint_eq(import.address, address);
	}
	ck_assert_int_eq(gm_import_find(BASE, &import), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("imports");
	TCase *tests = tcase_create("imports");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, parts_go_round);
	tcase_add_test(tests, nothing_to_say);
	tcase_add_test(tests, strange_bytes);
	tcase_add_test(tests, open_and_close);
	tcase_add_test(tests, many);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
