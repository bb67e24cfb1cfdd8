#!/usr/bin/env python3
"""Work that no hook sees: the single-stream fast path is off, and the library says so."""
import os
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

HERE = os.path.abspath(os.path.join(B, "test/preload"))
OFF = "single-stream fast path off"


def bypass(how, *more, **env):
    with Room() as room:
        run = room.run([os.path.join(HERE, "bypass"), os.path.join(HERE, "libdeep.so"), how] + list(more),
                       GPUMEM_VERBOSE="1", **env)
        check("%s: runs" % " ".join((how,) + more), run.returncode == 0 and run.stdout == "done\n", tell(run))
        return [line for line in run.stderr.splitlines() if OFF in line]


def main():
    for more in ((), ("early",)):
        off = bypass("deep", *more)
        check("a plugin loaded with RTLD_DEEPBIND%s: the fast path is off, said once" % (", unused at first" if more else ""),
              len(off) == 1 and "RTLD_DEEPBIND" in off[0], off)
        off = bypass("plain", *more)
        check("a plugin loaded as usual: it stays on", not off, off)
    finish()


main()
