# timeout: 300
"""Threads that allocate and free at once, some freeing what others made, snapshots taken meanwhile: nothing is lost
or counted twice. The exit snapshot is the driver's truth; the journal of one that was killed is sound."""
import json
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import HOST, app, by_rows, by_segments, conserved, snapshots, truth  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402

MANY = os.path.join(B, "test/preload/many")
JOURNAL_CHECK = os.path.join(B, "test/preload/journal_check")


def given(snapshot):
    """{(device, kind): bytes} in blocks that the program has: without a cache what the segments have, and the driver."""
    found = {}
    for segment in snapshot["segments"] + snapshot["host_segments"]:
        if not segment.get("registered"):
            place = HOST if segment in snapshot["host_segments"] else (segment["device"], segment["kind"])
            found[place] = found.get(place, 0) + segment["allocated_size"]
    return {place: count for place, count in found.items() if count}


def adds_up(snapshot):
    native = snapshot["allocator_settings"]["gpumem"]["allocator"]["value"] == "native"
    return by_rows(snapshot) == given(snapshot) and (not native or given(snapshot) == by_segments(snapshot))


def differences(told, directory):
    """Checkpoints at which the segments are not what the driver says, or the rows not the blocks in them."""
    taken = snapshots(directory)
    wrong = [(sorted(told), sorted(taken))] if set(told) != set(taken) else []
    return wrong + [(key, told[key], by_segments(taken[key]), by_rows(taken[key])) for key in sorted(set(told) & set(taken))
                    if by_segments(taken[key]) != told[key][0] or not adds_up(taken[key])]


def live_snapshots(name, directory):
    """Taken while all were at work: each consistent in itself."""
    wrong = []
    names = [n for n in os.listdir(directory) if n.startswith("live.")]
    for file in names:
        with open(os.path.join(directory, file), encoding="utf-8") as text:
            snapshot = json.load(text)
        if not adds_up(snapshot) or not snapshot["consistent"]:
            wrong.append((file, by_segments(snapshot), given(snapshot), by_rows(snapshot)))
    check("%s: %d snapshots on the way, each adds up" % (name, len(names)), names and not wrong, wrong[:1])


def at_the_end(threads, rounds, seed, **options):
    name = "%d threads, %d rounds, seed %d%s" % (threads, rounds, seed, "".join(", " + value for value in options.values()))
    with Room() as room:
        done = room.run([MANY, str(threads), str(rounds), str(seed)], timeout=120, CHECKPOINT_DIR=room.path, **options)
        if not check("%s: no error" % name, done.returncode == 0 and " 0 errors" in done.stdout, tell(done)):
            return
        live_snapshots(name, room.path)
        told = truth(done.stdout)
        check("%s: much is live at the end" % name, len(told[("", 1)][0]) >= 7, told)
        wrong = differences(told, room.path)
        check("%s: once they stopped, and after a reset, the account is the driver's" % name, not wrong, wrong[:2])
        taken = room.snapshots("exit")
        check("%s: the exit snapshot too" % name,
              len(taken) == 1 and by_segments(taken[0]) == told[("", 2)][0] and adds_up(taken[0]),
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
    at_the_end(8, 800, 4, allocator="native")       # without a cache each block is a segment of the driver's: more is compared
    killed()
    for name in ("app_threads.static", "app_threads.shared"):
        with Room() as room:
            conserved(name, room, [app(name)])
    finish()


main()
