#!/usr/bin/env python3
# timeout: 600
"""Hunts for deadlocks: threads that allocate without pause while libraries come and go, the process forks, exceptions
fly, signals arrive, threads end or are cancelled, and others look in from outside; then all of it at once.

A program that does not end is a hang: what each of its threads did is printed. GM_STORM_SECONDS is for how long each
storm rages (default 2); words after the script's name choose among its storms. All runs but one are with the default
options.
"""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from tap import B, GPUMEM, LIBRARY, POINTS, Room, check, finish  # noqa: E402
from watch import Meanwhile, Watched  # noqa: E402

SECONDS = int(os.environ.get("GM_STORM_SECONDS", "2"))
LATE = 90           # a machine may be slow: only a program that comes that much too late hangs
THREADS = 8
STORM = os.path.join(B, "test/preload/storm")
MODES = ("load", "fork", "throw", "signal", "thread", "cancel")
total = {"storms": 0, "hangs": 0, "calls": 0}


def tail(text, count=12000):
    return text if len(text) <= count else "... " + text[-count:]


def tell_hang(name, watched):
    total["hangs"] += 1
    for line in watched.hung.splitlines():
        print("# %s: %s" % (name, line))


class Reaper:
    """Snapshots of a storm are read as they come, and removed: many and large."""

    def __init__(self, room):
        self.room, self.seen = room, 0

    def __call__(self):
        wrong = None
        for name in self.room.files():
            if not name.endswith(".json") or ".exit." in name:
                continue
            path = os.path.join(self.room.out, name)
            try:
                with open(path, encoding="utf-8") as text:
                    snapshot = json.load(text)
                os.unlink(path)
            except FileNotFoundError:   # gpumem snapshot -o took it away
                continue
            sums = [sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]]
            # One that went round a busy helper may not add up, and says so; it has no number.
            fine = all(sums) and snapshot["consistent"] or name.endswith(".outside.json")
            if not fine or ".signal-" not in name and ".outside" not in name:
                wrong = "%s: consistent %s, %d segments" % (name, snapshot["consistent"], len(sums))
            self.seen += 1
        return wrong


class Outsider:
    """gpumem snapshot PID and gpumem summary PID in turn."""

    def __init__(self, room, watched):
        self.room, self.watched, self.turn = room, watched, 0
        self.file = os.path.join(room.path, "outside.json")

    def __call__(self):
        self.turn += 1
        pid = str(self.watched.pid)
        words = [["snapshot", "-o", self.file, pid], ["summary", pid], ["snapshot", pid]][self.turn % 3]
        if os.path.exists(self.file):
            os.unlink(self.file)
        done = subprocess.run([GPUMEM] + words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=LATE, check=False)
        # What is asked for under another name has one that the reaper sees first: it may be quicker.
        if "-o" in words and "%s: No such file or directory" % pid in done.stderr:
            return None
        # It may have ended under our hands, which is no fault.
        if done.returncode == 0 or not self.watched.alive() or "allocations" in self.watched.out():
            return None
        return "%s: exit %d %s" % (words[0], done.returncode, done.stderr[-300:])


def counts(name, room, watched):
    """The statistics of the exit snapshot against the program's own counts, of calls that have returned."""
    try:
        own = json.loads(watched.out().splitlines()[-1])
    except (ValueError, IndexError):
        check("%s: it says what it did" % name, False, watched.out()[-500:] + watched.err()[-500:])
        return
    total["calls"] += own["allocations"] + own["frees"]
    taken = [s for s in room.snapshots("exit") if s["process"]["pid"] == watched.pid]
    if not check("%s: one snapshot at the end" % name, len(taken) == 1, room.files()):
        return
    stats = taken[0]["devices"][0]["memory_stats"]
    check("%s: %d allocations and %d frees, none missing" % (name, own["allocations"], own["frees"]),
          (stats["allocation.all.allocated"], stats["allocation.all.freed"]) == (own["allocations"], own["frees"]) and
          not sum(s["active_size"] for s in taken[0]["segments"]) and not taken[0]["history"]["operations_lost"], (own, stats))
    check("%s: nobody was cancelled inside a call" % name, own["inside"] == 0, own)
    print("# %s: %s" % (name, ", ".join("%d %s" % (n, word) for word, n in own.items() if n)))
    for mode, word in (("load", "loads"), ("fork", "children"), ("throw", "thrown"), ("signal", "signals"),
                       ("thread", "threads"), ("cancel", "cancelled")):
        if mode in name:
            check("%s: there was some of it" % name, own[word] > 0, own)


def libraries(room):
    for i in range(6):
        shutil.copy(os.path.join(B, "test/preload/libstorm.so"), os.path.join(room.path, "libstorm%d.so" % i))


def storm(modes, outside=False, **options):
    name = " and ".join(modes + (("outside",) if outside else ())) + "".join(", " + value for value in options.values())
    with Room() as room:
        libraries(room)
        reaper = Reaper(room)
        command = [STORM, str(SECONDS), str(THREADS), room.path] + list(modes)
        env = room.env(LD_PRELOAD=LIBRARY + ":" + POINTS, **options)
        with Watched(command, env, room.path) as watched, Meanwhile(reaper, 0.05) as snapshots:
            end = time.monotonic() + LATE
            while "storming" not in watched.out() and watched.alive() and time.monotonic() < end:
                time.sleep(0.01)
            if outside:
                with Meanwhile(Outsider(room, watched)) as looks:
                    status = watched.wait(SECONDS + LATE)
            else:
                status = watched.wait(SECONDS + LATE)
        total["storms"] += 1
        if watched.hung:
            tell_hang(name, watched)
        check("%s: it ends" % name, not watched.hung, "it hangs: see above")
        check("%s: without an error" % name, status == 0 and not watched.err(),
              (status, watched.out()[-500:], watched.err()[-500:]))
        if outside:
            check("%s: %d looks from outside, each answered" % (name, looks.turns), looks.turns and not looks.found,
                  looks.found[:3])
        if "signal" in modes or outside:
            check("%s: %d snapshots on the way, each sound" % (name, reaper.seen), reaper.seen and not snapshots.found,
                  snapshots.found[:3])
        if status == 0:
            counts(name, room, watched)
        left = [j for j in room.journal_files() if ".%d." % watched.pid in j]
        check("%s: no journal is left" % name, status != 0 or not left, left)


PYTHON = '''\
import ctypes, os, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
end = time.monotonic() + float(sys.argv[1])
WORK = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuCtxSetCurrent(ctypes.c_void_p(%d))

def some(n, depth):
    if depth:
        return some(n, depth - 1)
    pointer = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 + n))
    return pointer

class Kept:
    def __init__(self, n):
        self.pointer = some(n, n %% 20)
    def __del__(self):
        assert not cuda.cuMemFree_v2(self.pointer)

def work(count):
    kept, n = [], 0
    for n in range(count):
        kept.append(Kept(n))
        if n %% 16 == 15:
            try:
                raise ValueError(kept)
            except ValueError:
                kept = kept[8:]
    return n
""" % context.value
exec(WORK)
done = [0, 0, 0]


def worker():
    cuda.cuCtxSetCurrent(context)
    while time.monotonic() < end:
        done[0] += work(200)


def starter():
    while time.monotonic() < end:
        thread = threading.Thread(target=lambda: (cuda.cuCtxSetCurrent(context), work(5)))
        thread.start()
        thread.join()
        done[1] += 1


threads = [threading.Thread(target=worker) for _ in range(6)] + [threading.Thread(target=starter)]
try:
    import _interpreters as subs
    create = lambda: subs.create("legacy")
except ImportError:
    try:
        import _xxsubinterpreters as subs
        create = (lambda: subs.create(isolated=False)) if sys.version_info >= (3, 9) else subs.create
    except ImportError:
        subs = None
for thread in threads:
    thread.start()
while time.monotonic() < end:
    if subs and "--subs" in sys.argv:
        other = create()
        subs.run_string(other, WORK + "work(40)")
        subs.destroy(other)
        done[2] += 1
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
for thread in threads:
    thread.join()
print("worked %d, %d threads, %d interpreters" % tuple(done))
os._exit(0)
'''


def python(path, version):
    with Room() as room:
        script = os.path.join(room.path, "storm.py")
        with open(script, "w", encoding="utf-8") as text:
            text.write(PYTHON)
        for subs in (["--subs"], []):
            name = "Python %d.%d.%d, threads%s" % (*version, " and sub-interpreters" if subs else "")
            with Watched([path, "-W", "ignore", script, "0.5"] + subs, room.env(preload=False), room.path, "bare") as bare:
                if bare.wait(SECONDS + LATE) == 0:
                    break
            # Sub-interpreters with ctypes are more than some versions take: then threads alone.
            print("# %s: not even without the library: %s" % (name, bare.err()[-300:].replace("\n", " ")))
        with Watched([path, "-W", "ignore", script, str(SECONDS)] + subs, room.env(), room.path) as watched:
            status = watched.wait(SECONDS + LATE)
        total["storms"] += 1
        if watched.hung:
            tell_hang(name, watched)
        check("%s: it ends" % name, not watched.hung, "it hangs: see above")
        check("%s: without an error" % name, status == 0 and not watched.err() and "worked" in watched.out(),
              (status, watched.out()[-500:], watched.err()[-500:]))
        print("# %s: %s" % (name, watched.out()))
        taken = [s for s in room.snapshots("exit") if s["process"]["pid"] == watched.pid]
        named = taken and any(f["python"] and f["filename"].endswith("storm.py") for f in taken[0]["frames"])
        check("%s: a snapshot, with the lines of the script" % name, bool(named), room.files())


def pythons():
    sys.path.insert(0, "test/preload")
    found = {}
    for path in [sys.executable, "/usr/bin/python3"] + sorted(
            os.path.join(os.path.expanduser("~/.pyenv/versions"), v, "bin/python3")
            for v in (os.listdir(os.path.expanduser("~/.pyenv/versions"))
                      if os.path.isdir(os.path.expanduser("~/.pyenv/versions")) else [])):
        told = subprocess.run([path, "-c", "import ctypes, sys; print(*sys.version_info[:3])"], capture_output=True,
                              text=True, check=False) if os.path.exists(path) else None
        if told and told.returncode == 0:
            version = tuple(int(v) for v in told.stdout.split())
            if (3, 8) <= version < (3, 14):
                found.setdefault(version[:2], (path, version))
    return [found[v] for v in sorted(found)]


def watchdog():
    """A program that does hang is seen, and where."""
    with Room() as room:
        with Watched([STORM, "1", "1", room.path, "hang"], room.env(), room.path) as watched:
            watched.wait(4)
        told = watched.hung or ""
        sign = "storm_stuck" if shutil.which("gdb") else "State:"
        check("the watchdog sees a deadlock, and who waits where", told.count(sign) >= 2, tail(told, 1400))


def main():
    chosen = sys.argv[1:] or ["watchdog", *MODES, "outside", "all", "python"]
    if "watchdog" in chosen:
        watchdog()
    for mode in chosen:
        if mode in MODES:
            storm((mode,))
    if "outside" in chosen:
        storm((), outside=True)
    if "all" in chosen:
        storm(MODES, outside=True)
        storm(MODES, outside=True, allocator="native")      # every call goes on to the driver
    for path, version in pythons() if "python" in chosen else []:
        python(path, version)
    print("# %d storms of %d s, %d calls that returned, %d hangs" % (total["storms"], SECONDS, total["calls"],
                                                                    total["hangs"]))
    check("%d storms of %d s: no hang" % (total["storms"], SECONDS), total["hangs"] == 0, total)
    finish()


main()
