/* resolve.h - conformance of how entry points are found. */
#ifndef TEST_CONFORMANCE_RESOLVE_H
#define TEST_CONFORMANCE_RESOLVE_H

#include "test/conformance/conf.h"

static void resolve_line(PFN_cuGetProcAddress_v12000 get, const char *name, int version,
			 cuuint64_t flags, const char *expected)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *address = (void *)1;
	void *exported = expected && library ? dlsym(library, expected) : NULL;
	char what[96];
	int code;

	snprintf(what, sizeof(what), "\"%s\", version %d, flags %d", name, version, (int)flags);
	code = (int)get(name, &address, version, flags, &status);
	conf_print(what, "%d, status %d, %s%s", code, (int)status,
		   !address ? "NULL" : address == (void *)1 ? "untouched" :
		   exported ? (address == exported ? "is " : "is not ") : "an address",
		   address && address != (void *)1 && exported ? expected : "");
}

static void resolution(void)
{
	auto get = (PFN_cuGetProcAddress_v12000)conf_entry("cuGetProcAddress", 12000);
	static const struct {
		const char *name;
		int version;
		cuuint64_t flags;
		const char *expected;
	} questions[] = {
		{ "cuMemAlloc", 2000, 0, "cuMemAlloc" },
		{ "cuMemAlloc", 3010, 0, "cuMemAlloc" },
		{ "cuMemAlloc", 3020, 0, "cuMemAlloc_v2" },
		{ "cuMemAlloc", 13000, 0, "cuMemAlloc_v2" },
		{ "cuMemAlloc", 13000, 2, "cuMemAlloc_v2" },
		{ "cuMemAlloc", 1000, 0, NULL },
		{ "cuMemAlloc", 99000, 0, "cuMemAlloc_v2" },
		{ "cuMemAlloc_v2", 13000, 0, NULL },
		{ "cuMemAllocAsync", 11010, 0, NULL },
		{ "cuMemAllocAsync", 11020, 0, "cuMemAllocAsync" },
		{ "cuMemAllocAsync", 11020, 1, "cuMemAllocAsync" },
		{ "cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz" },
		{ "cuMemAllocAsync_ptsz", 11020, 0, NULL },
		{ "cuMemcpyHtoD", 3020, 0, "cuMemcpyHtoD_v2" },
		{ "cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2" },
		{ "cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds" },
		{ "cuMemcpyHtoD", 7000, 0, "cuMemcpyHtoD_v2" },
		{ "cuCtxCreate", 3020, 0, "cuCtxCreate_v2" },
		{ "cuCtxCreate", 11040, 0, "cuCtxCreate_v3" },
		{ "cuCtxCreate", 12050, 0, "cuCtxCreate_v4" },
		{ "cuDevicePrimaryCtxRelease", 7000, 0, "cuDevicePrimaryCtxRelease" },
		{ "cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2" },
		{ "cuCtxGetDevice", 2000, 0, "cuCtxGetDevice" },
		{ "cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2" },
		{ "cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2" },
		{ "cuGetProcAddress", 11030, 0, "cuGetProcAddress" },
		{ "cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2" },
		{ "cuCtxRecordEvent", 12050, 0, "cuCtxRecordEvent" },
		{ "cuCtxRecordEvent", 12040, 0, NULL },
		{ "cuNoSuchFunction", 13000, 0, NULL },
		{ "", 13000, 0, NULL },
		{ "", 0, 0, NULL },
		{ "cudaMalloc", 13000, 0, NULL },
		{ "cuMemAlloc", 13000, 4, NULL },
	};

	conf_section = "entry points";
	for (auto &q : questions)
		resolve_line(get, q.name, q.version, q.flags, q.expected);
}

#endif
