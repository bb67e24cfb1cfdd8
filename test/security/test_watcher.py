"""What other users do to hide a process from root's watcher, or to keep the watcher busy: journals that are mapped many times, mappings
without end, files that are longer than any journal, more journals than there are descriptors, a snapshot or a pipe that has a process's number."""
import ctypes
import json
import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import Second  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, journals_begun, load, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
SNAPSHOT = "test/data/gpumem-snapshot.json"
MiB = 1 << 20
MAPS = """
import mmap, os, sys, time
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 65536)
for _ in range(25):
    if not os.fork():
        time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""


class Watcher:
    """gpumem serve in @directory."""

    def __init__(self, directory):
        self.child = subprocess.Popen([GPUMEM, "serve", "--prometheus", "0"], stdout=subprocess.PIPE, text=True, cwd=directory)
        self.url = self.child.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()

    def page(self, seconds=100):
        """The page; the reason where none comes."""
        try:
            with urllib.request.urlopen(self.url, timeout=seconds) as answer:
                return answer.read().decode()
        except OSError as error:
            return "no answer: %s" % error

    def bytes_read(self):
        with open("/proc/%d/io" % self.child.pid, encoding="utf-8") as text:
            return int(text.read().split()[1])


def family(pid):
    """A process and its children. Other tests run beside this one, and root's watcher sees their processes, too."""
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="utf-8") as text:
        return {pid, *map(int, text.read().split())}


def pids(page, *among):
    """Whose memory is on the page, among these processes and their children; a process as often as it is there."""
    mine = set().union(*map(family, among))
    return sorted(int(pid) for pid in re.findall(r'^gpumem_allocated_bytes{[^}]*pid="([0-9]+)"', page, re.M) if int(pid) in mine)


def commands(page, pid):
    return set(re.findall('command="([^"]*)",pid="%d"' % pid, page))


def unread(page):
    found = re.findall("^gpumem_unread_processes ([0-9]+)$", page, re.M)
    return int(found[0]) if found else -1


def report(among, *words, **more):
    """The processes among these and their children, and how many were not read, in the first report of gpumem top."""
    run = gpumem("top", "--json", "--once", *words, **more)
    got = json.loads(run.stdout.splitlines()[0]) if run.stdout else {"processes": []}
    mine = set().union(*map(family, among))
    return [p for p in got["processes"] if p["pid"] in mine], got.get("unread_processes")


def stay():
    while True:
        time.sleep(60)


def named(number, length):
    """A file that begins as a journal, mapped, and then made longer. It has no name."""
    fd = os.memfd_create("gpumem-%d" % number)
    os.pwrite(fd, b"GPUMJNL1" + bytes(65536 - 8), 0)
    memory = mmap.mmap(fd, 65536)
    os.ftruncate(fd, length)
    return fd, memory


def endless(ready):
    held = named(0, 2 ** 63 - 1)
    ready()
    stay()
    del held


def children(ready, count):
    """Each has a journal of its own mapped."""
    for number in range(count):
        if not os.fork():
            ctypes.CDLL(None).prctl(1, 9)               # PR_SET_PDEATHSIG
            held = named(number, 65536)
            os.close(held[0])
            stay()
    ready()
    stay()


def mappings(ready, place, count):
    """@count mappings of a file whose name has almost 4,000 bytes."""
    os.chdir(place)
    for _ in range(15):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, mmap.PAGESIZE)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_ssize_t
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    for _ in range(count):
        assert libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0) != -1
    ready()
    stay()


with Room() as room:
    os.chmod(room.path, 0o755)

    # ---- one journal, mapped by many ------------------------------------------------------------------------------------
    with Program(room, TRAINING, "--wait") as program, Watcher(room.path) as watcher:
        check("a process", program.until("waiting"))
        journal = journals_begun(room, program.pid)[0]
        with Program(room, sys.executable, "-c", MAPS, journal, preload=False) as other:
            check("its journal is mapped by 26 others of its user's", other.until("ready") and len(family(other.pid)) == 26)
            both = [program.pid, other.pid]
            page = watcher.page()
            check("it is on the page once, and they are not", pids(page, *both) == [program.pid], (pids(page, *both), page[:300]))
            got, _ = report(both, "all")
            check("top all has it once", [p["pid"] for p in got] == [program.pid], [p["pid"] for p in got])
            files = os.path.join(room.path, "textfiles")
            os.mkdir(files)
            gpumem("convert", "--to", "prometheus", "--textfile", files, "all")
            mine = ["gpumem.%d.prom" % pid for pid in family(program.pid) | family(other.pid)]
            check("and convert all", [name for name in os.listdir(files) if name in mine] == ["gpumem.%d.prom" % program.pid], os.listdir(files))
            program.kill()
            page = watcher.page()
            check("when it has ended they do not stand for it", not pids(page, other.pid), page[:300])

    # ---- files, and lists of mappings, without end ----------------------------------------------------------------------
    with Second(endless) as first, Second(endless) as second, Program(room, TRAINING, "--wait") as victim, Watcher(room.path) as watcher:
        check("two files of 2^63 - 1 bytes, and a process behind them", victim.until("waiting") and
              (first.said, second.said) == ("ready", "ready"), (first.said, second.said))
        for time_ in ("first", "second", "third"):
            page = watcher.page()
            check("the process is on the page: the %s time" % time_, pids(page, victim.pid) == [victim.pid] and unread(page) >= 2, page[:300])

    place = os.path.join(room.path, "deep")
    os.mkdir(place)
    os.chmod(place, 0o777)
    with Second(mappings, place, 30000) as other, Program(room, TRAINING, "--wait") as victim, Watcher(room.path) as watcher:
        check("a process whose list of mappings has 30,000 lines of 3,800 bytes", victim.until("waiting") and other.said == "ready", other.said)
        before = watcher.bytes_read()
        page = watcher.page()
        read = watcher.bytes_read() - before
        check("a third of it is read at most, and what other processes have", read < 80 * MiB, read)
        check("the other process is on the page, which says that one could not be read", pids(page, victim.pid, other.pid) == [victim.pid] and
              unread(page) >= 1, (page[:300], unread(page)))
        got, missed = report([victim.pid], "all")
        check("so does top all", [p["pid"] for p in got] == [victim.pid] and missed, (got, missed))
        check("in words, too", re.search("under libgpumem.*; [0-9]+ could not be looked into", gpumem("top", "--once", "all").stdout))
        one = gpumem("summary", str(other.pid))
        check("who asks for it hears why", one.returncode == 3 and "too many mappings" in one.stderr, one)
    shutil.rmtree(place)

    # ---- more journals than descriptors ---------------------------------------------------------------------------------
    def few(count):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

    with Second(children, 24) as other, Program(room, TRAINING, "--wait") as victim:
        check("24 journals before a process's", victim.until("waiting") and other.said == "ready", other.said)
        mine = (family(other.pid) | {victim.pid}) - {other.pid}
        for most in (20, 40):
            run = subprocess.run([GPUMEM, "top", "--json", "-n", "2", "-d", "0.1", "all"], capture_output=True, text=True, timeout=100,
                                 preexec_fn=few(most), check=False)
            got = [[p for p in json.loads(line)["processes"] if p["pid"] in mine] for line in run.stdout.splitlines()]
            check("with %d descriptors top has all of them, and what the process holds" % most, [len(r) for r in got] == [25, 25] and
                  all(p["devices"][0]["live_bytes"] > MiB for r in got for p in r if p["pid"] == victim.pid), (got, run.stderr))
        run = subprocess.run([GPUMEM, "top", "--json", "--once", "all"], capture_output=True, text=True, timeout=100, preexec_fn=few(6), check=False)
        got = json.loads(run.stdout.splitlines()[0]) if run.stdout else {}
        check("with almost none it says how many it has not", got.get("unread_processes", 0) > 0, (got, run.stderr))

    # ---- files that have a process's number -----------------------------------------------------------------------------
    for what in ("a snapshot", "a pipe"):
        with Program(room, TRAINING, "--wait") as victim:
            check("a process, and %s that has its number" % what, victim.until("waiting"))
            place = os.path.join(room.path, "numbers")
            os.mkdir(place)
            named_so = os.path.join(place, str(victim.pid))
            if what == "a pipe":
                os.mkfifo(named_so)
                writer = os.open(named_so, os.O_RDWR)       # somebody has it open, so that it has no end
            else:
                shutil.copy(SNAPSHOT, named_so)
                check("the snapshot is of another program", load(SNAPSHOT)["process"]["command"] != "app_training")
            with Watcher(place) as watcher:
                page = watcher.page(20)
                check("%s: its own metrics are on the page" % what, pids(page, victim.pid) == [victim.pid] and
                      commands(page, victim.pid) == {"app_training"}, (page[:300], commands(page, victim.pid)))
            files = os.path.join(place, "textfiles")
            os.mkdir(files)
            with subprocess.Popen([GPUMEM, "convert", "--to", "prometheus", "--textfile", files, "--watch", "0.1", "all"], cwd=place) as looking:
                path = os.path.join(files, "gpumem.%d.prom" % victim.pid)
                there = wait_for(lambda: os.path.exists(path), 20)
                said = open(path, encoding="utf-8").read() if there else ""
                check("%s: and in its textfile" % what, commands(said, victim.pid) == {"app_training"}, said[:300])
                looking.kill()
            try:
                got, _ = report([victim.pid], "--by", "annotation", "all", cwd=place, timeout=20)
            except subprocess.TimeoutExpired as expired:
                got = [{"state": str(expired)}]
            check("%s: top --by annotation reads its journal" % what, [p["state"] for p in got] == ["running"] and
                  sum(row["live_bytes"] for row in got[0]["annotations"]) == sum(d["live_bytes"] for d in got[0]["devices"]) > MiB, got)
            if what == "a pipe":
                os.close(writer)
            shutil.rmtree(place)
finish()
