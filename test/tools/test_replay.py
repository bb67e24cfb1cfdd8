"""gpumem replay: the oracle. Every address and every statistic of real PyTorch histories."""
import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import deque

sys.path.insert(0, "test")
from tap import GPUMEM, check, finish  # noqa: E402


def replay(*args):
    return subprocess.run([GPUMEM, "replay", *args], capture_output=True, text=True, timeout=120, check=False)


TRACES = sorted(glob.glob("test/traces/*.trace.gz"))
check("there are traces", len(TRACES) >= 6, TRACES)
for trace in TRACES:
    done = replay(trace, "--verify", trace.replace(".trace.gz", ".stats.json"))
    check("%s: every address, every counter" % os.path.basename(trace),
          done.returncode == 0 and "0 addresses differ, 0 of 122 statistics differ" in done.stdout,
          done.stdout + done.stderr)

def held(path):
    """Per operation the stream and the bytes that it adds: blocks rounded to 512, until the free is complete. By this test alone."""
    size, steps = {}, []
    with gzip.open(path, "rt") as text:
        for words in map(str.split, text):
            if words[:1] == ["a"]:
                size[words[1]] = (max(512, -(-int(words[2]) // 512) * 512), words[3])
                steps.append((words[3], size[words[1]][0]))
            elif words[:1] == ["f"]:
                gone, stream = size.pop(words[1])
                steps.append((stream, -gone))
            elif words[:1] == ["r"] or words[1:2] in (["segment_alloc"], ["segment_free"], ["oom"]):
                steps.append((None, 0))
    return steps


def least(steps, lag):
    """What any heap needs where a stream's bytes stay its own for that many operations: the streams' peaks within them,
    together. The peak of a window, stream by stream and line by line."""
    together = [0] * len(steps)
    for one in {stream for stream, _ in steps if stream}:
        live, window = 0, deque()
        for now, (stream, by) in enumerate(steps):
            live += by if stream == one else 0
            while window and window[-1][1] <= live:
                window.pop()
            window.append((now, live))
            if window[0][0] < now - lag:
                window.popleft()
            together[now] += window[0][1]
    return max(together)


def draw(rng, least_bytes, most_bytes):
    """As often between 1 and 2 MiB as between 2 and 4."""
    return int(least_bytes * (most_bytes / least_bytes) ** rng.random())


def one_of(rng, values):
    return values[int(rng.random() * len(values))]     # choice() differs from one Python to another


def made(path, kind, count, seed):
    """A history of @count streams: answering requests with caches that grow; steps forward and back, of a new width each
    time, on some of the streams; inputs that other streams load."""
    rng, lines, number, live = random.Random(seed), [], 0, []

    def take(size, stream):
        nonlocal number
        lines.append("a %d %d %d\n" % (number, size, stream))
        number += 1
        return number - 1

    def give(block):
        lines.extend(("r %d\n" % block, "f %d\n" % block))

    for _ in range(30):
        take(draw(rng, 1 << 20, 32 << 20), 0)
    caches, tokens = [[] for _ in range(count)], [0] * count
    while len(lines) < 9000:
        if kind == "serving":
            stream = one_of(rng, range(count))
            if not caches[stream] or rng.random() < .02:
                for block in caches[stream]:
                    give(block)
                tokens[stream] = one_of(rng, range(16, 2048))
                for block in [take(tokens[stream] * 4096 * one_of(rng, (1, 2, 4)), stream) for _ in range(8)]:
                    give(block)
                caches[stream] = [take(tokens[stream] * 4096, stream) for _ in range(4)]
            tokens[stream] += 1 + one_of(rng, range(16))
            for i, block in enumerate(caches[stream]):
                caches[stream][i], short = take(tokens[stream] * 4096, stream), take(65536, stream)
                give(block)
                give(short)
        elif kind == "steps":
            width, used = draw(rng, 65536, 24 << 20), 1 + one_of(rng, range(count))
            live = [take(width * one_of(rng, (1, 1, 2, 4)), stream) for _ in range(12) for stream in range(used)]
            while live:
                give(live.pop())
                if rng.random() < .3:
                    give(take(draw(rng, 512, 4 << 20), one_of(rng, range(used))))
        else:
            live.append(take((3 << 20) * one_of(rng, (1, 4, 10, 20)), 1 + one_of(rng, range(count - 1))))
            layers = [take(draw(rng, 1 << 18, 40 << 20), 0) for _ in range(3 + one_of(rng, range(15)))]
            for block in sorted(layers, key=lambda _: rng.random()):
                give(block)
            if len(live) > 5:
                give(live.pop(0))
    with gzip.open(path, "wt") as out:
        out.writelines(lines)
    return path


# The pages heap: a fiftieth more than what any heap needs, and a page for each stream. Where several busy streams wait for
# each other it is more: pages that a stream uses in part are wholly its own.
PAGE = 2 << 20
ROOM = tempfile.TemporaryDirectory()            # pylint: disable=consider-using-with
MADE = [made(os.path.join(ROOM.name, "%s of %d streams.trace.gz" % (kind, count)), kind, count, seed)
        for seed, (kind, count) in enumerate((kind, count) for kind in ("serving", "steps", "loading") for count in (4, 16))]
for trace in TRACES + MADE:
    steps = held(trace)
    peak, streams = least(steps, 0), len({stream for stream, _ in steps if stream})
    done = replay("--heap", "pages", "--json", trace)
    runs = json.loads(done.stdout)["lags"]
    check("%s: three lags" % os.path.basename(trace), [run["lag"] for run in runs] == [0, 100, 1000], done)
    for run in runs:
        needed = least(steps, run["lag"]) if streams > 1 else peak
        allowed = needed + needed // 50 + streams * PAGE
        check("%s, lag %d: what any heap needs" % (os.path.basename(trace), run["lag"]), run["needed_bytes"] == needed and
              run["streams"] == streams and run["allowed_bytes"] == allowed, (run, needed))
        bound = allowed + (needed * {0: 0, 100: 3, 1000: 9}[run["lag"]] // 100 if streams > 2 else 0)
        check("%s on the pages heap, lag %d: at most %.3f of what is live" % (os.path.basename(trace), run["lag"], bound / peak),
              run["peak_live_bytes"] == peak and needed <= run["peak_reserved_bytes"] <= bound and
              run["holds"] == (run["peak_reserved_bytes"] <= allowed) and
              run["peak_reserved_bytes"] % PAGE == 0 and abs(run["ratio"] - run["peak_reserved_bytes"] / peak) < 1e-9 and
              run["ooms"] == 0 and run["pages_moved"] > 0 and run["ns_per_operation"] > 0, (run, peak))
    one = json.loads(replay("--heap", "pages", "--lag", "100", "--json", trace).stdout)
    check("%s: one lag is asked for" % os.path.basename(trace), len(one["lags"]) == 1 and
          {k: v for k, v in one["lags"][0].items() if k != "ns_per_operation"} ==
          {k: v for k, v in runs[1].items() if k != "ns_per_operation"}, (one, runs[1]))
done = replay("--heap", "pages", TRACES[0])
check("in text: a line for each lag", done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] ==
      ["lag", "0", "100", "1000"], done.stdout)
full = json.loads(replay("--heap", "pages", "--json", "--capacity", "10GiB", "test/traces/gpt.trace.gz").stdout)
check("too small a device: out of memory is counted, and nothing is taken past it", full["ooms"] > 0 and full["retries"] > 0 and
      full["peak_reserved_bytes"] <= 10 << 30, full)
for words in (["--heap", "pages", "--search"], ["--lag", "3"], ["--heap", "paged"], ["--heap", "pages", "--lag", "x"],
              ["--heap", "pages", "--verify", "test/traces/streams.stats.json"], ["--output", "x.json", "--search"],
              ["--output", "x.json", "--heap", "pages"], ["--output", "x.png"],
              ["--output", "x.json", "--verify", "test/traces/streams.stats.json"]):
    done = replay(*words, TRACES[0])
    check("%s: refused" % " ".join(words), done.returncode == 2 and done.stderr, done)

with tempfile.TemporaryDirectory() as room:
    # The oracle can fail: another address, another counter, other settings.
    source = "test/traces/streams"
    with gzip.open(source + ".trace.gz", "rt") as text:
        lines = text.readlines()
    with open(source + ".stats.json", encoding="utf-8") as text:
        stats = json.load(text)
    path = os.path.join(room, "t.trace")

    def write(changed):
        with open(path, "w", encoding="utf-8") as text:
            text.writelines(changed)

    nth = [i for i, line in enumerate(lines) if line.startswith("a ")][1000]
    words = lines[nth].split()
    write(lines[:nth] + [" ".join(words[:4] + ["%x" % (int(words[4], 16) + 512)]) + "\n"] + lines[nth + 1:])
    done = replay(path, "--verify", source + ".stats.json")
    check("a wrong address is found, and where", done.returncode == 1 and "line %d:" % (nth + 1) in done.stdout, done.stdout)

    other = os.path.join(room, "s.json")
    for key in ("active.all.peak", "num_device_alloc", "requested_bytes.small_pool.freed", "max_split_size"):
        changed = dict(stats, stats=dict(stats["stats"], **{key: stats["stats"][key] + 1}))
        with open(other, "w", encoding="utf-8") as text:
            json.dump(changed, text)
        done = replay(source + ".trace.gz", "--verify", other)
        check("a wrong %s is found" % key, done.returncode == 1 and key in done.stdout, done.stdout)
    write(["# conf=roundup_power2_divisions:2\n" if line.startswith("# conf=") else line for line in lines])
    check("other settings are found", replay(path, "--verify", source + ".stats.json").returncode == 1)

    # What settings cost.
    plain = json.loads(replay("test/traces/gpt.trace.gz", "--json").stdout)
    # Other addresses than the recorded driver's: ties between equal blocks fall otherwise.
    check("plain replay: PyTorch's own peak, within a hundredth",
          abs(plain["peak_reserved_bytes"] / 21105737728 - 1) < 0.01 and plain["ooms"] == 0, plain)
    tight = json.loads(replay("test/traces/gpt.trace.gz", "--json", "--capacity", "14GiB").stdout)
    check("a smaller device: retries, and less reserved", tight["retries"] > 0 and
          tight["peak_reserved_bytes"] <= 14 << 30, tight)
    none = json.loads(replay("test/traces/gpt.trace.gz", "--json", "--capacity", "1GiB").stdout)
    check("far too small a device: out of memory is counted", none["ooms"] > 0, none)

    # A replay as a snapshot: its events, added up by this test, make what the replay says and what is there at the end.
    for more in ([], ["--capacity", "14GiB"], ["--conf", "max_split_size_mb:64"]):
        out = os.path.join(room, "replayed.json")
        said = json.loads(replay("test/traces/gpt.trace.gz", "--json", *more, "-o", out).stdout)
        check("-o %s: the answer is the same" % more, said == json.loads(replay("test/traces/gpt.trace.gz", "--json", *more).stdout))
        with open(out, encoding="utf-8") as file:
            document = json.load(file)
        reserved = peak = 0
        segments, live, pending, counts = {}, {}, {}, {}
        for event in document["device_traces"][0]:
            action, at, size = event["action"], event["addr"], event["size"]
            counts[action] = counts.get(action, 0) + 1
            if action == "segment_alloc":
                segments[at] = size
                reserved += size
                peak = max(peak, reserved)
            elif action == "segment_free":
                reserved -= segments.pop(at)
            elif action == "alloc":
                assert at not in live and at not in pending
                live[at] = size
            elif action == "free_requested":
                pending[at] = live.pop(at)
            elif action == "free_completed":
                assert pending.pop(at) == size
        blocks = {block["address"]: block for segment in document["segments"] for block in segment["blocks"]}
        check("-o %s: the events make the peak" % more, peak == said["peak_reserved_bytes"] and counts.get("oom", 0) == said["ooms"] and
              counts["alloc"] + counts.get("oom", 0) == said["allocations"], (peak, counts, said))
        check("-o %s: and the end" % more, {segment["address"]: segment["total_size"] for segment in document["segments"]} == segments and
              {at: block["size"] for at, block in blocks.items() if block["state"] == "active_allocated"} == live and
              {at: block["size"] for at, block in blocks.items() if block["state"] == "active_awaiting_free"} == pending and
              all(sum(block["size"] for block in segment["blocks"]) == segment["total_size"] for segment in document["segments"]))
        told = subprocess.run([GPUMEM, "summary", "--json", out], capture_output=True, text=True, timeout=120, check=False)
        check("-o %s: summary reads it" % more, told.returncode == 0 and json.loads(told.stdout), told.stderr)
    done = replay("test/traces/gpt.trace.gz", "-o", os.path.join(room, "nowhere", "x.json"))
    check("-o: what cannot be written is said", done.returncode == 1 and "could not be written" in done.stderr, done)

    fifo = os.path.join(room, "fifo")
    os.mkfifo(fifo)
    for stats, said in ((fifo, "fifo: "), ("/dev/zero", "a device"), (room, "a directory"), (room + "/none", "No such file"),
                        ("test/data/gpumem-snapshot.json", 'has no "stats"')):
        done = replay("test/traces/streams.trace.gz", "--verify", stats)
        check("--verify %s: refused at once" % os.path.basename(stats), done.returncode == 3 and said in done.stderr and done.stderr.count("\n") == 1,
              done)

    # A pipe is read once: whether it is a trace is not found out at its cost.
    for source in ("test/traces/streams.trace.gz", "test/data/torch-snapshot.pickle"):
        plain = replay("--json", source)
        piped = subprocess.run(["bash", "-c", '"$0" replay --json <(cat "$1")', GPUMEM, source], capture_output=True, text=True,
                               timeout=120, check=False)
        check("%s through a pipe" % os.path.basename(source), plain.returncode == 0 and piped.stdout == plain.stdout, (plain, piped))
        with open(source, "rb") as raw:
            piped = subprocess.run([GPUMEM, "replay", "--json", "-"], stdin=raw, capture_output=True, text=True, timeout=120, check=False)
        check("%s on standard input" % os.path.basename(source), piped.stdout == plain.stdout, (plain, piped))

    # Sizes that no class of free blocks is small for: what rounds to 2^60 bytes, asked for and recorded.
    exa, addresses = 1 << 60, "7f0000000000"
    write(["# segment_alloc %d 0 %s\n" % (exa, addresses), "a 1 %d 0 %s\n" % (exa - 100, addresses), "r 1\n", "f 1\n"])
    done = replay(path, "--verify", "test/traces/streams.stats.json")
    check("a recorded segment of 2^60 bytes: a difference", done.returncode == 1 and "first difference" in done.stdout,
          (done.returncode, done.stdout, done.stderr))
    sizes = json.loads(replay(path, "--json", "--conf", "max_split_size_mb:%d,roundup_power2_divisions:4" % (exa >> 20)).stdout)
    check("2^60 bytes are out of memory", sizes["ooms"] == 1 and sizes["peak_reserved_bytes"] == 0, sizes)

    # Input that is no trace.
    for name, content in (("empty", b""), ("binary", bytes(range(256)) * 8), ("words", b"a x y z\n"),
                          ("free of nothing", b"f 3\n"), ("half a line", b"a 1"), ("below 0", b"a 0 -5 0 0\n"), ("above 2^64", b"a 0 99999999999999999999 0 0\n"),
                          ("a stream above 2^64", b"a 0 5 18446744073709551616 0\n"), ("an id below 0", b"a 0 5 0 0\nf -1\n"), ("long", b"a" * 5000)):
        with open(path, "wb") as raw:
            raw.write(content)
        done = replay(path)
        neither = "neither a snapshot nor a trace"
        reason = {"empty": "an empty file", "binary": neither, "words": neither, "long": neither, "an id below 0": "line 2"}.get(name, "line 1")
        check("%s: refused with a reason" % name, done.returncode == 3 and reason in done.stderr, (done.returncode, done.stderr))
    with open("test/traces/gpt.trace.gz", "rb") as raw:
        cut = raw.read(100000)
    with open(path, "wb") as raw:
        raw.write(cut)
    check("a truncated file is refused", replay(path).returncode == 3)
    check("a missing file is refused", replay(path + "x").returncode == 3)
    # The default is a value like any other.
    limited = replay("test/traces/gpt_tight.trace.gz", "--json").stdout
    same = replay("test/traces/gpt_tight.trace.gz", "--json", "--conf", "max_split_size_mb:unlimited,max_non_split_rounding_mb:20").stdout
    free = [replay("test/traces/gpt_tight.trace.gz", "--json", *words) for words in (["--limit", "unlimited"], ["--limit", "64GiB"],
                                                                                    ["--limit", "64GiB", "--capacity", "unlimited"])]
    check("max_split_size_mb:unlimited is the default", limited and same == limited, (limited, same))
    check("--limit unlimited: without the recorded limit", free[0].stdout and free[0].stdout != limited and len({f.stdout for f in free}) == 1, free)
    for conf, word in (("max_split_size_mb:2", "from 20 (large_segment_size_mb)"), ("garbage_collection_threshold:1.2", "fraction"),
                       ("roundup_power2_divisions:3", "power of two"), ("x", "not an option"),
                       ("roundup_power2_divisions:[256:1,512:2", "power of two"), ("large_segment_size_mb:10", "from 11"),
                       ("max_splt_size_mb:40", "did you mean max_split_size_mb?")):
        done = replay("test/traces/streams.trace.gz", "--conf", conf)
        check("--conf %s is refused" % conf, done.returncode == 2 and word in done.stderr, done.stderr)
finish()
