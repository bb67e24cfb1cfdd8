#!/usr/bin/env python3
"""Calls that fail for want of memory succeed when the cache could give it back: each entry that says so, and a full device."""
import glob
import os
import re
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

RETRY = os.path.join(B, "test/preload/retry")
# Their arguments are no integers and pointers, or there is no driver's call in them to refuse.
ODD = {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcOpenEventHandle"}


def repeated():
    """Entries of rows whose kind repeats the call, and those whose bodies use GM_TRY."""
    rows = re.findall(r"^GM_(?:RETRY|WORK|ALLOC|ALLOC_ASYNC|ARRAY|GRAPH|CONTEXT|VARIABLE)\(\w+, (\w+),", open("preload/hooks/hooks.def").read(), re.M)
    bodies = [n for path in glob.glob("preload/hooks/hook_*.c") for n in re.findall(r"GM_TRY\((cu\w+),", open(path).read())]
    return sorted((set(rows) | set(bodies)) - ODD)


def answers(run):
    """{(entry, when): (result, calls)}"""
    found = re.findall(r"^(\w+) (cached|again): (\d+), (\d+) calls$", run.stdout, re.M)
    return {(name, when): (int(result), int(count)) for name, when, result, count in found}


def each():
    names = repeated()
    check("many entries are repeated", len(names) > 100, len(names))
    with Room() as room:
        command = [RETRY, "each"] + names
        bare = room.run(command, preload=False, FAKECUDA_HANG="off")
        ours = room.run(command, GPUMEM_OOM_SNAPSHOTS="0", FAKECUDA_HANG="off")
        if not (check("each: runs without", bare.returncode == 0 and bare.stdout.endswith("done\n"), tell(bare)) and
                check("each: runs with", ours.returncode == 0 and ours.stdout.endswith("done\n"), tell(ours))):
            return
        alone, got = answers(bare), answers(ours)
        check("each: asked", set(alone) == set(got) == {(n, w) for n in names for w in ("cached", "again")},
              set(alone) ^ set(got))
        odd = {key: answer for key, answer in alone.items() if answer != (2, 1)}
        check("each: without the library it is refused, once", not odd, odd)
        odd = {key: answer for key, answer in got.items() if key[1] == "cached" and (answer[0] == 2 or answer[1] != 2)}
        check("each: with something cached it is made again", not odd, odd)
        odd = {key: answer for key, answer in got.items() if key[1] == "again" and answer != (2, 1)}
        check("each: with nothing cached it is the driver's error, of one call", not odd, odd)


def full():
    with Room() as room:
        capacity = {"FAKECUDA_CAPACITY": "1G", "FAKECUDA_DEVICES": "1"}
        bare = room.run([RETRY, "full"], preload=False, **capacity)
        ours = room.run([RETRY, "full"], **capacity)
        check("full: runs without", bare.returncode == 0 and bare.stdout.endswith("done\n"), tell(bare))
        check("full: as without", ours.returncode == 0 and ours.stdout == bare.stdout, tell(bare, ours))


def main():
    each()
    full()
    finish()


main()
