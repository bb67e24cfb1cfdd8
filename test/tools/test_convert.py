"""gpumem convert: Chrome's trace, CSV, RMM's log, speedscope, folded stacks, Prometheus; files, watching, wrong use."""
import csv
import glob
import io
import json
import os
import pickle
import re
import stat
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
import viewer  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program, gpumem, load, named, wait_for  # noqa: E402


def frame_name(snapshot, frame):
    """As it is shown: "name", for Python "name (file:line)", without a name "module+0xoffset"."""
    frame = snapshot["frames"][frame]
    module = os.path.basename(snapshot["modules"][frame["module"]]["path"])
    name = frame["name"] or ("%s+0x%x" % (module, frame["offset"]) if module else "??")
    return "%s (%s:%d)" % (name, os.path.basename(frame["filename"]), frame["line"]) if frame["python"] else name


def folded(snapshot, stack):
    return ";".join(frame_name(snapshot, f).replace(";", ":") for f in reversed(snapshot["stacks"][stack])) or "(no stack)"


def add(table, key, value):
    table[key] = table.get(key, 0) + value


def device_blocks(snapshot):
    return [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive" and b["kind"] != "ipc"]


with Room() as room:
    room.run([APP], snapshot_on="exit,oom")
    path = sorted(glob.glob(room.out + "/*oom-1.json"))[0]
    snapshot = named(path)
    check("a program with live memory of several kinds", len({b["kind"] for b in device_blocks(snapshot)}) > 2)

    def convert(to, source=path):
        run = gpumem("convert", "--to", to, source)
        check("--to %s: exit 0" % to, run.returncode == 0, run)
        return run.stdout

    rows = list(csv.DictReader(io.StringIO(convert("csv"))))
    events = [json.loads(line) for line in gpumem("events", "--jsonl", path).stdout.splitlines()]
    check("csv: every event, its stack outermost first", len(rows) == len(events) > 20 and all(
        (r["time_us"], r["action"], r["addr"], r["size"], r["kind"], r["module"], r["device"]) ==
        (str(e["time_us"]), e["action"], str(e["addr"]), str(e["size"]), e["kind"], e["module"],
         "host" if e["device"] is None else str(e["device"])) and
        [re.sub(r" \([^()]*:\d+\)$", "", f) for f in r["stack"].split(";") if f] ==
        [frame_name(snapshot, f) for f in reversed(snapshot["stacks"][e["stack"]])] for r, e in zip(rows, events)), rows[:2])

    lines = convert("rmm").splitlines()
    wanted = [("allocate" if e["action"] == "alloc" else "free", e["addr"], e["size"]) for e in events
              if e["action"] in ("alloc", "free_completed") and e["device"] is not None and e["kind"] != "ipc"]
    parsed = [re.fullmatch(r"(\d+),\d\d:\d\d:\d\d\.\d{6},(allocate|free|allocate failure),(0x[0-9a-f]+),(\d+),0x[0-9a-f]+", line)
              for line in lines[1:]]
    check("rmm: its head, its lines", lines[0] == "Thread,Time,Action,Pointer,Size,Stream" and all(parsed), lines[:3])
    check("rmm: every allocation and free", [(m[2], int(m[3], 16), int(m[4])) for m in parsed if m[2] != "allocate failure"] == wanted)
    check("rmm: the failure", [int(m[4]) for m in parsed if m[2] == "allocate failure"] ==
          [e["size"] for e in events if e["action"] == "oom"])

    trace = json.loads(convert("chrome"))["traceEvents"]
    counters = {}
    for event in trace:
        if event["ph"] == "C":
            counters[event["name"]] = event["args"]
    live = {}
    for block in device_blocks(snapshot):
        add(live, block["kind"], block["requested_size"])
    check("chrome: the last counters are what is live, by kind", {k: v for k, v in counters["GPU 0: live bytes"].items() if v} == live,
          (counters, live))
    check("chrome: reserved", counters["GPU 0: reserved bytes"]["reserved"] == sum(s["total_size"] for s in snapshot["segments"]), counters)
    check("chrome: no counter is below nothing", all(v >= 0 for e in trace if e["ph"] == "C" for v in e["args"].values()))
    check("chrome: the failure is an instant", [e["args"]["requested"] for e in trace if e["ph"] == "i"] ==
          [e["size"] for e in events if e["action"] == "oom"])
    check("chrome: in order", [e["ts"] for e in trace if e["ph"] == "C"] == sorted(e["ts"] for e in trace if e["ph"] == "C"))
    pid = snapshot["process"]["pid"]
    check("chrome: the process and its threads have their own numbers", {e["pid"] for e in trace} == {pid} and
          {e["tid"] for e in trace if e["ph"] == "b"} <= set(sum((t["thread"] for t in snapshot["device_traces"] + [snapshot["host_trace"]]), [])) and
          [e["args"]["name"] for e in trace if e["name"] == "process_name"] == [snapshot["process"]["command"]])
    begun = [e for e in trace if e["ph"] == "b" and "args" in e]
    ended = {(e["cat"], e["id"]): e for e in trace if e["ph"] == "e" and "args" in e}
    allocs = [e for e in events if e["action"] == "alloc"]
    check("chrome: every allocation is a slice, at its own time and with its stack", len(begun) == len(ended) > 5 and
          sorted((e["ts"], e["args"]["bytes"], int(e["args"]["address"], 16), e["tid"], "allocated" in e["args"]) for e in begun) ==
          sorted((e["time_us"], e["size"], e["addr"], e["thread"], False) for e in allocs) and
          all([re.sub(r" \([^()]*\)$", "", f) for f in e["args"]["stack"].split("\n")] == [frame_name(snapshot, f) for f in snapshot["stacks"][a["stack"]]]
              for e, a in zip(sorted(begun, key=lambda e: (e["ts"], e["args"]["address"])),
                              sorted(allocs, key=lambda e: (e["time_us"], hex(e["addr"]))))), (begun[:3], allocs[:3]))
    frees = {(e["addr"], e["time_us"]): e for e in events if e["action"] == "free_completed"}
    ends = [(e, ended[e["cat"], e["id"]]) for e in begun]
    freed = [(b, e) for b, e in ends if "freed" not in b["args"]]
    check("chrome: a slice ends where it is freed, with the stack that freed it; else at the snapshot", freed and
          all((int(b["args"]["address"], 16), e["ts"]) in frees for b, e in freed) and any("freed by" in e["args"] for _, e in freed) and
          all(e["ts"] == snapshot["time_us"] for b, e in ends if "freed" in b["args"]), ends[:2])
    slices = json.loads(convert("chrome", os.path.abspath("test/data/torch-snapshot.pickle")))["traceEvents"]
    slices = [(e["ph"], e["name"]) for e in slices if e["ph"] in "BE"]
    check("chrome: annotations with an end are slices", slices and [p for p, _ in slices] == ["B", "E"] * (len(slices) // 2) and
          all(a[1] == b[1] for a, b in zip(slices[::2], slices[1::2])), slices)

    wanted = {}
    for block in device_blocks(snapshot):
        add(wanted, folded(snapshot, block["stack"]), block["requested_size"])
    got = {}
    for line in convert("folded").splitlines():
        add(got, line.rpartition(" ")[0], int(line.rpartition(" ")[2]))
    check("folded: what is live, by stack", got == {k: v for k, v in wanted.items() if v}, (got, wanted))

    scope = json.loads(convert("speedscope"))
    names = [f["name"] for f in scope["shared"]["frames"]]
    peak, end = scope["profiles"]
    check("speedscope: two profiles that add up", [p["name"] for p in scope["profiles"]] == ["peak bytes", "live bytes"] and all(
        p["type"] == "sampled" and p["unit"] == "bytes" and sum(p["weights"]) == p["endValue"] and
        len(p["samples"]) == len(p["weights"]) and all(0 <= f < len(names) for s in p["samples"] for f in s) for p in (peak, end)), scope)
    used = {f for p in (peak, end) for sample in p["samples"] for f in sample}
    check("speedscope: each frame is there once, and is used", len({json.dumps(f) for f in scope["shared"]["frames"]}) == len(names) and
          used == set(range(len(names))), (names, used))
    check("speedscope: the end is what is live", end["endValue"] == sum(wanted.values()), end["endValue"])
    stats = snapshot["devices"][0]["memory_stats"]
    check("speedscope: the peak is the device's", peak["endValue"] == stats["requested_bytes.all.peak"], (peak["endValue"], stats))

    page = convert("prometheus")
    metric = re.compile(r'(gpumem_[a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\} (-?[0-9.]+)')
    values = [metric.fullmatch(line) for line in page.splitlines() if not line.startswith("#")]
    check("prometheus: every line is one", all(values) and page.endswith("\n"), page)
    check("prometheus: each metric has one head, before it", all(page.count("# TYPE %s " % m) == 1 for m in {v[1] for v in values}))
    check("prometheus: what is allocated", [v[3] for v in values if v[1] == "gpumem_allocated_bytes"] ==
          [str(stats["allocated_bytes.all.current"])])
    check("prometheus: by module", {v[3] for v in values if v[1] == "gpumem_module_allocated_bytes"} ==
          {str(m["allocated_bytes"]) for m in snapshot["devices"][0]["by_module"]})
    evil = dict(snapshot, process=dict(snapshot["process"], command='a"b\\c\nd{}'))
    run = gpumem("convert", "--to", "prometheus", "-", stdin=json.dumps(evil))
    check("prometheus: a name with quotes stays in its label", all(metric.fullmatch(line) for line in run.stdout.splitlines()
                                                                   if not line.startswith("#")), run.stdout[:500])
    check("gpumem: as it was", json.loads(convert("gpumem")) == load(path))

    # ---- what only some programs have ------------------------------------------------------------------------------
    for app, kinds in (("app_vmm", {"vmm"}), ("app_graph", {"graph", "pool"}), ("app_ipc", {"ipc", "device"}),
                       ("app_pools", {"ipc", "pool"}), ("app_kinds.static", {"external", "vmm", "graph", "ipc", "array"})):
        with Room() as place:
            # Native: events have the size that was asked for, and of a cache's blocks the statistics by kind count all of it.
            place.run([os.path.join(B, "test/apps", app)], snapshot_on="exit", timeout=120, allocator="native")
            seen, wrong = set(), []
            for one in glob.glob(place.out + "/*.json"):
                source, high = load(one), {}
                for event in json.loads(convert("chrome", one))["traceEvents"]:
                    for name, value in event["args"].items() if event["ph"] == "C" else ():
                        if event["name"].startswith("GPU "):
                            key = int(event["name"].split(":")[0][4:]), name
                            high[key] = max(high.get(key, 0), value)
                for device in (d for d in source["devices"] if d["present"]):
                    number, stats = device["device"], device["memory_stats"]
                    seen |= {row["kind"] for row in device["by_kind"]}
                    wrong += [(number, row, high.get((number, row["kind"]))) for row in device["by_kind"]
                              if high.get((number, row["kind"]), 0) != row["peak_bytes"]]
                    if high.get((number, "reserved"), 0) != stats["reserved_bytes.all.peak"]:
                        wrong.append((number, "reserved", high.get((number, "reserved")), stats["reserved_bytes.all.peak"]))
            check("chrome, %s: the peaks of each kind and of what is reserved are the statistics'" % app, kinds <= seen and not wrong,
                  (seen, wrong))

    # ---- a part of it -------------------------------------------------------------------------------------------
    def part(*words, source=path):
        run = gpumem("convert", "--to", "gpumem", *words, source)
        check("convert %s: exit 0" % " ".join(words), run.returncode == 0, run)
        return json.loads(run.stdout)

    def times(snapshot):
        return sorted(t for trace in snapshot["device_traces"] + [snapshot["host_trace"]] for t in trace["time_us"])

    def stacks_of_live(snapshot):
        return sorted((b["address"], b["requested_size"], b["state"]) for s in snapshot["segments"] for b in s["blocks"])

    every = times(snapshot)
    middle = every[len(every) // 2]
    for words in (["--since", str(middle)], ["--last", "%dus" % (every[-1] - middle)], ["--since", "%dus" % (middle - every[-1])],
                  ["--last", "1h", "--since", str(middle)]):
        cut = part(*words)
        check("%s: the events from there on, all else as it was" % " ".join(words), times(cut) == [t for t in every if t >= middle] and
              stacks_of_live(cut) == stacks_of_live(snapshot) and cut["devices"] == snapshot["devices"] and
              cut["history"]["dropped"] - snapshot["history"]["dropped"] == len(every) - len(times(cut)) > 0 and
              sum(t["dropped"] for t in cut["device_traces"]) > 0 and cut["history"]["events"] == len(times(cut)), words)
    newest = part("--last", "0")
    check("--last 0: what has the time of the newest", 0 < len(times(newest)) < len(every) and set(times(newest)) == {every[-1]}, times(newest))
    check("--last with more than there ever was: all of it", part("--last", "1e17") == load(path))
    check("--last 1h: all of it", part("--last", "1h") == load(path))
    large = part("--min-size", "1MiB")
    kept = [(a, s) for t in large["device_traces"] for a, s in zip(t["action"], t["size"]) if a[:5] in ("alloc", "free_")]
    wanted = [(a, s) for t in snapshot["device_traces"] for a, s in zip(t["action"], t["size"]) if a[:5] in ("alloc", "free_") and s >= 1 << 20]
    small = [b for s in large["segments"] for b in s["blocks"] if b["state"] != "inactive" and b["requested_size"] < 1 << 20]
    check("--min-size: allocations of that size, with their frees; the others are live and untraced", kept == wanted and kept and
          len(wanted) < len(allocs) * 3 and small and all(b["untraced"] for b in small) and large["history"]["min_size"] == 1 << 20 and
          large["history"]["filtered_small"] > 0, (len(kept), len(wanted), large["history"]))
    host = part("--device", "host")
    check("--device host: nothing else", not host["segments"] and not any(t["action"] for t in host["device_traces"]) and not host["devices"] and
          host["host_trace"] == snapshot["host_trace"] and host["host_segments"] == snapshot["host_segments"])
    check("--device 0: not the host", not part("-d", "0")["host_segments"] and part("-d", "0")["segments"] == snapshot["segments"])
    with Room() as place:
        place.run([os.path.join(B, "test/apps/app_multidev.static")], snapshot_on="exit", timeout=120)
        [multi] = glob.glob(place.out + "/*.json")
        one = part("-d", "1", source=multi)
        check("--device 1 of several", load(multi)["device_traces"][0]["action"] and not one["device_traces"][0]["action"] and
              one["device_traces"][1] == load(multi)["device_traces"][1] and {s["device"] for s in one["segments"]} <= {1} and
              [d["device"] for d in one["devices"]] == [1])
    torch = os.path.abspath("test/data/torch-snapshot.pickle")
    with open(torch, "rb") as data:
        whole = pickle.load(data)
    events_of = whole["device_traces"][0]
    for source, words in ((torch, ["--since", str(events_of[150]["time_us"])]), (torch, ["--min-size", "1MiB"]), (path, ["--since", str(middle)]),
                          (path, ["--min-size", "64KiB", "--last", "1h", "-d", "0"])):
        run = subprocess.run([GPUMEM, "convert", "--to", "pickle", *words, source], capture_output=True, check=False)
        viewer.check_opcodes(run.stdout)
        shown = pickle.loads(run.stdout)
        try:
            undone, why = viewer.check(shown), ""
        except AssertionError as error:
            undone, why = 0, error
        check("%s for PyTorch's viewer: it can follow" % " ".join(words), run.returncode == 0 and undone > 0, (run.stderr, why))
        if source == torch:
            check("and it is smaller", 0 < len(shown["device_traces"][0]) < len(events_of))
    for words, said in ((["--last", "x"], "not a time"), (["--last", "-3"], "not below 0"), (["--since", "5 years"], "not a time"),
                        (["--since", "9e17h"], "not a time"), (["--last", "nan"], "not a time"),
                        (["--min-size", "big"], "not a size"), (["--device", "x"], "not a number or 'host'")):
        run = gpumem("convert", "--to", "csv", *words, path)
        check("convert %s: wrong use" % " ".join(words), run.returncode == 2 and said in run.stderr and not run.stdout, run)
    run = gpumem("convert", "--to", "prometheus", "--last", "3", path)
    check("metrics have no events", run.returncode == 2 and "metrics have none" in run.stderr, run)
    run = gpumem("convert", "--to", "csv", "-d", "77", path)
    check("a device that is not in it", run.returncode == 3 and "77" in run.stderr, run)

    # ---- files --------------------------------------------------------------------------------------------------
    target = os.path.join(room.path, "out.csv")
    run = gpumem("convert", "-o", target, path)
    with open(target, encoding="utf-8") as text:
        check("-o: the file's end tells the format", run.returncode == 0 and text.read().startswith("time_us,device,action"), run)
    check("-o: no other file stays", os.listdir(room.path).count("out.csv") == 1 and
          not [f for f in os.listdir(room.path) if f.startswith(".gpumem")])
    check("-o: others may read it as the umask says", stat.S_IMODE(os.stat(target).st_mode) & 0o111 == 0)
    run = gpumem("convert", "-o", os.path.join(room.path, "none", "x.csv"), path)
    check("-o into no directory: exit 1", run.returncode == 1 and "No such file" in run.stderr, run)
    run = gpumem("convert", "-o", target, os.path.join(room.path, "none.json"))
    with open(target, encoding="utf-8") as text:
        check("what cannot be read leaves the file as it was", run.returncode == 3 and text.read().startswith("time_us"), run)
    with open("/dev/full", "w", encoding="utf-8") as full:
        for to in ("pickle", "pytorch-json", "csv", "chrome", "speedscope", "folded", "rmm", "prometheus", "gpumem"):
            run = subprocess.run([GPUMEM, "convert", "--to", to, path], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                 check=False)
            check("--to %s on a full disk: exit 1 and a line" % to, run.returncode == 1 and "could not be written" in run.stderr, run)

    # ---- watching -----------------------------------------------------------------------------------------------
    with Program(room, APP, "--wait", "60", oom_snapshots=1) as program:
        check("a living program", program.until("waiting"))
        textfile = os.path.join(room.path, "gpumem.%d.prom" % program.pid)
        with subprocess.Popen([GPUMEM, "convert", "--to", "prometheus", "--textfile", room.path, "--watch", "0.1",
                               str(program.pid)], stderr=subprocess.PIPE, text=True) as watcher:
            first = wait_for(lambda: os.path.exists(textfile) and os.stat(textfile).st_ino)
            again = wait_for(lambda: os.path.exists(textfile) and os.stat(textfile).st_ino != first)
            check("--watch: the file is there and is renewed", first and again)
            program.kill()
            try:
                watcher.wait(timeout=60)
            finally:
                watcher.kill()
            check("--watch: with the process it ends, and its file goes", watcher.returncode == 0 and
                  not os.path.exists(textfile), watcher.stderr.read())

    def wrong(name, says, *words):
        done = gpumem("convert", *words)
        check("%s: exit 2, and why" % name, done.returncode == 2 and says in done.stderr and done.stdout == "", done)

    wrong("no format", "--to FORMAT", path)
    wrong("an unknown format", "not pickle, pytorch-json", "--to", "xml", path)
    wrong("no input", "usage:", "--to", "csv")
    wrong("two inputs", "usage:", "--to", "csv", path, path)
    wrong("--watch alone", "--watch needs", "--to", "prometheus", "--watch", "1", path)
    wrong("--watch with nonsense", "not seconds", "--to", "prometheus", "--watch", "x", path)
    wrong("--textfile of another format", "for --to prometheus", "--to", "csv", "--textfile", room.path, path)
    wrong("an unknown flag", "usage:", "--frobnicate", path)

    def odd(name, content):
        for to in ("pickle", "pytorch-json", "chrome", "csv", "rmm", "speedscope", "folded", "prometheus"):
            done = gpumem("convert", "--to", to, "-", stdin=json.dumps(content))
            check("%s, --to %s: read as far as it goes" % (name, to), done.returncode == 0, done)

    bare = {"format": "gpumem-snapshot", "version": 1}
    odd("a snapshot of nothing", bare)
    odd("members of the wrong type", dict(bare, segments=[1, {"blocks": 5}, {"device": -7, "blocks": [None, {}]}], device_traces=[[], 5, {
        "action": [1, None], "addr": ["x", 2], "size": [-5, 1], "stream": [0, 0], "time_us": [-1, 0], "stack": [99, -1],
        "thread": [0, 0], "kind": [0, 0], "module": [7, -7]}], stacks=[5, [1, 99, -3]], frames={"a": 1}, modules=[3], annotations=[4],
        devices=[1, {"present": True}], process=[], allocator_settings=7, host_trace=3, host_segments=[None]))
finish()
