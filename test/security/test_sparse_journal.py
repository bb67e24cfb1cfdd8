"""Journals that claim much and hold little: what a reader takes is in proportion to what the file really has."""
import mmap
import os
import resource
import struct
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import UID, Second  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, Program  # noqa: E402

NAMES = ("domains", "threads", "segments", "blocks", "usage", "modules", "strings", "stacks", "frames", "settings",
         "failures", "events", "thread caches")
ALIVE, FUTEX_OWNER_DIED = 4244, 0x40000000      # of struct gm_header: has_helper, the first word of alive
SECONDS, MEMORY = 60, 600 << 20


class Journal:
    """A copy of a living program's journal, to be changed."""

    def __init__(self, path, base):
        if path != base:
            subprocess.run(["cp", "--sparse=always", base, path], check=True)
        self.path = path
        self.fd = os.open(path, os.O_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)

    def put(self, at, form, *values):
        os.pwrite(self.fd, struct.pack(form, *values), at)

    def get(self, at, form):
        return struct.unpack(form, os.pread(self.fd, struct.calcsize(form), at))

    def region(self, name):
        """Offset, capacity."""
        return self.get(32 + 64 * NAMES.index(name), "<QQ")

    def use(self, name, used, capacity=None, offset=None):
        at = 32 + 64 * NAMES.index(name)
        if capacity is not None:
            self.put(at, "<QQ", offset, capacity)
        self.put(at + 16, "<QQ", used, used)

    def grow(self, name, capacity):
        """The area at the end of the file, this large, and all of it in use."""
        end, = self.get(24, "<Q")
        self.use(name, capacity, capacity, end)
        self.put(24, "<Q", end + capacity)
        os.truncate(self.path, end + capacity)


def large(name, capacity):
    return lambda journal: journal.grow(name, capacity)


def whole(journal):
    """All that there is room for is in use."""
    for name in NAMES:
        journal.use(name, journal.region(name)[1])


def circles(journal):
    """Segments whose one block, an empty one, is its own neighbour, among a million records that are not there."""
    segments, blocks = journal.region("segments"), journal.region("blocks")
    journal.use("segments", segments[1])
    journal.use("blocks", blocks[1])
    for i in range(1, 1400):
        address = i << 20
        journal.put(segments[0] + 128 * i, "<QQQQQQIIIIIIIHBBBB", address, 1 << 20, 0, 0, 0, 0, i, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    1, 0)
        journal.put(blocks[0] + 128 * i, "<QQQIIIBB", address, 0, 0, i, i, i, 0, 0)
        journal.put(blocks[0] + 128 * i + 88, "<B", 1)


def texts(journal):
    """Settings that all have one text of 15 MiB, which is not there."""
    strings, settings = journal.region("strings"), journal.region("settings")
    at = 8192
    journal.use("strings", strings[1])
    journal.use("settings", settings[1])
    journal.put(strings[0] + at, "<II", 15 << 20, 0)
    for i in range(256):
        journal.put(settings[0] + 16 * i, "<IIII", at, at, at, 0)


def frames(journal, length=4000):
    """Many stacks of one frame each, all frames of the longest names that there are."""
    strings, stacks, frame = journal.region("strings"), journal.region("stacks"), journal.region("frames")
    blocks = journal.region("blocks")
    journal.use("strings", 65536)
    journal.put(strings[0] + 8192, "<II", length, 0)
    os.pwrite(journal.fd, b"\1" * length + b"\0", strings[0] + 8200)
    journal.use("frames", frame[1] // 48 * 48)
    journal.use("stacks", 16 * 100000)
    journal.use("blocks", 128 * 100000)
    os.pwrite(journal.fd, b"".join(struct.pack("<QIIIIIIQQ", i, 0, 8192, 8192, i, 1, 0, 0, 0) for i in range(100000)),
              frame[0])
    os.pwrite(journal.fd, b"".join(struct.pack("<IHHII", i, 1, 0, i, 0) for i in range(100000)), stacks[0])
    record = b"".join(struct.pack("<QQQIIIBBHQQQ", i << 20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) +
                      struct.pack("<QQQBBHIIIQQQ", 1, 0, 0, 1, 0, 0, 0, 16 * i, 0, 0, 0, 0) for i in range(1, 100000))
    os.pwrite(journal.fd, record, blocks[0] + 128)


def deep(journal):
    """The same, all with names of their own, and 64 frames deep."""
    frames(journal, 480)
    stacks, blocks = journal.region("stacks"), journal.region("blocks")
    count = 50000
    journal.use("stacks", 264 * count)
    os.pwrite(journal.fd, b"".join(struct.pack("<IHH64I", i, 64, 0, *((i + j) % 100000 for j in range(64)))
                                   for i in range(count)), stacks[0])
    for i in range(1, 100000):
        journal.put(blocks[0] + 128 * i + 96, "<I", 264 * (i % count))


def kept(journal):
    """A segment of many blocks, and as many that are said to be kept of it and are not in its list."""
    count = 150000
    segments, blocks = journal.region("segments"), journal.region("blocks")
    journal.use("segments", 256)
    journal.use("blocks", 128 * 2 * count)
    journal.put(segments[0] + 128, "<QQQQQQIIIIIIIHBBBBHI", 0, count, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0,
                1)
    os.pwrite(journal.fd, b"".join(
        struct.pack("<QQQIIIBBHQQQ", i - 1, 1, 0, 1, 0, i + 1 if i + 1 < count else 0, 0, 0, 0, 0, 0, 0) +
        struct.pack("<QQQBBHIIIQQQ", 1, 0, 0, 1 if i < count else 5, 0, 0, 0, 0, 0, 0, 0, 0)
        for i in range(1, 2 * count)), blocks[0] + 128)


HOSTILE = {
    "blocks of 64 GiB": large("blocks", 1 << 36),
    "segments of 64 GiB": large("segments", 1 << 36),
    "threads of 64 GiB": large("threads", 1 << 36),
    "stacks of 64 GiB": large("stacks", 1 << 36),
    "frames of 48 GiB": large("frames", 3 << 34),
    "usage of 64 GiB": large("usage", 1 << 36),
    "thread caches of 40 GiB": large("thread caches", 5 << 33),
    "modules of 64 GiB": large("modules", 1 << 36),
    "failures of 64 GiB": large("failures", 1 << 36),
    "settings of 64 GiB": large("settings", 1 << 36),
    "events of 64 GiB": large("events", 1 << 36),
    "every area in use": whole,
    "blocks in circles": circles,
    "blocks that are kept, and are not there": kept,
    "a text that is not there, 768 times": texts,
    "frames with long names": frames,
    "many deep stacks of frames with long names": deep,
}


def mapped(ready, path):
    fd = os.open(path, os.O_RDWR)
    memory = mmap.mmap(fd, 16384)
    ready()
    time.sleep(600)
    memory.flush()


def bounded():
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 30, 2 << 30))


def resident(pid):
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as text:
            return int(text.read().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def measured(room, *words):
    """A verb under a limit of time: (rc, what it said, seconds, bytes of memory at most, whatever it wrote)."""
    out = os.path.join(room.path, "said")
    begun = time.monotonic()
    with open(out, "w+", encoding="utf-8") as said:
        child = subprocess.Popen([GPUMEM, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                                 cwd=room.out, preexec_fn=bounded)
        timer = begun + SECONDS
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > timer or resident(child.pid) > 3 << 30:
                child.kill()
            time.sleep(0.01)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read(2000)
    written = sum(os.path.getsize(os.path.join(room.out, name)) for name in os.listdir(room.out))
    for name in os.listdir(room.out):
        os.unlink(os.path.join(room.out, name))
    return child.returncode, text, time.monotonic() - begun, usage.ru_maxrss << 10, written


with Room() as room:
    os.chmod(room.path, 0o755)
    bad = os.path.join(room.path, "bad.journal")
    with Program(room, APP, "--wait", "600") as program:
        check("a living program", program.until("waiting"))
        [base] = [j for j in room.journal_files() if ".%d." % program.pid in j]
        for name, make in HOSTILE.items():
            with Journal(bad, base) as journal:
                make(journal)
            os.chown(bad, UID, UID)
            held = os.stat(bad).st_blocks * 512
            done = []
            with Second(mapped, bad) as other:
                for words in (["top", "--once"], ["summary"], ["snapshot"]):
                    done.append((words[0], *measured(room, *words, str(other.pid))))
            with Journal(bad, bad) as journal:
                journal.put(ALIVE, "<II", 1, FUTEX_OWNER_DIED)
            for words in (["summary"], ["recover", "--keep"]):
                done.append((words[0], *measured(room, *words, bad)))
            check("%s (%d KiB on the disk)" % (name, held >> 10), all(
                  0 <= d[1] <= 3 and d[3] < SECONDS and d[4] < MEMORY + 8 * held and d[5] < (64 << 20) + 40 * held
                  for d in done), [(d[0], d[1], "%.1f s" % d[3], "%d MiB" % (d[4] >> 20), "%d MiB" % (d[5] >> 20),
                                    d[2][-120:]) for d in done])
    done = measured(room, "recover", "--keep", base)
    check("an honest one is read", done[0] == 0 and done[4] > 0, done)

finish()
