"""gpumem check --no-leaks with a baseline: what lived in another snapshot or at an annotation is no leak. And in every verb that cuts
rows: how many, and a command that shows them."""
import json
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem  # noqa: E402

# A program whose weights live to its end, and which leaks as many blocks of its steps as it is told.
MODEL = """
import ctypes, sys
cuda, here = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context = ctypes.c_void_p()
cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
def get(size):
    at = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size))
    return at
def load():
    return [get(1 << 20) for _ in range(5)]
def step():
    return get(3 << 20)
here.gpumem_range_start.restype = ctypes.c_int64
def within(name, what):
    number = ctypes.c_int64(here.gpumem_range_start(name))
    got = what()
    here.gpumem_range_end(number)
    return got
weights = within(b"load", load)
here.gpumem_annotate(b"loaded")
whole = here.gpumem_range_start(b"training")
for n in range(10):
    kept = within(b"step", step)
    if n >= int(sys.argv[1]):
        cuda.cuMemFree_v2(kept)
here.gpumem_annotate(b"trained")
"""

with Room() as room:
    program = os.path.join(room.path, "model.py")
    with open(program, "w", encoding="utf-8") as out:
        out.write(MODEL)

    def ran(leaks):
        path = os.path.join(room.path, "%d.json" % leaks)
        done = room.run([sys.executable, program, str(leaks)], snapshot_on="exit", output=path)
        return path if not done.returncode and os.path.exists(path) else sys.exit("no snapshot: %s" % done)

    clean, leaky = ran(0), ran(2)
    run = gpumem("check", "--no-leaks", clean)
    check("without a baseline weights are leaks", run.returncode == 1 and "leaks: 5.00 MiB in 5 blocks\n" in run.stdout, run)
    for what in (clean, "loaded", "load"):      # a snapshot, a mark, a range: its end counts
        name = os.path.basename(what)
        run = gpumem("check", "--no-leaks", "--baseline", what, clean)
        check("baseline %s: they are none" % name, run.returncode == 0 and run.stdout == clean + ": within its limits\n", run)
        run = gpumem("check", "--no-leaks", "--baseline", what, leaky)
        check("baseline %s: what leaks besides is one, with who" % name, run.returncode == 1 and "leaks: 6.00 MiB in 2 blocks beyond the baseline\n" in run.stdout and
              re.search(r"^  6\.00 MiB in 2 blocks, 6\.00 MiB of them beyond the baseline \(device\)\n( +.*\n)* +step \(\S*model\.py:\d+\)", run.stdout, re.M) and
              "load (" not in run.stdout, run)
        run = gpumem("check", "--no-leaks", "--json", "--baseline", what, leaky)
        offence = json.loads(run.stdout)["offences"][0]
        check("baseline %s: as JSON" % name, (offence["value"], offence["blocks"]) == (6 << 20, 2), offence)
    run = gpumem("check", "--no-leaks", "--baseline", "trained", leaky)
    check("an annotation at the end: all lived then", run.returncode == 0, run)
    run = gpumem("check", "--no-leaks", "--baseline", "step", leaky)
    check("of several ranges the end of the last: all lived then", run.returncode == 0, run)
    run = gpumem("check", "--no-leaks", "--baseline", "training", clean)
    check("a range that had not ended: exit 3", run.returncode == 3 and "the range 'training' had not ended" in run.stderr and not run.stdout, run)
    run = gpumem("check", "--max-stack", "4MiB", "--baseline", "loaded", leaky)
    check("--max-stack counts all that a stack holds", run.returncode == 1 and "stack 6.00 MiB, allowed: 4.00 MiB" in run.stdout and "load (" in run.stdout, run)
    run = gpumem("check", "--no-leaks", "--baseline", "unloaded", clean)
    check("neither a file nor an annotation: exit 3", run.returncode == 3 and "no annotation is called 'unloaded'" in run.stderr and not run.stdout, run)
    with open(os.path.join(room.path, "broken"), "w", encoding="utf-8") as out:
        out.write("{")
    run = gpumem("check", "--no-leaks", "--baseline", out.name, clean)
    check("a baseline that cannot be read: exit 3", run.returncode == 3 and not run.stdout, run)

    # ---- rows that are cut ------------------------------------------------------------------------------------------------
    with open(program, "w", encoding="utf-8") as out:
        out.write(MODEL.split("weights")[0] + "".join("def f%d():\n    return get(%d << 10)\n" % (n, 100 + n) for n in range(60)) +
                  "kept = []\n" +
                  "".join("r = here.gpumem_range_start(b'range %d'); kept.append(f%d()); here.gpumem_range_end(ctypes.c_int64(r))\n" % (n, n) for n in range(60)))
    path = os.path.join(room.path, "many.json")
    room.run([sys.executable, program], snapshot_on="exit", output=path)
    os.rename(path, os.path.join(room.path, "it's many.json"))
    odd = "it's many.json"
    for words, row in ((["summary"], r" f\d+ \("), (["summary", "--full"], r" f\d+ \("), (["summary", "--by", "annotation"], r"range \d+$"), (["summary", "--by", "stack"], r"^ {41}f\d+ \("),
                       (["leaks", "--device", "0"], r"^ +f\d+ \("), (["merge"], r" f\d+ \("), (["check", "--no-leaks"], r"^ +f\d+ \(")):
        run = gpumem(*words, odd, cwd=room.path)
        hint = re.search(r"^\.\.\. and (\d+) more \w+: (gpumem .*)$", run.stdout, re.M)
        shown = len(re.findall(row, run.stdout, re.M))
        check("%s: how many are left out" % " ".join(words), hint and shown and shown + int(hint.group(1)) == 60, (shown, run.stdout))
        done = subprocess.run([GPUMEM, *shlex.split(hint.group(2))[1:]] if hint else ["false"], capture_output=True, text=True, check=False, cwd=room.path)
        check("%s: the hint is a command that shows them" % " ".join(words), len(re.findall(row, done.stdout, re.M)) == 60 and "... and" not in done.stdout and
              done.returncode == run.returncode, done)
        check("%s: within 80 columns" % " ".join(words), hint and len(hint.group(0)) <= 80, hint)
    run = gpumem("leaks", "--top", "3", "--all", odd, cwd=room.path)
    check("--all is more than --top", "... and" not in run.stdout, run.stdout)
    run = gpumem("leaks", "./" * 40 + odd, cwd=room.path)
    check("a command that is too long is not printed", "... and 40 more stacks: the same with --all\n" in run.stdout, run.stdout[-200:])

# ---- the peak of what the program held, however long the GPU uses what was freed -----------------------------------------
WAITS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
def get(size):
    at = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size))
    return at
kept = get(1000)
cuda.cuStreamCreate(ctypes.byref(stream), 1)
cuda.cuStreamBeginCapture_v2(stream, 2)         # the cache cannot ask the GPU what it is done with
for n in range(5):
    assert not cuda.cuMemFree_v2(get(40 << 20))
"""
for options, slack in (({}, 0), ({"exit_history": 3}, 2 << 20), ({"history": 0}, 2 << 20), ({"allocator": "native"}, 0)):
    with Room() as room:
        run = room.run([sys.executable, "-c", WAITS], free="deferred", output=room.out + "/waits.json", **options)
        path, held = room.out + "/waits.json", (40 << 20) + 1000
        summary = gpumem("summary", path).stdout
        shown = re.search(r"peak (\S+) MiB", summary)
        check("waits, %s: the peak of summary has what the GPU may use" % options, run.returncode == 0 and shown and
              abs(float(shown.group(1)) - (40 if options.get("allocator") else 200)) < 0.1, (run, summary))
        within, over = gpumem("check", "--max-peak", str(held + slack), path), gpumem("check", "--max-peak", str(held - 1), path)
        check("waits, %s: check's has what the program held" % options, within.returncode == 0 and over.returncode == 1, (within, over))
        check("waits, %s: and it says so where they differ" % options, ("with freed blocks that the GPU still used" in over.stdout) == (not options.get("allocator")) and
              (slack or "device 0: peak 40.00 MiB" in over.stdout), over)
        check("waits, %s: as JSON, too" % options, slack or '"value": %d' % held in gpumem("check", "--json", "--max-peak", str(held - 1), path).stdout)
finish()
