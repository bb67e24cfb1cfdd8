"""gpumem run: follows children and ranks, one file each, one table at the end; ends as the command did."""
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from screen import Screen  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem, load, wait_for  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
LAUNCHER = [sys.executable, os.path.abspath("test/tools/launcher.py")]
MiB = 1 << 20
UNTIL = "until grep -q waiting ../said; do sleep 0.02; done"


def run(room, *words, flags=(), timeout=120, **env):
    return subprocess.run([GPUMEM, "run", *flags, "--", *words], env=room.env(preload=False, **env), cwd=room.out, capture_output=True,
                          text=True, timeout=timeout, check=False)


class Running:
    """gpumem run in a session of its own, not waited for."""

    def __init__(self, room, *words, flags=()):
        self.err = open(os.path.join(room.path, "err"), "w+", encoding="utf-8")
        self.child = subprocess.Popen([GPUMEM, "run", *flags, "--", *words], env=room.env(preload=False), cwd=room.out,
                                      stdout=subprocess.PIPE, stderr=self.err, text=True, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait(timeout=60)
        self.child.stdout.close()
        self.err.close()

    def said(self, word):
        for line in self.child.stdout:
            if word in line:
                return True
        return False

    def children(self):
        """The command, and who tells whether a signal was for all."""
        with open("/proc/%d/task/%d/children" % (self.child.pid, self.child.pid), encoding="utf-8") as children:
            return [int(word) for word in children.read().split()]

    def so_far(self):
        with open(self.err.name, encoding="utf-8") as err:
            return err.read()

    def end(self):
        self.child.wait(timeout=60)
        self.err.seek(0)
        return self.err.read()


def table(err):
    """Rows of the closing table: {rank: (pid, command, end, peak, not freed, blocks, ooms, snapshot)}."""
    size = r"(\d+(?:\.\d+)? (?:B|[KMG]iB))"
    found = re.findall(r"^gpumem: +(-|\d+) +(\d+) (\S+) +(\S+) +%s +%s +(\d+) +(\d+)  (.*)$" % (size, size), err, re.M)
    return {row[0]: row[1:] for row in found}


def rooms():
    """Rooms of runs that have ended: others' may come and go while we look."""
    found = set()
    for path in glob.glob("/dev/shm/gpumem-run-*") + glob.glob("/tmp/gpumem-run-*"):
        try:
            fd = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.add(path)
            finally:
                os.close(fd)
        except OSError:
            pass
    return found


before = rooms()
with Room() as room:
    # ---- one process ------------------------------------------------------------------------------------------------
    done = run(room, TRAINING, "--leak", "--steps", "6")
    path = glob.glob(room.out + "/gpumem.app_training.*.exit.json")
    check("one process: its peak, its leaks, where it is", done.returncode == 0 and not done.stdout and len(path) == 1 and re.search(
        r"^gpumem: process \d+ \(app_training\) ended: peak [0-9.]+ MiB, 6\.00 MiB in 6 blocks never freed: %s$" % re.escape(path[0]), done.stderr, re.M), done)
    clean = run(room, TRAINING, "--steps", "6")
    check("no leak: that is said", re.search(r"^gpumem: process \d+ \(app_training\) ended: peak [0-9.]+ MiB, every block was freed: ", clean.stderr, re.M) and
          " 0 block" not in clean.stderr, clean)
    words = ["/usr/bin/env", "-C", room.out, GPUMEM, "run", "--", TRAINING, "--leak", "--steps", "6"]
    for columns, most, *words in ((0, 80, *words), (90, 90, *words), (60, 60, GPUMEM, "run", "--", "true")):
        with Screen(words, columns=columns, **room.env(preload=False)) as screen:
            screen.ended()
            said = screen.raw.decode().replace("\r", "").split("\n")
        check("on a terminal of %d columns (0: not known)" % columns, (any("6.00 MiB in 6" in line for line in said) or "no CUDA call" in " ".join(said)) and
              any(re.fullmatch(r"gpumem:   \S.*", line) for line in said) and max(map(len, said)) <= most, said)
    long = room.path + "/" + "a-name/" * 12
    os.makedirs(long)
    words = [GPUMEM, "run", "-o", long + "%p.%r.json", "--", "sh", "-c", "%s --steps 3 --leak & wait; %s --steps 3" % (TRAINING, TRAINING)]
    for columns in (80, 220):
        with Screen(words, columns=columns, **room.env(preload=False)) as screen:
            screen.ended()
            said = [line for line in screen.raw.decode().replace("\r", "").split("\n") if line]
        there, [asked] = [line for line in said if long in line and "gpumem leaks" not in line], [line for line in said if "gpumem leaks" in line]
        check("several processes on a terminal of %d columns: the numbers fit, a file has a line of its own where it must, a command always is one line" % columns,
              len(there) == 2 and all(len(line) <= columns for line in said if long not in line) and
              all(re.fullmatch(r"gpumem: +%s\d+\.exit\.json" % re.escape(long) if columns == 80 else r"gpumem: +- +\d+ app_training +exit .* %s\d+\.exit\.json" % re.escape(long), line)
                  for line in there) and re.search(r"^(gpumem: look at it with: )?gpumem leaks %s\d+\.exit\.json$" % re.escape(long), asked), said)
    check("and what to type next", done.stderr.endswith("gpumem: look at it with: gpumem leaks %s\n" % path[0]), done.stderr)
    leaks = json.loads(gpumem("leaks", "--json", path[0]).stdout)
    check("which tells the leak", [x["bytes"] for x in leaks["leaks"]] == [6 * MiB] and [f["name"] for f in leaks["leaks"][0]["stack"][:2]] == ["get", "remember_loss"], leaks)
with Room() as room:
    done = run(room, TRAINING, "--oom", "--steps", "6")
    check("out of memory: said, and the state of that moment is next", done.returncode == 1 and "out of memory 1 time:" in done.stderr and
          re.search(r"look at it with: gpumem summary \S*oom-\d+\.json$", done.stderr, re.M), done)
with Room() as room:
    done = run(room, "sh", "-c", "echo here; echo there >&2; exit 7")
    check("a command without CUDA: it is said that nothing was recorded, and its own status", (done.returncode, done.stdout, room.files()) ==
          (7, "here\n", []) and re.fullmatch(r"gpumem: recording sh, process \d+\nthere\ngpumem: nothing was recorded: no CUDA call was seen "
          r"\(gpumem help run says when that may be\)\n", done.stderr), done)
    done = run(room, "sh", "-c", "%s --steps 1; exit 0" % TRAINING, flags=["--follow=no"])
    check("--follow=no: nothing is recorded of a child, and why", done.returncode == 0 and not room.files() and "follow=no leaves" in done.stderr, done)
    for variable, value in (("GPUMEM_FOLLOW", "no"), ("GPUMEM_CONF", "follow:no")):
        env = dict(room.env(), **{variable: value})
        done = subprocess.run(["sh", "-c", "%s run -q -o %%r.json -- %s --steps 1; exit 0" % (GPUMEM, TRAINING)], env=env, cwd=room.out,
                              capture_output=True, text=True, timeout=120, check=False)
        check("%s=%s: a child that gpumem run starts is recorded all the same" % (variable, value), [os.path.basename(f) for f in room.files()] == ["exit.json"], done)
        for file in room.files():
            os.unlink(os.path.join(room.out, file))
    for flags, why in ((["--output=/dev/null"], "none was wanted (output=/dev/null)"), (["--snapshot_on=oom"], "none was wanted of a program that ends by itself (snapshot_on)")):
        done = run(room, TRAINING, "--steps", "1", flags=flags)
        check("%s: why there is no snapshot, and no other reason" % flags[0], done.stderr.endswith("gpumem: no snapshot: %s\n" % why), done)
    for command, status in (("./nosuch", 127), ("nosuch", 127), ("/", 126), ("/dev/null", 126)):
        done = run(room, command)
        check("%s: the error alone" % command, done.returncode == status and re.fullmatch(r"gpumem run: %s: [^\n]*\n" % re.escape(command), done.stderr), done)
    done = run(room, "sh", "-c", "echo there >&2", flags=["--quiet"])
    check("--quiet: not a word of ours", (done.returncode, done.stderr) == (0, "there\n"), done)
    done = run(room, TRAINING, "--steps", "2", flags=["--quiet"])
    check("--quiet", done.returncode == 0 and not done.stderr and len(room.files()) == 1, (done, room.files()))
    done = run(room, TRAINING, "--steps", "2", flags=["--output=%c.of.%r.json", "--stacks", "none", "--exit-history=0"])
    check("options of the library as flags", done.returncode == 0 and "app_training.of.exit.json" in done.stderr and
          load(os.path.join(room.out, "app_training.of.exit.json"))["stacks"] == [[]], done)
    for words, status in ((["/nowhere/app"], 127), (["/etc/passwd"], 126)):
        done = run(room, *words)
        check("%s: exit %d" % (words[0], status), done.returncode == status and words[0] in done.stderr and "nothing was" not in done.stderr, done)
    done = subprocess.run([GPUMEM, "run", "--library", "/nowhere.so", "--", "true"], capture_output=True, text=True, check=False)
    check("no library there: said", done.returncode == 1 and "no libgpumem.so" in done.stderr, done)

# ---- ranks --------------------------------------------------------------------------------------------------------
for kind in ("torch", "mpi", "slurm"):
    with Room() as room:
        done = run(room, *LAUNCHER, "6", kind, "sh", "-c", "exec %s --steps 4 --batch $((4 + %%RANK%% / 5 * 4))" % TRAINING,
                   flags=["--output=%k.%r.json"])
        rows = table(done.stderr)
        check("%s: six ranks, a file each, one table" % kind, done.returncode == 0 and sorted(rows) == list("012345") and
              room.files() == ["%d.exit.json" % r for r in range(6)], (done, room.files()))
        snapshots = {rank: load(os.path.join(room.out, "%s.exit.json" % rank)) for rank in rows}
        check("%s: its pids and paths are right" % kind, all(int(row[0]) == snapshots[rank]["process"]["pid"] and
              row[7] == os.path.join(room.out, rank + ".exit.json") and row[2] == "exit" and row[4] == "0 B" for rank, row in rows.items()), rows)
        check("%s: its peaks" % kind, all(abs(float(row[3].split()[0]) * MiB - snapshots[rank]["devices"][0]["memory_stats"][
            "requested_bytes.all.peak"]) < MiB / 100 for rank, row in rows.items()) and rows["5"][3] != rows["0"][3], rows)
        line = re.findall(r"^gpumem: the ranks side by side: (gpumem merge .*)$", done.stderr, re.M)
        merged = subprocess.run(line[0].replace("gpumem", GPUMEM, 1), shell=True, capture_output=True, text=True, check=False) if line else None
        check("%s: the next command works as it stands" % kind, merged and merged.returncode == 0 and
              re.search(r"^ +\S+ MiB +.*  forward \(", merged.stdout, re.M), (line, merged))

# ---- deaths -------------------------------------------------------------------------------------------------------
with Room() as room:
    with Running(room, *LAUNCHER, "4", "torch", TRAINING, "--steps", "3", "--wait", flags=["--output=%k.%r.json"]) as running:
        check("four ranks wait", sum(running.said("waiting") for _ in range(4)) == 4)
        # (the launcher is the child of gpumem run, the ranks are its children)
        pids = {}
        def find():
            for path in glob.glob("/proc/[0-9]*/stat"):
                try:
                    with open(path, encoding="utf-8") as stat:
                        words = stat.read().rsplit(")", 1)[1].split()
                    with open(os.path.dirname(path) + "/environ", "rb") as environ:
                        pairs = dict(p.split(b"=", 1) for p in environ.read().split(b"\0") if b"=" in p)
                    with open(os.path.dirname(path) + "/comm", encoding="utf-8") as comm:
                        name = comm.read().strip()
                except (OSError, IndexError):
                    continue
                if name == "app_training" and int(words[3]) == running.child.pid:      # its session
                    pids[pairs[b"RANK"].decode()] = int(path.split("/")[2])
            return len(pids) == 4
        check("found", wait_for(find), pids)
        os.kill(pids["1"], signal.SIGKILL)
        os.kill(pids["2"], signal.SIGSEGV)
        running.child.send_signal(signal.SIGTERM)              # passed on to the launcher, and by it to the ranks
        err = running.end()
        rows = table(err)
        check("SIGTERM is passed on; the launcher's own status comes back", running.child.returncode == 1, (running.child.returncode, err))
        check("every rank has a snapshot, whatever it died of", sorted(rows) == list("0123") and all(os.path.exists(row[7]) for row in rows.values()) and
              len(room.files()) == 4, (rows, room.files()))
        check("and how it ended", [rows[r][2] for r in "0123"] == ["SIGTERM", "killed", "SIGSEGV", "SIGTERM"], rows)
        check("what the killed one held", rows["1"][4] == "252.00 MiB" and rows["1"][5] == "24" and
              load(rows["1"][7])["reason"] == "recovered" and int(rows["1"][0]) == pids["1"], rows)
with Room() as room:
    with Running(room, TRAINING, "--wait") as running:
        check("one waits", running.said("waiting"))
        command = running.child.pid
        running.child.send_signal(signal.SIGTERM)
        err = running.end()
        check("a command that a signal ends: the same death", running.child.returncode == -signal.SIGTERM and
              re.search(r"ended by SIGTERM: peak [0-9.]+ MiB, 252\.00 MiB in 24 blocks live", err), (running.child.returncode, err))
# kill(-GROUP) reaches the command by itself: passed on, it would be the second (mpirun aborts at that).
COUNTS = """
import os, signal, sys
seen = []
signal.signal(signal.SIGINT, lambda n, f: seen.append("INT"))
signal.signal(signal.SIGTERM, lambda n, f: seen.append("TERM"))
signal.signal(signal.SIGRTMIN, lambda n, f: seen.append("RT"))
print("ready", flush=True)
for line in sys.stdin:
    taken = seen[:]
    del seen[:len(taken)]       # what comes from here on is the next line's
    print(*taken, flush=True)
"""
with Room() as room:
    with subprocess.Popen([GPUMEM, "run", "--", sys.executable, "-c", COUNTS], env=room.env(preload=False), stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, start_new_session=True) as counter:
        check("a program counts its signals", counter.stdout.readline() == "ready\n")

        def got():
            time.sleep(0.5)                             # longer than is waited for the signal probe
            counter.stdin.write("\n")
            counter.stdin.flush()
            return counter.stdout.readline().split()
        found = []
        for _ in range(5):
            os.killpg(counter.pid, signal.SIGTERM)
            found.append(got())
            os.kill(counter.pid, signal.SIGINT)
            found.append(got())
            os.killpg(counter.pid, signal.SIGRTMIN)
            found.append(got())
            os.kill(counter.pid, signal.SIGRTMIN)
            found.append(got())
        check("each of them once, whether sent to the group or to gpumem run alone", found == [["TERM"], ["INT"], ["RT"], ["RT"]] * 5, found)
        counter.stdin.close()
        counter.wait(timeout=60)
for number, how in ((signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")):
    with Room() as room:
        with Running(room, "sh", "-c", "exec %s --wait" % TRAINING) as running:
            check("the command waits", running.said("waiting"))
            command = running.children()
            os.kill(command[0], number)
            err = running.end()
        check("the command dies of %s: said, and the same death" % how, running.child.returncode == -number and
              re.search(r"process %d \(app_training\) died of %s: peak" % (command[0], how), err), (running.child.returncode, err))
for number, how in ((9, "SIGKILL"), (11, "SIGSEGV"), (6, "SIGABRT")):
    with Room() as room:
        done = run(room, "sh", "-c", "%s --wait >../said & %s; kill -%d $!; wait $!; exit 3" % (TRAINING, UNTIL, number))
        check("a child of the command dies of %s: its snapshot" % how, done.returncode == 3 and len(room.files()) == 1 and
              room.files()[0] in done.stderr and "252.00 MiB in 24 blocks live" in done.stderr, (done, room.files()))
with Room() as room:
    done = run(room, "sh", "-c", "exec %s --steps 3 --wait >../said 2>&1 & %s; exit 0" % (TRAINING, UNTIL))
    check("a child that goes on: said, its journal stays", done.returncode == 0 and "still running: its journal stays at" in done.stderr, done)
    stays = re.findall(r"journal stays at (\S+)", done.stderr)
    pid = int(re.findall(r"process (\d+) \(app_training\)", done.stderr)[0]) if stays else 0
    if pid:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not os.path.exists("/proc/%d" % pid) or " Z " in open("/proc/%d/stat" % pid, encoding="utf-8").read())
        again = gpumem("recover", os.path.dirname(stays[0]), cwd=room.out)
        check("and can be recovered when it is dead", again.returncode == 0 and glob.glob(room.out + "/*%d*.json" % pid), again)
        for directory in (os.path.dirname(stays[0]), os.path.dirname(os.path.dirname(stays[0]))):
            if os.path.isdir(directory):
                os.rmdir(directory)
with Room() as room:
    with Running(room, "sh", "-c", "%s --steps 2; exec %s --wait" % (TRAINING, TRAINING), flags=["--output=first.%r.json"]) as running:
        check("a command waits", running.said("waiting"))
        command = running.children()[0]
        mine = [os.path.dirname(os.path.dirname(p)) for p in glob.glob("/dev/shm/gpumem-run-*/*/*.%d.*journal" % command)]
        time.sleep(2.1)                                 # a room younger than that is not looked into
        gpumem("recover", str(command), cwd=room.out)
        check("gpumem recover leaves the room of a living run alone", len(mine) == 1 and glob.glob(mine[0] + "/*/*.journal"), mine)
        running.child.kill()
        running.child.wait(timeout=60)
        alive = gpumem("recover", str(command), cwd=room.out)
        check("gpumem run itself is killed: the living command is left alone", alive.returncode == 0 and "lives" in alive.stdout and
              len(glob.glob(mine[0] + "/*/*.journal")) == 1, alive)
        os.kill(command, signal.SIGKILL)
        gone = wait_for(lambda: not os.path.exists("/proc/%d" % command) or " Z " in open("/proc/%d/stat" % command, encoding="utf-8").read())
        after = gpumem("recover", str(command), cwd=room.out)
        check("dead as well: its snapshot, and the room is cleared up", gone and after.returncode == 0 and len(
            glob.glob(room.out + "/*.%d.recovered.json" % command)) == 1 and not os.path.exists(mine[0]), (after, room.files(), mine))
# What the library would not accept is said before the program starts.
with Room() as room:
    for flags, said in ((["--stacks=nativ"], "--stacks=nativ is not allowed: it takes one of none, python, native, all\n"),
                        (["--history", "many"], "--history=many is not allowed"), (["--snapshot-on=exit,never"], "--snapshot_on=exit,never"),
                        (["--max-split-size-mb=5"], "from 20 (large_segment_size_mb) up"), (["--stacks="], "--stacks= is not allowed")):
        done = run(room, "echo", "here", flags=flags)
        check("%s: exit 2, and nothing ran" % " ".join(flags), (done.returncode, done.stdout) == (2, "") and said in done.stderr, done)
    for env, said in (({"memory_limit": "10QiB"}, "gpumem: GPUMEM_MEMORY_LIMIT=10QiB is not allowed: it takes a size in bytes, or as 512MB or 40GiB, from 1 up, or unlimited\n"),
                      ({"GPUMEM_CONF": "memory_limit:10QiB"}, "gpumem: GPUMEM_CONF: memory_limit:10QiB is not allowed"),
                      ({"GPUMEM_CONF": "memory_limt:10GiB"}, "GPUMEM_CONF: memory_limt is not an option: did you mean"),
                      ({"GPUMEM_CONF": "nonsense:1"}, "GPUMEM_CONF: nonsense is not an option"),
                      ({"GPUMEM_CONF": "memory_limit"}, "GPUMEM_CONF: "),
                      ({"memory_limt": "10GiB"}, "GPUMEM_MEMORY_LIMT is not an option: did you mean GPUMEM_MEMORY_LIMIT?"),
                      ({"history": ""}, "GPUMEM_HISTORY= is not allowed"), ({"max_split_size_mb": 5}, "GPUMEM_MAX_SPLIT_SIZE_MB=5 is not allowed")):
        done = run(room, "echo", "here", **env)
        check("%s in the environment: exit 2, and nothing ran" % env, (done.returncode, done.stdout) == (2, "") and said in done.stderr and
              "; using" not in done.stderr, done)
    done = run(room, "echo", "here", flags=["--memory-limit=1GiB"], memory_limit="10QiB")
    check("a flag replaces what was wrong", (done.returncode, done.stdout) == (0, "here\n"), done)
    done = run(room, TRAINING, "--steps", "1", gpus_of_mine="x")
    check("a variable that is like no option may be somebody else's: the library says so, and the program runs", done.returncode == 0 and
          "GPUMEM_GPUS_OF_MINE is not an option" in done.stderr, done)
    done = run(room, "echo", "here", flags=["--max-split-size-mb=15", "--snapshot-on=[exit,oom]"], large_segment_size_mb=12)
    check("what is allowed by another option's value is", (done.returncode, done.stdout) == (0, "here\n"), done)
    for flags, env in ((["-o", "%z.json"], {}), (["--output=x%"], {}), ([], {"output": "%c.%z"}), ([], {"GPUMEM_CONF": "output:%c.%z"})):
        done = run(room, "echo", "here", flags=flags, **env)
        check("%s %s, an unknown word of a name: exit 2, and nothing ran" % (flags, env), (done.returncode, done.stdout) == (2, "") and
              "is not known: %c %p %h %k %r %t are" in done.stderr, done)
    done = gpumem("recover", "-o", "%z.json", room.path)
    check("recover -o, too", done.returncode == 2 and "is not known" in done.stderr, done)
    for number, flags in enumerate((["-o", "%c.one%%.%r.json"], ["-o%c.two%%.%r.json"], ["--output=%c.three%%.%r.json"])):
        done = run(room, TRAINING, "--steps", "1", flags=flags)
        check("%s" % flags, done.returncode == 0 and "app_training.%s%%.exit.json" % ("one", "two", "three")[number] in room.files(), (done, room.files()))
    check("-o without a value", (done := gpumem("run", "-o")).returncode == 2 and "-o needs a value" in done.stderr, done)

# ---- why nothing was recorded -------------------------------------------------------------------------------------------
ONLY_INIT = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); x = ctypes.c_void_p(); c.cuInit(0); c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0); %s"
with Room() as room:
    def nothing(name, why, *words, **env):
        done = run(room, *words, **env)
        check("nothing recorded, %s" % name, re.search(r"^gpumem: (?:nothing was recorded|no snapshot): .*%s.*\n\Z" % why, done.stderr, re.M) and
              done.stderr.count("nothing was recorded") + done.stderr.count("no snapshot:") == 1, done)
        return done

    static, script = os.path.join(room.path, "static"), os.path.join(room.path, "script")
    subprocess.run(["gcc", "-static", "-o", static, "-x", "c", "-"], input=b"int main(void) { return 0; }", check=True)
    nothing("a static program", "is linked statically", static)
    with open(script, "w", encoding="ascii") as file:
        file.write("#!%s arg\n" % static)
    os.chmod(script, 0o755)
    nothing("a script for a static program", "script is linked statically", script)
    nothing("a static program on the PATH", "static is linked", "static", PATH=room.path)
    with open(static, "r+b") as file:       # the same bytes for another processor
        file.seek(18)
        file.write(b"\x08\x00")
    done = run(room, "sh", "-c", '"$0" 2>/dev/null; exit 0', static)
    check("nothing recorded, a child is what could not be: no more is said than is known", "no CUDA call was seen" in done.stderr, done)
    nothing("env -i", "env clears the environment", "env", "-i", "true")
    nothing("env -", "env clears the environment", "env", "-", "A=1", "true")
    check("env that clears nothing", "env clears" not in nothing("env", "no CUDA call", "env", "A=1", "true", "-i").stderr)
    check("a program that ends well has no such line", "nothing was" not in run(room, TRAINING, "--steps", "1").stderr)
    nothing("CUDA, but no memory", "CUDA was called, but nothing was allocated", sys.executable, "-c", ONLY_INIT % "")
    nothing("no snapshot wanted", "none was wanted of a program that ends by itself", TRAINING, "--steps", "1", snapshot_on="none")
    if os.geteuid() == 0:
        own = os.path.join(room.path, "own")
        shutil.copy("/bin/true", own)
        os.chown(own, 1, 1)
        os.chmod(own, 0o6755)
        nothing("set-user-ID", "runs with rights of its own", own)
    with Running(room, "sh", "-c", 'env -i LD_LIBRARY_PATH="$LD_LIBRARY_PATH" %s --wait; %s --steps 1' % (TRAINING, TRAINING)) as running:
        check("a child whose environment was cleaned waits", running.said("waiting"))
        said = wait_for(lambda: re.search(r"^gpumem: process (\d+) \(app_training\) uses CUDA and is not recorded: it was started without LD_PRELOAD",
                                          running.so_far(), re.M), 60)
        check("it is named while it runs", said, running.so_far())
        os.kill(int(said.group(1)), signal.SIGKILL)
        err = running.end()
        check("once, and what else ran is recorded", err.count("is not recorded") == 1 and "nothing was" not in err and
              re.search(r"process \d+ \(app_training\) ended: peak", err), (err, room.files()))
with Room() as room:
    with Running(room, TRAINING, "--wait") as running:
        check("the first line is the process, for top and ctl", running.said("waiting") and running.so_far() ==
              "gpumem: recording %s, process %d\n" % (TRAINING, running.children()[0]), running.so_far())
        running.child.send_signal(signal.SIGTERM)
        running.end()
with Room() as room:
    began = time.monotonic()
    done = run(room, *LAUNCHER, "40", "torch", TRAINING, "--steps", "1", flags=["--output=%k.%r.json"])
    check("forty ranks", done.returncode == 0 and len(table(done.stderr)) == 40 and len(room.files()) == 40,
          (len(table(done.stderr)), room.files(), done.stderr[-500:]))
    print("# %.1f s" % (time.monotonic() - began))
with Room() as room:
    done = run(room, "sh", "-c", "%s --steps 2 --wait >../said & %s; kill -9 $!; wait $!; %s --steps 2" % (TRAINING, UNTIL, TRAINING),
               flags=["--journal=" + room.journals])
    check("--journal=DIR: the journals are there, and the table is the same", done.returncode == 0 and len(table(done.stderr)) == 1 and
          len(room.files()) == 2 and " killed " in done.stderr and " exit " in done.stderr and not os.listdir(room.journals), (done, room.files()))
    done = run(room, GPUMEM, "run", "--quiet", "--", TRAINING, "--steps", "2")
    check("a run within a run: the outer one keeps the books", done.returncode == 0 and done.stderr.count("gpumem: process ") == 1, done)
    with Running(room, TRAINING, "--steps", "2", "--wait", flags=["--journal=" + room.journals]) as running:
        check("one waits, its journal in DIR", running.said("waiting") and glob.glob(room.journals + "/gpumem-run-*/*/*.journal"))
        os.killpg(running.child.pid, signal.SIGKILL)
        running.child.wait(timeout=60)
    time.sleep(2.1)
    done = gpumem("recover", room.journals, cwd=room.out)
    check("all of it killed at once: gpumem recover DIR", done.returncode == 0 and "252.00 MiB live in 24 blocks" in done.stdout and
          not os.listdir(room.journals), (done, os.listdir(room.journals)))
check("nothing of ours stays behind", wait_for(lambda: not rooms() - before, 20), rooms() - before)
finish()
