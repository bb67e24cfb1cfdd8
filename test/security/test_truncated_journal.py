"""A journal that somebody cuts short while its program lives: the program does not notice, and SIGBUS of its own is as it was."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from other_user import journals, wait_for  # noqa: E402
from tap import B, Room, check, finish, same, tell  # noqa: E402
from verbs import has_allocated  # noqa: E402

DEMO = os.path.join(B, "test/apps/demo_app.static")


def calls(counts):
    with open(counts, "rb") as file:
        return file.read(1024)


# ---- in the midst of what many threads allocate and free -------------------------------------------------------------------
for allocator, length, options in (("caching", 0, {}), ("caching", 16384, {}), ("caching", 1 << 20, {}), ("caching", 0, {"snapshot_on": "none"}),
                                   ("native", 0, {}), ("native", 16384, {"snapshot_on": "none"})):
    with Room() as room:
        counts = os.path.join(room.path, "counts")
        with subprocess.Popen([DEMO, "--loop", "--threads", "4", "--count-file", counts], env=room.env(allocator=allocator, **options),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=room.path) as child:
            wait_for(lambda: has_allocated(counts))
            for path in journals(room.journals):
                os.truncate(path, length)
            was = []

            def goes_on():
                was.append(calls(counts))
                time.sleep(0.02)
                return child.poll() is not None or len(set(was)) > 12
            wait_for(goes_on)
            # What lies behind the new end may not have been touched: then it is not lost, and there is nothing to say.
            check("%s, cut to %d bytes%s: it goes on" % (allocator, length, ", no snapshots" if options else ""), child.poll() is None, child.poll())
            err = child.stderr.readline() if not length and child.poll() is None else ""    # by the helper thread, within a second or two
            child.send_signal(signal.SIGTERM)
            err += child.communicate(timeout=60)[1]
        check("%s, cut to %d bytes: said, and it ends as it would" % (allocator, length), child.returncode == -signal.SIGTERM and
              (length or "cut short" in err), (child.returncode, err))

# ---- whoever has a handler of his own ------------------------------------------------------------------------------------------
HOST = """
import ctypes, faulthandler, glob, mmap, os, signal, sys, tempfile
way, place = sys.argv[1:]
cuda, context, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
if way == "faulthandler":
    faulthandler.enable()
if way == "python":
    signal.signal(signal.SIGBUS, lambda *_: print("heard", flush=True))
if way == "ignored":
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
def use():
    for _ in range(100):
        assert not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20))
        assert not cuda.cuMemFree_v2(block)
use()
if way == "fork":
    child = os.fork()
    if child:
        print(os.waitpid(child, 0)[1] & 127, flush=True)
        os._exit(0)
    signal.alarm(20)
    cuda.cuInit(0)
    cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20))
for path in () if way == "fork" else glob.glob(place + "/**/*.journal", recursive=True):
    if way != "ignored":
        os.truncate(path, 0)
if way != "fork":
    use()
if way in ("python", "ignored"):
    os.kill(os.getpid(), signal.SIGBUS)
    print("after it", flush=True)
else:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        memory[0]
"""
for way in ("faulthandler", "python", "ignored", "default", "fork"):
    with Room() as room:
        command = [sys.executable, "-c", HOST, way, room.journals]
        alone, ours = room.run(command, preload=False), room.run(command, snapshot_on="none")
        ours.stderr = "".join(line for line in ours.stderr.splitlines(True) if not line.startswith("gpumem: "))
        for run in (alone, ours):           # numbers of threads and the like differ
            run.stderr = "\n".join(line for line in run.stderr.splitlines() if "0x" not in line)
        check("SIGBUS of the program's own, %s: as without us" % way, same(alone, ours) and (way in ("python", "ignored", "fork")) == (ours.returncode == 0),
              tell(alone, ours))

finish()
