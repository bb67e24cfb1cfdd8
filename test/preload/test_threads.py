# timeout: 300
"""Threads that allocate and free at once, some freeing what others made, snapshots taken meanwhile: nothing is lost
or counted twice. The exit snapshot is the driver's truth; the journal of one that was killed is sound."""
import json
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, by_rows, by_segments, conserved, differences, truth  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402

MANY = os.path.join(B, "test/preload/many")
JOURNAL_CHECK = os.path.join(B, "test/preload/journal_check")


def live_snapshots(name, directory):
    """Taken while all were at work: each consistent in itself."""
    wrong = []
    names = [n for n in os.listdir(directory) if n.startswith("live.")]
    for file in names:
        with open(os.path.join(directory, file), encoding="utf-8") as text:
            snapshot = json.load(text)
        if by_segments(snapshot) != by_rows(snapshot) or not snapshot["consistent"]:
            wrong.append((file, by_segments(snapshot), by_rows(snapshot)))
    check("%s: %d snapshots on the way, each adds up" % (name, len(names)), names and not wrong, wrong[:1])


def at_the_end(threads, rounds, seed):
    name = "%d threads, %d rounds, seed %d" % (threads, rounds, seed)
    with Room() as room:
        done = room.run([MANY, str(threads), str(rounds), str(seed)], timeout=120, CHECKPOINT_DIR=room.path)
        if not check("%s: no error" % name, done.returncode == 0 and " 0 errors" in done.stdout, tell(done)):
            return
        live_snapshots(name, room.path)
        told = truth(done.stdout)
        check("%s: much is live at the end" % name, len(told[("", 1)][0]) >= 7, told)
        wrong = differences(done.stdout, room.path)
        check("%s: once they stopped, and after a reset, the account is the driver's" % name, not wrong, wrong[:2])
        taken = room.snapshots("exit")
        check("%s: the exit snapshot too" % name,
              len(taken) == 1 and by_segments(taken[0]) == by_rows(taken[0]) == told[("", 2)][0],
              (told[("", 2)], [by_segments(s) for s in taken]))


def killed():
    with Room() as room:
        done = room.run([MANY, "6", "2000", "7", "kill"], timeout=120)
        journals = room.journal_files()
        check("killed at the end: its journal stays", done.returncode == -9 and len(journals) == 1, tell(done))
        read = room.run([JOURNAL_CHECK] + journals, preload=False)
        check("killed at the end: the journal is sound", read.returncode == 0, read.stdout)


def main():
    at_the_end(2, 3000, 1)
    at_the_end(8, 1500, 2)
    at_the_end(16, 800, 3)
    killed()
    for name in ("app_threads.static", "app_threads.shared"):
        with Room() as room:
            conserved(name, room, [app(name)])
    finish()


main()
