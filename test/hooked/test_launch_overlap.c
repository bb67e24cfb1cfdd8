/*
 * After a stream's memory was handed out again early, its next kernel may not overlap the one before; and
 * private tables of the driver. The driver's functions are replaced by ones that remember what they were
 * called with.
 */
#include "test/hooked/hooked.h"

#define STREAM ((CUstream)(uintptr_t)0x5550)
#define OTHER ((CUstream)(uintptr_t)0x6660)
#define MANY 100

static CUlaunchConfig given;
static CUlaunchAttribute given_attributes[MANY];
static unsigned int launches, kernels;
static int answer;

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	(void)f;
	(void)params;
	(void)extra;
	given = *config;
	memcpy(given_attributes, config->attrs, config->numAttrs * sizeof(*config->attrs));
	launches++;
	return (CUresult)answer;
}

static CUresult launch_plain(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
			     unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			     CUstream stream, void **params, void **extra)
{
	(void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
	(void)stream, (void)params, (void)extra;
	kernels++;
	return CUDA_SUCCESS;
}

static void setup(void)
{
	begin();
	gm_real.cuLaunchKernelEx = launch_ex;
	gm_real.cuLaunchKernelEx_ptsz = launch_ex;
	gm_real.cuLaunchKernel = launch_plain;
	gm_order_hot.stream = gm_stream_key(STREAM, false);
}

static CUlaunchAttribute attributes[MANY];

/* A launch with leave to overlap, among other attributes. Was it given that leave? */
static bool overlaps(CUstream stream, unsigned int count)
{
	CUlaunchConfig config = { .hStream = stream, .attrs = attributes, .numAttrs = count,
				  .gridDimX = 7 };
	unsigned int at = count / 2, before = launches;
	bool leave;

	for (unsigned int i = 0; i < count; i++)
		attributes[i] = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
						     .value.priority = (int)i };
	attributes[at].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
	attributes[at].value.programmaticStreamSerializationAllowed = 1;
	ck_assert_int_eq((int)cuLaunchKernelEx(&config, NULL, NULL, NULL), answer);
	ck_assert_uint_eq(launches, before + 1);
	ck_assert(given.hStream == stream && given.gridDimX == 7 && given.numAttrs == count);
	for (unsigned int i = 0; i < count; i++)
		ck_assert(given_attributes[i].id == attributes[i].id &&
			  (i == at || given_attributes[i].value.priority == (int)i));
	leave = given_attributes[at].value.programmaticStreamSerializationAllowed;
	ck_assert_int_eq(attributes[at].value.programmaticStreamSerializationAllowed, 1);
	return leave;
}

START_TEST(test_leave_taken)
{
	unsigned int count = _i ? MANY : 3;

	ck_assert(overlaps(STREAM, count));
	gm_order_early_reuse(gm_stream_key(STREAM, false));
	ck_assert(!overlaps(STREAM, count));
	ck_assert(overlaps(STREAM, count));		/* the next one's predecessor has waited */
	gm_order_early_reuse(gm_stream_key(STREAM, false));
	gm_order_early_reuse(gm_stream_key(STREAM, false));
	ck_assert(!overlaps(STREAM, count));
	ck_assert(overlaps(STREAM, count));
}
END_TEST

/* Any kernel without leave has waited; another stream's has not, nor one that was refused. */
START_TEST(test_ends)
{
	gm_order_early_reuse(gm_stream_key(STREAM, false));
	OK(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL));
	ck_assert(overlaps(STREAM, 3));
	gm_order_early_reuse(gm_stream_key(STREAM, false));
	OK(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, OTHER, NULL, NULL));
	ck_assert(overlaps(OTHER, 3));
	answer = CUDA_ERROR_INVALID_VALUE;
	ck_assert(!overlaps(STREAM, 3));
	answer = 0;
	ck_assert(!overlaps(STREAM, 3));
	ck_assert(overlaps(STREAM, 3));
	ck_assert_uint_eq(kernels, 2);
}
END_TEST

/* Single-stream mode has ended, and another stream is looked at for it: what was freed before that is the
 * first one's. Then it is back, with the other one. */
START_TEST(test_another_stream)
{
	uint64_t first = gm_stream_key(STREAM, false), other = gm_stream_key(OTHER, false);

	gm_order_hot.many = 1;
	gm_order_hot.stream = other;
	gm_order_early_reuse(first);
	ck_assert(overlaps(OTHER, 3));
	ck_assert(!overlaps(STREAM, 3));
	ck_assert(overlaps(STREAM, 3));
	gm_order_hot.many = 0;
	gm_order_early_reuse(other);
	gm_order_early_reuse(first);		/* told late: complete */
	ck_assert(!overlaps(OTHER, 3));
	ck_assert(overlaps(OTHER, 3));
}
END_TEST

/* ---- private tables ---- */

static CUresult any_table(const void **table, const CUuuid *id)
{
	(void)id;
	*table = &answer;
	return CUDA_SUCCESS;
}

START_TEST(test_tables)
{
	static const unsigned char runtime[16] = { 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
						   0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 };
	bool before = gm_unseen();
	const void *table;
	CUuuid id;

	memcpy(id.bytes, runtime, sizeof(runtime));
	ck_assert_int_eq(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
	gm_real.cuGetExportTable = any_table;
	OK(cuGetExportTable(&table, &id));
	ck_assert(gm_unseen() == before);
	ck_assert(table == &answer);
	id.bytes[0] ^= 1;
	OK(cuGetExportTable(&table, &id));
	ck_assert(gm_unseen());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("launch overlap");
	TCase *tc = tcase_create("launch overlap");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, test_leave_taken, 0, 2);
	tcase_add_test(tc, test_ends);
	tcase_add_test(tc, test_another_stream);
	tcase_add_test(tc, test_tables);
	suite_add_tcase(suite, tc);
	return run_hooked(suite);
}
