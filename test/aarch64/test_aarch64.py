#!/usr/bin/env python3
"""The tests of the library for aarch64, by qemu: unit tests, the fake driver's, the hooks' from inside, and programs under
the preloaded library, whose account is the driver's."""
# timeout: 3600
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import alike, differences, truth, unlike  # noqa: E402
from tap import B, FAKE, LIBRARY, Room, check, finish, tell  # noqa: E402

QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
# What qemu's emulation of a process lacks, by the names of the tests that need it.
LACKING = {
    "another_module_at_the_same_address": "a library mapped where another one was",
    "caller_in_no_module": "machine code of x86-64",
    "interpreter": "Python for aarch64",
    "same_as_without": "chance: it wants 250 blocks of a random program in thread caches, and 245 were seen",
    "test_address_space_limit": "a limit of the address space",
    "test_alive": "the list of robust mutexes",
    "test_chroot": "files of the machine in another root",
    "test_clock": "the counter of x86-64",
    "test_fork": "advice that keeps memory from a child",
    "test_full_disk": "a disk that is full under mapped memory",
    "test_raw_clone": "clone without a stack",
    "test_setuid": "programs that change their user",
    "test_stripped": "a strip of that machine under the name of this one's",
    "test_sweep": "the list of robust mutexes",
    "test_sweep_of_many": "the list of robust mutexes",
    "missing_directories_are_made": "long paths",
    "threads_while_libraries_come_and_go": "the speed of a processor: it counts rounds",
    "where_it_cannot_be_the_fallback_is_used": "long paths",
    "random_programs": "the cache of whole stacks, which x86-64 alone has",
}
# These take minutes each in an emulated process, and have no line for one machine alone.
LONG = {"test_cache_heap", "test_events", "test_heap", "test_history", "test_modules", "test_copy_damage", "test_kill", "test_history_control", "test_moments", "test_stack_cache", "test_place",
        "test_python"}
APPS = ["app_ctx", "app_driver", "app_frees", "app_graph", "app_lives", "app_vmm"]        # app_pools starts itself anew, without qemu


def run(program):
    env = dict(os.environ, QEMU_LD_PREFIX=QEMU[2], CK_TIMEOUT_MULTIPLIER="20", B=B, GM_STRESS="1")
    try:
        done = subprocess.run(QEMU + [program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=1200, check=False)
        return program, done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        return program, None, str(expired.stdout)[-500:]


def programs():
    found = [p for room in ("unit", "fakecuda", "hooked") for p in glob.glob(os.path.join(B, "test", room, "test_*"))
             if os.path.isfile(p) and os.path.basename(p) not in LONG]
    check("the programs were built", len(found) > 50, len(found))
    # The unwinder's own stay in the list whatever else is left out.
    check("the unwinder's tests are among them", {"test_unwind", "test_unwind_odd", "test_unwind_frames"} <= {os.path.basename(p) for p in found})
    total = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for program, status, output in pool.map(run, found):
            passed = len(re.findall(r"^ok ", output, re.M))
            failed = [l for l in re.findall(r"^not ok .*$", output, re.M) if not any(":%s:" % name in l for name in LACKING)]
            ran = re.search(r"^1\.\.(\d+)$", output, re.M)
            total += passed
            check("%s: %d tests" % (program[len(B) + 6:], passed), status is not None and ran and passed and not failed,
                  failed or (status, output[-400:]))
    check("several hundred tests passed", total > 400, total)


def preloaded():
    """A program without the library and with it."""
    for name in APPS:
        with Room() as room:
            runs = []
            for preload in (False, True):
                directory = os.path.join(room.path, "checkpoints-%d" % preload)
                os.mkdir(directory)
                inside = {"LD_LIBRARY_PATH": FAKE, "CHECKPOINT_DIR": directory}
                if preload:
                    inside.update(LD_PRELOAD=LIBRARY, GPUMEM_JOURNAL=room.journals, GPUMEM_ALLOCATOR="native",
                                  GPUMEM_OUTPUT=room.out + "/%c.%p.%r.json")
                words = [w for n, v in inside.items() for w in ("-E", "%s=%s" % (n, v))]
                runs.append(subprocess.run(QEMU + words + [os.path.join(B, "test/apps", name)], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, timeout=300, check=False, cwd=room.path))
            bare, ours = runs
            check("%s: same output and status under the library" % name, bare.returncode == 0 and alike(bare, ours), unlike(bare, ours))
            wrong = differences(ours.stdout, directory)
            check("%s: at each of %d checkpoints the account is the driver's" % (name, len(truth(ours.stdout))), truth(ours.stdout) and not wrong, wrong[:2])
            shot = room.snapshots("exit")
            if check("%s: a snapshot at the end" % name, shot, room.files()):
                check("%s: with stacks down to main" % name, '"main"' in json.dumps(shot[0]))
                done = subprocess.run(QEMU + [os.path.join(B, "gpumem"), "summary", os.path.join(room.out, room.files()[0])],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
                check("%s: gpumem of that machine reads it" % name, done.returncode == 0 and "Allocated memory" in done.stdout, tell(done))


if __name__ == "__main__":
    preloaded()
    programs()
    finish()
