"""Run by test_matrix.py in each interpreter under the library: memory is allocated in every way that Python code is called,
and each time the interpreter's own stack is kept. stacks.py FILE DEPTH writes, as JSON, each allocation's size and stack."""
import asyncio
import ctypes
import itertools
import json
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert not cuda.cuInit(0)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context)
sizes, kept, lock = itertools.count(1), [], threading.Lock()
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
libc = ctypes.CDLL("libc.so.6")


def own():
    """The caller's stack as the interpreter has it, innermost first."""
    frame, found = sys._getframe(1), []
    while frame:
        found.append((getattr(frame.f_code, "co_qualname", frame.f_code.co_name), frame.f_code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return found


def take(*_):
    with lock:
        size = 512 * next(sizes)
    pointer = ctypes.c_uint64()
    stack, failed = own(), cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    assert not failed
    with lock:
        kept.append((size, stack))
    return 0


def recursion(depth):
    return recursion(depth - 1) if depth else take()


def sort(depth):
    """Python, the C library, Python, as deep as is asked for."""
    first = []

    def compare(a, b):
        if not first:
            first.append(1)
            take()
            if depth:
                sort(depth - 1)
        return 0
    libc.qsort((ctypes.c_int * 2)(), 2, 4, CALLBACK(compare))


def generator(n):
    for i in range(n):
        yield take()
    yield from (take() for _ in range(2))


async def numbers():
    yield take()
    await asyncio.sleep(0)
    yield take()


async def coroutine(depth):
    await asyncio.sleep(0)
    if depth:
        await coroutine(depth - 1)
    async for _ in numbers():
        take()


class Things:
    def __init__(self):
        take()

    def __enter__(self):
        return [take() for _ in range(2)]

    def __exit__(self, *_):
        take()
        return True

    def __lt__(self, other):
        return bool(take())

    def __del__(self):
        take()

    @property
    def value(self):
        return (lambda: take(
        ))()


def things():
    with Things():
        raise ValueError
    assert not Things().value
    sorted([Things(), Things()])
    max([1, 2], key=take)


def made(text):
    exec(compile("\n" * 7 + "def größe():\n\n    take()\ngröße()\n", text, "exec"), {"take": take})


def work(number, depth):
    cuda.cuCtxSetCurrent(context)
    for i in range(12):
        recursion((number + i) % depth)
    list(generator(2))
    sort(1)
    things()


def main():
    depth = int(sys.argv[2])
    take()
    for n in (0, 1, depth):
        recursion(n)
    for _ in range(200):        # often enough to be specialised
        recursion(2)
    sort(3)
    list(generator(3))
    things()
    asyncio.run(coroutine(3))
    made("<made>")
    made("/tmp/\u4e2d\u6587 file.py")
    threads = [threading.Thread(target=work, args=(n, depth)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    take()
    with open(sys.argv[1], "w") as out:
        json.dump(kept, out)


main()
