"""What is left behind by programs and runs that are killed whole, and who clears it: the next one of that user."""
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/security")
from other_user import TRAINING, USER, Waiting, as_user, journals  # noqa: E402
from tap import GPUMEM, Room, check, finish  # noqa: E402
from verbs import gpumem, wait_for  # noqa: E402


def run_rooms(place):
    return glob.glob(place + "/gpumem-run-*")


class Run:
    """gpumem run of programs that wait, in a session of its own, with its room in @place."""

    def __init__(self, room, place, programs=1, uid=0):
        command = " & ".join([TRAINING + " --wait --steps 2"] * programs) + "; wait"
        self.child = subprocess.Popen([GPUMEM, "run", "--", "sh", "-c", command], cwd=room.out, stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=as_user(uid) if uid else None,
                                      env=room.env(preload=False, journal=place))
        waiting = 0
        while waiting < programs and "waiting" in self.child.stdout.readline():
            waiting += 1

    def kill_whole(self):
        os.killpg(self.child.pid, signal.SIGKILL)
        self.end()

    def kill_alone(self):
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait(timeout=60)

    def end(self):
        """Until all of it are dead: the programs, too, have written to this pipe."""
        self.child.wait(timeout=60)
        self.child.stdout.read()
        self.child.stdout.close()


# ---- runs that are killed whole ---------------------------------------------------------------------------------------
with Room() as room:
    os.chmod(room.journals, 0o777)
    os.chmod(room.path, 0o755)
    os.chmod(room.out, 0o777)
    for uid in (0, USER):
        for number in range(7):
            Run(room, room.journals, uid=uid).kill_whole()
            mine = [path for path in run_rooms(room.journals) if os.stat(path).st_uid == uid]
            if number == 6:
                check("uid %d: of seven runs killed whole five rooms are there, those of the four newest among them" % uid,
                      len(mine) == 5 and len([j for path in mine for j in journals(path)]) == 5, (mine, journals(*mine)))
        with Waiting(room, uid):
            mine = [path for path in run_rooms(room.journals) if os.stat(path).st_uid == uid]
            check("uid %d: a program that is no run's clears, too" % uid, len(mine) == 4, mine)
    check("nobody's but their own", len(run_rooms(room.journals)) == 8, run_rooms(room.journals))

with Room() as room:
    run = Run(room, room.journals, 3)
    [place] = run_rooms(room.journals)
    held = journals(place)
    for _ in range(6):
        Waiting(room).kill()
    with Waiting(room):
        check("a run that lives: nothing in its room is touched", len(held) == 3 and journals(place) == held, (held, journals(place)))
    run.kill_alone()
    with Waiting(room):
        check("its programs outlive it: nothing of theirs is touched", journals(place) == held, (held, journals(place)))
    os.killpg(run.child.pid, signal.SIGKILL)
    run.end()

    def all_dead():
        Waiting(room).kill()
        return not run_rooms(room.journals)
    check("once they are dead, and newer ones are, the room goes", wait_for(all_dead) and len(journals(room.journals)) <= 5,
          (run_rooms(room.journals), journals(room.journals)))

# ---- a run tells of all that died in it ---------------------------------------------------------------------------------
with Room() as room:
    script = os.path.join(room.path, "die.py")
    with open(script, "w", encoding="utf-8") as text:
        text.write("import os, signal, subprocess\nfor _ in range(8):\n"
                   "    with subprocess.Popen([%r, '--wait', '--steps', '2'], stdout=subprocess.PIPE, text=True) as child:\n"
                   "        child.stdout.readline()\n        child.kill()\n" % TRAINING)
    env = room.env(preload=False, journal=room.journals)
    done = subprocess.run([GPUMEM, "run", "--", sys.executable, script], cwd=room.out, env=env, capture_output=True, text=True, timeout=120,
                          check=False)
    check("eight killed one after the other: the run has a snapshot of each", len(glob.glob(room.out + "/*recovered.json")) == 8, done)
    check("and leaves nothing", not run_rooms(room.journals) and not journals(room.journals), run_rooms(room.journals))

# ---- a program that a run's end did not end -----------------------------------------------------------------------------
with Room() as room:
    go = os.path.join(room.path, "go")
    os.mkfifo(go)
    later = "setsid sh -c 'read line <%s; exec %s --wait --steps 2 >%s/said' >/dev/null 2>&1 & :" % (go, TRAINING, room.path)
    subprocess.run([GPUMEM, "run", "--", "sh", "-c", later], cwd=room.out, env=room.env(preload=False, journal=room.journals), timeout=60,
                   check=True, stderr=subprocess.DEVNULL)
    check("the run has ended, and its room is gone", not run_rooms(room.journals), os.listdir(room.journals))
    with open(go, "w", encoding="utf-8") as pipe:
        pipe.write("go\n")
    found = wait_for(lambda: journals(room.journals))
    check("who begins after it has a journal beside the room, where the next one finds it",
          found and os.path.dirname(found[0]) == os.path.join(room.journals, "gpumem-0"), os.listdir(room.journals))
    pid = int(found[0].split(".")[-3]) if found else 0
    if pid:
        os.kill(pid, signal.SIGKILL)

# ---- who becomes another user, and ends ---------------------------------------------------------------------------------
DAEMON = """
import ctypes, os
cuda, context, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20))
os.setgroups([])
os.setresgid(%d, %d, %d)
os.setresuid(%d, %d, %d)
""" % ((USER,) * 6)
for runs in (False, True):
    with Room() as room:
        os.chmod(room.path, 0o755)
        os.chmod(room.out, 0o777)
        daemon = [sys.executable, "-c", DAEMON]
        if runs:
            done = subprocess.run([GPUMEM, "run", "--", *daemon], cwd=room.out, env=room.env(preload=False, journal=room.journals), timeout=60,
                                  capture_output=True, text=True, check=False)
        else:
            done = room.run(daemon)
            check("a daemon that became another user: its exit is told", done.returncode == 0 and len(room.snapshots("exit")) == 1 and
                  len(journals(room.journals)) == 1, (done, room.files()))
            done = gpumem("recover", room.journals, cwd=room.path)
            check("and recovered as no death", done.returncode == 0 and "ended by itself" in done.stdout and
                  not glob.glob(room.path + "/*recovered.json") and not journals(room.journals), (done, os.listdir(room.path)))
            continue
        check("under gpumem run: it ended, and nothing is left", done.returncode == 0 and "died" not in done.stderr and " ended: " in done.stderr and
              not os.listdir(room.journals) and len(room.files()) == 1, (done, room.files(), os.listdir(room.journals)))

finish()
