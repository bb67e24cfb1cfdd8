/*
 * common.h - what the tests of the fake driver share. Each test runs in a child of its own (check's
 * fork mode), so each begins before cuInit.
 */
#ifndef FAKECUDA_TESTS_COMMON_H
#define FAKECUDA_TESTS_COMMON_H

#include <check.h>
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fakecuda.h"
#include "test/suite.h"

#define MIB ((size_t)1 << 20)
#define ok(call) ck_assert_int_eq((call), CUDA_SUCCESS)
#define fails(call, error) ck_assert_int_eq((call), (error))

/* A context of device @ordinal, current. */
static inline CUcontext start(int ordinal)
{
	CUcontext ctx;

	ok(cuInit(0));
	ok(cuDevicePrimaryCtxRetain(&ctx, ordinal));
	ok(cuCtxSetCurrent(ctx));
	return ctx;
}

static const char test_ptx[] =
	".version 9.0\n.target sm_75\n.address_size 64\n"
	".global .align 4 .u32 counter = 7;\n"
	".global .align 4 .b8 table[64];\n"
	".visible .entry fill(.param .u64 fill_0, .param .u32 fill_1, .param .u64 fill_2)\n"
	"{\nret;\n}\n"
	".visible .entry add(\n\t.param .u64 add_0,\n\t.param .u32 add_1,\n\t.param .u32 add_2\n)\n"
	"{\nret;\n}\n"
	".visible .entry copy(.param .u64 a, .param .u64 b, .param .u64 n)\n{\nret;\n}\n"
	".visible .entry spin()\n{\nret;\n}\n"
	".visible .entry nop()\n{\nret;\n}\n"
	".visible .entry fault()\n{\nret;\n}\n"
	".visible .entry mixed(.param .u8 a, .param .align 8 .b8 s[24], .param .u16 h, .param .u64 "
	".ptr .global .align 4 p)\n{\nret;\n}\n";

static inline CUfunction function(const char *name)
{
	CUmodule module;
	CUfunction f;

	ok(cuModuleLoadData(&module, test_ptx));
	ok(cuModuleGetFunction(&f, module, name));
	return f;
}

static inline CUresult launch(CUfunction f, CUstream s, void **args)
{
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL);
}

static inline TCase *new_case(Suite *suite, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return tc;
}

#endif
