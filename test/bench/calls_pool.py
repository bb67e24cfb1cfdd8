#!/usr/bin/env python3
"""Blocks of the tests' stand-in for PyTorch's pool, below so many Python frames, for counting instructions.

usage: calls_pool.py DIRECTORY FRAMES --count N [--live N]: N blocks of 4 KiB, handed out a hundred at a time and taken
back in that order, as forward and backward of a small model do, beside --live blocks that stay, as weights do. DIRECTORY has
the stand-in (test/preload/programs/torch/)."""
import ctypes
import sys

LIVE = 100


def pool_in(directory):
    cuda, pool, context = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(directory + "/libc10_cuda.so"), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context):
        sys.exit("no CUDA")
    pool.pool_alloc.restype, pool.pool_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    pool.pool_free.argtypes = [ctypes.c_void_p]
    pool.pool_begin(0, 0, ctypes.c_uint64(1 << 40))
    return pool


def work(pool, count):
    blocks = [None] * LIVE
    alloc, free = pool.pool_alloc, pool.pool_free
    for _ in range(number("--live")):
        alloc(4096)
    for _ in range(count // LIVE):
        for i in range(LIVE):
            blocks[i] = alloc(4096)
        for i in range(LIVE):
            free(blocks[i])


def number(option):
    return int(sys.argv[sys.argv.index(option) + 1]) if option in sys.argv else 0


def below(frames, *args):
    return below(frames - 1, *args) if frames else work(*args)


# Of the frames, the module, the last call of below() and work() are three.
below(int(sys.argv[2]) - 3, pool_in(sys.argv[1]), number("--count"))
