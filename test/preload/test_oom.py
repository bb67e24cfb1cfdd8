#!/usr/bin/env python3
"""Memory runs out: shown in the first and the last snapshots, told to observers, at a bounded price."""
import json
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import DRIVER, SCRIPT, TOO_MUCH, Play, behaves  # noqa: E402
from tap import GPUMEM, check, finish, live_bytes, tell  # noqa: E402


def numbers(room):
    return sorted(int(f.split("oom-")[1].split(".")[0]) for f in room.files() if "oom-" in f)


def shown(room):
    """Numbers of the failures that the files show, by file."""
    return [snapshot["failure"]["number"] for snapshot in sorted(room.snapshots("oom"), key=lambda s: s["time_us"])]


def the_last_one(name, room, number, live):
    """The newest OOM snapshot is of failure @number, with its stack, when @live bytes were live."""
    last = max(room.snapshots("oom"), key=lambda s: s["failure"]["number"], default={"failure": {"number": 0}})
    failure = last["failure"]
    check("%s: the last failure has a file" % name, failure["number"] == number, (number, shown(room)))
    # Names come later, from the helper: who dies of a signal at once may have them by symbolize alone.
    frames = [last["frames"][f] for f in last["stacks"][failure["stack"]]] if failure["number"] else []
    check("%s: with its stack" % name, [f for f in frames if f["name"] or f["offset"]], (failure, frames))
    if live is not None:
        check("%s: of that moment" % name, live_bytes(last) == live, live_bytes(last))


class Neighbours:
    """Programs that leave a tenth of one processor to what is started beside them, and no other processor."""

    def __enter__(self):
        self.processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(self.processors)})
        self.loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(9)]

    def __exit__(self, *_):
        for loop in self.loops:
            loop.kill()
            loop.wait()
        os.sched_setaffinity(0, self.processors)


def main():
    with Play() as room:
        run = behaves("one failure", room, "alloc 100", "alloc %d" % TOO_MUCH, "files oom 1", "alloc 1", "exit 0")
        check("one failure: the program gets the driver's error", "alloc: 2" in run.stdout, run.stdout)
        check("one failure: what was live then", room.live("oom") == [100], room.live("oom"))
        failure = room.snapshots("oom")[0]["failure"] if room.snapshots("oom") else {}
        check("one failure: the snapshot says what was asked", TOO_MUCH in failure.values() and
              "cuMemAlloc_v2" in failure.values(), failure)
        check("one failure: and the exit snapshot that there was one", room.snapshots("exit")[0]["devices"][0]
              ["memory_stats"]["num_ooms"] == 1)
    # More than there are files for: the first two stay, no more than four are there, the time is bounded.
    with Play() as room:
        run = behaves("a storm", room, "alloc 100", "fail_until oom-2. 1", "storm 5000", "exit 0")
        check("a storm: every call failed as it should", "failed: 5000\n" in run.stdout, run.stdout)
        check("a storm: the first two are kept", numbers(room)[:2] == [1, 2], numbers(room))
        check("a storm: no more than oom_snapshots files", len(numbers(room)) <= 4, numbers(room))
        check("a storm: all are counted", room.snapshots("exit")[0]["devices"][0]["memory_stats"]["num_ooms"] >= 5002)
    # The last ones replace each other: once the pause is over the next failure is shown.
    with Play() as room:
        words = ["alloc 100"]
        for i in range(6):
            words += ["fail_until oom-%d. 1" % (i + 1)]
        behaves("six, the pauses kept", room, *words, "exit 0")
        # The program looks for a file after each failure. On a busy machine there may be one more before it looks again.
        first, last = numbers(room)[:2], numbers(room)[2:]
        check("six, the pauses kept: the first two and the last two are there", first == [1, 2] and len(last) == 2 and
              6 <= last[1] == last[0] + 1 <= 12, numbers(room))
    with Play() as room:
        behaves("oom_snapshots:1", room, "alloc 1", "storm 100", "files oom 1", "exit 0", oom_snapshots=1)
        check("oom_snapshots:1: one file", len(numbers(room)) == 1, numbers(room))
    with Play() as room:
        behaves("oom_snapshots:0", room, "alloc 1", "storm 100", "exit 0", oom_snapshots=0)
        check("oom_snapshots:0: none", not numbers(room), numbers(room))
    with Play() as room:
        behaves("snapshot_on without oom", room, "alloc 1", "storm 100", "exit 0", snapshot_on="exit")
        check("snapshot_on without oom: none", not numbers(room) and room.live("exit") == [1], room.files())
    # A program probes, then fails for good, and ends at once: that failure is shown, as things were then.
    for end, status in (("exit 3", 3), ("_exit 3", 3), ("quick_exit 3", 3), ("return", 0), ("abort", -6), ("kill 11", -11),
                        ("kill 15", -15)):
        with Play() as room:
            words = ["alloc 100", "storm 12", "alloc 300", "storm 1", "free", "free"]
            run = room.script(*words, *([end] if end != "return" else []))
            check("probes, then %s: exit status" % end, run.returncode == status, tell(run))
            the_last_one("probes, then %s" % end, room, 13, 400)
            check("probes, then %s: the first one, too" % end, 1 in shown(room), shown(room))
    # Its copies are as many where other programs have most of the processor: their price is processor time.
    with Play() as room, Neighbours():
        run = room.script("alloc 100", "storm 12", "alloc 300", "storm 1", "free", "free", "exit 3")
        check("beside busy neighbours: exit status", run.returncode == 3, tell(run))
        the_last_one("beside busy neighbours", room, 13, 400)
    for kept in (1, 2, 3):
        with Play() as room:
            behaves("probes, %d files" % kept, room, "alloc 100", "storm 12", "exit 3", status=3, oom_snapshots=kept)
            the_last_one("probes, %d files" % kept, room, 12, 100)
            check("probes, %d files: no more" % kept, len(numbers(room)) <= kept, numbers(room))
    with Play() as room:
        behaves("no exit snapshot", room, "alloc 100", "storm 12", "exit 3", status=3, snapshot_on="oom")
        the_last_one("no exit snapshot", room, 12, 100)
    with Play() as room:
        behaves("a long storm", room, "alloc 100", "storm 5000", "alloc 300", "storm 1", "exit 3", status=3)
        the_last_one("a long storm", room, 5001, 400)
    # Of one that it does not survive the journal tells; gpumem run says where to look.
    for journal in (False, True):
        with Play() as room:
            words = [SCRIPT, "alloc 100"] + (["fail_until oom-2. 1", "sleep 50"] if journal else []) + ["storm 7", "kill 9"]
            env = room.env(preload=False, DRIVER=DRIVER, OUT=room.out, output=os.path.join(room.out, "gpumem.%c.%p.%r.json"))
            run = subprocess.run([GPUMEM, "run", "--", *words], env=env, cwd=room.out, capture_output=True, text=True, timeout=100)
            recovered, total = room.snapshots("recovered"), 0
            check("killed: recovered", len(recovered) == 1 and run.returncode == -9, (run, room.files()))
            for one in recovered:
                total = one["devices"][0]["memory_stats"]["num_ooms"]
            hint = run.stderr.split("look at it with: gpumem summary ")[-1].strip()
            with open(hint, encoding="utf-8") as text:
                failure = json.load(text)["failure"]
            check("killed: the hint is of the last failure", failure and failure["number"] == total >= 7, (run.stderr, failure))
    with Play() as room:
        run = behaves("observers", room, "observer early", "alloc 100", "alloc 200", "observer late", "observer late",
                      "alloc %d" % TOO_MUCH, "files oom 1", "exit 0")
        heard = [line for line in run.stdout.splitlines() if line.startswith("observer early:") or line.startswith("observer late:")]
        check("observers: each is called, with device and sizes", len(heard) == 3 and
              all("device 0 requested %d total known free less" % TOO_MUCH in line for line in heard), heard)
        check("observers: may free, which is recorded", room.live("exit") == [0], room.live("exit"))
    with Play() as room:
        behaves("many threads", room, "alloc 100", *(["detached", "storm 300", "end"] * 4), "storm 300", "files oom 1",
                "until_threads 2", "exit 0")
        check("many threads: no more than four files", 1 <= len(numbers(room)) <= 4, numbers(room))
        the_last_one("many threads", room, 1500, 100)
    finish()


main()
