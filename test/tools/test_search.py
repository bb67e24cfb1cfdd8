"""gpumem replay of recorded histories, and --search: what other settings would have cost."""
import glob
import json
import os
import random
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from screen import Screen  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, load  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
MiB = 1 << 20


def replay(*words):
    run = gpumem("replay", "--json", *words, timeout=120)
    return json.loads(run.stdout) if run.returncode == 0 else run


def peak_of(snapshot, device=0, kinds=("device", "pool", "managed", "array", "vmm")):
    """Bytes asked for and live at the highest moment: from the trace and the tables, by this test alone."""
    trace = snapshot["device_traces"][device]
    live = 0
    rows = list(zip(trace["action"], trace["addr"], trace["size"], trace["kind"]))
    began = {a for action, a, _, k in rows if action == "alloc" and k in kinds}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if segment["device"] == device and block["state"] != "inactive" and block["kind"] in kinds and block["address"] not in began:
                live += block["requested_size"]
    seen = set()
    for action, address, size, kind in rows:
        if kind not in kinds:
            continue
        if action == "alloc":
            seen.add(address)
        if action == "free_completed" and address not in seen:
            live += size
    peak = live
    for action, address, size, kind in rows:
        if kind in kinds and action in ("alloc", "free_completed"):
            live += size if action == "alloc" else -size
            peak = max(peak, live)
    return peak


POOL = """
from pool_user import *
context()
torch = Torch()
for step in range(10):
    for block in [torch.alloc(7 << 20) for i in range(20)]:
        torch.free(block)
"""

with Room() as room:
    # ---- a snapshot's history -----------------------------------------------------------------------------------------
    room.run([TRAINING, "--steps", "40"])
    path = glob.glob(room.out + "/*exit.json")[0]
    snapshot = load(path)
    stats = snapshot["devices"][0]["memory_stats"]
    plain = replay(path)
    check("every allocation of the program is replayed", plain["allocations"] == stats["allocation.all.allocated"] == 40 * 13 + 24, plain)
    check("live at the peak as the statistics count what was asked for", plain["peak_live_bytes"] ==
          stats["requested_bytes.all.peak"] == peak_of(snapshot), (plain, stats["requested_bytes.all.peak"], peak_of(snapshot)))
    check("reserved: what a cache takes", plain["peak_reserved_bytes"] > plain["peak_live_bytes"] and plain["ooms"] == 0, plain)
    large = replay("--conf", "large_segment_size_mb:32", path)
    check("--conf: other settings, another peak", large["peak_reserved_bytes"] < plain["peak_reserved_bytes"], (large, plain))
    found = replay("--search", path)
    check("--search: many tried, the start first", len(found["tried"]) > 20 and found["tried"][0]["conf"] == "" and
          found["tried"][0]["peak_reserved_bytes"] == plain["peak_reserved_bytes"], found)
    check("each setting is tried", all(any(key in one["conf"] for one in found["tried"]) for key in (
        "max_split_size_mb", "roundup_power2_divisions", "large_segment_size_mb", "garbage_collection_threshold",
        "max_non_split_rounding_mb")))
    best = found["recommended"]
    check("it recommends the least", best and best["peak_reserved_bytes"] <= 1.01 * min(t["peak_reserved_bytes"] for t in found["tried"]) and
          best["peak_reserved_bytes"] <= large["peak_reserved_bytes"], best)
    check("each was replayed with several orders of addresses", all(t["lowest_reserved_bytes"] <= t["peak_reserved_bytes"] <= t["highest_reserved_bytes"]
          for t in found["tried"]) and best["highest_reserved_bytes"] < found["tried"][0]["lowest_reserved_bytes"], found)
    pages = replay("--heap", "pages", path)
    behind = [run["peak_reserved_bytes"] for run in pages["lags"]]
    check("the pages heap is tried, too", found["pages_heap"] == {
        "conf": "expandable_segments:True", "peak_reserved_bytes": behind[1], "lowest_reserved_bytes": min(behind),
        "highest_reserved_bytes": max(behind), "ooms": 0, "pages_moved": pages["lags"][1]["pages_moved"],
        "recommended": max(behind) < 0.95 * best["peak_reserved_bytes"]}, (found["pages_heap"], pages))
    alone = replay("--conf", best["conf"], "--limit", str(found["limit_bytes"]), path)
    check("what it says is what a replay says", alone["peak_reserved_bytes"] == best["peak_reserved_bytes"] and alone["ooms"] == 0, (alone, best))
    check("the limit is what the device had for this process",
          found["limit_bytes"] == snapshot["devices"][0]["total_bytes"] - max(snapshot["devices"][0]["unattributed_bytes"], 0), found["limit_bytes"])

    # ---- would it have run out? ---------------------------------------------------------------------------------------
    limit = (plain["peak_reserved_bytes"] + best["peak_reserved_bytes"]) // 2
    tight = replay("--search", "--limit", str(limit), path)
    check("--limit: nothing tried takes more", all(t["peak_reserved_bytes"] <= limit for t in tight["tried"]), tight)
    check("a limit below what is live: memory runs out whatever is set", (none := replay("--search", "--limit", str(
        plain["peak_live_bytes"] - MiB), path)) and all(t["ooms"] > 0 and t["first_oom_bytes"] > 0 for t in none["tried"]), none)
    check("and nothing is recommended; it says what it takes", none["recommended"] is None and not none["fits"] and none["needed_live_bytes"] == plain["peak_live_bytes"] and
          none["needed_reserved_bytes"] == plain["peak_reserved_bytes"] and tight["fits"], (none["recommended"], none["fits"]))
    text = gpumem("replay", "--search", "--limit", str(plain["peak_live_bytes"] - MiB), path).stdout
    check("in text, too", re.search(r"^nothing that was tried fits into .*\nwhat is live alone takes %.2f MiB at the peak, whatever is set; without a limit the defaults would "
                                    r"have reserved %.2f MiB$" % (plain["peak_live_bytes"] / MiB, plain["peak_reserved_bytes"] / MiB), text, re.M) and
          "_CONF=" not in text, text)
    edge = plain["peak_live_bytes"] + 24 * MiB
    close = replay("--search", "--limit", str(edge), path)
    text = gpumem("replay", "--search", "--limit", str(edge), path).stdout
    if close["recommended"] and close["tried"][0]["ooms"] and not close["recommended"]["ooms"]:
        check("in text: that memory would not have run out", "and memory would not have run out" in text, text)
    check("in text: the line to set", ("\n" + close["line_to_set"] + "\n" in text) if close["recommended"]
          else "none is better" in text or "nothing that was tried fits" in text, text)
    flips = [(size, r) for size in range(plain["peak_live_bytes"] // MiB, plain["peak_reserved_bytes"] // MiB, 16)
             for r in [replay("--search", "--limit", "%dMiB" % size, path)]
             if r["tried"][0]["ooms"] and r["recommended"] and not r["recommended"]["ooms"]]
    check("there is a limit at which the right settings make the difference", flips, [])
    if flips:
        text = gpumem("replay", "--search", "--limit", "%dMiB" % flips[0][0], path).stdout
        check("and it is said so", "and memory would not have run out" in text and "first at" in text, text)

    # ---- refused requests ---------------------------------------------------------------------------------------------
    run = room.run([TRAINING, "--oom"])
    oom = glob.glob(room.out + "/*oom-1.json")[0]
    more = replay("--limit", "16GiB", oom)
    check("a request that was refused is tried again: 16 GiB would do", run.returncode == 1 and more["ooms"] == 0 and
          more["peak_reserved_bytes"] >= 8000 * MiB, more)
    same = replay("--search", oom)
    check("on the device as it was it fails whatever is set", all(t["ooms"] == 1 and t["first_oom_bytes"] == 8000 * MiB for t in same["tried"]), same)

    # ---- sizes that are none ------------------------------------------------------------------------------------------
    absurd = os.path.join(room.path, "absurd.json")
    for size in ((1 << 63) - 1, 1 << 61, 1 << 59):
        copy = load(path)
        place = [i for i, action in enumerate(copy["device_traces"][0]["action"]) if action == "alloc"][5]
        copy["device_traces"][0]["size"][place] = size
        with open(absurd, "w", encoding="utf-8") as out:
            json.dump(copy, out)
        one = replay(absurd)
        check("an allocation of %d bytes is refused, the rest goes on" % size, one["allocations"] == plain["allocations"] and
              plain["peak_live_bytes"] - 20 * MiB <= one["peak_live_bytes"] <= plain["peak_live_bytes"], one)
        check("and the search says so", all(t["ooms"] == 1 and t["first_oom_bytes"] == size for t in replay("--search", absurd)["tried"]))

    # ---- other sorts of memory, a history without its beginning -------------------------------------------------------
    room.run([APP])
    demo = next(load(p) for p in glob.glob(room.out + "/gpumem.demo_app*exit.json") if len(load(p)["device_traces"][0]["action"]) > 60)
    other = os.path.join(room.path, "demo.json")
    with open(other, "w", encoding="utf-8") as out:
        json.dump(demo, out)
    mixed = replay(other)
    check("managed and virtual memory count, past the cache", mixed["peak_live_bytes"] == peak_of(demo) and
          mixed["allocations"] < demo["devices"][0]["memory_stats"]["allocation.all.allocated"], (mixed, peak_of(demo)))
    room.run([TRAINING, "--steps", "400", "--leak"], history=4000)
    cut = max(glob.glob(room.out + "/gpumem.app_training*exit*.json"), key=os.path.getmtime)
    snapshot = load(cut)
    late = replay("--search", cut)
    check("what is older than the history is there from the start", snapshot["device_traces"][0]["dropped"] > 1000 and
          late["peak_live_bytes"] == peak_of(snapshot) > 500 * MiB and late["dropped_events"] == snapshot["device_traces"][0]["dropped"],
          (late["peak_live_bytes"], peak_of(snapshot), late["dropped_events"]))
    check("and it is said", "older events were not kept" in gpumem("replay", "--search", cut).stdout)

    # ---- what is said of settings that were not run is what a run says ------------------------------------------------
    def differing(path, *words):
        """(how many were tried, those of which a replay alone says something else) of a search that had two cores."""
        found = replay("--search", *words, path)
        limit = () if found["limit_bytes"] is None else ("--limit", str(found["limit_bytes"]), "--capacity", str(found["limit_bytes"]))
        wrong = []
        for one in found["tried"]:
            alone = replay("--conf", one["conf"], *limit, path)
            if [alone[key] for key in ("peak_reserved_bytes", "segments_allocated", "retries", "ooms")] != [
                    one[key] for key in ("peak_reserved_bytes", "driver_calls", "retries", "ooms")]:
                wrong.append((one, alone))
        return len(found["tried"]), wrong

    torch = "test/data/torch-snapshot.pickle"
    made = os.path.join(room.path, "made.trace")
    with open(made, "w", encoding="utf-8") as out:	# sizes on both sides of every value that is tried
        for n in range(600):
            out.write("a %d %d %d 0\n" % (n, (n * n * 7919 + 1) % ((1 if n % 7 else 700) << 20) + 1, n % 3))
            if n >= 40:
                out.write("r %d\n" % (n - 40) + ("f %d\n" % (n - 40) if n % 5 else ""))
            if n >= 45 and not n % 5:
                out.write("f %d\n" % (n - 45))
    for told, words in ((made, ()), (made, ("--limit", "5GiB")), (made, ("--limit", "9GiB")), (torch, ()),
                        ("test/traces/streams.trace.gz", ("--limit", "300MiB")), ("test/traces/moe_roundup.trace.gz", ()),
                        ("test/traces/moe_gc.trace.gz", ())):
        count, wrong = differing(told, *words)
        check("%s %s: each of %d settings as a replay alone" % (os.path.basename(told), " ".join(words), count),
              count > 20 and not wrong, wrong[:3])

    # ---- PyTorch's own ------------------------------------------------------------------------------------------------
    torch = replay("--search", "test/data/torch-snapshot.pickle")
    check("a pickle: its history, its limit by what was free when it ran out", torch["allocations"] == 95 and
          100 << 30 < torch["limit_bytes"] < 200 << 30 and torch["tried"][0]["ooms"] == 1, torch)
    run = gpumem("replay", "--search", "-", stdin=open(path, encoding="utf-8").read())
    check("standard input", run.returncode == 0 and "would have reserved" in run.stdout, run)

    # ---- traces -------------------------------------------------------------------------------------------------------
    gpt = replay("--search", "test/traces/gpt.trace.gz")
    check("the trace of a transformer: a fifth less by settings", gpt["recommended"]["peak_reserved_bytes"] <
          0.8 * gpt["tried"][0]["peak_reserved_bytes"], gpt["recommended"])
    again = replay("--conf", gpt["recommended"]["conf"], "test/traces/gpt.trace.gz")
    check("and a replay agrees", again["peak_reserved_bytes"] == gpt["recommended"]["peak_reserved_bytes"], again)
    moe = replay("--search", "test/traces/moe_roundup.trace.gz")
    check("settings in force are replaced, not repeated", all(t["conf"].count("roundup_power2_divisions") == 1 for t in moe["tried"]) and
          moe["tried"][0]["conf"] == "roundup_power2_divisions:4,max_split_size_mb:200", [t["conf"] for t in moe["tried"]])

    drawn = []
    for seed in (0, 23, 25, 34):        # settings a hundredth apart: what was tried last is not what is best
        draw, live, lines, n = random.Random(seed), [], [], 0
        for _ in range(draw.choice([100, 300])):
            for _ in range(draw.randint(1, 8)):
                lines.append("a %d %d 0 0" % (n, int(draw.choice([0.3, 1.5, 3, 7, 11, 33, 70]) * MiB * draw.uniform(0.5, 1.5))))
                live.append(n)
                n += 1
            draw.shuffle(live)
            while len(live) > draw.choice([20, 40]):
                lines.append("r %d\nf %d" % (live[-1], live.pop()))
        drawn.append(os.path.join(room.path, "drawn%d.trace" % seed))
        with open(drawn[-1], "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
    said = set()
    for told, words in [(told, ()) for told in glob.glob("test/traces/*.trace.gz") + drawn] + [
            ("test/traces/resnet.trace.gz", ("--limit", "5670MiB")), ("test/traces/pipeline.trace.gz", ("--limit", "830MiB"))]:
        found = replay("--search", *words, told)
        best, start = found["recommended"], found["tried"][0]
        other, text = found["pages_heap"], gpumem("replay", "--search", *words, told).stdout
        lags = replay("--heap", "pages", *words, *(("--capacity", words[1]) if words else ()), told)["lags"]
        beaten = best or start
        said.add((other["recommended"], found["fits"]))
        check("%s %s: the pages heap is recommended where it is better however far the GPU is behind" % (os.path.basename(told), " ".join(words)),
              other["recommended"] == (not any(run["ooms"] for run in lags) and (beaten["ooms"] > 0 or (
                  other["highest_reserved_bytes"] < beaten["lowest_reserved_bytes"] and
                  other["highest_reserved_bytes"] < 0.95 * beaten["peak_reserved_bytes"]))) and
              ("\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in text) == other["recommended"] and "however far the GPU is behind" in text,
              (other, beaten, text))
        key = ("ooms", "peak_reserved_bytes", "driver_calls")
        check("%s: nothing that was tried is better in both columns" % os.path.basename(told), not best or not any(
            t["ooms"] <= best["ooms"] and t["peak_reserved_bytes"] < best["peak_reserved_bytes"] and t["driver_calls"] < best["driver_calls"]
            for t in found["tried"]), best)
        check("%s: what is recommended is better by more than 5%%, or in calls" % os.path.basename(told), not best or [best[k] for k in key] != [start[k] for k in key] and (
            best["ooms"] < start["ooms"] or best["peak_reserved_bytes"] < 0.95 * start["peak_reserved_bytes"] or
            (best["peak_reserved_bytes"] <= start["peak_reserved_bytes"] and best["driver_calls"] < 0.9 * start["driver_calls"])), (best, start))

    check("it is for some, for some it is not, and for one nothing else would do", {(True, True), (False, True), (True, False)} <= said, said)

    # ---- the line to set is one that the program reads ----------------------------------------------------------------
    def line_of(path):
        found, text = replay("--search", path), gpumem("replay", "--search", path).stdout
        check("%s: the text has the same line" % os.path.basename(path), found["line_to_set"] and "\n%s\n" % found["line_to_set"] in text,
              (found["line_to_set"], text))
        return found, found["line_to_set"] or ""

    def reserved(path):
        return load(path)["devices"][0]["memory_stats"]["reserved_bytes.all.peak"]

    def newest(word):
        return max(glob.glob(room.out + "/gpumem.%s*exit*.json" % word), key=os.path.getmtime)

    room.run([TRAINING, "--steps", "40"], PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:77")
    cached = newest("app_training")
    found, line = line_of(cached)
    check("our own cache: its settings, and not what PyTorch's variable said", line == "GPUMEM_CONF=" + found["recommended"]["conf"] and
          found["tried"][0]["conf"] == "", (line, found["tried"][0]))
    room.run([TRAINING, "--steps", "40"], GPUMEM_CONF=line.split("=", 1)[-1])
    check("a run with that line takes what was foretold, and less than before", abs(reserved(newest("app_training")) -
          found["recommended"]["peak_reserved_bytes"]) <= 0.05 * found["recommended"]["peak_reserved_bytes"] and
          reserved(newest("app_training")) < reserved(cached), (reserved(newest("app_training")), reserved(cached), found["recommended"]))
    room.run([TRAINING, "--steps", "40"], allocator="native")
    found, line = line_of(newest("app_training"))
    check("a program without any cache: ours, to be switched on", line == "GPUMEM_CONF=allocator:caching," + found["recommended"]["conf"], line)
    room.run([TRAINING, "--steps", "40"], env={key: value for key, value in room.env(GPUMEM_CONF=line.split("=", 1)[-1]).items()
                                               if key != "GPUMEM_ALLOCATOR"})
    check("a run with that line has it", load(newest("app_training"))["allocator_settings"]["gpumem"]["allocator"]["value"] == "caching" and
          abs(reserved(newest("app_training")) - found["recommended"]["peak_reserved_bytes"]) <=
          0.05 * found["recommended"]["peak_reserved_bytes"], (reserved(newest("app_training")), found["recommended"]))
    told = room.run([sys.executable, "-c", POOL], env=room.env(PYTHONPATH=os.path.abspath("test/preload/programs"),
                                                              TORCH=os.path.join(B, "test/preload/torch"), PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:77"))
    found, line = line_of(newest("python"))
    check("PyTorch's pool: what it handed out is replayed, and PyTorch's variable is named", told.returncode == 0 and
          line == "PYTORCH_CUDA_ALLOC_CONF=" + found["recommended"]["conf"] and found["allocations"] == 200 and
          found["tried"][0]["conf"] == "max_split_size_mb:77", (told, line, found["allocations"], found["tried"][0]))
    # ---- what ran is what others are compared with --------------------------------------------------------------------
    for words, options in ([], {}), (["shared_segments:1"], {"GPUMEM_CONF": "shared_segments:1"}), (["large_segment_size_mb:64"], {"GPUMEM_CONF": "large_segment_size_mb:64"}):
        told = room.run([sys.executable, "-c", "from host import *\nfor _ in range(120): try_alloc(7 << 20)"],
                        env=room.env(PYTHONPATH=os.path.abspath("test/python"), FAKECUDA_CAPACITY="1GiB", oom_snapshots=0, **options))
        ran = load(newest("python"))["devices"][0]["memory_stats"]
        found = replay("--search", newest("python"))
        start = found["tried"][0]
        check("our cache with %s: the start takes what it took when it ran" % (words or "its defaults"), told.returncode == 0 and start["conf"] == ",".join(words) and
              (start["peak_reserved_bytes"], start["driver_calls"], start["ooms"]) ==
              (ran["reserved_bytes.all.peak"], ran["num_device_alloc"], ran["num_ooms"]), (start, told))
        check("our cache with %s: how much blocks share is among what is tried" % (words or "its defaults"), any(
            "shared_segments:0.5" in one["changed"] for one in found["tried"]))
    text = gpumem("replay", "--search", newest("python")).stdout
    check("in text, too", "\n  shared_segments " in text and "PyTorch" not in text, text)
    found, line = line_of("test/traces/gpt.trace.gz")
    check("a trace of PyTorch's: its variable", line.startswith("PYTORCH_CUDA_ALLOC_CONF="), line)
    check("PyTorch's cache shares without bound: that is not tried", not any("shared_segments" in one["conf"] for one in found["tried"]))
    room.run([TRAINING, "--steps", "8"], GPUMEM_CONF="expandable_segments:True")
    found = replay("--search", newest("app_training"))
    check("in pages: the start is the pages heap", found["tried"][0]["conf"] == "expandable_segments:True" and
          found["tried"][0]["peak_reserved_bytes"] == found["pages_heap"]["peak_reserved_bytes"] and not found["pages_heap"]["recommended"], found)
    room.run([TRAINING, "--steps", "8"], GPUMEM_CONF="memory_limit:700MiB")
    found = replay("--search", newest("app_training"))
    check("a limit of the run's is the limit", found["limit_bytes"] == 700 * MiB, found["limit_bytes"])
    for name, text in ("hello.c", "#include <stdio.h>\nint main(void)\n{\n}\n"), ("Makefile", "all: x\n"), ("notes", "# a note\n\nhello\n"), ("empty", ""):
        with open(os.path.join(room.path, name), "w", encoding="utf-8") as out:
            out.write(text)
        for words in [], ["--search"]:
            run = gpumem("replay", *words, out.name)
            check("%s is neither, in a sentence" % name, run.returncode == 3 and not run.stdout and run.stderr == (
                "gpumem replay: %s: %s\n" % (out.name, "an empty file" if not text else "neither a snapshot nor a trace, which has an operation in each line")), run)

    # ---- text that is not UTF-8 ---------------------------------------------------------------------------------------
    odd = os.path.join(room.path, "odd.trace")
    with open(odd, "wb") as out:
        out.write(b"# conf=max_split_size_mb:64,no\xff\xc3thing:1\na 0 4096 0 0\nr 0\nf 0\n")
    for words in (["--search"], []):
        found = replay(*words, odd)
        check("settings of a trace that are not UTF-8 (%s): JSON all the same" % " ".join(words), isinstance(found, dict) and
              found["allocations"] == 1 and (not words or found["tried"][0]["conf"] == "max_split_size_mb:64,no??thing:1"), found)

    # ---- on a terminal, wrong use -------------------------------------------------------------------------------------
    with Screen([GPUMEM, "replay", "--search", path]) as screen:
        check("a heading in bold on a terminal", screen.ended() and screen.status == 0 and b"\033[1mGPUMEM_CONF=" in screen.raw)
    with Screen([GPUMEM, "replay", "--search", path], NO_COLOR="1") as screen:
        check("not with NO_COLOR", screen.ended() and screen.status == 0 and b"\033" not in screen.raw, screen.raw[-300:])
    long_one = os.path.join(room.path, "long.trace")
    with open(long_one, "w", encoding="utf-8") as out:
        for i in range(150000):
            out.write("a %d %d 0 0\n" % (i, 4096 + i * 7919 % 3000000 << (0 if i % 997 else 10)))
            if i >= 100:
                out.write("r %d\nf %d\n" % (i - 100, i - 100))
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})	# all that is tried on one core: over a second
    with Screen([GPUMEM, "replay", "--search", "--limit", "20GiB", long_one]) as screen:
        os.sched_setaffinity(0, mine)
        check("what takes long says on a terminal how far it is, and takes that away", screen.ended(100) and screen.status == 0 and
              re.search(rb"\rgpumem replay: settings tried: \d+ of \d+\033\[K", screen.raw) and
              screen.raw.rfind(b"\r\033[K") > screen.raw.rfind(b"settings tried"), screen.raw[:300])
    run = gpumem("replay", "--search", long_one, timeout=100)
    check("and nothing elsewhere", run.returncode == 0 and not run.stderr and "\r" not in run.stdout, run.stderr)
    room.run([TRAINING], history=0)
    bare = max(glob.glob(room.out + "/gpumem.app_training*exit*.json"), key=os.path.getmtime)
    for name, words, status, said in [
            ("no history", [bare], 3, "no history"), ("no such device", ["--device", "5", path], 3, "no history"),
            ("--conf nonsense", ["--search", "--conf", "x", path], 2, "x is not an option"), ("--limit nonsense", ["--limit", "much", path], 2, "not a size"),
            ("--verify of a snapshot", ["--verify", path, path], 3, "for a trace"), ("two inputs", [path, path], 2, "usage:"),
            ("a file that is not there", [path + "x"], 3, "No such file")]:
        run = gpumem("replay", *words)
        check("%s: exit %d" % (name, status), run.returncode == status and said in run.stderr and not run.stdout, run)
finish()
