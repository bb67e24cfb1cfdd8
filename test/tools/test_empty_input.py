"""What is empty says so, in one line; a name that is not there, or that is another format's, is no empty result."""
import json
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import Room, check, finish  # noqa: E402
from verbs import gpumem, load  # noqa: E402

FULL = os.path.abspath("test/data/gpumem-snapshot.json")


def emptied(devices):
    """A snapshot of a program that kept no history and holds nothing; without @devices it never had a device."""
    document = load(FULL)
    document["segments"], document["host_segments"], document["annotations"] = [], [], []
    for trace in document["device_traces"] + [document["host_trace"]]:
        trace.update({column: [] for column in trace if isinstance(trace[column], list)})
    if not devices:
        document["devices"], document["device_traces"], document["failures"] = [], [], []
        document["reason"] = "exit"
        document["host"] = {name: [] if isinstance(value, list) else {} for name, value in document["host"].items()}
    return document


def said(words, stdout, stderr=None, status=0):
    """@stdout and @stderr are lines of their own; None: nothing is there."""
    run = gpumem(*words)
    check("%s: %s" % (" ".join(os.path.basename(word) for word in words), stdout or stderr), run.returncode == status and
          (stdout is None or stdout in run.stdout.splitlines()) and
          (stderr is None and not run.stderr or stderr is not None and run.stderr.count("\n") == 1 and stderr in run.stderr), run)
    return run


with Room() as room:
    none, never = os.path.join(room.path, "none.json"), os.path.join(room.path, "never.json")
    for path, devices in ((none, True), (never, False)):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(emptied(devices), file)
    events = "no events: the history kept none (see the option history)"
    for path in (none, never):
        said(["events", path], events)
        said(["events", "--csv", path], None, events)
        run = said(["events", "--jsonl", path], None, events)
        check("events --jsonl: no line on standard output", not run.stdout, run)
        said(["leaks", path], "nothing is live" if load(path)["process"].get("life") == "running" else "nothing leaked")
        check("leaks --json: an empty list", json.loads(said(["leaks", "--json", path], None).stdout)["leaks"] == [])
        said(["leaks", path, path], "nothing grew")
        said(["diff", path, path], "nothing is live in either")
        check("diff --json: an empty list", json.loads(said(["diff", "--json", path, path], None).stdout) == [])
        said(["merge", path], "nothing was live then in any of them")
        check("merge --json: an empty list", json.loads(said(["merge", "--json", path], None).stdout)["rows"] == [])
        for form in ("csv", "rmm", "chrome"):
            said(["convert", "--to", form, path], None, "there are no events in it")
        said(["convert", "--to", "speedscope", path], None, "nothing is live in it, nor ever was")
        said(["convert", "--to", "folded", path], None, "nothing is live in it")
        said(["convert", "--to", "pytorch-json", path], None, "nothing is in it: neither events nor segments")
        said(["flame", path], None, "nothing to draw")
        said(["replay", path], None, "no history of that device", 3)
        said(["check", "--no-leaks", path], path + ": within its limits")
    said(["summary", never], "nothing was allocated: no device is in it")
    count = gpumem("events", "--jsonl", FULL).stdout.count("\n")
    for words in (["--min-size", "900GiB"], ["--module", "nowhere"], ["--last", "0"], ["--stack", "nowhere"], ["--since", "1e6"], ["--address", "1"]):
        said(["events", *words, FULL], "none of %d events passes the filter" % count)
        said(["events", "--csv", *words, FULL], None, "none of %d events passes the filter" % count)
    said(["leaks", "--min-size", "900GiB", FULL], "nothing leaked that is at least 900.00 GiB" if load(FULL)["process"].get("life") != "running" else
         "nothing is live that is at least 900.00 GiB")
    said(["diff", FULL, FULL], "nothing changed (--all shows what stayed)")
    run = gpumem("diff", "--all", FULL, FULL)
    check("diff --all: no such line", run.returncode == 0 and "nothing" not in run.stdout, run)

    # ---- names ---------------------------------------------------------------------------------------------------------
    for words, name, own in ((["flame"], "x.png", ".svg"), (["flame"], "x.PNG", ".svg"), (["flame"], "x.json", ".svg"), (["flame", "-f", "folded"], "x.svg", ".folded"),
                             (["flame", "-f", "speedscope"], "x.svg", ".json"), (["convert", "--to", "csv"], "x.pickle", ".csv"),
                             (["convert", "--to", "chrome"], "x.json.gz", ".json"), (["convert", "--to", "pickle"], "x.json", ".pickle"),
                             (["symbolize"], "x.pickle", ".json"), (["snapshot"], "x.svg", ".json")):
        run = gpumem(*words, "-o", name, FULL if words != ["snapshot"] else "1", cwd=room.path)
        check("%s -o %s: refused, and what it would be called" % (" ".join(words), name), run.returncode == 2 and run.stderr.count("\n") == 1 and
              "what is written is no %s: name it %s" % (name[name.rindex("."):], own) in run.stderr and not os.path.exists(os.path.join(room.path, name)), run)
    for words, name in ((["flame"], "x.svg"), (["flame"], "x"), (["flame"], "v1.2"), (["flame", "-f", "folded"], "x.txt"), (["flame", "-f", "speedscope"], "x.speedscope.json"),
                        (["convert", "--to", "pickle"], "x.pkl"), (["convert", "--to", "gpumem"], "x.json"), (["convert"], "y.csv"), (["symbolize"], "y.json"),
                        (["symbolize"], "../%s/y" % os.path.basename(room.path))):
        run = gpumem(*words, "-o", name, FULL, cwd=room.path)
        check("%s -o %s: written" % (" ".join(words), name), run.returncode == 0 and os.path.getsize(os.path.join(room.path, name)) > 100, run)
    for option, name, why in (("--debug-dir", "/nodir", "No such file"), ("--debug-dir", FULL, "Not a directory"), ("--sysroot", "/nodir", "No such file")):
        run = gpumem("symbolize", option, name, FULL)
        check("symbolize %s %s: said, and on it goes" % (option, os.path.basename(name)), run.returncode == 0 and run.stdout and
              run.stderr.startswith("gpumem symbolize: %s %s: %s" % (option, name, why)), run)
    run = gpumem("symbolize", "--debug-dir", room.path, FULL)
    check("symbolize --debug-dir of one that is there: no such line", run.returncode == 0 and "--debug-dir" not in run.stderr, run)
finish()
