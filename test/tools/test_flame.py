"""gpumem flame: live, peak, count, churn as folded stacks, speedscope and a picture. gpumem check: limits for CI."""
import copy
import glob
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from holders import by_stack, frames, live, refusals  # noqa: E402
from screen import Screen  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, killed_journal, load, named  # noqa: E402

PICKLE = os.path.abspath("test/data/torch-snapshot.pickle")
SVG = "{http://www.w3.org/2000/svg}"


def folded(*words):
    found = {}
    for line in gpumem("flame", "--all-frames", "--format", "folded", *words).stdout.splitlines():
        stack, _, weight = line.rpartition(" ")
        found[stack] = found.get(stack, 0) + int(weight)
    return found


def outside_in(stack):
    return ";".join(name.replace(";", ":") for name, _ in reversed(stack)) or "(no stack)"


def histories(snapshot):
    """By stack: what was live at the highest moment, how often it was asked, what was freed again. All events are there."""
    events = [e for trace in snapshot["device_traces"] for e in zip(
        *(trace[c] for c in ("time_us", "action", "addr", "size", "stack", "kind"))) if e[5] != "ipc"]
    events.sort(key=lambda e: e[0])
    now, at, top, count, churn, asked = {}, {}, 0, {}, {}, {}
    for _, action, address, size, stack, _ in events:
        name = outside_in(frames(snapshot, stack))
        if action == "alloc":
            now[address] = (name, size)
            count[name] = count.get(name, 0) + 1
            asked[name] = asked.get(name, 0) + size
        elif action == "free_completed":
            name, size = now.pop(address)
            churn[name] = churn.get(name, 0) + size
        total = sum(s for _, s in now.values())
        if total > top:
            top, at = total, {}
            for name, size in now.values():
                at[name] = at.get(name, 0) + size
    return at, count, churn, asked


with Room() as room:
    room.run([APP], snapshot_on="exit,oom")
    path = sorted(glob.glob(room.out + "/*oom-1.json"))[0]
    snapshot = named(path)
    peak, count, churn, asked = histories(snapshot)
    held = {outside_in(stack): b for stack, (b, _) in by_stack(snapshot, live(snapshot)).items()}
    check("live", folded(path) == held, (folded(path), held))
    check("convert --to folded is another name of it",
          gpumem("convert", "--to", "folded", path).stdout == gpumem("flame", "--all-frames", "-f", "folded", path).stdout)
    check("peak", folded("-w", "peak", path) == peak and sum(peak.values()) >= sum(held.values()), (folded("-w", "peak", path), peak))
    check("count", folded("-w", "count", path) == count, (folded("-w", "count", path), count))
    check("bytes", folded("-w", "bytes", path) == asked, (folded("-w", "bytes", path), asked))
    check("churn", folded("-w", "churn", path) == churn and churn, (folded("-w", "churn", path), churn))
    check("-d host", folded("-d", "host", path) == {outside_in(s): b for s, (b, _) in by_stack(
        snapshot, live(snapshot, host=True)).items()})
    scope = json.loads(gpumem("flame", "--all-frames", "--format", "speedscope", "-w", "count", path).stdout)
    names = [f["name"] for f in scope["shared"]["frames"]]
    [profile] = scope["profiles"]
    got = {}
    for sample, weight in zip(profile["samples"], profile["weights"]):
        key = ";".join(names[f] for f in sample)
        got[key] = got.get(key, 0) + weight
    used = {f for sample in profile["samples"] for f in sample}
    check("speedscope: each frame is there once, and is used", len({json.dumps(f) for f in scope["shared"]["frames"]}) == len(names) and
          used == set(range(len(names))) and len(names) < len(snapshot["frames"]), (len(names), len(used), len(snapshot["frames"])))
    check("speedscope: each stack is there once", len({tuple(s) for s in profile["samples"]}) == len(profile["samples"]) > 3,
          profile["samples"])
    lines = [line.rpartition(" ")[0] for line in gpumem("flame", "--all-frames", "--format", "folded", "-w", "count", path).stdout.splitlines()]
    check("folded: each stack is there once", len(set(lines)) == len(lines) == len(count), lines)
    check("speedscope has the same", got == count and profile["unit"] == "none", (got, count))

    def picture(*words):
        """[(name, x, width, row)] of an SVG, which must be well-formed and add up."""
        text = gpumem("flame", "--all-frames", *words).stdout
        found, rows = [], {}
        for group in ET.fromstring(text).iter(SVG + "g"):
            rows.setdefault(int(group.get("data-r")), []).append((float(group.get("data-x")), float(group.get("data-w")), int(group.get("data-n"))))
            title = group.find(SVG + "title").text
            found.append((title[:title.rindex(" (")], float(group.get("data-x")), float(group.get("data-w")), int(group.get("data-r"))))
        for row, boxes in rows.items():
            for x, width, weight in rows.get(row - 1, []):
                below = sum(n for x2, w2, n in boxes if x - .01 <= x2 and x2 + w2 <= x + width + .01)
                if below > weight:
                    check("svg %s: what a frame called weighs no more than itself" % " ".join(words[:-1]), False, (below, weight))
        return text, found, sum(n for _, _, n in rows.get(0, []))

    text, boxes, sum_of_all = picture(path)
    total = sum(held.values())
    check("svg: the ground is the exact sum", sum_of_all == total, (sum_of_all, total))
    for weigh, sums in (("peak", peak), ("count", count), ("bytes", asked), ("churn", churn)):
        _, _, ground = picture("-w", weigh, path)
        check("svg of %s: well-formed, the exact sum" % weigh, ground == sum(sums.values()), (ground, sum(sums.values())))
    want = {}
    for stack, weight in held.items():
        parts = stack.split(";")
        for depth in range(len(parts)):
            key = tuple(parts[:depth + 1])
            want[key] = want.get(key, 0) + weight
    check("svg: a box for each frame of each path, as wide as it weighs", sorted((k[-1], len(k) - 1, round(1200 * v / total))
          for k, v in want.items()) == sorted((n, r, round(w)) for n, _, w, r in boxes), (boxes, want))
    check("svg: each box stands on the one that called it", all(r == 0 or any(
        r2 == r - 1 and x2 <= x + .01 and x + w <= x2 + w2 + .01 for _, x2, w2, r2 in boxes) for _, x, w, r in boxes), boxes)
    check("svg: it needs nothing from elsewhere", "http" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" in text)

    def write(change):
        copy = json.loads(json.dumps(snapshot))
        change(copy)
        with open(os.path.join(room.path, "x.json"), "w", encoding="utf-8") as out:
            json.dump(copy, out)
        return os.path.join(room.path, "x.json")

    def evil(copy):
        copy["process"]["command"] = "<script>alert(1)</script>"
        for i, frame in enumerate(copy["frames"]):
            frame["name"] = "]]></script><img src=x onerror=alert(%d)>&\"'\x01;%d" % (i, i)
    text, boxes, _ = picture(write(evil))
    check("svg: names are text, whatever is in them", text.count("<script") == 1 and "<img" not in text and len(boxes) > 3, text[:3000])
    for name, evil_name in (("letters of three bytes, cut anywhere", "€" * 700), ("what XML has no place for", "a\ufffe\uffff\x00\x7f\x85b\ud800"),
                            ("an entity", "&lt;&#x41;&evil;<!DOCTYPE x [<!ENTITY evil SYSTEM 'file:///etc/passwd'>]>"), ("a comment", "--><!--")):
        def rename(changed):
            changed["process"]["command"] = evil_name
            for i, frame in enumerate(changed["frames"]):
                frame.update(name="%s%d" % ("x" * (i % 3) + evil_name, i), filename="/" + evil_name)
        for words in ((), ("-w", "peak")):
            run = subprocess.run([GPUMEM, "flame", "--all-frames", *words, write(rename)], capture_output=True, timeout=60, check=False)
            try:
                root = ET.fromstring(run.stdout)
                why = "" if len(list(root.iter(SVG + "g"))) > 3 and b"<!DOCTYPE" not in run.stdout else run.stdout[:300]
            except ET.ParseError as error:
                why = str(error)
            check("svg: %s: well-formed" % name, run.returncode == 0 and not why, why)
            outside = re.findall(rb"""(?:href|src|url|@import|xlink)[ =(:]+[^ >]*""", run.stdout)
            check("svg: %s: nothing from elsewhere" % name, not outside, outside)
        for words in (("-f", "speedscope"), ("-f", "folded")):
            run = subprocess.run([GPUMEM, "flame", "--all-frames", *words, write(rename)], capture_output=True, timeout=60, check=False)
            try:
                decoded = run.stdout.decode()
                why = "" if words[1] == "folded" or json.loads(decoded) else "nothing"
            except ValueError as error:
                why = str(error)
            check("%s: %s: UTF-8" % (words[1], name), run.returncode == 0 and not why, why)
    check("folded: a ; in a name parts no frames", all(line.count(";") < 12 for line in folded(write(evil))))
    target = os.path.join(room.path, "f.svg")
    run = gpumem("flame", "--all-frames", "-o", target, path)
    with open(target, encoding="utf-8") as out:
        check("-o", run.returncode == 0 and run.stdout == "" and out.read().startswith("<?xml"), run)
    for words in (("-w", "x"), ("--format", "x"), ("-d", "x"), ()):
        run = gpumem("flame", "--all-frames", *words, *([path] if words else []))
        check("flame %s: exit 2" % " ".join(words), run.returncode == 2 and run.stderr, run)
    refusals("flame", room, snapshot)
    def over(copy):
        for segment in copy["segments"] + copy["host_segments"]:
            for block in segment["blocks"]:
                block["state"] = "inactive"
        for trace in copy["device_traces"] + [copy["host_trace"]]:
            trace.update({name: [] for name, column in trace.items() if isinstance(column, list)})
        for where in (*copy["devices"], copy["host"]):
            where.pop("at_peak", None)

    for words, said in ((["flame"], "no live bytes; other weights, as --weigh peak"), (["flame", "-w", "peak"], "no peak bytes"),
                        (["convert", "--to", "folded"], "nothing is live")):
        run = gpumem(*words, write(over))
        check("%s of nothing: exit 0, and said why it is empty" % " ".join(words), run.returncode == 0 and said in run.stderr, run)
    check("flame of PyTorch's pickle", sum(folded("-w", "count", PICKLE).values()) >= 95)
    with Room() as place:
        _, journal = killed_journal(place, 0.3)
        check("flame of a journal", sum(folded("-w", "count", journal).values()) > 100)

    for change, said in (({"dropped": 7}, "begins late: 7 events dropped"), ({"dropped": 0}, "")):
        for weigh in ("live", "peak", "count", "bytes", "churn"):
            run = gpumem("flame", "--format", "folded", "-w", weigh, "--no-lines", "-", stdin=json.dumps(dict(snapshot, history=dict(snapshot["history"], **change))))
            check("flame -w %s, %d events dropped: a word if the weight needs them" % (weigh, change["dropped"]), run.returncode == 0 and
                  (said in run.stderr and said != "" if weigh in ("count", "bytes", "churn") and said else "history" not in run.stderr), run.stderr)
    bare = dict(snapshot, history=dict(snapshot["history"], dropped=0, events=0), host_trace=dict.fromkeys(snapshot["host_trace"], []), annotations=[],
                device_traces=[dict.fromkeys(trace, []) for trace in snapshot["device_traces"]], pools=[])
    run = gpumem("flame", "--format", "folded", "-w", "bytes", "--no-lines", "-", stdin=json.dumps(bare))
    check("flame without history: a word", run.returncode == 0 and "the history has no events" in run.stderr, run.stderr)

    # ---- check --------------------------------------------------------------------------------------------------
    stats = snapshot["devices"][0]["memory_stats"]

    def within(name, flag, value, allowed):
        """At the limit it passes, one below it fails and says so."""
        ok, bad = gpumem("check", flag, str(allowed), path), gpumem("check", flag, str(allowed - 1), path)
        check("check %s: at the limit" % name, ok.returncode == 0 and "within its limits" in ok.stdout, ok)
        check("check %s: above it" % name, bad.returncode == 1 and "device 0: %s" % name in bad.stdout and path in bad.stdout, bad)
        report = json.loads(gpumem("check", "--json", flag, str(allowed - 1), path).stdout)
        check("check %s: for a machine" % name, report["ok"] is False and [o["value"] for o in report["offences"]] == [value] and
              report["offences"][0]["limit"] == name, report)

    within("peak", "--max-peak", stats["requested_bytes.all.peak"], stats["requested_bytes.all.peak"])
    within("reserved", "--max-reserved", stats["reserved_bytes.all.peak"], stats["reserved_bytes.all.peak"])
    for now, said in ((0, "device 0: reserved at the peak "), (stats["reserved_bytes.all.peak"], "device 0: reserved 1")):
        changed = copy.deepcopy(snapshot)
        changed["devices"][0]["memory_stats"].update({"reserved_bytes.all.peak": 100 << 20, "reserved_bytes.all.current": now and 100 << 20})
        run = gpumem("check", "--max-reserved", "1MiB", "-", stdin=json.dumps(changed))
        check("check reserved: says when, if it is not now", run.returncode == 1 and said in run.stdout, run)
    largest = max(b for b, _ in by_stack(snapshot, live(snapshot)).values())
    within("stack", "--max-stack", largest, largest)
    within("ooms", "--max-ooms", stats["num_ooms"], stats["num_ooms"])
    with Screen([GPUMEM, "flame", path]) as screen:
        check("an SVG is not written to a terminal", screen.ended() and os.WEXITSTATUS(screen.status) == 2 and b"-o FILE.svg" in screen.raw and b"<svg" not in screen.raw, screen.raw[:300])
    with Screen([GPUMEM, "flame", "--format", "folded", path]) as screen:
        check("folded stacks are", screen.ended() and screen.status == 0 and b"main" in screen.raw, screen.raw[:300])
    run = gpumem("check", "--no-leaks", path)
    check("check --no-leaks: the offenders, with their stacks", run.returncode == 1 and "leaks: " in run.stdout and "main (" in run.stdout and
          "in %d blocks" % len(live(snapshot)) in run.stdout, run)

    def free_all(copy):
        for segment in copy["segments"]:
            segment["blocks"] = [dict(b, state="inactive") for b in segment["blocks"]]
    check("check --no-leaks: nothing live", gpumem("check", "--no-leaks", write(free_all)).returncode == 0)
    with Room() as place:
        place.run([os.path.join(B, "test/apps/app_graph")], snapshot_on="exit")
        [one] = glob.glob(place.out + "/*.json")
        empty = [b for s in load(one)["segments"] for b in s["blocks"] if s["kind"] == "graph" and not b["size"]]
        run = gpumem("check", "--no-leaks", one)
        check("check --no-leaks: graphs that hold nothing are no leak", len(empty) == 2 and run.returncode == 0, run)
        rows = json.loads(gpumem("summary", "--json", one).stdout)["by_site"]
        check("summary: nor does anybody hold what is gone", rows and not any(row["allocated_bytes"] or row["blocks"] for row in rows), rows)
    known = os.path.join(room.path, "known")
    with open(known, "w", encoding="utf-8") as out:
        out.write("leak:main\n")
    check("check --no-leaks: all known", gpumem("check", "--no-leaks", "-s", known, path).returncode == 0)

    def fragment(copy):
        copy["devices"][0]["memory_stats"].update({"reserved_bytes.all.current": 1000, "inactive_split_bytes.all.current": 50})
    broken = write(fragment)
    check("check --max-fragmentation", gpumem("check", "--max-fragmentation", "5%", broken).returncode == 0 and
          gpumem("check", "--max-fragmentation", "4.99%", broken).returncode == 1)
    run = gpumem("check", "--max-fragmentation", "1%", broken)
    check("check --max-fragmentation says both", "5.00%, allowed: 1.00%" in run.stdout, run)
    run = gpumem("check", "--max-peak", "0", "-d", "7", path)
    check("check -d 7: no such device, and no word that it is within its limits", run.returncode == 3 and "no device 7" in run.stderr and
          not run.stdout, run)
    run = gpumem("check", "--max-peak", "0", path, broken)
    check("check of several: each with its name", run.returncode == 1 and path in run.stdout and broken in run.stdout, run)
    run = gpumem("check", "--max-peak", "1GiB", path, os.path.join(room.path, "none"))
    check("check of several, one unreadable: exit 3", run.returncode == 3 and "No such file" in run.stderr, run)
    run = gpumem("check", path)
    check("check without a limit: exit 2", run.returncode == 2 and "no limit" in run.stderr, run)
    for words in (("--max-peak", "x"), ("--max-peak", "-5"), ("--max-fragmentation", "x"), ("--max-fragmentation", "101"),
                  ("--max-ooms", "-1"), ("--max-ooms", "x"), ("-d", "host"), ("-s", "/none")):
        run = gpumem("check", *words, path)
        check("check %s: exit 2" % " ".join(words), run.returncode == 2 and words[1] in run.stderr, run)
    refusals("check", room, snapshot, "--max-peak", "1GiB", "--no-leaks")
    run = gpumem("check", "--max-peak", "1", PICKLE)
    check("check of PyTorch's pickle: its peak is that of its history", run.returncode == 1 and "device 0: peak" in run.stdout, run)

# ---- user code first, upside down, beside another run: that it is as in the page, test/viewer/test_stacks.mjs tells -----------------------
with Room() as room:
    def run_of(name, steps):
        path = os.path.join(room.path, name)
        frames = [{"name": n, "module": m, "offset": 64, "python": False, "filename": "", "line": 0} for n, m in (
            ("", 0), ("main", 1), ("load", 1), ("step", 1), ("cudaMalloc", 2), ("cuMemAlloc_v2", 3))]
        stacks = [[], [5, 4, 2, 1], [5, 4, 3, 1]]
        blocks = [(0x1000000, 8 << 20, 1)] + [(0x2000000 + (n << 20), 1 << 20, 2) for n in range(steps)]
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"format": "gpumem-snapshot", "version": 1, "time_us": 1, "reason": "exit", "process": {"command": "app", "pid": 1, "host": "h"},
                       "modules": [{"path": p} for p in ("", "/app", "/libcudart.so.13", "/libcuda.so.1")], "frames": frames, "stacks": stacks,
                       "devices": [{"device": 0, "present": True}], "device_traces": [], "segments": [
                           {"device": 0, "address": a, "total_size": n, "stream": 0, "segment_type": "large", "blocks": [
                               {"address": a, "size": n, "requested_size": n, "state": "active_allocated", "stack": s, "kind": "device"}]}
                           for a, n, s in blocks]}, out)
        return path

    before, after = run_of("before.json", 2), run_of("after.json", 6)
    run = gpumem("flame", "--format", "folded", after)
    check("folded: what the allocator calls is one frame", sorted(run.stdout.split("\n")) == ["", "main;load;(allocator) 8388608", "main;step;(allocator) 6291456"], run)
    def with_operators(copy):
        copy["frames"][2]["name"] = "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)"
        copy["frames"][3]["name"] = "std::unique_ptr<Model, std::default_delete<Model> >::operator->() const"
        copy["modules"][1]["path"] = "/libapp.so"
        copy["modules"].append({"path": "/usr/bin/python3.11"})
        copy["frames"] += [dict(copy["frames"][1], name="c10::impl::boxed(int)"), dict(copy["frames"][1], name="at::_ops::empty::call()"),
                           dict(copy["frames"][1], name="_PyEval_EvalFrameDefault", module=4),
                           dict(copy["frames"][1], name="train", module=0, python=True, filename="/home/me/train.py", line=3)]
        copy["stacks"][1:] = [[5, 4, 2, 6, 7, 8, 8, 9, 8, 1], [5, 4, 3, 8, 8, 1]]
        return copy
    operators = os.path.join(room.path, "operators.json")
    with open(after, encoding="utf-8") as text, open(operators, "w", encoding="utf-8") as out:
        json.dump(with_operators(json.load(text)), out)
    short = {"std::ostream& std::operator<< <\u2026>(\u2026)", "std::unique_ptr<\u2026>::operator->(\u2026)"}
    run = gpumem("flame", "--format", "folded", operators)
    check("folded: operators keep their names", {line.split(";")[-2] for line in run.stdout.splitlines()} == short, run)
    run = gpumem("leaks", "--all", operators)
    lines = [line.strip() for line in run.stdout.splitlines()]
    check("leaks: user code first", all(any(line.startswith(name + " ") for line in lines) for name in short) and "(allocator: 2 frames)" in lines and
          "(dispatcher: 2 frames)" in lines and lines.count("(interpreter: 2 frames)") == 1 and not any(
              text in run.stdout for text in ("PyEval", "char_traits", "c10::")), run)
    run = gpumem("leaks", "--all", "--all-frames", operators)
    check("leaks --all-frames: every frame, with its whole name", run.stdout.count("_PyEval_EvalFrameDefault") == 5 and "char_traits" in run.stdout and
          "at::_ops::empty::call" in run.stdout and "cuMemAlloc_v2" in run.stdout and "(allocator" not in run.stdout and "(dispatcher" not in run.stdout, run)
    run = gpumem("flame", "--invert", "--all-frames", "--format", "folded", after)
    check("--invert: from who allocates", sorted(run.stdout.split("\n")) == ["", "cuMemAlloc_v2;cudaMalloc;load;main 8388608", "cuMemAlloc_v2;cudaMalloc;step;main 6291456"], run)
    run = gpumem("flame", before, after)
    boxes = {b.findtext(SVG + "title"): b.find(SVG + "rect").get("fill") for b in ET.fromstring(run.stdout).iter(SVG + "g")}
    check("two runs: what each function had before, red where it has more", boxes.get("step (6.00 MiB, 42.86%; before 2.00 MiB)", "").startswith("hsl(5,75%") and
          boxes.get("load (8.00 MiB, 57.14%; before 8.00 MiB)") == "hsl(5,0%,88%)" and "14.00 MiB in all, before 10.00 MiB" in run.stdout, boxes)
    run = gpumem("flame", after, before)
    boxes = {b.findtext(SVG + "title"): b.find(SVG + "rect").get("fill") for b in ET.fromstring(run.stdout).iter(SVG + "g")}
    check("and blue where less", boxes.get("step (2.00 MiB, 20.00%; before 6.00 MiB)", "").startswith("hsl(215,75%"), boxes)
    for words, said in ((["--format", "folded", before, after], "two runs beside each other are an SVG"), (["--invert", "--format", "speedscope", after], "without --invert")):
        run = gpumem("flame", *words)
        check("flame %s: wrong use" % " ".join(words[:-1]), run.returncode == 2 and said in run.stderr and not run.stdout, run)
finish()
