#!/usr/bin/env python3
"""gpumem snapshot -o takes away the file that was written for it, and no other that was written just then."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, journals_begun, stopped, wait_for  # noqa: E402

SCRIPT = os.path.join(B, "test/preload/script")


def snapshot(room, name, pid):
    return subprocess.Popen([GPUMEM, "snapshot", "-o", os.path.join(room.path, name), str(pid)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def reason(room, name):
    try:
        with open(os.path.join(room.path, name), encoding="utf-8") as text:
            return json.load(text)["reason"]
    except FileNotFoundError:
        return "no file"


def at_the_exit():
    """Stopped while it sleeps: on it goes with a request from outside and its own exit at once."""
    wrong, both = [], 0
    for _ in range(12):
        with Room() as room, Program(room, SCRIPT, "alloc 100", "say ready", "sleep 100", "exit 0") as program:
            wait_for(lambda: journals_begun(room, program.pid))
            time.sleep(0.05)
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(0.12)
            asks = snapshot(room, "outside.json", program.pid)
            time.sleep(0.05)
            os.kill(program.pid, signal.SIGCONT)
            told = asks.communicate(timeout=60)
            program.child.wait(timeout=60)
            got = reason(room, "outside.json")
            if [s["reason"] for s in room.snapshots("exit")] != ["exit"] or asks.returncode == 0 and got != "outside":
                wrong.append((room.files(), got, told, program.said("ready")))
            both += got == "outside"
    check("asked while it exits: the exit snapshot stays where it belongs (%d times both)" % both, not wrong and both,
          wrong[:2] or both)


def two_ask():
    """Each of those who ask at once gets a file of its own."""
    with Room() as room, Program(room, SCRIPT, "alloc 100", "sleep 60000") as program:
        wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(0.1)
        wrong = []
        for turn in range(5):
            names = ["%d-%d.json" % (turn, i) for i in range(4)]
            for name, asks in [(name, snapshot(room, name, program.pid)) for name in names]:
                told = asks.communicate(timeout=60)
                if asks.returncode or reason(room, name) != "outside":
                    wrong.append((name, asks.returncode, told))
        check("four ask at once, five times: a file for each", not wrong, wrong[:2])


def killed_while_it_writes():
    """Who asked does not wait for the dead."""
    with Room() as room, Program(room, SCRIPT, "many 60000", "sleep 60000") as program:
        wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(1)
        asks = snapshot(room, "outside.json", program.pid)
        began = wait_for(lambda: room.files() or asks.poll() is not None)
        program.kill()
        try:
            told = asks.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            asks.kill()
            told = asks.communicate()
        check("killed while it writes: who asked gets what can be had, and does not wait", asks.returncode == 0 and
              reason(room, "outside.json") == "outside" and began, (asks.returncode, told, room.files()))


def asked_while_stopped():
    """Who went round a process that gave no answer wants none any more."""
    with Room() as room, Program(room, SCRIPT, "alloc 100", "sleep 60000") as program:
        wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(0.1)
        os.kill(program.pid, signal.SIGSTOP)
        wait_for(lambda: stopped(program.pid))
        asks = subprocess.run([GPUMEM, "snapshot", str(program.pid)], capture_output=True, text=True, timeout=60, check=False)
        os.kill(program.pid, signal.SIGCONT)
        check("stopped: copied from outside", asks.returncode == 0 and "not consistent" in asks.stderr and len(room.files()) == 1, asks)
        time.sleep(1)
        check("and on it goes, without a second one", len(room.files()) == 1, room.files())
        again = snapshot(room, "again.json", program.pid)
        told = again.communicate(timeout=60)
        check("asked again, it answers", again.returncode == 0 and not told[1] and reason(room, "again.json") == "outside", told)


def stopped_while_it_writes():
    """Nor for one who was stopped then."""
    with Room() as room, Program(room, SCRIPT, "many 60000", "sleep 60000") as program:
        wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(1)
        asks = snapshot(room, "outside.json", program.pid)
        wait_for(lambda: room.files() or asks.poll() is not None)
        os.kill(program.pid, signal.SIGSTOP)
        try:
            told = asks.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            asks.kill()
            told = asks.communicate()
        check("stopped while it writes: likewise", asks.returncode == 0 and reason(room, "outside.json") == "outside",
              (asks.returncode, told, room.files()))


at_the_exit()
two_ask()
asked_while_stopped()
killed_while_it_writes()
stopped_while_it_writes()
finish()
