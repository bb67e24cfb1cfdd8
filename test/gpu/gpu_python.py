"""The Python package on a GPU: CuPy's pool through its hook, to the byte.

usage: gpu_python.py GPUMEM DIR cupy

Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import os
import random
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.normpath(os.path.join(HERE, "../../tools/python"))
MOMENTS = 10


def cupy_program():
    """Arrays of many sizes, in threads, and freed; what the library knows against what the pool says."""
    import cupy                 # pylint: disable=import-outside-toplevel
    import gpumem               # pylint: disable=import-outside-toplevel
    import gpumem.cupy          # pylint: disable=import-outside-toplevel
    assert gpumem.cupy.install()
    pool, dice, kept, lock = cupy.get_default_memory_pool(), random.Random(7), [], threading.Lock()

    def make(count, seed):
        mine = random.Random(seed)
        for _ in range(count):
            array = cupy.ones(mine.randrange(1, 1 << 18), dtype=cupy.float32)
            with lock:
                kept.append(array * 2)
                if mine.random() < 0.45:
                    kept.pop(mine.randrange(len(kept)))

    seen = []
    for moment in range(MOMENTS):
        threads = [threading.Thread(target=make, args=(dice.randrange(20, 200), dice.random())) for _ in range(3)]
        for thread in threads:
            thread.start()
        make(dice.randrange(20, 200), moment)
        for thread in threads:
            thread.join()
        stats = gpumem.pool_memory_stats("cupy")
        seen.append((stats["allocated_bytes.all.current"], pool.used_bytes()))
    assert all(ours == theirs > 0 for ours, theirs in seen), seen
    held = len(kept)
    kept.clear()
    assert gpumem.pool_memory_stats("cupy")["allocated_bytes.all.current"] == pool.used_bytes() == 0
    print("%d moments of CuPy's pool equal to the byte, the largest %d bytes in %d arrays, of %d allocations in 4 threads" % (
        len(seen), max(seen)[0], held, stats["allocation.all.allocated"]))


def run(gpumem, room, case):
    """A case under gpumem run: its exit status and what it said."""
    env = dict(os.environ, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([gpumem, "run", "-q", "--output=%s/%s.%%r.json" % (room, case), "--", sys.executable, __file__, "--" + case],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    return done.returncode, done.stdout.strip() or done.stderr.strip()[-400:]


def main():
    if sys.argv[1] == "--cupy":
        cupy_program()
        return 0
    gpumem, room, case = sys.argv[1:4]
    status, said = run(gpumem, room, case)
    print(said.splitlines()[-1] if said else "nothing was said")
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
