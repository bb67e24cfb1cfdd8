#!/usr/bin/env python3
"""Memory runs out: shown in the first and the last snapshots, told to observers, at a bounded price."""
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import TOO_MUCH, Play, behaves  # noqa: E402
from tap import check, finish  # noqa: E402


def numbers(room):
    return sorted(int(f.split("oom-")[1].split(".")[0]) for f in room.files() if "oom-" in f)


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
        check("six, the pauses kept: the first two and the last two are there", numbers(room) == [1, 2, 5, 6], numbers(room))
    with Play() as room:
        behaves("oom_snapshots:1", room, "alloc 1", "storm 100", "files oom 1", "exit 0", oom_snapshots=1)
        check("oom_snapshots:1: one file", numbers(room) == [1], numbers(room))
    with Play() as room:
        behaves("oom_snapshots:0", room, "alloc 1", "storm 100", "exit 0", oom_snapshots=0)
        check("oom_snapshots:0: none", not numbers(room), numbers(room))
    with Play() as room:
        behaves("snapshot_on without oom", room, "alloc 1", "storm 100", "exit 0", snapshot_on="exit")
        check("snapshot_on without oom: none", not numbers(room) and room.live("exit") == [1], room.files())
    with Play() as room:
        run = behaves("observers", room, "observer early", "alloc 100", "alloc 200", "observer late", "observer late",
                      "alloc %d" % TOO_MUCH, "files oom 1", "exit 0")
        heard = [line for line in run.stdout.splitlines() if line.startswith("observer early:") or line.startswith("observer late:")]
        check("observers: each is called, with device and sizes", len(heard) == 3 and
              all("device 0 requested %d total known free less" % TOO_MUCH in line for line in heard), heard)
        check("observers: may free, which is recorded", room.live("exit") == [0], room.live("exit"))
    with Play() as room:
        behaves("many threads", room, "alloc 100", *(["detached", "storm 300", "end"] * 4), "storm 300", "files oom 1",
                "sleep 300", "exit 0")
        check("many threads: no more than four files", 1 <= len(numbers(room)) <= 4, numbers(room))
    finish()


main()
