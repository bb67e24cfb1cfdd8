"""What the tests of gpumem's verbs share: programs under the library, alive, ended or killed, and running a verb."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "test")
from tap import B, BUSY, GPUMEM  # noqa: E402

APP = os.path.join(B, "test/apps/demo_app.static")


def gpumem(*words, cwd=None, env=None, stdin=None, timeout=60):
    """One verb: a CompletedProcess with text; the environment has no GPUMEM_ of ours unless @env says so."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GPUMEM_")}
    clean.update(env or {})
    return subprocess.run([GPUMEM, *words], capture_output=True, text=True, errors="replace", timeout=timeout * BUSY,
                          cwd=cwd, env=clean, input=stdin, check=False)


def wait_for(what, seconds=60):
    """Poll until @what() gives something true; None when it never does."""
    end = time.monotonic() + seconds * BUSY
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    return None


def stopped(pid):
    """Have all threads of a process been stopped? SIGSTOP takes a moment."""
    states = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8", errors="replace") as stat:
            states.append(stat.read().rsplit(")", 1)[1].split()[0])
    return set(states) == {"T"}


class HelperStopped:
    """The library's helper thread of a process alone is stopped, by ptrace, while the program goes on; as a context."""
    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, pid):
        self.thread = wait_for(lambda: [task for task in os.listdir("/proc/%d/task" % pid)
                                        if open("/proc/%d/task/%s/comm" % (pid, task), encoding="utf-8").read() == "gpumem\n"])

    def ask(self, request):
        if ctypes.CDLL(None, use_errno=True).ptrace(ctypes.c_long(request), int(self.thread[0]), None, None):
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self.ask(self.SEIZE)
        self.ask(self.INTERRUPT)
        os.waitpid(int(self.thread[0]), self.WALL)
        return self

    def __exit__(self, *_):
        self.ask(self.DETACH)


class Program:
    """A program under the library, in a session of its own; killed at the end of the block."""

    def __init__(self, room, *command, **options):
        # A file for each: what one program of the room says is not taken for another's word.
        fd, self.output = tempfile.mkstemp(".out", "program-", room.path)
        with open(fd, "w", encoding="utf-8") as out:
            self.child = subprocess.Popen(command, env=room.env(**options), stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=subprocess.STDOUT, start_new_session=True, cwd=room.path)
        self.pid = self.child.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def said(self, word):
        with open(self.output, encoding="utf-8", errors="replace") as out:
            return word in out.read()

    def until(self, word):
        return wait_for(lambda: self.said(word) or self.child.poll() is not None) and self.said(word)

    def kill(self):
        if self.child.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.child.wait(timeout=60)


def journals_begun(room, pid=None):
    """Journals that have their magic number, which is written last; of process @pid."""
    found = []
    for path in room.journal_files():
        with open(path, "rb") as file:
            if file.read(8).strip(b"\0") and (pid is None or ".%d." % pid in path):
                found.append(path)
    return found


def has_allocated(counts):
    """Has the demo_app --loop whose --count-file that is allocated something? A journal is there before that, and recovers to nothing."""
    try:
        with open(counts, "rb") as file:
            return file.read(1024).strip(b"\0")
    except FileNotFoundError:
        return b""


def killed_journal(room, seconds=0.3, *flags):
    """Let demo_app allocate and free for a while, then SIGKILL it: (pid, the path of its journal)."""
    with tempfile.NamedTemporaryFile() as own:
        counts = flags[flags.index("--count-file") + 1] if "--count-file" in flags else own.name
        with Program(room, APP, "--loop", "--max-seconds", "60", "--count-file", counts, *flags) as program:
            journals = wait_for(lambda: journals_begun(room, program.pid))
            wait_for(lambda: has_allocated(counts))
            time.sleep(seconds)
            program.kill()
            return program.pid, journals[0] if journals else ""


def named(path):
    """A snapshot as `gpumem symbolize` makes it: with the lines and inlined functions that the other verbs show by themselves."""
    run = gpumem("symbolize", path)
    assert run.returncode == 0, run
    return json.loads(run.stdout)


def load(path):
    with open(path, encoding="utf-8") as text:
        return json.load(text)


def stack_of(snapshot, size):
    """The frames of the one block of this size, innermost first."""
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["requested_size"] == size:
                return [snapshot["frames"][f] for f in snapshot["stacks"][block["stack"]]]
    return []


def replay(snapshot):
    """Play the traces from nothing: {(device or None, address): bytes} that are live in the end."""
    live = {}
    traces = list(enumerate(snapshot["device_traces"])) + [(None, snapshot["host_trace"])]
    for device, trace in traces:
        for action, address, size in zip(trace["action"], trace["addr"], trace["size"]):
            if action == "alloc":
                assert (device, address) not in live, "two at %#x" % address
                live[device, address] = size
            elif action == "free_completed":
                assert live.pop((device, address), size) == size, "another size at %#x" % address
    return live


def blocks(snapshot):
    """{(device or None, address): bytes} of the tables."""
    return {(s["device"], b["address"]): b["requested_size"] for s in snapshot["segments"] + snapshot["host_segments"]
            for b in s["blocks"] if b["state"] != "inactive"}
