"""Large inputs: little memory for every verb; what lies across the pieces that the input is read in is read as it is.
(Times and a million events: test/bench/bench_verbs.py.)"""
# timeout: 300
import csv
import json
import os
import pickle
import random
import re
import subprocess
import sys
import threading

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import GPUMEM, Room, check, finish  # noqa: E402

LARGE = os.path.abspath("test/bench/large.py")
EVENTS = 75_000
VERBS = (("summary",), ("events", "-n", "3"), ("events", "--stack", "step_5"), ("leaks",), ("flame", "-w", "peak"), ("flame", "-w", "churn"),
         ("check", "--max-peak", "100GiB"), ("symbolize",), ("convert", "--to", "pickle"), ("convert", "--to", "pytorch-json"),
         ("convert", "--to", "chrome"), ("convert", "--to", "speedscope"), ("convert", "--to", "prometheus"), ("convert", "--to", "gpumem"))


def make(path, *words):
    subprocess.run([sys.executable, LARGE, *map(str, words), path], check=True, timeout=200)


def peak(*words):
    """(exit, the most memory in MB, what was said). What this process itself had before it began counts: nothing large yet."""
    with subprocess.Popen([GPUMEM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss // 1024, said


def piped(data, *words, pieces=65536):
    """A verb whose standard input comes in pieces."""
    with subprocess.Popen([GPUMEM, *words, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        def feed():
            try:
                for at in range(0, len(data), pieces):
                    child.stdin.write(data[at:at + pieces])
                    child.stdin.flush()
            except BrokenPipeError:
                pass
            child.stdin.close()
        feeder = threading.Thread(target=feed)
        feeder.start()
        out = child.stdout.read()
        said = child.stderr.read().decode()
        feeder.join()
        return child.wait(timeout=60), out, said


def document(seed, size):
    """A snapshot of about @size bytes with every sort of token, of many lengths, so that some lie across any border."""
    rng = random.Random(seed)
    texts = ["", "alloc", "ä€😀", "\n\t\"\\/\b\f\r", "\u0001", "x" * 70000, "\\" * 5000]
    values = [0, -1, 2 ** 63 - 1, -2 ** 63, 1.5, -2.5e-300, 1e300, True, False, None, 12345678901234567, [], {}, [[]], [1, 2, -3], [1, "a"]]
    annotations, length = [], 0
    while length < size:
        one = {"name": rng.choice(texts) + "y" * rng.randrange(300), "stage": "MARK", "odd": rng.choice(values), "time_us": rng.randrange(2 ** 62),
               "numbers": [rng.randrange(-2 ** 63, 2 ** 63) for _ in range(rng.randrange(40))], "reals": [rng.random()] * rng.randrange(3)}
        annotations.append(one)
        length += len(one["name"]) + 20 * len(one["numbers"]) + 120
    trace = {column: [] for column in ("action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module")}
    return {"format": "gpumem-snapshot", "version": 1, "annotations": annotations, "device_traces": [], "segments": [],
            "stacks": [[rng.randrange(10 ** rng.randrange(4)) for _ in range(size // 10)], list(range(1000))],
            "frames": [{"filename": "", "line": i, "name": "", "module": 0, "offset": 0, "python": False} for i in range(1000)],
            "host_segments": [], "pools": [], "host_trace": dict(trace, dropped=0)}


def repeating(seed, size):
    """A snapshot of PyTorch's of about @size bytes: the same few frames, of names that are hard to find the end of."""
    rng = random.Random(seed)
    parts = ["f", "{lambda()#1}", "}", "]", "[", "{", "\"", "\\", "\\\"", ",", ":", "ä", "\n", "operator()", "x" * 13, "{}" * 9, "y" * 2500]
    frames = [{"name": "".join(rng.choice(parts) for _ in range(rng.randrange(7))), "filename": "/a/%d.py" % (i % 9), "line": rng.choice([0, i, -1])}
              for i in range(400)]
    # The same but for a byte at the beginning, in the middle, at the end; more members; none.
    frames += [dict(frames[i], line=frames[i]["line"] + 1) for i in range(100)] + [dict(frames[i], name="z" + frames[i]["name"]) for i in range(100)]
    frames += [dict(frames[i], fx_node="n%d" % (i % 3), deep=rng.choice([[], {}, [1], {"a": 1}, None])) for i in range(50)] + [{}, {"": ""}]
    events, length = [], 0
    while length < size:
        stack = [rng.choice(frames) for _ in range(rng.randrange(30))]
        events.append({"action": "alloc", "addr": len(events), "size": 512, "stream": 0, "time_us": len(events), "frames": stack})
        length += 100 + sum(50 + len(frame.get("name", "")) for frame in stack)
    return {"segments": [], "device_traces": [events], "allocator_settings": {}, "external_annotations": []}


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and sorted(a) == sorted(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


with Room() as room:
    path = os.path.join(room.path, "large")
    for form, base, share in (("gpumem", 40, 1.6), ("pickle", 60, 3.5)):
        make(path, "--events", EVENTS, "--frames", 30_000, "--stacks", 8_000, "--live", 5_000, "--as", form)
        megabytes = os.path.getsize(path) / 1e6
        most = base + share * megabytes * 1.5
        for words in VERBS + (("diff", path), ("leaks", path)):
            code, memory, said = peak(*words, path)
            check("%d events as %s, %.0f MB: %s in less than %d MB" % (EVENTS, form, megabytes, words[0] + " " + words[-1][-8:], most),
                  code == 0 and memory < most, (code, memory, said))
    # ---- two, of which the second is read while the first is ----------------------------------------------------
    other = os.path.join(room.path, "other")
    make(other, "--events", 60_000, "--frames", 9_000, "--stacks", 3_000, "--live", 2_000)
    for words in (("leaks",), ("diff", "--by", "stack"), ("merge",)):
        runs = [subprocess.run(["bash", "-c", "exec \"$0\" \"$@\" %s" % names, GPUMEM, *words], capture_output=True, timeout=100, check=False,
                               env=dict(os.environ, A=path, B=other))
                for names in ("\"$A\" \"$B\"", "<(cat \"$A\") <(cat \"$B\")")]
        said = [re.sub(rb"/dev/fd/[0-9]+|" + room.path.encode() + b"/[a-z]+", b"FILE", run.stdout) for run in runs]
        said = [re.sub(rb"(\.\.\. and [^:]*: ).*", rb"\1", text) for text in said]     # how to see the rest: by name where it fits
        check("%s of two files: as of two pipes, which are read one after the other" % " ".join(words),
              runs[0].returncode == runs[1].returncode == 0 and said[0] == said[1] and len(said[0]) > 100, (runs[0].stderr, said[0][-300:], said[1][-300:]))
    make(other, "--events", 2 * EVENTS)
    enough = []
    for limit in (75, 200, 350):        # one can be read from 150 or 200 MB of address space on
        ends = [subprocess.run(["bash", "-c", "ulimit -v %d; exec \"$@\"" % (1000 * (limit + more)), "bash", GPUMEM, "merge", *[other] * count],
                               capture_output=True, timeout=100, check=False).returncode for count, more in ((1, 0), (2, 50))]
        enough += [(limit, ends[1])] if not ends[0] else []
    check("where one can be read two can, one after the other if need be", len(enough) > 1 and not any(end for _, end in enough), enough)
    os.truncate(other, os.path.getsize(other) - 5)
    for names, bad in (((path, other), other), ((other, path), other), ((path, path, other, path, other), other), ((path, "/nonexistent"), "/nonexistent")):
        for verb in ("merge",) if len(names) > 2 else ("leaks", "diff", "merge"):
            code, _, said = peak(verb, *names)
            check("%s of %s: the one that cannot be read is named" % (verb, ", ".join(map(os.path.basename, names))),
                  code == 3 and said.startswith("gpumem %s: %s: " % (verb, bad)) and said.count("\n") == 1, (code, said))
    os.truncate(path, 0)
    os.truncate(path, (8 << 30) + 1)
    code, memory, said = peak("summary", path)
    check("a file larger than is read is refused, in little memory", code == 3 and "too large" in said.lower() and memory < 100, (code, memory, said))
    # ---- pieces -------------------------------------------------------------------------------------------------
    for seed, indent in ((1, None), (2, None), (3, 1)):
        content = document(seed, 5_000_000)
        data = json.dumps(content, ensure_ascii=seed == 2, indent=indent).encode()
        with open(path, "wb") as out:
            out.write(data)
        run = subprocess.run([GPUMEM, "convert", "--to", "gpumem", path], capture_output=True, timeout=100, check=False)
        check("%d MB with every sort of token (%d): read as it is" % (len(data) // 1000000, seed), run.returncode == 0 and
              same(json.loads(run.stdout), content), run.stderr[-300:])
        if seed == 1:
            code, out, said = piped(data, "convert", "--to", "gpumem", pieces=65537)
            check("the same from a pipe", code == 0 and same(json.loads(out), content), said)
    # ---- PyTorch's JSON, whose frames are known by their text when they come again -----------------------------
    for seed, separators, ascii_only in ((5, (",", ":"), True), (6, (", ", ": "), False), (7, (" ,\n", ":"), True)):
        content = repeating(seed, 5_000_000)
        data = json.dumps(content, separators=separators, ensure_ascii=ascii_only).encode()
        code, out, said = piped(data, "convert", "--to", "pytorch-json", pieces=65537)
        check("%d MB of PyTorch's JSON whose frames come again (%d): read as it is" % (len(data) // 1000000, seed),
              code == 0 and same(json.loads(out), content), said)
    text = "\\u00e4\\n" * 1_000_000 + "ä" * 1_000_000
    data = b'{"format":"gpumem-snapshot","version":1,"annotations":[{"name":"' + text.encode() + b'"}],"x":"end"}'
    code, out, said = piped(data, "convert", "--to", "gpumem")
    check("one text of 10 MB, half of it escapes", code == 0 and json.loads(out)["annotations"][0]["name"] == json.loads('"%s"' % text) and
          json.loads(out)["x"] == "end", said)
    data = b'{"format":"gpumem-snapshot","version":1' + b" " * 9_000_000 + b',"x":' + b"1" * 70_000 + b"e-69995}"
    code, out, said = piped(data, "convert", "--to", "gpumem")
    check("nothing for megabytes, and a number of 70,000 digits", code == 0 and abs(json.loads(out)["x"] - 11111.1) < .02, (out[-80:], said))
    torch = {"segments": [], "device_traces": [[{"action": "alloc", "addr": i, "size": 512, "stream": 0, "time_us": i, "frames": [],
                                                 "user_metadata": "m" * (i % 7000)} for i in range(3000)]], "big": "ü" * 6_000_000}
    for protocol in (2, 4):
        code, out, said = piped(pickle.dumps(torch, protocol), "convert", "--to", "pickle", pieces=99_991)
        check("a pickle of %d MB from a pipe, protocol %d: equal" % (len(pickle.dumps(torch, protocol)) // 1000000, protocol),
              code == 0 and pickle.loads(out) == torch, said)
    data = pickle.dumps(torch, 4)
    for cut in (4_194_303, 4_194_304, 4_194_305, len(data) - 1):
        code, out, said = piped(data[:cut], "summary")
        check("a pickle cut off at %d" % cut, code == 3 and "cut off" in said and out == b"", said)
    data = json.dumps(document(4, 5_000_000)).encode()
    for cut in (4_194_303, 4_194_304, 4_194_305, len(data) - 1):
        code, out, said = piped(data[:cut], "summary")
        check("JSON cut off at %d" % cut, code == 3 and "cut off" in said and out == b"", said)
    # ---- CSV of stacks whose texts are more than are kept ---------------------------------------------------------
    make(other, "--events", 500, "--frames", 300, "--stacks", 400, "--live", 50, "--pad", 7_000_000)
    with open(other, encoding="utf-8") as file:
        content = json.load(file)
    for i, frame in enumerate(content["frames"]):
        if i % 3 == 1:
            frame["name"] = '"' + frame["name"][:900 * (i % 5)] + '""' + frame["name"]
    with open(other, "w", encoding="utf-8") as file:
        json.dump(content, file)
    csv.field_size_limit(1 << 30)
    files = [os.path.basename(module["path"]) for module in content["modules"]]
    texts = ["%s%s" % (frame["name"], " (%s:%d)" % (frame["filename"] or files[frame["module"]], frame["line"]) if frame["line"] else "")
             for frame in content["frames"]]
    stacks = [";".join(texts[i] for i in reversed(stack)) for stack in content["stacks"]]
    with subprocess.Popen([GPUMEM, "convert", "--to", "csv", other], stdout=subprocess.PIPE, text=True) as child:
        wrong = sum(row["stack"] != stacks[number] for row, number in
                    zip(csv.DictReader(child.stdout), content["device_traces"][0]["stack"], strict=True))
    check("CSV: %d MB of stacks, each as it is" % (sum(map(len, stacks)) // 1000000), child.returncode == 0 and not wrong and
          sum(map(len, stacks)) > 150_000_000, wrong)
finish()
