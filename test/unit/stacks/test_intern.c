/* Strings, frames, stacks, modules: equal content, one id; cuts, full areas, no memory, threads. */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "recorder/read/copy.h"
#include "recorder/journal/state.h"
#include "recorder/journal/sys.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

static uint32_t text(const char *s)
{
	return gm_intern_string(s, (uint32_t)strlen(s));
}

static const struct gm_string *string_at(uint32_t id)
{
	return (const void *)(gm_rec.base + gm_region(GM_REGION_STRINGS)->offset + id);
}

START_TEST(test_strings)
{
	char big[GM_STRING_MAX + 100];
	uint32_t a, b, empty;

	ck_assert_uint_eq(text("before the start"), 0);
	aux_start(0);
	a = text("alpha");
	b = text("beta");
	ck_assert_uint_ne(a, 0);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_eq(a % 8, 0);
	ck_assert_uint_eq(text("alpha"), a);
	ck_assert_uint_eq(gm_intern_string("alphabet", 5), a);
	ck_assert_str_eq(string_at(b)->text, "beta");
	ck_assert_uint_eq(gm_intern_string(NULL, 0), 0);
	empty = text("");
	ck_assert_uint_ne(empty, 0);
	ck_assert_uint_eq(string_at(empty)->length, 0);
	ck_assert_uint_eq(text(""), empty);
	/* Cut, but not within a character of UTF-8. */
	memset(big, 'x', sizeof(big));
	memcpy(big + GM_STRING_MAX - 1, "\xe2\x82\xac", 3);
	a = gm_intern_string(big, sizeof(big));
	ck_assert_uint_eq(string_at(a)->length, GM_STRING_MAX - 1);
	ck_assert_uint_eq(gm_intern_string(big, GM_STRING_MAX - 1), a);
}
END_TEST

START_TEST(test_many_strings)
{
	static uint32_t ids[50000];
	char buf[32];

	aux_start(0);
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < 50000; i++) {
			uint32_t id;

			snprintf(buf, sizeof(buf), "string number %u", i);
			id = text(buf);
			ck_assert_uint_ne(id, 0);
			if (round)
				ck_assert_uint_eq(id, ids[i]);
			ids[i] = id;
			ck_assert_str_eq(string_at(id)->text, buf);
		}
	}
	aux_sound();
}
END_TEST

START_TEST(test_frames_and_stacks)
{
	struct gm_frame frame = { .offset = 0x100, .module = 2 }, *there;
	uint32_t frames[GM_STACK_MAX + 5], id, cut;
	const struct gm_stack *stack;
	struct gm_copy copy;

	aux_start(100);
	for (uint32_t i = 0; i < GM_STACK_MAX + 5; i++) {
		frame.offset = i % 100;
		frames[i] = gm_intern_frame(&frame);
		ck_assert_uint_eq(frames[i], i % 100 + 1);
	}
	frame.module = 3;
	frame.offset = 5;
	ck_assert_uint_eq(gm_intern_frame(&frame), 101);
	frame.module = 4;
	ck_assert_uint_eq(gm_intern_frame(&frame), 102);
	gm_frame_name(102, text("main"), text("main.c"), 17);
	gm_frame_name(0, 1, 1, 1);
	gm_frame_name(103, 1, 1, 1);
	there = (void *)(gm_rec.base + gm_region(GM_REGION_FRAMES)->offset);
	ck_assert_str_eq(string_at(there[102].name)->text, "main");
	ck_assert_uint_eq(there[102].line, 17);
	ck_assert_uint_eq(gm_intern_frame(&frame), 102);	/* names are no part of what it is */
	frame = (struct gm_frame){ .offset = 5, .flags = GM_FRAME_PYTHON, .name = text("f"),
				   .filename = text("f.py"), .line = 7 };
	ck_assert_uint_eq(gm_intern_frame(&frame), 103);
	frame.line = 8;					/* of a Python frame they are all */
	ck_assert_uint_eq(gm_intern_frame(&frame), 104);
	frame.filename = text("g.py");
	ck_assert_uint_eq(gm_intern_frame(&frame), 105);
	frame.name = text("g");
	ck_assert_uint_eq(gm_intern_frame(&frame), 106);
	frame.filename = text("f.py");
	frame.name = text("f");
	ck_assert_uint_eq(gm_intern_frame(&frame), 104);

	id = gm_intern_stack(frames, 7, false);
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(gm_intern_stack(frames, 7, false), id);
	ck_assert_uint_ne(gm_intern_stack(frames, 6, false), id);
	ck_assert_uint_ne(gm_intern_stack(frames + 1, 7, false), id);
	ck_assert_uint_ne(gm_intern_stack(frames, 7, true), id);
	ck_assert_uint_eq(gm_intern_stack(frames, 0, false), 0);
	cut = gm_intern_stack(frames, GM_STACK_MAX + 5, false);
	stack = (const void *)(gm_rec.base + gm_region(GM_REGION_STACKS)->offset + cut);
	ck_assert_uint_eq(stack->count, GM_STACK_MAX);
	ck_assert_uint_eq(stack->flags, 1);
	aux_copy(&copy);
	ck_assert_uint_eq(gm_copy_stack(&copy, id)->count, 7);
	ck_assert_uint_eq(gm_copy_stack(&copy, id)->frames[6], frames[6]);
	gm_copy_free(&copy);
	aux_sound();
}
END_TEST

START_TEST(test_modules)
{
	static const uint8_t build_id[20] = "0123456789abcdefghi";
	const struct gm_module *table;
	struct gm_copy copy;
	uint16_t a, b;

	aux_start(0);		/* AUX_MODULES of them are there */
	a = gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libone.so", build_id, 20);
	ck_assert_uint_eq(a, AUX_MODULES + 1);
	ck_assert_uint_eq(gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libone.so", build_id, 20),
			  a);
	b = gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libtwo.so", build_id, 20);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_ne(gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libone.so", build_id, 19),
			  a);
	gm_module_unloaded(a);
	gm_module_unloaded(0);
	gm_module_unloaded(999);
	table = (const void *)(gm_rec.base + gm_region(GM_REGION_MODULES)->offset);
	ck_assert_uint_gt(table[a].unload_tsc, table[a].load_tsc);
	/* Loaded again at the same place: another life, another number. */
	b = gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libone.so", build_id, 20);
	ck_assert_uint_gt(b, a);
	ck_assert_uint_eq(table[b].unload_tsc, 0);
	/* Unless it was never gone: then its life goes on. */
	gm_module_unloaded(b);
	ck_assert_uint_ne(table[b].unload_tsc, 0);
	gm_module_loaded_again(b);
	gm_module_loaded_again(0);
	gm_module_loaded_again(60000);
	ck_assert_uint_eq(table[b].unload_tsc, 0);
	ck_assert_uint_eq(gm_publish_module(0x1000, 0x1000, 0x5000, "/lib/libone.so", build_id, 20),
			  b);
	/* No path, no build id, one too long to be one. */
	ck_assert_uint_ne(gm_publish_module(1, 1, 2, NULL, NULL, 0), 0);
	ck_assert_uint_ne(gm_publish_module(3, 3, 4, "", build_id, 33), 0);
	aux_copy(&copy);
	ck_assert_str_eq(gm_copy_string(&copy, gm_copy_module(&copy, a)->path, NULL),
			 "/lib/libone.so");
	gm_copy_free(&copy);
	for (uint64_t i = 0; i < GM_MAX_MODULES + 1000; i++)
		gm_publish_module(i << 20, i << 20, (i << 20) + 5, "/lib/many.so", NULL, 0);
	ck_assert_uint_eq(gm_publish_module(7, 7, 8, "/lib/late.so", NULL, 0), 0);
	ck_assert_uint_gt(gm_region(GM_REGION_MODULES)->refused, 900);
	aux_sound();
}
END_TEST

static int small_limit(int resource, struct rlimit *ret)
{
	*ret = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	if (resource == RLIMIT_FSIZE)
		ret->rlim_cur = 2 << 20;
	return 0;
}

/* A full area refuses what is new, counts it, and still knows what it has. */
START_TEST(test_full)
{
	char buf[1000];
	uint32_t first = 0, id;
	unsigned int i;

	gm_sys.limit = small_limit;
	aux_start(0);
	memset(buf, 'a', sizeof(buf));
	for (i = 0; i < 100000; i++) {
		snprintf(buf, 20, "%019u", i);
		buf[19] = 'a';
		id = gm_intern_string(buf, sizeof(buf));
		if (!id)
			break;
		first = first ? first : id;
	}
	ck_assert_uint_gt(i, 10);
	ck_assert_uint_lt(i, 100000);
	ck_assert_uint_eq(gm_region(GM_REGION_STRINGS)->refused, 1);
	snprintf(buf, 20, "%019u", 0);
	buf[19] = 'a';
	ck_assert_uint_eq(gm_intern_string(buf, sizeof(buf)), first);
	aux_sound();
}
END_TEST

/* The n-th request for memory fails: what was refused may be asked for again. */
START_TEST(test_no_memory)
{
	unsigned int refused = 0;
	char buf[100];

	aux_sys_wrap();
	aux_start(0);
	aux_fail_at = aux_calls + (unsigned int)_i;
	memset(buf, 'b', sizeof(buf));
	for (unsigned int i = 0; i < 4000; i++) {
		uint32_t id, again;

		snprintf(buf, 20, "%u", i);
		id = gm_intern_string(buf, sizeof(buf));
		again = gm_intern_string(buf, sizeof(buf));
		if (id)
			ck_assert_uint_eq(again, id);
		refused += !again;
	}
	ck_assert_uint_ge(aux_calls, aux_fail_at);
	ck_assert_uint_lt(refused, 100);
	aux_sound();
}
END_TEST

/* Everybody interns the same strings: everybody gets the same ids. */
#define SHARED_TEXTS 2000
static _Atomic(uint32_t) agreed[SHARED_TEXTS];
static _Atomic(uint32_t) differences;

static void *intern_all(void *arg)
{
	char buf[32];

	for (unsigned int k = 0; k < SHARED_TEXTS; k++) {
		unsigned int i = (k + (unsigned int)(uintptr_t)arg * 397) % SHARED_TEXTS;
		struct gm_frame frame = { .offset = i, .module = 1 };
		uint32_t id, none = 0, frames[2];

		snprintf(buf, sizeof(buf), "shared %u", i);
		id = text(buf);
		if (!id || (!atomic_compare_exchange_strong(&agreed[i], &none, id) && none != id))
			gm_count(&differences, 1);
		frames[0] = gm_intern_frame(&frame);
		frames[1] = frames[0];
		if (!gm_intern_stack(frames, 2, false))
			gm_count(&differences, 1);
		gm_publish_module(i % 64 << 12, i % 64 << 12, (i % 64 << 12) + 1, "/lib/y.so", NULL, 0);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[8];

	aux_start(0);
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, intern_all, (void *)i), 0);
	for (unsigned int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(gm_get(&differences), 0);
	ck_assert_uint_eq(gm_region(GM_REGION_FRAMES)->used,
			  (SHARED_TEXTS + 1) * sizeof(struct gm_frame));
	ck_assert_uint_eq(gm_region(GM_REGION_MODULES)->used,
			  (64 + AUX_MODULES + 1) * sizeof(struct gm_module));
	aux_sound();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("intern");
	TCase *tc = tcase_create("intern");

	tcase_set_timeout(tc, 100);
	tcase_add_unchecked_fixture(tc, aux_directory_make, aux_directory_remove);
	tcase_add_single_test(tc, test_strings);
	tcase_add_single_test(tc, test_many_strings);
	tcase_add_single_test(tc, test_frames_and_stacks);
	tcase_add_single_test(tc, test_modules);
	tcase_add_single_test(tc, test_full);
	tcase_add_single_loop_test(tc, test_no_memory, 1, 12);
	tcase_add_test(tc, test_threads);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
