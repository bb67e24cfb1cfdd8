#!/usr/bin/env python3
"""Under the caching allocator the driver tells a program what it tells it without: ranges, attributes, exports, pools."""
import difflib
import os
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

APP = os.path.join(B, "test/apps/app_transparent")


def compare(name, **options):
    with Room() as room:
        bare = room.run([APP], preload=False, **{k: v for k, v in options.items() if k.startswith("FAKECUDA")})
        ours = room.run([APP], **options)
        check("%s: runs without" % name, bare.returncode == 0 and bare.stdout.endswith("app_transparent: done\n"), tell(bare))
        check("%s: runs with" % name, ours.returncode == 0 and not ours.stderr, tell(ours))
        lines = [line for line in difflib.unified_diff(bare.stdout.splitlines(), ours.stdout.splitlines(), lineterm="", n=0)
                 if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        check("%s: the same %d lines" % (name, bare.stdout.count("\n")), bare.stdout.count("\n") > 200 and not lines, lines)


def main():
    compare("one device", FAKECUDA_DEVICES="1")
    compare("two devices")
    compare("nothing recorded of it", GPUMEM_HISTORY="0", GPUMEM_STACKS="none")
    finish()


main()
