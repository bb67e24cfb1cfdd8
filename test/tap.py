"""TAP for the script tests: `check(name, condition, why)`, `finish()`, and running programs under the library.

A script imports it with `sys.path.insert(0, "test")`; the working directory is the repository's root.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

B = os.path.abspath(os.environ.get("B", "build"))
LIBRARY = os.path.join(B, "libgpumem.so")
# Programs of another machine are run by TEST_EMULATOR, which hands the environment on; TEST_GPUMEM is of this one.
EMULATOR = os.environ.get("TEST_EMULATOR", "").split()
GPUMEM = os.environ.get("TEST_GPUMEM", os.path.join(B, "gpumem"))
FAKE = os.path.join(B, "fakecuda")
POINTS = os.path.join(B, "test/preload/libcancelpoints.so")     # tells of cancellation points in the library
# Limits are of the time that a quiet machine takes. One that is busy, or slow at system calls, takes several times as
# long; what hangs for longer is ended by test/run.py.
BUSY = 4
_count = [0, 0]


def check(name, condition, why=""):
    """One test: prints its TAP line, returns the condition."""
    _count[0] += 1
    if condition:
        print("ok %d - %s" % (_count[0], name))
    else:
        _count[1] += 1
        print("not ok %d - %s # %s" % (_count[0], name, str(why).replace("\n", " | ")[:1500]))
    sys.stdout.flush()
    return bool(condition)


def finish():
    print("1..%d" % _count[0])
    sys.exit(1 if _count[1] or not _count[0] else 0)


def journals_place():
    """Where journals are made: in memory, as users have them, if it has room. On a disk the first touch of a page may
    take fifty times as long (ext4 clears 2 MiB for it). None: the usual place of scratch files."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return None
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) and room.f_bavail * room.f_frsize >= 4 << 30 else None


class Room:
    """A scratch directory of one test's own: its outputs, its journals, nothing else's."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="gpumem-test-")
        self.out = os.path.join(self.path, "out")
        self.journals = tempfile.mkdtemp(prefix="gpumem-test-", dir=journals_place())
        os.mkdir(self.out)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.rmtree(self.journals, ignore_errors=True)

    def env(self, preload=True, fake=True, **options):
        """The environment of a host program: GPUMEM_* by keyword (output=..., stacks=...), others in capitals."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUMEM_", "FAKECUDA_"))}
        env.pop("LD_PRELOAD", None)
        env.pop("LD_LIBRARY_PATH", None)
        if fake:
            env["LD_LIBRARY_PATH"] = FAKE
        if preload:
            env["LD_PRELOAD"] = LIBRARY
            env["GPUMEM_OUTPUT"] = os.path.join(self.out, "gpumem.%c.%p.%r.json")
            env["GPUMEM_JOURNAL"] = self.journals
            # No option besides: a test runs with the defaults that users have. What needs allocator:native says so.
            if os.environ.get("TEST_PAGES"):
                env["GPUMEM_EXPANDABLE_SEGMENTS"] = "True"
        for name, value in options.items():
            if name.isupper():
                env[name] = str(value)
            else:
                env["GPUMEM_" + name.upper()] = str(value)
        return env

    def run(self, command, preload=True, fake=True, timeout=60, env=None, **options):
        """Run to the end: a CompletedProcess with text output. After @timeout seconds of a quiet machine: returncode None."""
        if command[0].startswith(B):
            command = EMULATOR + command
        try:
            return subprocess.run(command, env=env or self.env(preload, fake, **options), timeout=timeout * BUSY,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, errors="replace", cwd=self.path)
        except subprocess.TimeoutExpired as expired:
            return subprocess.CompletedProcess(command, None, str(expired.stdout), str(expired.stderr))

    def files(self):
        return sorted(os.listdir(self.out))

    def snapshots(self, reason=""):
        """Parsed snapshots in the output directory, oldest name first."""
        found = []
        for path in sorted(glob.glob(os.path.join(self.out, "*%s*.json" % reason))):
            with open(path, encoding="utf-8") as text:
                found.append(json.load(text))
        return found

    def journal_files(self):
        return sorted(glob.glob(os.path.join(self.journals, "**", "*.journal"), recursive=True))


def live_bytes(snapshot, host=False):
    """Bytes that the program asked for and did not free: a cached block is longer, and a segment holds many."""
    segments = snapshot["host_segments"] if host else snapshot["segments"]
    return sum(b["requested_size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated")


def same(a, b):
    """Two runs that cannot be told apart from outside."""
    return (a.returncode, a.stdout, a.stderr) == (b.returncode, b.stdout, b.stderr)


def seed():
    """The seed of a random test, as test/seed.h has it: $SEED, or the same one each time; SEED=new takes the clock's."""
    given = os.environ.get("SEED", str(0x9e3779b97f4a7c15))
    number = time.time_ns() if given == "new" else int(given, 0)
    print("# SEED=%d" % number, flush=True)
    return number


def tell(a, b=None):
    text = "exit %s out %r err %r" % (a.returncode, a.stdout[-400:], a.stderr[-400:])
    return text + (" // " + tell(b) if b else "")
