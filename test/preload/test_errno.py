"""A call of the driver leaves errno as it was, whatever the library met within it: a program looks at errno only
after calls that it knows to set it, and then takes it for theirs."""
import os
import sys

sys.path.insert(0, "test")
from tap import B, LIBRARY, Room, check, finish, tell  # noqa: E402

PROGRAM = os.path.join(B, "test/preload/errno_kept")
NO_THREAD = os.path.join(B, "test/preload/libnothread.so")
KEPT = "0 calls changed errno"


def kept(name, done):
    check(name, done.returncode == 0 and KEPT in done.stdout, tell(done))


def main():
    with Room() as room:
        kept("errno is kept without the library", room.run([PROGRAM], preload=False))
        kept("errno is kept", room.run([PROGRAM]))
    with Room() as room:
        # Here the failing thread writes the OOM snapshot itself, and cannot.
        done = room.run([PROGRAM], LD_PRELOAD=NO_THREAD + ":" + LIBRARY, output="/proc/nowhere/x.json")
        kept("errno is kept by an OOM snapshot that cannot be written", done)
    with Room() as room:
        # The journal began with room for it, and then the file system fills up.
        small = os.path.join(room.path, "small")
        os.mkdir(small)
        environment = room.env(journal=small, FILL="head -c 300m /dev/zero >%s/fill 2>/dev/null; true" % small)
        words = " ".join("%s='%s'" % pair for pair in environment.items()
                         if pair[0].startswith(("GPUMEM_", "LD_", "FILL")))
        flags = ["-m"] if os.getuid() == 0 else ["-U", "-r", "-m"]
        script = "mount -t tmpfs -o size=200m tmpfs %s && env %s %s" % (small, words, PROGRAM)
        kept("errno is kept when the journal's file system is full",
             room.run(["unshare"] + flags + ["sh", "-c", script], preload=False))
    finish()


main()
