# timeout: 120
"""--by annotation: named ranges as phases in summary, diff, flame and check, against a second reckoning of the same."""
import json
import os
import random
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/preload")
from scripted import DRIVER, SCRIPT, Play  # noqa: E402
from tap import check, finish, tell  # noqa: E402
from verbs import Program, gpumem, load, wait_for  # noqa: E402

MAIN, OTHER, THIRD = 100, 101, 102
NONE, BEFORE = "(no annotation)", "(before the history)"


def reckon(moments, dropped_starts=(), live_before=()):
    """By phase: [peak, own peak, live, blocks, all bytes, allocations, ranges] of a list of moments, done the simplest way."""
    open_ranges, live, rows = [list(one) for one in dropped_starts], {}, {}
    total = 0

    def row(name):
        return rows.setdefault(name, [0, 0, 0, 0, 0, 0, 0])

    def own(name):
        return sum(size for size, names in live.values() if name in names)

    def look():
        for _, name, _, _ in open_ranges:
            row(name)[0] = max(row(name)[0], total)
        for name in {name for _, names in live.values() for name in names}:
            row(name)[1] = max(row(name)[1], own(name))

    for address, size in live_before:
        live[address] = (size, {BEFORE})
        total += size
    for _, name, _, _ in open_ranges:
        row(name)[6] += 1
    has_ranges = [one[0] for one in open_ranges] + [what[1] for what in moments if what[0] == "START"]
    leader = MAIN if MAIN in has_ranges else has_ranges[0] if has_ranges else None
    look()
    for what in moments:
        if what[0] == "START":
            open_ranges.append(list(what[1:]))
            row(what[2])[6] += 1
        elif what[0] == "END":
            _, thread, name, number, domain = what
            for at in range(len(open_ranges) - 1, -1, -1):
                one = open_ranges[at]
                if (one[2] == number) if number else (one[0] == thread and not one[2] and one[3] == domain):
                    del open_ranges[at]
                    break
        elif what[0] == "alloc":
            _, thread, address, size = what
            names = {one[1] for one in open_ranges if one[0] in (thread, leader)} or {NONE}
            live[address] = (size, names)
            total += size
            for name in names:
                row(name)[4] += size
                row(name)[5] += 1
        elif what[0] == "free":
            total -= live.pop(what[2])[0]
        look()
    for size, names in live.values():
        for name in names:
            row(name)[2] += size
            row(name)[3] += 1
    return rows, live


def snapshot_of(base, moments, live, dropped=0, live_before=(), shown=None):
    """A snapshot like @base in which just that happened, a microsecond each; @shown: annotations by the names they are given."""
    made = json.loads(json.dumps(base))
    trace = made["device_traces"][0]
    for column, values in trace.items():
        if isinstance(values, list):
            values.clear()
    trace["dropped"] = dropped
    made["annotations"], made["process"]["pid"] = [], MAIN
    made["segments"] = []
    start = base["time_us"] - 10 * len(moments)

    def event(time, action, address, size, thread):
        for column, value in (("action", action), ("addr", address), ("size", size), ("stream", 0), ("time_us", time), ("stack", 1),
                              ("thread", thread), ("kind", "device"), ("module", 1)):
            trace[column].append(value)

    sizes = dict(live_before)
    for i, what in enumerate(moments):
        time = start + 10 * i
        if what[0] in ("START", "END", "MARK"):
            _, thread, name, number, domain = what
            event(time, "annotate", 0, number, thread)
            made["annotations"].append({"name": (shown or {}).get(name, name), "stage": what[0], "domain": domain, "range": number,
                                        "device": 0, "time_us": time, "thread": thread})
        elif what[0] == "alloc":
            sizes[what[2]] = what[3]
            event(time, "alloc", what[2], what[3], what[1])
        else:
            event(time, "free_requested", what[2], sizes[what[2]], what[1])
            event(time, "free_completed", what[2], sizes[what[2]], what[1])
    for address, (size, _) in sorted(live.items()):
        block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "stack": 1, "time_us": start - 5,
                 "thread": MAIN, "kind": "device", "module": 1}
        made["segments"].append(dict(base["segments"][0], address=address, total_size=size, allocated_size=size, active_size=size,
                                     requested_size=size, blocks=[block]))
    return made


def told(room, snapshot, *words):
    path = os.path.join(room.path, "phases.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(snapshot, file)
    run = gpumem("summary", "--by", "annotation", "--json", *words, path)
    if run.returncode:
        return {"error": tell(run)}
    return {one["annotation"]: [one["peak_bytes"] or 0, one["own_peak_bytes"], one["allocated_bytes"], one["blocks"],
                                one["total_allocated_bytes"], one["allocations"], one["ranges"]]
            for one in json.loads(run.stdout)["by_annotation"]}


def random_moments(dice, count):
    """Ranges that nest and that do not, in three threads and two domains, and memory meanwhile."""
    moments, nested, numbered, live, number = [], {}, [], {}, 0
    for i in range(count):
        thread = dice.choice((MAIN, MAIN, OTHER, THIRD))
        chance = dice.random()
        key = (thread, dice.choice((None, "lib")))
        if chance < 0.15:
            name = dice.choice(("load", "forward", "backward", "step %d" % dice.randrange(4)))
            name += "" if not key[1] else " (lib)"
            moments.append(("START", thread, name, 0, key[1]))
            nested.setdefault(key, []).append(name)
        elif chance < 0.28 and nested.get(key):
            moments.append(("END", thread, nested[key].pop(), 0, key[1]))
        elif chance < 0.33:
            number += 1
            numbered.append((number, "stage %d" % dice.randrange(3)))
            moments.append(("START", thread, numbered[-1][1], number, None))
        elif chance < 0.38 and numbered:
            ended = numbered.pop(dice.randrange(len(numbered)))
            moments.append(("END", dice.choice((MAIN, OTHER)), ended[1], ended[0], None))
        elif chance < 0.75 or not live:
            address = (i + 1) << 20
            live[address] = dice.randrange(1, 5000)
            moments.append(("alloc", thread, address, live[address]))
        else:
            address = dice.choice(sorted(live))
            del live[address]
            moments.append(("free", thread, address))
    return moments


def shown_names(moments):
    """A domain is a member of its own in the snapshot, and part of the name that is shown."""
    return {what[2]: re.sub(r" \(lib\)$", "", what[2]) for what in moments if what[0] in ("START", "END")}


def against_reckoning(room, base):
    wrong, seen = [], 0
    for seed in range(25):
        moments = random_moments(random.Random(seed), 300)
        want, live = reckon(moments)
        got = told(room, snapshot_of(base, moments, live, shown=shown_names(moments)))
        seen += len(want)
        if got != want:
            wrong.append((seed, {k: (got.get(k), want.get(k)) for k in set(got) | set(want) if got.get(k) != want.get(k)}))
    check("25 random programs: each phase's peak, own peak, live and sums are those of the second reckoning", not wrong and seen > 150,
          (wrong[:1], seen))
    moments = [("START", OTHER, "worker", 0, None), ("alloc", THIRD, 1 << 20, 100), ("END", OTHER, "worker", 0, None),
               ("alloc", OTHER, 2 << 20, 7)]
    want, live = reckon(moments)
    check("where main has no ranges, the first thread that has leads", told(room, snapshot_of(base, moments, live)) == want and
          want["worker"][2] == 100, want)


def truncated(room, base):
    """The history has dropped the STARTs: an END tells that its range was open."""
    before = [(7 << 30, 1000), (8 << 30, 500)]
    rest = [("alloc", MAIN, 1 << 20, 50), ("END", MAIN, "inner", 0, None), ("alloc", OTHER, 2 << 20, 60), ("free", MAIN, 7 << 30),
            ("END", MAIN, "outer", 0, None), ("alloc", MAIN, 3 << 20, 70), ("END", THIRD, "numbered", 9, None), ("alloc", THIRD, 4 << 20, 80)]
    want, live = reckon(rest, [(MAIN, "outer", 0, None), (MAIN, "inner", 0, None), (THIRD, "numbered", 9, None)], before)
    made = snapshot_of(base, rest, live, dropped=1234, live_before=before)
    got = told(room, made)
    check("ranges whose START was dropped were open from the start of the history", got == want and got[BEFORE][2:4] == [500, 1] and
          got["inner"][4] == 50 and got["outer"][4] == 110, (got, want))
    made["history"]["annotations_lost"] = 5
    told(room, made)
    run = gpumem("summary", "--by", "annotation", os.path.join(room.path, "phases.json"))
    check("what was dropped is said", "the history has dropped 1234 older events: ranges from before them are missing" in run.stdout and
          "5 annotations were not recorded" in run.stdout, run.stdout[-900:])
    path = os.path.join(room.path, "phases.json")
    check("what was dropped is said by diff and flame, too", "A: the history has dropped 1234" in
          gpumem("diff", "--by", "annotation", path, path).stdout and "flame: the history has dropped 1234" in
          gpumem("flame", "--by", "annotation", "--format", "folded", path).stderr)
    check("the table has them", re.search(r"peak +own peak +live +blocks +ranges +by annotation", run.stdout) and
          re.search(r"1\.57 KiB +110 B +110 B +2 +1 +outer\n", run.stdout), run.stdout[-900:])


def profiler(room, base):
    """torch.autograd.profiler.emit_nvtx() as PyTorch 2.11 names its ranges, backward in a thread of its own."""
    names = ["aten::linear, seq = 0, op_id = 1, sizes = [[256, 2048], [2048]], input_op_ids = [(0,-1), (0,-1)]",
             "aten::t, op_id = 3", "autograd::engine::evaluate_function: MulBackward0, op_id = 32", "MulBackward0, seq = 9",
             "a, sizes = of mine"]
    want = ["aten::linear", "aten::t", "autograd::engine::evaluate_function: MulBackward0", "MulBackward0", "a, sizes = of mine"]
    moments = [("START", MAIN, "forward", 0, None), ("START", MAIN, names[0], 0, None), ("START", MAIN, names[1], 0, None),
               ("alloc", MAIN, 1 << 20, 10), ("END", MAIN, names[1], 0, None), ("END", MAIN, names[0], 0, None),
               ("END", MAIN, "forward", 0, None), ("START", MAIN, "backward", 0, None), ("START", OTHER, names[2], 0, None),
               ("START", OTHER, names[3], 0, None), ("alloc", OTHER, 2 << 20, 20), ("alloc", THIRD, 3 << 20, 40),
               ("END", OTHER, names[3], 0, None), ("END", OTHER, names[2], 0, None), ("END", MAIN, "backward", 0, None),
               ("START", MAIN, names[4], 0, None), ("END", MAIN, names[4], 0, None), ("START", MAIN, "", 0, None),
               ("alloc", MAIN, 4 << 20, 80)]
    live = {(i + 1) << 20: (10 << i, None) for i in range(4)}
    got = told(room, snapshot_of(base, moments, live))
    check("PyTorch's numbers are not part of a name", set(want) <= set(got), sorted(got))
    check("what other threads allocate counts to main's ranges, too", {name: got[name][2] for name in got} == {
        "forward": 10, "aten::linear": 10, "aten::t": 10, "backward": 60, want[2]: 20, want[3]: 20, want[4]: 0, "(no name)": 80}, got)
    path = os.path.join(room.path, "phases.json")
    lines = {}
    for line in gpumem("flame", "--by", "annotation", "--format", "folded", path).stdout.splitlines():
        stack, _, weight = line.rpartition(" ")
        ranges = stack.split(";" + stack_names(base)[0])[0]
        lines[ranges] = int(weight)
    check("flame: each stack stands on its ranges, outermost first", lines == {
        "forward;aten::linear;aten::t": 10, "backward;autograd::engine::evaluate_function: MulBackward0;MulBackward0": 20,
        "backward": 40, "(no name)": 80}, lines)
    picture = os.path.join(room.path, "flame.svg")
    run = gpumem("flame", "--by", "annotation", "--weigh", "peak", "-o", picture, path)
    with open(picture, encoding="utf-8") as file:
        check("flame: as a picture", run.returncode == 0 and "MulBackward0" in file.read(), tell(run))


def stack_names(snapshot):
    frames = [snapshot["frames"][i] for i in snapshot["stacks"][1]]
    return [frame["name"].replace(";", ":") or "??" for frame in reversed(frames)]


def whole():
    """A real program."""
    with Play() as room:
        run = room.script("range_start load", "alloc 1000", "range_end", "range_start step", "alloc 5000", "range_start inner", "alloc 200",
                          "range_end", "free", "free", "range_end", "alloc 30", "exit 0")
        path = os.path.join(room.out, room.files()[0])
        check("a program with ranges", run.returncode == 0 and len(room.files()) == 1, tell(run))
        said = json.loads(gpumem("summary", "--by", "annotation", "--json", path).stdout)["by_annotation"]
        check("its phases, highest peak first", [(one["annotation"], one["peak_bytes"], one["allocated_bytes"]) for one in said] == [
            ("step", 6200, 0), ("inner", 6200, 0), ("load", 1000, 1000), (NONE, None, 30)], said)
        limits = gpumem("check", "--by", "annotation", "--max-peak", "5000", "--no-leaks", path)
        check("check: names the ranges that went past the limit, and those of what leaks", limits.returncode == 1 and
              re.findall(r"^  (\S+ \S+) (in|allocated in) ((?!\d).*)$", limits.stdout, re.M) == [
                  ("6.05 KiB", "in", "step"), ("6.05 KiB", "in", "inner"), ("1000 B", "allocated in", "load"),
                  ("30 B", "allocated in", NONE)], limits.stdout)
        plain = gpumem("check", "--max-peak", "5000", path)
        check("check: only when it is asked for", plain.returncode == 1 and "in step" not in plain.stdout, plain.stdout)
        offences = json.loads(gpumem("check", "--by", "annotation", "--json", "--max-peak", "5000", path).stdout)["offences"]
        check("check: as JSON", [one["annotation"] for one in offences[0]["by_annotation"]] == ["step", "inner"], offences)
        within = gpumem("check", "--by", "annotation", "--max-peak", "6656", path)      # blocks have multiples of 512
        check("check: within the limit", within.returncode == 0, within.stdout)
        room.script("range_start load", "alloc 1000", "alloc 24", "range_end", "range_start step", "alloc 5000", "exit 0")
        after = os.path.join(room.out, [name for name in room.files() if not path.endswith(name)][0])
        rows = json.loads(gpumem("diff", "--by", "annotation", "--json", path, after).stdout)
        check("diff: what grew, by range", {one["name"]: (one["bytes_a"], one["bytes_b"]) for one in rows} == {
            "load": (1000, 1024), "step": (0, 5000), NONE: (30, 0)}, rows)
        nested = room.script("range_start a", "range_start b", "alloc 100", "exit 0", output=os.path.join(room.path, "n.json"))
        text = gpumem("diff", "--by", "annotation", path, os.path.join(room.path, "n.json")).stdout
        check("diff: the sum has each block once", nested.returncode == 0 and re.search(
            r"^ +-930 B +1\.01 KiB +100 B +2 +1 +all$", text, re.M), text)
        return load(path)


def odd(room, base):
    made = snapshot_of(base, [], {})
    check("nothing at all", told(room, made) == {}, told(room, made))
    for verb in (["summary"], ["flame"], ["diff", os.path.join(room.path, "phases.json")], ["check", "--no-leaks"]):
        run = gpumem(*verb, "--by", "annotation", os.path.join(room.path, "phases.json"))
        check("nothing at all: %s" % verb[0], run.returncode == 0, tell(run))
    moments = [("END", MAIN, "x", 0, None), ("END", MAIN, "y", 12345, "d"), ("MARK", MAIN, "mark", 0, None), ("START", MAIN, "x", 5, None),
               ("START", OTHER, "x", 5, None), ("END", THIRD, "x", 5, None), ("END", THIRD, "x", 5, None), ("alloc", MAIN, 1 << 20, 5)]
    made = snapshot_of(base, moments, {1 << 20: (5, None)})
    got = told(room, made)
    check("ranges of one number, ends of nothing, marks: no crash, and no phase of a mark", "x" in got and "mark" not in got and
          got["x"][6] >= 3, got)
    made["annotations"].append("no object")
    made["annotations"].append({"stage": "START"})
    check("annotations that are none", "x" in told(room, made), told(room, made))
    pickle = gpumem("summary", "--by", "annotation", "test/data/torch-snapshot.pickle")
    check("a snapshot of PyTorch", pickle.returncode == 0 and "by annotation" in pickle.stdout, tell(pickle))


def living():
    """gpumem top --by annotation, while the program goes on."""
    with Play() as room:
        words = ["range_start load", "alloc 1000", "range_end", "range_start step", "alloc 5000", "free", "alloc 70", "sleep 60000"]
        with Program(room, SCRIPT, *words, DRIVER=DRIVER, OUT=room.out) as program:
            def look():
                run = gpumem("top", "--once", "--by", "annotation", "--json", str(program.pid))
                processes = json.loads(run.stdout)["processes"] if run.returncode == 0 else []
                return {row["name"]: (row["live_bytes"], row.get("peak_bytes"), row["blocks"]) for process in processes
                        for row in process.get("annotations", ())}
            found = wait_for(lambda: look() if look().get("step", (0,))[0] == 70 else None)
            check("top: ranges of a living process", found == {"load": (1000, 1000, 1), "step": (70, 6000, 1)}, found or look())
            table = gpumem("top", "--once", "--by", "annotation", str(program.pid)).stdout
            check("top: as a table", re.search(r"  annotation\n +1000 B +1000 B .* load\n +70 B +5\.86 KiB .* step\n", table), table)
            table = gpumem("top", "--once", str(program.pid)).stdout
            check("top: by call site otherwise", "  call site\n" in table and "annotation" not in table, table)


def main():
    living()
    base = whole()
    with Play() as room:
        against_reckoning(room, base)
        truncated(room, base)
        profiler(room, base)
        odd(room, base)
    finish()


main()
