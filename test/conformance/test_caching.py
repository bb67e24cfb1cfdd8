#!/usr/bin/env python3
# timeout: 300
"""The conformance program under the caching allocator prints what it prints on the bare GPU, but for what is named here."""
import os
import subprocess
import sys

sys.path[:0] = ["test", "test/conformance"]
from deliberate import differences  # noqa: E402
from tap import B, Room, check, finish, tell  # noqa: E402

GOLDEN = "test/conformance/h200.golden"

def run(room, kind):
    env = room.env(GPUMEM_ALLOCATOR="caching", GPUMEM_SNAPSHOT_ON="none", FAKECUDA_DEVICES="1")
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
    finish()


main()
