#!/usr/bin/env python3
"""NVTX: a program's marks and ranges are annotations of its snapshot, and the program cannot tell."""
import os
import sys

sys.path.insert(0, "test")
from tap import B, LIBRARY, Room, check, finish, same, tell  # noqa: E402

NVTX = os.path.join(B, "test/preload/nvtx")
TOOL = os.path.join(B, "test/preload/libnvtxtool.so")


def annotations(room):
    found = room.snapshots("exit")
    return found[0]["annotations"] if len(found) == 1 else []


def lines(found):
    return [(a["stage"], a["name"], a["domain"]) for a in found]


def story():
    with Room() as room:
        bare = room.run([NVTX, "story"], preload=False)
        ours = room.run([NVTX, "story"])
        check("story: same output and status", same(bare, ours) and ours.returncode == 0, tell(bare, ours))
        found = annotations(room)
        want = [("MARK", "mark", None), ("MARK", "\u00fcn\u0457code \u20ac \U0001d11e", None),
                ("START", "outer", None), ("START", "inner", None), ("END", "inner", None), ("END", "outer", None),
                ("START", "one", None), ("START", "two", None), ("END", "one", None), ("END", "two", None),
                ("START", "step", "solver"), ("START", "common", None), ("START", "plain in a domain", "l\u00f6ser"),
                ("END", "step", "solver"), ("END", "common", None), ("END", "plain in a domain", "l\u00f6ser"),
                ("MARK", "plain in a domain", "solver"), ("MARK", "", None),
                ("START", "step", "solver"), ("END", "step", "solver")]
        check("story: what was said, as it was said, in order; nothing from before the first CUDA call",
              lines(found)[:len(want)] == want, lines(found)[:len(want) + 2])
        rest = lines(found)[len(want):]
        check("story: 64 deep, and no deeper", rest[:128] == [("START", "deep", None)] * 64 + [("END", "deep", None)] * 64, rest[:130])
        check("story: no text is a text of nothing; what is open has no end",
              rest[128:] == [("START", "", None), ("END", "", None), ("START", "open at the end", None)], rest[128:])
        snapshot = room.snapshots("exit")[0]
        check("story: those too deep are counted", snapshot["history"]["annotations_lost"] == 6, snapshot["history"])
        ends = {a["name"]: a for a in found if a["stage"] == "END" and a["name"] in ("one", "two")}
        starts = {a["name"]: a for a in found if a["stage"] == "START" and a["name"] in ("one", "two")}
        check("story: ranges that do not nest have numbers of their own", starts["one"]["range"] != starts["two"]["range"] and
              all(starts[n]["range"] == ends[n]["range"] > 0 for n in ends), (starts, ends))
        check("story: whose end may be another thread's", starts["one"]["thread"] != ends["one"]["thread"] and
              starts["two"]["thread"] == ends["two"]["thread"], ends)
        check("story: with device and rising times", all(a["device"] == 0 for a in found) and
              [a["time_us"] for a in found] == sorted(a["time_us"] for a in found))
        trace = snapshot["device_traces"][0]["action"]
        check("story: they are events of the trace", trace.count("annotate") == len(found), trace.count("annotate"))


def garbage():
    with Room() as room:
        bare = room.run([NVTX, "garbage"], preload=False)
        ours = room.run([NVTX, "garbage"])
        check("handles that NVTX never gave: same output and status", same(bare, ours) and ours.stdout == "done\n", tell(bare, ours))
        check("handles that NVTX never gave: texts of nothing", lines(annotations(room)) == [
            ("MARK", "", None), ("START", "", None), ("END", "", None), ("START", "", None), ("END", "", None)] * 8 +
            [("MARK", "after them", None)], lines(annotations(room)))


def finding():
    with Room() as room:
        bare = room.run([NVTX, "nocuda"], preload=False)
        ours = room.run([NVTX, "nocuda"])
        env = [line for line in ours.stdout.splitlines() if not line.startswith(("GPUMEM_", "LD_PRELOAD="))]
        check("never a CUDA call: same output, same environment, nothing written", env == bare.stdout.splitlines() and
              "NVTX" not in ours.stdout and not ours.stderr and not room.files() and not room.journal_files(), tell(bare, ours))
    with Room() as room:
        room.run([NVTX, "story"], nvtx="no")
        check("nvtx:no: no annotations", room.snapshots("exit") and annotations(room) == [], annotations(room)[:3])
    with Room() as room:
        room.run([NVTX, "story"], GPUMEM_CONF="nvtx:no")
        check("nvtx:no in GPUMEM_CONF: no annotations", room.snapshots("exit") and annotations(room) == [], annotations(room)[:3])
    with Room() as room:
        run = room.run([NVTX, "story"], NVTX_INJECTION64_PATH=TOOL)
        check("another tool's variable is left alone", run.stdout.startswith("the other tool: attached\n") and
              annotations(room) == [] and room.snapshots("exit"), tell(run))
    with Room() as room:
        run = room.run([NVTX, "story"], NVTX_INJECTION64_PATH=LIBRARY, nvtx="no")
        check("nvtx:no, and the variable says us: no annotations", run.returncode == 0 and annotations(room) == [] and
              room.snapshots("exit"), tell(run))
    with Room() as room:
        run = room.run([NVTX, "story"], preload=False, NVTX_INJECTION64_PATH=LIBRARY)
        check("loaded by NVTX alone: in nobody's way", run.returncode == 0 and not run.stderr and not room.files(), tell(run))


def share():
    with Room() as room:
        run = room.run([NVTX, "flood", "200000"], history="10000")
        snapshot = room.snapshots("exit")[0]
        history = snapshot["history"]
        check("a flood: has a share of the history, the rest is counted", run.returncode == 0 and
              0 < len(snapshot["annotations"]) < 4000 and history["annotations_lost"] > 190000, (tell(run), history))
        stages = [a["stage"] for a in snapshot["annotations"]]
        check("a flood: begins and ends in pairs", stages == ["START", "END"] * (len(stages) // 2), len(stages))
        check("a flood: the allocations are all there", snapshot["device_traces"][0]["action"].count("alloc") == 2)
    with Room() as room:
        run = room.run([NVTX, "story"], history_enabled="state")
        check("without events: none, and they are counted", run.returncode == 0 and annotations(room) == [] and
              room.snapshots("exit")[0]["history"]["paused"] > 0, tell(run))
    with Room() as room:
        run = room.run([NVTX, "child"])
        check("a fork: what the parent began is the parent's to end", run.returncode == 0 and lines(annotations(room)) ==
              [("START", "of the parent", None), ("START", "started by the parent", None), ("END", "of the parent", None),
               ("END", "started by the parent", None)], (tell(run), lines(annotations(room))))


def main():
    with Room() as room:
        if room.run([NVTX, "nocuda"], preload=False).returncode == 77:
            print("ok 1 - NVTX # SKIP the toolkit has no nvtx3/nvToolsExt.h")
            print("1..1")
            return
    story()
    garbage()
    finding()
    share()
    finish()


main()
