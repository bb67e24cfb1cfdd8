/*
 * test_python_known.c - walks of Python's frames by a thread that knows their code objects
 * (recorder/python/python_walk.c): whatever changes in these, it gives what a walk gives that knows nothing.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/python/python.h"

enum { TEXTS = 4, CODES = 3, FRAMES = 6 };

static uint64_t own_state[64], own_cframe[4], own_frames[FRAMES][16], own_codes[CODES][32];
static uint64_t own_texts[TEXTS][24], own_lines[2][8], own_type[4];

static void *own_state_now(void)
{
	return own_state;
}

static int never(void)
{
	return 0;
}

static void put_word(uint64_t *object, unsigned int offset, uint64_t word)
{
	memcpy((uint8_t *)object + offset, &word, sizeof(word));
}

/* One thing of an object's is another than before: what an object made in its place might have. */
static void change_one(const struct gm_python_layout *layout, uint64_t random)
{
	uint64_t *one = own_codes[random % CODES], *text = own_texts[random / 8 % TEXTS];
	uint64_t value = random / 1024;
	int32_t line = (int32_t)(value % 3);

	switch (random / 64 % 8) {
	case 0:
		put_word(one, layout->code_filename, (uintptr_t)own_texts[value % TEXTS]);
		break;
	case 1:
		put_word(one, layout->code_name, (uintptr_t)own_texts[value % TEXTS]);
		break;
	case 2:
		put_word(one, layout->code_lines, (uintptr_t)own_lines[value % 2]);
		break;
	case 3:
		memcpy((uint8_t *)one + layout->code_first_line, &line, sizeof(line));
		break;
	case 4:
		own_lines[value % 2][4] = value / 2 % 2;
		break;
	case 5:				/* its hash, or that nobody asked for it */
		text[3] = value % 3 ? UINT64_MAX : value / 3 % 2;
		break;
	case 6:				/* its length, and where that has its characters */
		text[2] = 3 + value % 3 * 8;
		text[4] = 1 << 2 | 1 << 5 | (value / 3 % 2) << 6;
		break;
	default:			/* a character */
		((uint8_t *)text)[layout->text_ascii + value % 64] = (uint8_t)(value / 64 % 2);
	}
}

static void start_own(const struct gm_python_layout *layout)
{
	memset(own_cframe, 0, sizeof(own_cframe));
	put_word(own_state, layout->state_thread, (uint64_t)pthread_self());
	if (layout->state_cframe)
		put_word(own_state, layout->state_cframe, (uintptr_t)own_cframe);
	if (layout->state_frame)
		put_word(own_state, layout->state_frame, (uintptr_t)own_frames[0]);
	else
		put_word(own_cframe, layout->cframe_frame, (uintptr_t)own_frames[0]);
	for (int i = 0; i < FRAMES; i++) {
		memset(own_frames[i], 0, sizeof(own_frames[i]));
		put_word(own_frames[i], layout->frame_instr, (uint64_t)i);
		put_word(own_frames[i], layout->frame_code, (uintptr_t)own_codes[i % CODES]);
		put_word(own_frames[i], layout->frame_previous,
			 i + 1 < FRAMES ? (uintptr_t)own_frames[i + 1] : 0);
	}
	for (int i = 0; i < CODES; i++) {
		own_codes[i][1] = (uintptr_t)own_type;
		put_word(own_codes[i], layout->code_filename, (uintptr_t)own_texts[0]);
		put_word(own_codes[i], layout->code_name, (uintptr_t)own_texts[1]);
		put_word(own_codes[i], layout->code_lines, (uintptr_t)own_lines[0]);
	}
}

/* Up to 3.11: with what a thread knows of code, a walk gives what it gives without. */
START_TEST(what_is_known_of_code)
{
	static const int layouts[] = { 0, 2, 3 };
	static _Alignas(64) uint8_t room[GM_PYTHON_KNOWN_BYTES];
	const struct gm_python_layout *layout = &gm_python_layouts[layouts[_i]];
	struct gm_python python = {
		.layout = layout, .good = GM_PYTHON_PROOF, .code_type = (uintptr_t)own_type,
		.this_state = own_state_now, .is_finalizing = never,
	};
	uint64_t random = 4711, last = 0;
	int changes = 0;

	start_own(layout);
	for (int i = 0; i < 200000; i++) {
		struct gm_python_walk with = { .known = (void *)room }, without = { .items = NULL };

		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		if (i > 10)
			change_one(layout, random >> 20);
		gm_python_walk(&python, 64, &with);
		gm_python_walk(&python, 64, &without);
		ck_assert_int_eq(with.frames, FRAMES);
		ck_assert_uint_eq(with.hash, without.hash);
		changes += with.hash != last;
		last = with.hash;
	}
	ck_assert_int_gt(changes, 20000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("python_known");
	TCase *tcase = tcase_create("known");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(tcase, what_is_known_of_code, 0, 3);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
