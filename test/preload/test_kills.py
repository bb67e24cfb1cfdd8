#!/usr/bin/env python3
# timeout: 600
"""SIGKILL at random instants: demo_app --loop counts, in a file of its own, the calls that have returned; every journal
that it leaves must hold each of them, be sound, and become a snapshot in which tables and events agree.

GM_KILLS=n  how many kills (default 150, which is about 40 s)      SEED=n  the seed
"""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from functools import lru_cache

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish, seed  # noqa: E402
from verbs import blocks, load, replay  # noqa: E402
from watch import Watched  # noqa: E402

KILLS = int(os.environ.get("GM_KILLS", "150"))
SEED = seed()
JOURNAL_CHECK = os.path.join(B, "test/preload/journal_check")
LIMIT = 90
ACTIVE = ("active_allocated", "active_pending_free")


def tool(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT,
                          check=False)


def counted(path):
    """[(allocations, frees)] that returned, by thread."""
    try:
        with open(path, "rb") as file:
            words = struct.unpack("128Q", file.read(1024))
    except (OSError, struct.error):
        return [(0, 0)] * 64
    return list(zip(words[0::2], words[1::2]))


def tables(snapshot):
    """What is wrong with the segments, and between them and the statistics."""
    wrong = []
    for number, device in enumerate(snapshot["devices"]):
        stats, end, active, sizes = device["memory_stats"], 0, 0, 0
        for segment in (s for s in snapshot["segments"] if s["device"] == number):
            at = segment["address"]
            if at < end:
                wrong.append("segment %#x begins before %#x" % (at, end))
            for block in segment["blocks"]:
                if block["address"] != at or block["size"] <= 0:
                    wrong.append("block %#x where %#x was due" % (block["address"], at))
                at += block["size"]
                if block["state"] in ACTIVE:
                    active, sizes = active + 1, sizes + block["size"]
            end = segment["address"] + segment["total_size"]
            if at != end:
                wrong.append("the blocks of segment %#x end at %#x, not %#x" % (segment["address"], at, end))
        if (stats["active.all.current"], stats["active_bytes.all.current"]) != (active, sizes):
            wrong.append("device %d: %d active blocks, %d bytes; its statistics say otherwise" % (number, active, sizes))
        if stats["allocation.all.allocated"] - stats["allocation.all.freed"] != stats["allocation.all.current"]:
            wrong.append("device %d: allocations less frees are not what is there" % number)
    return wrong


def events(snapshot):
    """[(allocations, frees)] recorded, by thread in the order of their ids; and how many by threads not known: one that
    was refused its slot (on a loaded machine, where that would have been a long wait) is told as thread 0 at first."""
    found = {}
    for trace in snapshot["device_traces"] + [snapshot["host_trace"]]:
        for action, thread in zip(trace["action"], trace["thread"]):
            if action in ("alloc", "free_completed"):
                pair = found.setdefault(thread, [0, 0])
                pair[action != "alloc"] += 1
    first = snapshot["process"]["pid"]      # ids may have begun again at the lowest
    unknown = found.pop(0, [0, 0])
    return [tuple(found[t]) for t in sorted(found, key=lambda t: (t < first, t))], unknown


def missing(recorded, returned):
    """How many operations of one thread had returned and are not recorded; None where more than the one that may have
    been under way is recorded."""
    less = sum(max(0, b - a) for a, b in zip(recorded, returned))
    more = sum(max(0, a - b) for a, b in zip(recorded, returned))
    return less if more <= 1 else None


def fits(recorded, returned, unknown=0):
    """Threads were created in the order of their counters; one of which nothing is recorded has returned from nothing.
    What is missing by threads is not more than what threads not known have recorded."""
    @lru_cache(maxsize=None)
    def least(i, j):
        if j == len(returned):
            return 0 if i == len(recorded) else float("inf")
        without = sum(returned[j]) + least(i, j + 1)
        less = missing(recorded[i], returned[j]) if i < len(recorded) else None
        return without if less is None else min(without, less + least(i + 1, j + 1))
    return least(0, 0) <= unknown


def judge(snapshot, returned, threads):
    """(operations that returned, how many of them are missing, what else is wrong)."""
    wrong = tables(snapshot)
    told = snapshot["recovered"]
    if snapshot["reason"] != "recovered" or not told["after_death"] or told["damaged"]:
        wrong.append("reason %s, %s" % (snapshot["reason"], told))
    if len({f["thread"] for f in told["in_flight"]}) != len(told["in_flight"]) or len(told["in_flight"]) > threads:
        wrong.append("in flight: %s" % told["in_flight"])
    stats = [d["memory_stats"] for d in snapshot["devices"]]
    recorded = [sum(s["allocation.all." + way] for s in stats) for way in ("allocated", "freed")]
    sums = [sum(pair[i] for pair in returned) for i in (0, 1)]
    lost = sum(max(0, b - a) for a, b in zip(recorded, sums))
    if sum(recorded) > sum(sums) + threads:
        wrong.append("%s recorded, %s returned: more than can have been under way" % (recorded, sums))
    if snapshot["history"]["operations_lost"]:
        wrong.append("%d operations lost" % snapshot["history"]["operations_lost"])
    if not snapshot["history"]["dropped"] and snapshot["history"]["max_events"]:
        traced, unknown = events(snapshot)
        lost = max(lost, sum(max(0, sums[i] - unknown[i] - sum(pair[i] for pair in traced)) for i in (0, 1)))
        if not fits(tuple(traced), tuple(returned[:threads]), sum(unknown)):
            wrong.append("by thread: recorded %s and %s, returned %s" % (traced, unknown, returned[:threads]))
        try:
            same = replay(snapshot) == blocks(snapshot)
        except AssertionError as error:
            same, wrong = False, wrong + ["the events contradict each other: %s" % error]
        if not same:
            wrong.append("the events, played from nothing, are not the tables")
    return sum(sums), lost, wrong


class Hunt:
    def __init__(self):
        self.kills = self.snapshots = self.early = self.operations = self.missing = self.flights = self.complete = 0
        self.wrong = []

    def plan(self, n):
        chance = random.Random("%d %d" % (SEED, n))
        options = {}
        if n % 8 == 3:
            options["history"] = chance.choice([0, 1024, 5000])
        if n % 8 == 5:
            options["stacks"] = chance.choice(["none", "native"])
        if n % 4 == 1:      # each operation is a segment's, too, and has the driver's call in its midst
            options["allocator"] = "native"
        return {
            "app": "demo_app." + chance.choice(["static", "shared"]), "threads": chance.choice([1, 2, 4, 8, 16]),
            "options": options, "from_start": n % 8 == 7, "seconds": chance.uniform(0, 0.08),
            "also": {2: "signal", 6: "outside"}.get(n % 16),
        }

    def kill(self, room, plan):
        """Start it, kill it at the planned instant: its counters."""
        counts = os.path.join(room.path, "counts")
        command = [os.path.join(B, "test/apps", plan["app"]), "--loop", "--max-seconds", "60", "--threads",
                   str(plan["threads"]), "--count-file", counts]
        with Watched(command, room.env(**plan["options"]), room.path) as program:
            end = time.monotonic() + LIMIT
            while not plan["from_start"] and sum(counted(counts)[0]) == 0 and time.monotonic() < end and program.alive():
                time.sleep(0.002)
            looker = None
            if plan["also"] == "signal":
                os.kill(program.pid, signal.SIGUSR1)
            elif plan["also"] == "outside":
                looker = subprocess.Popen([GPUMEM, "snapshot", str(program.pid)], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=room.path)
            time.sleep(plan["seconds"])
            alive = program.alive()
            program.kill()
            if looker:
                looker.wait(timeout=LIMIT)      # whatever it answers, that it does
        return counted(counts), None if alive else "it had ended: %s %s" % (program.out()[-200:], program.err()[-200:])

    def one(self, n):
        plan = self.plan(n)
        with Room() as room:
            returned, wrong = self.kill(room, plan)
            self.kills += 1
            wrong = [wrong] if wrong else []
            journals = [j for j in room.journal_files() if open(j, "rb").read(8).strip(b"\0")]
            took = sum(map(sum, returned))
            if len(journals) != 1:
                self.early += 1
                self.missing += took
                return wrong + (["%d journals, %d calls had returned" % (len(journals), took)] if took else [])
            sound = tool(JOURNAL_CHECK, journals[0])
            if sound.returncode:
                wrong.append("journal_check: " + sound.stdout[-400:])
            path = os.path.join(room.path, "recovered.json")
            done = tool(GPUMEM, "recover", "--json", "-o", path, journals[0])
            told = json.loads(done.stdout) if done.returncode == 0 else []
            if not os.path.exists(path):
                self.early += 1
                self.missing += took
                fine = took == 0 and len(told) == 1 and told[0]["unused"]
                return wrong + ([] if fine else ["no snapshot, %d calls had returned: %s" % (took, done.stderr[-300:])])
            snapshot = load(path)
            operations, lost, more = judge(snapshot, returned, plan["threads"])
            self.snapshots += 1
            self.operations += operations
            self.missing += lost
            self.flights += len(snapshot["recovered"]["in_flight"])
            self.complete += not snapshot["history"]["dropped"]
            return wrong + more + (["%d operations missing" % lost] if lost else [])

    def run(self):
        for n in range(KILLS):
            wrong = self.one(n)
            if wrong:
                self.wrong.append("kill %d %s: %s" % (n, self.plan(n), "; ".join(wrong)))
                print("# " + self.wrong[-1][:1000])


def judge_can_tell():
    """The judge itself: what it must not let pass."""
    check("one thread's call that returned and is not recorded is missing", missing((3, 2), (4, 2)) == 1 and
          missing((4, 2), (4, 2)) == 0 == missing((5, 2), (4, 2)) and missing((6, 2), (4, 2)) is None and
          missing((5, 3), (4, 2)) is None)
    check("threads are told apart", fits(((4, 2), (1, 0)), ((4, 2), (0, 0), (1, 0))) and
          not fits(((4, 2), (1, 0)), ((1, 0), (0, 0), (4, 2))) and not fits(((5, 2),), ((4, 2), (1, 0))) and
          fits(((1, 0),), ((0, 0), (1, 0))) and fits(((4, 2),), ((6, 2), (1, 0)), 3) and
          not fits(((4, 2),), ((6, 2), (1, 0)), 2) and not fits(((6, 2),), ((4, 2), (1, 0)), 9))


def main():
    judge_can_tell()
    hunt = Hunt()
    hunt.run()
    print("# %d kills (seed %d): %d snapshots, %d of them with every event, %d before the first call returned; "
          "%d operations that had returned, %d missing; %d in flight" %
          (hunt.kills, SEED, hunt.snapshots, hunt.complete, hunt.early, hunt.operations, hunt.missing, hunt.flights))
    check("%d kills: %d operations had returned, none is missing" % (hunt.kills, hunt.operations),
          hunt.missing == 0 and hunt.operations > 0, hunt.wrong[:3])
    check("%d kills: every journal is sound, every snapshot valid, tables and events agree" % hunt.kills,
          not hunt.wrong and hunt.snapshots >= KILLS // 2, hunt.wrong[:3] or hunt.snapshots)
    check("%d kills: some in the midst of an operation, some with the whole history" % hunt.kills,
          KILLS < 50 or hunt.flights > 0 and hunt.complete > 0, (hunt.flights, hunt.complete))
    finish()


main()
