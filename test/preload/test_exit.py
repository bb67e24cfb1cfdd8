#!/usr/bin/env python3
"""The ends of a process at which it still runs: one snapshot of what was live, the same status, no journal left."""
import os
import signal
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import TOO_MUCH, Play, behaves  # noqa: E402
from tap import B, LIBRARY, check, finish, same, tell  # noqa: E402

INTERRUPT = os.path.join(B, "test/preload/libinterrupt.so")


def ends():
    for title, words, status in [
            ("return from main", [], 0), ("exit", ["exit 3"], 3), ("_exit", ["_exit 4"], 4), ("_Exit", ["_Exit 5"], 5),
            ("quick_exit", ["quick_exit 6"], 6), ("exit in a thread", ["thread", "exit 7", "end"], 7),
            ("_exit in a thread", ["thread", "_exit 8", "end"], 8),
            ("_exit in a signal handler", ["exit_handler 12", "kill 12"], 23),
            ("pthread_exit of the main thread", ["pthread_exit"], 0),
            ("the main thread goes first", ["detached", "sleep 300", "alloc 10", "end", "pthread_exit"], 0),
            ("stderr closed", ["close 2", "exit 9"], 9)]:
        with Play() as room:
            words = ["alloc 100", "alloc 20", "free"] + words
            bare = room.script(*words, preload=False)
            ours = room.script(*words)
            check("%s: as without the library" % title, same(bare, ours) and ours.returncode == status, tell(bare, ours))
            want = 110 if "alloc 10" in words else 100
            check("%s: one snapshot of what was live" % title, room.live("exit") == [want] and len(room.files()) == 1,
                  (room.live("exit"), room.files()))
            check("%s: no journal is left" % title, not room.journal_files(), room.journal_files())


def when():
    """What is freed on the way out is not shown as live, what the runtime's clean-up takes along is."""
    with Play() as room:
        behaves("atexit handlers that free", room, "alloc 1", "atexit 1", "alloc 2", "exit 0")
        check("atexit handlers that free: nothing of it looks leaked", room.live("exit") == [1], room.live("exit"))
    with Play() as room:
        behaves("a static object that frees", room, "alloc 1", "alloc 2", "destructor 1", "exit 0")
        check("a static object that frees: not shown as live", room.live("exit") == [1], room.live("exit"))
    with Play() as room:
        behaves("the runtime's clean-up", room, "alloc 1", "alloc 2", "destructor 1", "destructor_release", "exit 0")
        check("the runtime's clean-up: the snapshot is of the moment before it", room.live("exit") == [1], room.live("exit"))
    with Play() as room:
        behaves("a context is released before exit", room, "alloc 7", "release", "alloc 8", "exit 0")
        check("a context is released before exit: no snapshot of that moment", len(room.live("exit")) == 1, room.files())
    with Play() as room:
        behaves("quick_exit", room, "alloc 5", "quick_exit 0")
        check("quick_exit: live bytes", room.live("exit") == [5], room.live("exit"))


def nothing():
    for title, words in [("never called CUDA", ["say x"]), ("never allocated", ["free", "exit 0"])]:
        with Play() as room:
            run = room.script(*words)
            check("%s: runs" % title, run.returncode == 0 and not run.stderr, tell(run))
            check("%s: no file" % title, not room.files() and not room.journal_files(), room.files())
    with Play() as room:
        behaves("everything was freed", room, "alloc 5", "free", "exit 0")
        check("everything was freed: a snapshot says so", room.live("exit") == [0], room.live("exit"))
    with Play() as room:
        behaves("snapshot_on:signal", room, "alloc 5", "exit 0", snapshot_on="signal")
        check("snapshot_on:signal: none at exit, no journal", not room.files() and not room.journal_files(), room.files())
    with Play() as room:
        behaves("snapshot_on:none", room, "alloc 5", "_exit 0", snapshot_on="none")
        check("snapshot_on:none: none at _exit, no journal", not room.files() and not room.journal_files(), room.files())


def sudden():
    # Of other deaths by a signal test_crash.py has more.
    with Play() as room:
        run = room.script("alloc 100", "kill %d" % signal.SIGKILL, "sleep 20000")
        check("SIGKILL: the process dies of it", run.returncode == -signal.SIGKILL and not run.stderr, tell(run))
        check("SIGKILL: the journal stays", len(room.journal_files()) == 1 and not room.files(),
              (room.journal_files(), room.files()))
    for number, called in ((signal.SIGABRT, "crash"), (signal.SIGTERM, "ended")):
        with Play() as room:
            run = room.script("alloc 100", "kill %d" % number, "sleep 20000")
            check("signal %d: the process dies of it" % number, run.returncode == -number and not run.stderr, tell(run))
            check("signal %d: a snapshot, and no journal" % number, room.live(called) == [100] and len(room.files()) == 1 and
                  not room.journal_files(), (room.journal_files(), room.files()))


def no_thread():
    """Where the helper thread cannot be created, the program's own threads write the snapshots."""
    preload = os.path.join(B, "test/preload/libnothread.so") + ":" + LIBRARY
    for word in ("exit 3", "_exit 3"):
        with Play() as room:
            run = behaves("no helper, " + word, room, "alloc 100", "threads", "disposition 10", "alloc %d" % TOO_MUCH, "snapshot",
                          "alloc 1", word, status=3, said="there is no helper thread", LD_PRELOAD=preload)
            check("no helper, %s: one line" % word, run.stderr.count("\n") == 1, run.stderr)
            check("no helper, %s: the signal is left alone" % word, "disposition 10: default" in run.stdout and
                  "threads: 1" in run.stdout, run.stdout)
            check("no helper, %s: every snapshot is there" % word, (room.live("exit"), room.live("oom"), room.live("api")) ==
                  ([101], [100], [100]), room.files())
            check("no helper, %s: no journal is left" % word, not room.journal_files(), room.journal_files())


def full():
    """A snapshot that cannot be written leaves the journal, and one line."""
    with Play() as room:
        # Beside the journal, or in TMPDIR where the journal is in memory.
        run = room.script("alloc 100", "exit 3", output="/proc/nowhere/%p.json", TMPDIR=room.out)
        check("output cannot be written: the status is the program's", run.returncode == 3, tell(run))
        lines = run.stderr.splitlines()
        check("output cannot be written: one line names both places", len(lines) == 1 and "/proc/nowhere/" in lines[0] and
              (room.journals in lines[0] or room.out in lines[0]), run.stderr)
    with Play() as room:
        run = room.script("alloc 100", "_exit 3", output="/proc/nowhere/%p.json", journal="/proc/nowhere", TMPDIR="/proc/nowhere")
        check("nothing can be written: the status is the program's", run.returncode == 3, tell(run))
        check("nothing can be written: it is said", "/proc/nowhere" in run.stderr, run.stderr)


def interrupted():
    """A handler that calls _exit has interrupted a hook, which goes on holding its locks: nobody waits for those."""
    with Play() as room:
        slow, taken, reached = [], 0, 0
        for at in range(1, 200):
            run = room.script("exit_handler 12", "many 3000", "exit 3", INTERRUPT_AT=at,
                              LD_PRELOAD=INTERRUPT + ":" + LIBRARY)
            if run.returncode == 3:
                break
            reached += run.returncode == 23
            if "took too long" in run.stderr or run.returncode != 23:
                slow.append((at, tell(run)))
                break
            taken += len(room.snapshots("exit"))
            for name in room.files():
                os.unlink(os.path.join(room.out, name))
        check("_exit in a handler that interrupted a hook: the exit snapshot is there in time", not slow, slow)
        check("_exit in a handler that interrupted a hook: there is one once recording began", taken > 3 and reached > taken,
              (reached, taken))


def main():
    ends()
    interrupted()
    when()
    nothing()
    sudden()
    no_thread()
    full()
    finish()


main()
