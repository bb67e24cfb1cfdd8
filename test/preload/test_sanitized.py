# timeout: 400
"""The hooks under the sanitizers: programs that have them linked in (make's HOOKED) run clean, and the account is the
driver's as ever. make check has them under ASan and UBSan at once and under TSan; check-asan and its like under the one."""
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import differences, truth  # noqa: E402
from tap import B, GPUMEM, Room, check, finish, live_bytes, tell  # noqa: E402

SANITIZERS = ("address", "undefined", "thread")
# And what the locks say in these builds: one taken against the ranks, or held over a call of the driver.
REPORTS = ("AddressSanitizer", "ThreadSanitizer", "runtime error", "LeakSanitizer", "gm_lock:")
ARGUMENTS = {"many": [["4", "300", "5"]], "scenarios": [["handover"], ["pool_without_home"]]}


def programs():
    """(sanitizer, path, arguments) of what was built."""
    for name in SANITIZERS:
        build = B if os.path.basename(B) == name else os.path.join(B, name)
        hooked = os.path.join(build, "test/hooked")
        for program in [n for n in sorted(os.listdir(hooked)) if not n.startswith("test_")] if os.path.isdir(hooked) else []:
            # The address space of a program under TSan is too narrow for much to be reserved at once.
            for arguments in ARGUMENTS.get(program, [[]]):
                yield name, os.path.join(hooked, program), arguments


def run(name, path, arguments, allocator):
    what = "%s under %s, %s" % (" ".join([os.path.basename(path), *arguments]), name, allocator)
    with Room() as room:
        env = room.env(preload=False, fake=False, CHECKPOINT_DIR=room.path, GPUMEM_ALLOCATOR=allocator,
                       ASAN_OPTIONS="detect_leaks=0:abort_on_error=1", TSAN_OPTIONS="halt_on_error=1",
                       UBSAN_OPTIONS="print_stacktrace=1", GPUMEM_JOURNAL=room.journals,
                       GPUMEM_OUTPUT=os.path.join(room.out, "exit.json"), GPUMEM_PER_PROCESS_MEMORY_FRACTION="0.99")
        done = room.run([path] + arguments, env=env, timeout=120)
        reports = [line for line in done.stderr.splitlines() if any(word in line for word in REPORTS)]
        check("%s: clean" % what, done.returncode == 0 and not reports, "; ".join(reports[:2]) or tell(done))
        if os.path.basename(path) == "scenarios":       # they take no account
            return
        wrong = differences(done.stdout, room.path, native=allocator == "native")
        check("%s: the account is the driver's at %d checkpoints" % (what, len(truth(done.stdout))),
              truth(done.stdout) and not wrong, wrong[:2])


# The sanitizers' own handlers stay away: the program's signals are at their default, as the library wants them.
OWN_HANDLERS = ":".join("handle_%s=0" % s for s in ("segv", "sigbus", "abort", "sigfpe", "sigill", "sigtrap")) + ":use_sigaltstack=0"
DEATHS = [(["segv"], 11), (["gp"], 11), (["bus"], 7), (["ill"], 4), (["abort"], 6), (["raise", "15"], 15), (["raise", "2"], 2),
          (["queue", "11"], 11), (["thread"], 11), (["threads", "8"], 11), (["handler"], 11), (["closed"], 11), (["many", "2000"], 11)]
ENDS = (1, 2, 15)               # somebody ended the program on purpose
LIVE = 4096 + 65536


def death(name, path, words, number):
    """The crash path itself under a sanitizer: its own signal's death, and the snapshot as ever."""
    what = "a death by %s under %s" % (" ".join(words), name)
    with Room() as room:
        env = room.env(preload=False, fake=False, CRASH_HOOKED="1", ASAN_OPTIONS="detect_leaks=0:" + OWN_HANDLERS,
                       TSAN_OPTIONS=OWN_HANDLERS, UBSAN_OPTIONS="print_stacktrace=1:" + OWN_HANDLERS,
                       GPUMEM_JOURNAL=room.journals, GPUMEM_OUTPUT=os.path.join(room.out, "%c.%p.%r.json"))
        done = room.run([path] + words, env=env, timeout=120)
        reports = [line for line in done.stderr.splitlines() if any(word in line for word in REPORTS)]
        check("%s: by that signal, and clean" % what, done.returncode == -number and not reports,
              "; ".join(reports[:3]) or tell(done))
        found = room.snapshots("ended-" if number in ENDS else "crash-")
        if not found and len(room.journal_files()) == 1:
            # The library is a part of these programs, so each fault lies in its own code. The handler then waits half a second for
            # the copy (OWN_NS in crash.c), and on a busy machine the journal is left in place of the snapshot.
            subprocess.run([GPUMEM, "recover", "-o", os.path.join(room.out, "left.json"), *room.journal_files()], capture_output=True, check=False)
            found = room.snapshots("left")
        live = live_bytes(found[0]) if found else None
        check("%s: one snapshot or one journal, of what was live" % what, len(found) == 1 and live == LIVE and found[0]["consistent"] and
              found[0]["failure"]["signal"] == number and not room.journal_files(), (live, room.files(), room.journal_files()))


def main():
    found = list(programs())
    check("there are programs under a sanitizer", found, "none built in " + B)
    for name, path, arguments in found:
        if os.path.basename(path) == "crash":
            for words, number in DEATHS:
                # The program's threads race for their fault; its alternate stack is too small for TSan's frames.
                if name != "thread" or words[0] not in ("threads", "handler"):
                    death(name, path, words, number)
        else:
            for allocator in ("caching",) if os.path.basename(path) == "scenarios" else ("native", "caching"):
                run(name, path, arguments, allocator)
    finish()


main()
