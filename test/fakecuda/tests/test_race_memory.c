/*
 * test_race_memory.c - the race detector: blocks handed out again, memory that goes away, launches
 * that overlap their predecessor.
 */
#include "race.h"

/* ---- blocks and their lives ---- */

static void block_used_by(CUstream s)
{
	fakecuda_note_alloc(p, 4096);
	touch(s, p + 128);
	fakecuda_note_free(p);
}

START_TEST(reuse_unordered_is_reported)
{
	block_used_by(a);
	fakecuda_note_alloc(p + 2048, 4096);
	no_races();				/* handed out, not used */
	touch(b, p + 2048);
	races("reused: touch");
}
END_TEST

START_TEST(reuse_lucky_time_is_reported)
{
	block_used_by(a);
	fakecuda_advance(1000000000);
	block_used_by(b);
	races("reused");
}
END_TEST

START_TEST(reuse_in_order_is_not)
{
	block_used_by(a);
	block_used_by(a);
	order(a, b);
	block_used_by(b);
	OK(cuStreamSynchronize(b));
	block_used_by(a);
	no_races();
}
END_TEST

START_TEST(reuse_after_an_older_life)
{
	block_used_by(a);
	order(a, b);
	block_used_by(b);			/* after a's */
	fakecuda_note_alloc(p, 512);
	touch(a, p);				/* after a's own, not after b's */
	races("reused");
}
END_TEST

START_TEST(a_younger_life_does_not_stand_for_an_older)
{
	CUstream c = stream();

	block_used_by(a);
	order(a, b);
	fakecuda_note_alloc(p, 4096);
	touch(b, p + 128);			/* after a's */
	no_races();
	touch(c, p + 128);			/* may go with b's, but not with a's */
	races("reused");
}
END_TEST

START_TEST(blocks_bound_pointers)
{
	fakecuda_note_alloc(p, 4096);
	fakecuda_note_alloc(p + 4096, 4096);
	touch(a, p);
	touch(b, p + 4096);
	fakecuda_note_free(p);
	fakecuda_note_alloc(p, 4096);
	touch(b, p + 5000);			/* the neighbour's */
	no_races();
	touch(b, p + 100);
	races("reused");
}
END_TEST

START_TEST(copy_spans_lives)
{
	fakecuda_note_alloc(p, 4096);
	fakecuda_note_alloc(p + 4096, 4096);
	OK(cuMemsetD8Async(p, 0, 8192, a));
	fakecuda_note_free(p + 4096);
	fakecuda_note_alloc(p + 4096, 512);
	touch(b, p + 4096);
	races("reused");
}
END_TEST

/* ---- memory that goes away ---- */

static CUdeviceptr map(size_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc access = { .location = prop.location,
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr va;

	OK(cuMemCreate(&h, size, &prop, 0));
	OK(cuMemAddressReserve(&va, size, 0, 0, 0));
	OK(cuMemMap(va, size, 0, h, 0));
	OK(cuMemSetAccess(va, size, &access, 1));
	OK(cuMemRelease(h));
	return va;
}

START_TEST(unmap_under_work)
{
	CUdeviceptr va = map(2 << 20);

	fill(a, va, 1, WORDS);
	OK(cuMemUnmap(va, 2 << 20));
	races("gone: fill");
	ck_assert_ptr_nonnull(strstr(fakecuda_race_text(0), "cuMemUnmap"));
}
END_TEST

START_TEST(unmap_after_lucky_time)
{
	CUdeviceptr va = map(2 << 20);

	fill(a, va, 1, WORDS);
	fakecuda_advance(1000000000);
	OK(cuMemUnmap(va, 2 << 20));
	races("gone");
}
END_TEST

START_TEST(unmap_after_sync)
{
	CUdeviceptr va = map(2 << 20);

	fill(a, va, 1, WORDS);
	OK(cuStreamSynchronize(a));
	OK(cuMemUnmap(va, 2 << 20));
	no_races();
}
END_TEST

/* A block in limbo counts too, whoever owned it. */
START_TEST(unmap_under_freed_block)
{
	CUdeviceptr va = map(2 << 20);

	fakecuda_note_alloc(va, 4096);
	touch(a, va);
	fakecuda_note_free(va);
	OK(cuMemUnmap(va, 2 << 20));
	races("gone: touch");
}
END_TEST

START_TEST(unmap_before_a_wait_is_over)
{
	CUdeviceptr va = map(2 << 20), flag;
	uint32_t *word = host_word(&flag);

	OK(cuStreamWaitValue32(a, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	touch(a, va);
	OK(cuMemUnmap(va, 2 << 20));
	races("gone: touch");
	set_word(word, 1);
}
END_TEST

START_TEST(free_waits_for_its_own_context)
{
	fill(a, p, 1, WORDS);
	OK(cuMemFree(p));
	no_races();
}
END_TEST

START_TEST(free_does_not_wait_for_a_peer)
{
	CUcontext peer;
	CUstream c;

	OK(cuDevicePrimaryCtxRetain(&peer, 1));
	OK(cuCtxSetCurrent(peer));
	OK(cuCtxEnablePeerAccess(work_ctx, 0));
	OK(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32Async(p, 1, WORDS, c));
	OK(cuCtxSetCurrent(work_ctx));
	OK(cuMemFree(p));
	races("gone");
}
END_TEST

START_TEST(free_async_unordered)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, 4096, a));
	touch(a, q);
	order(a, b);
	touch(a, q);
	OK(cuMemFreeAsync(q, b));
	races("freed: touch");
}
END_TEST

START_TEST(free_async_ordered)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, 4096, a));
	touch(a, q);
	order(a, b);
	OK(cuMemFreeAsync(q, b));
	no_races();
}
END_TEST

/* The driver reuses its own memory when it knows it free: that is an order too. */
START_TEST(pool_reuse_is_ordered)
{
	CUdeviceptr q, r;

	OK(cuMemAllocAsync(&q, 4096, a));
	fill(a, q, 1, WORDS);
	OK(cuMemFreeAsync(q, a));
	fakecuda_advance(1000000000);
	OK(cuMemAllocAsync(&r, 4096, b));
	ck_assert_uint_eq(q, r);
	fill(b, r, 2, WORDS);
	no_races();
}
END_TEST

/* ---- launches that overlap their predecessor ---- */

static void touch_overlapping(CUstream s, CUdeviceptr q)
{
	void *args[] = { &q };

	launch_overlapping("touch", s, args);
}

START_TEST(overlap_reuse_is_reported)
{
	block_used_by(a);
	fakecuda_note_alloc(p, 4096);
	touch_overlapping(a, p);
	races("reused");
}
END_TEST

START_TEST(overlap_reuse_lucky_time_is_reported)
{
	block_used_by(a);
	fakecuda_advance(1000000000);
	fakecuda_note_alloc(p, 4096);
	touch_overlapping(a, p);
	races("reused");
}
END_TEST

START_TEST(overlap_past_markers)
{
	CUdeviceptr q;

	OK(cuMemAllocAsync(&q, 4096, a));
	touch(a, q);
	OK(cuEventRecord(event(), a));
	OK(cuMemFreeAsync(q, a));
	OK(cuMemAllocAsync(&q, 4096, a));
	touch_overlapping(a, q);
	races("reused");
}
END_TEST

START_TEST(overlap_not_past_work)
{
	block_used_by(a);
	OK(cuMemsetD8Async(p + 8192, 0, 16, a));
	fakecuda_note_alloc(p, 4096);
	touch_overlapping(a, p);
	no_races();
}
END_TEST

START_TEST(overlap_waits_for_events_between)
{
	fill(b, p, 1, WORDS);
	touch(a, p + 8192);
	order(b, a);
	touch_overlapping(a, p);
	no_races();
}
END_TEST

START_TEST(overlap_knows_what_its_predecessor_knew)
{
	fill(b, p, 1, WORDS);
	order(b, a);
	touch(a, p + 8192);
	touch_overlapping(a, p);
	no_races();
}
END_TEST

START_TEST(after_an_overlap_all_is_over)
{
	touch(a, p);
	touch_overlapping(a, p + 8192);
	fill(a, p, 1, WORDS);
	order(a, b);
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		reuse_unordered_is_reported, reuse_lucky_time_is_reported, reuse_in_order_is_not,
		reuse_after_an_older_life, a_younger_life_does_not_stand_for_an_older,
		blocks_bound_pointers, copy_spans_lives, unmap_under_work, unmap_after_lucky_time,
		unmap_after_sync, unmap_under_freed_block, unmap_before_a_wait_is_over,
		free_waits_for_its_own_context, free_does_not_wait_for_a_peer, free_async_unordered,
		free_async_ordered, pool_reuse_is_ordered, overlap_reuse_is_reported,
		overlap_reuse_lucky_time_is_reported, overlap_past_markers, overlap_not_past_work,
		overlap_waits_for_events_between, overlap_knows_what_its_predecessor_knew,
		after_an_overlap_all_is_over,
	};
	Suite *suite = suite_create("race, memory");
	TCase *tc = tcase_create("race,");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
