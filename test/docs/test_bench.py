"""scripts/bench.py: the table of make bench, in small. What things cost there is no test's business, but that every row is
measured and beside its peers. And scripts/gpu-overhead.py: what it makes of times that are known."""
import importlib.util
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, check, finish  # noqa: E402


def table(*args):
    done = subprocess.run([sys.executable, "scripts/bench.py", "--rounds", "1", *args], env=dict(os.environ, B=B),
                          capture_output=True, text=True, timeout=300, check=False)
    rows = {}
    for line in done.stdout.splitlines():
        found = re.match(r"(.*?)\s{2,}([\d.,]+) (?:ns)?\s*(.*)", line)
        if found and not line.startswith("#"):
            rows[found[1]] = (float(found[2].replace(",", "")), dict(
                (name, float(ratio)) for ratio, name in re.findall(r"([\d.]+) of (.*?) \([\d.,]+\)", found[3])))
    return done, rows


SERVED = ["no history", "history without stacks", "history with all stacks"]
RANDOM = ["random %s of %d MiB" % (count, most) for count in ("1,000", "10,000", "100,000") for most in (1, 4, 64, 256, 1024, 4096)]
STREAMS = ["streams %d%s" % (count, warm) for count in (1, 2, 4) for warm in ("", " prewarmed")]
done, rows = table("--rows", "pair 4 KiB,holes 4,threads 1,random,streams")
check("nothing goes wrong", done.returncode == 0 and not re.search("^# .*: ", done.stdout.split("\n", 1)[1], re.M),
      done.stdout + done.stderr)
for about in SERVED:
    check("a pair, %s: beside its peers" % about, set(rows.get("pair 4 KiB, " + about, (0, {}))[1]) ==
          {"trivial hook", "cudaMalloc", "cudaMallocAsync"}, done.stdout)
    check("holes, threads, %s" % about, set(rows.get("holes 4,096, " + about, (0, {}))[1]) == {"cudaMalloc"} and
          all(rows.get("threads %d, %s" % (count, about), (0,))[0] > 0 for count in (1, 16)), done.stdout)
    check("RMM's random allocations of each size, %s" % about,
          all(set(rows.get("%s, %s" % (name, about), (0, {}))[1]) == {"cudaMalloc"} for name in RANDOM), done.stdout)
    check("and its streams, %s" % about, all(set(rows.get("%s, %s" % (name, about), (0, {}))[1]) == {"cudaMalloc", "cudaMallocAsync"}
                                             for name in STREAMS), done.stdout)
check("the way to the goal is printed", [name for name in rows if "beyond the trivial hook" in name and rows[name][1].keys() == {"the goal"}] ==
      ["pair 4 KiB beyond the trivial hook, " + about for about in (SERVED[0], SERVED[2])], done.stdout)
check("and the driver's pools", rows.get("cudaMallocAsync: pair 4 KiB, no history", (0, {}))[1].keys() == {"cudaMallocAsync", "cudaMalloc"},
      done.stdout)
check("and memory in pages", all(rows.get(name + "pair 4 KiB, in pages, no history", (0, {}))[1].keys() == {peer}
                                 for name, peer in (("", "cudaMalloc"), ("cudaMallocAsync: ", "cudaMallocAsync"))), done.stdout)

spec = importlib.util.spec_from_file_location("overhead", "scripts/gpu-overhead.py")
overhead = importlib.util.module_from_spec(spec)
spec.loader.exec_module(overhead)
check("the first tenth of a turn is left out", overhead.middle([9.0] * 4 + [1.0] * 19 + [2.0] * 17) == 1.0)
chance = random.Random(1)
ratios = [1.02 + chance.gauss(0, 0.01) for _ in range(40)]
at, low, high = overhead.interval(ratios)
check("an interval holds the median that the ratios were made with, and little more", low < 1.02 < high and low <= at <= high and
      0.001 < high - low < 0.012, (low, at, high))
check("a larger answer than the twin's interval is told", "cannot tell" not in overhead.told(ratios, 0.01) and
      overhead.told(ratios, 0.01).startswith("+"), overhead.told(ratios, 0.01))
check("a smaller one cannot be", "cannot tell: the twin's interval is 5.00% wide" in overhead.told(ratios, 0.05), overhead.told(ratios, 0.05))


class Turns:
    """A process of one kind whose turns are twice as slow at first and then take @seconds."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.lengths = []

    def say(self, line):
        self.lengths.append(float(line))

    def heard(self):
        return {"seconds": [2 * self.seconds] * 2 + [self.seconds] * 18}


live = {"bare": Turns(0.010), "libgpumem": Turns(0.011)}
args = type("Args", (), {"rounds": 3, "seconds": 0.5})
times, last = overhead.take_turns(list(live), live, args)
check("each kind has a turn of half a second in each round", [one.lengths for one in live.values()] == [[0.5] * 3] * 2 and
      times == {"bare": [0.010] * 3, "libgpumem": [0.011] * 3} and set(last) == set(live), times)
check("no other row", all(name.startswith(("pair 4 KiB", "holes 4,096", "threads 1", "random", "streams", "cudaMallocAsync: pair 4 KiB",
                               "cudaMallocAsync: threads 1", "cudaMallocAsync: streams"))
                          for name in rows), rows)
# What a program gets of a device is no matter of time: at default options never less than without the library.
done, rows = table("--rows", "fill")
FILLED, AGAIN, LARGEST = ("filled", "again", "largest")
names = sorted({name.rsplit(", ", 1)[0] for name in rows if name.endswith(FILLED) and ", in pages" not in name})
check("the device is filled in blocks of nine kinds, by default and in pages", len(names) == 9 and len(rows) == 54, done.stdout + done.stderr)
for name in names:
    parts = [rows["%s, %s" % (name, what)][1].get("native", 0) for what in (FILLED, AGAIN, LARGEST)]
    check("%s: as much as the driver gives, and what is freed serves as a large block" % name,
          parts[0] >= 0.99 and parts[1] >= 0.99 and parts[2] >= 0.95, parts)
finish()
