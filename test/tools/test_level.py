# timeout: 120
"""--level pool|driver: what pools have handed out, in the place of the pieces that they have from the driver."""
import csv
import io
import json
import os
import pickle
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/python")
from host import HERE, PACKAGE  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402
from verbs import gpumem  # noqa: E402

PROGRAM = '''
import os, sys, gpumem
from host import alloc, free
plain = alloc(100000)
gone = alloc(300000)
free(gone)


def hand_out(pool, address, size):
    assert pool.allocated(address, size)
    return address


pool, second = gpumem.Pool("mine"), gpumem.Pool("second")
with gpumem.annotate("load"):
    piece = alloc(1 << 20)
    weights = [hand_out(pool, piece + i * 4096, 1000) for i in range(5)]
with gpumem.annotate("step"):
    big = alloc(4 << 20)
    a = hand_out(pool, big, 2 << 20)
    b = hand_out(second, alloc(8192), 500)
    pool.freed(a)
    free(big)                           # a piece that was given back
    c = alloc(4 << 20)                  # no pool's, even where it is in that place
empty = alloc(50000)                    # a piece in which nothing is handed out any more
pool.freed(hand_out(pool, empty, 100))
gpumem.snapshot(sys.argv[1])
print("there", flush=True)
sys.stdin.read()
os._exit(0)
'''


def live_of(path, *words):
    """(bytes, blocks) of all that is live, by size."""
    rows = json.loads(gpumem("summary", "--json", "--by", "size", *words, path).stdout)["by_size"]
    return sum(row["allocated_bytes"] for row in rows), sum(row["blocks"] for row in rows)


def peaks(path):
    """The peak, by merge, by the stacks of flame and by what merge sums by site."""
    lines = gpumem("flame", "--format", "folded", "--weigh", "peak", path).stdout.splitlines()
    merged = json.loads(gpumem("merge", "--json", "--weigh", "peak", path).stdout)
    return (merged["ranks"][0]["peak_bytes"], sum(int(line.rpartition(" ")[2]) for line in lines),
            sum(row["bytes"][0] for row in merged["rows"]))


def phases(path, *words):
    rows = json.loads(gpumem("summary", "--json", "--by", "annotation", *words, path).stdout)["by_annotation"]
    return {row["annotation"]: (row["peak_bytes"], row["own_peak_bytes"], row["allocated_bytes"], row["blocks"]) for row in rows}


def while_it_runs(allocator):
    """top: the same of a living process, and a line for each pool."""
    what = "%s: top" % allocator
    with Room() as room:
        script, path = os.path.join(room.path, "program.py"), os.path.join(room.path, "now.json")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        env = room.env(PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1, allocator=allocator, snapshot_on="none")
        with subprocess.Popen([sys.executable, script, path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as running:
            if not check(what + ": the program runs", running.stdout.readline() == "there\n"):
                return
            one = {words: json.loads(gpumem("top", "--json", "--once", *words, str(running.pid)).stdout)["processes"][0]
                   for words in ((), ("--level", "pool"), ("--level", "driver"))}
            text = [gpumem("top", "--once", *words, str(running.pid)).stdout for words in ((), ("--level", "driver"))]
            ranges = {words: {r["name"]: (r["live_bytes"], r["blocks"]) for r in json.loads(gpumem(
                "top", "--json", "--once", "--by", "annotation", *words, str(running.pid)).stdout)["processes"][0]["annotations"]}
                for words in ((), ("--level", "driver"))}
            running.stdin.close()
        with open(path, encoding="utf-8") as file:
            pools = json.load(file)["pools"]
        sums = {words: (sum(s["live_bytes"] for s in p["sites"]), sum(s["blocks"] for s in p["sites"])) for words, p in one.items()}
        handed, driver = live_of(path), live_of(path, "--level", "driver")
        check(what + ": the sites hold what summary says, at each level", sums == {
            (): handed, ("--level", "pool"): handed, ("--level", "driver"): driver}, (sums, handed, driver))
        names = {s["name"].split(" ")[0] for s in one[()]["sites"]}
        check(what + ": by the lines that pools handed it out to", "hand_out" in names and "hand_out" not in
              {s["name"].split(" ")[0] for s in one[("--level", "driver")]["sites"]}, names)
        want = [(p["name"], p["device"], p["memory_stats"]["allocated_bytes.all.current"], p["memory_stats"]["reserved_bytes.all.current"],
                 p["memory_stats"]["allocated_bytes.all.peak"], p["memory_stats"]["allocation.all.allocated"]) for p in pools]
        got = [(p["name"], p["device"], p["live_bytes"], p["reserved_bytes"], p["peak_bytes"], p["allocations"]) for p in one[()]["pools"]]
        check(what + ": the pools, as the snapshot has them", got == want and len(got) == 2 and got[0][2] == 5000 and
              one[()]["pools"][0]["cached_bytes"] == got[0][3] - got[0][2] and "pending_bytes" not in one[()]["pools"][0], (got, want))
        lines = re.findall(r"^ *\d+ +- +0 +(\S+ \w+) +(\S+ \w+) +(\S+ \w+) +- .*  pool (\w+)$", text[0], re.M)
        check(what + ": a line for each pool, none with --level driver", [line[3] for line in lines] == ["mine", "second"] and
              lines[0][0] == "4.88 KiB" and "  pool " not in text[1], text)
        check(what + ": ranges at each level", ranges[()]["load"] == (5000, 5) and ranges[("--level", "driver")]["load"] == (1 << 20, 1), ranges)


def rows_since(path, level, time):
    """Allocations and frees of `gpumem convert` from @time on."""
    text = gpumem("convert", "--to", "csv", "--level", level, "--since", str(time), "-o", "-", path).stdout
    return [(int(row["time_us"]), row["action"], int(row["addr"]), int(row["size"])) for row in csv.DictReader(io.StringIO(text))
            if row["action"] == "alloc" or row["action"].startswith("free")]


def events_since(path, level, time):
    text = gpumem("events", "--jsonl", "--action", "alloc,free", "--level", level, "--since", str(time), path).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    return [(row["time_us"], row["action"], row["addr"], row["size"]) for row in rows]


def program(allocator):
    with Room() as room:
        script, path = os.path.join(room.path, "program.py"), os.path.join(room.path, "now.json")
        with open(script, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        run = room.run([sys.executable, script, path],
                       env=room.env(PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1, allocator=allocator, snapshot_on="none"))
        if not check("%s: the program ends well" % allocator, run.returncode == 0 and os.path.exists(path), tell(run)):
            return
        handed, driver = 100000 + 5 * 1000 + 500 + (4 << 20), 100000 + (1 << 20) + 8192 + (4 << 20) + 50000
        check("%s: what pools handed out, and what is no pool's" % allocator, live_of(path) == (handed, 8), (live_of(path), handed))
        check("%s: --level pool is that" % allocator, live_of(path, "--level", "pool") == (handed, 8))
        check("%s: --level driver has the pieces" % allocator, live_of(path, "--level", "driver") == (driver, 5),
              (live_of(path, "--level", "driver"), driver))
        got = phases(path)
        # In "step": 2 MiB, of a piece of 4 MiB; then 4 MiB that are no pool's.
        check("%s: ranges, by what pools handed out" % allocator, got["load"] == (105000, 5000, 5000, 5) and
              got["step"] == (105000 + 500 + (4 << 20), 500 + (4 << 20), 500 + (4 << 20), 2), got)
        got = phases(path, "--level", "driver")
        check("%s: ranges, by pieces" % allocator, got["load"][1:] == (1 << 20, 1 << 20, 1), got)
        leaks = json.loads(gpumem("leaks", "--json", path).stdout)
        pieces = json.loads(gpumem("leaks", "--json", "--level", "driver", path).stdout)
        check("%s: leaks at each level" % allocator, (leaks["bytes"], pieces["bytes"]) == (handed, driver), (leaks["bytes"], pieces["bytes"]))
        lines = sorted((leak["bytes"], leak["blocks"]) for leak in leaks["leaks"])
        check("%s: by the stacks that pools handed it out to" % allocator, lines == [
            (500, 1), (5000, 5), (100000, 1), (4 << 20, 1)], lines)
        check("%s: check counts them alike" % allocator,
              "leaks: %s in 8 blocks" % "4.10 MiB" in gpumem("check", "--no-leaks", path).stdout and
              "in 5 blocks" in gpumem("check", "--no-leaks", "--level", "driver", path).stdout, gpumem("check", "--no-leaks", path).stdout[:200])
        rows = json.loads(gpumem("diff", "--all", "--json", "--by", "kind", path, path).stdout)
        check("%s: diff counts them alike" % allocator, rows == [{"growth": 0, "bytes_a": handed, "bytes_b": handed, "blocks_a": 8,
                                                                 "blocks_b": 8, "name": "device"}], rows)
        weights = [sum(int(line.rpartition(" ")[2]) for line in gpumem("flame", "--format", "folded", *words, path).stdout.splitlines())
                   for words in ([], ["--level", "driver"], ["--weigh", "count"], ["--weigh", "count", "--level", "driver"])]
        check("%s: flame counts them alike" % allocator, weights == [handed, driver, 2 + 5 + 2 + 1 + 1, 7], weights)
        text = gpumem("summary", "--full", path).stdout
        check("%s: the summary has a table of pools" % allocator, re.search(
            r"handed out +peak +idle in it +pieces +the largest +allocations  by pool\n +4\.88 KiB +2\.00 MiB +1\.04 MiB +6 +1007\.02 KiB"
            r" +7  mine\n +500 B +500 B +7\.51 KiB +1 +7\.51 KiB +1  second\n\n", text), text[-900:])
        idle = [(p["name"], p["idle_bytes"], p["idle_pieces"], p["largest_idle_bytes"])
                for p in json.loads(gpumem("summary", "--json", path).stdout)["by_pool"]]
        check("%s: and as JSON" % allocator, idle == [("mine", (1 << 20) + 50000 - 5000, 6, (1 << 20) - 4 * 4096 - 1000),
                                                      ("second", 7692, 1, 7692)], idle)
        rows = {}
        for table in text.split("gpumem memory summary, device ID 0, pool ")[1:]:
            lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[4:] if line.count("|") > 1]
            end = [cells[0].startswith("===") for cells in lines].index(True)
            rows[table.split(" ")[0]] = {cells[0]: cells[1:] for cells in lines[:end] if not cells[0].startswith(("from", "---"))}
        check("%s: and PyTorch's table of each, with what is known" % allocator, list(rows) == ["mine", "second"] and
              rows["mine"]["Allocated memory"][0] == "5000 B" and rows["mine"]["Allocations"] == ["5", "6", "7", "2"] and
              list(rows["mine"]) == ["Metric", "Allocated memory", "GPU reserved memory", "Allocations", "GPU reserved segments"] and
              len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1, rows)
        check("%s: no such table with --level driver" % allocator, "memory summary, device ID 0" in text and
              "pool mine" not in gpumem("summary", "--full", "--level", "driver", path).stdout)
        with open(path, encoding="utf-8") as file:
            whole = json.load(file)
        # The most at once: in the end, with 100 bytes that were handed out of the last piece. Each pool had most before.
        most = handed + 100
        check("%s: the peak is one moment's" % allocator, peaks(path) == (most, most, most), (peaks(path), most))
        for key, value in (("dropped", 1), ("filtered_small", 1), ("filtered_actions", 1), ("paused", 1)):
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(dict(whole, history=dict(whole["history"], **{key: value})), file)
            parts = 100000 + (4 << 20) + 5000 + (2 << 20) + 500
            check("%s: %s: of a history that is not whole, the sum of what each had at most" % (allocator, key),
                  peaks(path + ".part") == (parts,) * 3, (peaks(path + ".part"), parts))
        # From any moment on: a piece is one there, too, whose pool told of it only before.
        times = sorted(set(whole["device_traces"][0]["time_us"]))
        for level in ("pool", "driver"):
            differ = [time for time in times if rows_since(path, level, time) != events_since(path, level, time)]
            check("%s: convert --since has what events has, level %s" % (allocator, level), not differ and len(times) > 10, (differ, times))
        # A history that began later: the driver's events of the pieces are gone, their frees are not.
        trace = whole["device_traces"][0]
        cut = trace["time_us"][trace["action"].index("free_requested", trace["action"].index("annotate"))]
        for one in [trace] + [pool["trace"] for pool in whole["pools"]]:
            keep = [i for i, time in enumerate(one["time_us"]) if time >= cut]
            one["dropped"] = len(one["time_us"]) - len(keep)
            for column, values in one.items():
                if isinstance(values, list):
                    one[column] = [values[i] for i in keep]
        whole["annotations"] = [one for one in whole["annotations"] if one["time_us"] >= cut]
        shorter = os.path.join(room.path, "shorter.json")
        with open(shorter, "w", encoding="utf-8") as file:
            json.dump(whole, file)
        check("%s: of a shorter history what is live is the same" % allocator, live_of(shorter) == (handed, 8), live_of(shorter))
        check("%s: and what was dropped is said" % allocator, "the history has dropped" in gpumem("summary", "--by", "annotation", shorter).stdout)


TORCH_PROGRAM = '''
from pool_user import *
context()
torch = Torch(expandable=%d)
def model():
    return [torch.alloc(100 * i) for i in range(1, 50)] + [torch.alloc(5 << 20)]
def activations():
    return [torch.alloc(30 << 20) for i in range(3)]
raw = malloc(3 << 20)
kept = model()
acts = activations()
for block in kept[::3]:
    torch.free(block)
torch.free(acts[1])
snapshot()
print((torch.account(), os.getpid()))
'''


def pytorch(allocator, expandable):
    """The stand-in for PyTorch: what is live, and the most that ever was, to the byte, where tensors lie across pieces, too."""
    what = "PyTorch, %s, expandable %d: " % (allocator, expandable)
    with Room() as room:
        run = room.run([sys.executable, "-c", TORCH_PROGRAM % expandable], env=room.env(
            PYTHONPATH=os.path.abspath("test/preload/programs"), TORCH=os.path.join(B, "test/preload/torch"), allocator=allocator))
        if not check(what + "the program ends well", run.returncode == 0 and len(room.files()) >= 1, tell(run)):
            return
        account, _ = eval(run.stdout)
        path = [os.path.join(room.out, name) for name in room.files() if ".api" in name][0]
        live, peak, raw = account["live_bytes"], account["peak_bytes"], 3 << 20
        check(what + "live", live_of(path) == (live + raw, account["live"] + 1), (live_of(path), account))
        rank = json.loads(gpumem("merge", "--json", path).stdout)["ranks"][0]
        check(what + "merge: live and peak", (rank["live_bytes"], rank["peak_bytes"]) == (live + raw, peak + raw), rank)
        driver = json.loads(gpumem("merge", "--json", "--level", "driver", path).stdout)["ranks"][0]
        check(what + "merge --level driver: pieces", driver["live_bytes"] == account["reserved_bytes"] + raw, driver)
        limit = ["--max-peak", str(peak + raw)]
        check(what + "check: the peak is what was handed out", gpumem("check", *limit, path).returncode == 0 and
              gpumem("check", "--max-peak", str(peak + raw - 1), path).returncode == 1 and
              gpumem("check", *limit, "--level", "driver", path).returncode == 1, gpumem("check", *limit, path).stdout)
        with open(path, encoding="utf-8") as file:
            pieces = json.load(file)["pools"][0]["segments"]
        part = 100 * sum(s["total_size"] - s["allocated_size"] for s in pieces if s["allocated_size"]) / sum(s["total_size"] for s in pieces)
        over, within, driver = (gpumem("check", "--max-fragmentation", "%.2f%%" % limit, *words, path) for limit, words in (
            (part - 0.01, ()), (part + 0.01, ()), (part - 0.01, ("--level", "driver"))))
        check(what + "check: what lies idle in the pool's segments that are in use", part > 1 and over.returncode == 1 and
              over.stdout.endswith(": device 0, pool pytorch: fragmentation %.2f%%, allowed: %.2f%%\n" % (part, part - 0.01)) and
              within.returncode == driver.returncode == 0, (part, over.stdout, within.stdout, driver.stdout))
        rows = [json.loads(line) for line in gpumem("events", "--jsonl", "--action", "alloc", path).stdout.splitlines()]
        check(what + "events: each block that was handed out, no piece", len(rows) == account["allocations"] + 1 and
              sum(row["size"] for row in rows) == peak + raw, len(rows))
        pieces = gpumem("events", "--jsonl", "--action", "alloc", "--level", "driver", path).stdout.splitlines()
        check(what + "events --level driver: pieces", 1 < len(pieces) < 30, len(pieces))
        # The history begins with the first free: what died in it was allocated before, by whom its free says.
        with open(path, encoding="utf-8") as file:
            whole = json.load(file)
        pool = whole["pools"][0]["trace"]
        cut = pool["time_us"][pool["action"].index("free_requested")]
        for trace in (whole["device_traces"][0], pool):
            keep = [i for i, time in enumerate(trace["time_us"]) if time >= cut]
            trace.update({name: [values[i] for i in keep] for name, values in trace.items() if isinstance(values, list)})
        later = os.path.join(room.path, "later.json")
        with open(later, "w", encoding="utf-8") as file:
            json.dump(whole, file)
        most = [{row["site"]: row["peak_bytes"] for row in json.loads(gpumem("summary", "--json", one).stdout)["by_site"]}
                for one in (path, later)]
        check(what + "who held it at the peak, also of what was allocated before the history", most[0] == most[1] and len(most[0]) >= 3 and
              sum(most[0].values()) == peak + raw, most)
        converted(what, room, path)


BACKWARD_PROGRAM = '''
from pool_user import *
context()
torch = Torch()
torch.cuda.pool_backward.restype, torch.cuda.pool_backward.argtypes = ctypes.c_void_p, [size_t]
def model():
    return torch.alloc(5 << 20)
kept = [model(), torch.cuda.pool_backward(7 << 20), torch.cuda.pool_backward(2 << 20)]
this.gpumem_snapshot(sys.argv[1].encode())
print("there", flush=True)
sys.stdin.read()
os._exit(0)
'''


def backward(allocator):
    """What a thread of backward allocates, where no Python runs, is called by its step: in files, and while it runs."""
    with Room() as room:
        path = os.path.join(room.path, "backward.json")
        env = room.env(PYTHONPATH=os.path.abspath("test/preload/programs"), TORCH=os.path.join(B, "test/preload/torch"),
                       allocator=allocator, snapshot_on="none")
        with subprocess.Popen([sys.executable, "-c", BACKWARD_PROGRAM, path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as running:
            if not check("%s: backward: the program runs" % allocator, running.stdout.readline() == "there\n"):
                return
            top = json.loads(gpumem("top", "--json", "--once", str(running.pid)).stdout)["processes"][0]["sites"]
            running.stdin.close()
        sites = {row["site"]: row["allocated_bytes"] for row in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]}
        live = {row["name"]: row["live_bytes"] for row in top}
        check("%s: backward: called by its step, in summary and top" % allocator, sites == live == {
            "model (<string>:7)": 5 << 20, "AddmmBackward0 (libc10.so)": 9 << 20}, (sites, live))


def converted(what, room, path):
    """PyTorch's snapshot, made of ours: its pool as the device, and the driver's level behind it."""
    out = os.path.join(room.path, "torch.pickle")
    run = gpumem("convert", "-o", out, path)
    if not check(what + "convert says which number is what", run.returncode == 0 and
                 "device 0 is pool pytorch, device 1 what the driver gave on device 0" in run.stderr and "left out" not in run.stderr, tell(run)):
        return
    with open(out, "rb") as file:
        torch = pickle.load(file)
    with open(path, encoding="utf-8") as file:
        ours = json.load(file)
    pool = ours["pools"][0]

    def of(segments):
        return {(s["address"], s["total_size"], s["segment_type"], s["is_expandable"],
                 tuple((b["address"], b["size"], b["state"]) for b in s["blocks"])) for s in segments}
    check(what + "convert: the pool's segments and blocks, to the byte, are the device's",
          of(s for s in torch["segments"] if s["device"] == 0) == of(pool["segments"]))
    check(what + "convert: the driver's are another's", {s["total_size"] for s in torch["segments"] if s["device"] == 1} ==
          {s["total_size"] for s in ours["segments"]} and len(torch["device_traces"]) == 2)
    events, trace = torch["device_traces"][0], pool["trace"]
    wanted = [a.replace("segment_alloc", "segment_map") if k == "vmm" else a for a, k in zip(trace["action"], trace["kind"])]
    check(what + "convert: each event of the pool", [(e["action"], e["addr"], e["size"]) for e in events] ==
          list(zip(wanted, trace["addr"], trace["size"])), events[:2])
    names = {frame["name"] for s in torch["segments"] if s["device"] == 0 for b in s["blocks"] for frame in b["frames"]}
    check(what + "convert: with stacks", {"model", "activations"} <= names, sorted(names)[:9])
    again = gpumem("merge", "--json", out)
    check(what + "convert: read again, the pool's bytes are device 0's", again.returncode == 0 and
          json.loads(gpumem("merge", "--json", "--device", "0", out).stdout)["ranks"][0]["live_bytes"] ==
          pool["memory_stats"]["allocated_bytes.all.current"], tell(again))
    driver = gpumem("convert", "--level", "driver", "-o", out, path)
    with open(out, "rb") as file:
        torch = pickle.load(file)
    check(what + "convert --level driver is as ever", driver.returncode == 0 and len(torch["device_traces"]) == 1 and
          {s["device"] for s in torch["segments"]} == {0}, tell(driver))
    folded = gpumem("convert", "--to", "folded", path).stdout.splitlines()
    check(what + "convert --to folded has what was handed out", sum(int(line.rpartition(" ")[2]) for line in folded) ==
          live_of(path)[0], folded[:3])


def without():
    """No pool: both levels are the same, byte by byte."""
    path = "test/data/gpumem-snapshot.json"
    for words in (["summary", "--json", "--by", "stack"], ["leaks", "--json"], ["flame", "--format", "folded"], ["check", "--no-leaks"],
                  ["summary"], ["events"], ["merge", "--json"]):
        runs = [gpumem(*words, "--level", level, path) for level in ("pool", "driver")] + [gpumem(*words, path)]
        check("without pools: %s" % words[0], len({(run.returncode, run.stdout) for run in runs}) == 1 and runs[0].stdout, tell(runs[0]))


NESTED = '''
import sys, gpumem
from host import alloc
outer, inner, piece = gpumem.Pool("outer"), gpumem.Pool("inner"), alloc(4 << 20)
outer.allocated(piece, 1 << 20)
inner.allocated(piece, 4096), inner.allocated(piece + 8192, 1000)
with gpumem.annotate("later"):
    inner.freed(piece), inner.allocated(piece, 512)
gpumem.snapshot(sys.argv[1])
'''


def nested():
    """A pool that hands out what it has from another one: a block of each at one address, and both count."""
    with Room() as room:
        script, path = os.path.join(room.path, "program.py"), os.path.join(room.path, "now.json")
        with open(script, "w", encoding="utf-8") as file:
            file.write(NESTED)
        run = room.run([sys.executable, script, path], env=room.env(PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1))
        if not check("nested: the program runs", run.returncode == 0 and os.path.exists(path), tell(run)):
            return
        check("nested: what is live in both", live_of(path) == ((1 << 20) + 1512, 3), live_of(path))
        check("nested: the peak, and what is left of a phase", phases(path)["later"] == ((1 << 20) + 5096, 512, 512, 1), phases(path))
        events = [(row["action"], row["size"]) for row in map(json.loads, gpumem(
            "events", "--jsonl", "--action", "alloc,free_completed", path).stdout.splitlines())]
        check("nested: each event of both", events == [("alloc", 1 << 20), ("alloc", 4096), ("alloc", 1000), ("free_completed", 4096),
                                                       ("alloc", 512)], events)


LATE = """
import gpumem, sys
from host import alloc, free
weights = alloc(32 << 20)
free(alloc(30 << 20))
print(gpumem.max_memory_allocated())
gpumem.Pool("frames").allocated(weights, 1 << 20)
print(gpumem.max_memory_allocated())
"""


def late():
    """A pool that reports its first block late: its piece is the pool's for its whole life, as docs/python.md says of the same program."""
    with open("docs/python.md", encoding="utf-8") as text:
        docs = " ".join(text.read().split())
    with Room() as room:
        run = room.run([sys.executable, "-c", LATE], env=room.env(PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1, output=room.out + "/late.json"))
        path, said = room.out + "/late.json", {}
        check("late: the driver's peak is what it was", run.stdout.split() == [str(62 << 20)] * 2, tell(run))
        for level in ("pool", "driver"):
            text = gpumem("summary", "--level", level, path).stdout
            said[level] = re.search(r"^  live (.*?) in .*?, (peak .*?);", text, re.M).groups()
        check("late: what the pool handed out counts, and of the past nothing of its piece", said["pool"] == ("1.00 MiB", "peak 30.00 MiB"), said)
        check("late: --level driver has the piece", said["driver"] == ("32.00 MiB", "peak 62.00 MiB"), said)
        check("late: the docs say so", "a pool that reports late lowers peaks of the past" in docs and
              "`gpumem summary` then says `%s`, and `gpumem summary --level driver` %s." % (said["pool"][1], said["driver"][1][5:]) in docs, said)
        check("late: check judges by the same", [gpumem("check", "--max-peak", "30MiB", *words, path).returncode for words in ([], ["--level", "driver"])] == [0, 1])


def main():
    nested()
    late()
    program("native")
    program("caching")
    backward("native")
    backward("caching")
    while_it_runs("native")
    while_it_runs("caching")
    for allocator in ("native", "caching"):
        pytorch(allocator, 0)
        pytorch(allocator, 1)
    without()
    finish()


main()
