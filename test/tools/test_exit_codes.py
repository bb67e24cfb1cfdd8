"""Every verb's exit codes: 0 done, 1 the output could not be written, 2 wrong use, 3 unreadable input; who says what where."""
import glob
import gzip
import json
import mmap
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from screen import Screen  # noqa: E402
from verbs import APP, Program, gpumem, journals_begun, killed_journal  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
# verb: (words before its inputs, how many inputs, does it write to standard output)
READERS = {"summary": ([], 1), "events": ([], 1), "leaks": ([], 1), "diff": (["--all"], 2), "flame": ([], 1), "merge": ([], 1),
           "check": (["--max-peak", "900GiB"], 1), "replay": ([], 1), "convert": (["--to", "csv"], 1), "symbolize": ([], 1),
           "view": ([], 1)}
JSON = {"summary", "leaks", "diff", "merge", "check", "replay", "events"}

with Room() as room:
    room.run([TRAINING, "--steps", "4", "--leak"])
    good = glob.glob(room.out + "/*exit.json")[0]
    with open(good, "rb") as file:
        whole = file.read()
    bad = {"empty": b"", "cut short": whole[:len(whole) // 2], "foreign JSON": b'{"a": [1, 2, 3]}', "no JSON": b"\x7fELF\x02\x01\x01" * 99,
           "a later version": whole.replace(b'"version":1', b'"version":99', 1).replace(b'"version": 1', b'"version": 99', 1)}
    for name in bad:
        with open(os.path.join(room.path, name), "wb") as file:
            file.write(bad[name])
    pid, journal = killed_journal(room, 0.2)
    with open(journal, "rb") as file:
        bad["a cut journal"] = file.read(70000)
    with open(os.path.join(room.path, "a cut journal"), "wb") as file:
        file.write(bad["a cut journal"])

    for text in ("[]", "{}", "[[]]", '{"a": {}}', "7"):
        run = gpumem("summary", "-", stdin=text)
        check("%s is no snapshot, and said to be none" % text, run.returncode == 3 and "JSON, but not a snapshot" in run.stderr, run)
    for verb, (words, count) in READERS.items():
        run = gpumem(verb, *words, *[good] * count)
        # symbolize sums up what it found there: its result is the snapshot
        check("%s: exit 0, nothing on stderr" % verb, run.returncode == 0 and run.stdout and (not run.stderr or verb == "symbolize"), run)
        run = gpumem(verb, *words, *[journal] * count)
        check("%s of a dead process's journal" % verb, run.returncode == 0 and run.stdout, run)
        run = gpumem(verb, *words, *["-"] * count, stdin=whole.decode()) if count == 1 else gpumem(verb, *words, good, "-", stdin=whole.decode())
        check("%s of standard input" % verb, run.returncode == 0 and run.stdout, run)
        run = gpumem(verb, *words, *[os.path.abspath("test/data/torch-snapshot.pickle")] * count)
        check("%s of a pickle of PyTorch's" % verb, run.returncode == 0 and run.stdout, run)
        for name in list(bad) + ["not there", "."]:
            inputs = [good] * (count - 1) + [name]
            run = gpumem(verb, *words, *inputs, cwd=room.path)
            check("%s, %s: exit 3, one line that names it, no result" % (verb, name), run.returncode == 3 and run.stderr.count("\n") == 1 and
                  run.stderr.startswith("gpumem %s: %s: " % (verb, name)) and (not run.stdout or verb == "check"), run)
        run = gpumem(verb, "--frobnicate", good)
        check("%s, an unknown option: exit 2" % verb, run.returncode == 2 and "--frobnicate" in run.stderr and "usage:" in run.stderr and not run.stdout, run)
        run = gpumem(verb)
        check("%s, no argument: exit 2" % verb, run.returncode == 2 and run.stderr and not run.stdout, run)
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([GPUMEM, verb, *words, *[good] * count], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        check("%s, a full disk: exit 1, said" % verb, run.returncode == 1 and ("No space left" in run.stderr or
              verb == "symbolize" and "standard output: " in run.stderr), run)
        if verb in JSON:
            run = gpumem(verb, *words, "--json", *[good] * count)
            try:
                parsed = [json.loads(line) for line in run.stdout.splitlines()] if verb == "events" else json.loads(run.stdout)
            except ValueError as error:
                parsed = error
            check("%s --json" % verb, run.returncode == 0 and isinstance(parsed, (list, dict)) and parsed, (parsed, run.stdout[:300]))
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([GPUMEM, verb, *words, "--json", *[good] * count], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            check("%s --json, a full disk: exit 1, said" % verb, run.returncode == 1 and "No space left" in run.stderr, run)
        if verb in ("view", "flame"):       # a page and a picture are not for a terminal: test_view.py, test_flame.py
            continue
        with Screen([GPUMEM, verb, *words, *[good] * count], NO_COLOR="1") as screen:
            check("%s on a terminal with NO_COLOR: no escape at all" % verb, screen.ended() and screen.status == 0 and b"\033" not in screen.raw, screen.raw[:300])
    for words in (["events", "--csv"], ["events", "--jsonl"], ["convert", "--to", "pickle"], ["convert", "--to", "chrome"],
                  ["convert", "--to", "pytorch-json"], ["convert", "--to", "gpumem"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([GPUMEM, *words, good], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        check("%s, a full disk: said" % " ".join(words), run.returncode == 1 and "No space left" in run.stderr, run)
    for words in (["--version"], ["-V"], ["version"]):
        run = gpumem(*words)
        check("%s: the version" % words, run.returncode == 0 and re.fullmatch(r"gpumem \d+\.\d+\.\d+\n", run.stdout), run)
    for words in (["options"], ["options", "--json"], ["help"], ["help", "top"], ["--help"], ["top", "--help"], ["--version"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([GPUMEM, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        check("%s, a full disk: said" % " ".join(words), run.returncode == 1 and "could not be written" in run.stderr, run)
    for verb, words, status in (("check", ["--no-leaks", good], 1), ("check", ["--max-peak", "1KiB", good], 1), ("check", ["--max-peak", "1TiB", good], 0),
                                ("snapshot", ["999999999"], 3), ("snapshot", ["x"], 2), ("recover", ["/nowhere"], 3), ("top", ["999999999"], 3),
                                ("options", ["nonsense"], 2), ("options", ["stacks"], 0), ("help", ["top"], 0), ("help", ["nonsense"], 2)):
        run = gpumem(verb, *words)
        check("%s %s: exit %d" % (verb, " ".join(words).replace(good, "FILE"), status), run.returncode == status and bool(run.stderr) == (status > 1), run)
    run = subprocess.run(["bash", "-c", '"$0" summary --full <(sleep 0.5; cat "$1")', GPUMEM, good],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    check("a command's output, which comes late, is waited for", run.returncode == 0 and "CUDA memory summary" in run.stdout, run)
    # ---- a device that is not there is no device with nothing on it --------------------------------------------------
    for verb, (words, count) in READERS.items():
        if verb in ("convert", "symbolize", "view"):
            continue
        run = gpumem(verb, *words, "-d", "7", *[good] * count)
        check("%s -d 7: exit 3, said, no result" % verb, run.returncode == 3 and "device" in run.stderr and run.stderr.count("\n") == 1 and
              not run.stdout, run)
        run = gpumem(verb, *words, "-d", "seven", *[good] * count)
        check("%s -d seven: exit 2" % verb, run.returncode == 2 and "not a number" in run.stderr and not run.stdout, run)
        run = gpumem(verb, *words, "-d", "0", *[good] * count)
        check("%s -d 0" % verb, run.returncode == 0 and run.stdout, run)

    # ---- what is wrong is said, beside the usage --------------------------------------------------------------------
    for verb, inputs, said in (("summary", [], "no input was given"), ("events", [good, good], "2 inputs were given"),
                               ("diff", [good], "1 input was given"), ("leaks", [good] * 3, "3 inputs were given"), ("top", [], "no input"),
                               ("run", [], "no command was given"), ("run", ["--stacks", "--", "true"], "--stacks needs a value"),
                               ("leaks", ["-n", "-3", good], "--top -3: not a number"), ("merge", ["-n", "-3", good], "--top -3: not a number"),
                               ("top", ["--rows", "-3", "all"], "--rows -3: not a number"), ("events", ["-n", "-3", good], "--last -3: not a number"),
                               ("events", ["--address", "0x1ffffffffffffffff", good], "not a hexadecimal number"),
                               ("events", ["--address", "-5", good], "not a hexadecimal number"), ("events", ["--stream", "-5", good], "not a number"),
                               ("events", ["-n", "99999999999999999999", good], "too large"), ("leaks", ["-n", "18446744073709551615", good], "too large"),
                               ("check", ["--max-ooms", "18446744073709551615", good], "too large"), ("replay", ["--heap", "pages", "--lag", "18446744073709551615", good], "too large"),
                               ("events", ["-n", " 3", good], "not a number"), ("replay", ["-d", "4294967296", good], "not a number"),
                               ("summary", ["-d", "-1", good], "not a number"), ("summary", ["-d", "99999999999999999999", good], "not a number"),
                               ("leaks", ["--min-size", "nan", good], "not a size"), ("check", ["--max-peak", "nan", good], "not a size"),
                               ("events", ["--stream", "0x1ffffffffffffffff", good], "not a number"),
                               ("replay", ["--conf", "max_split_size_mb:64,max_split_size:3", good], "max_split_size is not an option")):
        run = gpumem(verb, *inputs)
        check("%s %s: exit 2, %s" % (verb, " ".join(inputs).replace(good, "FILE"), said), run.returncode == 2 and said in run.stderr and
              not run.stdout, run)
    run = gpumem("replay", "--json", "--conf", "expandable_segments:True,roundup_power2_divisions:[256:1,>:8],max_split_size_mb: 64", good)
    check("replay --conf of every setting that PyTorch has", run.returncode == 0, run)
    evil = os.path.join(room.path, "evil\033[2Jname")
    with open(evil, "wb"):
        pass
    for verb, (words, count) in READERS.items():
        run = gpumem(verb, *words, *[good] * (count - 1), evil)
        check("%s of a name with an escape: none reaches the terminal" % verb, run.returncode == 3 and "\033" not in run.stderr and
              "name: an empty file" in run.stderr, run)
    # What a snapshot says is no more trusted: its settings in a message, its names in what is often looked at on a terminal.
    names = ("\u001b[2J", "\u009b2J", "\u007f", "\r", "\u0090")
    document = json.loads(whole)
    document["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "a\033b\u009bc"
    for i, frame in enumerate(document["frames"]):
        frame["name"] += names[i % len(names)]
    document["process"]["command"] += "".join(names)
    for words, status in ((["replay"], 0), (["replay", "--conf", "a\033b:1"], 2), (["flame"], 0), (["flame", "-f", "folded"], 0), (["summary"], 0), (["leaks"], 0), (["events"], 0)):
        run = gpumem(*words, "-", stdin=json.dumps(document))
        check("%s of names with control characters: none comes out" % " ".join(words), run.returncode == status and
              not re.search("[\0-\b\x0b-\x1f\x7f-\x9f]", run.stdout + run.stderr), (run.returncode, run.stderr, run.stdout[:200]))
    for name, near in (("foo", ""), ("lekas", "leaks"), ("tpo", "top"), ("sumary", "summary"), ("xy", "")):
        run = gpumem(name)
        check("gpumem %s: %s" % (name, near or "nothing like it"), run.returncode == 2 and
              ("did you mean %s?" % near in run.stderr if near else "did you" not in run.stderr), run)

    # ---- what is no file --------------------------------------------------------------------------------------------
    os.mkfifo(os.path.join(room.path, "fifo"))
    ears = socket.socket(socket.AF_UNIX)
    ears.bind(os.path.join(room.path, "socket"))
    for verb, (words, count) in READERS.items():
        for name, what in (("fifo", "a pipe that nobody writes"), ("socket", "a socket"), ("/dev/zero", "a device"), ("/dev/ptmx", "a device"),
                           (".", "a directory")):
            run = gpumem(verb, *words, *[good] * (count - 1), name, cwd=room.path)
            check("%s, %s: exit 3 at once, one line that says what it is" % (verb, name), run.returncode == 3 and
                  run.stderr.startswith("gpumem %s: %s: " % (verb, name)) and what in run.stderr and run.stderr.count("\n") == 1, run)
    for verb in ("leaks", "check"):
        for name, what in (("fifo", ""), ("socket", "a socket"), ("/dev/zero", "a device"), (".", "a directory"), ("not there", "No such file")):
            run = gpumem(verb, "--suppressions", name, *(["--no-leaks"] if verb == "check" else []), good, cwd=room.path)
            check("%s --suppressions %s: no wait, said" % (verb, name), run.returncode == (2 if what else verb == "check") and what in run.stderr, run)

    with open(os.path.join(room.path, "packed.gz"), "wb") as file:
        file.write(gzip.compress(whole))
    run = gpumem("summary", "packed.gz", cwd=room.path)
    check("a compressed file: what to do", run.returncode == 3 and "compressed: name <(zcat FILE)" in run.stderr, run)
    run = subprocess.run(["bash", "-c", '"$0" summary <(zcat "$1")', GPUMEM, os.path.join(room.path, "packed.gz")], capture_output=True, text=True,
                         timeout=60, check=False)
    check("which works", run.returncode == 0 and run.stdout, run)
    with open(journal, "rb") as file:
        run = subprocess.run([GPUMEM, "summary", "--full", "-"], stdin=file, capture_output=True, text=True, timeout=60, check=False)
    check("a journal on standard input", run.returncode == 0 and run.stdout.replace("-\n", "") == gpumem("summary", "--full", journal).stdout, run)
    run = subprocess.run(["bash", "-c", 'cat "$1" | "$0" summary -', GPUMEM, journal], capture_output=True, text=True, timeout=60, check=False)
    check("but not through a pipe, which is said", run.returncode == 3 and "a journal, which is read from a file only" in run.stderr, run)

    # ---- versions, and numbers as other tools write them ------------------------------------------------------------
    for number, said in (("99", "version 99"), ("1e20", "version 1e+20"), ("100000000000000000000", "version 1e+20"), ("-3", "version -3"),
                         ("18446744073709551615", "version 18446744073709551615"), ("1.5", "version 1.5"), ('"1"', "no number"), ("null", "no number")):
        run = gpumem("summary", "-", stdin=re.sub(r'"version": ?1\b', '"version":' + number, whole.decode(), count=1))
        check("a snapshot of version %s" % number, run.returncode == 3 and said in run.stderr, run)
    run = gpumem("summary", "-", stdin=re.sub(r'"version": ?1,', "", whole.decode(), count=1))
    check("a snapshot of no version", run.returncode == 3 and "does not say its version" in run.stderr, run)
    plain = gpumem("summary", "--full", good).stdout
    reals = re.sub(r'"((?:total|free|unattributed)_bytes|version|size|requested_size|[a-z_]+\.all\.[a-z]+)": ?(\d+)\b', r'"\1":\2.0', whole.decode())
    run = gpumem("summary", "--full", "-", stdin=reals)
    check("numbers with a point are those numbers", run.stdout == plain and reals.count(".0,") > 50, list(zip(*[x for x in zip(plain.splitlines(), run.stdout.splitlines()) if x[0] != x[1]])))

# ---- closed descriptors: what is opened next does not take their place, or reports would end in it -------------------
def closed(fds, *words):
    """The exit status of gpumem begun with those closed."""
    return subprocess.run(["sh", "-c", 'exec "$@" %s' % " ".join("%d>&-" % fd for fd in fds), "sh", GPUMEM, *words], timeout=60, check=False).returncode


with Room() as room, Program(room, APP, "--wait", "600") as living:
    living.until("waiting")
    [journal] = journals_begun(room, living.pid)
    pid = str(living.pid)
    for fds in ((0, 1, 2), (1, 2), (0, 1), (1,)):
        for words in (["top", "--once", pid], ["summary", pid], ["snapshot", pid], ["leaks", "--json", pid]):
            check("%s, %s closed: exit 1" % (words[0], fds), closed(fds, *words) == 1)
        check("an unreadable input, %s closed: exit 3" % (fds,), closed(fds, "summary", "/nowhere") == 3)
    with open(journal, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check("the journal of the living process has none of it", content.find(b"under libgpumem\n") < 0 and content.find(b"CUDA memory summary") < 0 and
              content.find(b"gpumem top: ") < 0)
    for verb in ("summary", "snapshot", "top"):
        run = gpumem(verb, *(["--once"] if verb == "top" else []), str(living.pid + (1 << 32)))
        check("%s of a number that is no process's, but ends as one: exit 3" % verb, run.returncode == 3 and "no such process" in run.stderr, run)
    living.kill()
    note = os.path.join(room.path, "note")
    closed((0, 2), "run", "--", sys.executable, "-c", "import os, sys; open(sys.argv[1], 'w').write(str(os.path.lexists('/proc/self/fd/2')))", note)
    with open(note, encoding="ascii") as file:
        check("what is run finds them closed, too", file.read() == "False")
finish()
