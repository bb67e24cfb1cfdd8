/*
 * test_module.c - PTX, fat binaries, libraries; launches and what kernels do.
 */
#include "common.h"

#include <fcntl.h>

/* The test's PTX in a fat binary, in nvcc's wrapper. */
struct wrapper {
	int magic, version;
	const void *data;
	void *files;
};

static struct wrapper *fat_binary(void)
{
	static unsigned char blob[8192];
	static struct wrapper w = { 0x466243b1, 1, blob, NULL };
	size_t text = sizeof(test_ptx);
	unsigned char entry[64] = { 2, 0, 1, 1, 64, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0 };
	unsigned char head[16] = { 0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0 };
	uint64_t size = 64 + 16 + 64 + text;

	memcpy(head + 8, &size, 8);
	memcpy(blob, head, 16);
	memcpy(blob + 16, entry, 64);		/* machine code first: passed over */
	entry[0] = 1;
	memcpy(entry + 8, &text, 8);
	memcpy(blob + 16 + 64 + 16, entry, 64);
	memcpy(blob + 16 + 64 + 16 + 64, test_ptx, text);
	return &w;
}

START_TEST(parameters_as_in_the_ptx)
{
	static const size_t offsets[] = { 0, 8, 32, 40 }, sizes[] = { 1, 24, 2, 8 };
	CUfunction f;
	size_t offset, size;
	const char *name;

	start(0);
	f = function("mixed");
	for (size_t i = 0; i < 4; i++) {
		ok(cuFuncGetParamInfo(f, i, &offset, &size));
		ck_assert_uint_eq(offset, offsets[i]);
		ck_assert_uint_eq(size, sizes[i]);
	}
	fails(cuFuncGetParamInfo(f, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	ok(cuFuncGetName(&name, f));
	ck_assert_str_eq(name, "mixed");
}
END_TEST

START_TEST(modules)
{
	CUmodule m, owner;
	CUfunction f, g;
	CUdeviceptr p;
	uint32_t word;
	unsigned int n;
	size_t size;

	start(0);
	ok(cuModuleLoadData(&m, fat_binary()));
	ok(cuModuleGetFunctionCount(&n, m));
	ck_assert_uint_eq(n, 7);
	ok(cuModuleGetFunction(&f, m, "nop"));
	ok(cuModuleGetFunction(&g, m, "nop"));
	ck_assert_ptr_eq(f, g);
	ok(cuFuncGetModule(&owner, f));
	ck_assert_ptr_eq(owner, m);
	fails(cuModuleGetFunction(&g, m, "missing"), CUDA_ERROR_NOT_FOUND);
	ok(cuModuleGetGlobal(&p, &size, m, "counter"));
	ck_assert_uint_eq(size, 4);
	ok(cuMemcpyDtoH(&word, p, 4));
	ck_assert_uint_eq(word, 7);
	ok(cuModuleGetGlobal(&p, &size, m, "table"));
	ck_assert_uint_eq(size, 64);
	ck_assert_uint_eq(fakecuda_live_bytes(0, FAKECUDA_DEVICE), 0);
	ok(cuModuleUnload(m));
	ck_assert_uint_eq(fakecuda_charged_bytes(0), 0);
	fails(launch(f, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(libraries)
{
	CUlibrary lib, owner;
	CUkernel k, all[8];
	CUfunction f;
	CUdeviceptr a, b;
	CUcontext ctx;
	unsigned int n;
	size_t size;

	ok(cuInit(0));
	ok(cuLibraryLoadData(&lib, fat_binary(), NULL, NULL, 0, NULL, NULL, 0));
	ok(cuLibraryGetKernelCount(&n, lib));
	ck_assert_uint_eq(n, 7);
	ok(cuLibraryEnumerateKernels(all, 8, lib));
	ok(cuLibraryGetKernel(&k, lib, "nop"));
	ok(cuKernelGetLibrary(&owner, k));
	ck_assert_ptr_eq(owner, lib);
	fails(cuLibraryGetGlobal(&a, &size, lib, "counter"), CUDA_ERROR_INVALID_CONTEXT);
	ctx = start(0);
	ok(launch((CUfunction)k, NULL, NULL));
	ok(cuKernelGetFunction(&f, k));
	ok(launch(f, NULL, NULL));
	ok(cuLibraryGetGlobal(&a, &size, lib, "counter"));
	start(1);
	ok(cuLibraryGetGlobal(&b, &size, lib, "counter"));	/* one per context */
	ck_assert_uint_ne(a, b);
	ok(launch((CUfunction)k, NULL, NULL));
	ok(cuLibraryUnload(lib));				/* with a launch pending */
	ok(cuCtxSynchronize());
	ok(cuCtxSetCurrent(ctx));
	ok(cuCtxSynchronize());
	fails(launch((CUfunction)k, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(bad_images)
{
	static const char elf[64] = "\177ELF", junk[64] = "what is this?";
	CUmodule m;

	start(0);
	fails(cuModuleLoadData(&m, elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
	fails(cuModuleLoadData(&m, junk), CUDA_ERROR_INVALID_IMAGE);
	fails(cuModuleLoadData(&m, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuModuleLoad(&m, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
}
END_TEST

START_TEST(built_in_kernels)
{
	uint32_t value = 5, count = 100, back[100];
	uint64_t n = 100;
	CUdeviceptr p, q;
	void *fill_args[] = { &p, &value, &n }, *add_args[] = { &p, &value, &count };
	void *copy_args[] = { &q, &p, &n };

	start(0);
	ok(cuMemAlloc(&p, 400));
	ok(cuMemAlloc(&q, 400));
	ok(launch(function("fill"), NULL, fill_args));
	ok(launch(function("add"), NULL, add_args));
	ok(launch(function("copy"), NULL, copy_args));
	ok(cuMemcpyDtoH(back, q, 400));
	ck_assert_uint_eq(back[0], 10);
	ck_assert_uint_eq(back[99], 10);
	n = 1 << 20;
	ok(cuMemFree(q));
	ok(launch(function("copy"), NULL, copy_args));	/* far beyond what is mapped */
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

static int my_kernel(void *arg, const char *name, void *const *args, const size_t *sizes,
		     unsigned int n_args)
{
	uint64_t p;
	uint32_t word;

	ck_assert_str_eq(name, "mixed");
	ck_assert_uint_eq(n_args, 4);
	ck_assert_uint_eq(sizes[1], 24);
	memcpy(&p, args[3], 8);
	ck_assert_int_eq(fakecuda_read(&word, p, 4), 0);
	word += *(uint8_t *)args[0];
	ck_assert_int_eq(fakecuda_write(p, &word, 4), 0);
	return *(int *)arg;
}

START_TEST(a_tests_own_kernels)
{
	uint8_t byte = 3;
	char block[24] = "";
	uint16_t half = 0;
	uint32_t back;
	CUdeviceptr p;
	CUfunction f;
	void *args[] = { &byte, block, &half, &p };
	int result = 0;

	start(0);
	f = function("mixed");
	ok(cuMemAlloc(&p, 4));
	ok(cuMemsetD32(p, 10, 1));
	fakecuda_on_kernel("mix", my_kernel, &result);
	ok(launch(f, NULL, args));
	ok(cuMemcpyDtoH(&back, p, 4));
	ck_assert_uint_eq(back, 13);
	result = CUDA_ERROR_ASSERT;
	ok(launch(f, NULL, args));
	fails(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
}
END_TEST

START_TEST(launches_are_checked)
{
	CUdeviceptr p = 0;
	uint32_t v = 0;
	uint64_t n = 0;
	void *args[] = { &p, &v, &n };
	CUfunction f;

	start(0);
	f = function("fill");
	fails(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, args, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, args, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100000, NULL, args, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
	ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100000, NULL, args, NULL));
	fails(launch(f, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	fails(launch((CUfunction)&n, NULL, args), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(parameters_in_a_buffer)
{
	struct {
		CUdeviceptr p;
		uint32_t value;
		uint64_t n;
	} params = { 0, 21, 4 };
	size_t size = sizeof(params);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &size, CU_LAUNCH_PARAM_END };
	uint32_t back[4];
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				  .blockDimY = 1, .blockDimZ = 1 };

	start(0);
	ok(cuMemAlloc(&params.p, 16));
	ok(cuLaunchKernelEx(&config, function("fill"), NULL, extra));
	ok(cuMemcpyDtoH(back, params.p, 16));
	ck_assert_uint_eq(back[3], 21);
}
END_TEST

START_TEST(linker)
{
	CUlinkState link;
	CUmodule m;
	CUfunction f;
	void *image;
	size_t size;

	start(0);
	ok(cuLinkCreate(0, NULL, NULL, &link));
	ok(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)test_ptx, sizeof(test_ptx), "a", 0, NULL,
			 NULL));
	ok(cuLinkComplete(link, &image, &size));
	ok(cuModuleLoadData(&m, image));
	ok(cuLinkDestroy(link));
	ok(cuModuleGetFunction(&f, m, "spin"));
}
END_TEST

START_TEST(occupancy)
{
	int n, block;

	start(0);
	ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, function("nop"), 256, 0));
	ck_assert_int_eq(n, 8);
	ok(cuOccupancyMaxPotentialBlockSize(&n, &block, function("nop"), NULL, 0, 0));
	ck_assert_int_eq(block, 1024);
	ck_assert_int_eq(n, 264);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("modules");
	TCase *tc = new_case(suite, "modules");

	tcase_add_test(tc, parameters_as_in_the_ptx);
	tcase_add_test(tc, modules);
	tcase_add_test(tc, libraries);
	tcase_add_test(tc, bad_images);
	tcase_add_test(tc, built_in_kernels);
	tcase_add_test(tc, a_tests_own_kernels);
	tcase_add_test(tc, launches_are_checked);
	tcase_add_test(tc, parameters_in_a_buffer);
	tcase_add_test(tc, linker);
	tcase_add_test(tc, occupancy);
	return run_suite(suite);
}
