/*
 * test_race.c - the race detector: each order that it must know, and each conflict that it must
 * report however the clock ran.
 */
#include "work.h"

#include <sys/wait.h>

static CUstream a, b;
static CUdeviceptr p;

static void setup(void)
{
	work_setup();
	a = stream();
	b = stream();
	p = alloc(1 << 20);
}

static void dump(char *text, size_t size)
{
	FILE *f = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(f);
	fakecuda_dump(fileno(f));
	rewind(f);
	n = fread(text, 1, size - 1, f);
	text[n] = '\0';
	fclose(f);
}

static void no_races(void)
{
	ck_assert_msg(!fakecuda_races(), "%s", fakecuda_race_text(0));
}

static void races(const char *rule)
{
	ck_assert_uint_ge(fakecuda_races(), 1);
	ck_assert_msg(strstr(fakecuda_race_text(0), rule) != NULL, "%s", fakecuda_race_text(0));
}

/* ---- two operations ---- */

START_TEST(unordered_is_reported)
{
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
	races("unordered: fill");
	ck_assert_uint_eq(fakecuda_races(), 1);
	ck_assert_ptr_null(fakecuda_race_text(1));
	fakecuda_race_clear();
	ck_assert_uint_eq(fakecuda_races(), 0);
}
END_TEST

START_TEST(lucky_time_changes_nothing)
{
	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	ck_assert_uint_eq(fakecuda_pending(-1), 0);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(reads_do_not_conflict)
{
	CUdeviceptr q = alloc(1 << 20);

	copy(a, q, p, WORDS);
	copy(b, q + BYTES, p, WORDS);
	no_races();
	fill(b, p + BYTES - 4, 1, 1);		/* the last word that stream a still reads */
	races("unordered");
}
END_TEST

START_TEST(neighbours_do_not_conflict)
{
	fill(a, p, 1, WORDS);
	fill(b, p + BYTES, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(copies_and_fills_count)
{
	CUdeviceptr q = alloc(1 << 20);

	OK(cuMemcpyDtoDAsync(q, p, BYTES, a));
	OK(cuMemsetD32Async(p + 8, 0, 1, b));
	races("unordered");
}
END_TEST

START_TEST(a_pair_is_reported_once)
{
	CUdeviceptr q = alloc(1 << 20);

	copy(a, q, p, WORDS);
	copy(b, p, q, WORDS);			/* two conflicts, one mistake */
	races("unordered");
	ck_assert_uint_eq(fakecuda_races(), 1);
}
END_TEST

/* What is forgotten must be known by something that stands for all of it. */
START_TEST(a_part_does_not_stand_for_the_whole)
{
	fill(a, p, 1, 2 * WORDS);
	fill(a, p, 2, 1);
	fill(b, p + BYTES, 3, 1);
	races("unordered");
}
END_TEST

START_TEST(same_stream_orders)
{
	fill(a, p, 1, WORDS);
	fill(a, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(event_orders)
{
	fill(a, p, 1, WORDS);
	order(a, b);
	fill(b, p, 2, WORDS);
	no_races();
	fill(a, p, 3, WORDS);			/* not after stream b's */
	races("unordered");
}
END_TEST

START_TEST(event_recorded_before_does_not)
{
	CUevent e = event();

	OK(cuEventRecord(e, a));
	fill(a, p, 1, WORDS);
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(event_order_is_transitive)
{
	CUstream c = stream();

	fill(a, p, 1, WORDS);
	order(a, b);
	order(b, c);
	fill(c, p, 2, WORDS);
	no_races();
}
END_TEST

/* The wait stands for the record at the time of the wait, and only for the waiting stream. */
START_TEST(event_recorded_again_later)
{
	CUevent e = event();

	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(host_syncs_order)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	fill(b, p, 2, WORDS);
	OK(cuCtxSynchronize());
	fill(a, p, 3, WORDS);
	OK(cuEventRecord(e, a));
	OK(cuEventSynchronize(e));
	fill(b, p, 4, WORDS);
	no_races();
}
END_TEST

START_TEST(other_streams_sync_does_not)
{
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(b));
	fakecuda_advance(1000000000);
	OK(cuStreamSynchronize(b));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(successful_queries_order)
{
	CUevent e = event();

	fakecuda_set_step_ns(1);
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	FAILS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	fakecuda_advance(1000000000);
	OK(cuEventQuery(e));
	fill(b, p, 2, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamQuery(b));
	fill(a, p, 3, WORDS);
	no_races();
}
END_TEST

START_TEST(failed_query_does_not)
{
	CUevent e = event();

	fakecuda_set_step_ns(0);
	fill(a, p, 1, WORDS);
	OK(cuEventRecord(e, a));
	FAILS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	fakecuda_advance(1000000000);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(ctx_event_orders_who_waits)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuCtxRecordEvent(work_ctx, e));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(ctx_event_orders_nobody_else)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	OK(cuCtxRecordEvent(work_ctx, e));
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(synchronous_copy_orders)
{
	uint32_t host[WORDS];

	fill(NULL, p, 1, WORDS);
	OK(cuMemcpyDtoH(host, p, sizeof(host)));
	fill(a, p, 2, WORDS);
	no_races();
}
END_TEST

/* ---- the legacy stream ---- */

START_TEST(legacy_orders_blocking_streams)
{
	CUstream c = blocking_stream(), d = blocking_stream();

	fill(c, p, 1, WORDS);
	fill(NULL, p, 2, WORDS);
	fill(d, p, 3, WORDS);
	no_races();
}
END_TEST

START_TEST(legacy_leaves_non_blocking_streams)
{
	fill(a, p, 1, WORDS);
	fill(NULL, p, 2, WORDS);
	races("unordered");
}
END_TEST

START_TEST(legacy_orders_destroyed_streams)
{
	CUstream c = blocking_stream();

	fill(c, p, 1, WORDS);
	fakecuda_advance(1000000000);		/* complete, which the host has not seen */
	OK(cuStreamDestroy(c));
	fill(NULL, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(ctx_event_covers_destroyed_streams)
{
	CUevent e = event();

	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamDestroy(a));
	OK(cuCtxRecordEvent(work_ctx, e));
	OK(cuStreamWaitEvent(b, e, 0));
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(reused_stream_slot_is_another_stream)
{
	CUstream c = stream(), d;

	fill(c, p, 1, WORDS);
	fakecuda_advance(1000000000);
	OK(cuStreamDestroy(c));
	d = stream();
	ck_assert_ptr_eq(c, d);
	fill(d, p, 2, WORDS);
	races("unordered");
}
END_TEST

/* Whatever lanes streams come to share, later epochs stay later. */
START_TEST(many_streams_one_after_another)
{
	static char text[65536];
	unsigned int lanes;

	for (int i = 0; i < 200; i++) {
		CUstream c = stream();

		fill(c, p, 1, WORDS);
		if (i % 2)
			OK(cuStreamSynchronize(c));
		else
			order(c, a);
		fill(a, p, 2, WORDS);
		OK(cuStreamSynchronize(a));
		OK(cuStreamDestroy(c));
	}
	no_races();
	dump(text, sizeof(text));		/* and are not more for all those streams */
	ck_assert_ptr_nonnull(strstr(text, ", lanes "));
	ck_assert_int_eq(sscanf(strstr(text, ", lanes "), ", lanes %u", &lanes), 1);
	ck_assert_uint_lt(lanes, 10);
	fill(a, p, 3, WORDS);
	fill(b, p, 4, WORDS);
	races("unordered");
}
END_TEST

/* ---- kernels that nobody knows ---- */

START_TEST(unknown_kernels_may_share)
{
	touch(a, p);
	touch(b, p);
	touch(b, p + 4096);
	no_races();
	OK(cuMemsetD8Async(p + 8192, 0, 4096, a));	/* no pointer names any of that */
	no_races();
	OK(cuMemsetD8Async(p + 4096, 0, 16, a));
	races("unordered: touch");
}
END_TEST

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

/* ---- words in memory ---- */

START_TEST(word_orders_streams)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);			/* submitted first, happens second */
	fill(a, p, 1, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 2);
	no_races();
}
END_TEST

START_TEST(word_written_too_early)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

START_TEST(word_written_by_a_copy)
{
	CUdeviceptr flag = device_word();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	OK(cuMemsetD32Async(flag, 1, 1, a));
	OK(cuCtxSynchronize());
	no_races();
}
END_TEST

START_TEST(word_written_by_the_host)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	set_word(word, 1);			/* by one who knows a's work complete */
	OK(cuStreamSynchronize(b));
	no_races();
}
END_TEST

START_TEST(word_written_by_an_ignorant_host)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	fakecuda_advance(1000000000);
	set_word(word, 1);
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* What the host has seen complete is not forgotten while somebody waits who has not. */
START_TEST(word_awaited_since_before_the_sync)
{
	CUdeviceptr flag = device_word(), q = alloc(4096);
	CUstream c = stream();

	OK(cuStreamWaitValue32(b, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	fill(b, p, 2, 1);
	spin(c, q);				/* submitted by a host that knows nothing yet */
	OK(cuStreamWriteValue32(c, flag, 1, 0));
	for (unsigned int i = 0; i < 300; i++)
		fill(a, p + 64 * i, 1, 1);
	OK(cuStreamSynchronize(a));
	no_races();
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* A kernel that waits touches its data after the word changed, but occupies it from the start. */
START_TEST(waiting_kernel_reads_after)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	launch("wait_flag_data", b, args);
	fill(a, p, 1, WORDS);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	no_races();
}
END_TEST

START_TEST(waiting_kernel_reads_unordered)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	launch("wait_flag_data", b, args);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

START_TEST(waiting_kernel_occupies_its_block)
{
	CUdeviceptr flag = device_word();
	uint32_t one = 1;
	void *args[] = { &flag, &one, &p };

	fakecuda_note_alloc(p, 4096);
	launch("wait_flag_data", b, args);
	fakecuda_note_free(p);
	fakecuda_note_alloc(p, 4096);
	touch(a, p);
	OK(cuStreamWriteValue32(a, flag, 1, 0));
	OK(cuCtxSynchronize());
	races("reused");
}
END_TEST

START_TEST(semaphores_order)
{
	CUexternalSemaphore sem = semaphore();

	await_semaphore(b, sem, 5);
	fill(b, p, 2, WORDS);
	fill(a, p, 1, WORDS);
	signal_semaphore(a, sem, 5);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(p), 2);
	no_races();
}
END_TEST

START_TEST(semaphore_signalled_too_early)
{
	CUexternalSemaphore sem = semaphore();

	await_semaphore(b, sem, 5);
	fill(b, p, 2, WORDS);
	signal_semaphore(a, sem, 5);
	fill(a, p, 1, WORDS);
	OK(cuCtxSynchronize());
	races("unordered");
}
END_TEST

/* ---- the host ---- */

START_TEST(host_access)
{
	CUdeviceptr q;
	uint32_t *host = host_word(&q);

	OK(cuMemcpyDtoHAsync(host, p, 64, a));
	OK(cuStreamSynchronize(a));
	fakecuda_note_access((uintptr_t)host, 64, 0);
	no_races();
	OK(cuMemcpyDtoHAsync(host, p, 64, a));
	fakecuda_advance(1000000000);
	fakecuda_note_access((uintptr_t)host + 32, 4, 0);
	races("unordered: cuMemcpyDtoHAsync");
}
END_TEST

START_TEST(host_access_before_submission)
{
	CUdeviceptr q;
	uint32_t *host = host_word(&q);

	fakecuda_note_access((uintptr_t)host, 64, 1);
	OK(cuMemcpyHtoDAsync(p, host, 64, a));
	no_races();
}
END_TEST

static uint32_t *seen;

static void read_it(void *key)
{
	fakecuda_note_access((uintptr_t)seen, 4, 0);
	if (key)
		fakecuda_note_release(key);
}

START_TEST(host_function_orders)
{
	CUdeviceptr q;

	seen = host_word(&q);
	OK(cuMemcpyDtoHAsync(seen, p, 64, a));
	OK(cuLaunchHostFunc(a, read_it, NULL));
	OK(cuMemcpyHtoDAsync(p, seen, 64, a));
	OK(cuStreamSynchronize(a));
	no_races();
}
END_TEST

START_TEST(host_function_in_another_stream)
{
	CUdeviceptr q;

	seen = host_word(&q);
	OK(cuMemcpyDtoHAsync(seen, p, 64, a));
	OK(cuLaunchHostFunc(b, read_it, NULL));
	OK(cuStreamSynchronize(b));
	races("unordered");
}
END_TEST

/* What a host function knows is known to the host only if they say so. */
START_TEST(host_function_hands_over)
{
	CUdeviceptr q;
	int key;

	seen = host_word(&q);
	fill(a, p, 1, WORDS);
	OK(cuLaunchHostFunc(a, read_it, &key));
	fakecuda_advance(1000000000);
	fakecuda_note_acquire(&key);
	fill(b, p, 2, WORDS);
	no_races();
}
END_TEST

START_TEST(host_function_hands_nothing_over)
{
	CUdeviceptr q;

	seen = host_word(&q);
	fill(a, p, 1, WORDS);
	OK(cuLaunchHostFunc(a, read_it, NULL));
	fakecuda_advance(1000000000);
	fill(b, p, 2, WORDS);
	races("unordered");
}
END_TEST

/* ---- host threads ---- */

static void *fill_on_b(void *key)
{
	OK(cuCtxSetCurrent(work_ctx));
	if (key)
		fakecuda_note_acquire(key);
	fill(b, p, 2, WORDS);
	return NULL;
}

static void fill_and_sync(void *key)
{
	fill(a, p, 1, WORDS);
	OK(cuStreamSynchronize(a));
	if (key)
		fakecuda_note_release(key);
	run_thread(fill_on_b, key);
}

START_TEST(threads_share_what_they_know)
{
	fill_and_sync(NULL);
	no_races();
}
END_TEST

START_TEST(separate_threads_do_not)
{
	fakecuda_race_threads(1);
	fill_and_sync(NULL);
	races("unordered");
}
END_TEST

START_TEST(separate_threads_tell_each_other)
{
	int key;

	fakecuda_race_threads(1);
	fill_and_sync(&key);
	no_races();
}
END_TEST

/* Waits until somebody is inside @call. */
static void await_waiter(const char *call)
{
	static char text[65536];

	do {
		sleep_ms(1);
		dump(text, sizeof(text));
	} while (!strstr(text, call));
}

static void *submit_meanwhile(void *word)
{
	OK(cuCtxSetCurrent(work_ctx));
	await_waiter("cuCtxSynchronize");
	fill(b, p, 1, WORDS);
	set_word(word, 1);
	return NULL;
}

/* A synchronise covers what was submitted before it was called. */
START_TEST(sync_does_not_cover_later_work)
{
	CUdeviceptr flag;
	uint32_t *word = host_word(&flag);
	pthread_t t;

	fakecuda_set_hang_ms(20000, CUDA_ERROR_LAUNCH_TIMEOUT);
	wait_flag(a, flag, 1);
	ck_assert_int_eq(pthread_create(&t, NULL, submit_meanwhile, word), 0);
	OK(cuCtxSynchronize());
	pthread_join(t, NULL);
	fill(stream(), p, 2, WORDS);
	races("unordered");
}
END_TEST

/* ---- graphs ---- */

static CUgraphNode fill_node(CUgraph g, CUgraphNode *after, uint32_t value)
{
	uint32_t n = WORDS;
	void *args[] = { &p, &value, &n };
	CUDA_KERNEL_NODE_PARAMS params = { .func = kernel("fill"), .gridDimX = 1, .gridDimY = 1,
					   .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
					   .blockDimZ = 1, .kernelParams = args };
	CUgraphNode node;

	OK(cuGraphAddKernelNode(&node, g, after, after ? 1 : 0, &params));
	return node;
}

static CUgraphExec executable(bool ordered)
{
	CUgraphExec x;
	CUgraphNode first;
	CUgraph g;

	OK(cuGraphCreate(&g, 0));
	first = fill_node(g, NULL, 1);
	fill_node(g, ordered ? &first : NULL, 2);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphDestroy(g));
	return x;
}

START_TEST(graph_branches)
{
	OK(cuGraphLaunch(executable(false), a));
	races("unordered");
}
END_TEST

/* One branch does not know the other by sharing anything with it. */
START_TEST(graph_branches_know_nothing_of_each_other)
{
	CUgraphNode node;
	CUdeviceptr q = p;
	CUgraph g;
	CUgraphExec x;

	OK(cuGraphCreate(&g, 0));
	fill_node(g, NULL, 1);
	p += 8192;
	node = fill_node(g, NULL, 2);
	p = q;
	fill_node(g, &node, 3);			/* after the second, not after the first */
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, a));
	races("unordered");
}
END_TEST

START_TEST(graph_edges_order)
{
	CUgraphExec x = executable(true);

	OK(cuGraphLaunch(x, a));
	fill(a, p, 3, WORDS);
	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(x, b));		/* comes after its own earlier launch */
	no_races();
}
END_TEST

START_TEST(graphs_in_two_streams)
{
	CUgraphExec x = executable(true), y = executable(true);

	OK(cuGraphLaunch(x, a));
	OK(cuGraphLaunch(y, b));
	races("unordered");
}
END_TEST

/* ---- switches, and what leaves the process ---- */

START_TEST(off_and_on)
{
	fakecuda_race_enable(0);
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
	no_races();
	fakecuda_race_enable(1);
	fill(a, p, 3, WORDS);
	fill(b, p, 4, WORDS);
	races("unordered");
}
END_TEST

/* Runs in a child, before anything has called the library. Returns its exit status. */
static int in_child(const char *setting, void (*body)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("FAKECUDA_RACE", setting, 1);
		freopen("/dev/null", "w", stderr);
		setup();
		body();
		exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void racy(void)
{
	fill(a, p, 1, WORDS);
	fill(b, p, 2, WORDS);
}

static void sound(void)
{
	fill(a, p, 1, WORDS);
	fill(a, p, 2, WORDS);
}

START_TEST(environment_exit)
{
	ck_assert_int_eq(in_child("exit", racy), 66);
	ck_assert_int_eq(in_child("exit", sound), 0);
	ck_assert_int_eq(in_child("", racy), 0);
	ck_assert_int_eq(in_child("exit,off", racy), 0);
}
END_TEST

START_TEST(environment_file)
{
	char path[] = "/tmp/test_race.XXXXXX", setting[64], line[1024];
	int fd = mkstemp(path);
	FILE *f;

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(setting, sizeof(setting), "file=%s", path);
	ck_assert_int_eq(in_child(setting, racy), 0);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_ptr_nonnull(strstr(line, "race: unordered: fill"));
	ck_assert_ptr_null(fgets(line, sizeof(line), f));
	fclose(f);
	unlink(path);
}
END_TEST

/* ---- against an exact oracle ---- */

#define STEPS 120
#define STREAMS 4
#define EVENTS 4
#define BLOCKS 3

/* What is known to have happened: a bit per step of the program. */
struct known {
	uint64_t bits[(STEPS + 63) / 64];
};

static void know(struct known *k, int step)
{
	k->bits[step / 64] |= 1ULL << (step % 64);
}

static bool knows(const struct known *k, int step)
{
	return k->bits[step / 64] >> (step % 64) & 1;
}

static void learn(struct known *k, const struct known *from)
{
	for (size_t i = 0; i < sizeof(k->bits) / sizeof(k->bits[0]); i++)
		k->bits[i] |= from->bits[i];
}

struct model {
	CUstream streams[STREAMS];	/* 0: legacy; 1: blocking; others not */
	CUevent events[EVENTS];
	struct known host, tail[STREAMS], recorded[EVENTS], gone;
	int writer[STEPS];		/* block that step wrote, or -1 */
	unsigned int seed, n_racy, n_sound;
};

static unsigned int pick(struct model *m, unsigned int n)
{
	m->seed = m->seed * 1103515245 + 12345;
	return (m->seed >> 16) % n;
}

/* @s goes on: after its own tail, what the host knew, and the legacy rule. */
static void proceed(struct model *m, unsigned int s)
{
	learn(&m->tail[s], &m->host);
	if (s == 0) {
		learn(&m->tail[0], &m->tail[1]);
		learn(&m->tail[0], &m->gone);
	}
	if (s == 1)
		learn(&m->tail[1], &m->tail[0]);
}

static void step_write(struct model *m, int step)
{
	unsigned int s = pick(m, STREAMS), block = pick(m, BLOCKS);
	size_t before = fakecuda_races();
	bool racy_step = false;

	if (pick(m, 4) == 0) {			/* a new life */
		fakecuda_note_free(p + block * 4096);
		fakecuda_note_alloc(p + block * 4096, 4096);
	}
	proceed(m, s);
	for (int i = 0; i < step; i++)
		racy_step |= m->writer[i] == (int)block && !knows(&m->tail[s], i);
	fill(m->streams[s], p + block * 4096, 1, WORDS);
	know(&m->tail[s], step);
	m->n_racy += racy_step;
	m->n_sound += !racy_step;
	m->writer[step] = (int)block;
	ck_assert_msg((fakecuda_races() > before) == racy_step,
		      "step %d: %zu reports, expected %s", step, fakecuda_races() - before,
		      racy_step ? "some" : "none");
}

static void step_other(struct model *m)
{
	unsigned int s = pick(m, STREAMS), e = pick(m, EVENTS);

	switch (pick(m, 8)) {
	case 0: case 1:
		OK(cuEventRecord(m->events[e], m->streams[s]));
		proceed(m, s);
		m->recorded[e] = m->tail[s];
		break;
	case 2: case 3:
		OK(cuStreamWaitEvent(m->streams[s], m->events[e], 0));
		proceed(m, s);
		learn(&m->tail[s], &m->recorded[e]);
		break;
	case 4:
		if (cuEventQuery(m->events[e]) == CUDA_SUCCESS)
			learn(&m->host, &m->recorded[e]);
		break;
	case 5:
		fakecuda_advance(15000);
		break;
	case 6:
		if (s < 2)
			break;
		OK(cuStreamDestroy(m->streams[s]));
		m->streams[s] = stream();
		memset(&m->tail[s], 0, sizeof(m->tail[s]));
		break;
	case 7:
		if (s < 2 || pick(m, 3))
			break;
		OK(cuStreamSynchronize(m->streams[s]));
		learn(&m->host, &m->tail[s]);
		break;
	}
}

START_TEST(random_programs)
{
	unsigned int n_racy = 0, n_sound = 0;

	for (unsigned int seed = 1; seed <= 200; seed++) {
		struct model m = { .seed = seed * 7919 };

		setup();
		m.streams[1] = blocking_stream();
		for (int i = 2; i < STREAMS; i++)
			m.streams[i] = stream();
		for (int i = 0; i < EVENTS; i++)
			m.events[i] = event();
		for (int step = 0; step < STEPS; step++) {
			m.writer[step] = -1;
			if (pick(&m, 3) == 0)
				step_write(&m, step);
			else
				step_other(&m);
		}
		n_racy += m.n_racy;
		n_sound += m.n_sound;
		work_teardown();
	}
	ck_assert_uint_gt(n_racy, 1000);
	ck_assert_uint_gt(n_sound, 1000);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		unordered_is_reported, lucky_time_changes_nothing, reads_do_not_conflict,
		neighbours_do_not_conflict, copies_and_fills_count, a_pair_is_reported_once,
		a_part_does_not_stand_for_the_whole, same_stream_orders,
		event_orders, event_recorded_before_does_not, event_order_is_transitive,
		event_recorded_again_later, host_syncs_order, other_streams_sync_does_not,
		successful_queries_order, failed_query_does_not, ctx_event_orders_who_waits,
		ctx_event_orders_nobody_else, synchronous_copy_orders,
		legacy_orders_blocking_streams, legacy_leaves_non_blocking_streams,
		legacy_orders_destroyed_streams, ctx_event_covers_destroyed_streams,
		reused_stream_slot_is_another_stream, many_streams_one_after_another,
		unknown_kernels_may_share, reuse_unordered_is_reported,
		reuse_lucky_time_is_reported, reuse_in_order_is_not, reuse_after_an_older_life,
		a_younger_life_does_not_stand_for_an_older, blocks_bound_pointers, copy_spans_lives, unmap_under_work, unmap_after_lucky_time,
		unmap_after_sync, unmap_under_freed_block, unmap_before_a_wait_is_over,
		free_waits_for_its_own_context, free_does_not_wait_for_a_peer,
		free_async_unordered, free_async_ordered, pool_reuse_is_ordered,
		overlap_reuse_is_reported, overlap_reuse_lucky_time_is_reported,
		overlap_past_markers, overlap_not_past_work, overlap_waits_for_events_between,
		overlap_knows_what_its_predecessor_knew, after_an_overlap_all_is_over,
		word_awaited_since_before_the_sync, word_orders_streams, word_written_too_early,
		word_written_by_a_copy, word_written_by_the_host,
		word_written_by_an_ignorant_host, waiting_kernel_reads_after,
		waiting_kernel_reads_unordered, waiting_kernel_occupies_its_block, semaphores_order,
		semaphore_signalled_too_early, host_access,
		host_access_before_submission, host_function_orders,
		host_function_in_another_stream, host_function_hands_over,
		host_function_hands_nothing_over, threads_share_what_they_know,
		separate_threads_do_not, separate_threads_tell_each_other,
		sync_does_not_cover_later_work, graph_branches,
		graph_branches_know_nothing_of_each_other,
		graph_edges_order, graphs_in_two_streams, off_and_on,
	};
	const TTest *const bare[] = { environment_exit, environment_file, random_programs };
	Suite *suite = suite_create("race");
	TCase *tc = tcase_create("rules"), *alone = tcase_create("alone");

	tcase_add_checked_fixture(tc, setup, work_teardown);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tcase_add_test(tc, tests[i]);
	for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++)
		tcase_add_test(alone, bare[i]);
	tcase_set_timeout(alone, 60);
	suite_add_tcase(suite, tc);
	suite_add_tcase(suite, alone);
	return work_main(suite);
}
