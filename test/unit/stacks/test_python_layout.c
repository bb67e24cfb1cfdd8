/*
 * test_python_layout.c - the table of offsets that a CPython of 3.13 and later has for debuggers: read,
 * doubted, and the frames of an interpreter that is made by hand read by it; with tagged references,
 * other object headers, and copies of the code for threads.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "recorder/journal/recorder.h"
#include "recorder/python/python.h"
#include "recorder/python/python_view.h"
#include "recorder/read/copy.h"
#include "recorder/stacks/intern.h"
#include "recorder/unwind/unwind.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"

#define WORDS 96

/* ---- an interpreter by hand, as 3.14 says it of itself ---- */

static uint64_t runtime[WORDS], code_type[8], text_type[8], bytes_type[8];
static uint64_t state[24], frames[4][12], code[40], text[8], table[8];
static uint16_t instructions[16], copy[16];	/* copy: the second thread's */
static struct { uint64_t count; const void *copies[2]; } copies;
static struct gm_python_layout layout;
static struct gm_python python;

enum { STATE = 22, FRAME = 31, CODE = 39, OBJECT = 50, TYPE = 52, BYTES = 74, TEXT = 77 };

/* As many words before the type of an object as such a build has. */
static void say(bool free_threaded)
{
	uint64_t type = free_threaded ? 24 : 8;

	memset(runtime, 0, sizeof(runtime));
	memcpy(&runtime[0], "xdebugpy", 8);
	runtime[1] = 0x030e00f0;
	runtime[2] = free_threaded;
	runtime[STATE] = sizeof(state);
	runtime[STATE + 4] = 72;
	runtime[STATE + 5] = 136;
	runtime[FRAME] = sizeof(frames[0]);
	runtime[FRAME + 1] = 8;			/* previous */
	runtime[FRAME + 2] = 0;			/* the code, tagged */
	runtime[FRAME + 3] = 56;
	runtime[FRAME + 5] = 78;		/* owner */
	runtime[FRAME + 7] = free_threaded ? 72 : 0;
	runtime[CODE] = sizeof(code);
	runtime[CODE + 1] = 120;		/* file, name, qualified name, lines, first line */
	runtime[CODE + 2] = 128;
	runtime[CODE + 3] = 136;
	runtime[CODE + 4] = 144;
	runtime[CODE + 5] = 84;
	runtime[CODE + 9] = 240;
	runtime[CODE + 10] = free_threaded ? 232 : 0;
	runtime[OBJECT] = type + 8;
	runtime[OBJECT + 1] = type;
	runtime[TYPE] = sizeof(code_type);
	runtime[TYPE + 1] = 24;
	runtime[BYTES] = type + 33;
	runtime[BYTES + 1] = type + 8;
	runtime[BYTES + 2] = type + 24;
	runtime[TEXT] = type + 56;
	runtime[TEXT + 1] = type + 24;
	runtime[TEXT + 2] = type + 8;
	runtime[TEXT + 3] = type + 32;
	code_type[3] = (uintptr_t)"code";
}

static bool find(unsigned int minor)
{
	return gm_python_find_layout(&layout, minor, (uintptr_t)runtime, (uintptr_t)code_type);
}

static void *this_state(void)
{
	return state;
}

static int is_finalizing(void)
{
	return 0;
}

static void put_int(void *object, size_t at, uint32_t value)
{
	memcpy((char *)object + at, &value, 4);
}

/* Three frames of one function that begins in line 70, the outermost in an older thread's copy, behind them a shim. */
static void make(bool free_threaded)
{
	uint64_t type = free_threaded ? 24 : 8;
	char *units = (char *)code + 240;

	say(free_threaded);
	ck_assert(find(14));
	memset(code, 0, sizeof(code));
	code[type / 8] = (uintptr_t)code_type;
	code[type / 8 + 1] = 16;		/* units */
	code[15] = code[16] = code[17] = (uintptr_t)text;
	code[18] = (uintptr_t)table;
	code[29] = free_threaded ? (uintptr_t)&copies : 0;
	put_int(code, 84, 70);
	text[type / 8] = (uintptr_t)text_type;
	text[type / 8 + 1] = 4;
	text[type / 8 + 3] = (1 | 1 << 3 | 1 << 4) << (free_threaded ? 8 : 2);
	memcpy((char *)text + type + 32, "fake", 4);
	table[type / 8] = (uintptr_t)bytes_type;
	table[type / 8 + 1] = 2;
	memcpy((char *)table + type + 24, "\xd0\xdf", 2);	/* a unit of line +0, eight of +1 */
	copies.count = 2;
	copies.copies[0] = units;
	copies.copies[1] = copy;
	memset(frames, 0, sizeof(frames));
	for (int i = 0; i < 3; i++) {
		bool copied = free_threaded && i < 2;

		frames[i][0] = (uintptr_t)code | (i == 1);
		frames[i][1] = (uintptr_t)frames[i + 1];
		frames[i][7] = (uintptr_t)((copied ? (char *)copy : units) + 2 * i);
		if (copied)
			put_int(frames[i], 72, 1);
	}
	((char *)frames[3])[78] = 3;
	state[9] = (uintptr_t)frames[0];
	state[17] = (uintptr_t)pthread_self();
	memset(&python, 0, sizeof(python));
	python = (struct gm_python){
		.state = GM_PYTHON_READY, .layout = &layout,
		.code_type = (uintptr_t)code_type, .text_type = (uintptr_t)text_type,
		.bytes_type = (uintptr_t)bytes_type, .this_state = this_state,
		.is_finalizing = is_finalizing,
	};
}

/* The line of the frame that a walk found, GM_NONE if it is skipped. */
static uint32_t line_of(uintptr_t frame)
{
	const struct gm_frame *found;
	struct gm_copy journal;
	uint32_t id, line;
	bool skip;

	id = gm_python_intern(&python, frame, &skip);
	if (skip)
		return 0;
	aux_copy(&journal);
	found = gm_copy_frame(&journal, id);
	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(gm_copy_string(&journal, found->name, NULL), "fake");
	ck_assert_str_eq(gm_copy_string(&journal, found->filename, NULL), "fake");
	line = found->line;
	gm_copy_free(&journal);
	return line;
}

static void look(bool free_threaded)
{
	uintptr_t items[8];
	struct gm_python_walk walk = { .items = items, .max_items = 8 };
	uint64_t hash = 0;

	aux_start(64);
	make(free_threaded);
	for (unsigned int i = 0; i < 2 * GM_PYTHON_PROOF; i++) {
		gm_python_walk(&python, 64, &walk);
		ck_assert_uint_eq(walk.flags, 0);
		ck_assert_int_eq(walk.frames, 3);
		ck_assert_int_eq(walk.items_count, 4);
		ck_assert(walk.items[3] & GM_PYTHON_ANCHOR);
		ck_assert(!i || hash == walk.hash || i == GM_PYTHON_PROOF);
		hash = walk.hash;
		ck_assert_uint_eq(line_of(items[0]), 70);
		ck_assert_uint_eq(line_of(items[1]), 71);
		ck_assert_uint_eq(line_of(items[2]), 71);
	}
	ck_assert(gm_python_is_proved(&python));
	ck_assert_int_eq(layout.has_gil_objects, !free_threaded);
}

START_TEST(frames_by_offsets_that_are_said)
{
	look(_i == 1);
}
END_TEST

/* A frame before the first instruction that may be traced is not shown: seen from the copy, too. */
START_TEST(frames_in_the_making)
{
	aux_start(64);
	make(_i == 1);
	put_int(code, _i == 1 ? 216 : 224, 1);
	ck_assert_uint_eq(line_of((uintptr_t)frames[0]), 0);
	ck_assert_uint_eq(line_of((uintptr_t)frames[1]), 71);
	((char *)frames[0])[78] = 1;		/* a generator's is */
	ck_assert_uint_eq(line_of((uintptr_t)frames[0]), 70);
}
END_TEST

/* While nothing is proved, an instruction that is in no copy, or a copy that is not there, is not believed. */
START_TEST(copies_are_doubted)
{
	uintptr_t items[8], nowhere;
	struct gm_python_walk walk = { .items = items, .max_items = 8 };

	nowhere = (uintptr_t)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	make(true);
	switch (_i) {
	case 0:
		put_int(frames[1], 72, 2);
		break;
	case 1:
		put_int(frames[1], 72, (uint32_t)-1);
		break;
	case 2:
		code[29] = nowhere;
		break;
	case 3:
		code[29] = 0;
		break;
	case 4:
		copies.copies[1] = NULL;
		break;
	case 5:
		copies.copies[1] = instructions;
		break;
	}
	gm_python_walk(&python, 64, &walk);
	ck_assert_uint_ne(walk.flags, 0);
	ck_assert_int_lt(walk.frames, 2);
	make(true);
	gm_python_walk(&python, 64, &walk);
	ck_assert_int_eq(walk.frames, 3);
}
END_TEST

/* ---- what tells a stack from another ---- */

/* Frames of two functions in two files, the second one's in the middle, as 3.9 to 3.11 have them. */
static uint64_t two_codes[2][32], two_texts[4][14], two_tables[2][6], three_frames[3][14], cframe[3];

static void put_text(uint64_t *at, const char *characters)
{
	size_t length = strlen(characters);

	memset(at, 0, sizeof(two_texts[0]));
	at[1] = (uintptr_t)text_type;
	at[2] = length;
	at[3] = UINT64_MAX;			/* its hash: not computed yet */
	at[4] = (1 | 1 << 3 | 1 << 4) << 2;
	memcpy(&at[6], characters, length);
}

static void make_two(unsigned int minor)
{
	const struct gm_python_layout *of = &layout;

	make(false);
	ck_assert(gm_python_find_layout(&layout, minor, 0, 0));
	memset(two_codes, 0, sizeof(two_codes));
	memset(three_frames, 0, sizeof(three_frames));
	put_text(two_texts[0], "/where/one.py");
	put_text(two_texts[1], "one");
	put_text(two_texts[2], "/where/the other is.py");
	put_text(two_texts[3], "Other.function");
	for (int i = 0; i < 2; i++) {
		uint64_t *at = two_codes[i];

		two_tables[i][1] = (uintptr_t)bytes_type;
		two_tables[i][2] = 2;
		two_tables[i][4] = 0xdfd0;
		at[1] = (uintptr_t)code_type;
		at[of->code_filename / 8] = (uintptr_t)two_texts[2 * i];
		at[of->code_name / 8] = (uintptr_t)two_texts[2 * i + 1];
		at[of->code_lines / 8] = (uintptr_t)two_tables[i];
		put_int(at, of->code_first_line, 70);
	}
	for (int i = 0; i < 3; i++) {
		three_frames[i][of->frame_code / 8] = (uintptr_t)two_codes[i == 1];
		three_frames[i][of->frame_previous / 8] = i < 2 ? (uintptr_t)three_frames[i + 1] : 0;
		three_frames[i][of->frame_instr / 8] = (uintptr_t)two_codes[i == 1] + 200;
	}
	memset(state, 0, sizeof(state));
	state[of->state_thread / 8] = (uintptr_t)pthread_self();
	state[of->state_frame / 8] = (uintptr_t)three_frames[0];
	if (of->state_cframe)
		state[of->state_cframe / 8] = (uintptr_t)cframe;
	cframe[of->cframe_frame / 8] = (uintptr_t)three_frames[0];
	python.good = GM_PYTHON_PROOF;
}

static uint64_t hash_now(void)
{
	struct gm_python_walk walk = { .items = NULL };

	gm_python_walk(&python, 64, &walk);
	ck_assert_uint_eq(walk.flags, 0);
	ck_assert_int_eq(walk.frames, 3);
	return walk.hash;
}

/* Other code may be where some was, with all that it refers to: each word that tells them apart is in the
 * hash, whichever the files of the frames before it are. */
START_TEST(each_word_tells_stacks_apart)
{
	const struct gm_python_layout *of = &gm_py_layouts[_i - GM_PY_FIRST_MINOR];
	uint64_t *const words[] = {
		&three_frames[1][of->frame_instr / 8], &two_codes[1][of->code_first_line / 8],
		&two_texts[2][2], &two_texts[2][3], &two_texts[2][7], &two_texts[2][8],
		&two_texts[3][2], &two_texts[3][3], &two_texts[3][6], &two_texts[3][7],
		&two_tables[1][4],
	};
	uint64_t *const parts[] = {
		&two_codes[1][of->code_filename / 8], &two_codes[1][of->code_name / 8],
		&two_codes[1][of->code_lines / 8], &three_frames[1][of->frame_code / 8],
	};
	uint64_t elsewhere[32], hash;

	make_two((unsigned int)_i);
	hash = hash_now();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		uint64_t was = *words[i];

		*words[i] ^= 1;
		ck_assert_msg(hash_now() != hash, "word %zu", i);
		*words[i] = was;
		ck_assert_uint_eq(hash_now(), hash);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		uint64_t was = *parts[i];

		memcpy(elsewhere, (const void *)(uintptr_t)was, sizeof(two_tables[0]));
		if (i == 3)
			memcpy(elsewhere, two_codes[1], sizeof(elsewhere));
		else if (i < 2)
			memcpy(elsewhere, (const void *)(uintptr_t)was, sizeof(two_texts[0]));
		*parts[i] = (uintptr_t)elsewhere;
		ck_assert_msg(hash_now() != hash, "part %zu", i);
		*parts[i] = was;
	}
	three_frames[1][of->frame_code / 8] = (uintptr_t)two_codes[0];
	ck_assert(hash_now() != hash);
}
END_TEST

/* Code made anew where other code was may differ from that in what is not looked at, and in its number. */
START_TEST(numbers_tell_code_apart)
{
	uint64_t hashes[3];

	make(_i);
	python.good = GM_PYTHON_PROOF;
	for (uint32_t number = 0; number < 3; number++) {
		put_int(code, layout.code_version, number);
		hashes[number] = hash_now();
		ck_assert_uint_eq(hash_now(), hashes[number]);
		for (uint32_t other = 0; other < number; other++)
			ck_assert(hashes[number] != hashes[other]);
	}
}
END_TEST

/* What ends a walk of a proved layout: odd words, what is no code, a chain without end. */
START_TEST(odd_frames_end_a_hash)
{
	const struct gm_python_layout *of = &gm_py_layouts[_i - GM_PY_FIRST_MINOR];
	struct gm_python_walk walk = { .items = NULL };
	static const uint64_t odd[] = { 0, 8, 4095, UINT64_MAX - 7, UINT64_C(1) << 60, 0x10004 };

	for (size_t i = 0; i < 2 * sizeof(odd) / sizeof(odd[0]); i++) {
		make_two((unsigned int)_i);
		three_frames[1][(i % 2 ? of->frame_code : of->frame_previous) / 8] = odd[i / 2];
		gm_python_walk(&python, 64, &walk);
		ck_assert_int_eq(walk.frames, i % 2 ? 1 : 2);
		ck_assert_uint_eq(walk.flags, i ? GM_UNWIND_TRUNCATED : 0);
	}
	make_two((unsigned int)_i);
	two_codes[1][1] = (uintptr_t)text_type;
	gm_python_walk(&python, 64, &walk);
	ck_assert_uint_eq(walk.flags, GM_UNWIND_TRUNCATED);
	make_two((unsigned int)_i);
	three_frames[1][of->frame_previous / 8] = (uintptr_t)three_frames[0];
	gm_python_walk(&python, 64, &walk);
	ck_assert_uint_eq(walk.flags, GM_UNWIND_MORE);
	ck_assert_int_eq(walk.frames, 64);
}
END_TEST

/* Shims that lead to each other. */
START_TEST(shims_without_end)
{
	struct gm_python_walk walk = { .items = NULL };

	make(false);
	python.good = GM_PYTHON_PROOF;
	frames[3][1] = (uintptr_t)frames[3];
	gm_python_walk(&python, 64, &walk);
	ck_assert_uint_eq(walk.flags, GM_UNWIND_TRUNCATED);
	ck_assert_int_eq(walk.frames, 3);
}
END_TEST

/* ---- what is said is doubted ---- */

START_TEST(layouts_of_versions)
{
	for (unsigned int minor = 8; minor < 13; minor++) {
		ck_assert(gm_python_find_layout(&layout, minor, 0, 0));
		ck_assert(layout.has_gil_objects);
		ck_assert_uint_ge(layout.frame_bytes, layout.frame_instr + 4u);
	}
	ck_assert(!gm_python_find_layout(&layout, 7, 0, 0));
	for (unsigned int minor = 13; minor < 30; minor++)
		ck_assert(!gm_python_find_layout(&layout, minor, 0, 0));
	say(false);
	ck_assert(find(14));
	ck_assert(!find(13));
	ck_assert(!find(15));
	ck_assert_uint_eq(layout.minor, 15);
	/* a later one is tried as the last that is known: these words are not in that order */
	runtime[1] = 0x031000f0;
	ck_assert(!find(16));
	memmove(&runtime[BYTES + 12], &runtime[BYTES], 7 * 8);
	memmove(&runtime[FRAME + 8], &runtime[FRAME], (TYPE + 4 - FRAME) * 8);
	runtime[30] = 136;
	runtime[31] = runtime[32] = runtime[33] = runtime[34] = runtime[35] = 0;
	ck_assert(find(16));
	ck_assert_uint_eq(layout.state_thread, 136);
	ck_assert_uint_eq(layout.code_version, 0);
}
END_TEST

START_TEST(odd_words_are_not_believed)
{
	static const struct { int word; uint64_t value; } odd[] = {
		{ 0, 0 }, { 1, 0x030d00f0 }, { 1, 0 }, { 2, 2 },
		{ STATE, 64 }, { STATE, 1 << 20 }, { STATE, 0 }, { STATE + 4, 0 }, { STATE + 4, 73 },
		{ STATE + 5, sizeof(state) }, { STATE + 5, UINT64_MAX - 7 },
		{ FRAME, 16 }, { FRAME + 1, 90 }, { FRAME + 1, 96 }, { FRAME + 2, 4 },
		{ FRAME + 3, 1 << 16 }, { FRAME + 5, 96 }, { FRAME + 5, UINT64_MAX },
		{ CODE, 100 }, { CODE + 1, 121 }, { CODE + 3, 320 }, { CODE + 4, 1 << 30 },
		{ CODE + 5, 85 }, { CODE + 9, 8 }, { CODE + 9, 243 }, { CODE + 9, 320 },
		{ OBJECT + 1, 12 }, { OBJECT + 1, 16 }, { OBJECT + 1, 56 }, { TYPE + 1, 32 },
		{ TYPE + 1, 1 << 12 }, { BYTES + 1, 28 }, { BYTES + 1, 40 }, { BYTES + 2, 4 }, { BYTES + 2, 80 },
		{ TEXT + 1, 24 }, { TEXT + 1, 40 }, { TEXT + 2, 24 }, { TEXT + 3, 32 },
		{ TEXT + 3, 41 }, { TEXT + 3, 1 << 16 },
	};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		say(false);
		ck_assert(find(14));
		ck_assert_uint_ne(runtime[odd[i].word], odd[i].value);
		runtime[odd[i].word] = odd[i].value;
		ck_assert_msg(!find(14), "word %d = %llu", odd[i].word,
			      (unsigned long long)odd[i].value);
	}
	say(false);
	code_type[3] = (uintptr_t)"coda";
	ck_assert(!find(14));
	code_type[3] = 8;
	ck_assert(!find(14));
	ck_assert(!gm_python_find_layout(&layout, 14, 4096, (uintptr_t)code_type));
}
END_TEST

/* Whatever stands there: what is believed lies within what is looked at. */
START_TEST(any_words)
{
	unsigned int believed = 0;

	srandom(7);
	for (int i = 0; i < 20000; i++) {
		say(i & 1);
		for (long n = random() % 3; n >= 0; n--)
			runtime[3 + random() % (TEXT + 1)] = (uint64_t)(random() % 2000) >> random() % 8;
		if (!find(14))
			continue;
		believed++;
		ck_assert_uint_le(layout.frame_bytes, GM_PY_FRAME_BYTES);
		ck_assert_uint_le(layout.code_bytes, GM_PY_CODE_BYTES);
		ck_assert_uint_lt(layout.frame_owner, layout.frame_bytes);
		ck_assert_uint_le(layout.frame_code + 8u, layout.frame_bytes);
		ck_assert_uint_le(layout.frame_previous + 8u, layout.frame_bytes);
		ck_assert_uint_le(layout.frame_instr + 8u, layout.frame_bytes);
		ck_assert_uint_le(layout.code_filename + 8u, layout.code_bytes);
		ck_assert_uint_le(layout.code_traceable + 4u, layout.code_bytes);
		ck_assert_uint_le(layout.code_version + 4u, layout.code_bytes);
		ck_assert_uint_le(layout.objects.text_state + 4u, layout.text_ascii);
		ck_assert_uint_le(layout.text_ascii, GM_PY_OBJECT_BYTES);
		ck_assert_uint_le(layout.objects.bytes_size + 8u, GM_PY_OBJECT_BYTES);
		ck_assert_uint_le(layout.objects.type + 8u, layout.text_ascii);
	}
	ck_assert_uint_gt(believed, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("python_layout");
	TCase *tests = tcase_create("layouts");

	tcase_add_unchecked_fixture(tests, aux_directory_make, aux_directory_remove);
	tcase_add_loop_test(tests, frames_by_offsets_that_are_said, 0, 2);
	tcase_add_loop_test(tests, frames_in_the_making, 0, 2);
	tcase_add_loop_test(tests, copies_are_doubted, 0, 6);
	tcase_add_loop_test(tests, each_word_tells_stacks_apart, 9, 12);
	tcase_add_loop_test(tests, numbers_tell_code_apart, 0, 2);
	tcase_add_loop_test(tests, odd_frames_end_a_hash, 9, 12);
	tcase_add_test(tests, shims_without_end);
	tcase_add_test(tests, layouts_of_versions);
	tcase_add_test(tests, odd_words_are_not_believed);
	tcase_add_test(tests, any_words);
	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	return run_suite(suite);
}
