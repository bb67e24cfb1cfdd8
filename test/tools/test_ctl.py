#!/usr/bin/env python3
"""gpumem ctl: each command is seen to work in a living program, whatever the program is doing, and whoever else asks; what
does not answer is said to, within the time that is promised."""
import fcntl
import json
import mmap
import os
import re
import random
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, LIBRARY, Room, check, finish  # noqa: E402
from verbs import HelperStopped, Program, gpumem, journals_begun, load, stopped, wait_for  # noqa: E402

SCRIPT = os.path.join(B, "test/preload/script")
MIB = 1 << 20
MARK = 0x5ca1ab1e000            # a limit that stands nowhere else in a header
TURN, COMMAND, BYTES, RESULT = 4, 8, 16, 24     # of struct gm_control


def ctl(pid, *words):
    return gpumem("ctl", str(pid), *words, timeout=100)


def state(pid, *words):
    """What is in force, after a command."""
    done = ctl(pid, "--json", *words)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr, "devices": [{}]}


def until(name):
    """A word for the script: wait for a file."""
    return "system until test -e %s; do sleep 0.05; done" % name


def go(room, name):
    with open(os.path.join(room.path, name), "wb"):
        pass


class Waiting(Program):
    """Memory of 100 MiB that is held, 30 MiB that lie idle, and then it waits; it may be asked when this returns."""

    def __init__(self, room, *before, helper=True, **options):
        super().__init__(room, SCRIPT, *before, "alloc %d" % (100 * MIB), "alloc %d" % (30 * MIB), "free", "say ready", "system true",
                         "sleep 600000", **options)
        # Its helper thread may begin a little later than the program does.
        assert self.until("ready") and (not helper or wait_for(lambda: ctl(self.pid).returncode == 0)), "it does not run"


def effects():
    with Room() as room, Program(room, SCRIPT, "alloc %d" % (100 * MIB), "alloc %d" % (30 * MIB), "free", "say one", until("1"),
                                 "alloc 5000000", "say two", until("2"), "alloc 6000000", "free", "free", "say three", until("3"), "alloc %d" % (400 * MIB),
                                 "say four", until("4"), "alloc %d" % (400 * MIB), "say five", until("5"), "exit 0",
                                 snapshot_on="exit,oom") as program:
        check("the program runs", program.until("one"))
        first = state(program.pid)
        check("without a command: what is in force", (first["history"], first["allocator"], len(first["devices"])) == ("on", "caching", 1) and
              first["devices"][0]["limit_bytes"] is None and first["devices"][0]["reserved_bytes"] >= 130 * MIB, first)
        text = ctl(program.pid)
        check("and as text", text.returncode == 0 and "history: on" in text.stdout and "device 0: allocated" in text.stdout and
              "limit none" in text.stdout and not text.stderr, text)
        off = state(program.pid, "history", "off")
        check("history off, and on before", (off["history"], off["history_before"]) == ("off", "on"), off)
        check("history alone changes nothing", state(program.pid, "history")["history"] == "off")
        go(room, "1")
        program.until("two")
        part = state(program.pid, "history", "state")
        check("history state", (part["history"], part["history_before"]) == ("state", "off"), part)
        check("history on", state(program.pid, "history", "on")["history"] == "on")
        go(room, "2")
        program.until("three")
        peaks = state(program.pid, "reset-peaks")["devices"][0]
        check("reset-peaks: the peak is what is held, and it says what it was", peaks["peak_bytes"] == peaks["allocated_bytes"] <
              peaks["peak_before_bytes"] and peaks["peak_before_bytes"] >= 130 * MIB, peaks)
        now = state(program.pid)["devices"][0]
        emptied = state(program.pid, "empty-cache")["devices"][0]
        check("empty-cache: what it says was given back is no longer reserved", emptied["given_back_bytes"] > 0 and
              now["reserved_bytes"] - emptied["given_back_bytes"] == emptied["reserved_bytes"], (now, emptied))
        limited = state(program.pid, "memory-limit", "300MiB")["devices"][0]
        check("memory-limit: the new one and the old one", (limited["limit_bytes"], limited["limit_before_bytes"], limited["limited_by"]) ==
              (300 * MIB, None, "gpumem_ctl"), limited)
        check("without a size it is read", state(program.pid, "memory-limit")["devices"][0]["limit_bytes"] == 300 * MIB)
        go(room, "3")
        program.until("four")
        check("what goes past it finds no memory", program.said("alloc: 2"), program.said("alloc"))
        below = ctl(program.pid, "memory-limit", "1MiB")
        check("a limit below what is held takes nothing away, and that is said", below.returncode == 0 and re.search(
            r"^device 0: more than the limit is reserved\. The program keeps it, but gets no new memory from the driver until enough of it was given back$",
            below.stdout, re.M) and
              state(program.pid)["devices"][0]["reserved_bytes"] >= 100 * MIB, below)
        lifted = state(program.pid, "memory-limit", "none")["devices"][0]
        check("none lifts it", (lifted["limit_bytes"], lifted["limit_before_bytes"]) == (None, MIB), lifted)
        go(room, "4")
        program.until("five")
        more = state(program.pid)["devices"][0]
        check("and the same request is served", more["allocated_bytes"] >= 500 * MIB, more)
        go(room, "5")
        program.child.wait(timeout=60)
        failure = [s["failure"] for s in room.snapshots("oom")]
        check("the snapshot of the failure says who set the limit", [(f["refused_by"], f["limit_bytes"]) for f in failure] ==
              [("gpumem_ctl", 300 * MIB)], failure)
        trace = room.snapshots("exit")[0]["device_traces"][0]
        sizes = [size for action, size in zip(trace["action"], trace["size"]) if action == "alloc"]
        check("history off: no events; on: events again", sizes == [6000000, 400 * MIB], sizes)
        with open(program.output, encoding="utf-8") as out:
            check("the program ended as it would have", program.child.returncode == 0 and out.read().count("alloc: ") == 1)


def refusals():
    with Room() as room, Waiting(room, allocator="native") as program:
        done = ctl(program.pid, "memory-limit", "1GiB")
        check("native: no limit, exit 1", done.returncode == 1 and "native" in done.stderr and done.stderr.count("\n") == 1, done)
        done = ctl(program.pid, "empty-cache")
        check("native: there is no cache to empty", done.returncode == 0 and "caches nothing" in done.stdout, done)
        done = ctl(program.pid, "--device", "7", "reset-peaks")
        check("a device that it has not used: exit 1", done.returncode == 1 and "has not used" in done.stderr, done)
    with Room() as room, Waiting(room, history="0") as program:
        done = ctl(program.pid, "history", "off")
        again = ctl(program.pid, "history", "on")
        check("no room for events: off works, on does not", done.returncode == 0 and again.returncode == 1 and "option history" in again.stderr,
              (done, again))
    for words, said in ((["memory-limt", "5GiB"], "'memory-limt' is not history, reset-peaks, empty-cache or memory-limit; did you mean memory-limit?\n"),
                        (["reset"], "'reset' is not history, reset-peaks, empty-cache or memory-limit\n"),
                        (["history", "sate"], "'sate' is not on, off or state; did you mean state?\n"), (["reset-peaks", "1"], "'1' is one word too many\n")):
        done = gpumem("ctl", str(program.pid), *words)
        check("ctl %s: the wrong word, and the nearest right one" % " ".join(words), done.returncode == 2 and "gpumem ctl: " + said in done.stderr, done)
    for words in (["history", "maybe"], ["memory-limit", "much"], ["memory-limit", "-1"], ["reset"], ["reset-peaks", "1"], ["--device", "64"],
                  ["--device", "-1"], ["--device", "0", "history", "on"], ["history", "on", "off"], ["12x"], ["0", "history"],
                  ["--timeout", "soon"], ["--timeout", "-1s"]):
        done = ctl(os.getpid(), *words)
        check("ctl PID %s: wrong use, exit 2" % " ".join(words), done.returncode == 2 and done.stderr and not done.stdout, done)
    for word in ("0", "-5", "all", "", "12x", "99999999999999999999"):
        done = gpumem("ctl", "--", word)
        check("ctl %r is refused" % word, done.returncode in (2, 3) and done.stderr, done)
    done = ctl(os.getpid())
    check("a process without the library: exit 3", done.returncode == 3 and "no journal" in done.stderr, done)


def silent():
    """Those who cannot answer."""
    with Room() as room, Waiting(room) as program:
        os.kill(program.pid, signal.SIGSTOP)
        wait_for(lambda: stopped(program.pid))
        done = ctl(program.pid, "memory-limit", "7MiB")
        check("stopped: exit 3, and said", done.returncode == 3 and "is stopped" in done.stderr, done)
        os.kill(program.pid, signal.SIGCONT)
        after = state(program.pid)["devices"][0]
        check("what was not begun is taken back: on it goes without", after.get("limit_bytes", 1) is None, after)
        for _ in range(3):              # killed while it waits for a stopped process
            os.kill(program.pid, signal.SIGSTOP)
            wait_for(lambda: stopped(program.pid))
            with subprocess.Popen([GPUMEM, "ctl", str(program.pid), "reset-peaks"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asks:
                time.sleep(0.1)
                asks.kill()
            os.kill(program.pid, signal.SIGCONT)
            done = ctl(program.pid, "history")
            check("killed while it waits: the next is served", done.returncode == 0, done)
    with Room() as room, Waiting(room, helper=False, LD_PRELOAD=os.path.join(B, "test/preload/libnothread.so") + ":" + LIBRARY) as program:
        done = ctl(program.pid)
        check("no helper thread: exit 3, and said", done.returncode == 3 and "no helper thread" in done.stderr, done)
    for way in ("fork", "clone"):
        with Room() as room, Program(room, SCRIPT, "alloc 1000", way, "system echo $PPID >child; until test -e stop; do sleep 0.05; done",
                                     "end", "exit 0") as program:
            path = os.path.join(room.path, "child")
            child = wait_for(lambda: os.path.exists(path) and open(path, encoding="ascii").read().strip())
            done, parent = ctl(child, "reset-peaks"), ctl(program.pid, "reset-peaks")
            check("%s: the child has no journal, the parent answers" % way, done.returncode == 3 and parent.returncode == 0 and child,
                  (child, done, parent))
            go(room, "stop")
    with Room() as room, Program(room, SCRIPT, "alloc 1000", "execute exec sleep 600") as program:
        wait_for(lambda: os.path.basename(os.readlink("/proc/%d/exe" % program.pid)) == "sleep")
        done = ctl(program.pid)
        check("after exec there is nothing to ask", done.returncode == 3 and "no journal" in done.stderr, done)
    with Room() as room, Waiting(room) as program:
        with open(journals_begun(room, program.pid)[0], "r+b") as file, mmap.mmap(file.fileno(), 65536) as memory:
            done = ctl(os.getpid(), "empty-cache")
            check("who has another one's journal mapped is not that one", done.returncode == 3 and "another process's" in done.stderr, done)
            ctl(program.pid, "memory-limit", str(MARK))
            at = memory.find(struct.pack("<Q", MARK)) - BYTES
            for version, said in ((0, "older"), (2, "newer")):
                memory[at:at + 4] = struct.pack("<I", version)
                done = ctl(program.pid)
                check("version %d of the commands: its library is %s" % (version, said), done.returncode == 3 and said in done.stderr, done)


def histories():
    """What each word records from then on."""
    for word, events, stack in (("on", [5000000, 6000000], True), ("state", [], True), ("off", [], False)):
        with Room() as room, Program(room, SCRIPT, "alloc 1000", "say ready", until("go"), "alloc 5000000", "alloc 6000000", "free", "exit 0",
                                     snapshot_on="exit") as program:
            program.until("ready")
            wait_for(lambda: ctl(program.pid).returncode == 0)
            state(program.pid, "history", "off" if word == "on" else "on")
            said = state(program.pid, "history", word)
            go(room, "go")
            program.child.wait(timeout=60)
            snapshot = room.snapshots("exit")[0]
            trace = snapshot["device_traces"][0]
            block = [b for s in snapshot["segments"] for b in s["blocks"] if b["requested_size"] == 5000000]
            stacks = [snapshot["stacks"][b["stack"]] for b in block if b["stack"] is not None]
            check("history %s: it says so, with %d allocations and %s stack of what is live" % (word, len(events), "the" if stack else "no"),
                  said.get("history") == word and [size for action, size in zip(trace["action"], trace["size"]) if action == "alloc"] == events and
                  len(block) == 1 and any(stacks) == stack, (said, trace, block, stacks))


def several():
    with Room() as room, Waiting(room) as one, Waiting(room, allocator="native") as other:
        done = ctl(one.pid, str(other.pid), "reset-peaks")
        check("two processes: each is told, in order", done.returncode == 0 and [int(line.split()[1]) for line in done.stdout.splitlines()
              if line.startswith("process ")] == [one.pid, other.pid] and done.stdout.count("device 0: ") == 2, done)
        done = ctl(one.pid, str(os.getpid()), str(other.pid), "--json")
        check("one of three has no journal: exit 3, and the others are served", done.returncode == 3 and done.stderr.count("\n") == 1 and
              [p["pid"] for p in json.loads(done.stdout)] == [one.pid, other.pid], done)
        done = ctl(one.pid, str(other.pid), "memory-limit", "300MiB")
        check("one of two cannot: exit 1, and the other has the limit", done.returncode == 1 and "native" in done.stderr and
              state(one.pid)["devices"][0]["limit_bytes"] == 300 * MIB, done)


def late():
    """A helper thread that answers nothing: no limit is waited past, none is cut short, and nothing is left behind."""
    with Room() as room, Waiting(room) as program, open(journals_begun(room, program.pid)[0], "r+b") as file, \
            mmap.mmap(file.fileno(), 65536) as memory:
        ctl(program.pid, "memory-limit", str(MARK))
        at = memory.find(struct.pack("<Q", MARK)) - BYTES
        turn = lambda: struct.unpack_from("<I", memory, at + TURN)[0]  # noqa: E731

        def asked(what, *words, limit=None, at_once=None):
            before = time.monotonic()
            with subprocess.Popen([GPUMEM, "ctl", *(["--timeout", "%gs" % limit] if limit else []), str(program.pid), *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asks:
                if at_once:
                    wait_for(lambda: asks.poll() is not None or at_once())
                out, err = asks.communicate(timeout=100)
            wall = time.monotonic() - before
            check("%s: exit 3 after %s seconds, not before" % (what, limit or 10), asks.returncode == 3 and not out and err.count("\n") == 1 and
                  "within %g second" % (limit or 10) in err and wall >= (limit or 10), (asks.returncode, wall, out, err))
            return err

        def begin():            # as the helper thread does, which then does nothing
            now = turn()
            if now & 3 == 1:
                memory[at + TURN:at + TURN + 4] = struct.pack("<I", now & ~3 | 2)
            return now & 3 == 1

        with HelperStopped(program.pid):
            check("asked, not begun", "gave no answer" in asked("a helper thread that does not begin", "memory-limit", "7MiB", limit=0.5))
            check("and it was taken back", turn() & 3 == 0, turn())
            asked("without --timeout", "memory-limit", "7MiB")
            check("begun, not ended", "has begun" in asked("a helper thread that does not end", "empty-cache", limit=5, at_once=begin))
            check("an earlier one", "earlier command" in asked("an earlier command that does not end", "empty-cache", limit=0.25))
            memory[at + TURN:at + TURN + 4] = struct.pack("<I", turn() & ~3)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 4096, at)
            done = gpumem("ctl", "--timeout", "0.25", str(program.pid), "reset-peaks", timeout=100)
            check("another one has the turn: exit 3, and said", done.returncode == 3 and "another gpumem ctl" in done.stderr, done)
            fcntl.lockf(file, fcntl.LOCK_UN, 4096, at)
        done = state(program.pid)
        check("afterwards it answers, and nothing was done of what was given up", done["devices"][0].get("limit_bytes") == MARK, done)


def undisturbed():
    """Signals are the program's own."""
    with Room() as room, Waiting(room, "handler 10", "handler 12") as program:
        done = ctl(program.pid, "reset-peaks")
        check("a program with handlers of its own: served, and no signal was sent", done.returncode == 0 and not program.said("own handler"), done)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP})
    try:
        with Room() as room, Waiting(room) as program:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            done = ctl(program.pid, "reset-peaks")
            check("a program that blocks all signals: served", done.returncode == 0, done)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def at_once():
    with Room() as room, Waiting(room) as program:
        wrong = []
        for turn in range(3):
            asks = [(mib, subprocess.Popen([GPUMEM, "ctl", "--json", str(program.pid), "memory-limit", "%dMiB" % mib], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True)) for mib in range(200 + 10 * turn, 206 + 10 * turn)]
            for mib, child in asks:
                out, err = child.communicate(timeout=100)
                if child.returncode or '"limit_bytes": %d' % (mib * MIB) not in out:
                    wrong.append((mib, out, err))
        check("six at once, three times: each has the answer to its own", not wrong, wrong[:2])
        pick = random.Random(17)
        for _ in range(40):
            with subprocess.Popen([GPUMEM, "ctl", str(program.pid), "memory-limit", "9GiB"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asks:
                time.sleep(pick.random() * 0.02)
                asks.kill()
        done = state(program.pid, "memory-limit", "none")["devices"][0]
        check("after forty that were killed at any moment the next is served", done.get("limit_bytes", 1) is None and program.child.poll() is None, done)


def dies():
    """The process is killed while it is asked."""
    codes, pick = [], random.Random(18)
    for _ in range(5):
        with Room() as room, Waiting(room) as program:
            over = threading.Timer(pick.random() * 0.2, program.child.kill)
            over.start()
            done = ctl(program.pid, "empty-cache")
            while done.returncode == 0:
                done = ctl(program.pid, "empty-cache")
            over.join()
            codes.append((done.returncode, done.stderr.count("\n")))
    check("killed while it is asked: exit 3 and a line, at each of five deaths", codes == [(3, 1)] * 5, codes)


def scribbled():
    """Anything in the slot, from whoever may write to the file: neither side takes harm."""
    with Room() as room, Program(room, SCRIPT, "alloc 1000", "say ready", "system true", *["alloc 3000000", "free"] * 2000, "say through",
                                 until("stop"), "exit 0") as program:
        program.until("ready")
        ctl(program.pid, "memory-limit", str(MARK))
        with open(journals_begun(room, program.pid)[0], "r+b") as file, mmap.mmap(file.fileno(), 65536) as memory:
            at = memory.find(struct.pack("<Q", MARK)) - BYTES
            pick, codes = random.Random(19), []
            for turn in range(12):
                with subprocess.Popen([GPUMEM, "ctl", str(program.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asks:
                    while asks.poll() is None:
                        where = pick.randrange(TURN, 40 + 64 * 64)
                        memory[at + where:at + where + 8] = pick.randbytes(8)
                        memory[at + COMMAND:at + COMMAND + 16] = struct.pack("<IIQ", pick.randrange(8), pick.choice((0, 1, 63, 64, 2**32 - 1)),
                                                                            pick.choice((0, 1, 2**63, 2**64 - 1)))
                        memory[at + TURN:at + TURN + 4] = struct.pack("<I", pick.randrange(2**30) << 2 | pick.randrange(4) if turn % 2 else
                                                                       pick.randrange(8))
                        time.sleep(0.001)
                    codes.append(asks.returncode)
                    out = asks.stdout.read()
                    if any(c < 32 and c != 10 for c in out):
                        codes.append("control character")
            check("scribbled over: ctl ends with an exit status of its own each time", set(codes) <= {0, 1, 3}, codes)
            memory[at + TURN:at + RESULT] = bytes(RESULT - TURN)
        check("and serves again when it has ended", state(program.pid, "memory-limit", "none")["devices"][0].get("limit_bytes", 1) is None)
        go(room, "stop")
        program.child.wait(timeout=100)
        check("the program went its way", program.child.returncode == 0 and program.said("through"), program.child.returncode)
        check("and its snapshot can be read", all(load(os.path.join(room.out, f)) for f in room.files()) and room.files(), room.files())


for part in sys.argv[1:] or ["effects", "refusals", "histories", "several", "silent", "late", "undisturbed", "at_once", "dies", "scribbled"]:
    globals()[part]()
finish()
