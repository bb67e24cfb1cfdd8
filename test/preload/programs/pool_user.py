"""A program with pools of its own, on whatever driver there is: what the tests of pools have in common.

Run with Python under the library; test_pools.py has the programs.
"""
import _ctypes
import ctypes
import os
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


# ---- a program with PyTorch's libraries (torch/c10.h), loaded as Python loads them ----

class Account(ctypes.Structure):
    _fields_ = [(n, u64) for n in "allocations frees live live_bytes peak_bytes segments reserved_bytes ooms".split()]


class Reports(ctypes.Structure):
    _fields_ = [("calls", u64), ("ooms", u64)] + [(n, ctypes.c_int64) for n in
                "bytes allocated reserved device_type device_index".split()]


LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Account))


class Torch:
    """The stand-in, or (@name: "-other", @directory) another copy of it."""

    def __init__(self, device=0, expandable=0, limit=1 << 40, name="", directory=None):
        directory = directory or os.environ["TORCH"]
        self.cuda = ctypes.CDLL("%s/libc10_cuda%s.so" % (directory, name))
        self.c10 = ctypes.CDLL("%s/libc10%s.so" % (directory, name))
        self.cuda.pool_alloc.restype = ctypes.c_void_p
        self.cuda.pool_alloc.argtypes = [size_t]
        self.cuda.pool_free.argtypes = [ctypes.c_void_p]
        self.cuda.pool_begin.argtypes = [ctypes.c_int, ctypes.c_int, u64]
        self.cuda.pool_begin(device, expandable, limit)
        self.alloc, self.free, self.empty_cache = self.cuda.pool_alloc, self.cuda.pool_free, self.cuda.pool_empty_cache

    def account(self):
        account = Account()
        self.cuda.pool_account(ctypes.byref(account))
        return {n: getattr(account, n) for n, _ in Account._fields_}

    def reports(self):
        reports = Reports()
        self.c10.c10_reports(ctypes.byref(reports))
        return {n: getattr(reports, n) for n, _ in Reports._fields_}

    def unload(self):
        """True if it is gone: nothing else had it."""
        path = os.path.dirname(self.cuda._name) + "/"
        for library in (self.cuda, self.c10):
            _ctypes.dlclose(library._handle)
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return path not in maps.read()

    def storm(self, threads, steps, seed, look=None, log=None):
        return self.cuda.pool_storm(threads, steps, seed, LOOK(look) if look else None, log and log.encode())


def both_levels(expandable, steps):
    """Blocks of the stand-in's and of a pool of our own, some of them freed; what it returns keeps both alive."""
    torch = Torch(expandable=expandable)
    torch.storm(3, steps, 3)
    kept = [torch.alloc(100 * i) for i in range(1, 50)] + [torch.alloc(5 << 20)]
    for block in kept[::3]:
        torch.free(block)
    mine = pool("mine")
    base = malloc(1 << 20)
    for at in range(4):
        given(mine, base + at * 65536, 40000, 77)
    taken(mine, base + 65536)
    return torch, mine, base


def differs(number):
    """A look at pool @number: 0 when its statistics are those of the account."""
    def look(account):
        a, s = account.contents, stats(number)
        pairs = [(a.allocations, s["allocation.all.allocated"]), (a.frees, s["allocation.all.freed"]),
                 (a.live, s["allocation.all.current"]), (a.live_bytes, s["allocated_bytes.all.current"]),
                 (a.peak_bytes, s["allocated_bytes.all.peak"]), (a.reserved_bytes, s["reserved_bytes.all.current"])]
        if all(x == y for x, y in pairs):
            return 0
        print(pairs, file=sys.stderr)
        return 1
    return look
