"""Inputs of which much more comes than they are: each verb says that it is too much, soon and in bounded memory; --no-limit takes them."""
# timeout: 400
import gzip
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import GPUMEM, Room, check, finish  # noqa: E402

SAID = "--no-limit is for who means it"


def run(*words, out="/dev/null", lifted=()):
    """One verb with a last resort: (exit status, stderr, bytes written, seconds)."""
    def last():
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    began = time.monotonic()
    with subprocess.Popen([GPUMEM, words[0], *lifted, *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=last) as child:
        written = 0
        while block := child.stdout.read(1 << 20):
            written += len(block)
            if written > 1 << 30:
                os.kill(child.pid, signal.SIGKILL)
        said = child.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, said, written, usage.ru_maxrss * 1024, time.monotonic() - began


def refused(what, *words):
    status, said, written, memory, _ = result = run(*words)
    most = (64 << 20) + 1000 * os.stat(words[-1]).st_size
    return check("%s: %s: refused, said, in bounded memory" % (what, " ".join(words[:3 if words[0] == "convert" else 1])),
                 status in (1, 3) and said.endswith(SAID + "\n") and said.count("\n") == 1 + (words[0] == "symbolize") and written < most and memory < 1 << 30, result)


def lay(room, name, content):
    path = os.path.join(room.path, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def event(**more):
    return dict({"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 1, "frames": []}, **more)


def torch(trace, count=1):
    return pickle.dumps({"segments": [], "device_traces": [trace] * count, "allocator_settings": {}}, protocol=4)


with Room() as room:
    # ---- packed -------------------------------------------------------------------------------------------------------
    packed = lay(room, "blank.gz", gzip.compress(b"\n" * (1 << 24)) * 64)
    check("2^30 blank lines are %d bytes" % os.stat(packed).st_size, os.stat(packed).st_size < 2 << 20)
    refused("2^30 blank lines", "replay", packed)
    refused("2^30 blank lines", "replay", "--search", packed)
    lay(room, "blank.gz", gzip.compress(b"a 1 5 0\n" * (1 << 21)) * 113)
    refused("1.9 GB of lines", "replay", packed)
    refused("1.9 GB of lines", "replay", "--verify", os.path.abspath("test/traces/streams.stats.json"), packed)
    lay(room, "blank.gz", gzip.compress(b"e\n" * (30 << 20), 1))
    status, said, _, memory, _ = result = run("replay", packed)
    check("60 MB of the shortest lines: not one byte beyond the limit", SAID in said and memory < 1 << 30, result)

    # ---- one thing, named again and again ----------------------------------------------------------------------------
    bomb = ["x" * 40]
    for _ in range(27):
        bomb = [bomb, bomb]
    doubled = lay(room, "doubled.pickle", torch([event(user_metadata=bomb)]))
    check("2^27 texts are %d bytes" % os.stat(doubled).st_size, os.stat(doubled).st_size < 1000)
    refused("2^27 texts", "convert", "--to", "pytorch-json", doubled)
    status, said, written, _, _ = result = run("convert", "--to", "pickle", doubled)
    check("as a pickle it is as small as it was", status == 0 and written < 2000, result)
    long = lay(room, "long.pickle", torch([event(action="alloc" + "y" * (100 << 10))] * 100000))
    for words in (["convert", "--to", "csv"], ["convert", "--to", "pytorch-json"], ["events", "--csv"], ["events", "--jsonl"], ["convert", "--to", "gpumem"],
                  ["symbolize"]):
        refused("100,000 events of 100 KiB, one and the same", *words, long)
    os.unlink(long)
    wide = lay(room, "wide.pickle", torch([event()] * 30000, 30000))
    check("9 * 10^8 events are %d bytes" % os.stat(wide).st_size, os.stat(wide).st_size < 1 << 20)
    for words in (["summary"], ["diff", os.path.abspath("test/data/torch-snapshot.pickle")], ["merge"], ["replay"], ["convert", "--to", "chrome"]):
        refused("9 * 10^8 events", *words, wide)
    frames = [{"filename": "f" * 1000, "name": "n" * 1000, "line": 7}] * 200000
    blocks = [{"address": 512 * i, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": [frames[0]] * (1 + i)} for i in range(300)]
    shared = pickle.dumps({"segments": [{"device": 0, "address": 0, "total_size": 512 * 300, "allocated_size": 512 * 300, "active_size": 512 * 300,
                                         "requested_size": 512 * 300, "stream": 0, "segment_type": "large", "blocks": blocks}], "device_traces": [[]]}, protocol=4)
    path = lay(room, "shared.pickle", shared)
    for words in (["leaks", "--json"], ["convert", "--to", "pytorch-json"], ["convert", "--to", "folded"]):
        status, said, written, memory, _ = result = run(*words, path)
        check("300 stacks of one frame (%d KB): %s: in proportion, or said" % (len(shared) >> 10, " ".join(words)), memory < 1 << 30 and
              (status == 0 and written < (64 << 20) + 1000 * len(shared) or SAID in said), result)

    # ---- what is real is far from any limit, and who means it has it all ----------------------------------------------
    for name in os.listdir("test/traces"):
        if name.endswith(".trace.gz") and "stream" in name:
            status, said, written, _, _ = result = run("replay", "test/traces/" + name)
            check("%s is a real trace" % name, status == 0 and written, result)
    large = os.path.join(room.path, "large")
    subprocess.run([sys.executable, "test/bench/large.py", "--events", "100000", "--frames", "20000", "--stacks", "5000", "--live", "2000", large], check=True)
    for words in (["convert", "--to", "pytorch-json"], ["convert", "--to", "csv"]):
        status, said, written, memory, _ = result = run(*words, large)
        check("a real snapshot: %s: %d times the input, %d times in memory" % (words[2], written / os.stat(large).st_size, memory / os.stat(large).st_size),
              status == 0 and SAID not in said, result)
    small = ["x" * 40]
    for _ in range(21):
        small = [small, small]
    few = lay(room, "few.pickle", torch([event(user_metadata=small)]))
    refused("2^21 texts", "convert", "--to", "pytorch-json", few)
    status, said, written, _, _ = result = run("convert", "--to", "pytorch-json", few, lifted=["--no-limit"])
    check("2^21 texts with --no-limit: all of them", status == 0 and written > 40 << 21, result)
    lay(room, "blank.gz", gzip.compress(b"\n" * (80 << 20) + b"a 1 512 0\nr 1\nf 1\n", 9))
    refused("80 MiB of blank lines", "replay", packed)
    status, said, _, _, _ = result = run("replay", packed, lifted=["--no-limit"])
    check("80 MiB of blank lines with --no-limit: what is behind them", status == 0, result)
    with open(large, "rb") as file:
        piped = subprocess.run(["sh", "-c", 'cat "$1" | "$0" summary -', GPUMEM, large], capture_output=True, text=True, check=False)
    check("through a pipe, whose length nobody knows: the same limits, and none is met", piped.returncode == 0 and not piped.stderr, piped.stderr)
    check("what it says is JSON", isinstance(json.loads(subprocess.run([GPUMEM, "summary", "--json", large], capture_output=True, check=True).stdout), dict))
finish()
