"""With --no-lines no verb opens the files that a snapshot names, nor asks whether they are there. Without it verbs that show stacks look for
source lines: they only read, open nothing but regular files, and check the build id. Other verbs open none in any case."""
import ctypes
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem, load  # noqa: E402

IN_ACCESS, IN_MODIFY, IN_CLOSE_WRITE, IN_OPEN, IN_CREATE, IN_DELETE = 1, 2, 8, 0x20, 0x100, 0x200
SNAPSHOT = os.path.abspath("test/data/gpumem-snapshot.json")
TORCH = os.path.abspath("test/data/torch-snapshot.pickle")
libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """What is done to the files of a directory."""

    def __init__(self, directory):
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(directory), IN_ACCESS | IN_MODIFY | IN_CLOSE_WRITE |
                                                       IN_OPEN | IN_CREATE | IN_DELETE) >= 0

    def seen(self):
        """[(mask, name)] since the last time."""
        events = []
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return events
        at = 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, at)
            events.append((mask, data[at + 16:at + 16 + length].rstrip(b"\0").decode()))
            at += 16 + length
        return events


def bait(value, path):
    """Every text that is a path, and every file name, is @path."""
    if isinstance(value, dict):
        return {k: path if k in ("filename", "path") or (isinstance(v, str) and v.startswith("/")) else bait(v, path)
                for k, v in value.items()}
    if isinstance(value, list):
        return [bait(v, path) for v in value]
    return value


with Room() as room:
    place = os.path.join(room.path, "bait")
    os.mkdir(place)
    named = os.path.join(place, "libnamed.so")
    shutil.copy(os.path.join(B, "libgpumem.so"), named)
    fifo = os.path.join(place, "fifo")
    os.mkfifo(fifo)
    watch = Watch(place)

    def made(path):
        snapshot = bait(load(SNAPSHOT), path)
        for frame in snapshot["frames"][1:]:
            frame.update(name="", offset=frame["offset"] or 64, module=1, python=False)
        snapshot["modules"][1]["build_id"] = "00" * 20
        with open(TORCH, "rb") as file:
            torch = bait(pickle.load(file), path)
        ours, theirs = os.path.join(room.path, "ours.json"), os.path.join(room.path, "theirs.pickle")
        with open(ours, "w", encoding="utf-8") as out:
            json.dump(snapshot, out)
        with open(theirs, "wb") as out:
            pickle.dump(torch, out, 4)
        return ours, theirs

    def verbs(path):
        """(words, whether they take --no-lines)."""
        for words, last in all_verbs(path):
            yield (*words, "--no-lines") if words[0] not in ("replay",) and words[-1] not in ("prometheus", "rmm", "gpumem") else words, last

    def all_verbs(path):
        for words in (("--csv",), ("--jsonl",), ("--stack", "x"), ()):
            yield ("events", *words), path
        yield ("leaks",), path
        yield ("leaks", path), path
        for by in ("site", "stack", "module"):
            yield ("diff", "--by", by, path), path
        for weigh in ("live", "peak", "count", "churn"):
            yield ("flame", "-w", weigh), path
        yield ("check", "--max-peak", "1", "--no-leaks"), path
        for to in ("pickle", "pytorch-json", "chrome", "csv", "rmm", "speedscope", "folded", "prometheus", "gpumem"):
            yield ("convert", "--to", to), path
        yield ("merge", path), path
        yield ("replay",), path
        yield ("replay", "--search"), path

    count = 0
    for target in (named, fifo):
        for path in made(target):
            for words, last in verbs(path):
                run = subprocess.run([GPUMEM, *words, last], capture_output=True, timeout=60, check=False)
                seen = watch.seen()
                count += run.returncode in (0, 1)
                if seen or run.returncode < 0:
                    check("%s opens nothing" % " ".join(words), False, (seen, run))
    check("%d runs of every verb opened nothing that the snapshot names" % count, count >= 80 and not watch.seen(), count)

    ours, _ = made(named)
    before = os.stat(named)
    for words in (("summary",), ("summary", "--json"), ("leaks",), ("flame",), ("merge",), ("events", "--stacks"), ("convert", "--to", "folded"), ("symbolize",)):
        run = gpumem(*words, ours)
        seen = watch.seen()
        check("gpumem %s opens it: the watch sees it" % " ".join(words),
              any(mask & IN_OPEN and name == "libnamed.so" for mask, name in seen), (seen, run))
        check("it only reads", not any(mask & (IN_MODIFY | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE) for mask, _ in seen) and
              os.stat(named).st_mtime_ns == before.st_mtime_ns, seen)
    check("a file of another build id gives no names, and that is said", run.returncode == 0 and "build id" in run.stderr and
          not any(f["name"] for f in json.loads(run.stdout)["frames"]), run.stderr)
    notes = subprocess.run(["readelf", "-n", named], capture_output=True, text=True, check=True).stdout
    right = notes.split("Build ID: ")[1].split()[0]
    snapshot = load(ours)
    snapshot["modules"][1]["build_id"] = right
    symbols = subprocess.run(["nm", "-S", "--defined-only", named], capture_output=True, text=True, check=True).stdout
    address, size, _, symbol = next(line.split() for line in symbols.splitlines() if len(line.split()) == 4 and
                                    line.split()[2] in "Tt" and int(line.split()[1], 16) > 32)
    snapshot["frames"][1]["offset"] = int(address, 16) + 8
    with open(ours, "w", encoding="utf-8") as out:
        json.dump(snapshot, out)
    run = gpumem("symbolize", ours)
    check("with the right one the name is there", json.loads(run.stdout)["frames"][1]["name"] == symbol, (symbol, run.stderr))
    watch.seen()
    ours, _ = made(fifo)
    for verb in ("symbolize", "summary", "leaks", "flame", "merge"):
        run = gpumem(verb, ours, timeout=60)
        check("a FIFO in a module's place does not hold %s up" % verb, run.returncode == 0, run)
finish()
