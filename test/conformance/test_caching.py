#!/usr/bin/env python3
# timeout: 300
"""The conformance program under the caching allocator prints what it prints on the bare GPU, but for what is named here;
also where memory comes and goes in pages, which have no IPC."""
import os
import subprocess
import sys

sys.path[:0] = ["test", "test/conformance"]
from deliberate import differences  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402

GOLDEN = "test/conformance/h200.golden"
# Of memory that was mapped (docs/behaviour.md); so an H200 printed in pages.
MAPPED = ["-host memory | cudaHostGetDevicePointer of device memory -> 1",
          "+host memory | cudaHostGetDevicePointer of device memory -> 0"]

def run(room, kind, **options):
    env = room.env(GPUMEM_SNAPSHOT_ON="none", FAKECUDA_DEVICES="1", **options)
    program = os.path.join(B, "test/conformance/conformance." + kind)
    return subprocess.run([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200,
                          cwd=room.path)


def main():
    golden = open(GOLDEN, encoding="utf-8").read().splitlines()
    for kind in ("static", "shared"):
        with Room() as room:
            ours = run(room, kind)
        if not check("%s: runs" % kind, ours.returncode == 0 and not ours.stderr, tell(ours)):
            continue
        other, stale = differences(golden, ours.stdout.splitlines())
        check("%s: %d lines as on the GPU, but for what is deliberate" % (kind, len(golden)), len(golden) > 500 and not other, other)
        check("%s: what is deliberate does differ" % kind, not stale, stale)
        with Room() as room:
            ours = run(room, kind, GPUMEM_EXPANDABLE_SEGMENTS="True")
        other, stale = differences(golden, ours.stdout.splitlines())
        other = [line for line in other if "IPC" not in line.replace("Ipc", "IPC")]
        check("%s: the same in pages, but for what is mapped" % kind, ours.returncode == 0 and not ours.stderr and not stale and
              other == MAPPED, (tell(ours), other, stale))
    finish()


main()
