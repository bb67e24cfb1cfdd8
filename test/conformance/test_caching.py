#!/usr/bin/env python3
# timeout: 300
"""The conformance program under the caching allocator prints what it prints on the bare GPU, but for what is named here."""
import difflib
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

GOLDEN = "test/conformance/h200.golden"
# (reason, section, line): every line that may differ, and why. One that does not differ is stale.
DELIBERATE = [
    ("a freed block waits for the GPU: its address comes again later",
     "placement", r"a hole is filled again at once|cudaFree"),
    ("blocks of 1 MiB and a little more lie in shared segments, 512 bytes apart", "placement", r"1 MiB( and a byte)?: 2 MiB aligned"),
    ("memory is taken from the device in segments of 2 and 20 MiB", "what cudaMemGetInfo counts", r"(4|one|2|3) of "),
    ("an access past a block's end, or after its free, lies in the same segment of the driver's",
     "copies", r"cudaMem(set|cpy) .*(past the end|freed memory)"),
    ("a freed block waits for the GPU: its address comes again later", "buffer ids", r"the same address again"),
    ("the driver goes on counting what was freed after a reset: the whole segment", "cudaDeviceReset", r"used by the default pool"),
]


def named(line):
    section, _, rest = line.partition(" | ")
    return [i for i, (_, s, pattern) in enumerate(DELIBERATE) if s == section and re.match(pattern, rest)]


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
        lines = [line for line in difflib.unified_diff(golden, ours.stdout.splitlines(), lineterm="", n=0)
                 if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        other = [line for line in lines if not named(line[1:])]
        check("%s: %d lines as on the GPU, but for what is deliberate" % (kind, len(golden)), len(golden) > 500 and not other, other)
        found = {i for line in lines for i in named(line[1:])}
        stale = [DELIBERATE[i] for i in range(len(DELIBERATE)) if i not in found]
        check("%s: what is deliberate does differ" % kind, not stale, stale)
    finish()


main()
