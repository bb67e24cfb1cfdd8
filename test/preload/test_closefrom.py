#!/usr/bin/env python3
"""A program that closes every descriptor while snapshots are written: nothing of ours gets into its files."""
import glob
import json
import os
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

CLOSER = os.path.join(B, "test/preload/closer")


def main():
    with Room() as room:
        data = os.path.join(room.path, "host-data")
        done = room.run([CLOSER, data, "3"])
        content = open(data, "rb").read() if os.path.exists(data) else b"missing"
        check("the program ends as it would", done.returncode == 0, tell(done))
        check("nothing was written into its file", content == b"", content[:200])
        whole, broken = 0, []
        for path in glob.glob(room.out + "/*.json"):
            try:
                with open(path, encoding="utf-8") as text:
                    whole += json.load(text)["format"] == "gpumem-snapshot"
            except ValueError as error:
                broken.append((path, str(error)))
        said = [line for line in done.stderr.splitlines() if "could not be written" in line]
        print("# %d snapshots, %d could not be written" % (whole, len(said)))
        check("what was written is whole", whole > 0 and not broken, (whole, broken))
        check("when it was over, snapshots as ever", len(glob.glob(room.out + "/*exit*.json")) == 1, os.listdir(room.out))
        left = [name for name in os.listdir(room.out) if name.startswith(".")]
        check("no temporary file is left", not left, left)
    finish()


main()
