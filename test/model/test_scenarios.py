#!/usr/bin/env python3
# timeout: 600
"""Named programs that a wrong reuse of memory breaks (scenarios.def), with every rule of reuse switched off in turn.

Each is correct without the library and with the cache. With one of its rules off it must fail: by a race, a hang, a
wrong word or a wrong result. Arguments: the scenarios to run; without arguments, all.
"""
import os
import re
import shutil
import sys

sys.path.insert(0, "test")
from tap import B, LIBRARY, Room, check, finish, tell  # noqa: E402

SCENARIOS = os.path.join(B, "test/model/scenarios")
WRITERS = os.path.join(B, "test/preload/libwriters.so")
RULES = os.path.abspath("build/rules/libgpumem.so")
# Memory in pages needs no test of some rules: it has no holes that the wait of a free could avoid; two threads that grow
# at once are not refused wrongly in every run (pages_growing_together tests that); and idle memory moves without the
# driver. It is also not exported by IPC, as PyTorch's expandable segments are not.
NO_NEED = {("scarce", "scarce"), ("growing_together", "growth"), ("back_is_late", "await")}
NOT_IN_PAGES = {"scarce"}
REFUSED = {"ipc_preloaded": "cuIpcGetMemHandle(&message.handle, base): CUresult 1\n"}
PAGES = {"GPUMEM_EXPANDABLE_SEGMENTS": "True"}
TRIES = {"growth": 40}         # fails only if two threads meet at the same moment
ENDS = {66: "a race", 67: "a hang", 1: "a wrong result", -14: "a hang", -11: "a crash", None: "a hang"}


def rows(room):
    listed = room.run([SCENARIOS, "--list"], preload=False)
    for line in listed.stdout.splitlines():
        name, rules, environment, alone, what = line.split("\t")
        yield (name, [r for r in rules.split(",") if r], dict(e.split("=", 1) for e in environment.split()),
               alone == "1", what)


def run(room, name, library, environment, **more):
    for left in room.files():
        os.unlink(os.path.join(room.out, left))
    # However busy the machine is: let pages move rather than take more memory, and let idle memory stay. The helper thread,
    # which gives it back, marks what was freed: single_again failed when that came between two steps.
    env = dict(environment, FAKECUDA_RACE="exit", FAKECUDA_HANG="exit", GPUMEM_VERBOSE="0", GPUMEM_COMPACTION_TIME="1",
               GPUMEM_IDLE_TIME="0",
               SCENARIO_WRITERS=os.path.join(room.path, "libgdrapi.so.2"), SCENARIO_ROOM=room.path, **more)
    if not library:
        return room.run([SCENARIOS, name], preload=False, timeout=90, **env)
    return room.run([SCENARIOS, name], timeout=90, LD_PRELOAD=library, **env)


def reason(done):
    lines = done.stderr.strip().splitlines()
    line = next((s for s in lines if "race:" in s or "not as expected" in s or "hang" in s or "CUresult" in s), "")
    line = re.sub(r"0x[0-9a-f]+", "..", re.sub(r"^fakecuda(\[\d+\])?: |not as expected: ", "", line))
    return "%s: %s" % (ENDS.get(done.returncode, "exit %s" % done.returncode), line[:90])


def oom_report(room):
    """Check the snapshot of scenario oom_report."""
    failures = [s.get("failure") or {} for s in room.snapshots("oom")]
    wanted = {"requested_bytes": 100 << 20, "device": 0, "total_bytes": 64 << 20, "limbo_bytes": 5 << 20,
              "largest_free_bytes": 5 << 20, "result_name": "CUDA_ERROR_OUT_OF_MEMORY", "entry": "cuMemAlloc_v2"}
    got = {key: failures[0].get(key) for key in wanted} if failures else None
    check("oom_report: one snapshot", len(failures) == 1, len(failures))
    check("oom_report: what was asked, what waits for the GPU, what is free", got == wanted, got)
    if failures:
        report = failures[0]
        check("oom_report: cached and free bytes", report["live_bytes"] + report["cached_bytes"] + report["limbo_bytes"] ==
              report["reserved_bytes"] and report["reserved_bytes"] + report["free_bytes"] == 64 << 20, report)
        check("oom_report: who holds it", any(m.get("path", "").endswith("scenarios") for m in report.get("by_module", [])),
              report.get("by_module"))


def main():
    only = sys.argv[1:]
    table, in_pages = {}, set()
    with open("allocator/rules.h", encoding="utf-8") as header:
        words = re.findall(r'^\tGM_RULE\([A-Z_]+, "([a-z-]+)",', header.read(), re.M)
    with Room() as room:
        shutil.copy(WRITERS, os.path.join(room.path, "libgdrapi.so.2"))
        for name, rules, environment, alone, what in rows(room):
            if only and name not in only:
                continue
            if alone:
                done = run(room, name, None, environment)
                check("%s: right alone: %s" % (name, what), done.returncode == 0, tell(done))
            for variant, library in (("cached", LIBRARY), ("rules", RULES)):
                done = run(room, name, library, environment)
                check("%s: %s: %s" % (name, variant, what), done.returncode == 0, tell(done))
                if done.stdout:
                    print("# %s: %s" % (name, done.stdout.strip()))
                if name == "oom_report":
                    oom_report(room)
            done = run(room, name, RULES, environment, **PAGES)
            check("%s: in pages: %s" % (name, what), done.stderr.endswith(REFUSED[name]) and done.returncode == 1
                  if name in REFUSED else done.returncode == 0, tell(done))
            for rule, heap in [(r, {}) for r in rules] + [(r, PAGES) for r in rules if (name, r) not in NO_NEED]:
                for _ in range(TRIES.get(rule, 1)):
                    done = run(room, name, RULES, environment, GM_TEST_OFF=rule, **heap)
                    if done.returncode:
                        break
                if check("%s: %sfails without the rule %s" % (name, "in pages " if heap else "", rule),
                         done.returncode in ENDS, tell(done)):
                    table.setdefault(rule, []).append((name, reason(done)))
                    in_pages |= {rule} if heap else set()
        if not only:
            for rule in words:
                check("rule %s: switched off, a test fails" % rule, rule in table, "nothing shows it")
                check("rule %s: switched off, a test fails in pages" % rule, (rule in in_pages) != (rule in NOT_IN_PAGES), in_pages)
    for rule in words:
        for name, why in table.get(rule, []):
            print("# %-20s %-28s %s" % (rule, name, why))
    finish()


main()
