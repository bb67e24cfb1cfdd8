# timeout: 120
"""gpumem.cupy on a stand-in for CuPy (standin/cupy): the library knows what its pool has handed out, to the byte."""
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/python")
from host import HERE, PACKAGE, interpreters  # noqa: E402
from tap import Room, check, finish, tell  # noqa: E402

PATHS = ":".join((PACKAGE, HERE, os.path.join(HERE, "standin")))
PROGRAM = '''
import random, sys, threading
import cupy
import gpumem, gpumem.cupy
from host import alloc
alloc(4096)
before = cupy.cuda.get_allocator()
early = cupy.ndarray(5000)
assert gpumem.cupy.install() and gpumem.cupy.install()
pool, chance = cupy.get_default_memory_pool(), random.Random(5)

def live():
    return gpumem.pool_memory_stats("cupy").get("allocated_bytes.all.current", 0)

hidden = pool.used_bytes()
assert live() == 0
kept = [cupy.ndarray(n) for n in (1, 512, 513, 3 << 20)]
assert live() == pool.used_bytes() - hidden == 512 + 512 + 1024 + (3 << 20), live()
try:
    cupy.ndarray(2 << 30)
    raise AssertionError
except MemoryError:
    pass
assert live() == pool.used_bytes() - hidden

def work(seed):
    mine, dice = [], random.Random(seed)
    for i in range(300):
        mine.append(cupy.ndarray(dice.randrange(1, 100000)))
        if dice.random() < 0.6:
            del mine[dice.randrange(len(mine))]
    kept.extend(mine[:3])

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for i in range(200):
    kept.append(cupy.ndarray(chance.randrange(1, 1 << 20)))
    if chance.random() < 0.5:
        del kept[chance.randrange(len(kept))]
for thread in threads:
    thread.join()
assert live() == pool.used_bytes() - hidden > 0, (live(), pool.used_bytes(), hidden)
del early
assert live() == pool.used_bytes()
gpumem.cupy.uninstall()
assert cupy.cuda.get_allocator() == before
now = live()
later = [cupy.ndarray(4000)]
assert live() == now
assert gpumem.cupy.install(threads=False) and cupy.cuda.get_allocator() == before
later.append(cupy.ndarray(4000))
assert live() == now + 4096
del kept[:], later[:]
large = cupy.ndarray(9 << 20)  # LINE kept
assert gpumem.snapshot(sys.argv[1])
print(9 << 20)
'''


def main():
    for python, version in interpreters():
        name = "Python %d.%d" % version
        with Room() as room:
            path = os.path.join(room.path, "program.py")
            with open(path, "w", encoding="utf-8") as script:
                script.write(PROGRAM)
            ours = room.run([python, path, os.path.join(room.out, "now.json")], env=room.env(PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE=1))
            if not check("%s: what is live in the record is what the pool has handed out" % name,
                         ours.returncode == 0 and not ours.stderr, tell(ours)):
                continue
            snapshot = room.snapshots("now")[0]
            blocks = [block for pool in snapshot["pools"] if pool["name"] == "cupy"
                      for segment in pool["segments"] for block in segment["blocks"]]
            live = [block for block in blocks if block["state"] == "active_allocated"]
            check("%s: the snapshot has them, to the byte" % name, sum(block["size"] for block in live) == int(ours.stdout), live[:3])
            line = 1 + [i for i, text in enumerate(PROGRAM.splitlines()) if "LINE kept" in text][-1]
            stacks = [[snapshot["frames"][frame]["line"] for frame in snapshot["stacks"][block["stack"]]
                       if snapshot["frames"][frame]["filename"] == path] for block in live if block["size"] == 9 << 20]
            check("%s: with the Python line that made the array" % name, stacks and line in stacks[0], stacks)
    finish()


main()
