#!/usr/bin/env python3
"""A program that closes every descriptor while snapshots are written: nothing of ours gets into its files."""
import glob
import json
import os
import shutil
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
    with Room() as room:
        # Valgrind knows no thread without the program's descriptors, and ends who makes one.
        if shutil.which("valgrind"):
            done = room.run(["valgrind", "-q", "--tool=none", os.path.join(B, "test/apps/app_driver")], timeout=110)
            check("under valgrind: the program ends as it would, with a snapshot", done.returncode == 0 and
                  len(room.snapshots("exit")) == 1, tell(done))
        else:
            check("under valgrind: as elsewhere # SKIP there is no valgrind", True)
    finish()


main()
