/*
 * test_symbols.c - frames in the journal get their names: in slices, in a fork child, only from
 * the file that was loaded, never from what is no file, and not at the cost of other strings.
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

#include "recorder/modules/modules.h"
#include "recorder/journal/state.h"
#include "recorder/modules/elf_file.h"
#include "recorder/modules/symbols.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/unwind/helper.h"

#define ALL_NS UINT64_C(60000000000)

static uint16_t publish(const struct gm_module_info *info)
{
	return gm_publish_module(info->base, info->start, info->end, info->path, info->build_id,
				 info->build_id_bytes);
}

static void start(void)
{
	static const struct gm_module_sink sink = { .publish = publish };

	aux_start(0);
	gm_modules_init(&sink);
}

static uint32_t frame(uint16_t module, uint64_t offset)
{
	const struct gm_frame new = { .module = module, .offset = offset };
	uint32_t id = gm_intern_frame(&new);

	ck_assert_uint_ne(id, 0);
	return id;
}

/* The frame that a call in @function's first bytes would leave. */
static uint32_t frame_in(const void *function)
{
	uint64_t offset;
	uint16_t module = gm_modules_lookup((uintptr_t)function + 5, &offset);

	ck_assert_uint_ne(module, 0);
	return frame(module, offset);
}

static const char *name_of(uint32_t id)
{
	const struct gm_frame *at = (const void *)(gm_rec.base +
						   gm_region(GM_REGION_FRAMES)->offset);
	const struct gm_string *string = (const void *)(gm_rec.base + at[id].name +
							gm_region(GM_REGION_STRINGS)->offset);

	return at[id].name ? string->text : "";
}

static void work_all(void)
{
	for (int i = 0; gm_symbols_work(ALL_NS); i++)
		ck_assert_int_lt(i, 10);
}

/* Exported by -rdynamic, and one that only .symtab has. */
int exported_function(void);
int exported_function(void)
{
	return 1;
}

static __attribute__((noinline)) void hidden_function(void)
{
	__asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop");
}

START_TEST(test_names)
{
	uint32_t a, b, c, d, twice, python, unknown;
	struct gm_frame py = { .module = 0, .offset = 77, .flags = 1 };

	ck_assert(!gm_symbols_work(ALL_NS));	/* nothing is recorded */
	start();
	ck_assert(!gm_symbols_work(ALL_NS));	/* no frame yet */
	a = frame_in((const void *)exported_function);
	b = frame_in((const void *)hidden_function);
	c = frame_in(dlsym(RTLD_DEFAULT, "qsort_r"));
	d = frame_in(dlsym(RTLD_DEFAULT, "gm_symbols_work") ? (const void *)gm_symbols_work :
		     (const void *)gm_intern_frame);
	twice = frame_in((const char *)exported_function + 1);
	python = gm_intern_frame(&py);
	unknown = frame(0, 12345);
	work_all();
	ck_assert_str_eq(name_of(a), "exported_function");
	ck_assert_str_eq(name_of(b), "hidden_function");
	ck_assert_msg(strstr(name_of(c), "qsort_r") != NULL, "%s", name_of(c));
	ck_assert_str_eq(name_of(d), dlsym(RTLD_DEFAULT, "gm_symbols_work") ?
			 "gm_symbols_work" : "gm_intern_frame");
	ck_assert_str_eq(name_of(twice), "exported_function");
	ck_assert_str_eq(name_of(python), "");
	ck_assert_str_eq(name_of(unknown), "");
	/* And those that come later. */
	a = frame_in((const void *)frame_in);
	ck_assert_str_eq(name_of(a), "");
	work_all();
	ck_assert_str_eq(name_of(a), "frame_in");
	aux_sound();
}
END_TEST

/* A call may be a function's last instruction: its return address is the next one's. */
START_TEST(test_return_address)
{
	void *handle = helper_open("nobuildid.so");
	uintptr_t at = (uintptr_t)dlsym(handle, "shape_sized");
	uint32_t end, label;
	uint64_t offset;
	uint16_t module;

	start();
	module = gm_modules_lookup(at, &offset);
	end = frame(module, offset + 32);
	label = frame(module, offset + 64);
	work_all();
	ck_assert_str_eq(name_of(end), "shape_sized");
	ck_assert_str_eq(name_of(label), "");		/* not the label's yet */
}
END_TEST

/* Without a build id the headers decide; what lies at the path now is not what was loaded. */
START_TEST(test_replaced)
{
	char path[512], command[3 * PATH_MAX];
	uint32_t before, after;
	uint64_t offset;
	uint16_t module;
	void *handle;

	start();
	snprintf(path, sizeof(path), "%s/library.so", aux_directory);
	snprintf(command, sizeof(command), "cp '%s' '%s'", helper_path(_i ? "layout_a.so" :
								      "nobuildid.so"), path);
	ck_assert_int_eq(system(command), 0);
	handle = dlopen(path, RTLD_NOW);
	ck_assert_ptr_nonnull(handle);
	module = gm_modules_lookup((uintptr_t)dlsym(handle, _i ? "layout_call" : "nobuildid_call"),
				   &offset);
	ck_assert_uint_ne(module, 0);
	before = frame(module, offset + 4);
	work_all();
	ck_assert_str_eq(name_of(before), _i ? "layout_call" : "nobuildid_call");
	after = frame(module, offset + 5);
	snprintf(command, sizeof(command), "cp '%s' '%s.new' && mv '%s.new' '%s'",
		 helper_path(_i ? "layout_b.so" : "asker.so"), path, path, path);
	ck_assert_int_eq(system(command), 0);
	work_all();
	ck_assert_str_eq(name_of(after), "");
}
END_TEST

/* A module that is loaded no longer is named by its file; without a build id it is not. */
START_TEST(test_unloaded)
{
	const char *name = _i ? "layout_call" : "nobuildid_call";
	void *handle;
	uint64_t offset;
	uint16_t module;
	uint32_t id;

	start();
	handle = helper_open(_i ? "layout_a.so" : "nobuildid.so");
	module = gm_modules_lookup((uintptr_t)dlsym(handle, name), &offset);
	id = frame(module, offset + 4);
	gm_module_unloaded(module);
	dlclose(handle);
	work_all();
	ck_assert_str_eq(name_of(id), _i ? name : "");
}
END_TEST

/* What lies at a module's path is no file: nothing waits, nothing is named. */
START_TEST(test_hostile_paths)
{
	static const char *const fixed[] = { "/dev/zero", "/dev/tty", "/", "relative/lib.so",
					     "linux-vdso.so.1", "/nonexistent/lib.so", "" };
	const uint8_t build_id[20] = { 1, 2, 3 };
	char fifo[512];
	uint64_t base = UINT64_C(0x7000) << 32;

	start();
	snprintf(fifo, sizeof(fifo), "%s/fifo", aux_directory);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	for (size_t i = 0; i <= sizeof(fixed) / sizeof(fixed[0]); i++, base += 1 << 20) {
		uint16_t module = gm_publish_module(base, base, base + 4096,
						    i ? fixed[i - 1] : fifo, build_id,
						    i % 2 ? 20 : 0);

		frame(module, 100);
	}
	work_all();
	for (uint32_t id = 1; id <= 8; id++)
		ck_assert_str_eq(name_of(id), "");
}
END_TEST

/* Many frames, little time: every call does some, the last one the rest. */
START_TEST(test_slices)
{
	unsigned int open_before = aux_descriptors(), calls = 0, named = 0, count = 0;
	uint32_t first = 0, last = 0, functions = 0;
	uint64_t offset;
	uint16_t module;

	start();
	module = gm_modules_lookup((uintptr_t)dlsym(RTLD_DEFAULT, "qsort_r"), &offset);
	for (uint64_t at = 0x30000; at < 0x130000; at += 16) {
		last = frame(module, at);
		first = first ? first : last;
		count++;
	}
	while (gm_symbols_work(0))
		calls++;
	for (uint32_t id = first; id <= last; id++) {
		named += name_of(id)[0] != '\0';
		functions += id > first && strcmp(name_of(id), name_of(id - 1));
	}
	ck_assert_uint_gt(calls, 50);
	ck_assert_uint_gt(named, count / 4);		/* the C library is stripped */
	ck_assert_uint_gt(functions, 500);
	ck_assert_uint_eq(aux_descriptors(), open_before);
	aux_sound();
}
END_TEST

/* Names stop where the room that other strings need begins. */
START_TEST(test_full)
{
	struct gm_region *strings;
	uint32_t id;
	char text[64];

	start();
	strings = gm_region(GM_REGION_STRINGS);
	for (unsigned int i = 0; gm_get(&strings->used) < strings->capacity / 4 * 3; i++) {
		int length = snprintf(text, sizeof(text), "%059u", i);

		ck_assert_uint_ne(gm_intern_string(text, (uint32_t)length), 0);
	}
	id = frame_in((const void *)exported_function);
	work_all();
	ck_assert_str_eq(name_of(id), "");
	ck_assert_uint_eq(gm_get(&strings->refused), 0);
}
END_TEST

/* The n-th call to the system fails: frames stay unnamed, nothing is left open or mapped. */
START_TEST(test_no_system)
{
	unsigned int open_before = aux_descriptors();
	uint32_t id;

	start();
	id = frame_in((const void *)exported_function);
	aux_sys_wrap();
	aux_calls = 0;
	aux_fail_at = (unsigned int)_i;
	gm_symbols_work(ALL_NS);
	aux_fail_at = 0;
	work_all();
	ck_assert(!name_of(id)[0] || !strcmp(name_of(id), "exported_function"));
	ck_assert_uint_eq(aux_descriptors(), open_before);
}
END_TEST

static int opened;

/* A thread crashes just when a module's file is opened. */
static int open_and_crash(int dirfd, const char *path, int flags, mode_t mode)
{
	opened++;
	gm_elf_files_stop();
	return openat(dirfd, path, flags, mode);
}

START_TEST(test_stopped)
{
	unsigned int open_before = aux_descriptors();
	uint32_t a, b;

	start();
	a = frame_in((const void *)exported_function);
	b = frame_in(dlsym(RTLD_DEFAULT, "qsort_r"));
	gm_sys.open_file = open_and_crash;
	ck_assert(!gm_symbols_work(ALL_NS));
	ck_assert(!gm_symbols_work(ALL_NS));
	ck_assert_int_eq(opened, 1);		/* the other module's file is not */
	ck_assert_str_eq(name_of(a), "");	/* and nothing is read of the first one */
	ck_assert_str_eq(name_of(b), "");
	ck_assert_uint_eq(aux_descriptors(), open_before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tc = tcase_create("symbols");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_return_address);
	tcase_add_loop_test(tc, test_replaced, 0, 2);
	tcase_add_loop_test(tc, test_unloaded, 0, 2);
	tcase_add_test(tc, test_hostile_paths);
	tcase_add_test(tc, test_slices);
	tcase_add_test(tc, test_full);
	tcase_add_loop_test(tc, test_no_system, 1, 6);
	tcase_add_test(tc, test_stopped);	/* the last: nothing is read behind it */
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
