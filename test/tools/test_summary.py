"""gpumem summary: PyTorch's table to the letter, who holds what, and input of every sort."""
import glob
import json
import os
import pickle
import pty
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program, gpumem, killed_journal, load  # noqa: E402


def pytorch_table(stats, device):
    """torch.cuda.memory_summary(), from its documentation: rows, widths, units, when they step."""
    def cell(value, reference, is_bytes):
        units = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"] if is_bytes else [" ", "K", "M"]
        limit, step = (768 * 1024, 1024) if is_bytes else (750 * 1000, 1000)
        unit = units[0]
        for following in units[1:]:
            if reference < limit:
                break
            unit, value, reference = following, value // step, reference / step
        return "%6d %s" % (value, unit) if is_bytes else "%7d %s " % (value, unit)

    rows = ["=" * 75, " %16s gpumem CUDA memory summary, device ID %-18d " % ("", device), "-" * 75,
            "  %9s CUDA OOMs: %-12d | %6s cudaMalloc retries: %-8d  " % ("", stats["num_ooms"], "", stats["num_alloc_retries"]),
            "=" * 75, "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "]
    metrics = [("Allocated memory", "allocated_bytes", True), ("Active memory", "active_bytes", True),
               ("Requested memory", "requested_bytes", True), ("GPU reserved memory", "reserved_bytes", True),
               ("Non-releasable memory", "inactive_split_bytes", True), ("Allocations", "allocation", False),
               ("Active allocs", "active", False), ("GPU reserved segments", "segment", False),
               ("Non-releasable allocs", "inactive_split", False)]
    parts = ["current", "peak", "allocated", "freed"]
    for title, key, is_bytes in metrics:
        rows.append("-" * 75)
        for name, pool in ((title, "all"), ("      from large pool", "large_pool"), ("      from small pool", "small_pool")):
            rows.append(" %-21s | " % name + " | ".join(
                cell(stats["%s.%s.%s" % (key, pool, p)], stats["%s.all.%s" % (key, p)], is_bytes) for p in parts) + " ")
    for title, key in (("Oversize allocations", "oversize_allocations"), ("Oversize GPU segments", "oversize_segments")):
        rows += ["-" * 75, " %-21s | " % title + " | ".join(
            cell(stats["%s.%s" % (key, p)], stats["%s.%s" % (key, p)], False) for p in parts) + " "]
    rows.append("=" * 75)
    assert all(len(row) == 75 for row in rows)
    return "".join("|%s|\n" % row for row in rows)


with Room() as room:
    # Nobody else is on the fake device. Most of it is taken within the 100 ms after the driver was asked.
    room.run([os.path.join(B, "test/apps/app_training"), "--steps", "3"])
    [device] = [s["devices"][0] for s in room.snapshots("exit")]
    grown = device["total_bytes"] - device["free_bytes"] < device["memory_stats"]["reserved_bytes.all.current"]
    check("not recorded here: of the moment when the driver was asked", device["unattributed_bytes"] == 0 and grown, device)
with Room() as room:
    with Program(room, APP, "--wait", "60", oom_snapshots=1) as program:
        check("a living program", program.until("waiting"))
        live = gpumem("summary", str(program.pid))
        check("of a living process, by its pid", live.returncode == 0 and "(pid %d on " % program.pid in live.stdout and
              "snapshot: outside" in live.stdout, live)
        as_json = json.loads(gpumem("summary", "--json", str(program.pid)).stdout)
        check("it is not disturbed", program.child.poll() is None)
        program.kill()
    [journal] = room.journal_files()
    of_journal = gpumem("summary", journal)
    check("of a dead process's journal: the same tables", of_journal.returncode == 0 and
          "snapshot: recovered" in of_journal.stdout and
          [line for line in of_journal.stdout.splitlines() if line.startswith("|")] ==
          [line for line in live.stdout.splitlines() if line.startswith("|")], of_journal)
    device = as_json["devices"][0]
    stats = device["memory_stats"]
    check("PyTorch's table, to the letter", pytorch_table(stats, 0) in live.stdout, live.stdout)
    check("something is live", stats["allocated_bytes.all.current"] > 0)
    check("--json: no segments, no traces", "segments" not in as_json and "device_traces" not in as_json and
          as_json["process"]["pid"] == program.pid, list(as_json))
    check("by module, by kind, by nobody", all(re.search(p, live.stdout, re.M) for p in (
        r"^by module +live +peak", r"^demo_app\.static +[0-9.]+ MiB", r"^by kind", r"^managed +3\.00 MiB", r"^pool ",
        r"not recorded here .*: [0-9.]+ MiB$", r"^pinned host memory: 1\.00 MiB live")), live.stdout)
    check("what could not be had", re.search(
        r"#1 .*: cuMemAlloc_v2 asked for .* on device 0 by demo_app\.static, \S.*: CUDA_ERROR_OUT_OF_MEMORY; .* were free",
        live.stdout), live.stdout)

    # The numbers of a trained model's table, through the same code.
    path = os.path.join(room.path, "x.json")
    snapshot = load(glob.glob(room.out + "/*oom-1.json")[0])

    def with_changes(change):
        copy = json.loads(json.dumps(snapshot))
        change(copy)
        with open(path, "w", encoding="utf-8") as text:
            json.dump(copy, text)
        return gpumem("summary", path)

    for scale in (1, 700000, 10 ** 9, 3 * 10 ** 11):
        def grow(copy, by=scale):
            for i, key in enumerate(copy["devices"][0]["memory_stats"]):
                if "." in key:
                    share = {"large_pool": 2, "small_pool": 1}.get(key.split(".")[1], 3)
                    unit = by if "bytes" in key else min(by, 10 ** 6)
                    copy["devices"][0]["memory_stats"][key] = (300 + i // 12) * share * unit
        done = with_changes(grow)
        check("units step as PyTorch's do (%g)" % scale, pytorch_table(load(path)["devices"][0]["memory_stats"], 0) in
              done.stdout, done.stdout)

    def evil(copy):
        copy["process"]["command"] = "\x1b[2J\x07evil\u009b31m\n"
        copy["modules"][1]["path"] = "/\x1b]0;title\x07.so"
        copy["devices"][0]["name"] = "\x1b[31mred"
    done = with_changes(evil)
    check("names cannot drive a terminal", done.returncode == 0 and "evil" in done.stdout and "red" in done.stdout and
          not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", done.stdout), done)

    def odd(copy):
        copy["devices"] = [7, None, {"device": "x", "present": True, "memory_stats": []}]
        copy["failures"] = {"a": 1}
        copy["recovered"] = "no"
        copy["modules"] = None
        copy["process"] = []
    done = with_changes(odd)
    check("members of the wrong type are as if missing", done.returncode == 0, done)
    done = gpumem("summary", "-d", "host", path)
    check("-d host: no device", done.returncode == 0 and "device 0" not in done.stdout, done)
    done = gpumem("summary", journal, journal)
    check("several: each under its name", done.returncode == 0 and done.stdout.count("== %s\n" % journal) == 2, done)
    with open(journal, "rb") as data:
        whole = data.read()
    done = gpumem("summary", "-", stdin=json.dumps(snapshot))
    check("- is standard input", done.returncode == 0 and "snapshot: oom" in done.stdout, done)

    def on_terminal(**env):
        master, slave = pty.openpty()
        colors = dict({k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **{"TERM": "xterm", **env})
        with subprocess.Popen([GPUMEM, "summary", path], stdout=slave, env=colors) as child:
            os.close(slave)
            text = b""
            try:
                while chunk := os.read(master, 65536):
                    text += chunk
            except OSError:
                pass
            child.wait(timeout=60)
        os.close(master)
        return text
    check("headings stand out on a terminal, unless NO_COLOR or dumb", b"\x1b[1m" in on_terminal() and
          b"\x1b" not in on_terminal(NO_COLOR="1") and b"\x1b" not in on_terminal(TERM="dumb") and
          "\x1b" not in live.stdout)

    def refuses(name, content, says, *words):
        with open(path, "wb") as data:
            data.write(content)
        for verb in ("summary", "events"):
            run = gpumem(verb, *words, path)
            check("%s: %s: exit 3, and why" % (verb, name), run.returncode == 3 and says in run.stderr and
                  path in run.stderr and run.stdout == "", run)

    text = json.dumps(snapshot).encode()
    refuses("a snapshot cut off", text[:len(text) // 2], "cut off")
    refuses("an empty file", b"", "empty")
    refuses("no JSON", b"\x7fELF\x00\x01", "not a snapshot")
    refuses("other JSON", b'{"segment": [], "traces": []}', "not a snapshot of gpumem")
    refuses("a list", b"[1, 2]", "not a snapshot of gpumem")
    refuses("a later version", b'{"format": "gpumem-snapshot", "version": 2}', "version 2")
    refuses("a journal cut off", whole[:20000], "cut off")
    refuses("a journal of another version", whole[:8] + b"\x09" + whole[9:], "format 9")
    for verb in ("summary", "events"):
        run = gpumem(verb, room.path)
        check("%s: a directory: exit 3" % verb, run.returncode == 3 and "a directory" in run.stderr, run)
        run = gpumem(verb, room.path + "/none")
        check("%s: no such file: exit 3" % verb, run.returncode == 3 and "No such file" in run.stderr, run)
        run = gpumem(verb, str(os.getpid()))
        check("%s: a process without a journal: exit 3" % verb, run.returncode == 3 and "no journal" in run.stderr, run)
        run = gpumem(verb, "999999999")
        check("%s: no such process: exit 3" % verb, run.returncode == 3 and "no such process" in run.stderr, run)
        run = gpumem(verb)
        check("%s: no argument: exit 2 and the usage" % verb, run.returncode == 2 and "usage:" in run.stderr, run)
        run = gpumem(verb, "--help")
        check("%s: --help: exit 0" % verb, run.returncode == 0 and run.stdout.startswith("usage:"), run)
    with open("/dev/full", "w", encoding="utf-8") as full:
        run = subprocess.run([GPUMEM, "summary", journal], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                             check=False)
    check("output that cannot be written: exit 1 and a line", run.returncode == 1 and "could not be written" in run.stderr,
          run)

with Room() as room:
    pid, journal = killed_journal(room, 0.2, "--threads", "4")
    snapshots = json.loads(gpumem("summary", "--json", journal).stdout)
    done = gpumem("summary", journal)
    check("what was in flight", done.stdout.count("in flight in thread") == len(snapshots["recovered"]["in_flight"]),
          done.stdout)

done = gpumem()
check("gpumem alone: exit 2 and the verbs", done.returncode == 2 and "recover" in done.stderr, done)
done = gpumem("--help")
check("gpumem --help: every verb", done.returncode == 0 and all(
    "\n  %s " % v in done.stdout for v in ("run", "snapshot", "recover", "summary", "events", "options")), done)
for verb in ("run", "snapshot", "recover", "summary", "events", "options"):
    done = gpumem("help", verb)
    check("gpumem help %s" % verb, done.returncode == 0 and done.stdout.startswith("usage: gpumem %s" % verb), done)
done = gpumem("frobnicate")
check("an unknown verb: exit 2", done.returncode == 2 and "frobnicate" in done.stderr, done)
done = gpumem("--version")
check("--version", done.returncode == 0 and re.fullmatch(r"gpumem \d+\.\d+\.\d+\n", done.stdout), done)

# ---- PyTorch's own snapshot summarises to PyTorch's own table: its statistics follow from its history ---------------------
with open("test/data/torch-stats-and-summary.json", encoding="utf-8") as text:
    said = json.load(text)
run = gpumem("summary", "test/data/torch-snapshot.pickle")
table = [line for line in run.stdout.splitlines() if line.startswith("|")]
printed = said["summary"].splitlines()
check("PyTorch's snapshot: its own table, all but the title", run.returncode == 0 and len(table) == len(printed) == 47 and
      [a for a, b in zip(printed, table) if a != b] == [printed[1]], [(a, b) for a, b in zip(printed, table) if a != b])
stats = json.loads(gpumem("summary", "--json", "test/data/torch-snapshot.pickle").stdout)["devices"][0]["memory_stats"]
check("and every one of its %d statistics" % len(said["stats"]), len(said["stats"]) == 122 and stats == said["stats"],
      {k: (v, stats.get(k)) for k, v in said["stats"].items() if stats.get(k) != v})
with open("test/data/torch-snapshot.pickle", "rb") as file:
    torch = pickle.load(file)


def altered(change):
    copy = pickle.loads(pickle.dumps(torch))
    change(copy["device_traces"][0], copy["segments"])
    with Room() as place:
        path = os.path.join(place.path, "altered.pickle")
        with open(path, "wb") as out:
            pickle.dump(copy, out)
        return gpumem("summary", path), json.loads(gpumem("summary", "--json", path).stdout)["devices"][0]["memory_stats"]


def swap(trace, _):
    first = next(i for i, e in enumerate(trace) if e["action"] == "alloc")
    trace[first]["addr"] += 512


for name, change in (("a history that is not whole", lambda trace, _: trace.__delitem__(slice(0, 20))),
                     ("an address that PyTorch would not give", swap), ("a block that the history does not explain",
                                                                        lambda _, segments: segments[0].update(allocated_size=0)),
                     ("an end that is missing", lambda trace, _: trace.__delitem__(slice(len(trace) // 2, None)))):
    run, stats = altered(change)
    check("%s: what is live, and a word that the rest is not known" % name, run.returncode == 0 and "are not known" in run.stdout and
          "allocated_bytes.all.peak" not in stats and stats["reserved_bytes.all.current"] == said["stats"]["reserved_bytes.all.current"], run.stdout)
finish()
