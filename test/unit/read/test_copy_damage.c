/* Journals that something wrote over: no byte, number, link or length of them can do harm. */
#include "test/unit/read/made_copy.h"

#include <errno.h>
#include <fcntl.h>

#include "recorder/snapshot/snapshot.h"
#include "test/unit/journal/aux_check.h"
#include "test/suite.h"

#ifdef __SANITIZE_THREAD__
#define STEP 32u		/* there is one thread: nothing for it to find */
#elif defined(__SANITIZE_ADDRESS__)
#define STEP 2u
#else
#define STEP 8u				/* only a crash would be seen */
#endif

START_TEST(broken_lists_end)
{
	uint32_t ids[8];
	uint32_t at = 0, steps = 0;
	struct gm_block_walk walk = { 0 };

	jb_thread(&jb, 1, 100);
	for (uint64_t i = 0; i < 8; i++)
		ids[i] = jb_alloc(&jb, 1, device_bytes(0x1000000 + i * MIB, i == 3 ? 0 : MIB,
						       OP(1, i + 1), 10 * i + 10));
	jb.segments[ids[7]].next = ids[0];		/* the domain's list: a ring */
	jb.blocks[ids[0]].next = ids[0];		/* a block after itself */
	jb.blocks[ids[1]].next = ids[2];		/* a block of another segment */
	jb.blocks[ids[2]].next = 0x7fffffff;
	jb.blocks[ids[3]].next = ids[3];		/* an empty block after itself */
	jb.segments[ids[4]].first_block = ids[5];
	jb.segments[ids[5]].first_block = GM_NONE;
	resolve_all(UINT64_MAX);
	ck_assert_int_gt(gm_copy_check(&copy, NULL, NULL), 6);
	while ((at = gm_copy_next_block(&copy, ids[3], at, &walk)) && steps < 10000)
		steps++;
	ck_assert(walk.broken);
	ck_assert_uint_le(steps, 256);
}
END_TEST

static int file = -1, null;		/* the journal as a file; where JSON goes */

static void begin_file(void)
{
	file = jb_file(&jb);
	null = open("/dev/null", O_WRONLY);
	ck_assert_int_ge(null, 0);
}

/* The file gets the 8 bytes at @at as they are now. */
static void put(uint64_t at)
{
	if (pwrite(file, jb.mem + at, 8, (off_t)at) != 8)
		ck_abort_msg("pwrite");
}

/* Everything that reads, on the file as it is now. */
static void read_all(void)
{
	static const struct gm_snapshot_request request = { .reason = "test", .failure = 1 };

	gm_copy_free(&copy);
	if (gm_copy_from_file(&copy, file) == 0 && gm_copy_resolve(&copy, UINT64_MAX) == 0) {
		gm_copy_check(&copy, NULL, NULL);
		gm_snapshot_emit(&copy, &request, null);
	} else if (!copy.error[0]) {
		ck_abort_msg("a refusal without a reason");
	}
}

static void fill_journal(void)
{
	const uint32_t frames[] = { 1, 2 };
	uint32_t ids[12];

	jb_thread(&jb, 1, 100);
	jb_thread(&jb, 2, 200);
	jb_module(&jb, "/usr/lib/libcublas.so.12", 0x10000);
	jb_frame(&jb, 1, 0x44, jb_string(&jb, "cublasCreate"));
	jb_frame(&jb, 1, 0x88, jb_string(&jb, "main"));
	jb_setting(&jb, "history", "1048576", "default");
	for (uint64_t i = 0; i < 12; i++) {
		struct jb_what what = device_bytes(0x1000000 + i * MIB, MIB, OP(1, i + 1), 10 * i + 10);

		what.kind = (uint8_t)(i % GM_KIND_COUNT);
		what.domain = what.kind == GM_KIND_HOST ? GM_DOMAIN_HOST : 0;
		what.module = 1;
		what.stack = i ? 8 : jb_stack(&jb, frames, 2);
		ids[i] = jb_alloc(&jb, 1 + (uint32_t)i % 2, what);
	}
	jb_free(&jb, 2, ids[5], OP(2, 100), 500);
	jb_event(&jb, 1, OP(1, 200), GM_ACTION_ANNOTATE, 0, 600, 0, 0)->stack = jb_string(&jb, "epoch");
	jb.blocks[ids[0]].state = GM_BLOCK_FREEING;
	fly(1, OP(1, 300), GM_ACTION_FREE_REQUESTED, 0x1000000, 700);
	jb.failures[0] = (struct gm_failure){ .number = 1, .tsc = 650, .requested_bytes = 1 << 30,
					      .result = 2, .entry = "cuMemAlloc_v2" };
	jb_pool(&jb, GM_DOMAIN_POOLS, jb_string(&jb, "mine"));
	for (uint64_t i = 0; i < 4; i++) {
		struct jb_what what = device_bytes(0x1000000 + i * 4096, 4096, OP(1, 210 + i), 610 + i);

		what.domain = GM_DOMAIN_POOLS;
		what.module = 1;
		what.stack = 8;
		jb_line(&jb, what);
	}
	jb.threads[2].pool_op = OP(2, 99);
	jb.threads[2].pool_address = 0x1001000 | GM_LIVE_ENDING;
	jb_domain(&jb, 0)->undo_op = OP(2, 101);
	jb_undo(&jb, 0, &jb.segments[2].used);
}

START_TEST(no_byte_can_do_harm)
{
	static const uint8_t masks[] = { 0x01, 0x80, 0xff };
	unsigned int tried = 0;

	fill_journal();
	begin_file();
	read_all();
	ck_assert_uint_eq(copy.damage, 0);
	for (unsigned int r = 0; r <= GM_REGION_COUNT; r++) {
		uint64_t from = r == GM_REGION_COUNT ? 0 : jb.h->regions[r].offset;
		uint64_t used = r == GM_REGION_COUNT ? 2048 : jb.h->regions[r].used;

		if (used > 1600)
			used = r == GM_REGION_DOMAINS ? 1600 : 1200;
		for (uint64_t at = from; at < from + used; at += STEP) {
			jb.mem[at] ^= masks[at % 3];
			put(at & ~7ull);
			read_all();
			jb.mem[at] ^= masks[at % 3];
			put(at & ~7ull);
			tried++;
		}
	}
	printf("# %u bytes changed\n", tried);
	ck_assert_uint_gt(tried, 8000 / STEP);
}
END_TEST

START_TEST(no_number_can_do_harm)
{
	static const uint64_t values[] = {
		0, 1, 7, 8, 255, 4095, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_C(1) << 63,
		0x4141414141414141, UINT64_MAX - 4095,
	};
	unsigned int seed = 20251120, tried = 0;
	uint64_t offsets[GM_REGION_COUNT + 1] = { 0 };

	printf("# seed %u\n", seed);
	fill_journal();
	begin_file();
	for (unsigned int r = 0; r < GM_REGION_COUNT; r++)	/* before they are changed, too */
		offsets[r] = jb.h->regions[r].offset;
	for (unsigned int i = 0; i < 8000 / STEP; i++) {
		uint64_t saved[3], places[3];

		for (int k = 0; k < 3; k++) {
			unsigned int r = (unsigned int)rand_r(&seed) % (GM_REGION_COUNT + 1);
			uint64_t from = offsets[r];
			uint64_t used = r == GM_REGION_COUNT ? sizeof(*jb.h) : 4096;

			places[k] = from + ((uint64_t)rand_r(&seed) % used & ~7ull);
			memcpy(&saved[k], jb.mem + places[k], 8);
			memcpy(jb.mem + places[k], &values[(unsigned int)rand_r(&seed) % 12], 8);
			put(places[k]);
		}
		read_all();
		tried++;
		for (int k = 2; k >= 0; k--) {
			memcpy(jb.mem + places[k], &saved[k], 8);
			put(places[k]);
		}
	}
	ck_assert_uint_eq(tried, 8000 / STEP);
}
END_TEST

START_TEST(no_truncation_can_do_harm)
{
	int fd;

	fill_journal();
	fd = jb_file(&jb);
	for (off_t size = (off_t)jb.bytes; size >= 0; size -= 1017) {
		if (ftruncate(fd, size))
			ck_abort_msg("ftruncate");
		gm_copy_free(&copy);
		if (gm_copy_from_file(&copy, fd) == 0)
			gm_copy_resolve(&copy, UINT64_MAX);
		else if (!copy.error[0])
			ck_abort_msg("a refusal without a reason");
	}
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy_damage");
	TCase *tcase = tcase_create("copy_damage");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, broken_lists_end);
	tcase_add_test(tcase, no_byte_can_do_harm);
	tcase_add_test(tcase, no_number_can_do_harm);
	tcase_add_test(tcase, no_truncation_can_do_harm);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
