"""Where a result goes: a file that is there whole or not at all, whatever ends the verb; what is no file is written to, not replaced."""
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem  # noqa: E402

LARGE = os.path.abspath("test/bench/large.py")
NO_TMPFILE = os.path.abspath(os.path.join(B, "test/preload/libnotmpfile.so"))
VERBS = {"convert": ["--to", "csv"], "flame": [], "symbolize": []}


def writes_to(pid, directory):
    """Has that process a file of @directory open for writing, with something in it?"""
    try:
        for fd in os.listdir("/proc/%d/fd" % pid):
            path = "/proc/%d/fd/%s" % (pid, fd)
            with open("/proc/%d/fdinfo/%s" % (pid, fd), encoding="utf-8") as info:
                flags = [line.split()[1] for line in info if line.startswith("flags:")]
            if os.readlink(path).startswith(directory + "/") and int(flags[0], 8) & 3 and os.stat(path).st_size > 1 << 20:
                return True
    except OSError:
        pass
    return False


def writer(directory, source, preload=""):
    """A conversion of a few seconds that has begun to write; or has ended already."""
    child = subprocess.Popen([GPUMEM, "convert", "--to", "pytorch-json", "-o", os.path.join(directory, "out.json"), source],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, LD_PRELOAD=preload))
    while child.poll() is None and not writes_to(child.pid, directory):
        time.sleep(0.002)
    return child


def killed(number, directory, source, preload=""):
    """One that is ended while it writes: its exit status, None when it was never seen to write."""
    with writer(directory, source, preload) as child:
        if child.poll() is not None:
            return None
        child.send_signal(number)
        return child.wait(timeout=60)


def without_tmpfile(place, source, small):
    """Where a file must have a name: what was killed leaves it to the next run, and the living keep theirs."""
    for _ in range(20):
        if killed(signal.SIGKILL, place, source, NO_TMPFILE) == -9 and os.listdir(place):
            break
    left = os.listdir(place)
    check("no O_TMPFILE, SIGKILL: a hidden file is left", len(left) == 1 and left[0].startswith("."), left)
    with open(os.path.join(place, ".gpumem-1-2.tmp"), "w", encoding="utf-8") as held:
        clearing(held, place, source, small, left)
    for name in os.listdir(place):
        os.unlink(os.path.join(place, name))


def clearing(held, place, source, small, left):
    """@held is a snapshot that some process is writing."""
    fcntl.flock(held, fcntl.LOCK_EX)
    words = ["convert", "--to", "csv", "-o", os.path.join(place, "small.csv"), small]
    for _ in range(20):
        with writer(place, source, NO_TMPFILE) as living:
            living.send_signal(signal.SIGSTOP)
            began = living.poll() is None
            run = gpumem(*words, env={"LD_PRELOAD": NO_TMPFILE})
            meanwhile = sorted(os.listdir(place))
            living.send_signal(signal.SIGCONT)
            status = living.wait(timeout=100)
        if began and "out.json" not in meanwhile:
            break
    check("no O_TMPFILE: the next run clears it, not what is being written", run.returncode == 0 and len(meanwhile) == 3 and
          left[0] not in meanwhile and "small.csv" in meanwhile, (run, left, meanwhile))
    check("no O_TMPFILE: and that becomes whole", status == 0 and sorted(os.listdir(place)) == [".gpumem-1-2.tmp", "out.json", "small.csv"],
          (status, os.listdir(place)))


with Room() as room:
    source = os.path.join(room.path, "source")
    subprocess.run([sys.executable, LARGE, "--events", "150000", "--frames", "20000", "--stacks", "5000", "--live", "2000", source], check=True)
    small = os.path.join(room.path, "small")
    subprocess.run([sys.executable, LARGE, "--events", "500", "--frames", "90", "--stacks", "30", "--live", "50", small], check=True)
    place = os.path.join(room.path, "place")
    os.mkdir(place)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        status = None
        for _ in range(20):
            status = killed(number, place, source)
            if status == -number:
                break
        check("%s while it writes: nothing is left behind" % number.name, status == -number and not os.listdir(place), (status, os.listdir(place)))
    old = os.path.join(place, "out.json")
    with open(old, "w", encoding="utf-8") as file:
        file.write("yesterday's")
    for _ in range(20):
        if killed(signal.SIGKILL, place, source) == -9:
            break
    with open(old, encoding="utf-8") as file:
        check("what was there under that name stays", file.read() == "yesterday's" and os.listdir(place) == ["out.json"], os.listdir(place))
    os.unlink(old)
    without_tmpfile(place, source, small)

    for verb, words in VERBS.items():
        run = gpumem(verb, *words, small)
        check("%s to standard output" % verb, run.returncode == 0 and len(run.stdout) > 1000, run)
        printed = run.stdout
        run = gpumem(verb, *words, "-o", "-", small, cwd=place)
        check("%s -o -: the same" % verb, run.returncode == 0 and run.stdout == printed and not os.listdir(place), (run.stdout[:100], os.listdir(place)))
        for before in ("", "something that was there"):
            target = os.path.join(place, "out")
            if before:
                with open(target, "w", encoding="utf-8") as file:
                    file.write(before)
            mask = os.umask(0o027)
            run = gpumem(verb, *words, "-o", "out", small, cwd=place)
            os.umask(mask)
            with open(target, encoding="utf-8") as file:
                check("%s -o: the same%s" % (verb, ", in the place of what was there" if before else ""), run.returncode == 0 and
                      file.read() == printed and os.listdir(place) == ["out"], (run, os.listdir(place)))
            check("%s -o: others may read it no more than a snapshot" % verb, stat.S_IMODE(os.stat(target).st_mode) == 0o600,
                  oct(os.stat(target).st_mode))
        os.unlink(target)
        os.symlink("/dev/null", os.path.join(place, "null"))
        run = gpumem(verb, *words, "-o", "null", small, cwd=place)
        check("%s -o of a link to a device: written to, not replaced" % verb, run.returncode == 0 and os.path.islink(os.path.join(place, "null")), run)
        os.unlink(os.path.join(place, "null"))
        os.symlink("/dev/full", os.path.join(place, "full"))
        run = gpumem(verb, *words, "-o", "full", small, cwd=place)
        check("%s -o of a full device: exit 1, said" % verb, run.returncode == 1 and "No space left" in run.stderr, run)
        os.unlink(os.path.join(place, "full"))
        os.mkfifo(os.path.join(place, "fifo"))
        read = os.path.join(room.path, "read")
        with open(read, "w", encoding="utf-8") as out, subprocess.Popen(["cat", os.path.join(place, "fifo")], stdout=out) as cat:
            run = gpumem(verb, *words, "-o", "fifo", small, cwd=place)
            cat.wait(timeout=60)
        with open(read, encoding="utf-8") as out:
            check("%s -o of a named pipe: who reads it has all" % verb, run.returncode == 0 and out.read() == printed, run)
        os.unlink(os.path.join(place, "fifo"))
        for name, said in ((".", "Is a directory"), ("none/out", "No such file"), ("x" * 300, "File name too long"), ("y/" * 3000 + "z", "File name too long"),
                           ("", "No such file")):
            run = gpumem(verb, *words, "-o", name, small, cwd=place)
            check("%s -o %.20s: exit 1, one line that says why" % (verb, name or "''"), run.returncode == 1 and said in run.stderr and
                  not os.listdir(place), run)
        # symbolize says more than one line; the reader is gone after the first
        run = subprocess.run(["bash", "-c", '"$@" | head -c 10 >/dev/null; echo "${PIPESTATUS[0]}"', "bash", GPUMEM, verb, *words, source],
                             capture_output=True, text=True, timeout=100, check=False)
        check("%s to somebody who stops reading: ends, says nothing of it" % verb, run.stdout.strip() in ("0", "141") and
              "could not" not in run.stderr, run)
finish()
