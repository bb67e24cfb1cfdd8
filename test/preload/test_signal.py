#!/usr/bin/env python3
"""The signal that asks for a snapshot: taken only when it is free, and nobody dies of it who did not before."""
import signal
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import Play, behaves  # noqa: E402
from tap import check, finish, same, tell  # noqa: E402

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2


def taken():
    with Play() as room:
        run = behaves("SIGUSR1", room, "disposition 10", "alloc 100", "disposition 10", "kill 10", "files signal 1", "alloc 11",
                      "kill 10", "files signal 2", "exit 0")
        check("SIGUSR1: taken at the first CUDA call", run.stdout.splitlines()[:2] ==
              ["disposition 10: default", "disposition 10: handler"], run.stdout)
        check("SIGUSR1: each asks for one snapshot, numbered", [f.split(".")[-2] for f in room.files()] ==
              ["exit", "signal-1", "signal-2"], room.files())
        check("SIGUSR1: of what was live then", room.live("signal") == [100, 111], room.live("signal"))
    with Play() as room:
        behaves("signal:USR2", room, "alloc 100", "kill 12", "files signal 1", "disposition 10", "exit 0", signal="USR2")
        check("signal:USR2: a snapshot", room.live("signal") == [100], room.files())
    with Play() as room:
        behaves("signal:40", room, "alloc 100", "kill 40", "files signal 1", "exit 0", signal="40")
        check("signal:40: a real-time signal does, too", room.live("signal") == [100], room.files())
    with Play() as room:
        behaves("in another thread", room, "alloc 100", "thread", "kill 10", "files signal 1", "end", "exit 0")
        check("in another thread: a snapshot", room.live("signal") == [100], room.files())
    # The exit snapshot does not overtake one that was asked for just before.
    with Play() as room:
        behaves("a signal, then exit at once", room, "alloc 100", "kill 10", "exit 0")
        check("a signal, then exit at once: both files", len(room.files()) == 2, room.files())


def left():
    for title, words, status in [
            ("before the first CUDA call", ["kill 10", "alloc 1"], -USR1),
            ("option signal:none", ["alloc 1", "kill 10", "sleep 20000"], -USR1),
            ("snapshot_on without signal", ["alloc 1", "kill 10", "sleep 20000"], -USR1),
            ("another signal", ["alloc 1", "kill 12", "sleep 20000"], -USR2)]:
        with Play() as room:
            options = {"signal": "none"} if "none" in title else {"snapshot_on": "exit"} if "snapshot_on" in title else {}
            bare, ours = room.script(*words, preload=False), room.script(*words, **options)
            check("%s: the default is the default" % title, same(bare, ours) and ours.returncode == status, tell(bare, ours))
    for title, words in [
            ("a handler from before", ["handler 10", "alloc 1", "kill 10", "disposition 10", "exit 0"]),
            ("a handler from after", ["alloc 1", "handler 10", "kill 10", "disposition 10", "exit 0"]),
            ("ignored before", ["ignore 10", "alloc 1", "kill 10", "disposition 10", "exit 0"])]:
        with Play() as room:
            bare, ours = room.script(*words, preload=False), room.script(*words)
            check("%s: the program's own stays" % title, same(bare, ours) and not bare.returncode, tell(bare, ours))
            check("%s: no snapshot for it" % title, not room.live("signal"), room.files())


def children():
    """A child inherits the handler, but the default is what its parent's parent meant."""
    for how in ("fork", "clone"):
        with Play() as room:
            words = ["alloc 1", how, "kill 10", "sleep 20000", "end", "exit 0"]
            bare = room.script(*[w for w in words if w != "alloc 1"], preload=False)
            ours = room.script(*words)
            check("%s: a child that made no CUDA call dies as ever" % how, same(bare, ours) and
                  "child: signal 10" in ours.stdout, tell(bare, ours))
            check("%s: and writes nothing" % how, len(room.files()) == 1, room.files())
        with Play() as room:
            run = behaves("%s: a child that calls CUDA" % how, room, "alloc 1", how, "alloc 50", "kill 10", "sleep 20000",
                          "end", "exit 0")
            check("%s: a child that calls CUDA dies as ever, too" % how, "child: signal 10" in run.stdout and
                  len(room.files()) == 1, (room.files(), run.stdout))
    with Play() as room:
        run = behaves("exec", room, "alloc 1", "execute kill -USR1 $$; echo alive", status=-USR1)
        check("exec: the default again", "alive" not in run.stdout, tell(run))


def main():
    taken()
    left()
    children()
    finish()


main()
