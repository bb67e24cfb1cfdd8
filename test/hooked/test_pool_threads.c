/*
 * Pools of the program's from several threads at once, while what they hold is given back to the driver and
 * got again by others: what ends with a piece and what is taken back meet. On the fake driver.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "allocator/lock.h"
#include "preload/pools/pools.h"
#include "recorder/journal/recorder.h"
#include "recorder/read/copy.h"
#include "test/hooked/hooked.h"

#define THREADS 16u
#define PIECES 8u
#define STEPS 1500u
#define PIECE ((size_t)4 << 20)
#define PART (PIECE / (THREADS * 16))

static CUcontext context;
static uint8_t pools[2];
static _Atomic(CUdeviceptr) pieces[PIECES];
static _Atomic(uint32_t) running;
static pthread_rwlock_t swapping = PTHREAD_RWLOCK_INITIALIZER;	/* nobody hands out of what is going */

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Each thread has its own parts of every piece. */
static void *hand_out(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, random = me + 1;
	CUdeviceptr mine[16] = { 0 };
	uint8_t pool = pools[me == 0];	/* one thread has a pool of its own, the others share one */

	OK(cuCtxSetCurrent(context));
	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t slot = next_random(&random) % 16;
		uint64_t offset = (me * 16 + slot) * PART;

		if (mine[slot]) {
			int r = gm_pool_take(gm_pool_of(pool), mine[slot]);

			ck_assert(r == 0 || r == -ENOENT);	/* its piece is gone */
			mine[slot] = 0;
			continue;
		}
		pthread_rwlock_rdlock(&swapping);
		mine[slot] = pieces[next_random(&random) % PIECES] + offset;
		ck_assert_int_eq(gm_pool_give(gm_pool_of(pool), mine[slot], 512 + next_random(&random) % (PART - 512), 0, NULL, 0), 0);
		ck_assert_uint_ge(gm_pool_size_at(pool, mine[slot]), 512);
		for (uint32_t other = 0; other < 64; other++)	/* another thread may have it, or nobody */
			gm_pool_size_at(pool, pieces[0] + other * PART);
		pthread_rwlock_unlock(&swapping);
	}
	for (uint32_t slot = 0; slot < 16; slot++)
		if (mine[slot])
			gm_pool_take(gm_pool_of(pool), mine[slot]);
	running--;
	return NULL;
}

/* Pieces come and go under what is handed out. */
static void *give_back(void *arg)
{
	uint32_t random = 99;

	(void)arg;
	OK(cuCtxSetCurrent(context));
	while (running > 0) {
		_Atomic(CUdeviceptr) *piece = &pieces[next_random(&random) % PIECES];
		CUdeviceptr fresh;

		OK(cuMemAlloc_v2(&fresh, PIECE));
		pthread_rwlock_wrlock(&swapping);
		OK(cuMemFree_v2(atomic_exchange(piece, fresh)));
		pthread_rwlock_unlock(&swapping);
		sched_yield();
	}
	return NULL;
}

/* What the rows had at the peak is the peak: but for the block that each thread may have been handing out or taking back
 * just then. */
static void check_peak(const struct gm_copy *copy, uint8_t pool)
{
	int64_t peak = gm_copy_domain(copy, pool)->stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].peak, sum = 0;

	for (size_t i = 1; i < gm_copy_items(copy, GM_REGION_SITES); i++)
		if (gm_copy_site(copy, i) && gm_site_domain(gm_copy_site(copy, i)) == pool)
			sum += gm_copy_site(copy, i)->live;
	ck_assert_int_le(sum, peak + (int64_t)((THREADS + 1) * PART));
	ck_assert_int_ge(sum, peak - (int64_t)((THREADS + 1) * PART));
	ck_assert_uint_eq(gm_copy_refused(copy, GM_REGION_SITES), 0);
}

START_TEST(test_threads)
{
	pthread_t threads[THREADS], other;
	struct gm_stats stats;
	struct gm_copy copy;

	setenv("GPUMEM_ALLOCATOR", _i ? "caching" : "native", 1);
	context = begin();
	for (unsigned int i = 0; i < 2; i++)
		pools[i] = gm_pool_open(GM_POOL_API, 0, gm_pool_name_id(i ? "one" : "two"), 0);
	ck_assert(pools[0] && pools[1] && pools[0] != pools[1]);
	for (unsigned int i = 0; i < PIECES; i++) {
		CUdeviceptr fresh;

		OK(cuMemAlloc_v2(&fresh, PIECE));
		pieces[i] = fresh;
	}
	running = THREADS;
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, hand_out, (void *)i);
	pthread_create(&other, NULL, give_back, NULL);
	for (unsigned int i = 0; i < 20; i++) {		/* and somebody looks */
		ck_assert_int_eq(gm_copy_from_process(&copy), 0);
		ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
		ck_assert_uint_eq(copy.damage, 0);
		for (unsigned int k = 0; k < 2; k++)
			check_peak(&copy, pools[k]);
		gm_copy_free(&copy);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(other, NULL);
	for (unsigned int i = 0; i < PIECES; i++)
		OK(cuMemFree_v2(pieces[i]));
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_int_eq(gm_record_stats(pools[i], &stats), 0);
		ck_assert_int_gt(stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].allocated, STEPS / 3);
		ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATION][GM_POOL_ALL].current, 0);
		ck_assert_int_eq(stats.stat[GM_STAT_ALLOCATED_BYTES][GM_POOL_ALL].current, 0);
		ck_assert_int_eq(stats.stat[GM_STAT_RESERVED_BYTES][GM_POOL_ALL].current, 0);
	}
	ck_assert_int_eq(gm_copy_from_process(&copy), 0);
	ck_assert_int_eq(gm_copy_resolve(&copy, UINT64_MAX), 0);
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_int_gt(gm_copy_domain(&copy, pools[i])->pool.peak_bytes, PART);
		check_peak(&copy, pools[i]);
	}
	gm_copy_free(&copy);
	ck_assert_uint_eq(gm_lock_violations(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool threads");
	TCase *tc = tcase_create("pool threads");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_threads, 0, 2);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
