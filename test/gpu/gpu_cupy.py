"""CuPy on a GPU: its pools, cuBLAS through it, its asynchronous pool, pinned and managed memory.

Prints only what is the same from run to run; see gpu_torch.py.
"""
import cupy


def arrays():
    a = cupy.arange(1 << 20, dtype=cupy.float64)
    print("sum", float((a * 2).sum()))
    b = cupy.ones((512, 512), dtype=cupy.float32)
    print("matrix product", float((b @ b).sum()))
    pool = cupy.get_default_memory_pool()
    print("used", pool.used_bytes() > 0, "held", pool.total_bytes() >= pool.used_bytes())
    del a, b
    pool.free_all_blocks()
    print("held after freeing", pool.total_bytes())


def asynchronous():
    pool = cupy.cuda.MemoryAsyncPool()
    with cupy.cuda.using_allocator(pool.malloc):
        a = cupy.full(3 << 20, 7, dtype=cupy.uint8)
        print("asynchronous pool", int(a.astype(cupy.int64).sum()))
        del a
    cupy.cuda.Device().synchronize()


def managed():
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        a = cupy.arange(1000, dtype=cupy.int32)
        print("managed", int(a.sum()))


def out_of_memory():
    try:
        cupy.empty(1 << 50, dtype=cupy.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        print("out of memory, caught")


def kernel():
    add = cupy.ElementwiseKernel("T x, T y", "T z", "z = x + 2 * y", "add_twice")
    print("own kernel", float(add(cupy.ones(10), cupy.ones(10)).sum()))


def main():
    arrays()
    asynchronous()
    managed()
    out_of_memory()
    kernel()
    print("gpu_cupy: done")


if __name__ == "__main__":
    main()
