"""gpumem convert --to prometheus: the format, its figures, files that a collector may read at any moment, several processes."""
import copy
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
import prometheus  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program, gpumem, journals_begun, killed_journal, load, wait_for  # noqa: E402


def reads(page):
    """The metrics, or why the page is none."""
    try:
        return prometheus.read(page)
    except ValueError as error:
        return str(error)


def only(metrics, name, **labels):
    """The one value of a metric that has these labels."""
    found = [v for key, v in metrics[name][2].items() if set(labels.items()) <= set(key)]
    return found[0] if len(found) == 1 else found


# ---- the reader itself refuses what it must --------------------------------------------------------------------------
HEAD = "# HELP a_total x\n# TYPE a_total counter\n"
for name, bad in (("no line end", HEAD + "a_total 1"), ("twice", HEAD + 'a_total{x="1"} 1\na_total{x="1"} 2\n'), ("no number", HEAD + "a_total x\n"),
                  ("apart", HEAD + "a_total 1\n# HELP b x\n# TYPE b gauge\nb 1\na_total{x=\"\"} 1\n"), ("an open label", HEAD + 'a_total{x="} 1\n'),
                  ("an escape", HEAD + 'a_total{x="\\t"} 1\n'), ("headless", "a_total 1\n"), ("a name", HEAD + "9a 1\n"),
                  ("a type", "# HELP a x\n# TYPE a count\n"), ("a counter below 0", HEAD + "a_total -1\n"), ("a time", HEAD + "a_total 1 5\n")):
    check("the strict reader refuses: " + name, isinstance(reads(bad), str), reads(bad))
check("and takes what is right", reads(HEAD + 'a_total{x="\\\\\\"\\n{},="} 1\n') == {"a_total": ("counter", "x", {(("x", '\\"\n{},='),): 1.0})})

with Room() as room:
    room.run([APP], snapshot_on="exit,oom")
    path = sorted(glob.glob(room.out + "/*oom-1.json"))[0]
    snapshot = load(path)
    metrics = reads(gpumem("convert", "--to", "prometheus", path).stdout)
    check("a page is valid", isinstance(metrics, dict) and len(metrics) > 12, metrics)
    device, process = snapshot["devices"][0], snapshot["process"]
    labels = {"command": process["command"], "pid": str(process["pid"]), "device": "0"}
    stats = device["memory_stats"]
    for name, value in (("allocated_bytes", stats["allocated_bytes.all.current"]), ("allocated_bytes_peak", stats["allocated_bytes.all.peak"]),
                        ("reserved_bytes", stats["reserved_bytes.all.current"]), ("reserved_bytes_peak", stats["reserved_bytes.all.peak"]),
                        ("unreleasable_bytes", stats["inactive_split_bytes.all.current"]), ("allocations_total", stats["allocation.all.allocated"]),
                        ("frees_total", stats["allocation.all.freed"]), ("allocated_bytes_total", stats["allocated_bytes.all.allocated"]),
                        ("ooms_total", stats["num_ooms"]), ("device_total_bytes", device["total_bytes"]),
                        ("device_free_bytes", device["free_bytes"]), ("unattributed_bytes", device["unattributed_bytes"])):
        check("%s" % name, only(metrics, "gpumem_" + name, **labels) == value, (metrics.get("gpumem_" + name), value))
    by_kind = {k["kind"]: k["allocated_bytes"] for k in device["by_kind"]}
    check("by kind", {dict(key)["kind"]: v for key, v in metrics["gpumem_kind_allocated_bytes"][2].items() if dict(key)["device"] == "0"} == by_kind)
    history = snapshot["history"]
    check("events", only(metrics, "gpumem_history_events_total") == history["events"] + history["dropped"], history)
    with Program(room, APP, "--wait", "60") as program:
        program.until("waiting")
        count = len(gpumem("events", "--level", "driver", "--jsonl", str(program.pid)).stdout.splitlines())
        living = reads(gpumem("convert", "--to", "prometheus", str(program.pid)).stdout)
        check("events of a living process, whose events are not copied", count > 10 and only(living, "gpumem_history_events_total") == count, (count, living))
    check("the moment", abs(only(metrics, "gpumem_snapshot_timestamp_seconds") - snapshot["time_us"] / 1e6) < 0.001)

    def variant(name, change):
        altered = copy.deepcopy(snapshot)
        change(altered)
        run = subprocess.run([GPUMEM, "convert", "--to", "prometheus", "-"], input=json.dumps(altered).encode(), capture_output=True,
                             timeout=60, check=False)
        found = reads(run.stdout.decode())         # (text=True would make other line ends)
        check("%s: a valid page" % name, run.returncode == 0 and isinstance(found, dict), (found, run.stderr))
        return found

    def twice(altered):
        rows = altered["devices"][0]["by_module"]
        rows.append(dict(rows[0], module=7, allocated_bytes=1000))
    found = variant("a library that was loaded twice", twice)
    row = device["by_module"][0]
    check("its two rows are one", only(found, "gpumem_module_allocated_bytes", device="0", module=row["path"]) == row["allocated_bytes"] + 1000)
    variant("a device twice", lambda s: s["devices"].append(s["devices"][0]))
    found = variant("a hostile name", lambda s: s["process"].update(command='a"b\\c\nd{}= # HELP x\r\x01ä', rank=5))
    check("it is the name still, without what a terminal would obey", only(found, "gpumem_allocated_bytes", command='a"b\\c\nd{}= # HELP x??ä', rank="5", device="0") ==
          stats["allocated_bytes.all.current"], found)
    variant("hostile modules", lambda s: s["devices"][0]["by_module"].extend({"path": p} for p in ('"', "\\", "\n", "}", "", "", 5, None)))
    variant("numbers at their ends", lambda s: s["devices"][0].update(total_bytes=2 ** 63 - 1, free_bytes=-2 ** 63, unattributed_bytes=1e300))
    _, journal = killed_journal(room, 0.3)
    check("of a journal: valid", isinstance(reads(gpumem("convert", "--to", "prometheus", journal).stdout), dict))
    check("of PyTorch's pickle: valid", isinstance(reads(gpumem("convert", "--to", "prometheus", "test/data/torch-snapshot.pickle").stdout), dict))

    # ---- a living process, read by a collector at any moment ----------------------------------------------------------
    files = os.path.join(room.path, "textfiles")
    os.mkdir(files)
    with Program(room, APP, "--loop", "--max-seconds", "120") as first:
        with Room() as other, Program(other, APP, "--loop", "--max-seconds", "120") as second:
            names = ["gpumem.%d.prom" % p.pid for p in (first, second)]
            wait_for(lambda: gpumem("summary", str(first.pid)).returncode == 0 and gpumem("summary", str(second.pid)).returncode == 0)
            with subprocess.Popen([GPUMEM, "convert", "--to", "prometheus", "--textfile", files, "--watch", "0.1", str(first.pid), str(second.pid)],
                                  stderr=subprocess.PIPE, text=True) as watcher:
                check("--watch of two processes: a file each", wait_for(lambda: sorted(os.listdir(files)) == sorted(names)), os.listdir(files))
                bad, seen, looks, inodes = [], {n: [] for n in names}, 0, {n: set() for n in names}
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    for name in os.listdir(files):
                        if not name.endswith(".prom"):
                            continue            # node_exporter takes these alone
                        with open(os.path.join(files, name), encoding="utf-8") as text:
                            page = text.read()
                            inodes[name].add(os.fstat(text.fileno()).st_ino)
                        looks += 1
                        found = reads(page)
                        if isinstance(found, str):
                            bad.append(found)
                        else:
                            seen[name].append((only(found, "gpumem_allocations_total", device="0"), only(found, "gpumem_snapshot_timestamp_seconds")))
                check("%d looks at any moment: always a whole page" % looks, not bad and looks > 20, bad[:3])
                check("each is another file, put there by renaming", all(len(i) > 2 for i in inodes.values()), inodes)
                check("counters and the time never go back, and go on", all(values == sorted(values) and values[0] < values[-1]
                                                                            for values in seen.values()), seen)
                second.kill()
                check("the file of a process that ended goes; the other stays", wait_for(lambda: os.listdir(files) == [names[0]]) and
                      watcher.poll() is None, os.listdir(files))
                first.kill()
                try:
                    code = watcher.wait(timeout=60)
                finally:
                    watcher.kill()
                check("with the last one the watch ends: exit 0, no file", code == 0 and os.listdir(files) == [], (code, os.listdir(files)))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Program(room, APP, "--loop", "--max-seconds", "60") as program:
            wait_for(lambda: gpumem("summary", str(program.pid)).returncode == 0)
            with subprocess.Popen([GPUMEM, "convert", "--to", "prometheus", "--textfile", files, "--watch", "0.2", str(program.pid)],
                                  stderr=subprocess.PIPE, text=True) as watcher:
                wait_for(lambda: os.listdir(files) == ["gpumem.%d.prom" % program.pid])
                watcher.send_signal(number)
                code = watcher.wait(timeout=60)
                check("%s ends it, and nothing stays" % number.name, code == 0 and os.listdir(files) == [] and program.child.poll() is None,
                      (code, os.listdir(files)))
    with Room() as other, Program(other, APP, "--loop", "--max-seconds", "60") as program:
        living = wait_for(lambda: journals_begun(other, program.pid))
        run = gpumem("convert", "--to", "prometheus", "--textfile", files, living[0])
        there = os.listdir(files)
        check("of a living process's journal, by its path: the process's number names file and lines",
              run.returncode == 0 and there == ["gpumem.%d.prom" % program.pid] and
              set(re.findall('pid="([0-9]*)"', open(os.path.join(files, there[0]), encoding="utf-8").read())) == {str(program.pid)},
              (run, there))
        for name in there:
            os.unlink(os.path.join(files, name))
    run = gpumem("convert", "--to", "prometheus", "--textfile", files, "--watch", "0.1", "999999999")
    check("no such process: exit 3", run.returncode == 3 and "999999999" in run.stderr and os.listdir(files) == [], run)
    run = gpumem("convert", "--to", "prometheus", "--textfile", files, path, journal)
    check("once, of a file and a journal: a file each", run.returncode == 0 and len([f for f in os.listdir(files) if re.fullmatch(r"gpumem\.\d+\.prom", f)]) == 2, run)
    os.chmod(files, 0o555)
    if os.geteuid():
        run = gpumem("convert", "--to", "prometheus", "--textfile", files, path)
        check("a directory that cannot be written: exit 1", run.returncode == 1 and files in run.stderr, run)
    os.chmod(files, 0o755)
    run = gpumem("convert", "--to", "prometheus", "--textfile", os.path.join(files, "none"), path)
    check("no such directory: exit 1", run.returncode == 1 and "No such file" in run.stderr, run)
finish()
