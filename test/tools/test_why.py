"""Why memory ran out: a matrix of scenes, each a program with one of the usual troubles, and what gpumem summary must say of
it, in this order: who asked, who holds the most and whether that only grows, what lies idle, and what would have served it.
Settings that are named are set, and the program is run again with them: it must be served. (A pool's: test_summary_pool.py.)
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import GPUMEM, Room, check, finish, tell  # noqa: E402
from verbs import gpumem  # noqa: E402

HEAD = """
import ctypes
from pool_user import *

def try_malloc(size):
    address = u64()
    return None if cuda.cuMemAlloc_v2(ctypes.byref(address), size_t(size)) else address.value

def get(size):
    address = try_malloc(size)
    if address is None:
        sys.exit("no memory for %d" % size)
    return address

KiB, MiB = 1 << 10, 1 << 20
context(DEVICE)

def begin():            # a second call site, so that get() is passed over as the program's own allocation function
    return get(4 * KiB)
begun = begin()
"""
LEAK = """
kept = []
def scratch(size):
    return get(size)
def request(i):
    a, b = get(256 * KiB), get(256 * KiB)
    c = scratch(SIZE)
    free(a)
    free(b)
    if i % 3:
        free(c)
    else:
        kept.append(c)
for i in range(100000):
    request(i)
"""
GROWS = """
def load(i):
    return get(SIZE)
kept = [load(i) for i in range(100000)]
"""
FITS = """
def load(i):
    return get(7 * MiB)
kept = [load(i) for i in range(30)]
"""
ROUNDED = """
def load(i):
    return get(SIZE)
kept = [load(i) for i in range(22)]
"""
HOLES = """
def fill():
    found = []
    while len(found) < 24:
        found.append(get(9 * MiB))
    return found
blocks = fill()
for block in blocks[::2]:
    free(block)
def big():
    return get(64 * MiB)
big()
"""
HUGE = """
def small():
    return get(4 * MiB)
kept = small()
def huge():
    return get(SIZE)
huge()
"""
PINS = """
def buffers(count):
    return [ctypes.c_void_p() for i in range(count)]
def load():
    for address in kept:
        must(cuda.cuMemHostAlloc(ctypes.byref(address), size_t(4 * MiB), 0))
def batch():
    must(cuda.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), size_t(64 * MiB), 0))
kept = buffers(7)
load()
batch()
"""
PINS_MORE = """
def stage(address, size):
    must(cuda.cuMemHostAlloc(ctypes.byref(address), size_t(size), 0))
def keep(address):
    stage(address, MiB)
def once():
    passing = ctypes.c_void_p()
    stage(passing, 4 * KiB)
    must(cuda.cuMemFreeHost(passing))
for address in [ctypes.c_void_p() for i in range(100)]:
    once()
    keep(address)
"""
CAPTURES = """
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
must(cuda.cuStreamCreate(ctypes.byref(stream), 1))
def load():
    return get(40 * MiB)
blocks = [load() for i in range(6)]
must(cuda.cuStreamBeginCapture_v2(stream, 2))
for block in blocks[:4]:
    free(block)
def step():
    return get(100 * MiB)
step()
"""
ANY = r"[\s\S]*"
# name: (program, its SIZE, options, cause, what is said, what is not)
SCENES = {
    "a leak of small blocks": (LEAK, "768 * KiB", {}, "leak",
                               r"^scratch \(scene\.py:\d+\) asked for 768\.00 KiB .* too little\. scratch \(scene\.py:\d+\) held \S+ MiB in \d+ blocks and "
                               r"grows without end.* lay idle in the cache\.\nFree what scratch", "fragmentation|GPUMEM_CONF|replay"),
    "a leak of large blocks": (LEAK, "11 * MiB", {}, "leak", r"scratch \(scene\.py:\d+\) held \S+ MiB in \d+ blocks and grows without end", "fragmentation|GPUMEM_CONF"),
    "a leak without the cache": (LEAK, "768 * KiB", {"allocator": "native"}, "leak", r"scratch \(scene\.py:\d+\) held .* grows without end", "idle|fragmentation"),
    "a program that fills the device": (GROWS, "4 * MiB", {}, "full", r"^load \(scene\.py:\d+\) asked for 4\.00 MiB .* load \(scene\.py:\d+\) held \S+ MiB in \d+ blocks, and freed none: a leak, unless the program needs them all\.",
                                        "without end|fragmentation"),
    "sizes that are rounded up": (ROUNDED, "11 * MiB", {}, "full",
                                  r"The program itself held \S+ MiB, of which 2\d\.00 MiB is rounding: .* load \(scene\.py:\d+\) held .*\n"
                                  r"Replayed with GPUMEM_CONF=expandable_segments:True, the run would have fitted.*Free earlier", "fragmentation"),
    "many small ones": (GROWS, "4 * KiB", {"FAKECUDA_CAPACITY": "24MiB"}, "full", r"load \(scene\.py:\d+\) held \S+ MiB in \d+ blocks, and freed none", "without end"),
    "a limit": (GROWS, "4 * MiB", {"memory_limit": "64MiB"}, "limit", r"refused by a limit that was set for this process, option memory_limit", "fragmentation|nvidia-smi"),
    "one huge request": (HUGE, "253 * MiB", {}, "large", r"^huge \(scene\.py:\d+\) asked for 253\.00 MiB" + ANY + "That one request is more than all", r"small \(|fragmentation|leak"),
    "more than there is": (HUGE, "900 * MiB", {}, "too_large", r"^huge .* more than the whole device has", "fragmentation|leak"),
    "another process": (HUGE, "100 * MiB", {"FAKECUDA_OTHER_BYTES": "180M"}, "others", r"^huge .* were held by others, which are not recorded" + ANY + "nvidia-smi", "fragmentation|leak"),
    # With a bound on shared segments, the default, these holes are served: SERVED.
    "holes in shared segments": (HOLES, "0", {"shared_segments": "1"}, "fragmented",
                                 r"^big \(scene\.py:\d+\) asked for 64\.00 MiB .* too little, while 1\d\d\.\d\d MiB lay idle in the cache in pieces that are too small "
                                 r"\(the largest: \d+\.\d\d MiB\): fragmentation\.\nReplayed with GPUMEM_CONF=expandable_segments:True, the run would have fitted.*"
                                 r"\(GPUMEM_CONF=allocator:native\) it fits", "without end|leak|nvidia-smi|pinned"),
    "pinned memory": (PINS, "0", {"FAKECUDA_FAIL": "cuMemHostAlloc:7:1:2"}, "host",
                      r"^batch \(scene\.py:\d+\) asked for 64\.00 MiB of pinned host memory, and the driver refused it\. Pinned memory is memory of the machine, "
                      r"so the device is not at fault \(25\d\.00 MiB of its 256\.00 MiB were free\)\. The program itself held 28\.00 MiB of pinned memory\.\n"
                      r"load \(scene\.py:\d+\) held the most, 28\.00 MiB in 7 blocks\. Look at the machine's free memory .*memory\.max .*ulimit -l",
                      "lacking|too little|fragmentation|leak|nvidia-smi|GPUMEM_CONF"),
    "pinned memory that grows": (PINS_MORE, "0", {"FAKECUDA_FAIL": "cuMemHostAlloc:101:1:2"}, "host",
                                 r"^keep .* asked for 1\.00 MiB of pinned host memory, and the driver refused it\..* keep \(scene\.py:\d+\) held 50\.00 MiB in 50 blocks and grows without end",
                                 "stage|held the most|too little|fragmentation"),
    # In relaxed mode the driver allows cudaMalloc. In the others it refuses the call, whatever memory there is.
    "capture": (CAPTURES, "0", {"free": "deferred"}, "pending",
                r"^step \(scene\.py:\d+\) asked for 100\.00 MiB .* while 160\.00 MiB were freed and not yet reusable, since the GPU may have been using them.* A "
                r"stream was capturing a graph, and during a capture the library cannot ask the GPU whether it still uses memory.*\nBefore the capture begins, free what the graph does not need",
                "Synchronise before large|fragmentation|leak|nvidia-smi"),
    "another device": (LEAK, "768 * KiB", {"FAKECUDA_DEVICES": "2", "on": 1}, "leak", r" on device 1, where .* grows without end", "device 0"),
}


# What idles in pieces of our cache is no reason any more to refuse what the driver alone would serve.
SERVED = {"what fits without our cache": FITS, "holes": HOLES}


def run(room, program, size, **options):
    device = options.pop("on", 0)
    path = os.path.join(room.path, "scene.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD.replace("DEVICE", str(device)) + program.replace("SIZE", size))
    env = room.env(PYTHONPATH=os.path.abspath("test/preload/programs"), **{"FAKECUDA_CAPACITY": "256MiB", "output": room.out + "/%r.json", **options})
    return room.run([sys.executable, path], env=env)


for name, (program, size, options, cause, says, never) in SCENES.items():
    with Room() as room:
        told = run(room, program, size, **options)
        path = os.path.join(room.out, "oom-1.json")
        if not check("%s: the program runs out of memory" % name, told.returncode == 1 and os.path.exists(path), tell(told)):
            continue
        found = json.loads(gpumem("summary", "--json", path).stdout)["explanation"]
        text = found["why"] + "\n" + found["change"]
        check("%s: %s" % (name, cause), found["cause"] == cause, found)
        check("%s: what it says" % name, re.search(says, text), found)
        check("%s: what it does not say" % name, not re.search(never, text), found)
        shown = " ".join(gpumem("summary", path).stdout.split())
        check("%s: the text says the same" % name, " ".join(text.split()) in shown, shown)
        for setting in re.findall(r"GPUMEM_CONF=([^\s),]+)", text):
            again = run(room, program, size, **dict(options, GPUMEM_CONF=setting))
            check("%s: with %s it is served" % (name, setting), again.returncode == 0, tell(again))
with Room() as room:            # what the other verbs say of pinned memory that was refused
    path = os.path.join(room.path, "scene.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD.replace("DEVICE", "0") + PINS)
    env = room.env(preload=False, PYTHONPATH=os.path.abspath("test/preload/programs"), FAKECUDA_FAIL="cuMemHostAlloc:7:1:2")
    told = room.run([GPUMEM, "run", "-o", room.out + "/%r.json", sys.executable, path], env=env)
    check("pinned memory: gpumem run says that memory ran out and shows the snapshot of that moment",
          re.search(r"out of memory 1 time: \S+/exit\.json\n.* gpumem summary \S+/oom-1\.json", told.stderr), tell(told))
    end = os.path.join(room.out, "exit.json")
    limited, allowed = gpumem("check", "--max-ooms", "0", end), gpumem("check", "--max-ooms", "1", end)
    check("pinned memory: gpumem check counts it", limited.returncode == 1 and re.search("pinned host memory.*ooms", limited.stdout) and allowed.returncode == 0, tell(limited))
    check("pinned memory: --device host explains it, --device 0 has nothing to explain",
          "why memory ran out" in gpumem("summary", "--device", "host", end).stdout and "why memory ran out" not in gpumem("summary", "--device", "0", end).stdout)
WAITS = CAPTURES[:CAPTURES.index("def step")] + "print(os.getpid(), flush=True)\ninput()\n"
with Room() as room:            # freed blocks that the GPU may still use are live in no verb
    path = os.path.join(room.path, "scene.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("import os\n" + HEAD.replace("DEVICE", "0") + WAITS)
    env = room.env(PYTHONPATH=os.path.abspath("test/preload/programs"), FAKECUDA_CAPACITY="256MiB", free="deferred")
    with subprocess.Popen([sys.executable, path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        pid = program.stdout.readline().strip()
        top = json.loads(gpumem("top", "--json", "--once", pid).stdout)["processes"][0]["devices"][0]
        text = gpumem("summary", pid).stdout
        program.kill()
    listed = gpumem("recover", "--keep", "-o", room.out + "/dead.json", *room.journal_files())
    check("freed blocks that the GPU may use: top counts them as pending and not as live", (top["live_bytes"], top["pending_bytes"]) ==
          (80 * 1024 * 1024 + 4096, 160 * 1024 * 1024), top)
    check("freed blocks that the GPU may use: summary says so", "live 80.00 MiB in 3 blocks" in text and "160.00 MiB waiting for the GPU" in text, text)
    check("freed blocks that the GPU may use: recover has the same", "80.00 MiB live in 3 blocks" in listed.stdout + listed.stderr, tell(listed))
for name, program in SERVED.items():
    with Room() as room:
        told = run(room, program, "0")
        check("%s: it is served" % name, told.returncode == 0 and not os.path.exists(os.path.join(room.out, "oom-1.json")), tell(told))
finish()
