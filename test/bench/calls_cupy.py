"""The rows "pair" and "live" of calls.h for CuPy's memory pool, called from Python: half a microsecond of a pair is Python's."""
import random
import statistics
import sys
import time

import cupy


def cost(prepare):
    """Nanoseconds of a pair: the first quarter of batches. @prepare makes a batch of so many."""
    batches, count = [], 500
    for _ in range(60):
        body = prepare(count)
        began = time.perf_counter_ns()
        body()
        batches.append((time.perf_counter_ns() - began) / count)
    return statistics.quantiles(batches, n=4)[0]


def pairs(pool, size):
    def prepare(count):
        def body(malloc=pool.malloc):
            for _ in range(count):
                malloc(size)    # nobody keeps it: it is freed at once
        return body
    return prepare


def live(pool, blocks):
    rng = random.Random(1)

    def prepare(count):
        changes = [(rng.randrange(len(blocks)), rng.randint(1, 65536)) for _ in range(count)]

        def body(malloc=pool.malloc):
            for place, size in changes:
                blocks[place] = None
                blocks[place] = malloc(size)
        return body
    return prepare


def main():
    pool, wanted = cupy.cuda.MemoryPool(), sys.argv[1:]

    def row(name, make):
        if not wanted or any(name.startswith(word) for word in wanted):
            print("%s\t%.1f" % (name, cost(make())), flush=True)

    for name, size in (("256 B", 256), ("4 KiB", 4096), ("64 KiB", 65536), ("2 MiB", 2 << 20), ("64 MiB", 64 << 20)):
        row("pair " + name, lambda size=size: pairs(pool, size))
    rng = random.Random(2)
    for name, count in (("1,000", 1000), ("10,000", 10000), ("100,000", 100000)):
        row("live " + name, lambda count=count: live(pool, [pool.malloc(rng.randint(1, 65536)) for _ in range(count)]))


main()
