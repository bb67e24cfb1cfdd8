#!/usr/bin/env python3
"""Who held the peak, whatever has become of the history: random programs against a model.

A program does what a list of steps says, one step after the other, on the thread that the step names: so the order is
known, and each thread has thread caches. Each call site is a function of its own. The model has the list, too.
"""
import json
import os
import random
import signal
import sys

sys.path.insert(0, "test")
from tap import B, GPUMEM, Room, check, finish, seed, tell  # noqa: E402

PROGRAMS = os.path.abspath("test/preload/programs")
TORCH = os.path.join(B, "test/preload/torch")
SEED = seed()
ROUNDS = int(float(os.environ.get("GM_STRESS", "1")) * 6)
SITES = 12

PROGRAM = """
import json, os, queue, signal, sys, threading
from pool_user import *
steps = json.load(open(sys.argv[1]))
context()
torch = Torch() if any(s[0] == "pool" for s in steps) else None
blocks = {}
for n in range(%d):
    exec("def site_%%d(get, size): return get(size)" %% n)
def do(step):
    what, site, block, size = step
    if what in ("alloc", "pool"):
        blocks[block] = globals()["site_%%d" %% site](malloc if what == "alloc" else torch.alloc, size)
    elif what == "free":
        free(blocks.pop(block))
    elif what == "back":
        torch.free(blocks.pop(block))
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
class Worker(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.todo, self.done = queue.Queue(), queue.Queue()
        self.start()
    def run(self):
        context()
        while True:
            try:
                do(self.todo.get())
            except BaseException:
                os._exit(3)
            self.done.put(1)
workers = [Worker() for _ in range(3)]
for step in steps:
    if step[4]:
        workers[step[4] - 1].todo.put(step[:4])
        workers[step[4] - 1].done.get()
    else:
        do(step[:4])
""" % SITES


def made_up(rng, count, pool):
    """Steps: few sizes and thread caches, or many; rising and falling; the peak anywhere."""
    sizes = [512 * rng.randint(1, 40) - rng.choice((0, 0, 5)) for _ in range(rng.choice((2, 6, 40)))]
    sizes += [rng.randint(1, 6) << 20] if rng.random() < 0.7 else []
    steps, live, target, number = [], [], rng.randint(2, 40), 0
    while len(steps) < count:
        if rng.random() < 0.03:
            target = rng.choice((0, 3, 10, 60))
        thread = rng.choice((0, 0, 0, 1, 2, 3))
        if len(live) < target or (live and rng.random() < 0.15 and len(live) < 80):
            what = "pool" if pool and rng.random() < 0.7 else "alloc"
            number += 1
            steps.append((what, rng.randrange(SITES), number, rng.choice(sizes), thread))
            live.append((number, "back" if what == "pool" else "free"))
        elif live:
            block, what = live.pop(rng.randrange(len(live)) if rng.random() < 0.6 else -1)
            steps.append((what, 0, block, 0, thread))
    return steps


def peaks(steps, begin):
    """(bytes, the states that had them): each by call site, of what @begin allocates."""
    live, sites, most, states = {}, {}, 0, [{}]
    end = {"alloc": "free", "pool": "back"}[begin]
    for what, site, block, size, _ in steps:
        if what == begin:
            size = (size + 511) // 512 * 512 if begin == "pool" else size       # as the pool tells it
            live[block] = (site, size)
            sites[site] = sites.get(site, 0) + size
        elif what == end:
            site, size = live.pop(block)
            sites[site] -= size
        else:
            continue
        total = sum(sites.values())
        if total >= most:
            states = (states if total == most else []) + [{s: b for s, b in sites.items() if b}]
            most = total
    return most, states


def by_site(snapshot, where):
    """Bytes at the peak by the site's function, of the rows of @where."""
    found = {}
    for row in where["at_peak"]["sites"]:
        names = [snapshot["frames"][f]["name"] for f in snapshot["stacks"][row["stack"]]]
        site = next((int(n[5:]) for n in names if n.startswith("site_")), None)
        if row.get("of_pool"):
            continue
        found[site] = found.get(site, 0) + row["bytes"]
    return found


def play(room, steps, **options):
    path = os.path.join(room.path, "steps")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(steps, file)
    return room.run([sys.executable, "-c", PROGRAM, path], PYTHONPATH=PROGRAMS, TORCH=TORCH, **options)


def is_of(snapshot, where, key, steps, begin):
    """Does @where have what the model says? Its own statistics do, too."""
    most, states = peaks(steps, begin)
    have = by_site(snapshot, where)
    told = where["memory_stats"][key]
    return have in states and (told == most or begin == "alloc" and any(s[0] == "pool" for s in steps)), \
        (most, told, have, states[:2])


def driver_and_cache():
    rng = random.Random(SEED)
    for allocator in ("caching", "native", "caching"):
        good, why = 0, ""
        for turn in range(ROUNDS):
            steps = made_up(rng, rng.choice((30, 200, 600)), False)
            with Room() as room:
                run = play(room, steps, history=rng.choice(("63", "1000", "65536")), allocator=allocator)
                snapshot = (room.snapshots("exit") or [None])[0]
                ok, how = (snapshot and is_of(snapshot, snapshot["devices"][0], "requested_bytes.all.peak", steps, "alloc")
                           or (False, tell(run)))
                good += bool(ok)
                why = why if ok else "turn %d: %s" % (turn, how)
        check("%s: %d random programs on four threads: who held the peak is as in the model" % (allocator, ROUNDS),
              good == ROUNDS, why)


def pools():
    rng = random.Random(SEED + 1)
    good, why = 0, ""
    for turn in range(ROUNDS):
        steps = made_up(rng, rng.choice((30, 200, 600)), True)
        with Room() as room:
            run = play(room, steps, history=rng.choice(("63", "65536")), allocator=rng.choice(("caching", "native")))
            snapshot = (room.snapshots("exit") or [None])[0]
            ok, how = (snapshot and snapshot["pools"] and
                       is_of(snapshot, snapshot["pools"][0], "allocated_bytes.all.peak", steps, "pool") or (False, tell(run)))
            good += bool(ok)
            why = why if ok else "turn %d: %s" % (turn, how)
    check("%d random programs with a pool: who held its peak is as in the model" % ROUNDS, good == ROUNDS, why)


def killed():
    """Killed between two steps."""
    rng = random.Random(SEED + 2)
    good, why = 0, ""
    for turn in range(ROUNDS):
        steps = made_up(rng, 300, turn % 2)
        steps = steps[:rng.randint(20, 300)] + [("kill", 0, 0, 0, 0)]
        with Room() as room:
            run = play(room, steps, history="63")
            done = room.run([GPUMEM, "recover", "-o", os.path.join(room.out, "r.json")] + room.journal_files(), preload=False)
            snapshot = (room.snapshots("r") or [None])[0]
            ok = snapshot and run.returncode == -signal.SIGKILL
            how = tell(run, done)
            for where, key, begin in (("devices", "requested_bytes.all.peak", "alloc"),
                                      ("pools", "allocated_bytes.all.peak", "pool")):
                if ok and snapshot[where] and (where == "pools" or not turn % 2):
                    ok, how = is_of(snapshot, snapshot[where][0], key, steps, begin)
            good += bool(ok)
            why = why if ok else "turn %d: %s" % (turn, how)
    check("killed %d times: who held the peak is as in the model" % ROUNDS, good == ROUNDS, why)


driver_and_cache()
pools()
killed()
finish()
