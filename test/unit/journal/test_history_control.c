/*
 * History control: events switched off and on under load, blocks too small for the trace, actions
 * left out, the newest only. Whatever is left of a trace must add up to the tables.
 */
#define _GNU_SOURCE
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/record/annotations.h"
#include "recorder/journal/state.h"
#include "test/suite.h"
#include "test/unit/journal/aux_journal.h"
#include "test/unit/cache/aux_replay.h"

#define MINIMUM 4096u
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)	/* many times as slow */
#define SWITCHES 30
#else
#define SWITCHES 150
#endif

static void set_minimum(uint64_t bytes)
{
	gm_rec.min_size = bytes;
	gm_recorder_header()->history_min_size = bytes;
}

/* One alloc or free at one of @count slots from @first on. */
static void step(uint32_t *blocks, unsigned int first, unsigned int count, unsigned int *seed)
{
	unsigned int slot = (unsigned int)rand_r(seed) % count;

	if (blocks[slot]) {
		ck_assert_int_eq(gm_record_free(0, blocks[slot], gm_stamp_before(), 0), 0);
		blocks[slot] = 0;
		return;
	}
	blocks[slot] = aux_record((uint8_t)(slot % 3), address_of(first + slot),
				  1 + (uint64_t)rand_r(seed) % (2 * MINIMUM));
}

static size_t count_actions(const struct gm_copy *copy, enum gm_action action)
{
	size_t count = 0;

	for (size_t i = 0; i < copy->event_count; i++)
		count += copy->events[i]->action == action;
	return count;
}

static void copy_of(struct gm_copy *copy)
{
	ck_assert_int_eq(gm_copy_from_process(copy), 0);
	resolve_sound(copy, UINT64_MAX);
	ck_assert_int_eq(replay(copy), 0);
}

START_TEST(small_blocks_leave_no_events)
{
	uint32_t blocks[SLOTS] = { 0 };
	unsigned int seed = 7, small = 0;
	struct gm_copy copy;

	aux_start(100000);
	set_minimum(MINIMUM);
	for (int round = 0; round < 20; round++) {
		uint64_t unwritten = 0;

		for (int i = 0; i < 400; i++)
			step(blocks, 0, SLOTS, &seed);
		copy_of(&copy);
		for (size_t i = 0; i < copy.event_count; i++)
			ck_assert_uint_ge(copy.events[i]->size, MINIMUM);
		ck_assert_uint_gt(copy.event_count, 0);
		small = 0;
		for (size_t i = 0; i < copy.segment_count; i++) {
			const struct gm_segment *s = gm_copy_segment(&copy, copy.segments[i]);
			const struct gm_block *block = gm_copy_block(&copy, s->first_block);

			ck_assert_int_eq(block->flags == GM_BLOCK_UNTRACED,
					 block->requested < MINIMUM);
			small += block->flags;
		}
		for (unsigned int d = 0; d < GM_DOMAIN_POOLS; d++)
			unwritten += gm_copy_domain(&copy, d)->counts.small;
		/* 2 events an allocation, 3 a free. */
		ck_assert_uint_eq((unwritten - 2 * small) % 5, 0);
		gm_copy_free(&copy);
	}
	ck_assert_uint_gt(small, 0);
	aux_sound();
}
END_TEST

/* A block that grows past the minimum, or falls below it, is in the trace only as what counts. */
START_TEST(changes_across_the_minimum)
{
	static const uint64_t sizes[] = { 100, 8192, 16384, 200, 300, 8192 };
	struct gm_copy copy;
	uint64_t live = 0;
	uint32_t block;

	aux_start(10000);
	set_minimum(MINIMUM);
	block = aux_record(0, address_of(0), 50);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_int_eq(gm_record_change(0, block, address_of(0), sizes[i], 0, GM_NONE), 0);
		copy_of(&copy);
		gm_copy_free(&copy);
	}
	copy_of(&copy);
	for (size_t i = 0; i < copy.event_count; i++) {
		const struct gm_event *event = copy.events[i];

		if (event->action == GM_ACTION_ALLOC) {
			ck_assert_uint_eq(live, 0);
			live = event->size;
		} else if (event->action == GM_ACTION_FREE_COMPLETED) {
			ck_assert_uint_eq(live, event->size);
			live = 0;
		}
	}
	ck_assert_uint_eq(live, 8192);
	ck_assert_uint_eq(count_actions(&copy, GM_ACTION_ALLOC), 3);
	gm_copy_free(&copy);
}
END_TEST

START_TEST(actions_left_out)
{
	uint32_t blocks[SLOTS] = { 0 };
	unsigned int seed = 9;
	struct gm_copy copy;
	uint64_t unwritten = 0;

	aux_start(100000);
	gm_recorder_header()->history_left_out = 1u << GM_ACTION_SEGMENT_ALLOC |
						 1u << GM_ACTION_SEGMENT_FREE;
	ck_assert_int_eq(gm_record_history(&(struct gm_history){ 0 }), 0);
	for (int i = 0; i < 2000; i++)
		step(blocks, 0, SLOTS, &seed);
	copy_of(&copy);
	ck_assert_uint_eq(count_actions(&copy, GM_ACTION_SEGMENT_ALLOC), 0);
	ck_assert_uint_eq(count_actions(&copy, GM_ACTION_SEGMENT_FREE), 0);
	for (unsigned int d = 0; d < GM_DOMAIN_POOLS; d++)
		unwritten += gm_copy_domain(&copy, d)->counts.left_out;
	ck_assert_uint_eq(unwritten, 2000);
	ck_assert_uint_eq(count_actions(&copy, GM_ACTION_ALLOC) +
			  count_actions(&copy, GM_ACTION_FREE_COMPLETED), 2000);
	gm_copy_free(&copy);
}
END_TEST

static _Atomic(bool) over;

static void *work(void *arg)
{
	unsigned int first = (unsigned int)(uintptr_t)arg * 64, seed = first + 1;
	uint32_t blocks[64] = { 0 };

	while (!gm_get(&over))
		step(blocks, first, 64, &seed);
	return NULL;
}

/* However the switches fall among the operations of four threads: no half of one, no gap. */
START_TEST(switched_under_load)
{
	struct gm_history history = { 0 };
	unsigned int seed = 20251120, with_events = 0;
	pthread_t threads[4];
	struct gm_copy copy;

	aux_start(63 * 200);
	if (_i)
		set_minimum(MINIMUM);
	for (uintptr_t t = 0; t < 4; t++)
		ck_assert_int_eq(pthread_create(&threads[t], NULL, work, (void *)t), 0);
	for (unsigned long i = 0; i < aux_effort(SWITCHES); i++) {
		history.enabled = (uint32_t)rand_r(&seed) % GM_HISTORY_COUNT;
		history.newest = rand_r(&seed) % 2 ? 1 + (uint64_t)rand_r(&seed) % 5000 : 0;
		if (history.enabled && rand_r(&seed) % 2)
			history.enabled = GM_HISTORY_ALL;
		ck_assert_int_eq(gm_record_history(&history), 0);
		for (int k = 0; k < 3; k++) {
			copy_of(&copy);
			if (history.enabled != GM_HISTORY_ALL)
				ck_assert_uint_eq(copy.event_count, 0);
			if (history.newest)
				ck_assert_uint_le(copy.event_count, history.newest);
			with_events += copy.event_count > 0;
			gm_copy_free(&copy);
		}
	}
	gm_set(&over, true);
	for (int t = 0; t < 4; t++)
		pthread_join(threads[t], NULL);
	ck_assert_uint_gt(with_events, 10);
	aux_sound();
}
END_TEST

static _Atomic(bool) held;

static void *hold_a_domain(void *arg)
{
	gm_lock(&gm_rec.domain[3].lock);
	gm_set(&held, true);
	while (!gm_get(&over))
		sched_yield();
	gm_unlock(&gm_rec.domain[3].lock);
	return arg;
}

START_TEST(the_newest_alone_are_kept)
{
	pthread_t thread;
	uint32_t blocks[SLOTS] = { 0 };
	unsigned int seed = 3;
	struct gm_copy copy;

	aux_start(63 * 4000);
	ck_assert_int_eq(gm_record_history(&(struct gm_history){ .newest = 100 }), 0);
	for (int i = 0; i < 60000; i++)
		step(blocks, 0, SLOTS, &seed);
	copy_of(&copy);
	ck_assert_uint_le(copy.event_count, 100);
	ck_assert_uint_gt(copy.event_count, 90);
	ck_assert_uint_gt(copy.dropped_total, 100000);
	ck_assert_uint_le(gm_rec.pool.fresh, 256);	/* nor is there memory for more */
	gm_copy_free(&copy);
	ck_assert_int_eq(gm_record_history(&(struct gm_history){ 0 }), 0);
	for (int i = 0; i < 20000; i++)
		step(blocks, 0, SLOTS, &seed);
	copy_of(&copy);
	ck_assert_uint_gt(copy.event_count, 20000);
	gm_copy_free(&copy);
	ck_assert_int_eq(gm_record_history(&(struct gm_history){ .enabled = GM_HISTORY_COUNT }),
			 -EINVAL);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_a_domain, NULL), 0);
	while (!gm_get(&held))
		sched_yield();
	ck_assert_int_eq(gm_record_history(&(struct gm_history){ .newest = 7 }), -ETIMEDOUT);
	ck_assert_uint_eq(gm_recorder_header()->history_newest, 0);
	gm_set(&over, true);
	pthread_join(thread, NULL);
	aux_sound();
}
END_TEST

/* The same text has one id, also by way of a journal that is not there any more. */
START_TEST(texts_are_interned)
{
	char text[64];
	uint32_t ids[3000];

	aux_start(1000);
	for (int i = 0; i < 3000; i++) {
		snprintf(text, sizeof(text), "text %d", i);
		ids[i] = gm_intern_string(text, (uint32_t)strlen(text));
		ck_assert_uint_ne(ids[i], GM_NONE);
	}
	for (int i = 2999; i >= 0; i--) {
		snprintf(text, sizeof(text), "text %d", i);
		ck_assert_uint_eq(gm_intern_string(text, (uint32_t)strlen(text)), ids[i]);
	}
	aux_forget();
	ck_assert_uint_eq(gm_intern_string("text 1", 6), GM_NONE);
	aux_start(1000);
	ck_assert_uint_eq(gm_intern_string("text 7", 6), gm_intern_string("text 7", 6));
	ck_assert_uint_eq(gm_intern_string("", 0), gm_intern_string("", 0));
}
END_TEST

/* A range is recorded with its end or not at all, in a share of the history. */
START_TEST(ranges_are_whole)
{
	const struct gm_annotation what = { .name = GM_NONE };
	uint64_t ranges[2000];
	struct gm_copy copy;
	size_t starts, marks = 0;

	aux_start(8000);
	for (int i = 0; i < 2000; i++) {
		ranges[i] = gm_annotate_start(&what);
		ck_assert_uint_ne(ranges[i], 0);
	}
	for (int i = 0; i < 2000; i++)
		gm_annotate_end(ranges[i], GM_NONE);
	gm_annotate_end(0, GM_NONE);
	gm_annotate_end(UINT64_MAX, GM_NONE);
	while (gm_annotate_mark(&what) == 0)	/* what was left of the share */
		ck_assert_uint_lt(++marks, 100);
	copy_of(&copy);
	starts = 0;
	for (size_t i = 0; i < copy.event_count; i++)
		starts += copy.events[i]->flags == GM_STAGE_START;
	ck_assert_uint_eq(copy.event_count, 2 * starts + marks);
	ck_assert_uint_ge(starts, 450);
	ck_assert_uint_le(starts, 1000);
	ck_assert_uint_eq(gm_recorder_header()->annotations_lost, 2000 - starts + 1);
	gm_copy_free(&copy);
	aux_sound();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("history control");
	TCase *tcase = tcase_create("history control");

	tcase_add_unchecked_fixture(tcase, aux_directory_make, aux_directory_remove);
	tcase_set_timeout(tcase, 100);
	tcase_add_single_test(tcase, small_blocks_leave_no_events);
	tcase_add_single_test(tcase, changes_across_the_minimum);
	tcase_add_single_test(tcase, actions_left_out);
	tcase_add_loop_test(tcase, switched_under_load, 0, 2);
	tcase_add_test(tcase, the_newest_alone_are_kept);
	tcase_add_single_test(tcase, texts_are_interned);
	tcase_add_single_test(tcase, ranges_are_whole);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
