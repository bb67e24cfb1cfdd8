#!/usr/bin/env python3
"""Children, however they were made: off in those of a process that has used CUDA, started in others; nothing hangs."""
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import DRIVER, SCRIPT, Play, behaves  # noqa: E402
from tap import GPUMEM, check, finish, live_bytes, same, tell  # noqa: E402


def by_pid(room, reason):
    return {s["process"]["pid"]: live_bytes(s) for s in room.snapshots(reason)}


def off_in_children():
    """Of a process that has used CUDA: there the driver refuses every call (the stand-in does not: they pass through)."""
    for how in ("fork", "clone"):
        with Play() as room:
            run = behaves("%s: the child allocates" % how, room, "alloc 100", how, "threads", "alloc 7", "threads", "free",
                          "exit 3", "end", "alloc 20", "exit 0")
            check("%s: its status comes through" % how, "child: exit 3" in run.stdout, run.stdout)
            check("%s: no helper thread in the child" % how, run.stdout.split("\n")[:2] == ["threads: 1", "threads: 1"],
                  run.stdout)
            check("%s: the parent shows its own memory, the child nothing" % how, list(by_pid(room, "exit").values()) == [120],
                  by_pid(room, "exit"))
            check("%s: no journal is left" % how, not room.journal_files(), room.journal_files())
        with Play() as room:
            behaves("%s: the child leaves by _exit" % how, room, "alloc 100", how, "_exit 0", "end", "alloc 1", "_exit 0")
            check("%s: nor then" % how, list(by_pid(room, "exit").values()) == [101], room.files())
        with Play() as room:
            behaves("%s of a child" % how, room, "alloc 1", how, "alloc 2", how, "alloc 3", "exit 0", "end", "exit 0", "end",
                    "exit 0")
            check("%s of a child: one record" % how, list(by_pid(room, "exit").values()) == [1], by_pid(room, "exit"))
        with Play() as room:
            behaves("%s before the first call" % how, room, how, "alloc 2", how, "alloc 3", "exit 0", "end", "exit 0", "end",
                    "alloc 1", "exit 0")
            check("%s before the first call: two records" % how, sorted(by_pid(room, "exit").values()) == [1, 2],
                  by_pid(room, "exit"))
        with Play() as room:
            run = behaves("%s: the child only frees and cleans up" % how, room, "alloc 100", how, "free", "release", "threads",
                          "exit 0", "end", "exit 0")
            check("%s: that does not start anything" % how, "threads: 1" in run.stdout and room.live("exit") == [100],
                  (run.stdout, room.files()))
    with Play() as room:
        run = room.script("alloc 1", "fork", "alloc 2", "exit 0", "end", "exit 0", histroy=1)
        check("a wrong option is said once, not by every child", run.stderr.count("GPUMEM_HISTROY") == 1, run.stderr)
    with Play() as room:
        run = behaves("vfork", room, "alloc 100", "vfork", "alloc 1", "exit 0")
        check("vfork: its _exit is not the parent's", "child: exit 9" in run.stdout and
              list(by_pid(room, "exit").values()) == [101], (run.stdout, room.files()))
    with Play() as room:
        words = ["alloc 100", "system echo a shell; exit 5", "exit 0"]
        bare, ours = room.script(*words, preload=False), room.script(*words)
        check("system(): as without the library", same(bare, ours), tell(bare, ours))


def while_others_allocate():
    """Threads allocate all the time while the process forks: no lock of ours that is inherited held is taken."""
    worker = ["detached", "many 3000", "end"]
    forks = ["fork", "alloc 5", "exit 0", "end"] * 12
    with Play() as room:
        run = room.script("alloc 1", *worker, *worker, *worker, *forks, "exit 0")
        check("forks under way: every child ends", run.returncode == 0 and run.stdout.count("child: exit 0") == 12, tell(run))
        check("forks under way: the parent has the one record", len(by_pid(room, "exit")) == 1, by_pid(room, "exit"))
        check("forks under way: no line on stderr", not run.stderr, run.stderr)


def follow():
    name = "LD_PRELOAD"
    with Play() as room:
        run = behaves("follow:yes", room, "alloc 1", "getenv " + name, "exit 0")
        check("follow:yes: children get the preload", "libgpumem.so" in run.stdout, run.stdout)
    with Play() as room:
        run = behaves("follow:no", room, "getenv " + name, "alloc 1", "getenv " + name, "system echo \"[$LD_PRELOAD]\"",
                      "exit 0", follow="no")
        lines = run.stdout.splitlines()
        check("follow:no: from the first CUDA call on they do not", "libgpumem.so" in lines[0] and
              lines[1] == name + "=" and lines[2] == "[]", lines)
    with Play() as room:
        others = [os.path.join(os.path.dirname(room.env()["LD_PRELOAD"]), "test/preload/libnextlast.so")] * 2
        preload = ":".join([others[0], room.env()["LD_PRELOAD"], others[1]])
        run = behaves("follow:no among others", room, "alloc 1", "getenv " + name, "exit 0", follow="no", LD_PRELOAD=preload)
        check("follow:no: other libraries stay", run.stdout.splitlines()[0] == name + "=" + ":".join(others), run.stdout)


def follow_launchers():
    """A shell that makes no CUDA call: what it starts is not recorded, what it becomes is."""
    play = SCRIPT + " 'alloc 1' 'system echo \"[$LD_PRELOAD]\"' 'exit 0'"
    for options in ({"follow": "no"}, {"GPUMEM_CONF": "stacks:none,follow:no"}, {"GPUMEM_CONF": "follow:yes,verbose:0", "follow": "no"}):
        for what, words, files, preloads in (
                ("of a shell", ["sh", "-c", play + "; true"], 0, 0), ("of a shell's shell", ["sh", "-c", "sh -c \"$0; true\"; true", play], 0, 0),
                ("that a shell becomes", ["sh", "-c", "exec " + play], 1, 0), ("that env becomes", ["env", "sh", "-c", "exec " + play], 1, 0),
                ("of Python", [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", "sh", "-c", play], 0, 0)):
            with Play() as room:
                run = room.run(words, DRIVER=DRIVER, OUT=room.out, **options)
                check("%s: a program %s" % (options, what), run.returncode == 0 and not run.stderr and len(room.files()) == files and
                      run.stdout.count("libgpumem.so") == preloads and run.stdout.count("[") == 1, (tell(run), room.files()))
    with Play() as room:
        run = room.run(["sh", "-c", play + "; true"], DRIVER=DRIVER, OUT=room.out, follow="yes")
        check("follow:yes: a program of a shell is recorded", len(room.files()) == 1 and run.stdout.count("libgpumem.so") == 1, tell(run))
        run = room.run(["sh", "-c", GPUMEM + " run -q -- " + play + "; true"], DRIVER=DRIVER, OUT=room.out, follow="no")
        check("follow:no: gpumem run within begins anew", len(room.files()) == 2, (tell(run), room.files()))


def main():
    off_in_children()
    while_others_allocate()
    follow()
    follow_launchers()
    finish()


main()
