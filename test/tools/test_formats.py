"""What gpumem convert makes for others, held to their formats: Chrome's trace events, RMM's log, speedscope, folded stacks."""
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import killed_journal, load  # noqa: E402

INT = (int,)
NUMBER = (int, float)


def need(condition, *what):
    if not condition:
        raise AssertionError(what)


def is_a(value, types):
    return isinstance(value, types) and not isinstance(value, bool)


def chrome(text):
    """Trace Event Format: the members each phase must have; slices that nest; ranges that pair. Returns the events."""
    trace = json.loads(text)
    need(set(trace) <= {"traceEvents", "displayTimeUnit", "baseTimeNanoseconds"} and trace.get("baseTimeNanoseconds", 0) == 0 and trace["displayTimeUnit"] in ("ms", "ns"), list(trace))
    open_slices, ranges, named = {}, {}, set()
    more = {"M": {"args"}, "C": {"args"}, "i": {"s", "tid"}, "B": {"tid"}, "E": {"tid"}, "X": {"tid", "dur"},
            "b": {"tid", "cat", "id"}, "e": {"tid", "cat", "id"}}
    for event in trace["traceEvents"]:
        phase = event["ph"]
        need(phase in more, event)
        wanted = {"ph", "name", "pid"} | more[phase] | ({"ts"} if phase != "M" else set())
        need(wanted <= set(event) <= wanted | {"args", "tid"}, event)
        need(is_a(event["pid"], INT) and isinstance(event["name"], str) and is_a(event.get("ts", 0), NUMBER) and is_a(event.get("tid", 0), INT), event)
        need(event.get("ts", 0) >= 0, event)
        need(isinstance(event.get("args", {}), dict), event)
        track = event["pid"], event.get("tid")
        if phase == "M":
            need(event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str), event)
            need((track, event["name"]) not in named, "named twice", event)
            named.add((track, event["name"]))
        elif phase == "C":
            need(all(is_a(v, NUMBER) for v in event["args"].values()), event)
        elif phase == "i":
            need(event["s"] in ("g", "p", "t"), event)
        elif phase == "B":
            open_slices.setdefault(track, []).append(event)
        elif phase == "E":
            need(open_slices.get(track), "an end without a beginning", event)
            begun = open_slices[track].pop()
            need(begun["name"] == event["name"] and begun["ts"] <= event["ts"], begun, event)
        elif phase == "X":
            need(event["dur"] >= 0, event)
        elif phase == "b":
            key = event["pid"], event["cat"], event["id"]
            need(key not in ranges, event)
            ranges[key] = event
        elif phase == "e":
            begun = ranges.pop((event["pid"], event["cat"], event["id"]), None)
            need(begun is None or begun["ts"] <= event["ts"], event)
    return trace["traceEvents"]


def rmm(text):
    """The log of RMM's logging_resource_adaptor, replayed: no address is given out twice, no free of another size."""
    lines = text.splitlines()
    need(lines[0] == "Thread,Time,Action,Pointer,Size,Stream", lines[0])
    live, last = {}, ""
    for line in lines[1:]:
        thread, time, action, pointer, size, stream = line.split(",")
        need(re.fullmatch(r"\d+", thread) and re.fullmatch(r"[0-2]\d:[0-5]\d:[0-5]\d\.\d{6}", time) and re.fullmatch(r"0x[0-9a-f]+", pointer) and
             re.fullmatch(r"\d+", size) and re.fullmatch(r"0x[0-9a-f]+", stream), line)
        need(action in ("allocate", "free", "allocate failure"), line)
        need(time >= last or time[:2] == "00", "back in time", line)
        last = time
        if action == "allocate":
            need(pointer not in live, "given out twice", line)
            live[pointer] = size
        elif action == "free":
            need(live.pop(pointer, size) == size, "another size", line)
    return len(lines) - 1


def speedscope(text):
    """speedscope's file format (file-format-spec.ts), without members that it does not have."""
    file = json.loads(text)
    need(file["$schema"] == "https://www.speedscope.app/file-format-schema.json", file["$schema"])
    need(set(file) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}, list(file))
    need(set(file["shared"]) == {"frames"}, list(file["shared"]))
    for frame in file["shared"]["frames"]:
        need({"name"} <= set(frame) <= {"name", "file", "line", "col"} and isinstance(frame["name"], str) and
             isinstance(frame.get("file", ""), str) and is_a(frame.get("line", 0), INT), frame)
    need(file["profiles"] and 0 <= file["activeProfileIndex"] < len(file["profiles"]))
    for profile in file["profiles"]:
        need(set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}, list(profile))
        need(profile["type"] == "sampled" and profile["unit"] in ("none", "bytes"), profile)
        need(len(profile["samples"]) == len(profile["weights"]) and profile["startValue"] == 0)
        need(all(is_a(w, INT) and w > 0 for w in profile["weights"]) and sum(profile["weights"]) == profile["endValue"], profile["endValue"])
        need(all(s and all(is_a(f, INT) and 0 <= f < len(file["shared"]["frames"]) for f in s) for s in profile["samples"]))
    return file


def folded(text):
    """What flamegraph.pl reads: "a;b;c 5" a line. Returns the sum."""
    total = 0
    for line in text.splitlines():
        found = re.fullmatch(r"([^;]+(?:;[^;]+)*) ([0-9]+)", line)
        need(found, line)
        total += int(found.group(2))
    return total


FORMATS = (("chrome", chrome), ("rmm", rmm), ("speedscope", speedscope), ("folded", folded))


def convert(to, path):
    run = subprocess.run([GPUMEM, "convert", "--to", to, path], capture_output=True, timeout=120, check=False)
    need(run.returncode == 0, run)
    return run.stdout.decode()


def hold(name, path):
    """All formats of one input; what they gave."""
    given = {}
    for to, judge in FORMATS:
        try:
            given[to] = judge(convert(to, path))
            why = ""
        except (AssertionError, ValueError, KeyError) as error:
            why = repr(error)[:600]
        check("%s: %s as its readers want it" % (name, to), not why, why)
    return given


for bad in ('{"traceEvents":[{"ph":"E","name":"x","pid":1,"tid":1,"ts":5}],"displayTimeUnit":"ms"}',
            '{"traceEvents":[{"ph":"C","name":"x","pid":1,"ts":5,"args":{"a":"1"}}],"displayTimeUnit":"ms"}',
            '{"traceEvents":[{"ph":"C","name":"x","ts":5,"args":{}}],"displayTimeUnit":"ms"}'):
    try:
        chrome(bad)
        check("the judge refuses what is wrong", False, bad)
    except AssertionError:
        check("the judge refuses what is wrong", True)

for app in ("demo_app.static", "app_kinds.static", "app_multidev.static", "app_pools", "app_random"):
    with Room() as room:
        room.run([os.path.join(B, "test/apps", app)], snapshot_on="exit,oom", timeout=120)
        for path in sorted(glob.glob(room.out + "/*.json"))[:2]:
            given = hold("%s, %s" % (app, path.split(".")[-2]), path)
            live = sum(b["requested_size"] for s in load(path)["segments"] for b in s["blocks"] if b["state"] != "inactive" and b["kind"] != "ipc")
            check("%s: folded is what is live" % app, given.get("folded") == live, (given.get("folded"), live))
with Room() as room:
    # What is a name there is whatever the snapshot has: kinds, the names of statistics and of settings.
    room.run([os.path.join(B, "test/apps/demo_app.static")], snapshot_on="exit,oom", timeout=120)
    [path] = glob.glob(room.out + "/*oom-1.json")
    document = load(path)
    odd = '"\\\x1b\n\x00\u20ac' + "x" * 80
    for segment in document["segments"] + document["host_segments"]:
        for block in segment["blocks"]:
            block["kind"] += odd
    for trace in document["device_traces"] + [document["host_trace"]]:
        trace["kind"] = [kind + odd for kind in trace["kind"]]
    document["allocator_settings"][odd] = odd
    with open(path, "w", encoding="utf-8") as out:
        json.dump(document, out)
    hold("kinds that need an escape", path)
    for to in ("pytorch-json", "gpumem"):
        try:
            json.loads(convert(to, path))
            why = ""
        except (AssertionError, ValueError) as error:
            why = repr(error)[:600]
        check("kinds that need an escape: %s" % to, not why, why)
with Room() as room:
    hold("a killed process's journal", killed_journal(room, 0.3)[1])
hold("PyTorch's", os.path.abspath("test/data/torch-snapshot.pickle"))
hold("a snapshot with everything", os.path.abspath("test/data/gpumem-snapshot.json"))

# ---- NVTX as slices ---------------------------------------------------------------------------------------------------
with Room() as room:
    room.run([os.path.join(B, "test/preload/nvtx"), "story"])
    [path] = glob.glob(room.out + "/*exit.json")
    events = hold("a program that annotates itself", path)["chrome"]
    notes = load(path)["annotations"]
    nested = [a for a in notes if not a["range"] or a["stage"] == "MARK"]
    slices = [e for e in events if e["ph"] in "BE" and e["ph"] != ""]
    check("NVTX: every pushed range is a slice", [(e["ph"], e["name"]) for e in slices] ==
          [({"START": "B", "END": "E"}[a["stage"]], a["name"]) for a in nested if a["stage"] != "MARK"], slices[:6])
    check("NVTX: those with numbers of their own are ranges", [(e["ph"], e["name"], int(e["id"], 16)) for e in events if e["ph"] in ("b", "e") and "args" not in e] ==
          [({"START": "b", "END": "e"}[a["stage"]], a["name"], a["range"]) for a in notes if a["range"] and a["stage"] != "MARK"])
    check("NVTX: marks are instants", [e["name"] for e in events if e["ph"] == "i" and e["s"] == "t"] == [a["name"] for a in notes if a["stage"] == "MARK"])
    domains = {(a["thread"], a["domain"]) for a in nested if a["domain"]}
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    check("NVTX: each domain of a thread is a track of its own", domains and names >= {"thread %d, %s" % d for d in domains}, (domains, names))

    snapshot = load(path)
    ends = [i for i, a in enumerate(notes) if a["stage"] == "END" and not a["range"]]
    snapshot["annotations"] = notes[ends[0]:]       # the history began within a range
    cut = os.path.join(room.path, "cut.json")
    with open(cut, "w", encoding="utf-8") as out:
        json.dump(snapshot, out)
    events = hold("a history that began within ranges", cut)["chrome"]
    first = notes[ends[0]]
    check("NVTX: such a range is drawn from the first event on", any(e["ph"] == "X" and e["name"] == first["name"] and e["ts"] == min(e["ts"] for e in events if "ts" in e) for e in events),
          [e for e in events if e["ph"] == "X"])
finish()
