"""A program with pools of its own, on whatever driver there is: what the tests of pools have in common.

Run with Python under the library; test_pools.py has the programs.
"""
import ctypes
import sys

this = ctypes.CDLL(None)
cuda = ctypes.CDLL("libcuda.so.1")
u64, size_t = ctypes.c_uint64, ctypes.c_size_t
this.gpumem_pool_allocated.argtypes = [ctypes.c_int, u64, u64, ctypes.c_void_p]
this.gpumem_pool_freed.argtypes = [ctypes.c_int, u64]
cuda.cuMemFree_v2.argtypes = [u64]


class Stat(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 56), ("value", ctypes.c_int64)]


def must(result):
    if result:
        sys.exit("CUDA error %d" % result)


def context(device=0):
    handle = ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device))
    must(cuda.cuCtxSetCurrent(handle))


def malloc(size):
    address = u64()
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), size_t(size)))
    return address.value


def free(address):
    must(cuda.cuMemFree_v2(address))


def pool(name, device=0):
    return this.gpumem_pool_create(name.encode(), device)


def given(number, address, size, stream=0):
    return this.gpumem_pool_allocated(number, address, size, stream)


def taken(number, address):
    return this.gpumem_pool_freed(number, address)


def stats(number):
    count = this.gpumem_pool_memory_stats(number, None, 0)
    if count < 0:
        return count
    items = (Stat * count)()
    this.gpumem_pool_memory_stats(number, items, count)
    return {i.name.decode(): i.value for i in items}


def snapshot():
    must(this.gpumem_snapshot(None))
