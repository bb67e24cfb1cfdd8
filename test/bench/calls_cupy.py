"""The rows of calls.h for CuPy's memory pool, but "threads", called from Python: half a microsecond of a pair is Python's."""
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


def holes(pool, count):
    """The blocks between them."""
    blocks = [pool.malloc(4096) for _ in range(2 * count)]
    del blocks[::2]
    return blocks


def drawn(engine, count):
    """libstdc++'s uniform_int_distribution(0, count - 1) of its default engine."""
    if count > 2147483646:
        while True:
            value = 2147483646 * drawn(engine, (count - 1) // 2147483646 + 1) + drawn(engine, 2147483646)
            if value < count:
                return value
    part = 2147483646 // count
    while True:
        engine[0] = engine[0] * 16807 % 2147483647
        if engine[0] - 1 < part * count:
            return (engine[0] - 1) // part


def cost_random(pool, count, most):
    """Nanoseconds of an operation of RMM's random allocations. The draws are not timed."""
    engine, blocks, live, made, done, taken, began = [1], [], 0, 0, 0, 0, time.monotonic()
    while done < 2 * count and time.monotonic() - began < 1:
        size, done = 1 + drawn(engine, most), done + 1
        if not blocks or (drawn(engine, 100) < 73 and made < count and live + size < 16000 << 20):
            start = time.perf_counter_ns()
            block = pool.malloc(size)
            taken += time.perf_counter_ns() - start
            blocks.append((block, size))
            live, made = live + size, made + 1
        else:
            place = drawn(engine, count) % len(blocks)
            block, size = blocks[place]
            blocks[place] = blocks[-1]
            blocks.pop()
            live -= size
            start = time.perf_counter_ns()
            del block
            taken += time.perf_counter_ns() - start
    return taken / done


def main():
    pool, wanted = cupy.cuda.MemoryPool(), sys.argv[1:]

    def chosen(name):
        return not wanted or any(name.startswith(word) for word in wanted)

    def row(name, make):
        if chosen(name):
            print("%s\t%.1f" % (name, cost(make())), flush=True)

    for name, size in (("256 B", 256), ("4 KiB", 4096), ("64 KiB", 65536), ("2 MiB", 2 << 20), ("64 MiB", 64 << 20)):
        row("pair " + name, lambda size=size: pairs(pool, size))
    rng = random.Random(2)
    for name, count in (("1,000", 1000), ("10,000", 10000), ("100,000", 100000)):
        row("live " + name, lambda count=count: live(pool, [pool.malloc(rng.randint(1, 65536)) for _ in range(count)]))
    for name, count in (("4,096", 4096), ("16,384", 16384), ("65,536", 65536)):
        between = holes(pool, count) if chosen("holes " + name) else []
        row("holes " + name, lambda: pairs(pool, 1024))
        del between
    for name, count in (("1,000", 1000), ("10,000", 10000), ("100,000", 100000)):
        for most in (1, 4, 64, 256, 1024, 4096):
            if chosen("random %s of %d MiB" % (name, most)):
                print("random %s of %d MiB\t%.1f" % (name, most, cost_random(pool, count, most << 20)), flush=True)


main()
