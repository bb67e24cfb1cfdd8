#!/usr/bin/env python3
# timeout: 900
"""Random programs (model.c) with the cache, and some alone: no race, no hang, no wrong word, no wrong result.

MODEL_PROGRAMS=N runs N programs in place of 640; MODEL_FIRST=N begins with another seed.
"""
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, "test")
from tap import B, GPUMEM, Room, check, finish, journals_place, tell  # noqa: E402

MODEL = os.path.join(B, "test/model/model")
RULES = os.path.join("build", "rules", "libgpumem.so")
JOURNAL_CHECK = os.path.join(B, "test/preload/journal_check")
PROGRAMS = int(os.environ.get("MODEL_PROGRAMS", "640"))
FIRST = int(os.environ.get("MODEL_FIRST", "1"))
# Without files on a disk, stacks and snapshots, on which thousands of short programs would spend their time.
JOURNALS = tempfile.mkdtemp(prefix="gpumem-test-", dir=journals_place())
# A kernel that waits for a flag makes no progress, which a tenth of a second shows as well as ten seconds.
# The library waits that long in looks of its own, each of which takes longer on a busy machine. The hang oracle takes the
# process for hung sooner: with its 300 ms, seed 67 in 3 threads failed 9 of 520 times, eight programs at a time.
HANG_MS = "3000"
LEAN = {"snapshot_on": "none", "history": "4096", "stacks": "none", "GM_TEST_PATIENCE": "100"}
TOTALS = re.compile(r"(\d+) programs, (\d+) steps, (\d+) addresses handed out again, (\d+) refused for want of memory, "
                    r"(\d+) allocations of the driver's, (\d+) failed")


DRAWN = re.compile(r"^drawn: .*$", re.M)


def failures(done):
    """Return the seeds that failed, and the output of the first."""
    seeds = re.findall(r"^seed (\d+): (\S+ \d+)$", done.stdout, re.M)
    return "%s; %s" % (", ".join("%s (%s)" % s for s in seeds[:20]) or tell(done), done.stderr[:900])


def run(room, name, count, *options, first=FIRST, preload=True, **env):
    """Run @count programs as one test. Return the totals, or None."""
    library = os.path.abspath(RULES)
    extra = {"LD_PRELOAD": library, "GPUMEM_JOURNAL": JOURNALS} if preload else {}
    extra.update(env)
    done = room.run([MODEL, *options, str(first), str(count)], preload=preload, timeout=800,
                    FAKECUDA_RACE="exit", FAKECUDA_HANG="exit", FAKECUDA_HANG_MS=HANG_MS, **extra)
    found = TOTALS.search(done.stdout)
    totals = [int(n) for n in found.groups()] if found else None
    ok = done.returncode == 0 and totals and totals[0] == count and totals[5] == 0
    seeds = "seeds %d to %d" % (first, first + count - 1)
    check("%s: %d programs, %s" % (name, count, seeds), ok, failures(done))
    if totals:
        print("# %s: %d steps, %d addresses handed out again, %d refused for want of memory, %d allocations of the driver's"
              % (name, totals[1], totals[2], totals[3], totals[4]))
    drawn = DRAWN.search(done.stdout)
    if drawn and preload and count >= 400 and not options:
        counts = [int(n) for n in re.findall(r"\d+", drawn.group())]
        check("%s: contexts end in every way, with memory in them; peers copy" % name, min(counts) >= count // 50,
              drawn.group())
    if drawn:
        print("# %s: %s" % (name, drawn.group()))
    return totals


def back_to_single(room, name, count, *options):
    """Other streams had work, then one stream alone has work for a while: in such short programs, for one free."""
    lean = dict(LEAN, GM_TEST_SINGLE="1", GPUMEM_VERBOSE="1")
    library = os.path.abspath(RULES)
    done = room.run([MODEL, *options, str(FIRST + 30000), "80"], LD_PRELOAD=library,
                    FAKECUDA_RACE="exit", FAKECUDA_HANG="exit", FAKECUDA_HANG_MS=HANG_MS, GPUMEM_JOURNAL=JOURNALS, timeout=800, **lean)
    times = done.stderr.count("single-stream fast path on again")
    check("%s: it does" % name, done.returncode == 0 and times > 8, (times, tell(done)[:900]))
    run(room, name, count, *options, first=FIRST + 30000, **dict(lean, GPUMEM_VERBOSE="0"))


def killed(name="killed", **options):
    """Programs are killed at any step. Their journals must be whole, and become snapshots."""
    count = max(PROGRAMS // 100, 20)
    # Beside the journals: on another file system a journal would be copied with all its holes.
    with Room() as room, tempfile.TemporaryDirectory(prefix="gpumem-test-", dir=journals_place()) as kept:
        failed = []
        for first in range(FIRST, FIRST + count, 4):        # the library keeps at most four dead journals
            done = room.run([MODEL, "-k", str(first), "4"], LD_PRELOAD=os.path.abspath(RULES),
                            FAKECUDA_RACE="exit", FAKECUDA_HANG="exit", FAKECUDA_HANG_MS=HANG_MS, **options)
            if done.returncode:
                failed.append(failures(done))
            for path in room.journal_files():
                os.rename(path, os.path.join(kept, os.path.basename(path)))
        check("%s with SIGKILL at a step: %d programs, seeds from %d" % (name, count, FIRST), not failed, failed[:3])
        journals = sorted(os.path.join(kept, name) for name in os.listdir(kept))
        check("%s: a journal each" % name, len(journals) == count, "%d of %d" % (len(journals), count))
        done = room.run([JOURNAL_CHECK] + journals, preload=False, timeout=300)
        check("%s: %d journals without a violation, segments tile" % (name, len(journals)),
              done.returncode == 0 and journals, tell(done))
        done = room.run([GPUMEM, "recover", "-o", os.path.join(room.out, "%p.%r.json"), kept],
                        preload=False, timeout=300)
        check("%s: recovered" % name, done.returncode == 0, tell(done))
        snapshots = room.snapshots("recovered")     # a program that ran out of memory wrote another snapshot
        check("%s: a snapshot each" % name, len(snapshots) == len(journals), "%d of %d" % (len(snapshots), len(journals)))
        bad = []
        for snapshot in snapshots:
            for segment in snapshot.get("segments", []):
                blocks = segment.get("blocks", [])
                if blocks and sum(b["size"] for b in blocks) != segment["total_size"]:
                    bad.append(segment.get("address"))
        check("%s: in the snapshots, blocks add up to their segments" % name, not bad, bad[:5])


def in_pages(room):
    """Memory in pages, with room and without."""
    pages = dict(LEAN, expandable_segments="True")
    totals = run(room, "in pages", PROGRAMS // 5, first=FIRST + 40000, **pages)
    check("in pages: memory is handed out again", totals and totals[2] > PROGRAMS // 5, totals)
    run(room, "in pages, little memory", PROGRAMS // 10, first=FIRST + 43000, MODEL_TIGHT="1", **pages)
    run(room, "in pages, 3 threads", max(PROGRAMS // 20, 24), "-t", "3", first=FIRST + 45000, **pages)
    run(room, "in pages, several to a handle, 3 threads", max(PROGRAMS // 20, 24), "-t", "3", first=FIRST + 48000,
        GM_TEST_HANDLES="4", **pages)
    run(room, "in pages, several to a handle, little memory", PROGRAMS // 10, first=FIRST + 49000, MODEL_TIGHT="1",
        GM_TEST_HANDLES="4", **pages)
    run(room, "in pages, 3 threads in turns", max(PROGRAMS // 20, 24), "-T", "3", first=FIRST + 46000, **pages)
    run(room, "in pages, memory_limit:40MiB", max(PROGRAMS // 30, 20), first=FIRST + 47000, MODEL_TIGHT="1",
        memory_limit="40MiB", **pages)


def main():
    with Room() as room:
        # If a program fails here, too, the fault is the program's or the fake driver's, not the library's.
        run(room, "bare", max(PROGRAMS // 10, 20), preload=False)
        run(room, "bare, 3 threads", max(PROGRAMS // 20, 20), "-t", "3", preload=False)
        totals = run(room, "cached", PROGRAMS, **LEAN)
        check("cached: memory is handed out again", totals and totals[2] > PROGRAMS, totals)
        run(room, "cached, 3 threads", PROGRAMS // 8, "-t", "3", **LEAN)
        run(room, "bare, 3 threads in turns", max(PROGRAMS // 20, 20), "-T", "3", preload=False)
        run(room, "cached, 3 threads in turns", PROGRAMS // 5, "-T", "3", **LEAN)
        back_to_single(room, "single-stream mode that comes back", max(PROGRAMS // 16, 30))
        back_to_single(room, "single-stream mode that comes back, 3 threads", max(PROGRAMS // 16, 30), "-t", "3")
        back_to_single(room, "single-stream mode that comes back, 3 threads in turns", max(PROGRAMS // 16, 30), "-T", "3")
        run(room, "cached, all of it recorded", max(PROGRAMS // 30, 20), first=FIRST + 10000)
        for number, (name, options) in enumerate((
                ("free:sync", {"free": "sync"}), ("free:deferred", {"free": "deferred"}), ("fill:poison", {"fill": "poison"}),
                ("memory_limit:40MiB", {"memory_limit": "40MiB", "MODEL_TIGHT": "1"}),
                ("limbo:0", {"limbo": "0"}), ("driver 12.4, no events of a context", {"FAKECUDA_DRIVER_VERSION": "12040"}))):
            run(room, name, max(PROGRAMS // 30, 20), first=FIRST + 20000 + 1000 * number, **LEAN, **options)
        in_pages(room)
    killed()
    killed("killed, in pages", expandable_segments="True")
    shutil.rmtree(JOURNALS, ignore_errors=True)
    finish()


main()
