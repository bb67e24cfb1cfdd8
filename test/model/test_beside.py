#!/usr/bin/env python3
# timeout: 1200
"""Another thread begins a capture before each driver call of the library (beside.c).

The capture may be lost, and the program's call may fail, only where the driver alone does the same. The test also fails
if a driver call that preload/ makes for itself was never made during a capture.
"""
import collections
import glob
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, "test")
from tap import B, Room, check, finish, journals_place, tell  # noqa: E402

BESIDE = os.path.join(B, "test/model/beside")
RULES = os.path.abspath("build/rules/libgpumem.so")
# In memory, because thousands of short programs would spend their time on files on a disk.
JOURNALS = tempfile.mkdtemp(prefix="gpumem-test-", dir=journals_place())
LEAN = {"GPUMEM_JOURNAL": JOURNALS, "snapshot_on": "none", "history": "4096", "stacks": "none",
        "FAKECUDA_RACE": "exit", "FAKECUDA_HANG": "exit"}

# Our own driver calls that cannot be made during a capture here, and why.
NEVER = {
    "cuDeviceGetCount": "at the library's start, in the first call of the process",
    "cuGetProcAddress": "at the library's start",
    "cuDeviceGetUuid": "of drivers that lack _v2",
    "cuDevicePrimaryCtxRelease": "of drivers that lack _v2",
    "cuGraphicsMapResources": "passed on, by a macro of hook_external.c",
    "cuGraphicsUnmapResources": "passed on, by the same",
    "cuGraphicsResourceGetMappedPointer_v2": "graphics: the driver without a GPU has none",
    "cuGraphicsSubResourceGetMappedArray": "graphics",
    "cuArray3DGetDescriptor_v2": "graphics",
    "cuIpcCloseMemHandle": "when our own table is full",
    "cuIpcGetMemHandle": "inside another hook (cache.c)",
    "cuPointerSetAttribute": "inside another hook",
    "cuMemGetAllocationPropertiesFromHandle": "of another process's handle",
    "cuCtxSynchronize": "passed on, by hook_order.c",
    "cuCtxSynchronize_v2": "passed on, by hook_order.c",
}


# These programs ask for an IPC handle, which memory in pages does not have (nor do PyTorch's expandable segments).
NO_IPC = ("imports", "questions")
ROWS = re.compile(r"^program (\w+): (\d+) calls, (\d+) runs, (\d+) failed$", re.M)


def own_calls():
    """The functions of the driver that preload/ calls outside the hook of that name, and where."""
    names = collections.defaultdict(list)
    for path in sorted(glob.glob("preload/*/*.c")):
        function = None
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                begins = re.match(r"[A-Za-z_].*?\b(\w+)\(", line)
                if begins and not line.startswith("#"):
                    function = begins.group(1)
                for name in re.findall(r"GM_(?:REAL\(|TRY\()(cu\w+)", line):
                    if name != function:
                        names[name].append("%s:%d" % (os.path.basename(path), number))
    return names


def enumerated(room, table, programs=(), **more):
    return room.run([BESIDE, table, *programs], timeout=550, LD_PRELOAD=RULES, **LEAN, **more)


def calls_beside(done):
    """The driver calls that the library made during a capture, and how often."""
    return dict(re.findall(r"^beside (\w+): (\d+)$", done.stdout, re.M))


def judge(done, heap=""):
    """Make a test for each program that was run. Return their names."""
    found = ROWS.findall(done.stdout)
    for name, calls, runs, failed in found:
        bad = re.findall(r"^failed: %s, .*$" % name, done.stdout, re.M)
        check("%s%s: %s calls, a capture before each, %s runs" % (heap, name, calls, runs), failed == "0" and int(calls) > 5,
              "%s %s" % (bad[:10], done.stderr[:600]))
    return [row[0] for row in found]


def main():
    with Room() as room:
        table = os.path.join(room.path, "table")
        done = room.run([BESIDE, table], preload=False, timeout=300, FAKECUDA_RACE="exit", FAKECUDA_HANG="exit")
        check("the programs are right without the library", done.returncode == 0, tell(done))
        done = enumerated(room, table)
        seen = calls_beside(done)
        programs = judge(done)
        check("all of it", done.returncode == 0 and programs, tell(done))
        for name in programs:
            if name not in NO_IPC:
                done = enumerated(room, table, [name, "some"], GPUMEM_CONF="expandable_segments:True")
                check("in pages, %s: all of it" % name, judge(done, "in pages, ") == [name] and done.returncode == 0, tell(done))
                seen.update(calls_beside(done))
        names = own_calls()
        print("# beside a capture: " + ", ".join("%s %s" % (n, seen[n]) for n in sorted(seen) if n in names))
        never = sorted(n for n in names if n not in seen and n not in NEVER)
        check("each of the library's own %d driver calls was beside one, but %d" % (len(names), len(NEVER)), not never,
              ["%s (%s)" % (n, ", ".join(names[n])) for n in never])
        check("what is left out is made", all(n in names and n not in seen for n in NEVER),
              [n for n in NEVER if n not in names or n in seen])
        for rule, program in (("capture-relaxed", "flush"), ("capture-events", "seal_deferred")):
            done = enumerated(room, table, [program], GM_TEST_OFF=rule)
            check("without %s: %s loses captures" % (rule, program), done.returncode == 1, tell(done))
    shutil.rmtree(JOURNALS, ignore_errors=True)
    finish()


main()
