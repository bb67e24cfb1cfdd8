"""The tools of root look at the processes of another user, who does what he can about it: the file that a process
has mapped is opened, no other, and nothing waits."""
import ctypes
import fcntl
import mmap
import os
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import UID, Second  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, gpumem  # noqa: E402

MAGIC = b"GPUMJNL1"
F_SETLEASE, F_NOTIFY = 1024, 1026
IN_OPEN, IN_ISDIR = 0x20, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def place_of(room, name):
    """A directory of the second user's."""
    path = os.path.join(room.path, name)
    os.mkdir(path)
    os.chown(path, UID, UID)
    return path


def waited(*words):
    """A verb, and whether it waited for the other: for as long as the kernel lets who opens a file wait for its lease."""
    with open("/proc/sys/fs/lease-break-time", encoding="ascii") as text:
        longest = int(text.read())
    begun = time.monotonic()
    try:
        done = gpumem(*words, timeout=2 * longest)
    except subprocess.TimeoutExpired as expired:
        done = expired
    return done, time.monotonic() - begun >= longest


def mapped(path):
    """A file that begins as a journal, mapped: (descriptor, mapping)."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, MAGIC + bytes(65536 - 8), 0)
    return fd, mmap.mmap(fd, 65536)


def stay():
    while True:
        time.sleep(60)


def leased(ready, path):
    fd, memory = mapped(path)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK)
    ready()
    while True:
        time.sleep(60)
        memory.flush()


def replaced(ready, path, make):
    """The name that /proc/PID/maps has for the mapping is another thing's."""
    _, memory = mapped(path)
    os.unlink(path)
    make(path + " (deleted)")
    ready()
    stay()
    memory.flush()


def moved_directory(ready, path, other):
    """And the directory of it a link to another one."""
    _, memory = mapped(path)
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
    os.symlink(other, os.path.dirname(path))
    ready()
    stay()
    memory.flush()


def many(ready, path, count):
    """Mappings that might all be journals."""
    held = []
    for i in range(count):
        fd = os.open("%s.%d.journal" % (path, i), os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(fd, bytes(4096), 0)
        held.append(mmap.mmap(fd, 4096))
        os.close(fd)
    ready()
    stay()
    del held


class Opens:
    """How often was @path opened, or what lies in it?"""

    def __init__(self, path):
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.fd >= 0 and libc.inotify_add_watch(self.fd, os.fsencode(path), IN_OPEN) >= 0

    def count(self):
        try:
            events, at, count = os.read(self.fd, 1 << 20), 0, 0
        except BlockingIOError:
            return 0
        while at < len(events):
            count += not struct.unpack_from("I", events, at + 4)[0] & IN_ISDIR     # who lists it opens nothing in it
            at += 16 + struct.unpack_from("I", events, at + 12)[0]
        return count


def without_rights():
    """Root of a container: of other users' processes it may look into the names, not at the files themselves."""
    for right in (21, 40):             # CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE
        assert libc.prctl(24, right, 0, 0, 0) == 0


FALLEN = """
import ctypes, os, sys, time
cuda, at, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxPushCurrent_v2(context) and not cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 20))
first = [int(line.split("-")[0], 16) for line in open("/proc/self/maps") if " rw-s " in line and ".journal" in line][0]
path = ctypes.string_at(first, 16384).index(os.environ["GPUMEM_OUTPUT"].encode())
os.setgroups([]); os.setresgid(*[int(sys.argv[1])] * 3); os.setresuid(*[int(sys.argv[1])] * 3)
ctypes.memmove(first + path, sys.argv[2].encode() + b"\\0", len(sys.argv[2]) + 1)
print("ready", flush=True)
time.sleep(60)
"""

with Room() as room:
    os.chmod(room.path, 0o755)
    place = place_of(room, "lease")
    with Second(leased, place + "/a.journal") as other:
        check("a process that leases its file", other.said == "ready", other.said)
        for words in (["top", "--once", str(other.pid)], ["snapshot", str(other.pid)], ["summary", str(other.pid)],
                      ["top", "--once", "all"]):
            done, held = waited(*words)
            check("a lease does not hold %s" % words[0], not held, done)

    secret = os.path.join(room.path, "secret")
    os.mkdir(secret, 0o700)
    for name in ("/a.journal", "/a.journal (deleted)"):
        with open(secret + name, "wb") as file:
            file.write(MAGIC + bytes(65536))
    for name, make in (("a link to root's file", lambda path: os.symlink(secret + "/a.journal", path)),
                       ("a link to a device", lambda path: os.symlink("/dev/zero", path)),
                       ("a pipe", os.mkfifo)):
        place = place_of(room, name.replace(" ", "-"))
        target = secret + "/a.journal" if "file" in name else "/dev/zero" if "device" in name else None
        with Second(replaced, place + "/b.journal", make) as other:
            check("a process whose file's name is %s" % name, other.said == "ready", other.said)
            watch = Opens(target or place + "/b.journal (deleted)")
            done, held = waited("top", "--once", str(other.pid))
            check("%s is not opened, and nothing waits" % name, not held and not watch.count(), done)
            done = subprocess.run([GPUMEM, "top", "--once", str(other.pid)], capture_output=True, text=True, timeout=100,
                                  check=False, preexec_fn=without_rights)
            check("nor by its name, where that is all there is", "no journal" in done.stderr and not watch.count(), done)

    place = place_of(room, "directory")
    os.mkdir(place + "/in")
    os.chown(place + "/in", UID, UID)
    with Second(moved_directory, place + "/in/a.journal", secret) as other:
        check("a process whose file's directory is a link to root's", other.said == "ready", other.said)
        watch = Opens(secret)
        done, held = waited("top", "--once", str(other.pid))
        check("what lies there is not opened", not held and not watch.count(), done)

    place = place_of(room, "many")
    with Second(many, place + "/x", 400) as other:
        check("a process with 400 mappings that are named so", other.said == "ready", other.said)
        seen = []
        while len(seen) < 5 and (not seen or seen[-1] > 64):    # a test beside this one may look for journals, too
            watch = Opens(place)
            done, held = waited("top", "--once", str(other.pid))
            seen.append(watch.count())
        check("not all of them are opened", seen[-1] <= 64 and done.returncode == 3, (seen, held, done))

with Room() as room:
    secret = os.path.join(room.path, "secret")
    os.mkdir(secret, 0o700)
    with Program(room, sys.executable, "-c", FALLEN, str(UID), secret + "/written.json") as program:
        check("a process that was root's", program.until("ready"), open(program.output, encoding="utf-8").read())
        os.kill(program.pid, signal.SIGSTOP)
        done = gpumem("snapshot", str(program.pid), cwd=room.path)
        check("does not say where root writes its snapshot", done.returncode == 0 and not os.listdir(secret) and
              os.path.exists(done.stdout.strip()), (done, os.listdir(secret)))

finish()
