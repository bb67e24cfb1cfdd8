#!/usr/bin/env python3
"""Killed while a pool hands out: what is recovered has every block, with the stack that asked for it."""
import json
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, "test")
from tap import B, GPUMEM, Room, check, finish, tell  # noqa: E402

PROGRAMS = os.path.abspath("test/preload/programs")
TORCH = os.path.join(B, "test/preload/torch")
KILLS = int(os.environ.get("GM_KILLS", "6"))


def killed():
    """Killed at random moments: the recovered journal has every block that was handed out, and no other."""
    source = """
context()
torch = Torch()
torch.storm(3, 100000000, %d, log=%r)
"""
    moment, good, seen, stacks = random.Random(KILLS), 0, 0, 0
    for turn in range(KILLS):
        with Room() as room:
            log = os.path.join(room.path, "log")
            program = subprocess.Popen([sys.executable, "-c", "from pool_user import *\n" + source % (turn, log)],
                                       env=room.env(PYTHONPATH=PROGRAMS, TORCH=TORCH, allocator=("native", "caching")[turn % 2]))
            while not os.path.exists(log) or os.path.getsize(log) < 1 << 20:
                time.sleep(0.01)
            time.sleep(0.1 + 0.3 * moment.random())
            program.kill()
            program.wait()
            rules = room.run([os.path.join(B, "test/preload/journal_check")] + room.journal_files(), preload=False)
            done = room.run([GPUMEM, "recover", "-o", os.path.join(room.out, "r.json")] + room.journal_files(), preload=False)
            if not room.snapshots("r"):
                check("killed, turn %d: recovered" % turn, False, tell(done))
                continue
            snapshot = room.snapshots("r")[0]
            pool = snapshot["pools"][0]
            with open(log, "rb") as raw:
                words = struct.unpack("<131072Q", raw.read(1 << 20))
            busy = words[0]
            want = {words[2 + 2 * i]: words[3 + 2 * i] for i in range(65535) if words[3 + 2 * i] and i + 1 != busy}
            unsure = words[2 + 2 * (busy - 1)] if busy else 0
            have = {b["address"]: b["size"] for s in pool["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
            spare = set(have) - set(want)
            ok = want == {a: s for a, s in have.items() if a in want} and (not spare or (busy and len(spare) == 1))
            total = pool["memory_stats"]["allocated_bytes.all.current"]
            if not ok or total != sum(have.values()) or snapshot["recovered"]["damaged"] or rules.returncode:
                check("killed, turn %d: all blocks, every rule of the journal kept" % turn, False,
                      (busy, unsure, sorted(set(want) ^ set(have))[:5], total, tell(rules)))
                continue
            good += 1
            seen += len(want)
            stacks += sum(b["stack"] != 0 for s in pool["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    check("killed %d times: every block that was handed out (%d), with its stack" % (KILLS, seen), good == KILLS and
          seen > 20 * KILLS and stacks >= seen, (good, seen, stacks))


# What is live is kept in a file as it was told: for each thread the slot under way + 1, how many calls it made, and slots of
# address, size and the way that it was asked for. Each way is known by its functions and lines.
PYTHON = """import mmap, random, sys, threading
from pool_user import *
THREADS, SLOTS = 3, 400
with open(sys.argv[1], "r+b") as file:
    words = (u64 * (THREADS * (2 + 3 * SLOTS))).from_buffer(mmap.mmap(file.fileno(), 0))
context()
torch = Torch()
def embed(size):
    return torch.alloc(size), 1
def attend(size):
    block, way = (
        torch.alloc(size), 2)
    return block, way
class Layer:
    def forward(self, size, depth=0):
        return self.forward(size, depth + 1) if depth < 3 else (torch.alloc(size), 3)
kept = lambda size: (torch.alloc(size), 4)
asks = [embed, attend, Layer().forward, kept]
def train(number, seed):
    at, chance, mine = number * (2 + 3 * SLOTS), random.Random(seed), {}
    set_current(handle)
    while True:
        slot = chance.randrange(SLOTS)
        here = at + 2 + 3 * slot
        words[at] = slot + 1
        if slot in mine:
            torch.free(mine.pop(slot))
            words[here] = 0
        else:
            size = 512 * chance.randrange(1, 200)
            mine[slot], way = chance.choice(asks)(size)
            words[here + 2], words[here + 1], words[here] = way, size, mine[slot]
        words[at] = 0
        words[at + 1] += 1
handle, set_current = ctypes.c_void_p(), cuda.cuCtxSetCurrent
must(cuda.cuCtxGetCurrent(ctypes.byref(handle)))
for number in range(THREADS):
    threading.Thread(target=train, args=(number, int(sys.argv[2]) + number)).start()
"""
PYTHON_WAYS = {1: ["embed"], 2: ["attend"], 3: ["forward"] * 4, 4: ["<lambda>"]}      # innermost first, all called by train()


def line_of(text):
    return 1 + [text in line for line in PYTHON.splitlines()].index(True)


def python_frames(snapshot, block):
    """(function, file, line) of each Python frame of a block's stack that is the program's, innermost first."""
    frames = [snapshot["frames"][f] for f in snapshot["stacks"][block["stack"]]]
    return [(f["name"].rpartition(".")[2], f["filename"], f["line"]) for f in frames if f["filename"].endswith("model.py")]


def way_frames(script, way):
    """What they must be."""
    inner, outer = line_of("torch.alloc(size), %d" % way), line_of("= chance.choice(asks)(size)")
    return [(name, script, inner) for name in PYTHON_WAYS[way]] + [("train", script, outer)]


def killed_python():
    """The same of a program in Python: each block has the function, file and line that asked for it, and those that called it."""
    threads, slots, moment = 3, 400, random.Random(KILLS + 1)
    good, seen, ways = 0, 0, set()
    for turn in range(KILLS):
        with Room() as room:
            log, script = os.path.join(room.path, "log"), os.path.join(room.path, "model.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(PYTHON)
            with open(log, "wb") as file:
                file.truncate(8 * threads * (2 + 3 * slots))

            def read():
                with open(log, "rb") as raw:
                    words = struct.unpack("<%dQ" % (threads * (2 + 3 * slots)), raw.read())
                return [words[i * (2 + 3 * slots):(i + 1) * (2 + 3 * slots)] for i in range(threads)]
            with subprocess.Popen([sys.executable, script, log, str(turn)], env=room.env(
                    PYTHONPATH=PROGRAMS, TORCH=TORCH, allocator=("native", "caching")[turn % 2])) as program:
                while min(thread[1] for thread in read()) < 500 and program.poll() is None:
                    time.sleep(0.01)
                time.sleep(0.2 * moment.random())
                program.kill()
            path = os.path.join(room.out, "r.json")
            done = room.run([GPUMEM, "recover", "-o", path] + room.journal_files(), preload=False)
            if not os.path.exists(path):
                check("Python killed, turn %d: recovered" % turn, False, tell(done))
                continue
            with open(path, encoding="utf-8") as file:
                snapshot = json.load(file)
            have = {b["address"]: b for s in snapshot["pools"][0]["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
            under_way = sum(thread[0] != 0 for thread in read())
            want = {thread[2 + 3 * i]: (thread[3 + 3 * i], thread[4 + 3 * i]) for thread in read() for i in range(slots)
                    if thread[2 + 3 * i] and i + 1 != thread[0]}
            wrong = [(hex(address), "lost") for address in want if address not in have]
            for address, (size, way) in want.items():
                block = have.get(address)
                if block and (block["size"], python_frames(snapshot, block)) != (size, way_frames(script, way)):
                    wrong.append((size, way, block["size"], python_frames(snapshot, block)))
            if wrong or len(set(have) - set(want)) > under_way or snapshot["recovered"]["damaged"]:
                check("Python killed, turn %d: every block and its line" % turn, False,
                      (wrong[:2], len(have), len(want), under_way, snapshot["recovered"]))
                continue
            good += 1
            seen += len(want)
            ways |= {way for _, way in want.values()}
    check("Python killed %d times: every block that was handed out (%d), with its function, file and line" % (KILLS, seen),
          good == KILLS and seen > 100 * KILLS and ways == set(PYTHON_WAYS), (good, seen, ways))


def main():
    killed()
    killed_python()
    finish()


main()
