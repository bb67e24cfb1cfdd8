#!/usr/bin/env python3
"""Measure what allocations cost with the library and its peers: one table of figures and ratios to the peers.

usage: scripts/bench.py [--gpu DIRECTORY] [--rounds N] [--seconds N] [--rows WORD,...] [--parts N]

Without a GPU (make bench) all runs use the fake driver. Its calls do not cost what a real driver's cost, so these rows
show what the library adds. --gpu (scripts/gpu-bench.sh) takes the programs in DIRECTORY: calls.static and, if they are
there, calls.torch and CuPy. Each round runs every kind once. A figure is the median of the rounds, a ratio the median
of the rounds' ratios; below 1 the library takes less. After --seconds no further run begins.

The rows, which --rows chooses by their beginnings:
  pair live holes random threads streams    calls.cu; on a GPU also held, memset, first and turn
  fill          how much of a device a program gets, and how much of its freed memory in another size
                (test/bench/fill.c), by default and in pages, relative to a run without the library
  replay        replays of recorded histories, and RMM's workloads, on both heaps (bench_heaps); on a GPU only if
                bench_heaps is built
  instructions  instructions of a pair, and of a block of PyTorch's pool (calls_pool.py), counted by callgrind if
                valgrind is installed; --parts N lists the N functions that take most of them; not on a GPU
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, os.environ.get("B", "build"))
HEAPS = os.path.join(BUILD, "test/bench/bench_heaps")
LIMIT_S = 120                   # of one run of one program
CALLS = "pair live holes random threads".split()
MORE = "streams held memset first turn".split()
GOAL = {"off": 60, "on": 120}   # nanoseconds of a pair, more than with a hook that does nothing
SERVED = {"off": "no history", "events": "history without stacks", "on": "history with all stacks"}
# The history is full after a moment, as in a program that has run for a while.
WITH = {"off": {"GPUMEM_STACKS": "none", "GPUMEM_HISTORY": "0"}, "events": {"GPUMEM_STACKS": "none", "GPUMEM_HISTORY": "16384"},
        "on": {"GPUMEM_HISTORY": "16384"}}
PAGES = dict(WITH["off"], GPUMEM_EXPANDABLE_SEGMENTS="True")


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMEM_", "LD_PRELOAD"))}
    env.update(more)
    return env


def preloaded(library="libgpumem.so", **more):
    return environment(LD_PRELOAD=os.path.join(BUILD, library), GPUMEM_SNAPSHOT_ON="none", **more)


class Bench:
    def __init__(self, args):
        self.args = args
        self.calls = os.path.join(args.gpu or os.path.join(BUILD, "test/bench"), "calls.static")
        if not args.gpu:
            os.environ.update(LD_LIBRARY_PATH=os.path.join(BUILD, "fakecuda"), FAKECUDA_DEVICES="1", FAKECUDA_RACE="off")
        self.end = time.monotonic() + args.seconds
        self.rows = args.rows.split(",") if args.rows else []

    def wanted(self, kind):
        """Return the rows of @kind that were asked for; []: none."""
        return [word for word in self.rows if word.startswith(kind) or kind.startswith(word.split()[0])] if self.rows else [kind]

    def kinds(self):
        """Yield (kind, command, environment) of each kind: the library's, then the peers'."""
        malloc, other = [self.calls, "malloc"], [self.calls, "async"]
        yield "off", malloc, preloaded(**WITH["off"])
        yield "trivial hook", malloc, preloaded("test/bench/trivial.so")
        yield "events", malloc, preloaded(**WITH["events"])
        yield "async off", other, preloaded(**WITH["off"])
        yield "on", malloc, preloaded(**WITH["on"])
        yield "async on", other, preloaded(**WITH["on"])
        yield "pages", malloc, preloaded(**PAGES)
        yield "async pages", other, preloaded(**PAGES)
        torch = os.path.join(self.args.gpu or "/", "calls.torch")
        if os.path.exists(torch):
            yield "PyTorch", [torch], environment()
            yield "PyTorch, expandable", [torch], environment(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        if self.args.gpu and not subprocess.run([sys.executable, "-c", "import cupy"], check=False, capture_output=True).returncode:
            yield "CuPy", [sys.executable, os.path.join(ROOT, "test/bench/calls_cupy.py")], environment()
        yield "cudaMallocAsync", other, environment()
        yield "cudaMalloc", malloc, environment()

    def run(self, kind, command, env):
        """Run a kind once. Return {row: nanoseconds}."""
        rows = [word for one in CALLS for word in self.wanted(one)]
        if command[0] == self.calls:
            rows += [word for one in (MORE if self.args.gpu else MORE[:1]) for word in self.wanted(one)]
        if kind == "trivial hook":              # it always returns the same memory
            rows = [row for row in rows if row.startswith("pair")]
        elif kind.endswith("pages"):            # the rows that differ with pages
            rows = [row for row in rows if row.startswith(("pair", *MORE[-2:]))]
        elif "sync" in kind and not self.args.gpu:      # the fake driver's own pools are slow with many live blocks
            rows = [row for row in rows if row.startswith(("pair", "threads", "streams"))]
        if not rows:
            return {}
        # These rows get a process of their own: memory that others leave in the cache slows stream-ordered frees.
        alone = [row for row in rows if row.startswith(("first", "turn"))]
        figures = {}
        for some in ([row for row in rows if row not in alone], alone):
            figures.update(self.run_rows(kind, command, env, some) if some else {})
        return figures

    def run_rows(self, kind, command, env, rows):
        limit = min(LIMIT_S, max(1, self.end - time.monotonic()))
        try:
            done = subprocess.run(command + rows, env=dict(env, FAKECUDA_CAPACITY="64GiB"), capture_output=True, text=True,
                                  timeout=limit, check=False)
            out, wrong = done.stdout, done.returncode and done.stderr.strip()[-200:]
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            wrong = "took more than %d s" % limit
        if wrong:
            print("# %s: %s" % (kind, wrong), flush=True)
        return {name: float(ns) for name, ns in (line.split("\t") for line in out.splitlines() if "\t" in line)}

    def measure(self):
        """Run all rounds. Return {kind: {row: [nanoseconds of each round]}}."""
        figures = {}
        for _ in range(self.args.rounds):
            for kind, command, env in self.kinds():
                for row, ns in self.run(kind, command, env).items():
                    figures.setdefault(kind, {}).setdefault(row, []).append(ns)
        return figures


def number(value):
    return "%.3f" % value if value < 10 else "%.1f" % value if value < 100 else "{:,.0f}".format(value)


def line(what, ours, unit, peers):
    """Print one row. @ours: a list with one figure for each round; @peers: (name, such a list)."""
    cells = ["%6.2f of %s (%s)" % (statistics.median(a / b for a, b in zip(ours, theirs)), name, number(statistics.median(theirs)))
             for name, theirs in peers if theirs and min(theirs) > 0]
    print("%-58s %10s %-2s  %s" % (what, number(statistics.median(ours)), unit, "  ".join(cells)), flush=True)


def print_calls(figures):
    peers = ["trivial hook", "cudaMalloc", "cudaMallocAsync", "PyTorch", "PyTorch, expandable", "CuPy"]
    for row in figures.get("off", {}):
        for ours, about in SERVED.items():
            if row in figures.get(ours, {}):
                line("%s, %s" % (row, about), figures[ours][row], "ns", [(peer, figures.get(peer, {}).get(row)) for peer in peers])
    floor = figures.get("trivial hook", {}).get("pair 4 KiB")
    for ours, most in GOAL.items():
        if floor and "pair 4 KiB" in figures.get(ours, {}):
            line("pair 4 KiB beyond the trivial hook, %s" % SERVED[ours],
                 [a - b for a, b in zip(figures[ours]["pair 4 KiB"], floor)], "ns", [("the goal", [most] * len(floor))])
    for row in figures.get("pages", {}):
        line("%s, in pages, %s" % (row, SERVED["off"]), figures["pages"][row], "ns",
             [(peer, figures.get(peer, {}).get(row)) for peer in ("cudaMalloc", "PyTorch, expandable")])
    for row in figures.get("async pages", {}):
        line("cudaMallocAsync: %s, in pages, %s" % (row, SERVED["off"]), figures["async pages"][row], "ns",
             [("cudaMallocAsync", figures.get("cudaMallocAsync", {}).get(row))])
    for row in figures.get("async off", {}):
        for ours in ("off", "on"):
            if row in figures.get("async " + ours, {}):
                line("cudaMallocAsync: %s, %s" % (row, SERVED[ours]), figures["async " + ours][row], "ns",
                     [(peer, figures.get(peer, {}).get(row)) for peer in ("cudaMallocAsync", "cudaMalloc")])


def fills(bench, env):
    """Run fill.c. Return {row: [filled, again, largest]}, in MiB."""
    words = [word.split(" ", 1)[1] for word in bench.wanted("fill") if " " in word]
    done = subprocess.run([os.path.join(os.path.dirname(bench.calls), "fill"), *words], env=dict(env, FAKECUDA_CAPACITY="8GiB"),
                          capture_output=True, text=True, timeout=5 * LIMIT_S, check=False)
    if done.returncode:
        print("# fill: %s" % done.stderr.strip()[-200:])
    return {words[0]: [int(word) / 2 ** 20 for word in words[1:]]
            for words in (text.split("\t") for text in done.stdout.splitlines()) if len(words) == 4}


def print_fills(bench):
    native = fills(bench, environment())
    for about, env in (("", WITH["off"]), (", in pages", PAGES)):
        for name, figures in fills(bench, preloaded(**env)).items():
            for what, ours, theirs in zip(("filled", "again", "largest"), figures, native.get(name, [])):
                line("fill %s%s, %s" % (name, about, what), [ours], "MiB", [("native", [theirs])])


def print_heaps(args):
    """Run bench_heaps, and print its rows: NAME, then for the pages heap and the segments heap the nanoseconds of an
    operation, then for both the reserved bytes divided by the live bytes."""
    done = subprocess.run([HEAPS, str(2 * args.rounds)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print("# bench_heaps: %s" % done.stderr.strip()[-200:])
    rows = [words for words in (text.split("\t") for text in done.stdout.splitlines()) if len(words) == 5]
    for name, ns, peer_ns, _, _ in rows:
        line("replay %s, pages heap, an operation" % name, [float(ns)], "ns", [("the segments heap", [float(peer_ns)])])
    for name, _, _, held, peer_held in rows:
        line("replay %s, pages heap, reserved of live" % name, [float(held)], "", [("the segments heap", [float(peer_held)])])


def counted(command, env, count, room):
    """Return the instructions of @count pairs, by function."""
    out = os.path.join(room, "out.%d" % count)
    subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, *command, "--count", str(count)], env=env,
                   capture_output=True, check=True, timeout=LIMIT_S)
    text = subprocess.run(["callgrind_annotate", "--threshold=100", out], capture_output=True, text=True, check=True).stdout
    found = {}
    for match in re.finditer(r"^\s*([\d,]+) \([^)]*\)\s+\S*?:([^ \n]+)", text, re.M):
        found[match[2]] = found.get(match[2], 0) + int(match[1].replace(",", ""))
    return found


def parts_of(command, env, few, many):
    """Return the instructions of one pair, by function."""
    with tempfile.TemporaryDirectory() as room:
        before, after = (counted(command, env, count, room) for count in (few, many))
    return {name: (value - before.get(name, 0)) / (many - few) for name, value in after.items()}


def print_parts(parts, count):
    for name, value in sorted(parts.items(), key=lambda part: -part[1])[:count]:
        print("    %-54s %10.1f" % (name, value))


def print_instructions(bench, args):
    envs = {kind: env for kind, _, env in bench.kinds()}
    bare = 0
    for size, about in ((4096, "4 KiB"), (2 << 20, "2 MiB")):
        kinds = {"trivial hook": "trivial hook", **SERVED, "async off": "cudaMallocAsync, no history"}
        for kind in kinds if size == 4096 else ("off", "on"):
            command = [bench.calls, "async" if kind.startswith("async") else "malloc", "--bytes", str(size)]
            parts = parts_of(command, envs[kind], 20000, 30000)
            bare = bare or sum(parts.values())
            line("instructions of a pair of %s, %s" % (about, kinds[kind]), [sum(parts.values())], "",
                 [] if kind == "trivial hook" else [("the trivial hook", [bare])])
            print_parts(parts, args.parts)


def print_pool_instructions(args):
    """Print the instructions of a pool's block, less those of the same program without the library."""
    bare = None
    for stacks, frames in ((None, 10), ("none", 10), ("native", 10), ("all", 10), ("all", 40)):
        command = [sys.executable, os.path.join(ROOT, "test/bench/calls_pool.py"), os.path.join(BUILD, "test/preload/torch"), str(frames)]
        env = dict(preloaded(GPUMEM_HISTORY="16384", GPUMEM_STACKS=stacks) if stacks else environment(), PYTHONHASHSEED="0")
        parts = parts_of(command, env, 5000, 20000)
        if not stacks:
            bare = parts
            continue
        parts = {name: value - bare.get(name, 0) for name, value in parts.items()}
        line("instructions of a pool's block, stacks:%s, %d frames" % (stacks, frames), [sum(parts.values())], "",
             [("what the program takes without the library", [sum(bare.values())])])
        print_parts(parts, args.parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", metavar="DIRECTORY")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--rows", default="")
    parser.add_argument("--parts", type=int, default=0)
    args = parser.parse_args()
    bench = Bench(args)
    if not args.gpu and not os.path.exists(bench.calls):
        sys.exit("bench.py: %s is not there: make bench builds it" % os.path.relpath(bench.calls))
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        model = re.search("model name\\s*: (.*)", text.read())
    print("# %s, %d cores; %s; medians of %d rounds" % (model[1] if model else "?", os.cpu_count(),
                                                          "a GPU" if args.gpu else "the fake driver", args.rounds))
    print("%-58s %10s     %s" % ("what", "libgpumem", "in parts of its peers (theirs)"), flush=True)
    if any(bench.wanted(kind) for kind in CALLS + MORE):
        print_calls(bench.measure())
    if bench.wanted("fill"):
        print_fills(bench)
    if bench.wanted("replay") and (not args.gpu or os.path.exists(HEAPS)):
        print_heaps(args)
    if not args.gpu and bench.wanted("instructions") and not shutil.which("valgrind"):
        print("# no valgrind: instructions are not counted")
    elif not args.gpu and bench.wanted("instructions"):
        print_instructions(bench, args)
        print_pool_instructions(args)


main()
