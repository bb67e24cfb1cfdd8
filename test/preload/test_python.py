# timeout: 300
"""Python programs under the library: whose line allocated what, in the snapshot at exit."""
import glob
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import Room, check, finish, same, tell  # noqa: E402
from verbs import stack_of  # noqa: E402

HOST = '''\
import ctypes, gc, os, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert not cuda.cuInit(0)
assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not cuda.cuCtxSetCurrent(context)
kept = []


def alloc(size):
    pointer = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))  # LINE alloc
    return pointer


def free(pointer):
    assert not cuda.cuMemFree_v2(pointer)


class Tensor:
    def __init__(self, size):
        self.pointer = alloc(size)  # LINE init

    def __del__(self):
        free(self.pointer)


def model(size):
    return Tensor(size)  # LINE model


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def by_callback(size):
    """Python, C, Python."""
    libc = ctypes.CDLL("libc.so.6")

    def compare(a, b):
        if not kept:
            kept.append(model(size))  # LINE callback
        return 0
    libc.qsort((ctypes.c_int * 2)(), 2, 4, CALLBACK(compare))  # LINE qsort


'''
CASES = '''\
first = model(1 << 20)  # LINE first
by_callback(2 << 20)  # LINE second
third = list(model(3 << 20) for _ in range(1))  # LINE third
'''
STORM = '''\
def recursive(n, size):
    return recursive(n - 1, size) if n else model(size)


def work(seed):
    cuda.cuCtxSetCurrent(context)
    held = []
    for i in range(150):
        held.append(recursive((seed + i) % 60, 4096 * (1 + i % 7)))
        if i % 3 == 0:
            try:
                raise ValueError(held.pop(0))
            except ValueError:
                pass
        if i % 10 == 0:
            exec(compile("\\n" * (i % 5) + "recursive(2, 512)", "<made %d>" % i, "exec"))
        if i % 50 == 0:
            gc.collect()


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
for n in range(5):
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
for t in threads:
    t.join()
stop = threading.Event()


def forever():
    cuda.cuCtxSetCurrent(context)
    stop.set()
    while True:
        model(1 << 16)


for n in range(2):
    threading.Thread(target=forever, daemon=True).start()
stop.wait()
late = type("Late", (), {"__del__": lambda self: None})()
last = model(5 << 20)
print("done")
'''


def interpreters():
    """Every CPython of 3.8 and later that is here, this one first."""
    found = {}
    names = [sys.executable, "/usr/bin/python3"] + glob.glob(os.path.expanduser("~/.pyenv/versions/3*/bin/python3"))
    for path in names:
        told = subprocess.run([path, "-c", "import ctypes, sys; print(sys.executable, *sys.version_info[:3])"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if told.returncode == 0:
            real, *version = told.stdout.split()
            found.setdefault(os.path.realpath(real), tuple(int(v) for v in version))
    return [(path, v) for path, v in found.items() if v >= (3, 8)]


def write(room, program):
    path = os.path.join(room.path, "host.py")
    with open(path, "w", encoding="utf-8") as script:
        script.write(program)
    lines = {}
    for number, line in enumerate(program.splitlines(), 1):
        if "# LINE " in line:
            lines[line.split("# LINE ")[1]] = number
    return path, lines


def told(frames):
    return [(os.path.basename(f["filename"]), f["line"], f["name"].split(".")[-1]) if f["python"] else "native"
            for f in frames]


def simple(frames):
    """Several native frames in a row as one; and without those between a class and its __init__, which a call may or
    may not have. Before 3.11 every call of a Python function has some."""
    return [f for i, f in enumerate(frames)
            if f != "native" or i == 0 or (frames[i - 1] != "native" and frames[i - 1][2] != "__init__")]


def lines_of_blocks(python, version):
    with Room() as room:
        program = HOST + CASES + "os._exit(0)\n"
        path, at = write(room, program)
        done = room.run([python, path], stack_depth=256)
        name = "Python %d.%d.%d: " % version
        if not check(name + "runs to its end", done.returncode == 0 and not done.stderr, tell(done)):
            return
        snapshots = room.snapshots("exit")
        if not check(name + "one snapshot", len(snapshots) == 1, room.files()):
            return
        line = lambda where, function: ("host.py", at[where], function)   # noqa: E731
        inner = [line("alloc", "alloc"), line("init", "__init__"), line("model", "model")]
        wanted = {
            1 << 20: ["native"] + inner + [line("first", "<module>"), "native"],
            2 << 20: ["native"] + inner + [line("callback", "compare"), "native", line("qsort", "by_callback"),
                                           line("second", "<module>"), "native"],
            3 << 20: ["native"] + inner + [line("third", "<genexpr>"), "native", line("third", "<module>"), "native"],
        }
        for size, want in wanted.items():
            got = told(stack_of(snapshots[0], size))
            small = [f for f in got if f != "native"]
            check(name + "Python frames of the block of %d MiB" % (size >> 20), small == [f for f in want if f != "native"],
                  got)
            check(name + "native frames around them, %d MiB" % (size >> 20), got[:1] == got[-1:] == ["native"], got)
            if version >= (3, 11):
                check(name + "native frames where they belong, %d MiB" % (size >> 20), simple(got) == want, got)
        frames = stack_of(snapshots[0], 2 << 20)
        paths = [snapshots[0]["modules"][f["module"]]["path"] for f in frames]
        compare = next((i for i, f in enumerate(frames) if f["name"].endswith("compare")), 0)
        qsort = next((i for i, f in enumerate(frames) if f["name"].endswith("by_callback")), 0)
        check(name + "the C library's sort lies between the two", any("libc.so" in p for p in paths[compare:qsort]), paths)
        check(name + "no frame of the interpreter's loop is left",
              not any("EvalFrameDefault" in f["name"] for f in frames), [f["name"] for f in frames])


def options(python, version):
    for stacks, kinds in (("python", {True}), ("native", {False}), ("none", set()), ("all", {True, False})):
        with Room() as room:
            path, _ = write(room, HOST + CASES + "os._exit(0)\n")
            done = room.run([python, path], stacks=stacks)
            snapshots = room.snapshots("exit")
            name = "Python %d.%d, stacks:%s" % (version[:2] + (stacks,))
            if check(name + ": a snapshot", done.returncode == 0 and len(snapshots) == 1, tell(done)):
                frames = stack_of(snapshots[0], 1 << 20)
                check(name + ": those frames only", {f["python"] for f in frames} == kinds, told(frames))


def storm(python, version):
    with Room() as room:
        path, _ = write(room, HOST + STORM)
        for context in ("all", "alloc"):
            bare = room.run([python, "-W", "ignore", path], preload=False, timeout=60)
            ours = room.run([python, "-W", "ignore", path], timeout=60, context=context)
            check("Python %d.%d.%d: threads, forks, exceptions, daemon threads at the end" % version,
                  bare.returncode == 0 and same(bare, ours), tell(bare, ours))


def main():
    found = interpreters()
    for python, version in found:
        lines_of_blocks(python, version)
    options(*found[0])
    for python, version in found:
        storm(python, version)
    finish()


main()
