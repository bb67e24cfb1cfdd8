"""Where snapshots are written: directories that are missing, /dev/null, nothing half, nothing that stays in memory."""
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from other_user import STRANGER, TRAINING, USER, Waiting, as_user, journals, wait_for  # noqa: E402
from tap import B, LIBRARY, Room, check, finish  # noqa: E402
from verbs import gpumem, has_allocated  # noqa: E402

NO_TMPFILE = os.path.join(B, "test/preload/libnotmpfile.so")
DEMO = os.path.join(B, "test/apps/demo_app.static")


def in_memory(path):
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip() in ("tmpfs", "ramfs")


def ended(room, command=(TRAINING, "--steps", "2"), uid=0, cwd="/", **options):
    return subprocess.run(command, env=room.env(**options), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          preexec_fn=as_user(uid) if uid else None, check=False)


# ---- directories that are missing ---------------------------------------------------------------------------------------
with Room() as room:
    os.chmod(room.path, 0o755)
    os.chown(room.out, USER, USER)
    os.chmod(room.journals, 0o1777)
    done = ended(room, uid=USER, output=room.out + "/results/%c/run 7/%p.%r.json")
    found = glob.glob(room.out + "/results/app_training/run 7/*.exit.json")
    check("missing directories are made, and the snapshot is where it was to be", done.returncode == 0 and not done.stderr and len(found) == 1 and
          os.stat(os.path.dirname(found[0])).st_uid == USER, (done, os.listdir(room.out)))
    done = ended(room, uid=USER, output="made/%p.json", cwd=room.out)
    check("so are those of a relative path", len(glob.glob(room.out + "/made/*.json")) == 1 and not done.stderr, done)
    shared = os.path.join(room.path, "shared")
    os.mkdir(shared)
    os.chown(shared, STRANGER, STRANGER)
    os.chmod(shared, 0o777)
    done = ended(room, uid=USER, output=shared + "/results/%p.json", TMPDIR=room.out)
    check("in a stranger's directory none is made: said, and written elsewhere", not os.listdir(shared) and "could not be written to" in done.stderr,
          (done, os.listdir(shared)))
    check("and the name is that of the file, not the template's", re.search(r"could not be written to %s/results/\d+\.json \(" % re.escape(shared), done.stderr) and
          "%p" not in done.stderr, done)

# ---- memory is no place for files that stay -----------------------------------------------------------------------------
with Room() as room:
    disk = room.out if not in_memory(room.out) else os.path.join(B, "test")
    memory = tempfile.mkdtemp(prefix="gpumem-test-", dir="/dev/shm")
    try:
        for where, uses in ((disk, True), (memory, False)):
            done = ended(room, output="/proc/nowhere/%p.json", journal=memory, TMPDIR=where)
            json = glob.glob(disk + "/gpumem-0/*.json")
            check("it cannot be written, and the journal is in memory: %s" % ("on the disk of TMPDIR" if uses else "nowhere"),
                  done.returncode == 0 and len(json) == uses and not glob.glob(memory + "/**/*.json", recursive=True) and
                  (not uses or json[0] in done.stderr), (done, json, glob.glob(memory + "/*/*")))
            left = journals(memory)
            check("the journal %s" % ("is gone" if uses else "stays, and where is said"), len(left) == (not uses) and
                  all(path in done.stderr for path in left), (done.stderr, left))
            for path in json:
                os.unlink(path)
        done = gpumem("recover", memory, cwd=room.path)
        check("it can be recovered", done.returncode == 0 and len(glob.glob(room.path + "/*.recovered.json")) == 1, done)
        for _ in range(10):
            ended(room, output="/proc/nowhere/%p.json", journal=memory, TMPDIR=memory)
        check("and those of ten more do not pile up", len(journals(memory)) == 5, journals(memory))
    finally:
        shutil.rmtree(memory)

# ---- /dev/null, and what else is no file ----------------------------------------------------------------------------------
with Room() as room:
    before = glob.glob("/dev/null?*")
    done = ended(room, output="/dev/null", TMPDIR=room.path)
    check("/dev/null: nothing is written, nothing said, no journal stays", done.returncode == 0 and not done.stderr and
          not journals(room.path) and glob.glob("/dev/null?*") == before and stat.S_ISCHR(os.stat("/dev/null").st_mode), done)
    done = ended(room, (TRAINING, "--oom", "--steps", "2"), output="/dev/null", oom_snapshots=2)
    check("/dev/null: out of memory, too", done.returncode == 1 and glob.glob("/dev/null?*") == before and
          stat.S_ISCHR(os.stat("/dev/null").st_mode), done)
    with Waiting(room, output="/dev/null") as program:
        done = gpumem("snapshot", str(program.pid), cwd=room.out)
        check("/dev/null: who asks for a snapshot has one", done.returncode == 0 and len(room.files()) == 1, (done, room.files()))
        done = gpumem("snapshot", "-o", "here.json", str(program.pid), cwd=room.out)
        check("/dev/null: where he wants it", done.returncode == 0 and os.path.exists(room.out + "/here.json"), (done, room.files()))
    fifo = os.path.join(room.path, "fifo")
    os.mkfifo(fifo)
    done = ended(room, output=fifo, TMPDIR=room.path)
    check("a FIFO: said, and nothing beside it", "fifo (invalid): it is in" in done.stderr and not glob.glob(fifo + "-*"), done)
with Room() as room, tempfile.TemporaryDirectory(prefix="gpumem-test-", dir="/dev/shm") as memory, \
        Waiting(room, output="/proc/nowhere/%p.json", TMPDIR="/proc/nowhere", journal=memory) as program:
    done = gpumem("snapshot", str(program.pid), cwd=room.out)
    check("it can write none: who asks has one all the same", done.returncode == 0 and len(room.files()) == 1, (done, room.files()))

# ---- killed while it writes -------------------------------------------------------------------------------------------------
for nameless in (True, False):
    with Room() as room:
        environment = room.env(history=200000)
        if not nameless:
            environment["LD_PRELOAD"] = NO_TMPFILE + ":" + LIBRARY

        def hidden(where=room.out):
            return glob.glob(where + "/.gpumem-*")

        def unnamed(pid):
            for link in glob.glob("/proc/%d/task/*/fd/*" % pid):
                try:
                    if "(deleted)" in os.readlink(link) and room.out in os.readlink(link):
                        return True
                except OSError:
                    pass
            return False
        killed = 0
        for number in range(12):
            counts, before = os.path.join(room.path, "counts-%d" % number), room.files()
            with subprocess.Popen([DEMO, "--loop", "--count-file", counts], env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, cwd=room.path) as child:
                wait_for(lambda: has_allocated(counts))
                time.sleep(0.1)                                 # for a history that takes some time to be written
                os.kill(child.pid, signal.SIGUSR1)
                wait_for(lambda: unnamed(child.pid) or room.files() != before, 10)
                child.kill()
            killed += not glob.glob(room.out + "/*.%d.*" % child.pid)
        check("%d of 12 killed while they wrote%s: nothing stays but what the last one left" % (killed, "" if nameless else ", where files have names"),
              killed and len(hidden()) <= (not nameless), (killed, room.files(), hidden()))
        done = subprocess.run([TRAINING, "--steps", "2"], env=environment, cwd=room.path, timeout=60, capture_output=True, text=True, check=False)
        check("and the next one that writes there clears that", not hidden() and room.snapshots("app_training"), (done, hidden()))
with Room() as room:
    held, theirs = os.path.join(room.out, ".gpumem-1-1.tmp"), os.path.join(room.out, ".gpumem-1-2.tmp")
    for path in (held, theirs):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.chown(theirs, STRANGER, STRANGER)
    environment = room.env(LD_PRELOAD=NO_TMPFILE + ":" + LIBRARY)
    with subprocess.Popen(["flock", held, "sh", "-c", "echo held; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        subprocess.run([TRAINING, "--steps", "2"], env=environment, cwd=room.path, timeout=60, check=True, stdout=subprocess.DEVNULL)
        check("what somebody is writing, and a stranger's, stay", os.path.exists(held) and os.path.exists(theirs) and room.snapshots("exit"), os.listdir(room.out))
        holder.stdin.close()

finish()
