"""gpumem merge: the ranks of a job side by side, the odd one out first."""
import json
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, load, named, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
MiB = 1 << 20


def merge(*words):
    run = gpumem("merge", "--json", *words)
    return json.loads(run.stdout) if run.returncode == 0 else run


def at_peak(snapshot):
    """Bytes by the function that asked, at the highest moment: from the trace alone. All ask by get(), which is inlined."""
    names = [frame["name"] for frame in snapshot["frames"]]
    trace, live, best, peak = snapshot["device_traces"][0], {}, {}, -1
    for action, address, size, stack in zip(trace["action"], trace["addr"], trace["size"], trace["stack"]):
        if action == "alloc":
            live[address] = size, next(names[f] for f in snapshot["stacks"][stack] if names[f] != "get")
        elif action == "free_completed":
            live.pop(address, None)
        total = sum(bytes_ for bytes_, _ in live.values())
        if total > peak:
            peak, best = total, dict(live)
    sums = {}
    for bytes_, name in best.values():
        sums[name] = sums.get(name, 0) + bytes_
    return sums


with Room() as room:
    RANKS = 5
    for rank in range(RANKS):
        extra = ["--batch", "12"] if rank == 3 else ["--leak"] if rank == 1 else []
        run = room.run([TRAINING, "--steps", "24", *extra], env=room.env(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=RANKS,
                                                                      output=room.out + "/%k.%r.json"))
        check("rank %d runs" % rank, run.returncode == 0, run)
    paths = [os.path.join(room.out, "%d.exit.json" % rank) for rank in range(RANKS)]
    snapshots = [load(path) for path in paths]
    report = merge(*reversed(paths))
    check("in the order of the ranks, whatever that of the files", [r["rank"] for r in report["ranks"]] == list(range(RANKS)) and
          [r["input"] for r in report["ranks"]] == paths and [r["label"] for r in report["ranks"]] == list("01234"), report["ranks"])
    check("each rank's own numbers", [(r["peak_bytes"], r["live_bytes"], r["pid"]) for r in report["ranks"]] == [
        (s["devices"][0]["memory_stats"]["requested_bytes.all.peak"], s["devices"][0]["memory_stats"]["requested_bytes.all.current"],
         s["process"]["pid"]) for s in snapshots], report["ranks"])
    want = [at_peak(named(path)) for path in paths]
    rows = {re.sub(r" \(.*", "", row["name"]): row for row in report["rows"]}
    check("the same call sites side by side, at each one's peak", {name: row["bytes"] for name, row in rows.items()} ==
          {name: [w.get(name, 0) for w in want] for name in {n for w in want for n in w}} and len(rows) >= 4, (rows, want))
    check("the farthest apart first, and whose it is", [r["apart_bytes"] for r in report["rows"]] == sorted(
        (r["apart_bytes"] for r in report["rows"]), reverse=True) and report["rows"][0]["name"].startswith("forward (") and
        report["rows"][0]["farthest"] == "3" and rows["remember_loss"]["farthest"] == "1" and rows["load_weights"]["apart_bytes"] == 0, report["rows"])
    row = rows["forward"]
    check("median, least, most", row["median_bytes"] == sorted(row["bytes"])[2] and row["least_bytes"] == min(row["bytes"]) and
          row["most_bytes"] == max(row["bytes"]) and row["apart_bytes"] == max(abs(b - row["median_bytes"]) for b in row["bytes"]), row)
    live = merge("--weigh", "live", *paths)
    check("--weigh live: in the end only what leaked is left", live["weigh"] == "live" and len(live["rows"]) == 1 and
          live["rows"][0]["name"].startswith("remember_loss") and live["rows"][0]["bytes"] == [0, 24 * MiB, 0, 0, 0], live["rows"])
    by = merge("--by", "module", *paths)
    check("--by module", [r["name"] for r in by["rows"]] == ["app_training"] and by["rows"][0]["bytes"] == [sum(w.values()) for w in want], by)
    stack = merge("--by", "stack", *paths)
    sites = {next((f["name"] for f in r["stack"] if f["name"] in rows), None): r["bytes"] for r in stack["rows"]}
    check("--by stack: with the stack", all(name in rows for name in sites), sites)
    check("--by stack: nothing is lost", sum(r["bytes"][0] for r in stack["rows"]) == sum(want[0].values()), (sites, want[0]))
    check("--by stack: the same in all", any(all(b > 0 for b in r["bytes"]) for r in stack["rows"]), stack["rows"][:2])

    def built(rank, build, lines, moved):
        """The snapshot of @rank as if its program were of another build, whose code and lines have moved."""
        copy = load(paths[rank])
        app = [i for i, module in enumerate(copy["modules"]) if os.path.basename(module["path"]) == "app_training"]
        for module in app:
            copy["modules"][module]["build_id"] = build
        for frame in copy["frames"]:
            if frame["module"] in app:
                frame.update(filename="/x/app.c", line=frame["offset"] + 1 if lines else 0, offset=frame["offset"] + moved)
                if lines:
                    frame["line"] += moved
        path = os.path.join(room.path, "%d.%s.%d.json" % (rank, build, lines))
        with open(path, "w", encoding="utf-8") as out:
            json.dump(copy, out)
        return path
    def rows_of(*words):
        return sorted((row["name"], row["bytes"], row["blocks"]) for row in merge("--no-lines", *words)["rows"])
    first, moved, unknown, same = built(0, "aa", 1, 0), built(2, "bb", 1, 8), built(4, "cc", 0, 16), built(4, "aa", 0, 0)
    alone = rows_of(first)
    check("two builds: a function's sites are one row, called as in the first", rows_of(first, moved, unknown) == [
        (name, sizes * 3, blocks * 3) for name, sizes, blocks in alone] and all("(app.c:" in name for name, _, _ in alone), rows_of(first, moved, unknown))
    check("one build: what has no line in one snapshot has that of the other", rows_of(first, same) == [
        (name, sizes * 2, blocks * 2) for name, sizes, blocks in alone], rows_of(first, same))
    together = rows_of(first, built(1, "aa", 1, 4))
    check("one build: its lines are sites", len(together) > len(alone), together)

    text = gpumem("merge", *paths).stdout
    check("text: a column for each rank", re.search(r"rank +0 +rank +1 .*rank +4 ", text) and
          len(re.findall(r"^ +\S+ \S+ +\S+ MiB( +[0-9.]+ [KMG]?i?B){5}  forward", text, re.M)) == 1, text)
    check("the odd rank is pointed at", re.search(r"^ +3 .*<- .* above the median$", text, re.M) and
          len(re.findall("above the median", text)) >= 1 and not re.search(r"^ +0 .*<-", text, re.M), text)
    text = gpumem("merge", "--top", "1", *paths, *paths).stdout
    check("text: of ten, least and most", re.search(r"apart +median +least +rank +most +rank", text) and "... and " in text and
          re.search(r"^ +0b +\d", text, re.M), text)
    run = gpumem("merge", paths[0], paths[2], "test/data/torch-snapshot.pickle")
    check("a snapshot of PyTorch has no rank: by its place", run.returncode == 0 and re.search(r"^ +#3 ", run.stdout, re.M), run)

    odd = os.fsencode(room.path) + b"/\xff\xc3\xa9\x1b[31m\xed\xa0\x80.json"
    with open(odd, "wb") as out, open(paths[0], "rb") as source:
        out.write(source.read())
    oddly = merge(odd.decode(errors="surrogateescape"), paths[1])
    check("a file whose name is no text", isinstance(oddly, dict) and len(oddly["ranks"]) == 2 and
          oddly["ranks"][0]["input"].endswith("/?\u00e9?[31m???.json"), oddly)

    with Program(room, TRAINING, "--steps", "4", "--wait", RANK=0) as a, Program(room, TRAINING, "--steps", "4", "--batch", "2", "--leak",
                                                                               "--wait", RANK=1) as b:
        if check("two living ranks", a.until("waiting") and b.until("waiting")):
            def once_named():        # names come in the background
                report = merge("--weigh", "live", str(a.pid), str(b.pid))
                return report if isinstance(report, dict) and report["rows"][0]["name"].startswith("remember_loss") else None
            now = wait_for(once_named) or merge("--weigh", "live", str(a.pid), str(b.pid))
            check("living processes", [r["pid"] for r in now["ranks"]] == [a.pid, b.pid] and
                  now["rows"][0]["name"].startswith("remember_loss") and now["rows"][0]["bytes"] == [0, 4 * MiB], now)

    for name, words, status, said in [
            ("none", [], 2, "usage:"), ("a file that is not there", [paths[0], "/nowhere"], 3, "/nowhere: No such file"),
            ("--by nonsense", ["--by", "x", *paths], 2, "not site"), ("--weigh nonsense", ["--weigh", "x", *paths], 2, "not peak or live"),
            ("--device nonsense", ["--device", "x", *paths], 2, "not a number")]:
        run = gpumem("merge", *words)
        check("%s: exit %d" % (name, status), run.returncode == status and said in run.stderr and not run.stdout, run)
    run = merge("--device", "7", *paths)
    check("a device that no rank has", run.returncode == 3 and "no rank has that device" in run.stderr and not run.stdout, run)
finish()
