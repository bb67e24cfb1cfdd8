#!/usr/bin/env python3
"""Who may write device memory without a stream: told by the names of libraries and by calls; their memory lies apart."""
import os
import shutil
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

WRITERS = os.path.join(B, "test/preload/writers")
LIBRARY = os.path.join(B, "test/preload/libwriters.so")


def run(name, **options):
    with Room() as room:
        command = [WRITERS]
        if name:
            path = os.path.join(room.path, name)
            shutil.copy(LIBRARY, path)
            command.append(path)
        done = room.run(command, GPUMEM_VERBOSE="1", **options)
        check("%s: runs" % (name or "alone"), done.returncode == 0, tell(done))
        off = [line for line in done.stderr.splitlines() if "single-stream fast path off" in line]
        return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line), off


def main():
    taken, off = run(None)
    check("alone: segments are shared", taken == {"own": "20 MiB", "own later": "0 MiB"}, taken)
    check("alone: nobody writes", not off, off)
    taken, off = run("libharmless.so.1")
    check("any library: as the program", taken.get("its") == "0 MiB" and taken.get("own later") == "0 MiB" and not off,
          (taken, off))
    taken, off = run("libnccl.so.2")
    check("NCCL: large requests lie apart, small ones do not", taken == {
        "own": "20 MiB", "its": "4 MiB", "its large": "30 MiB", "its small": "2 MiB", "own later": "0 MiB"}, taken)
    check("NCCL: by itself no other writer", not off, off)
    for name, said in (("libibverbs.so.1", "RDMA"), ("libucp.so.0", "UCX"), ("libmpi.so.40", "MPI"), ("libgdrapi.so.2", "GDRCopy"),
                       ("libnvshmem_host.so.3", "NVSHMEM"), ("libtensorpipe.so", "tensorpipe")):
        taken, off = run(name)
        check("%s: seen when a segment is made" % name, len(off) == 1 and said in off[0], (taken, off))
        check("%s: what comes after lies apart" % name, taken.get("own later") == "6 MiB", taken)
    taken, off = run("libmpicanny.so")
    check("a name that only begins alike is no such library", not off, off)
    finish()


main()
