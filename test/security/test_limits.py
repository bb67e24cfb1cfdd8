#!/usr/bin/env python3
"""Programs under limits of their own: the library takes little before they call CUDA, and they go on without it."""
import os
import resource
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, FAKE, Room, check, finish  # noqa: E402

KIB = 1 << 10
STEP = 64 * KIB
LITTLE = 2048 * KIB         # bytes of data that the library may take of a program that never calls CUDA
SCRIPT = os.path.join(B, "test/preload/script")


def run(command, env, limit):
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL, cwd="/",
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))


def same(a, b):
    return (a.returncode, a.stdout) == (b.returncode, b.stdout)


def least(command, env, whole):
    """The smallest limit on data under which a program does what it does without one."""
    low, high = 0, 64 << 20
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        good = same(run(command, env, middle), whole)
        low, high = (low, middle) if good else (middle, high)
    return high


with Room() as room:
    bare, ours = room.env(preload=False), room.env()
    for command in (["/bin/ls", "/"], ["/bin/sh", "-c", "echo here"]):
        name = os.path.basename(command[0])
        whole = run(command, bare, 1 << 30)
        limit = least(command, bare, whole)
        there = run(command, ours, limit + LITTLE)
        check("%s under a limit on data of %d KiB, and %d KiB more for the library" % (name, limit // KIB, LITTLE // KIB),
              whole.returncode == 0 and same(there, whole) and not there.stderr, there)
    # What does call CUDA may miss the memory that we took; it hears so from the driver, and goes on to its end.
    for allocator in ("native", "caching"):
        bare, ours = (room.env(preload=preload, DRIVER=FAKE + "/libcuda.so.1", OUT=room.out, allocator=allocator)
                      for preload in (False, True))
        words = [SCRIPT, "alloc 100000", "alloc 5000000", "free", "alloc 300", "free", "free", "say done", "exit 3"]
        whole = run(words, bare, 1 << 30)
        limit = least(words, bare, whole)
        runs = [(more // KIB, run(words, ours, limit + more)) for more in range(LITTLE, 24 << 20, 1024 * KIB)]
        wrong = [one for one in runs if one[1].returncode != 3 or not one[1].stdout.endswith("done\n")]
        check("%s: a program that calls CUDA, under a limit that rises from 2 MiB to 24 MiB more than it needs: to its end" % allocator,
              whole.returncode == 3 and whole.stdout == "done\n" and not wrong, (whole, wrong[:2]))
        check("%s: and in the end as without us" % allocator, same(runs[-1][1], whole), runs[-1])

finish()
