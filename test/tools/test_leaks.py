"""gpumem leaks: what is never freed, by stack; suppressions; growth. gpumem diff: two snapshots side by side."""
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from holders import as_key, by_stack, frames, live, refusals  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program, gpumem, killed_journal, load, named  # noqa: E402

PICKLE = os.path.abspath("test/data/torch-snapshot.pickle")


def leaks(*words):
    run = gpumem("leaks", "--json", *words)
    return json.loads(run.stdout) if run.returncode == 0 else {"leaks": [], "bytes": run}


def sums(report):
    return {as_key(leak["stack"]): [leak["bytes"], leak["blocks"]] for leak in report["leaks"]}


with Room() as room:
    room.run([APP], snapshot_on="exit,oom")
    before = sorted(glob.glob(room.out + "/*oom-1.json"))[0]
    snapshot = named(before)
    path = os.path.join(room.path, "x.json")

    def with_changes(change, source=snapshot):
        copy = json.loads(json.dumps(source))
        change(copy)
        with open(path, "w", encoding="utf-8") as out:
            json.dump(copy, out)
        return path

    wanted = by_stack(snapshot, live(snapshot))
    report = leaks(before)
    check("every live block is in the leaks of its stack", len(wanted) > 3 and sums(report) == wanted, (report, wanted))
    check("largest first", [x["bytes"] for x in report["leaks"]] == sorted((x["bytes"] for x in report["leaks"]), reverse=True))
    check("and all of them together", report["bytes"] == sum(b for b, _ in wanted.values()), report["bytes"])
    check("the host's by -d host", sums(leaks("-d", "host", before)) == by_stack(snapshot, live(snapshot, host=True)) != {})
    check("a device that is not there has none", leaks("-d", "7", before)["leaks"] == [])
    began, moments = snapshot["process"]["start_time_us"], sorted({block["time_us"] for block in live(snapshot)})
    middle = moments[len(moments) // 2]
    young = by_stack(snapshot, [block for block in live(snapshot) if block["time_us"] >= middle])
    for since in (str(middle), "%dus" % (middle - began)):
        check("--since %s leaves out what is older" % since, young and young != wanted and sums(leaks("--since", since, before)) == young, young)
    check("--since counts back from the newest event", sums(leaks("--since", "-1h", before)) == wanted and leaks("--since", "1h", before)["leaks"] == [])
    text = gpumem("leaks", before).stdout
    check("as text: each with its stack, then a sum", text.count(" block (") + text.count(" blocks (") == len(wanted) and
          re.search(r"^not freed yet: [0-9.]+ MiB in %d blocks from %d stacks$" % (sum(n for _, n in wanted.values()), len(wanted)),
                    text, re.M) and all(name in text for stack in wanted for name, _ in stack), text)
    done = gpumem("leaks", with_changes(lambda c: c["process"].update(life="clean"))).stdout
    check("of a process that has ended: never freed", "never freed: " in done and "not freed yet" not in done, done)
    room.run([APP], stacks="none", output=room.out + "/bare.%r.json")
    bare = room.out + "/bare.oom-1.json"
    kinds = {}
    for segment in load(bare)["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["kind"] != "ipc":
                kinds[block["kind"]] = kinds.get(block["kind"], 0) + block["requested_size"]
    rows = leaks(bare)["leaks"]
    check("without stacks a row for each kind and module", len(kinds) > 2 and {r["kind"]: r["bytes"] for r in rows} == kinds and
          all(r["module"].startswith("demo_app") and r["stack"] == [] for r in rows), (rows, kinds))
    check("in text with the module", all(re.search(r"^%.2f MiB in \d+ blocks? \(%s\)\n    \(no stack\) demo_app" % (b / (1 << 20), k), gpumem("leaks", bare).stdout, re.M)
                                         for k, b in kinds.items() if b > 1 << 20), gpumem("leaks", bare).stdout)
    check("and not as stacks in the sum", "from" not in (last := gpumem("leaks", bare).stdout.splitlines()[-1]) and "%d rows without a stack" % len(kinds) in last, last)
    check("--top 1", gpumem("leaks", "--top", "1", before).stdout.count("    main (") == 1)
    check("--min-size", all(x["bytes"] >= 1 << 20 for x in leaks("--min-size", "1MiB", before)["leaks"]) and
          len(leaks("--min-size", "1MiB", before)["leaks"]) == sum(b >= 1 << 20 for b, _ in wanted.values()))

    def free_all(copy):
        for segment in copy["segments"]:
            for block in segment["blocks"]:
                block["state"] = "active_pending_free"
    check("what is freed and waits is no leak", leaks(with_changes(free_all))["leaks"] == [])

    # ---- suppressions -------------------------------------------------------------------------------------------
    known = os.path.join(room.path, "known")

    def suppressed(*lines):
        with open(known, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        return sums(leaks("-s", known, before))

    def without(test):
        return {stack: v for stack, v in wanted.items() if not any(test(*frame) for frame in stack)}

    check("leak:FUNCTION", suppressed("# a comment", "", "leak:cudaMallocPitch") == without(lambda n, m: "cudaMallocPitch" in n) != wanted)
    check("a part of a name, without leak:", suppressed("MallocMan") == without(lambda n, m: "MallocMan" in n) != wanted)
    check("a pattern", suppressed("leak:cuda*Pitch") == without(lambda n, m: "cudaMallocPitch" in n) != wanted)
    check("^ and $", suppressed("leak:^cudaMalloc$") == without(lambda n, m: n == "cudaMalloc") != without(
        lambda n, m: "cudaMalloc" in n))
    check("a module", suppressed("leak:demo_app") == {})
    check("? and [ are letters", suppressed("leak:cudaMalloc?", "leak:[a-z]") == wanted)
    done = gpumem("leaks", "-s", known, before).stdout
    check("nothing left out is not spoken of", "left out" not in done)
    suppressed("leak:cudaMallocPitch")
    check("what is left out is counted", "; 1 block of known leaks left out" in gpumem("leaks", "-s", known, before).stdout)
    run = gpumem("leaks", "-s", os.path.join(room.path, "none"), before)
    check("no such file of suppressions: exit 2", run.returncode == 2 and "No such file" in run.stderr, run)

    for line, why in (("leek:foo", "'leek:' begins no rule"), ("race:foo", "'race:' begins no rule"), ("leak:", "leak: has no pattern"), (" leak: \t", "leak: has no pattern")):
        with open(known, "w", encoding="utf-8") as out:
            out.write("# known\nleak:cudaMallocPitch\n%s\nstd::vector\n" % line)
        for words in (["leaks"], ["check", "--no-leaks"]):
            run = gpumem(*words, "-s", known, before)
            check("%s: a line that is no rule, %r: exit 2, its number and why" % (words[0], line), run.returncode == 2 and
                  not run.stdout and "known: line 3: " + why in run.stderr, run)
    check("a name of C++ is a pattern", suppressed("std::vector", "::MallocMan") == wanted)

    # ---- growth -------------------------------------------------------------------------------------------------
    def grow(copy):
        segment = next(s for s in copy["segments"] if s["blocks"][0]["state"] == "active_allocated")
        more = json.loads(json.dumps(segment))
        for thing in [more, more["blocks"][0]]:
            thing["address"] = 0x10000
        copy["segments"].append(more)
    later = with_changes(grow)
    extra = next(b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    grown = leaks(before, later)
    check("two snapshots: only what grew", [(as_key(x["stack"]), x["bytes"] - x["bytes_before"], x["blocks"] - x["blocks_before"])
                                           for x in grown["leaks"]] == [(frames(snapshot, extra["stack"]), extra["requested_size"], 1)],
          grown)
    check("and not what shrank", leaks(later, before)["leaks"] == [] and leaks(before, before)["leaks"] == [])

    def renumber(copy):
        """The same stacks under other numbers, the same code at other addresses: another run."""
        copy["stacks"] = [[]] + copy["stacks"][:0:-1]
        number = {i: len(copy["stacks"]) - i if i else 0 for i in range(len(copy["stacks"]))}
        for one in [s for s in copy["segments"] + copy["host_segments"]] + [b for s in copy["segments"] + copy["host_segments"]
                                                                           for b in s["blocks"]]:
            one["stack"] = number[one["stack"]]
        for trace in copy["device_traces"] + [copy["host_trace"]]:
            trace["stack"] = [number[s] for s in trace["stack"]]
        for module in copy["modules"]:
            module["base"] = 12345
    with open(os.path.join(room.path, "other.json"), "w", encoding="utf-8") as out:
        renumber(snapshot_copy := json.loads(json.dumps(snapshot)))
        json.dump(snapshot_copy, out)
    other = os.path.join(room.path, "other.json")
    check("stacks are the same by what they are, not by their numbers", leaks(before, other)["leaks"] == [] and
          gpumem("diff", "--by", "stack", "--json", before, other).stdout.strip() == "[]")

    # ---- diff ---------------------------------------------------------------------------------------------------
    def diff(*words):
        return json.loads(gpumem("diff", "--json", *words).stdout)

    names = {"module": lambda b: os.path.basename(snapshot["modules"][b["module"]]["path"]), "kind": lambda b: b["kind"]}
    for by, name_of in names.items():
        table = {}
        for block in live(snapshot):
            entry = table.setdefault(name_of(block), [0, 0])
            entry[0] += block["requested_size"]
            entry[1] += 1
        got = {row["name"]: [row["bytes_a"], row["blocks_a"], row["bytes_b"], row["blocks_b"]]
               for row in diff("--by", by, "--all", before, before)}
        check("diff --by %s --all" % by, got == {k: v + v for k, v in table.items()}, (got, table))
    sizes = {row["name"]: row["blocks_a"] for row in diff("--by", "size", "--all", before, before)}
    check("diff --by size: powers of two", sum(sizes.values()) == len(live(snapshot)) and
          sizes.get("up to 2.00 MiB", 0) == sum(2 ** 20 < b["requested_size"] <= 2 ** 21 for b in live(snapshot)), sizes)
    streams = {row["name"]: row["bytes_a"] for row in diff("--by", "stream", "--all", before, before)}
    check("diff --by stream", sum(streams.values()) == report["bytes"] and all(re.fullmatch("0|0x[0-9a-f]+", s) for s in streams), streams)
    site = diff(before, later)
    check("diff: growth by site", [row["growth"] for row in site] == [extra["requested_size"]] and "main" in site[0]["name"], site)
    def built(name, build, lines):
        """The program of @snapshot in another build, whose code and lines have moved."""
        copy = json.loads(json.dumps(snapshot))
        app = [i for i, module in enumerate(copy["modules"]) if os.path.basename(module["path"]) == os.path.basename(APP)]
        for module in app:
            copy["modules"][module]["build_id"] = build
        for frame in copy["frames"]:
            if frame["module"] in app:
                frame.update(filename="app.c", line=100 + frame["offset"] + lines if lines else 0, offset=frame["offset"] + lines)
        with open(os.path.join(room.path, name), "w", encoding="utf-8") as out:
            json.dump(copy, out)
        return out.name
    first, moved, unknown = built("first.json", "aa", 1), built("moved.json", "bb", 2), built("unknown.json", "cc", 0)
    check("diff of two builds: nothing changed but lines", diff(first, moved) == diff(first, unknown) == diff(unknown, moved) == [],
          [diff(first, moved), diff(first, unknown), diff(unknown, moved)])
    names = [row["name"] for row in diff("--all", unknown, moved)]
    check("diff of two builds: a function with one site has the second's line, one with several none",
          len(names) == len(set(names)) and any(name.startswith("main (" + os.path.basename(APP)) for name in names) and
          all(name.split("(")[-1].startswith(("app.c:", os.path.basename(APP), "libcuda")) for name in names), names)

    copy = load(first)          # every second frame of the program is of another file that has the same name
    copy["modules"].append(dict(next(m for m in copy["modules"] if m["build_id"] == "aa"), build_id="zz"))
    for frame in [frame for frame in copy["frames"] if frame["filename"] == "app.c"][::2]:
        frame["module"] = len(copy["modules"]) - 1
    twice = os.path.join(room.path, "twice.json")
    with open(twice, "w", encoding="utf-8") as out:
        json.dump(copy, out)
    check("diff: two files of one name in a process are no two builds", len(diff("--all", twice, twice)) == len(diff("--all", first, first)),
          (diff("--all", twice, twice), diff("--all", first, first)))
    check("diff of one build: its lines are sites", len(diff(first, built("same.json", "aa", 3))) > 1)
    check("diff, the other way round", [row["growth"] for row in diff(later, before)] == [-extra["requested_size"]])
    lines = gpumem("diff", before, later).stdout.splitlines()
    check("diff as text: a head, the growth, the sum", len(lines) == 3 and lines[1].split()[0].startswith("+") and
          lines[2].split()[-1] == "all", lines)
    lines = gpumem("diff", before, before).stdout.splitlines()
    check("diff of the same: only the sum, and that nothing changed", len(lines) == 3 and lines[2].startswith("nothing changed"), lines)
    lines = gpumem("diff", "--by", "stack", before, later).stdout
    check("diff --by stack prints it", all(name in lines for name, _ in frames(snapshot, extra["stack"])), lines)
    run = gpumem("diff", "--by", "nonsense", before, later)
    check("diff --by nonsense: exit 2", run.returncode == 2 and "nonsense" in run.stderr, run)
    for words in ((before,), (before, before, before)):
        run = gpumem("diff", *words)
        check("diff of %d: exit 2" % len(words), run.returncode == 2 and "usage:" in run.stderr, run)
    refusals("leaks", room, snapshot)
    refusals("diff", room, snapshot, twice=True)
    with open("/dev/full", "w", encoding="utf-8") as full:
        for verb, words in (("leaks", [before]), ("diff", [before, later])):
            run = subprocess.run([GPUMEM, verb, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            check("%s on a full disk: exit 1 and a line" % verb, run.returncode == 1 and "could not be written" in run.stderr, run)

    def evil(copy):
        for frame in copy["frames"]:
            frame["name"] = "\x1b[2Jevil"
        for module in copy["modules"]:
            module["path"] = "/\x1b]0;title\x07.so"
    with_changes(evil)
    check("names cannot drive a terminal", all("\x1b" not in gpumem(*words).stdout for words in (
        ("leaks", path), ("diff", "--all", path, path), ("diff", "--all", "--by", "module", path, path))))

with Room() as room:
    with Program(room, APP, "--wait", "60", oom_snapshots=1) as program:
        check("a living program", program.until("waiting"))
        run = gpumem("leaks", str(program.pid))
        check("leaks of a living process, by its pid", run.returncode == 0 and "not freed yet: " in run.stdout and "main (" in run.stdout,
              run)
with Room() as room:
    _, journal = killed_journal(room, 0.2)
    run = gpumem("leaks", journal)
    check("leaks of a journal", run.returncode == 0 and " from " in run.stdout, run)
    run = gpumem("diff", journal, PICKLE)
    check("diff of a journal and PyTorch's", run.returncode == 0 and run.stdout.splitlines()[-1].endswith("all"), run)
torch = json.loads(gpumem("convert", "--to", "pytorch-json", PICKLE).stdout)
check("leaks of PyTorch's pickle", leaks(PICKLE)["bytes"] == sum(
    b["requested_size"] for s in torch["segments"] for b in s["blocks"] if b["state"] == "active_allocated"))
run = gpumem("leaks", "test/data/torch-snapshot.pickle")
names = [f["name"] for s in json.loads(gpumem("leaks", "--json", "test/data/torch-snapshot.pickle").stdout)["leaks"] for f in s["stack"]]
check("names of a thousand letters are cut for people, and whole in JSON", max(map(len, names)) > 900 and
      max(map(len, run.stdout.splitlines())) < 250 and "..." in run.stdout, (max(map(len, names)), max(map(len, run.stdout.splitlines()))))
finish()
