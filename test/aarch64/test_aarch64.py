#!/usr/bin/env python3
"""The tests of the library for aarch64, by qemu: unit tests, the fake driver's, the hooks' from inside, programs under the
preloaded library, whose account is the driver's, and tests of test/preload as they stand.

Words choose among them: a part's name ("programs"), then what it is to run ("test_heap"). AARCH64_PARTS names several parts.
"""
# timeout: 5400
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

os.environ["TEST_EMULATOR"] = QEMU = "qemu-aarch64-static"     # hands the environment on; one that the loader starts would not
sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import alike, differences, run_pair, truth, unlike  # noqa: E402
from scripted import TOO_MUCH, Play  # noqa: E402
from tap import B, Room, check, finish, live_bytes, tell  # noqa: E402

HOST = os.path.abspath("build/gpumem")      # of this machine: journals are the same on both
# What fails by what qemu-user 7.2 lacks, a test's name in full and why. What was seen is of a program of 30 lines that tries
# each, run once by it. An excused test that passes is told, so that it leaves the list.
TOLD = "/proc/self/stat of a forked child names its parent's start, so that nobody takes it for alive"
UNMARKED = "set_robust_list() is answered ENOSYS, so that no death is marked in the journal's mutex and what is dead stays"
FORKED = "madvise(MADV_DONTFORK) is answered 0, and the child has the page"
ELSEWHERE = "mmap() after munmap() of the same length never gives the same address"
EXECUTED = "execve() of a program of that machine, by itself or by a shell: Exec format error"
PRELOADED = "a shell of this machine is told to preload a library of that one, and complains"
EXCUSED = {
    "test_journal:test_address_space_limit": "setrlimit(RLIMIT_AS) is answered 0, getrlimit says unlimited, and 1 GiB is mapped",
    "test_journal:test_alive": TOLD,
    "test_journal:test_sweep": UNMARKED,
    "test_journal:test_sweep_of_many": UNMARKED,
    "test_journal:test_sweep_of_clean_ends": UNMARKED,
    "test_journal:test_not_inherited": FORKED,
    "test_map:test_fork": FORKED,
    "test_events:test_raw_clone": "clone(CLONE_VM) that makes no thread of the process: EINVAL",
    "test_modules:another_module_at_the_same_address": ELSEWHERE,
    "test_place:test_full_disk": "madvise(MADV_POPULATE_WRITE) is answered 0 where there is no room, and nothing is populated",
    "test_place:test_chroot": "/proc/self/stat is qemu's own, and there without any /proc",
    "test_place:test_setuid": EXECUTED,
    "test_python:interpreter": "the interpreters here are of this machine: " + EXECUTED,
    "test_signal.py:exec: says nothing": PRELOADED,
    "test_errno.py:errno is kept when the journal's file system is full": EXECUTED,
}
# app_pools starts itself anew, which qemu cannot.
APPS = ["app_ctx", "app_driver", "app_frees", "app_graph", "app_lives", "app_vmm"]
SCRIPTS = ["signal", "retry", "errno", "history", "writers", "stack"]
seen = {}               # excused: did it fail?


def excused(name, failed):
    """Is this test excused? Notes how it went: one that runs several times fails if it fails once."""
    if name in EXCUSED:
        seen[name] = seen.get(name, False) or failed
    return name in EXCUSED


def run(command, **more):
    env = dict(os.environ, CK_TIMEOUT_MULTIPLIER="20", B=B, GM_STRESS="1", **more)
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=1800,
                              check=False)
        return command, done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        return command, None, str(expired.stdout)[-500:]


def judge(program, status, output, name_of):
    """One test program's lines; @name_of: a line's test. Returns how many passed."""
    lines = re.findall(r"^(ok|not ok) \d+ - (.*)$", output, re.M)
    failed = [text for word, text in lines if not excused("%s:%s" % (os.path.basename(program), name_of(text)), word != "ok") and word != "ok"]
    passed = sum(word == "ok" for word, _ in lines)
    check("%s: %d tests" % (program, passed), status is not None and re.search(r"^1\.\.\d+$", output, re.M) and passed and not failed,
          failed or (status, output[-400:]))
    return passed


def programs(chosen):
    found = [p for room in ("unit", "fakecuda", "hooked") for p in sorted(glob.glob(os.path.join(B, "test", room, "test_*"))) if os.path.isfile(p)]
    check("the programs were built", len(found) > 70, len(found))
    # The unwinder's own stay in the list whatever else is left out.
    check("the unwinder's tests are among them", {"test_unwind", "test_unwind_odd", "test_unwind_frames"} <= {os.path.basename(p) for p in found})
    found = [p for p in found if not chosen or os.path.basename(p) in chosen]
    total = 0
    # The longest first.
    found.sort(key=lambda p: -os.path.getsize(p) if "test_cache_heap" not in p and "test_thread_cache" not in p else -1 << 40)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, program), status, output in pool.map(run, [[QEMU, p] for p in found]):
            # "file.c:case:test: what happened", "file.c:case:test: Passed"
            total += judge(program[len(B) + 6:], status, output, lambda text: (text.split(": ")[0].split(":") + ["", ""])[2])
    if not chosen:
        check("several hundred tests passed", total > 600, total)


def scripts(chosen):
    """Tests of test/preload as they stand."""
    for name in chosen or SCRIPTS:
        file = "test_%s.py" % name
        _, status, output = run([sys.executable, "test/preload/" + file], TEST_GPUMEM=HOST)
        judge(file, status, output, lambda text: text.split(" # ")[0])


def down_to_main(snapshot, program, stacks):
    """Has a stack a frame in main? Other threads have none. By its address: the library looks for names as long as it has time, which qemu takes."""
    symbols = subprocess.run(["aarch64-linux-gnu-nm", "-S", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    start, size = (int(number, 16) for number in re.search(r"^(\w+) (\w+) [tT] main$", symbols, re.M).groups())
    frames = [snapshot["frames"][f] for s in stacks for f in snapshot["stacks"][s]]
    return any(snapshot["modules"][f["module"]]["path"] == program and start <= f["offset"] <= start + size for f in frames)


def preloaded(chosen):
    """A program without the library and with it."""
    for name in chosen or APPS:
        with Room() as room:
            bare, ours, directory = run_pair(room, [os.path.join(B, "test/apps", name)], timeout=300)
            check("%s: same output and status under the library" % name, bare.returncode == 0 and alike(bare, ours), unlike(bare, ours))
            wrong = differences(ours.stdout, directory, bare.stdout)
            check("%s: at each of %d checkpoints the account is the driver's" % (name, len(truth(ours.stdout))), truth(ours.stdout) and not wrong, wrong[:2])
            shot = room.snapshots("exit")
            if check("%s: a snapshot at the end" % name, shot, room.files()):
                stacks = [b["stack"] for s in shot[0]["segments"] + shot[0]["host_segments"] for b in s["blocks"] if b["stack"]]
                stacks += [stack for trace in shot[0]["device_traces"] for stack in trace["stack"] if stack]
                check("%s: with stacks down to main" % name, down_to_main(shot[0], os.path.join(B, "test/apps", name), stacks), len(stacks))
                done = room.run([os.path.join(B, "gpumem"), "summary", os.path.join(room.out, room.files()[0])], preload=False)
                check("%s: gpumem of that machine reads it" % name, done.returncode == 0 and "Allocated memory" in done.stdout, tell(done))


def ends(_):
    """No memory, a crash, SIGKILL."""
    with Play() as room:
        ran = room.script("alloc 100", "alloc %d" % TOO_MUCH, "exit 0")
        shot = room.snapshots("oom")
        check("no memory: one snapshot, of what was live, and who asked", ran.returncode == 0 and len(shot) == 1 and live_bytes(shot[0]) == 100 and
              shot[0]["stacks"][shot[0]["failure"]["stack"]], (tell(ran), room.files()))
    with Room() as room:
        ran = room.run([os.path.join(B, "test/preload/crash"), "segv"])
        shot = room.snapshots("crash")
        if check("a crash: the program dies of it, with one snapshot", ran.returncode == -11 and len(shot) == 1, (tell(ran), room.files())):
            crash = shot[0]["failure"]
            check("a crash: the registers are that machine's", {"x0", "x29", "sp", "pc"} <= set(crash["registers"]), crash)
            check("a crash: with its stack", len(shot[0]["stacks"][crash["stack"]]) > 1 and
                  down_to_main(shot[0], os.path.join(B, "test/preload/crash"), [crash["stack"]]), crash)
    with Play() as room:
        ran = room.script("alloc 100", "alloc 11", "kill 9")
        left = room.journal_files()
        check("SIGKILL: it leaves a journal", ran.returncode == -9 and len(left) == 1, (tell(ran), left))
        for command in ([HOST], [os.path.join(B, "gpumem")]):
            told = room.run(command + ["recover", "--keep", "-o", room.out + "/recovered.json"] + left, preload=False)
            shot = room.snapshots("recovered")
            check("SIGKILL: %s makes the snapshot" % os.path.relpath(command[0]), told.returncode == 0 and len(shot) == 1 and live_bytes(shot[0]) == 111,
                  (tell(told), room.files()))
            for file in glob.glob(room.out + "/recovered*"):
                os.unlink(file)


PARTS = {"preloaded": preloaded, "ends": ends, "scripts": scripts, "programs": programs}
if __name__ == "__main__":
    parts = sys.argv[1:2] or os.environ.get("AARCH64_PARTS", "").split() or list(PARTS)
    for part in parts:
        PARTS[part](sys.argv[2:])
    for test, failed_once in seen.items():
        check("%s fails, as is said: %s" % (test, EXCUSED[test]), failed_once, "it passes now: take it from the list EXCUSED")
    if parts == list(PARTS) and len(sys.argv) == 1:
        check("every test that is excused was run", set(seen) == set(EXCUSED), set(EXCUSED) - set(seen))
    finish()
