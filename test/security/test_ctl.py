#!/usr/bin/env python3
"""gpumem ctl across users: root may command everybody's processes, their user their own, and nobody else any. What a
hostile user answers does root's gpumem ctl no harm."""
import mmap
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from other_user import STRANGER, USER, Waiting, as_user, wait_for  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import HelperStopped  # noqa: E402

MARK = 0x5ca1ab1e000            # a limit that stands nowhere else in a header
TURN, BYTES, ALL = 4, 16, 40 + 64 * 64


def ctl(pid, *words, uid=0):
    return subprocess.run([GPUMEM, "ctl", str(pid), *words], capture_output=True, timeout=100, cwd="/", check=False,
                          preexec_fn=as_user(uid) if uid else None)


def ready(room):
    os.chmod(room.path, 0o755)
    for place in (room.out, room.journals):
        os.chown(place, USER, USER)


with Room() as room:
    ready(room)
    with Waiting(room, USER) as program:
        own = ctl(program.pid, "reset-peaks", uid=USER)
        check("its user may", own.returncode == 0 and b"device 0" in own.stdout, own)
        done = ctl(program.pid, "memory-limit", "3GiB")
        check("root may", done.returncode == 0 and b"limit 3.00 GiB (was none)" in done.stdout, done)
        done = ctl(program.pid, "memory-limit", "1MiB", uid=STRANGER)
        check("another user may not: exit 3, and the limit stands", done.returncode == 3 and not done.stdout and
              b"belongs to another user" in done.stderr and b"limit 3.00 GiB" in ctl(program.pid).stdout, done)

        # The user writes what he likes while root asks.
        ctl(program.pid, "memory-limit", str(MARK))
        found = [os.path.join(at, name) for at, _, names in os.walk(room.journals) for name in names if name.endswith(".journal")]
        check("its journal is the user's alone", len(found) == 1 and os.stat(found[0]).st_mode & 0o777 == 0o600 and
              os.stat(found[0]).st_uid == USER, found)
        with open(found[0], "r+b") as file, mmap.mmap(file.fileno(), 65536) as memory:
            at, pick, wrong = memory.find(struct.pack("<Q", MARK)) - BYTES, random.Random(7), []
            for turn in range(10):
                with subprocess.Popen([GPUMEM, "ctl", str(program.pid), *(["--json"] if turn % 2 else [])], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) as asks:
                    while asks.poll() is None:
                        asked = struct.unpack_from("<I", memory, at + TURN)[0]
                        memory[at + 24:at + ALL] = struct.pack("<i", 0 if turn < 6 else -pick.randrange(200)) + pick.randbytes(ALL - 28)
                        memory[at + TURN:at + TURN + 4] = struct.pack("<I", asked | 3)      # answered, by him
                    out, err = asks.stdout.read(), asks.stderr.read()
                    if asks.returncode not in (0, 1, 3) or any(c < 32 and c != 10 for c in out + err):
                        wrong.append((asks.returncode, out[:300], err[:300]))
            check("a hostile answer: an exit status of its own, and nothing that a terminal obeys", not wrong, wrong[:2])
            os.ftruncate(file.fileno(), 100)
        done = ctl(program.pid)
        check("a journal that was cut short is no answer", done.returncode == 3 and done.stderr.count(b"\n") == 1, done)

    # He cuts it short while root's command has a part of it mapped: that process is given up, alone.
    for verb, words, length in (("ctl", [], 0), ("ctl", ["memory-limit", "1GiB"], 4096), ("snapshot", [], 0), ("snapshot", [], 4096)):
        with Waiting(room, USER) as program, Waiting(room, USER) as other, \
                open(program.journal(room.journals), "r+b") as file:
            check("the other answers", wait_for(lambda: ctl(other.pid).returncode == 0))
            ctl(program.pid, "memory-limit", str(MARK))
            at = file.read(65536).find(struct.pack("<Q", MARK)) - BYTES
            with HelperStopped(program.pid):
                with subprocess.Popen([GPUMEM, verb, *(["--timeout", "1min"] if verb == "ctl" else []), str(program.pid), str(other.pid), *words],
                                      cwd=room.out, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asks:
                    mapped = "/proc/%d/maps" % asks.pid
                    wait_for(lambda: asks.poll() is not None or ".journal" in open(mapped, encoding="utf-8").read() and
                             (verb == "snapshot" or os.pread(file.fileno(), 1, at + TURN)[0] & 3 == 1))
                    os.ftruncate(file.fileno(), length)
                    out, err = asks.communicate(timeout=100)
            check("cut to %d bytes under gpumem %s: exit 3, said, and the next process is served" % (length, " ".join([verb] + words)),
                  asks.returncode == 3 and err.count(b"\n") == (1 if verb == "ctl" else 2) and b"%d" % program.pid in err and b"%d" % other.pid not in err and
                  b"%d" % other.pid in out and (verb == "snapshot" or b"was cut short" in err), (asks.returncode, out, err))
    with Waiting(room) as program:
        done = ctl(program.pid, uid=USER)
        check("root's own process: no other user may", done.returncode == 3 and not done.stdout, done)
finish()
