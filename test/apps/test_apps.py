# timeout: 300
"""The test programs by themselves, without the library: each does what it says on the fake device,
linked statically and dynamically, and gives the driver nothing to complain of."""
import mmap
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

CUDA = ["app_capture", "app_exceptions", "app_fork", "app_kinds", "app_multidev", "app_oom", "app_runtime", "app_threads",
        "demo_app"]
DRIVER = ["app_ctx", "app_dlsym", "app_driver"]


def app(name):
    return os.path.join(B, "test/apps", name)


def runs(room, name, arguments=(), **options):
    """One run: ends well, says so last, and the fake driver saw no race and no hang."""
    log = os.path.join(room.path, "log")
    run = room.run([app(name), *arguments], preload=False, FAKECUDA_LOG=log, **options)
    plain = [line for line in run.stdout.splitlines() if not line.startswith("checkpoint")]
    last = name.split(".")[0] + ": done"
    check("%s %s" % (name, " ".join(arguments)), run.returncode == 0 and last in plain, tell(run))
    complaints = []
    if os.path.exists(log):
        with open(log, encoding="utf-8") as text:
            complaints = [line for line in text if "race" in line or "hang" in line]
    check("%s: no race, no hang" % name, not complaints, complaints[:3])
    return run


def pairs():
    for name in CUDA + ["app_ptds"]:
        with Room() as room:
            first, second = runs(room, name + ".static"), runs(room, name + ".shared")
            check("%s: static and shared print the same" % name, first.stdout == second.stdout, tell(first, second))
    for name in DRIVER:
        with Room() as room:
            runs(room, name)


def devices():
    with Room() as room:
        one = room.run([app("app_multidev.static")], preload=False, FAKECUDA_DEVICES=1)
        check("app_multidev with one device", one.returncode == 0 and one.stdout == "skip: one device\n", tell(one))
        three = runs(room, "app_multidev.shared", FAKECUDA_DEVICES=3)
        check("app_multidev with three", "checkpoint 1 device 2 kind device bytes 3145728" in three.stdout, tell(three))
        runs(room, "app_oom.static", FAKECUDA_CAPACITY="1G")
        runs(room, "app_oom.shared", FAKECUDA_CAPACITY="3G", FAKECUDA_OTHER_BYTES="1G")
        none = room.run([app("app_kinds.static")], preload=False, FAKECUDA_DEVICES=0)
        check("app_kinds with no device", none.returncode == 1 and "cudaErrorNoDevice" in none.stderr, tell(none))
        bare = room.run([app("app_kinds.static")], preload=False, fake=False)
        check("app_kinds with no driver", bare.returncode == 1 and "cudaErrorInsufficientDriver" in bare.stderr,
              tell(bare))


def demo_modes():
    with Room() as room:
        leak = runs(room, "demo_app.static", ["--leak"])
        check("--leak frees nothing", "everything freed" not in leak.stdout, tell(leak))
        wait = runs(room, "demo_app.shared", ["--wait", "0.3"])
        check("--wait says so while all is live",
              wait.stdout.index("everything live") < wait.stdout.index("\nwaiting\n") <
              wait.stdout.index("everything freed"), tell(wait))
        counts = os.path.join(room.path, "counts")
        loop = room.run([app("demo_app.static"), "--loop", "--max-seconds", "1", "--threads", "3", "--count-file",
                         counts], preload=False)
        check("--loop ends", loop.returncode == 0 and "every allocation freed: ok" in loop.stdout, tell(loop))
        numbers = read_counts(counts)
        check("--loop counts for each of its threads",
              all(numbers[2 * i] == numbers[2 * i + 1] > 0 for i in range(3)) and not any(numbers[6:]), numbers[:8])
        killed(room, counts)
        bad = room.run([app("demo_app.static"), "--nonsense"], preload=False)
        check("a wrong argument", bad.returncode == 1 and "--nonsense" in bad.stderr, tell(bad))


def read_counts(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return struct.unpack("=%dQ" % (len(view) // 8), view)


def killed(room, counts):
    """The counters of a program killed in the middle are there."""
    os.unlink(counts)
    child = subprocess.Popen([app("demo_app.shared"), "--loop", "--count-file", counts],
                             env=room.env(preload=False), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (os.path.exists(counts) and os.path.getsize(counts) and read_counts(counts)[0]):
        time.sleep(0.02)
    child.kill()
    child.wait()
    numbers = read_counts(counts)
    check("--loop, killed, leaves its counters", numbers[0] > 0 and numbers[0] >= numbers[1], numbers[:2])


def main():
    pairs()
    devices()
    demo_modes()
    finish()


main()
