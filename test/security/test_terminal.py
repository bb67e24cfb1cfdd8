"""What a hostile file, journal or name of a file says reaches no terminal that would obey it, and no spreadsheet that would compute it."""
import csv
import glob
import io
import json
import mmap
import os
import re
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, journals_begun, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
SCRIPT = os.path.join(B, "test/preload/script")
# C0, DEL, C1, the separators of lines, and all twelve that steer the direction of writing.
HOSTILE = "\x1b[2J\x07\x7f\u0085\u009b2J\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
BAD = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
BAD_BYTES = re.compile(rb"[\0-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
VERBS = {"summary": ([], ["--json"], ["--by", "stack"]), "events": ([], ["--stacks"], ["--csv"], ["--jsonl"]), "leaks": ([], ["--json"]), "check": (["--no-leaks"], ["--no-leaks", "--json"]),
         "diff": (["--all"], ["--all", "--json"], ["--all", "--by", "stack"], ["--all", "--by", "module", "--json"]), "merge": ([], ["--json"], ["--by", "stack"]),
         "flame": ([], ["-f", "folded"], ["-f", "speedscope"]), "symbolize": ([],), "replay": ([], ["--json"], ["--search"], ["--search", "--json"]),
         "convert": (["--to", "csv"], ["--to", "rmm"], ["--to", "chrome"], ["--to", "speedscope"], ["--to", "folded"], ["--to", "prometheus"],
                     ["--to", "pytorch-json"], ["--to", "gpumem"])}
INPUTS = {"diff": 2}


def harmless(run):
    return not BAD.search(run.stdout + run.stderr)


def poison(whole, text):
    """@whole with @text before and behind every text in it but those that have a meaning."""
    document = json.loads(whole)
    for frame in document["frames"]:
        frame["name"] = text + frame["name"] + text
        frame["filename"] = text + frame["filename"] + text
    for i, module in enumerate(document["modules"]):
        module["path"] = "%s%s/%s%d%s" % (text, module["path"], text, i, text)
        module["build_id"] += text
    for device in document["devices"]:
        device["name"] = text + device["name"] + text
        device["uuid"] = str(device["uuid"]) + text
    process = document["process"]
    for member in process:
        if isinstance(process[member], str):
            process[member] += text
    document["process"]["host"] = "host" + text
    document["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:64"
    document["annotations"] = [{"name": text + "step" + text, "stage": "START", "device": 0, "time_us": document["time_us"] - 1000, "thread": 1}]
    return json.dumps(document)


def csv_cells(text):
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row if not re.fullmatch(r"-?\d+", cell)]


with Room() as room:
    room.run([TRAINING, "--steps", "4", "--leak"])
    good = glob.glob(room.out + "/*exit.json")[0]
    with open(good, encoding="utf-8") as file:
        whole = file.read()
    evil = os.path.join(room.path, "evil" + HOSTILE)
    with open(evil, "w", encoding="utf-8") as file:
        file.write(poison(whole, HOSTILE))
    said = {}
    for verb, forms in VERBS.items():
        for words in forms:
            said[verb, *words] = gpumem(verb, *words, *[evil] * INPUTS.get(verb, 1))
            check("%s %s: nothing that a terminal obeys" % (verb, " ".join(words)), said[verb, *words].stdout and harmless(said[verb, *words]),
                  [hex(ord(c)) for c in BAD.findall(said[verb, *words].stdout)][:5] or said[verb, *words])
    for verb in ("summary", "diff", "leaks", "merge", "check"):
        json.loads(said[(verb, "--json") if (verb, "--json") in said else next(k for k in said if k[0] == verb and "--json" in k)].stdout)
    for words, where in ((("convert", "--to", "gpumem"), "frames"), (("symbolize",), "frames")):
        names = {frame["name"] for frame in json.loads(said[words].stdout)[where]}
        check("%s: and as JSON says them the names are what they were" % words[0], {f["name"] for f in json.loads(poison(whole, HOSTILE))["frames"]} <= names,
              list(names)[:3])
    for words in (["--to", "pytorch-json"], ["--to", "chrome"], ["--to", "speedscope"]):
        check("convert %s: it is JSON" % words[1], json.loads(said[("convert", *words)].stdout))
    lines = [json.loads(line) for line in said["events", "--jsonl"].stdout.splitlines()]
    check("events --jsonl: it is JSON, with the names as they were", any(HOSTILE in line["module"] for line in lines), lines[:1])
    missing = os.path.join(room.path, "none" + HOSTILE)
    for verb, forms in VERBS.items():
        run = gpumem(verb, *forms[0], *[evil] * (INPUTS.get(verb, 1) - 1), missing)
        check("%s of a file that is not there: its name does no harm" % verb, run.returncode == 3 and harmless(run), run)
    for verb, words in (("flame", []), ("symbolize", []), ("convert", ["--to", "csv"])):
        run = gpumem(verb, *words, "-o", os.path.join(missing, "out"), good)
        check("%s -o into what is not there: likewise" % verb, run.returncode == 1 and harmless(run), run)

    # ---- cells that spreadsheets compute ------------------------------------------------------------------------------
    for sign in FORMULAS:
        text = poison(whole, sign + 'cmd|"/C calc"!A1')
        for words in (["convert", "--to", "csv"], ["events", "--csv"]):
            run = gpumem(*words, "-", stdin=text)
            cells = csv_cells(run.stdout)
            check("%s: no cell begins with %r, and the text is there" % (" ".join(words), sign), run.returncode == 0 and
                  not [c for c in cells if c.startswith(FORMULAS)] and sum('cmd|"/C calc"!A1' in c for c in cells) > 10,
                  [c for c in cells if c.startswith(FORMULAS)][:3])
    # A stack whose text is too long to be kept is made up anew for each row.
    document = json.loads(poison(whole, "=" + HOSTILE + '"x"' + "y" * 65536))
    for trace in document["device_traces"]:
        for column in trace:
            if isinstance(trace[column], list):
                trace[column] = trace[column][-1:]
    document["host_trace"] = {}
    document["stacks"] = [(stack * 2500)[:2500] for stack in document["stacks"]]
    long = os.path.join(room.path, "long")
    with open(long, "w", encoding="utf-8") as file:
        json.dump(document, file)
    run = gpumem("convert", "--to", "csv", "-o", long + ".csv", long)
    with open(long + ".csv", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        check("a stack's text of more than 128 MiB: the same", run.returncode == 0 and len(text) > 128 << 20 and not re.search(BAD_BYTES, text) and
              not re.search(rb'(?:^|,|\n)"?[=+@\t\r]', text) and re.search(rb'(?:^|,|\n)"\'=', text) and re.search(rb'""x""', text), (run, len(text)))
    os.unlink(long)
    os.unlink(long + ".csv")

    # ---- paths and names in journals ----------------------------------------------------------------------------------
    place = os.path.join(room.path, "place" + HOSTILE)
    os.mkdir(place)
    there = ["sh", "-c", 'cd "$0" && exec "$@"', place]
    options = {"output": "%c.%p.%r.json"}
    with Program(room, *there, SCRIPT, "alloc 100", "sleep 600000", **options) as program:
        [journal] = wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(0.2)
        for words in ([], ["-o", os.path.join(place, "own")]):
            run = gpumem("snapshot", *words, str(program.pid))
            check("snapshot %s: the path does no harm" % " ".join(words[:1]), run.returncode == 0 and harmless(run) and "place?" in run.stdout, run)
        run = gpumem("snapshot", "-o", os.path.join(place, "none", "own"), str(program.pid))
        check("snapshot -o into what is not there: likewise", run.returncode == 1 and harmless(run), run)
        for words in (["--once"], ["--once", "--json"]):
            run = gpumem("top", *words, str(program.pid))
            check("top %s: likewise" % " ".join(words), run.returncode == 0 and run.stdout and harmless(run), run)
        program.kill()
    for words in (["--keep"], ["--keep", "--json"]):
        run = gpumem("recover", *words, "-o", os.path.join(place, "x.json"), journal)
        check("recover %s: the path does no harm" % " ".join(words), run.returncode == 0 and "place" in run.stdout and harmless(run), run)
    with open(journal, "r+b") as file:      # and what it says of itself
        begin = file.read(8192)
        at = begin.index(b"script\0")
        file.seek(at)
        file.write("\u202e\u009b2J".encode() + b"\0")
    for words in (["--keep"], ["--keep", "--json"]):
        run = gpumem("recover", *words, "-o", os.path.join(room.path, "%c.json"), journal)
        check("recover %s of a hostile name: likewise" % " ".join(words), run.returncode == 0 and harmless(run), run)
    run = gpumem("recover", os.path.join(room.path, "none" + HOSTILE))
    check("recover of what is not there: likewise", run.returncode == 3 and harmless(run), run)
    run = gpumem("recover", place)
    check("recover of an empty directory: likewise", harmless(run), run)
finish()
