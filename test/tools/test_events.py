"""gpumem events: every filter against the snapshot itself; table, CSV and JSON lines."""
import csv
import glob
import io
import json
import os
import pickle
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, killed_journal, load, named  # noqa: E402

COLUMNS = ["action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"]


def rows_of(snapshot):
    """The events as dictionaries, of all devices and the host, in order of time."""
    rows = []
    for device, trace in [(None, snapshot["host_trace"])] + list(enumerate(snapshot["device_traces"])):
        for values in zip(*(trace[c] for c in COLUMNS)):
            rows.append(dict(zip(COLUMNS, values), device=device))
    rows.sort(key=lambda row: row["time_us"])
    for row in rows:
        row["module"] = snapshot["modules"][row["module"]]["path"]
    return rows


def jsonl(*words):
    done = gpumem("events", "--jsonl", *words)
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else done


with Room() as room:
    run = room.run([APP])
    [path] = glob.glob(room.out + "/*oom-1.json")
    [end] = [p for p in glob.glob(room.out + "/*exit.json")
             if load(p)["process"]["pid"] == load(path)["process"]["pid"]]
    snapshot = named(end)
    rows = rows_of(snapshot)
    check("a program with events of many sorts", len(rows) > 50 and
          {"alloc", "segment_alloc", "free_requested", "free_completed", "segment_free", "oom"} <=
          {row["action"] for row in rows}, len(rows))
    check("--jsonl: every event, in order", jsonl(end) == rows, jsonl(end))
    done = gpumem("events", "--csv", end)
    table = list(csv.DictReader(io.StringIO(done.stdout)))
    check("--csv: the same", [dict({k: str(v) if v is not None else "host" for k, v in row.items()}, stage="", text="") for row in rows] ==
          [dict(row) for row in table], done.stdout[:2000])
    done = gpumem("events", end)
    lines = [line for line in done.stdout.splitlines() if not re.match(" {22}\\S", line)]
    check("the table: a heading and a line each", done.returncode == 0 and len(lines) == len(rows) + 1 and
          re.match(r" +seconds +device action", lines[0]), lines[:3])
    start = snapshot["process"]["start_time_us"]
    line = lines[1].split()
    check("seconds since the record began, device, action, address, size", line[:4] ==
          ["%.6f" % ((rows[0]["time_us"] - start) / 1e6), "host" if rows[0]["device"] is None else "0",
           rows[0]["action"], "%#x" % rows[0]["addr"]] and line[-1] == "demo_app.static", lines[1])
    def in_units(size):
        for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]:
            if size < 1024 or unit == "EiB":
                return "%d B" % size if unit == "B" else "%.2f %s" % (size, unit)
            size /= 1024

    sizes = [0, 1023, 1024, 1152, 1408, 1029, 1049, (1 << 20) - 1, 1 << 20, 1664 << 10, 5 << 30, 7 << 40, (1 << 50) + (1 << 47), 9 << 58]
    trace = {column: [1] * len(sizes) for column in COLUMNS}
    trace.update(dropped=0, action=["alloc"] * len(sizes), addr=[size + 4096 for size in sizes], size=sizes, kind=["device"] * len(sizes),
                 time_us=[start + 1000003 * n - 1500000 for n in range(len(sizes))], module=[0] * len(sizes))
    with open(room.out + "/sizes.json", "w", encoding="utf-8") as out:
        json.dump(dict(snapshot, device_traces=[trace], annotations=[]), out)
    done = gpumem("events", "--device", "0", room.out + "/sizes.json")
    wanted = ["%14s %6s %-14s %18s %12s %-8s %8d  %s" % ("%.6f" % (n * 1.000003 - 1.5), 0, "alloc", hex(size + 4096), in_units(size), "device", 1, "(unknown)")
              for n, size in enumerate(sizes)]
    check("columns and sizes as printf has them", [line for line in done.stdout.splitlines()[1:] if not line.startswith(" " * 22)] == wanted,
          (done.stdout, wanted))
    oom = [text for text in lines if " oom " in text]
    check("an oom shows what was free", oom and all("GiB free" in text for text in oom), oom)

    def same(name, words, test):
        wanted = [row for row in rows if test(row)]
        got = jsonl(*words, end)
        check("%s: %d of %d" % (name, len(wanted), len(rows)), got == wanted and 0 < len(wanted) < len(rows), got)

    middle = rows[len(rows) // 2]
    some = next(row for row in rows if row["action"] == "alloc" and row["size"] > 4096)
    same("--action alloc", ["--action", "alloc"], lambda r: r["action"] == "alloc")
    same("--action free,oom", ["-a", "free,oom"], lambda r: r["action"] in ("free_requested", "free_completed", "oom"))
    same("--kind managed,vmm", ["--kind=managed,vmm"], lambda r: r["kind"] in ("managed", "vmm"))
    same("--device host", ["-d", "host"], lambda r: r["device"] is None)
    same("--device 0", ["-d", "0"], lambda r: r["device"] == 0)
    same("--min-size 1MiB", ["--min-size", "1MiB"], lambda r: r["size"] >= 1 << 20)
    same("--max-size 1MiB", ["--max-size", "1MiB"], lambda r: r["size"] <= 1 << 20)
    same("--stack cudaMallocAsync", ["--stack", "cudaMallocAsync"], lambda r: any(
        "cudaMallocAsync" in snapshot["frames"][f]["name"] for f in snapshot["stacks"][r["stack"]]))
    other = next(row["stream"] for row in rows if row["stream"])
    same("--stream of another than 0", ["--stream", "%#x" % other], lambda r: r["stream"] == other)
    same("--stream 0", ["--stream", "0"], lambda r: r["stream"] == 0)
    same("--address within a block", ["--address", "%#x" % (some["addr"] + 100)],
         lambda r: r["action"] != "oom" and r["addr"] <= some["addr"] + 100 < r["addr"] + r["size"])
    same("--since, in microseconds", ["--since", str(middle["time_us"])], lambda r: r["time_us"] >= middle["time_us"])
    same("--until, in seconds", ["--until", "%.6f" % ((middle["time_us"] - start) / 1e6)],
         lambda r: r["time_us"] <= middle["time_us"])
    back = (rows[-1]["time_us"] - middle["time_us"]) / 1e6
    same("--since, before the end", ["--since=-%.6f" % back], lambda r: r["time_us"] >= middle["time_us"])
    same("two filters", ["-a", "alloc", "-k", "pool"], lambda r: r["action"] == "alloc" and r["kind"] == "pool")
    same("--module", ["-m", "/demo_app"], lambda r: "/demo_app" in r["module"])
    check("--module that is none", jsonl("-m", "libnothing", end) == [])
    check("--last 3", jsonl("-n", "3", end) == rows[-3:] and jsonl("-n", "0", end) == [] and
          jsonl("-n", "100000", end) == rows)

    # ---- what could not be had, with its stack in any case ---------------------------------------------------------
    oom_room = os.path.join(room.path, "oom.%r.json")
    room.run([APP], output=oom_room)
    refused = os.path.join(room.path, "oom.oom-1.json")
    text = gpumem("events", "-a", "oom", refused).stdout
    check("an oom has its stack below it", re.search(r" oom .*\n +cudaMalloc .*\n +main \(demo_app", text), text)
    text = gpumem("events", refused).stdout
    check("and it alone", text.count("    main (demo_app") == 1 and " alloc " in text, text)

    # ---- stacks ------------------------------------------------------------------------------------------------
    def frames(row):
        return [snapshot["frames"][f] for f in snapshot["stacks"][row["stack"]]]

    text = gpumem("events", "--stacks", end).stdout.splitlines()[1:]
    told, below = [], []
    for line in text:
        if line.startswith(" " * 22) and not line[22:].startswith(" "):
            below[-1].append(line[22:])
        else:
            told.append(line)
            below.append([])
    check("--stacks: the table is the same, and below each event is its stack", told == lines[1:] and len(below) == len(rows) and
          all(len(b) == len(frames(r)) and all(line.startswith(f["name"]) for line, f in zip(b, frames(r)))
              for b, r in zip(below, rows)) and any("cudaMalloc" in line for b in below for line in b), text[:40])
    got = jsonl("--stacks", end)
    check("--stacks --jsonl: as lists of frames", all(
        [(f["name"] or "?", f["python"]) for f in frames(r)] ==
        [(f["name"] if w["name"] else "?", w["python"]) for f, w in zip(g["frames"], frames(r))] and
        set().union(*g["frames"]) <= {"name", "file", "line", "module"} for g, r in zip(got, rows)) and
        [{k: v for k, v in g.items() if k != "frames"} for g in got] == rows, got[:3])
    table = list(csv.DictReader(io.StringIO(gpumem("events", "--stacks", "--csv", end).stdout)))
    check("--stacks --csv: outermost first, as convert --to csv", [row["frames"] for row in table] ==
          [row["stack"] for row in csv.DictReader(io.StringIO(gpumem("convert", "--to", "csv", end).stdout))] and
          any("main" in row["frames"] for row in table), table[:2])

    for words in (["--action", "allocate"], ["--action", "alloc,"], ["--kind", "gpu"], ["--device", "x"], ["--last", "x"],
                  ["--min-size", "ten"], ["--address", "zz"], ["--since", "noon"], ["--until", ""], ["--frobnicate"]):
        done = gpumem("events", *words, end)
        check("wrong use (%s): exit 2, and why" % " ".join(words), done.returncode == 2 and done.stderr and
              done.stdout == "", done)
    done = gpumem("events", end, end)
    check("two files: exit 2", done.returncode == 2, done)

    # A trace of columns that do not agree, of types that are wrong, of texts that a CSV must quote.
    changed = os.path.join(room.path, "changed.json")

    def with_changes(change):
        copy = json.loads(json.dumps(snapshot))
        change(copy)
        with open(changed, "w", encoding="utf-8") as text:
            json.dump(copy, text)

    with_changes(lambda copy: copy["device_traces"][0].update(addr=copy["device_traces"][0]["addr"][:5]))
    check("columns of different lengths: as far as all go", len(jsonl("-d", "0", changed)) == 5, jsonl("-d", "0", changed))
    with_changes(lambda copy: copy.update(device_traces=[None, 7, {"action": "x"}], host_trace=[]))
    check("traces that are none: no events", jsonl(changed) == [], jsonl(changed))
    with_changes(lambda copy: copy["modules"][1].update(path='/a "quoted", path\n.so'))
    done = gpumem("events", "--csv", changed)
    check("CSV quotes", {row["module"] for row in csv.DictReader(io.StringIO(done.stdout))} >= {'/a "quoted", path?.so'},
          done.stdout[:300])
    odd = "".join(map(chr, range(1, 128))) + "\u00e9\u20ac\U0001f600"
    check("JSON lines escape", [row["module"] for row in jsonl(changed)].count('/a "quoted", path\n.so') == sum(
        row["module"] == snapshot["modules"][1]["path"] for row in rows) > 0)
    with_changes(lambda copy: copy["modules"][1].update(path=odd))
    check("whatever has to be", odd in {row["module"] for row in jsonl(changed)})
    with_changes(lambda copy: copy["modules"][1].update(path='/a "quoted", path\n.so'))
    check("the table shows no control characters", "path?.so" in gpumem("events", changed).stdout)
    with_changes(lambda copy: copy["process"].update(start_time_us=0))
    check("without a start the first event is 0", gpumem("events", changed).stdout.splitlines()[1].split()[0] == "0.000000")

# ---- what the program said of itself -------------------------------------------------------------------------------
with Room() as room:
    NVTX = os.path.join(B, "test/preload/nvtx")
    story = room.run([NVTX, "story"]).returncode == 0
    room.run([NVTX, "flood", "2000"]) if story else room.run([os.path.join(B, "test/preload/script"), "alloc 1", "annotate here", "annotate there", "exit 0"])
    for path in glob.glob(room.out + "/*exit.json"):
        snapshot = load(path)
        said = [(a["stage"], a["name"], a["domain"], a["thread"], a["time_us"]) for a in snapshot["annotations"]]
        notes = [r for r in jsonl(path) if r["action"] == "annotate"]
        check("--jsonl: each annotation with its text (%d)" % len(said), said and
              [(r["stage"], r["name"], r["domain"], r["thread"], r["time_us"]) for r in notes] == said and
              not [r for r in jsonl(path) if r["action"] != "annotate" and "name" in r], (notes[:3], said[:3]))
        shown = [line.split(None, 3)[2:] for line in gpumem("events", path).stdout.splitlines() if " annotate " in line]
        clean = [re.sub(r"[\x00-\x1f\x7f]", "?", "%s %s%s" % (s, n, " (%s)" % d if d else "")) for s, n, d, _, _ in said]
        check("the table: stage, text, domain", [re.sub(r"^\d+ +", "", rest[1].strip()).strip() for rest in shown] ==
              [c.strip() for c in clean], (shown[:5], clean[:5]))
        for verb in (["events", "--csv"], ["convert", "--to", "csv"]):
            table = [r for r in csv.DictReader(io.StringIO(gpumem(*verb, path).stdout)) if r["action"] == "annotate"]
            check("%s: the same" % " ".join(verb), [r["stage"] for r in table] == [s[0] for s in said] and
                  [r["text"].lstrip("'") for r in table] == [s[1] for s in said], table[:3])
        check("a range's number is no size", jsonl("-a", "annotate", "--min-size", "1", path) == [] and
              len(jsonl("-a", "annotate", "--max-size", "0", path)) == len(said))

with Room() as room:
    path = os.path.abspath("test/data/torch-snapshot.pickle")
    with open(path, "rb") as file:
        wanted = [(a["stage"], a["name"], a["time_us"]) for a in pickle.load(file)["external_annotations"]]
    got = jsonl(path)
    check("of PyTorch's: its external annotations, at their time", [(r["stage"], r["name"], r["time_us"]) for r in got
          if r["action"] == "annotate"] == wanted and len(wanted) > 5 and
          [r["time_us"] for r in got] == sorted(r["time_us"] for r in got), wanted)
    own = os.path.join(room.path, "own.json")
    events = [{"action": a, "addr": 4096, "size": 512, "stream": 0, "time_us": t, "user_metadata": text}
              for a, t, text in (("alloc", 5, "no"), ("annotate", 6, "begin"), ("free_completed", 7, ""), ("annotate", 7, "here"))]
    with open(own, "w", encoding="utf-8") as text:
        json.dump({"segments": [], "device_traces": [[], events], "external_annotations": [
            {"stage": "START", "name": "step", "device": 1, "time_us": 6}, {"stage": "END", "name": "step", "device": 1, "time_us": 9}]}, text)
    check("and what it has as an event, once", [(r["device"], r["stage"], r["name"]) for r in jsonl("-a", "annotate", own)] ==
          [(1, "MARK", "begin"), (1, "START", "step"), (1, "MARK", "here"), (1, "END", "step")], jsonl(own))

with Room() as room:
    pid, journal = killed_journal(room, 0.3, "--threads", "4")
    done = gpumem("recover", "--keep", "-o", "x.json", journal, cwd=room.path)
    snapshot = load(room.path + "/x.json")
    check("of a journal: what its snapshot says", jsonl("-n", "1000", journal) == rows_of(snapshot)[-1000:])
    head = subprocess.run(["sh", "-c", '"$0" events "$1" | head -n 2', GPUMEM, journal], capture_output=True, text=True,
                          timeout=60, check=False)
    check("into head: it ends with head, silently", head.returncode == 0 and len(head.stdout.splitlines()) == 2 and
          head.stderr == "", head)
finish()
