"""A program under watch: one that does not end in time is a hang, and what every thread of it and of its children is
doing is written down before it is killed."""
import glob
import os
import shutil
import signal
import subprocess
import threading
import time


def _text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        return "(%s)" % error.strerror


def processes_of(session):
    """Pids of a session, this one's leader first."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        fields = _text(path).rpartition(")")[2].split()
        if len(fields) > 3 and fields[3] == str(session):
            found.append(int(path.split("/")[2]))
    return sorted(found, key=lambda pid: (pid != session, pid))


def stacks(session):
    """What every thread of every process of a session does: gdb's back traces, and what the kernel says."""
    told = []
    for pid in processes_of(session):
        told.append("== %d %s" % (pid, _text("/proc/%d/cmdline" % pid).replace("\0", " ")))
        for task in sorted(glob.glob("/proc/%d/task/*" % pid), key=lambda path: int(path.rpartition("/")[2])):
            state = next((line for line in _text(task + "/status").splitlines() if line.startswith("State:")), "")
            told.append("%s %s: %s, in %s, call %s %s" % (os.path.basename(task), _text(task + "/comm"), state.strip(),
                                                          _text(task + "/wchan"), _text(task + "/syscall"),
                                                          _text(task + "/stack").replace("\n", " ")))
        if shutil.which("gdb"):
            try:
                run = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "thread apply all backtrace 40"],
                                     stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60,
                                     check=False)
                told += [line for line in run.stdout.splitlines() if line.startswith(("#", "Thread"))]
            except subprocess.TimeoutExpired:
                told.append("gdb did not come back")
    return "\n".join(told)


class Watched:
    """A program in a session of its own. @hung is None, or what its threads did when its time was over."""

    def __init__(self, command, env, cwd, name="watched"):
        self.path = os.path.join(cwd, name)
        self.hung = None
        with open(self.path + ".out", "wb") as out, open(self.path + ".err", "wb") as err:
            self.child = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          start_new_session=True)
        self.pid = self.child.pid

    def out(self):
        return _text(self.path + ".out")

    def err(self):
        return _text(self.path + ".err")

    def alive(self):
        return self.child.poll() is None

    def wait(self, seconds):
        """Until it ends; after @seconds it is a hang. Returns its status, None of one that hung."""
        try:
            return self.child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.hung = stacks(self.pid)
            self.kill()
            return None

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.child.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Meanwhile:
    """Calls @what() over and over in a thread until it is stopped; keeps what it returned that is not None."""

    def __init__(self, what, pause=0.0):
        self.found, self.turns = [], 0
        self._what, self._pause, self._stop = what, pause, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            try:
                told = self._what()
            except Exception as error:  # pylint: disable=broad-except
                told = repr(error)
            if told is not None:
                self.found.append(told)
            self.turns += 1
            time.sleep(self._pause)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
