"""Where results are written while another user makes links, pipes and files of his own there: nothing is written through
them, nothing hangs, what is there is complete, and stacks can be read by their owner alone."""
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from second_user import UID as STRANGER, become  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import Program, gpumem, journals_begun, wait_for  # noqa: E402

SCRIPT = os.path.join(B, "test/preload/script")


def as_stranger(place, what):
    """@what(), in @place, as the other user."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.chdir(place)
            become(STRANGER)
            os.umask(0)
            what()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def full():
    """For Popen's preexec_fn: a disk that has 64 KiB left."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def content(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def attacks(what, run, place, precious):
    """@run(output, **how) is a verb with -o OUTPUT in its words, to be run in @place, where the stranger may write."""
    out = os.path.join(place, "out")

    def whole(name, ran):
        check("%s: %s: the file is ours alone, whole, in its place" % (what, name), ran.returncode == 0 and not os.path.islink(out) and
              os.path.isfile(out) and os.stat(out).st_uid == 0 and mode_of(out) == 0o600 and len(content(out)) > 500,
              (ran, os.path.lexists(out) and os.lstat(out)))
        if os.path.lexists(out):
            os.unlink(out)

    for name, target in (("a link to a file of root's", precious), ("a link that leads nowhere", precious + ".new"), ("a link to a device", "/dev/null")):
        as_stranger(place, lambda target=target: os.symlink(target, "out"))
        whole(name, run(out))
        check("%s: %s: nothing is written through it" % (what, name), content(precious) == "precious" and not os.path.exists(precious + ".new"))
    as_stranger(place, lambda: (subprocess.run(["sh", "-c", "printf mine >out"], check=True), os.link("out", "other")))
    whole("a stranger's file that all may write", run(out))
    check("%s: and that is as it was" % what, content(os.path.join(place, "other")) == "mine")
    os.unlink(os.path.join(place, "other"))

    as_stranger(place, lambda: os.mkfifo("out", 0o666))
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    began = time.monotonic()
    ran = run(out)
    check("%s: a stranger's pipe, with a reader: refused at once, nothing comes out of it" % what, ran.returncode == 1 and "Permission denied" in ran.stderr and
          time.monotonic() - began < 60 and os.read(reader, 100) == b"", ran)
    os.close(reader)
    os.unlink(out)
    os.mkfifo(out)
    ran = run(out)
    check("%s: a pipe that nobody reads: said, no wait without end" % what, ran.returncode == 1 and "No such device or address" in ran.stderr, ran)
    os.unlink(out)
    before = os.umask(0)
    whole("under umask 0", run(out))
    os.umask(before)
    ran = run("/dev/stdout")
    check("%s: /dev/stdout is standard output" % what, ran.returncode == 0 and len(ran.stdout) > 500 and os.path.islink("/dev/stdout"), ran)
    with open(out, "w", encoding="utf-8") as file:
        file.write("yesterday's")
    ran = run(out, before=full)
    check("%s: a full disk: said, no half of a file, yesterday's stays" % what, ran.returncode == 1 and "File too large" in ran.stderr and
          content(out) == "yesterday's", ran)
    os.unlink(out)
    check("%s: nothing is left behind" % what, os.listdir(place) == [], os.listdir(place))


with Room() as room:
    os.chmod(room.path, 0o755)
    place = os.path.join(room.path, "place")
    os.mkdir(place)
    os.chmod(place, 0o777)          # without the sticky bit the kernel's own rules for links do not apply
    precious = os.path.join(room.path, "precious")
    with open(precious, "w", encoding="utf-8") as file:
        file.write("precious")
    source = os.path.join(room.path, "source")
    subprocess.run([sys.executable, os.path.abspath("test/bench/large.py"), "--events", "5000", "--frames", "900", "--stacks", "300", "--live", "500", source],
                   check=True)
    for verb, words in (("convert", ["--to", "csv"]), ("flame", []), ("symbolize", [])):
        attacks(verb, lambda out, verb=verb, words=words, before=None: subprocess.run(
            [GPUMEM, verb, *words, "-o", out, source], capture_output=True, text=True, timeout=120, check=False, cwd=place, preexec_fn=before), place, precious)
    ran = gpumem("convert", "--to", "prometheus", "-o", "metrics.prom", source, cwd=place)
    check("metrics are for a collector, which is another user", ran.returncode == 0 and mode_of(os.path.join(place, "metrics.prom")) == 0o644, ran)
    os.unlink(os.path.join(place, "metrics.prom"))
    with Program(room, SCRIPT, "many 2000", "sleep 600000") as program:
        wait_for(lambda: journals_begun(room, program.pid))
        time.sleep(0.5)

        def snapshot(out, before=None):
            return subprocess.run([GPUMEM, "snapshot", "-o", out, str(program.pid)], capture_output=True, text=True, timeout=120, check=False, cwd=place,
                                  preexec_fn=before)

        attacks("snapshot", snapshot, place, precious)
        kept = [path for path in room.files() if "outside" in path]
        check("snapshot: what could not be taken over is where the process wrote it", kept and all(
            json.loads(content(os.path.join(room.out, path)))["reason"] == "outside" for path in kept), kept)
        os.kill(program.pid, signal.SIGSTOP)
        attacks("snapshot of a stopped process", snapshot, place, precious)
        ran = snapshot(os.path.join(place, "100%p"))
        check("-o is a name, no template", ran.returncode == 0 and os.listdir(place) == ["100%p"], (ran, os.listdir(place)))
finish()
