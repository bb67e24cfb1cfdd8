/*
 * hooked.h - shared by the tests that link the hooks: they can replace the real functions of the fake driver, and
 * observe a few of our functions (make's --wrap).
 *
 * Each test runs in its own child process, which starts the library anew.
 */
#ifndef TEST_HOOKED_H
#define TEST_HOOKED_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/driver/real.h"
#include "preload/hooks/hook.h"
#include "preload/order/order.h"
#include "preload/order/host.h"
#include "test/fakecuda/fakecuda.h"
#include "test/suite.h"

#define OK(call) ck_assert_int_eq((int)(call), CUDA_SUCCESS)
#define UNUSED __attribute__((unused))

/* Without a cache no context has blocks that are reused. */
UNUSED static uint32_t no_context(uint32_t owner)
{
	(void)owner;
	return 0;
}

UNUSED static size_t all_complete(const struct gm_reuse_item *items, size_t count)
{
	(void)items;
	return count;
}

UNUSED static void start_order(void)
{
	static const struct gm_order_blocks none = { .context_of = no_context, .complete = all_complete };

	ck_assert_int_eq(gm_order_start(&none), 0);
	gm_host_start();
}

/* Start the library, make device 0's primary context current, and switch tracking of order on. */
UNUSED static CUcontext begin(void)
{
	CUcontext context;

	ck_assert(gm_real_find());
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	ck_assert(gm_state_is_mine());
	if (!gm_order_on)
		start_order();
	ck_assert(gm_order_on);
	return context;
}

/* Give the programs a place for journals of their own. Processes whose journals lie in one place ask each other for idle
 * memory when a device is full, and a suite beside this one may fill its device. */
static char journals[64];

static void begin_journals(void)
{
	snprintf(journals, sizeof(journals), "%s/gpumem-test-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (mkdtemp(journals))
		setenv("GPUMEM_JOURNAL", journals, 1);
}

static void end_journals(void)
{
	DIR *dir = opendir(journals);

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(journals);
}

UNUSED static int run_hooked(Suite *suite)
{
	int failed;

	begin_journals();
	setenv("GPUMEM_SNAPSHOT_ON", "none", 1);
	setenv("GPUMEM_HISTORY", "4096", 1);
	failed = run_suite(suite);
	end_journals();
	return failed;
}

#endif
