/* vmm.h - conformance of virtual memory management: reservations, handles, mappings, access. */
#ifndef TEST_CONFORMANCE_VMM_H
#define TEST_CONFORMANCE_VMM_H

#include <unistd.h>

#include "test/conformance/conf.h"

static size_t vmm_page;

static CUmemAllocationProp vmm_device_memory(void)
{
	CUmemAllocationProp prop = {};

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	return prop;
}

static CUresult vmm_access(CUdeviceptr at, size_t bytes)
{
	CUmemAccessDesc access = {};

	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return DRIVER(cuMemSetAccess, 10020)(at, bytes, &access, 1);
}

static void vmm_handles(void)
{
	auto create = DRIVER(cuMemCreate, 10020);
	auto release = DRIVER(cuMemRelease, 10020);
	CUmemGenericAllocationHandle handle = 0;
	CUmemAllocationProp prop = vmm_device_memory(), got = {};
	size_t minimum = 0, recommended = 0, free_bytes, total_bytes;
	long long before;
	int fd = -1;

	conf_section = "VMM handles";
	NEED(DRIVER(cuMemGetAllocationGranularity, 10020)(&minimum, &prop,
							  CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	NEED(DRIVER(cuMemGetAllocationGranularity, 10020)(&recommended, &prop,
							  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	vmm_page = minimum;
	VALUE("granularity, minimum", minimum);
	VALUE("granularity, recommended", recommended);
	CODE_OF("create of 0 bytes", create(&handle, 0, &prop, 0));
	CODE_OF("create of half a page", create(&handle, minimum / 2, &prop, 0));
	CODE_OF("create with flags", create(&handle, minimum, &prop, 1));
	NEED(cudaMemGetInfo(&free_bytes, &total_bytes));
	CODE_OF("create of more than there is", create(&handle, 2 * total_bytes / minimum * minimum,
						       &prop, 0));
	before = used_bytes();
	CODE_OF("create of 3 pages", create(&handle, 3 * minimum, &prop, 0));
	VALUE("KiB taken, not mapped", (used_bytes() - before) / 1024);
	CODE(DRIVER(cuMemGetAllocationPropertiesFromHandle, 10020)(&got, handle));
	TRUTH("its properties are as asked", got.type == prop.type &&
	      got.location.type == prop.location.type && got.location.id == 0);
	CODE_OF("export of a handle that shares nothing",
		DRIVER(cuMemExportToShareableHandle, 10020)(
			&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CODE_OF("release", release(handle));
	CODE_OF("release again", release(handle));
	VALUE("KiB left", (used_bytes() - before) / 1024);
	prop.location.id = 1000;
	CODE_OF("create on a device that is not there", create(&handle, minimum, &prop, 0));
	prop = vmm_device_memory();
	prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	CODE_OF("create of no type", create(&handle, minimum, &prop, 0));
}

static void vmm_addresses(void)
{
	auto reserve = DRIVER(cuMemAddressReserve, 10020);
	auto give_back = DRIVER(cuMemAddressFree, 10020);
	CUdeviceptr at = 0, wish = 0;
	long long before;

	conf_section = "VMM addresses";
	CODE_OF("reserve 0 bytes", reserve(&at, 0, 0, 0, 0));
	CODE_OF("reserve half a page", reserve(&at, vmm_page / 2, 0, 0, 0));
	before = used_bytes();
	CODE_OF("reserve 1 TiB", reserve(&at, 1ull << 40, 0, 0, 0));
	VALUE("KiB taken", (used_bytes() - before) / 1024);
	TRUTH("aligned to a page", at % vmm_page == 0);
	CODE_OF("give back in part", give_back(at, vmm_page));
	CODE_OF("give back from the middle", give_back(at + vmm_page, (1ull << 40) - vmm_page));
	CODE_OF("give back", give_back(at, 1ull << 40));
	CODE_OF("give back again", give_back(at, 1ull << 40));
	CODE_OF("reserve aligned to 64 pages", reserve(&at, vmm_page, 64 * vmm_page, 0, 0));
	TRUTH("aligned so", at % (64 * vmm_page) == 0);
	wish = at;
	CODE_OF("give back", give_back(at, vmm_page));
	CODE_OF("reserve with a wish for the same place", reserve(&at, vmm_page, 0, wish, 0));
	CODE_OF("give back", give_back(at, vmm_page));
	CODE_OF("reserve aligned to 3 pages", reserve(&at, vmm_page, 3 * vmm_page, 0, 0));
}

/* @handle has two pages. */
static void vmm_odd_maps(CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
	auto map = DRIVER(cuMemMap, 10020);
	auto unmap = DRIVER(cuMemUnmap, 10020);

	CODE_OF("map off a page", map(at + 512, 2 * vmm_page, 0, handle, 0));
	CODE_OF("map in part", map(at, vmm_page, 0, handle, 0));
	CODE_OF("map from inside the handle", map(at, vmm_page, vmm_page, handle, 0));
	CODE_OF("unmap after those", unmap(at, 2 * vmm_page));
	CODE_OF("unmap one page after those", unmap(at, vmm_page));
	CODE_OF("map more than the handle has", map(at, 4 * vmm_page, 0, handle, 0));
}

static void vmm_mappings(void)
{
	auto create = DRIVER(cuMemCreate, 10020);
	auto release = DRIVER(cuMemRelease, 10020);
	auto map = DRIVER(cuMemMap, 10020);
	auto unmap = DRIVER(cuMemUnmap, 10020);
	auto retain = DRIVER(cuMemRetainAllocationHandle, 11000);
	CUmemAllocationProp prop = vmm_device_memory();
	CUmemGenericAllocationHandle handle, other, again = 0, third = 0;
	unsigned long long flags = 99;
	CUmemLocation here = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
	CUdeviceptr at, base;
	long long before = used_bytes();
	size_t size = 0;
	void *p = NULL;

	conf_section = "VMM mappings";
	NEED(DRIVER(cuMemAddressReserve, 10020)(&at, 32 * vmm_page, 0, 0, 0));
	NEED(create(&handle, 2 * vmm_page, &prop, 0));
	NEED(create(&other, vmm_page, &prop, 0));
	vmm_odd_maps(at, handle);
	CODE_OF("map", map(at, 2 * vmm_page, 0, handle, 0));
	CODE_OF("map over it", map(at, vmm_page, 0, other, 0));
	CODE_OF("map elsewhere too", map(at + 8 * vmm_page, 2 * vmm_page, 0, handle, 0));
	CODE_OF("map next to it", map(at + 2 * vmm_page, vmm_page, 0, other, 0));
	CODE(DRIVER(cuMemGetAccess, 10020)(&flags, &here, at));
	VALUE("access before it is set", flags);
	CODE_OF("set access over two mappings", vmm_access(at, 3 * vmm_page));
	CODE_OF("set access over a hole", vmm_access(at, 16 * vmm_page));
	CODE_OF("set access of the other mapping", vmm_access(at + 8 * vmm_page, 2 * vmm_page));
	CODE(DRIVER(cuMemGetAccess, 10020)(&flags, &here, at));
	VALUE("access after it is set", flags);
	CODE_OF("cudaMemset over two mappings", cudaMemset((void *)at, 0x33, 3 * vmm_page));
	TRUTH("seen at the other address", conf_holds((void *)(at + 8 * vmm_page), 0x33,
						      2 * vmm_page));
	CODE(DRIVER(cuMemGetAddressRange, 3020)(&base, &size, at + 100));
	TRUTH("address range: base is the mapping's", base == at);
	VALUE("address range: pages", size / vmm_page);
	CODE_OF("cudaFree of it", cudaFree((void *)at));
	CODE_OF("retain by address", retain(&again, (void *)(at + 8 * vmm_page)));
	TRUTH("it is the same handle", again == handle);
	NEED(cudaMalloc(&p, 100));
	CODE_OF("retain of cudaMalloc memory", retain(&third, p));
	NEED(cudaFree(p));
	CODE_OF("release", release(handle));
	CODE_OF("release the retained one", release(again));
	CODE_OF("unmap in part", unmap(at, vmm_page));
	CODE_OF("unmap", unmap(at, 2 * vmm_page));
	CODE_OF("unmap again", unmap(at, 2 * vmm_page));
	TRUTH("contents by the mapping that is left", conf_holds((void *)(at + 8 * vmm_page), 0x33,
								 2 * vmm_page));
	CODE_OF("give back addresses still mapped",
		DRIVER(cuMemAddressFree, 10020)(at, 32 * vmm_page));
	CODE_OF("unmap the last", unmap(at + 8 * vmm_page, 2 * vmm_page));
	VALUE("KiB left of 3 pages, one still held", (used_bytes() - before) / 1024);
	CODE_OF("release the other while mapped", release(other));
	CODE_OF("unmap it", unmap(at + 2 * vmm_page, vmm_page));
	VALUE("KiB left", (used_bytes() - before) / 1024);
	CODE_OF("give back", DRIVER(cuMemAddressFree, 10020)(at, 32 * vmm_page));
}

static void vmm_several_at_once(void)
{
	CUmemAllocationProp prop = vmm_device_memory();
	CUmemGenericAllocationHandle handles[4];
	CUdeviceptr at;

	conf_section = "VMM, several at once";
	NEED(DRIVER(cuMemAddressReserve, 10020)(&at, 8 * vmm_page, 0, 0, 0));
	for (int i = 0; i < 4; i++) {
		NEED(DRIVER(cuMemCreate, 10020)(&handles[i], vmm_page, &prop, 0));
		NEED(DRIVER(cuMemMap, 10020)(at + i * vmm_page, vmm_page, 0, handles[i], 0));
		NEED(DRIVER(cuMemRelease, 10020)(handles[i]));
	}
	CODE_OF("set access of four", vmm_access(at, 4 * vmm_page));
	CODE_OF("unmap two and a hole",
		DRIVER(cuMemUnmap, 10020)(at + 2 * vmm_page, 4 * vmm_page));
	CODE_OF("unmap the inner two", DRIVER(cuMemUnmap, 10020)(at + vmm_page, 2 * vmm_page));
	CODE_OF("unmap the first", DRIVER(cuMemUnmap, 10020)(at, vmm_page));
	CODE_OF("unmap the last", DRIVER(cuMemUnmap, 10020)(at + 3 * vmm_page, vmm_page));
	CODE_OF("give back", DRIVER(cuMemAddressFree, 10020)(at, 8 * vmm_page));
}

#endif
