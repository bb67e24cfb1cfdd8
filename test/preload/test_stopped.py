#!/usr/bin/env python3
"""A process that is stopped now and then (Ctrl-Z, docker pause, a debugger), one that frees in a signal handler while its
thread is within the library, and one whose thread dies there: no free is lost, nobody waits for the dead again and again.
The clock of the programs is their own: no test takes as long as a stop.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, GPUMEM, Room, check, finish, live_bytes, tell  # noqa: E402

STOPPED = os.path.join(B, "test/preload/stopped")


def leaked(room):
    """The bytes that `gpumem leaks` finds in the one file."""
    path = os.path.join(room.out, room.files()[0])
    done = subprocess.run([GPUMEM, "leaks", "--json", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["bytes"]


def stops(threads, rounds, **options):
    name = "%d threads%s" % (threads, "".join(", %s=%s" % option for option in sorted(options.items())))
    with Room() as room:
        run = room.run([STOPPED, "churn", str(threads), str(rounds)], allocator="caching", **options)
        check("%s: all goes back to the driver" % name, run.stdout == "left 0, stopped often\n" and not run.stderr, tell(run))
        taken = room.snapshots("exit")
        if not check("%s: one snapshot at the end" % name, len(taken) == 1, room.files()):
            return
        history = taken[0]["history"]
        check("%s: nothing is lost" % name, not history["operations_lost"] and not history["events_lost"], history)
        stats = taken[0]["devices"][0]["memory_stats"]
        check("%s: as many frees as allocations" % name,
              stats["allocation.all.allocated"] == stats["allocation.all.freed"] >= threads * rounds, stats)
        check("%s: gpumem leaks finds nothing" % name, (leaked(room), live_bytes(taken[0])) == (0, 0))


def inside(**options):
    name = "a handler frees%s" % "".join(", %s=%s" % option for option in sorted(options.items()))
    with Room() as room:
        run = room.run([STOPPED, "inside", "300"], allocator="caching", **options)
        check("%s: all goes back to the driver" % name, run.stdout == "left 0, freed inside often\n" and not run.stderr, tell(run))
        taken = room.snapshots("exit")
        if not check("%s: one snapshot at the end" % name, len(taken) == 1, room.files()):
            return
        check("%s: nothing is lost" % name, not taken[0]["history"]["operations_lost"], taken[0]["history"])
        check("%s: gpumem leaks finds nothing" % name, (leaked(room), live_bytes(taken[0])) == (0, 0))


def dies():
    """Without a history, whose events now and then take a lock, the storm takes that of the pool alone. A block in a piece that
    the pool has counts as outside only where that lock was not to be had: 1 that waited, and the 100 after it."""
    with Room() as room:
        run = room.run([STOPPED, "cancel", "3000"], allocator="caching", history=0)
        check("a thread died with a lock: nobody waits for it again",
              run.stdout == "a thread died with a lock: of the next calls 0 waited\n", tell(run))
        pools = [pool for taken in room.snapshots("exit") for pool in taken["pools"]]
        check("it was the lock of the pool, and the calls were recorded without it", [pool["outside"] for pool in pools] == [101] and
              not pools[0]["lost"] and not pools[0]["unknown_frees"], [[pool[word] for word in ("outside", "lost", "unknown_frees")] for pool in pools])


def main():
    stops(16, 2000)
    stops(16, 2000, thread_cache="no")
    stops(16, 2000, expandable_segments="True")
    stops(16, 2000, history=1000)
    inside()
    inside(thread_cache="no")
    inside(expandable_segments="True")
    dies()
    finish()


main()
