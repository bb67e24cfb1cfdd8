#!/usr/bin/env python3
"""What the library takes of a thread's stack: little, in the first call too."""
import os
import sys

sys.path.insert(0, "test")
from tap import B, EMULATOR, Room, check, finish, tell  # noqa: E402

PROGRAM = os.path.join(B, "test/preload/stack_room")
MOST = 10240 if EMULATOR else 8192      # aarch64 has twice the registers to note for each frame


def main():
    with Room() as room:
        bare = room.run([PROGRAM], preload=False)
        for stacks in ("all", "none"):
            ours = room.run([PROGRAM], stacks=stacks)
            check("stacks:%s: the program runs" % stacks, bare.returncode == ours.returncode == 0, tell(ours))
            took = {}
            for before, after in zip(bare.stdout.splitlines(), ours.stdout.splitlines()):
                took[before.split()[0]] = int(after.split()[1]) - int(before.split()[1])
            print("# stacks:%s: %s bytes more than without the library" % (stacks, took))
            # Sanitizers make frames several times as large.
            if not os.path.basename(os.path.normpath(B)) in ("address", "thread"):
                check("stacks:%s: less than %d bytes each" % (stacks, MOST), len(took) == 4 and
                      all(bytes_ < MOST for bytes_ in took.values()), took)
    finish()


main()
