"""gpumem summary: PyTorch's table to the letter, who holds what, and input of every sort."""
import glob
import json
import os
import pickle
import pty
import re
import shutil
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


MIB = 1 << 20


with Room() as room:
    # Nobody else is on the fake device. Most of it is taken within the 100 ms after the driver was asked.
    room.run([os.path.join(B, "test/apps/app_training"), "--steps", "3"])
    [device] = [s["devices"][0] for s in room.snapshots("exit")]
    grown = device["total_bytes"] - device["free_bytes"] < device["memory_stats"]["reserved_bytes.all.current"]
    check("not recorded here: of the moment when the driver was asked", device["unattributed_bytes"] == 0 and grown, device)
def short(name, *words, **how):
    """The text without --full, which is short; all but commands and names of files within 80 columns."""
    done = gpumem("summary", *words, **how)
    lines = done.stdout.splitlines()
    check("%s: at most 30 lines of 80 columns" % name, done.returncode == 0 and 5 <= len(lines) <= 30 and
          all(len(line) <= 80 for line in lines[1:] if ": gpumem " not in line), "\n".join(["%d lines" % len(lines)] + [l for l in lines if len(l) > 80]))
    return done.stdout


def follow(text, place):
    """Type each command that the text names into a shell; do all work?"""
    done = [subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, check=False, timeout=240,
                           env=dict(os.environ, PATH=os.path.dirname(GPUMEM) + ":" + os.environ["PATH"]))
            for command in re.findall(r": (gpumem .*)$", text, re.M)]
    return done and all(run.returncode == 0 for run in done)


NUMBERS = r"(?:nothing live|live (\S+ \S+) in (\d+) blocks?), peak (\S+ \S+);"

with Room() as room:
    # ---- short first, and the same numbers everywhere -------------------------------------------------------------------
    for words in (["--leak", "--steps", "9"], ["--leak", "--steps", "9", "--oom"], ["--steps", "3"]):
        run = subprocess.run([GPUMEM, "run", "-o", "%r.json", "--", os.path.join(B, "test/apps/app_training"), *words],
                             env=room.env(preload=False), cwd=room.out, capture_output=True, text=True, check=False)
        path = os.path.join(room.out, "exit.json")
        text, whole = short(" ".join(words), path), load(path)
        check("%s: no block of 0 B is live" % words, ("  nothing live, peak " in text) == (words == ["--steps", "3"]), text)
        found = re.search(NUMBERS, text.replace("\n ", ""))
        stats = whole["devices"][0]["memory_stats"]
        live, blocks, peak = (found[1] or "0 B", found[2] or "0", found[3]) if found else ("", "", "")
        check("%s: live is what was asked for, which its blocks are not" % words, stats["allocated_bytes.all.peak"] != stats["requested_bytes.all.peak"] and
              abs(float(peak.split()[0]) * MIB - stats["requested_bytes.all.peak"]) < MIB / 100 and
              abs(float(live.split()[0]) * MIB - stats["requested_bytes.all.current"]) < MIB / 100, (found, stats["requested_bytes.all.peak"]))
        ran = re.search(r"peak (\S+ \S+), (\S+ \S+) in (\d+) blocks? never freed", run.stderr.replace("every block was freed", "0 B in 0 blocks never freed"))
        leaks = gpumem("leaks", path).stdout.splitlines()[-1]
        merged = json.loads(gpumem("merge", "--json", path).stdout)["ranks"][0]
        check("%s: run, leaks, merge and the tables of call sites say the same" % words, ran and ran.groups() == (peak, live, blocks) and
              ("never freed: %s in %s blocks" % (live, blocks) in leaks or live == "0 B" and "nothing leaked" in leaks) and
              (merged["live_bytes"], merged["peak_bytes"], merged["blocks"]) ==
              (stats["requested_bytes.all.current"], stats["requested_bytes.all.peak"], int(blocks)) and
              re.search(r"^ +%s +%s +%s  in all$" % (live, peak, blocks), text, re.M), (ran, leaks, merged, text))
        allowed = stats["requested_bytes.all.peak"]
        check("%s: and check judges it" % words, gpumem("check", "--max-peak", str(allowed), path).returncode == 0 and
              gpumem("check", "--max-peak", str(allowed - 1), path).returncode == 1)
        check("%s: what to look at next is a command that works" % words, follow(text, room.out) and "gpumem summary --full" in text and
              ("gpumem leaks" in text) == (live != "0 B" and "--oom" not in words), text)
        options = dict(whole["allocator_settings"]["gpumem"])
        options["memory_limit"] = dict(options["memory_limit"], value="\u20ac" * 99)
        again = os.path.join(room.out, "again.json")
        with open(again, "w", encoding="utf-8") as out:
            json.dump(dict(whole, allocator_settings={"gpumem": options}, refused={"\u20ac" * 99: 3}), out)
        said = subprocess.run([GPUMEM, "summary", again], capture_output=True, check=False).stdout
        check("%s: a long text is cut between two characters" % words, said.count(b"\xe2\x82\xac" * 13) == 2 and
              b"\x82\xac" not in said.replace(b"\xe2\x82\xac", b"") and b"\xe2" not in said.replace(b"\xe2\x82\xac", b""), said)
        os.unlink(again)
        for odd in ("x y.exit.json", "it's.json", "-f.json", "a\x1b[1m\n'\\.json", "$(touch made).json"):
            shutil.copy(path, os.path.join(room.out, odd))
            said = gpumem("summary", "--", odd, cwd=room.out).stdout
            check("%s: of a file called %r, too" % (words, odd), "gpumem summary --full" in said and follow(said, room.out) and "\x1b" not in said, said)
            os.unlink(os.path.join(room.out, odd))
        check("%s: and no command is hidden in a name" % words, not os.path.exists(os.path.join(room.out, "made")))
        rows = [[l for l in gpumem("summary", *w, "--top", n, path).stdout.splitlines() if re.search(r"^ +\d.* \(app_training", l)] for n in ("1", "2", "99") for w in ([], ["--full"])]
        check("%s: --top N rows" % words, [len(r) for r in rows[:4]] == [1, 1, 2, 2] and len(rows[4]) == len(rows[5]) > 2, rows)
        check("%s: --full has PyTorch's table, and the short text none" % words, "|====" in gpumem("summary", "--full", path).stdout and "|" not in text)
        for file in glob.glob(room.out + "/*.json"):
            os.rename(file, os.path.join(room.path, os.path.basename(file)))
        short("out of memory", os.path.join(room.path, "oom-1.json")) if "--oom" in words else None
    # Many devices, pools and call sites, with long names; a history that begins late.
    many = load(os.path.join(room.path, "exit.json"))
    many["devices"] = [dict(many["devices"][0], device=i, name="A device with a very long name " * 3) for i in range(12)]
    for i, frame in enumerate(many["frames"]):
        frame.update(name="a_function_with_a_long_name<std::vector<float>>_%d" % i, filename="/a/long/way/to/a/file_of_some_size.cu", line=i + 1)
    many["history"]["dropped"] = 7
    with open(os.path.join(room.path, "many.json"), "w", encoding="utf-8") as file:
        json.dump(many, file)
    text = short("twelve devices, long names", os.path.join(room.path, "many.json"))
    check("what is left out is said", "8 more devices (--full)" in text and "the history begins late: 7 events" in text, text)
    for file, name in (("test/data/torch-snapshot.pickle", "a pickle"), ("test/data/gpumem-snapshot.json", "data")):
        short(name, file)
    room.run([os.path.join(B, "test/apps/app_training"), "--steps", "40"], exit_history=50)
    [late] = glob.glob(room.out + "/*exit*.json")
    text = short("a peak before the history", late)
    check("a peak before the history: who held it", re.search(NUMBERS, text).group(3) in
          re.search(r"^ .*  in all$", text, re.M).group(0) and "was before" not in text, text)
    old = load(late)
    for where in (*old["devices"], old["host"]):
        where.pop("at_peak", None)
    with open(os.path.join(room.out, "old.exit.json"), "w", encoding="utf-8") as file:
        json.dump(old, file)
    text = short("a peak before the history, of an older snapshot", os.path.join(room.out, "old.exit.json"))
    check("a snapshot that does not say who held it: a word on the column", re.search(r"the peak,\s+\S+\s+\S+,\s+was\s+before", text) and
          re.search(NUMBERS, text).group(3) not in re.search(r"^ .*  in all$", text, re.M).group(0), text)
    for path in glob.glob(room.out + "/*"):
        os.unlink(path)
with Room() as room:
    with Program(room, APP, "--wait", "60", oom_snapshots=1) as program:
        check("a living program", program.until("waiting"))
        live = gpumem("summary", "--full", str(program.pid))
        check("of a living process, by its pid", live.returncode == 0 and "(pid %d on " % program.pid in live.stdout and
              "snapshot: outside" in live.stdout, live)
        as_json = json.loads(gpumem("summary", "--json", str(program.pid)).stdout)
        check("it is not disturbed", program.child.poll() is None)
        program.kill()
    [journal] = room.journal_files()
    of_journal = gpumem("summary", "--full", journal)
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
        r"^ +in blocks +peak .* by module", r"^ +[0-9.]+ MiB .*  demo_app\.static$", r"  by kind$", r"^ +3\.00 MiB .*  managed$", r"  pool$",
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
        return gpumem("summary", "--full", path)

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

    def stale(copy):
        device = copy["devices"][0]
        device.update(sampled_us=copy["time_us"] - 1, total_bytes=1 << 33, free_bytes=(1 << 33) - device["memory_stats"]["reserved_bytes.all.current"] + 1)
    with_changes(stale)
    done = gpumem("summary", path)
    check("less in use than is reserved: that was read earlier", "of 8.00 GiB in use (read earlier)" in done.stdout, done)
    with_changes(lambda copy: (stale(copy), copy["devices"][0].update(sampled_us=copy["time_us"])))
    done = gpumem("summary", path)
    check("read at the snapshot's own moment: nothing to say", "of 8.00 GiB in use" in done.stdout and "earlier" not in done.stdout, done)

    def odd(copy):
        copy["devices"] = [7, None, {"device": "x", "present": True, "memory_stats": []}]
        copy["failures"] = {"a": 1}
        copy["recovered"] = "no"
        copy["modules"] = None
        copy["process"] = []
    done = with_changes(odd)
    check("members of the wrong type are as if missing", done.returncode == 0, done)
    done = gpumem("summary", "--full", "-d", "host", path)
    check("-d host: no device", done.returncode == 0 and "device 0" not in done.stdout, done)
    done = gpumem("summary", "-d", "host", "test/data/gpumem-snapshot.json").stdout
    check("-d host: what to look at next is the host's, whose peak is no more than what lives", "the peak:" not in done and
          "gpumem summary --full --device host test/data/gpumem-snapshot.json\n" in done, done)
    done = gpumem("summary", "--full", journal, journal)
    check("several: each under its name", done.returncode == 0 and done.stdout.count("== %s\n" % journal) == 2, done)
    with open(journal, "rb") as data:
        whole = data.read()
    done = gpumem("summary", "--full", "-", stdin=json.dumps(snapshot))
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
    refuses("a journal of another version", whole[:8] + b"\x63" + whole[9:], "format 99")
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
    done = gpumem("summary", "--full", journal)
    check("what was in flight", done.stdout.count("in flight in thread") == len(snapshots["recovered"]["in_flight"]),
          done.stdout)

# ---- call sites: what all stacks of device memory begin with is passed over, and so is what all of pinned memory begin with ----


def sites(device, host):
    """{call site: bytes live} of a snapshot with these stacks, innermost first, of MiB each; its runtime is linked into the program."""
    frames, stacks = [{"name": "", "file": "", "line": 0, "module": 0, "python": False}], [[]]

    def stack(names):
        for name in names:
            if not any(frame["name"] == name for frame in frames):
                frames.append(dict(frames[0], name=name, module=1))
        stacks.append([next(i for i, frame in enumerate(frames) if frame["name"] == name) for name in names])
        return len(stacks) - 1

    def segment(index, names, where):
        block = {"address": index << 24, "size": MIB, "requested_size": MIB, "state": "active_allocated", "stack": stack(names), "kind": where,
                 "module": 1, "stream": 0, "thread": 1}
        return {"device": 0 if where == "device" else None, "address": index << 24, "total_size": MIB, "stream": 0, "segment_type": "large",
                "segment_pool_id": [0, 0], "is_expandable": False, "stack": 0, "blocks": [block]}

    runtime = {"device": ["libcudart_static_0053c1d3", "cudaMalloc"], "host": ["libcudart_static_418eebf4", "cudaMallocHost"]}
    made = [segment(i + 1, runtime["device"] + names, "device") for i, names in enumerate(device)]
    pinned = [segment(i + 99, runtime["host"] + names, "host") for i, names in enumerate(host)]
    snapshot = {"format": "gpumem-snapshot", "version": 1, "reason": "exit", "segments": made, "host_segments": pinned, "stacks": stacks, "frames": frames,
                "devices": [{"device": 0, "name": "one", "present": True}], "modules": [{"path": ""}, {"path": "/app"}]}
    with Room() as place:
        path = os.path.join(place.path, "sites.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(snapshot, out)
        said = [gpumem("summary", "--json", *words, path) for words in ((), ("--device", "host"))]
        return [{row["site"].split(" (")[0]: row["allocated_bytes"] // MIB for row in json.loads(one.stdout)["by_site"]} for one in said]


WRAPPED = [["get", "weights", "main"], ["get", "cache", "main"]]
for name, device, host, wanted in (
        ("a wrapper for each", WRAPPED, [["pin", "stage", "main"], ["pin", "load", "main"]], [{"weights": 1, "cache": 1}, {"stage": 1, "load": 1}]),
        ("one for both", WRAPPED, [["get", "stage", "main"], ["get", "load", "main"]], [{"weights": 1, "cache": 1}, {"stage": 1, "load": 1}]),
        ("one for both, with two behind it", [["take"] + stack for stack in WRAPPED], [["pin", "get", "stage", "main"], ["pin", "get", "load", "main"]],
         [{"weights": 1, "cache": 1}, {"stage": 1, "load": 1}]),
        ("one for both, which pins once", WRAPPED, [["get", "stage", "main"]], [{"weights": 1, "cache": 1}, {"stage": 1}]),
        ("one for device memory alone", WRAPPED, [["main"]], [{"weights": 1, "cache": 1}, {"main": 1}]),
        ("one that some do without", WRAPPED + [["main"]], [["pin", "stage", "main"], ["pin", "load", "main"]], [{"get": 2, "main": 1}, {"stage": 1, "load": 1}])):
    check("call sites: %s" % name, sites(device, host) == wanted, sites(device, host))

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
run = gpumem("summary", "--full", "test/data/torch-snapshot.pickle")
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
        return gpumem("summary", "--full", path), json.loads(gpumem("summary", "--json", path).stdout)["devices"][0]["memory_stats"]


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
