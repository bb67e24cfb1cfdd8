#!/usr/bin/env python3
"""Processes that share a device: what one of them freed and caches is the other's when that asks for it.

The fake driver counts what each process has of a device (FAKECUDA_SHARED). idle_time is 0 here, so that memory goes
back because it is asked for, and not because a second has passed, but for the test of just that.
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402

PROGRAM = os.path.join(B, "test/preload/neighbour")
HEAPS = {"segments": {}, "pages": {"GPUMEM_EXPANDABLE_SEGMENTS": "True"}}


class Process:
    """One that is told what to do, line by line."""

    def __init__(self, room, preload=True, **options):
        env = room.env(preload, FAKECUDA_SHARED=os.path.join(room.path, "devices"), FAKECUDA_CAPACITY="1G",
                       FAKECUDA_DEVICES="1", **({"GPUMEM_IDLE_TIME": "0", "GPUMEM_SNAPSHOT_ON": "none"} | options if preload else {}))
        self.run = subprocess.Popen([PROGRAM], env=env, cwd=room.path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()

    def answer(self):
        return self.run.stdout.readline().strip()

    def do(self, *lines):
        """The results of all of them."""
        found = []
        for line in lines:
            self.tell(line)
            found.append(self.answer())
        return " ".join(found)

    def asks(self, line):
        """The result of a request for which others are asked. On a busy machine they may need more than the second that they
        have: then the request is made again."""
        for _ in range(20):
            began = time.monotonic()
            result = self.do(line)
            if result != "2" or time.monotonic() - began < 0.9:
                break
        return result

    def ctl(self, *words):
        """What gpumem ctl says of device 0."""
        said = subprocess.run([GPUMEM, "ctl", "--json", str(self.run.pid)] + list(words), stdout=subprocess.PIPE, text=True)
        return json.loads(said.stdout)["devices"][0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run.send_signal(signal.SIGCONT)
        self.run.stdin.close()
        self.run.wait(60)
        self.run.stdout.close()


def child_needs_what_was_freed():
    for heap, options in HEAPS.items():
        for kind in "alloc", "async":
            name = "%s, %s" % (heap, kind)
            with Room() as room, Process(room, **options) as parent, Process(room, **options) as child, \
                    Process(room, preload=False) as stranger:
                check(name + ": served and freed", parent.do(*["%s 15" % kind] * 6 + ["free"] * 6) == "0 " * 11 + "0")
                check(name + ": who does not ask is refused", stranger.do("alloc 80") == "2")
                check(name + ": who asks gets it", child.asks("alloc 80") == "0")
                check(name + ": the others have what is left", stranger.do("alloc 15", "alloc 15") == "0 2")
                child.do("free")
                check(name + ": and back again", parent.asks("%s 80" % kind) == "0" and parent.do("free") == "0")


def native_gives_all():
    with Room() as room, Process(room, preload=False) as parent, Process(room, preload=False) as child:
        check("without the library: the same", parent.do("alloc 90", "free") == "0 0" and child.do("alloc 80") == "0")


def only_who_has_something_idle():
    with Room() as room, Process(room) as first, Process(room) as second, Process(room) as third:
        first.do("alloc 50")
        second.do("alloc 30", "free")
        check("too much for all that is idle: refused", third.do("alloc 60") == "2")
        check("too much: nobody was asked", second.ctl()["reserved_bytes"] > 0)
        check("as much as there is: served", third.asks("alloc 40") == "0")
        check("as much as there is: what was idle went", second.ctl()["reserved_bytes"] == 0)
        check("what is live stays", first.ctl()["allocated_bytes"] > 0 and first.do("sync", "free") == "0 0")


def limits():
    with Room() as room, Process(room) as first, Process(room, GPUMEM_MEMORY_LIMIT="200MiB") as second:
        first.do("alloc 90", "free")
        check("a limit of the user's: refused", second.do("alloc 30") == "2")
        check("a limit of the user's: nobody was asked", first.ctl()["reserved_bytes"] > 0)
        check("within the limit: served", second.do("alloc 15") == "0")


def stopped():
    with Room() as room, Process(room) as first, Process(room) as second:
        first.do("alloc 90", "free")
        os.kill(first.run.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, first.run.pid, os.WSTOPPED)
        check("it is stopped: refused", second.do("alloc 80") == "2")
        os.kill(first.run.pid, signal.SIGCONT)
        check("it goes on", first.do("sync") == "0")
        check("it goes on: gpumem ctl is answered", first.ctl()["allocated_bytes"] == 0)
        check("it goes on: served", second.asks("alloc 80") == "0")


def circle():
    for _ in range(5):
        with Room() as room, Process(room) as first, Process(room) as second:
            for one in first, second:
                one.do("alloc 45")
            for one in first, second:
                one.do("free")
            for one in first, second:
                one.tell("alloc 70")
            found = sorted((first.answer(), second.answer()))
            if not check("both at once: one is served", found[0] == "0", found):
                return


def decay():
    """Nobody asks here: the stranger has no library, and tries until it is served."""
    for heap, options in HEAPS.items():
        for kind in "alloc", "async":
            with Room() as room, Process(room, GPUMEM_IDLE_TIME="0.05", **options) as first, Process(room, preload=False) as stranger:
                first.do("%s 90" % kind, "free")
                tries = 0
                while stranger.do("alloc 80") != "0" and tries < 6000:
                    tries += 1
                    time.sleep(0.01)
                check("%s, %s: what nobody uses goes back by itself" % (heap, kind), tries < 6000, first.ctl())


def main():
    child_needs_what_was_freed()
    native_gives_all()
    only_who_has_something_idle()
    limits()
    stopped()
    circle()
    decay()
    finish()


main()
