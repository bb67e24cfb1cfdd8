#!/usr/bin/env python3
# timeout: 900
"""Deaths by a signal: the status and the core file are the program's own, and a snapshot or a journal is left, never both.
Words after the script's name choose among its parts: "faults", "hard", ..."""
import glob
import json
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "test")
from tap import B, GPUMEM, LIBRARY, Room, check, finish, live_bytes as live, seed  # noqa: E402

CRASH = os.path.join(B, "test/preload/crash")
SCRIPT = os.path.join(B, "test/preload/script")
LIVE = 4096 + 65536
SECONDS = 60


class Death:
    """One run to its end: the raw status of wait, what it said, what it left."""

    def __init__(self, room, words, preload=True, core=False, act=None, before=None, through=(), program=CRASH, **options):
        env = room.env(preload=preload, FAKECUDA_CAPACITY=16 << 20, **options)
        limit = "unlimited" if core else "0"
        command = ["sh", "-c", "ulimit -c %s; %s exec \"$0\" \"$@\"" % (limit, before or ""), *through, program] + list(words)
        self.child = subprocess.Popen(command, env=env, cwd=room.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True)
        if act:
            self.out = self.child.stdout.readline()
            act(self.child)
        self.status = self.wait()
        self.out = (self.out if act else b"") + self.child.stdout.read()
        self.err = self.child.stderr.read()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            pipe.close()

    def wait(self):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pid, status = os.waitpid(self.child.pid, os.WNOHANG)
            if pid:
                self.child.returncode = 0
                return status
            time.sleep(0.002)
        os.killpg(self.child.pid, signal.SIGKILL)
        os.waitpid(self.child.pid, 0)
        self.child.returncode = 0
        return "hang"

    def seen(self):
        return self.status, self.out, self.err

    def __str__(self):
        return "status %s out %r err %r" % (self.status, self.out[-300:], self.err[-300:])


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def clear(room):
    for path in room.journal_files() + glob.glob(room.out + "/*") + glob.glob(room.path + "/core*"):
        os.unlink(path)


def recovered(room, place=None):
    """What gpumem recover makes of the journals in the room: its objects, and the snapshots."""
    done = subprocess.run([GPUMEM, "recover", "--json", "-o", room.path + "/recovered.%p.json", place or room.journals],
                          cwd=room.path, capture_output=True, text=True, timeout=SECONDS, check=False)
    snapshots = []
    for path in sorted(glob.glob(room.path + "/recovered.*.json")):
        with open(path, encoding="utf-8") as text:
            snapshots.append(json.load(text))
        os.unlink(path)
    return json.loads(done.stdout), snapshots


def deaths(room):
    """Snapshots that a deadly signal made: of a crash, or where the program was ended on purpose."""
    return room.snapshots("crash-") + room.snapshots("ended-")


def compare(name, *words, number=None, snapshot="crash", core=False, same_output=True, size=LIVE, **options):
    """Bare and under the library: the same death. Then the snapshot, or with snapshot=None the journal. Returns it."""
    with Room() as room:
        bare = Death(room, words, preload=False, core=core, **{k: v for k, v in options.items() if k in ("act", "before")})
        cores = len(glob.glob(room.path + "/core*"))
        clear(room)
        ours = Death(room, words, core=core, **options)
        same = bare.seen() == ours.seen() if same_output else bare.status == ours.status
        check("%s: the same end as without the library" % name, same and ours.status != "hang", "%s // %s" % (bare, ours))
        if number:
            check("%s: and that is signal %d" % (name, number), os.WIFSIGNALED(ours.status) and os.WTERMSIG(ours.status) == number,
                  str(ours))
        check("%s: as many core files" % name, len(glob.glob(room.path + "/core*")) == cores, os.listdir(room.path))
        found = deaths(room)
        if snapshot == "crash":
            check("%s: one snapshot, nothing else" % name, len(found) == 1 and len(room.files()) == 1 and
                  not room.journal_files(), (room.files(), room.journal_files()))
        else:
            check("%s: no snapshot, but a journal" % name, not room.files() and len(room.journal_files()) == 1,
                  (room.files(), room.journal_files()))
            told, found = recovered(room)
            check("%s: recovered" % name, len(told) == 1 and len(found) == 1 and not told[0]["error"] and
                  not room.journal_files(), told)
        if not found:
            return None
        check("%s: it shows what was live" % name, live(found[0]) == size and found[0]["consistent"], live(found[0]))
        return found[0]


def symbolized(snapshot):
    """With the names that gpumem symbolize finds: the crash path opens no file, so that it knows few."""
    with tempfile.TemporaryDirectory() as place:
        with open(place + "/a.json", "w", encoding="utf-8") as text:
            json.dump(snapshot, text)
        subprocess.run([GPUMEM, "symbolize", place + "/a.json", "-o", place + "/b.json"], capture_output=True, timeout=SECONDS,
                       check=False)
        if not os.path.exists(place + "/b.json"):
            return snapshot
        with open(place + "/b.json", encoding="utf-8") as text:
            return json.load(text)


def names(snapshot):
    stack = snapshot["stacks"][snapshot["failure"]["stack"]]
    return [snapshot["frames"][f]["name"] for f in stack]


# ---- the signals --------------------------------------------------------------------------------

def faults():
    for way, number, code, top in [("segv", 11, 1, ["touch"]), ("gp", 11, 128, ["touch"]), ("call", 11, 1, ["main"]),
                                   ("bus", 7, 2, ["main"]), ("fpe", 8, 1, ["main"]), ("ill", 4, 2, ["main"]),
                                   ("trap", 5, 128, ["main"]), ("thread", 11, 1, ["touch", "crash_together"])]:
        snapshot = compare(way, way, number=number)
        if not snapshot:
            continue
        failure = snapshot["failure"]
        check("%s: signal, code, thread, registers" % way, failure["type"] == "crash" and failure["signal"] == number and
              failure["code"] == code and failure["signal_name"] == signal.Signals(number).name and failure["thread"] and
              failure["registers"] and failure["sender_pid"] is None, failure)
        stack = [n for n in names(symbolized(snapshot)) if n]
        check("%s: the stack, by name once symbolized" % way, [n for n in stack if n in top][:len(top)] == top and
              not failure["truncated"], names(snapshot))
        pcs = failure["pcs"]
        check("%s: the same as addresses in modules" % way, len(pcs) == len(names(snapshot)) and
              (way == "call" or snapshot["modules"][pcs[0]["module"]]["path"] == CRASH), pcs)
        check("%s: who holds what" % way, failure["holders"][0]["by_module"][0]["allocated_bytes"] == LIVE,
              failure["holders"])
        check("%s: life and reason" % way, snapshot["process"]["life"] == "crashed" and snapshot["reason"] == "crash",
              snapshot["process"])
        if way == "segv":
            with Room() as room:
                Death(room, [way])
                subprocess.run([GPUMEM, "symbolize", "-o", room.out + "/named"] + glob.glob(room.out + "/*"), timeout=SECONDS,
                               check=False, capture_output=True)
                done = subprocess.run([GPUMEM, "summary", room.out + "/named"], capture_output=True, text=True,
                                      timeout=SECONDS, check=False)
                check("segv: gpumem summary says what and where", "died of SIGSEGV" in done.stdout and
                      re.search(r"address 0x10\n  in no block .*\n  touch \(\S*crash\.c:\d+\)\n", done.stdout), done.stdout[:500])
            check("segv: the address", failure["address"] == 0x10, failure["address"])


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as text:
        return text.read().split()


def opens_nothing():
    """From the signal on no file is opened, by whichever thread, but the snapshot: seen by ptrace."""
    for way in ("segv", "thread", "abort", "load"):
        with Room() as room:
            words = [way] + (["2"] if way == "load" else [])
            log = room.path + "/opened"
            act = {"load": lambda child: [os.kill(int(pid), signal.SIGTERM) for pid in children_of(child.pid)]}.get(way)
            ours = Death(room, words, act=act, through=[os.path.join(B, "test/preload/opens"), log])
            if ours.status == 77 << 8:
                check("the crash path opens no file # SKIP ptrace is not allowed here", True)
                return
            with open(log, encoding="utf-8") as text:
                opened = [line.rstrip("\n").split(" ", 1) for line in text]
            flags = [int(word, 16) for word, _ in opened]
            files = [path for (_, path), f in zip(opened, flags) if not f & os.O_DIRECTORY or f & os.O_TMPFILE == os.O_TMPFILE]
            found = deaths(room)
            check("%s: a snapshot" % way, len(found) == 1 and live(found[0]) >= LIVE, (str(ours), room.files()))
            check("%s: no file is opened from the signal on but the snapshot" % way, len(files) == 1 and
                  (files[0] == "." or files[0].startswith(".gpumem-") and files[0].endswith(".tmp")), opened)


def stuck():
    """A module lies on a mount that does not answer, and whoever reads its names stands there: nobody else does."""
    def run(act=None, program=CRASH, words=("wait",), **options):
        mark = room.path + "/stuck"
        stuck_file = {"STUCK_FILE": os.path.basename(program), "STUCK_MARK": mark,
                      "LD_PRELOAD": os.path.join(B, "test/preload/libstuckfile.so") + ":" + LIBRARY}

        def act_then(child):
            wait_for(lambda: os.path.exists(mark))
            act(child)
        return Death(room, words, program=program, act=act and act_then, **stuck_file, **options), os.path.exists(mark)

    with Room() as room:
        ours, there = run(lambda child: os.kill(child.pid, 15))
        found = deaths(room)
        check("a stuck file: a crash has its snapshot nevertheless", there and ours.status == 15 and len(found) == 1 and
              live(found[0]) == LIVE and not room.journal_files(), (str(ours), there, room.files(), room.journal_files()))
    with Room() as room:
        def ask(child):
            for number in (1, 2):
                os.kill(child.pid, signal.SIGUSR1)
                wait_for(lambda n=number: len(room.snapshots("signal-")) == n)
            os.kill(child.pid, 9)
        ours, there = run(ask)
        check("a stuck file: so has a signal that asks for one, twice", there and ours.status == 9 and
              [live(s) for s in room.snapshots("signal-")] == [LIVE] * 2, (str(ours), there, room.files()))
    for name, program, words, size in (("an exit", CRASH, ["exit"], LIVE),
                                       ("the end of a last thread", SCRIPT, ["alloc 10", "pthread_exit"], 10)):
        with Room() as room:
            ours, there = run(program=program, words=words)
            found = room.snapshots("exit")
            check("a stuck file: so has %s" % name, there and ours.status == 0 and len(found) == 1 and live(found[0]) == size and
                  not room.journal_files() and not ours.err, (str(ours), there, room.files(), room.journal_files()))


def sent():
    for number in (1, 2, 3, 4, 5, 6, 7, 8, 11, 15, 31):
        snapshot = compare("raise %d" % number, "raise", str(number), number=number)
        if snapshot:
            failure = snapshot["failure"]
            check("raise %d: the sender is the process itself" % number, failure["signal"] == number and failure["code"] < 0 and
                  failure["sender_pid"] == snapshot["process"]["pid"] and failure["sender_uid"] == os.getuid() and
                  failure["address"] is None, failure)
            check("raise %d: called a crash, or ended on purpose" % number, snapshot["reason"] == ("ended" if number in (1, 2, 15) else "crash"),
                  snapshot["reason"])
    snapshot = compare("from outside", "wait", number=15, act=lambda child: os.kill(child.pid, 15))
    check("from outside: the sender is known", snapshot and snapshot["failure"]["sender_pid"] == os.getpid() and
          snapshot["failure"]["code"] == 0, snapshot and snapshot["failure"])
    compare("SEGV from outside", "wait", number=11, act=lambda child: os.kill(child.pid, 11))
    compare("to the process group, twice", "wait", number=2, act=lambda child: [os.killpg(child.pid, 2), os.killpg(child.pid, 2)])
    compare("sigqueue with a value", "queue", "15", number=15)
    compare("abort", "abort", number=6)
    compare("std::terminate", "terminate", number=6)


def terminal():
    """Ctrl-C on a terminal: the kernel sends it to the whole group in front."""
    with Room() as room:
        ends = []
        for preload in (False, True):
            pid, master = os.forkpty()
            if pid == 0:
                os.chdir(room.path)
                os.execve(CRASH, [CRASH, "wait"], room.env(preload=preload))
            text = b""
            end = time.monotonic() + SECONDS
            while b"waiting" not in text and time.monotonic() < end:
                if select.select([master], [], [], 1)[0]:
                    text += os.read(master, 100)
            os.write(master, b"\x03")
            status = 0
            while time.monotonic() < end:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                time.sleep(0.005)
            else:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                status = "hang"
            os.close(master)
            ends.append(status)
        check("Ctrl-C: dies of SIGINT as without the library", ends[0] == ends[1] == signal.SIGINT, ends)
        found = deaths(room)
        check("Ctrl-C: one snapshot that says so", len(found) == 1 and found[0]["failure"]["signal_name"] == "SIGINT" and
              found[0]["reason"] == "ended" and found[0]["failure"]["address"] is None and found[0]["failure"]["sender_pid"] is None and
              not room.journal_files(), room.files())


# ---- core files ---------------------------------------------------------------------------------

def notes(path):
    """Of a core file: (signal, si_code, the low 12 bits of the instruction pointer of the thread that died)."""
    with open(path, "rb") as file:
        data = file.read(1 << 20)
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = {}
    for i in range(count):
        kind, _, at, _, _, length = struct.unpack_from("<IIQQQQ", data, offset + i * size)
        end = at + length
        while kind == 4 and at < end:
            name, desc, note = struct.unpack_from("<III", data, at)
            body = at + 12 + (name + 3) // 4 * 4
            if note not in found:
                found[note] = data[body:body + desc]
            at = body + (desc + 3) // 4 * 4
    number, _, code = struct.unpack_from("<iii", found[0x53494749])
    rip, = struct.unpack_from("<Q", found[1], 112 + 16 * 8)
    return number, code, rip & 0xfff


def cores():
    with open("/proc/sys/kernel/core_pattern", encoding="ascii") as text:
        to_file = not text.read().startswith(("|", "/"))
    for way in (["segv"], ["gp"], ["fpe"], ["trap"], ["abort"], ["raise", "3"], ["queue", "11"], ["threads", "8"]):
        name = " ".join(way)
        with Room() as room:
            bare = Death(room, way, preload=False, core=True)
            first = glob.glob(room.path + "/core*")
            of_bare = notes(first[0]) if to_file and first else None
            clear(room)
            ours = Death(room, way, core=True)
            second = glob.glob(room.path + "/core*")
            check("core of %s: dumped as without the library" % name, bare.status == ours.status and
                  len(first) == len(second), (bare.status, ours.status, first, second))
            if of_bare and second:
                check("core of %s: the same signal, code and place" % name, of_bare == notes(second[0]),
                      (of_bare, notes(second[0])))
            check("core of %s: and a snapshot" % name, len(deaths(room)) == 1, room.files())


# ---- where it is hard ---------------------------------------------------------------------------

def hard():
    compare("8 threads at once", "threads", "8", number=11)
    compare("64 threads at once", "threads", "64", number=11)
    compare("in malloc, its lock held", "malloc", number=6)
    compare("a handler on an alternate stack", "handler", number=11)
    compare("a handler on one of 8 KiB", "handler", "8192", number=11)
    compare("a stack overflow with an alternate stack", "overflow_altstack", number=11)
    # The handler itself takes less than 2 KiB.
    compare("an alternate stack with 2 KiB to spare", "least_altstack", "2048", number=11)
    # What the cache has is recorded by the time the program gets its address, by our own store. Only a call that goes
    # to the driver dies there, and is in flight.
    for allocator, served in (({}, 512), ({"allocator": "native"}, 0)):
        snapshot = compare("in the midst of a call" + (", the driver's" if allocator else ""), "driver", number=11, size=LIVE + served,
                           **allocator)
        check("in the midst of a call: on the stack, and in flight where it is the driver's", snapshot and
              "cuMemAlloc_v2" in names(symbolized(snapshot)) and
              sum(f["size"] for f in snapshot["recovered"]["in_flight"]) == 512 - served, snapshot and snapshot["recovered"])
    with Room() as room:
        ours = Death(room, ["library"])
        [snapshot] = deaths(room)
        check("in the library itself: a snapshot that shows it", ours.status == 11 and live(snapshot) == LIVE and
              "gpumem_memory_stats" in names(symbolized(snapshot)) and not room.journal_files(), (str(ours), names(snapshot)))
    compare("a thread with 16 KiB of stack", "small_stack", number=11)
    compare("every descriptor closed", "closed", number=11)
    compare("a small RLIMIT_STACK", "segv", number=11, before="ulimit -s 64;")
    snapshot = compare("a stack overflow", "overflow", number=11, snapshot=None)
    check("a stack overflow: killed without a word", snapshot and snapshot["process"]["life"] == "killed" and
          snapshot["failure"] is None, snapshot and snapshot["process"])
    # Another snapshot is being written at that moment.
    with Room() as room:
        ours = Death(room, ["many", "100000"])
        check("while a snapshot is written: both are there", os.WTERMSIG(ours.status) == 11 and len(room.snapshots("signal-")) == 1 and
              len(deaths(room)) == 1 and not room.journal_files(), (str(ours), room.files(), room.journal_files()))


def handlers():
    """Handlers of the program's own replace ours, and what they find behind them works."""
    for name, words, number in [("puts back what it found, and raises", ["chain"], 11), ("calls what it found", ["call_found"], 11),
                                ("had its own for a while", ["restored"], 15)]:
        compare("a program that %s" % name, *words, number=number)
    for name, words, act in [("recovers from its faults", ["own"], None),
                             ("has its own SIGTERM handler", ["own_term"], lambda child: os.kill(child.pid, 15))]:
        with Room() as room:
            bare = Death(room, words, preload=False, act=act)
            ours = Death(room, words, act=act)
            check("a program that %s: as without the library" % name, bare.seen() == ours.seen() and os.WIFEXITED(ours.status),
                  "%s // %s" % (bare, ours))
            check("a program that %s: an exit, no crash" % name, len(room.snapshots(".exit")) == 1 and len(room.files()) == 1,
                  room.files())


def ignored():
    """What the parent ignored stays ignored: nohup, background jobs of a shell."""
    def act(child):
        for number in (1, 2, 15):
            os.kill(child.pid, number)
        time.sleep(0.2)
        os.kill(child.pid, 9)
    compare("signals that the parent ignored", "wait", number=9, snapshot=None, before="trap '' HUP INT TERM;", act=act)


def children():
    for words in (["child"], ["child", "15"], ["vfork"]):
        name = "%s that never called CUDA" % " ".join(words)
        with Room() as room:
            bare = Death(room, words, preload=False)
            ours = Death(room, words)
            check("a %s: dies as ever" % name, bare.seen() == ours.seen() and b"child: -1" in ours.out, "%s // %s" % (bare, ours))
            check("a %s: leaves nothing of its own" % name, len(room.files()) == 1 and len(room.snapshots(".exit")) == 1,
                  room.files())
    with Room() as room:
        def act(child):
            told, found = recovered(room)
            check("exec: the journal of what was before is recovered while the new program runs", len(found) == 1 and
                  live(found[0]) == LIVE and found[0]["process"]["life"] == "killed", told)
            child.stdin.write(b"\n")
            child.stdin.flush()
        ours = Death(room, ["exec"], act=act)
        check("exec: the new program dies by the default", ours.status == 11 and len(room.files()) == 1 and
              room.snapshots("api"), (str(ours), room.files()))


def left_alone():
    for options in ({"snapshot_on": "exit,signal"}, {"snapshot_on": "none"}):
        snapshot = compare("snapshot_on:" + options["snapshot_on"], "segv", number=11, snapshot=None, **options)
        check("snapshot_on:%s: nothing is known of the signal" % options["snapshot_on"], snapshot and not snapshot["failure"],
              snapshot and snapshot["failure"])


def nowhere():
    """The snapshot cannot be written: it is beside the journal (in TMPDIR where that is in memory), else the journal stays."""
    with Room() as room:
        ours = Death(room, ["segv"], output="/proc/nowhere/%p.json", TMPDIR=room.out)
        check("no such directory: another place", ours.status == 11 and b"/proc/nowhere" in ours.err and
              len([f for place in (room.journals, room.out) for f in glob.glob(place + "/**/*.json", recursive=True)]) == 1,
              (str(ours), room.journal_files()))
    with Room() as room:
        script = ("mkdir full && mount -t tmpfs -o size=4k none full && env %s %s segv; echo status $?; ls -A full"
                  % (" ".join("%s='%s'" % (k, v) for k, v in room.env(output=room.path + "/full/%p.json").items()
                              if k.startswith(("GPUMEM_", "LD_"))), CRASH))
        flags = ["-m"] if os.getuid() == 0 else ["-U", "-r", "-m"]
        done = room.run(["unshare"] + flags + ["sh", "-c", script], preload=False)
        left = room.journal_files() + glob.glob(room.journals + "/**/*.json", recursive=True)
        check("a full disk: the same death, and something that tells of it", "status 139" in done.stdout and len(left) == 1 and
              not done.stdout.split("status 139")[1].strip(), (done.stdout, done.stderr, left))
        told, found = recovered(room)
        check("a full disk: nothing is lost", [live(s) for s in found] == [LIVE] if room.journal_files() or found else True, told)


def written_already():
    """The process wrote its snapshot and was killed before it could remove the journal: no second one."""
    with Room() as room:
        inside = os.path.join(room.journals, "gpumem-run-test")
        os.mkdir(inside, 0o700)
        Death(room, ["segv"], journal=inside)
        check("in a directory of gpumem run's the journal stays", len(room.journal_files()) == 1 and
              len(deaths(room)) == 1, room.files())
        done = subprocess.run([GPUMEM, "recover", "--keep", room.journal_files()[0]], cwd=room.path, capture_output=True,
                              text=True, timeout=SECONDS, check=False)
        check("recover says what it died of, and where the snapshot is", "died of SIGSEGV" in done.stdout and
              room.out in done.stdout and "written when it crashed" in done.stdout, done)
        told, found = recovered(room, inside)
        check("and makes no second one", told[0]["written"] and told[0]["signal"] == "SIGSEGV" and told[0]["removed"] and
              not found and not room.journal_files(), told)
        Death(room, ["segv"], journal=inside)
        for path in glob.glob(room.out + "/*"):
            os.unlink(path)
        told, found = recovered(room, inside)
        check("unless that is gone", not told[0]["written"] and len(found) == 1 and found[0]["failure"]["signal"] == 11 and
              found[0]["process"]["life"] == "crashed" and "touch" in names(symbolized(found[0])), told)


def run_says():
    for words, says in ((["segv"], "died of SIGSEGV"), (["raise", "15"], "ended by SIGTERM"), (["overflow"], "died of SIGSEGV")):
        with Room() as room:
            env = room.env(preload=False, output=room.out + "/%c.%p.%r.json")
            done = subprocess.run([GPUMEM, "run", "--", CRASH] + words, env=env, cwd=room.path, capture_output=True, text=True,
                                  timeout=SECONDS, check=False)
            number = 15 if "15" in words else 11
            check("gpumem run of %s: its own end, and a line with the snapshot" % words[0], done.returncode == -number and
                  says in done.stderr and len(room.files()) == 1 and room.files()[0] in done.stderr, (done, room.files()))


# ---- at any moment ------------------------------------------------------------------------------

def at_random():
    rounds = int(os.environ.get("GM_KILLS", "100"))
    begin = seed()
    generator = random.Random(begin)
    bad, done, crashes, journals = [], 0, 0, 0
    with Room() as room:
        while done < rounds:
            numbers = [generator.choice([11, 15, 6, 2]) for _ in range(generator.choice([1, 1, 2]))]
            wait = generator.choice([0, 0.0005, 0.003, 0.02]) * generator.random()
            between = 0.003 * generator.random()
            kill_after = generator.choice([None, None, None, 0.02 * generator.random()])

            def act(child):
                time.sleep(wait)
                for number in numbers:
                    os.kill(child.pid, number)
                    time.sleep(between)
                if kill_after:
                    time.sleep(kill_after)
                    os.kill(child.pid, 9)
            # With allocator:native each allocation has a segment of its own, and the driver's call in its midst.
            ours = Death(room, ["load", str(generator.choice([1, 2, 4]))], act=act, **({"allocator": "native"} if done % 4 == 1 else {}))
            allowed = set(numbers) | ({9} if kill_after else set())
            left = [f for f in room.files() if f.endswith(".json") and not f.startswith(".")]
            found = deaths(room)
            told, again = recovered(room)
            what = (numbers, kill_after, str(ours), left, [t["error"] for t in told])
            # One whose journal went with its snapshot may have been killed in between: then it says so.
            if not isinstance(ours.status, int) or (ours.status & 127) not in allowed:
                bad.append(("status",) + what)
            if not kill_after and len(numbers) == 1 and ours.status != numbers[0]:
                bad.append(("another status",) + what)
            if len(left) + len(again) != 1 or room.journal_files():
                bad.append(("%d snapshots, %d recovered" % (len(left), len(again)),) + what)
            for snapshot in found + again:
                if sum(len(s["blocks"]) for s in snapshot["segments"]) < 2:
                    bad.append(("lost",) + what)
                if not snapshot["consistent"]:
                    bad.append(("%s, not of one moment" % snapshot["reason"],) + what)
            crashes += len(left)
            journals += len(again)
            done += 1
            clear(room)
            for path in glob.glob(room.out + "/.*"):
                os.unlink(path)
    print("# %d deaths: %d snapshots by the process itself, %d recovered" % (done, crashes, journals))
    check("killed at %d random moments: its own status, one snapshot or one journal, never a hang" % rounds, not bad,
          (begin, len(bad), bad[:3]))


ALL = (faults, opens_nothing, stuck, sent, terminal, cores, hard, handlers, ignored, children, left_alone, nowhere, written_already,
       run_says, at_random)
for part in ALL:
    if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
        part()
finish()
