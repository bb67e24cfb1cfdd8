#!/usr/bin/env python3
"""gpumem.h: every function, with the library and without it."""
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import TOO_MUCH, Play, behaves  # noqa: E402
from tap import B, check, finish, tell  # noqa: E402

EVERY = ["snapshot", "annotate a", "range_start r", "range_end", "history all", "observer x", "unobserver", "allocated 0", "count", "summary", "reset_peak",
         "reset_accumulated", "empty_cache", "fraction 0.5", "fraction_of 0"]
ABSENT, NO_DATA, INVALID, NOT_SUPPORTED = -38, -61, -22, -95


def answers(run):
    return dict(line.split(": ", 1) for line in run.stdout.splitlines() if ": " in line)


def absent():
    with Play() as room:
        run = room.script(*EVERY, preload=False)
        values = [v for line in run.stdout.splitlines() for v in line.replace(":", " ").split() if v.lstrip("-").isdigit()]
        check("without the library: every function answers that it is absent", run.returncode == 0 and len(values) == 18 and
              set(values) == {str(ABSENT)}, tell(run))
        run = room.script(*EVERY)
        got = answers(run)
        check("before the first CUDA call: there is no data", run.returncode == 0 and
              {v for k, v in got.items() if k not in ("observer", "unobserver", "range_start", "range_end", "allocated",
                                                      "fraction")} == {str(NO_DATA)}, tell(run))
        check("before the first CUDA call: a range may begin, and end",
              (got["range_start"], got["range_end"]) == ("1", "0"), got)
        check("before the first CUDA call: observers may come and go", (got["observer"], got["unobserver"]) == ("0", "0"), got)
        check("before the first CUDA call: nothing was written", not room.files() and not room.journal_files())


def numbers():
    with Play() as room:
        run = behaves("statistics", room, "alloc 100", "alloc 300", "free", "allocated 0", "allocated 1", "allocated -1",
                      "stat allocation.all.allocated", "stat allocation.all.freed", "reset_peak", "allocated 0",
                      "reset_accumulated", "stat allocation.all.allocated", "stat allocation.all.current", "alloc 5",
                      "stat allocation.all.allocated", "free", "free", "stat allocated_bytes.all.freed", "allocated 0", "exit 0")
        want = ["allocated: 512 reserved 2097152 max 1024 2097152", "allocated: 0 reserved 0 max 0 0",
                "allocated: %d reserved %d max %d %d" % ((INVALID,) * 4),
                "allocation.all.allocated: 2", "allocation.all.freed: 1", "reset_peak: 0",
                "allocated: 512 reserved 2097152 max 512 2097152", "reset_accumulated: 0", "allocation.all.allocated: 0",
                "allocation.all.current: 1", "allocation.all.allocated: 1", "allocated_bytes.all.freed: 1024",
                "allocated: 0 reserved 2097152 max 1024 2097152"]       # blocks of 512 bytes, in one segment that stays
        check("statistics: as PyTorch counts", run.stdout.splitlines() == want, run.stdout)
        recovered = room.snapshots("exit")
        check("statistics: a snapshot after the resets is sound", len(recovered) == 1 and recovered[0]["consistent"], room.files())
    with Play() as room:
        run = behaves("statistics, native", room, "alloc 100", "alloc 300", "free", "allocated 0", "reset_peak", "alloc 5", "free",
                      "free", "stat allocated_bytes.all.freed", "allocated 0", "exit 0", allocator="native")
        check("statistics, native: bytes are those that were asked for, and the driver's", run.stdout.splitlines() == [
            "allocated: 100 reserved 100 max 400 400", "reset_peak: 0", "allocated_bytes.all.freed: 405",
            "allocated: 0 reserved 0 max 105 105"], run.stdout)
    with Play() as room:
        run = behaves("names", room, "alloc 100", "count", "summary", "exit 0")
        table = [line for line in run.stdout.splitlines() if line.startswith("|")]
        check("names: as many as PyTorch has, in order", answers(run).get("count") == "122", run.stdout[:80])
        check("names: the table is PyTorch's, 77 columns wide", len(table) > 40 and {len(line) for line in table} == {77} and
              "| Allocated memory      |    %d B   |    %d B   |    %d B   |      0 B   |" % ((512,) * 3) in table,
              table[:8])
    with Play() as room:
        run = behaves("native", room, "alloc 1", "empty_cache", "fraction 0.5", "fraction 1.5", "fraction -1", "exit 0",
                      allocator="native")
        check("native: nothing is cached, nothing is refused", run.stdout.splitlines() ==
              ["empty_cache: 0", "fraction: %d" % NOT_SUPPORTED] + ["fraction: %d" % INVALID] * 2, run.stdout)
    limits()
    pairs()


def pairs():
    """What a thread has again at once went through no free list, but where it is to."""
    said = {}
    for cache in ("yes", "no"):
        with Play() as room:
            run = behaves("thread_cache:%s" % cache, room, *["alloc 4096"] * 3, *["free", "alloc 4096"] * 100,
                          "stat inactive_split_bytes.all.allocated", "stat allocation.all.allocated", "exit 0",
                          thread_cache=cache)
            said[cache] = [int(value) for value in answers(run).values()]
    # The rest of the segment, when it is cut for the first time; then each free block joins the rest.
    check("thread_cache:no: inactive splits as PyTorch counts them", said["no"] == [(2 << 20) - 4096 + 100 * 4096, 103], said)
    check("thread_cache:yes: those that came and went are not among them", said["yes"][0] < said["no"][0] and
          said["yes"][1] == 103, said)


def limits():
    """The stand-in's device has 1 GiB."""
    with Play() as room:
        run = behaves("caching", room, "alloc 1", "empty_cache", "free", "empty_cache", "empty_cache", "fraction 1.5", "fraction -1",
                      "alloc 0x1000000", "allocated 0", "fraction 0.5", "alloc 0x1e000000", "alloc 0x10000000", "files oom 1",
                      "alloc 512", "fraction 1", "alloc 0x10000000", "exit 0")
        check("caching: idle segments are given back, a fraction refuses what goes past it", run.stdout.splitlines() ==
              ["empty_cache: 0", "empty_cache: 2097152", "empty_cache: 0"] + ["fraction: %d" % INVALID] * 2 +
              ["allocated: 16777216 reserved 16777216 max 16777216 16777216", "fraction: 0", "alloc: 2", "files oom: 1",
               "fraction: 0"], run.stdout)
        check("caching: what was refused is an OOM of the snapshot's, for what was asked",
              [s["failure"]["requested_bytes"] for s in room.snapshots("oom")] == [0x10000000], room.files())
        check("caching: and says what refused it", [(s["failure"]["refused_by"], s["failure"]["limit_bytes"], s["failure"]["limit_used_bytes"])
              for s in room.snapshots("oom")] == [("gpumem_set_per_process_memory_fraction", 0x20000000, 0x1f000000)],
              [s["failure"] for s in room.snapshots("oom")])
    for options, by in (({"memory_limit": "512MiB", "per_process_memory_fraction": "0.9"}, "memory_limit"),
                        ({"memory_limit": "900MiB", "per_process_memory_fraction": "0.5"}, "per_process_memory_fraction"),
                        ({}, "driver")):
        with Play() as room:
            behaves("the lesser of %s" % options, room, "alloc 0x1e000000", "alloc %d" % (0x28000000 if options else TOO_MUCH), "files oom 1", "exit 0", **options)
            found = [(s["failure"]["refused_by"], s["failure"]["limit_bytes"]) for s in room.snapshots("oom")]
            check("the lesser of %s is what refused it" % options, found == [(by, 0x20000000 if options else None)], found)
    # What is in force is told: the program's word, else the options', on a device of 1 GiB.
    for options, fractions in (({}, (1, 0.25)), ({"memory_limit": "512MiB"}, (0.5, 0.25)),
                               ({"memory_limit": "512MiB", "per_process_memory_fraction": "0.75"}, (0.5, 0.25)),
                               ({"memory_limit": "900MiB", "per_process_memory_fraction": "0.5"}, (0.5, 0.25))):
        with Play() as room:
            run = behaves("the fraction by %s" % options, room, "alloc 1", "fraction_of 0", "fraction 0.25", "fraction_of 0", "fraction 2",
                          "fraction_of 0", "fraction_of 99", "fraction_of -1", "exit 0", **options)
            check("the fraction by %s" % options, run.stdout.splitlines() == [
                "fraction_of: %g" % fractions[0], "fraction: 0", "fraction_of: %g" % fractions[1], "fraction: %d" % INVALID,
                "fraction_of: %g" % fractions[1]] + ["fraction_of: %d" % INVALID] * 2, run.stdout)
    for options in ({"memory_limit": "512MiB"}, {"per_process_memory_fraction": "0.5"},
                    {"memory_limit": "512MiB", "per_process_memory_fraction": "0.9"},
                    {"memory_limit": "900MiB", "per_process_memory_fraction": "0.5"}):
        with Play() as room:
            run = behaves("limit %s" % options, room, "alloc 0x1e000000", "alloc 0x10000000", "free", "alloc 0x10000000", "exit 0",
                          oom_snapshots=0, **options)
            check("limit %s: what goes past it is refused, what was freed counts no more" % options,
                  run.stdout.splitlines() == ["alloc: 2"] and room.live("exit") == [0x10000000], (run.stdout, room.live("exit")))


def snapshots():
    with Play() as room:
        own = os.path.join(room.out, "mine.json")
        run = behaves("snapshot", room, "alloc 100", "snapshot " + own, "alloc 1", "snapshot " + own, "snapshot",
                      "snapshot /proc/nowhere/x.json", "snapshot " + "x" * 2000, "chdir " + room.out, "snapshot rel.json",
                      "exit 0", said="/proc/nowhere/x.json")
        said = [line for line in run.stdout.splitlines() if line.startswith("snapshot")]
        check("snapshot: says how it went", said[:3] == ["snapshot: 0"] * 3 and said[4] == "snapshot: -36" and
              said[5] == "snapshot: 0", said)
        check("snapshot: where it was asked for, never over another", {"mine.json", "mine-2.json", "rel.json"} <= set(room.files()),
              room.files())
        check("snapshot: of that moment", room.live("mine") == [101, 100], room.files())
    with Play() as room:
        behaves("from threads at once", room, "alloc 100", *(["detached", "snapshot", "snapshot", "end"] * 4), "snapshot",
                "files api 9", "exit 0")
        check("from threads at once: one each", len(room.live("api")) == 9, room.files())


def history():
    with Play() as room:
        run = behaves("history", room, "alloc 100", "history none", "alloc 200", "free", "alloc 300", "history all", "alloc 400",
                      "annotate before the end", "history perhaps", "exit 0")
        check("history: bad words are refused", answers(run).get("history") == str(INVALID), run.stdout)
        snapshot = room.snapshots("exit")[0]
        sizes = [s for t in snapshot["device_traces"] for a, s in zip(t["action"], t["size"]) if a == "alloc"]
        check("history: only what came after the pause", sizes == [400], sizes)
        check("history: what was dropped is counted", sum(t["dropped"] for t in snapshot["device_traces"]) > 0,
              [t["dropped"] for t in snapshot["device_traces"]])
        check("history: the tables missed nothing", room.live("exit") == [800], room.live("exit"))
        check("annotate: the text is there", any("before the end" in str(a) for a in snapshot["annotations"]),
              snapshot["annotations"])
    with Play() as room:
        run = behaves("history:0", room, "alloc 100", "history all", "annotate x", "exit 0", history=0)
        check("history:0: there is none to switch on", "history: %d" % NOT_SUPPORTED in run.stdout, run.stdout)


def ranges():
    """Ranges are annotations that begin and end; those from before the record begin with it."""
    with Play() as room:
        run = behaves("ranges", room, "range_start over", "range_end", "range_start load", "range_start cut " + "x" * 300,
                      "alloc 100", "range_start inner", "alloc 200", "range_end", "range_end", "range_end", "range_end",
                      "range_end 1", "range_end -7", "range_end 1152921504606847743", "range_start open", "exit 0")
        found = [(a["stage"], a["name"][:9]) for a in room.snapshots("exit")[0]["annotations"]]
        check("ranges: begun and ended", run.stdout.splitlines() == ["range_start: 1", "range_end: 0"] + ["range_start: 1"] * 3 +
              ["range_end: 0"] * 3 + ["range_end: %d" % INVALID] * 4 + ["range_start: 1"], run.stdout)
        check("ranges: in the order in which they began and ended; one that was over is none", found == [
            ("START", "load"), ("START", "cut xxxxx"), ("START", "inner"), ("END", "inner"), ("END", "cut xxxxx"), ("END", "load"),
            ("START", "open")], found)
        name = room.snapshots("exit")[0]["annotations"][1]["name"]
        check("ranges: the name of one from before the record is cut", name == "cut " + "x" * 251, name)
        times = [a["time_us"] for a in room.snapshots("exit")[0]["annotations"]]
        first = room.snapshots("exit")[0]["segments"][0]["time_us"]
        check("ranges: begun before what the program allocated first", times[1] <= first <= times[2], (times, first))
    with Play() as room:
        run = behaves("many early ranges", room, *["range_start %d" % i for i in range(17)], *["range_end"] * 16, "range_start again",
                      "alloc 100", "exit 0")
        check("many early ranges: as many as may wait", run.stdout.splitlines() == ["range_start: 1"] * 16 +
              ["range_start: %d" % NO_DATA] + ["range_end: 0"] * 16 + ["range_start: 1"], run.stdout)
        check("many early ranges: only what was open begins", [a["name"] for a in room.snapshots("exit")[0]["annotations"]] == ["again"])
    with Play() as room:
        run = behaves("observers", room, "observer seen", "alloc %d" % TOO_MUCH, "unobserver", "unobserver", "alloc %d" % TOO_MUCH,
                      "exit 0", snapshot_on="exit")
        check("an observer that has gone is called no more", run.stdout.count("seen") == 1 and
              [v for v in run.stdout.splitlines() if v.startswith("unobserver")] == ["unobserver: 0", "unobserver: -2"], run.stdout)


def header():
    """The header as users compile it: C99, C++, position independent; and the example of its first lines."""
    source = '#include "preload/api/gpumem.h"\nint main(void) { return gpumem_annotate("x") == GPUMEM_ABSENT && ' \
             'gpumem_snapshot(0) == -ENOSYS && gpumem_empty_cache() == GPUMEM_ABSENT ? 0 : 1; }\n'
    with Play() as room:
        for language, flags in (("c", ["gcc", "-std=c99", "-Wpedantic"]), ("c++", ["g++"]), ("c", ["gcc", "-O2", "-fPIC"])):
            target = os.path.join(room.path, "user")
            made = subprocess.run(flags + ["-Wall", "-Wextra", "-Werror", "-I.", "-x", language, "-", "-o", target],
                                  input=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            check("header: %s compiles" % " ".join(flags), made.returncode == 0, made.stdout)
            if made.returncode == 0:
                check("header: %s: absent" % " ".join(flags), subprocess.run([target], env=room.env(preload=False)).returncode == 0)
                check("header: %s: there" % " ".join(flags), subprocess.run([target], env=room.env()).returncode == 1)


def version():
    """One version: the parts in the header, its text, the library's answer and the command's."""
    source = r'''#include "preload/api/gpumem.h"
        int main(void) {
            const char *there = gpumem_version();
            printf("%d.%d.%d %s %s", GPUMEM_VERSION_MAJOR, GPUMEM_VERSION_MINOR, GPUMEM_VERSION_PATCH,
                   GPUMEM_VERSION_STRING, there ? there : "none");
        }'''
    with Play() as room:
        target = os.path.join(room.path, "user")
        made = subprocess.run(["gcc", "-fPIE", "-I.", "-x", "c", "-", "-o", target], input=source, stderr=subprocess.PIPE, text=True)
        check("version: compiles", made.returncode == 0, made.stderr)
        said = subprocess.run([os.path.join(B, "gpumem"), "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        for preload, there in ((False, "none"), (True, said)):
            run = subprocess.run([target], env=room.env(preload=preload), stdout=subprocess.PIPE, text=True)
            check("version: one for all, preload %s" % preload, run.stdout.split() == [said, said, there], (run.stdout, said))


def main():
    version()
    absent()
    numbers()
    snapshots()
    history()
    ranges()
    header()
    finish()


main()
