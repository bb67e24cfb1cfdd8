#!/usr/bin/env python3
"""History control: gpumem_record_memory_history() and the options, as a program sees them."""
import glob
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import Play, behaves  # noqa: E402
from tap import B, GPUMEM, check, finish, tell  # noqa: E402

INVALID, NOT_SUPPORTED, NO_SPACE = -22, -95, -28
TRACE = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free")


def exit_of(room):
    found = room.snapshots("exit")
    return found[0] if len(found) == 1 else {}


def rows(snapshot, *actions):
    """[(action, size, stack)] of device 0."""
    trace = snapshot["device_traces"][0]
    return [row for row in zip(trace["action"], trace["size"], trace["stack"]) if not actions or row[0] in actions]


def blocks(snapshot):
    return {b["requested_size"]: b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}


def replayed(snapshot):
    """A trace from its beginning ends in the tables: sizes that are live in both, where the trace can know."""
    live, trace = {}, snapshot["device_traces"][0]
    for action, addr, size in zip(trace["action"], trace["addr"], trace["size"]):
        if action == "alloc":
            if addr in live:
                return "allocated twice: %#x" % addr
            live[addr] = size
        elif action == "free_completed" and live.pop(addr, size) != size:
            return "freed as another size: %#x" % addr
    table = {b["address"]: b["requested_size"] for s in snapshot["segments"] for b in s["blocks"] if not b.get("untraced")}
    missing = {a: s for a, s in live.items() if table.get(a) != s}
    return "live in the trace alone: %s" % missing if missing else ""


def words():
    with Play() as room:
        run = behaves("words", room, "alloc 1", "history some", "history all some", "history all all some", "history all all all",
                      "history NULL NULL NULL", "history state state python 5", "history all all all 99999999999", "exit 0")
        said = [line.split(": ")[1] for line in run.stdout.splitlines()]
        check("words: PyTorch's are taken, others refused, too many entries said", said ==
              [str(v) for v in (INVALID, INVALID, INVALID, 0, 0, 0, NO_SPACE)], said)
        history = exit_of(room)["history"]
        check("words: the last are in force", (history["enabled"], history["context"], history["stacks"]) == ("all",) * 3 and
              history["max_events"] >= 1 << 20, history)
    with Play() as room:
        run = behaves("a refused word changes nothing", room, "history none", "alloc 1", "history none none none 7",
                      "history all all any 9", "exit 0")
        history = exit_of(room)["history"]
        check("a refused word changes nothing: in force before", (history["enabled"], history["context"], history["stacks"],
              history["max_events"]) == ("none", "none", "none", 7), history)
    with Play() as room:
        run = behaves("history:0", room, "alloc 1", "history all", "history state none none", "exit 0", history=0)
        said = [line.split(": ")[1] for line in run.stdout.splitlines()]
        check("history:0: no events to be had, the rest can be switched", said == [str(NOT_SUPPORTED), "0"] and
              exit_of(room)["history"]["stacks"] == "none", said)


def contexts():
    with Play() as room:
        behaves("contexts", room, "alloc 100", "history all none", "alloc 200", "history all state", "alloc 300",
                "history all alloc", "alloc 400", "alloc 401", "free", "history all all", "alloc 500", "alloc 501", "free",
                "history all all none", "alloc 600", "history state all native", "alloc 700", "history NULL all all", "alloc 800",
                "history all all native", "alloc 900", "exit 0")
        snapshot = exit_of(room)
        live = blocks(snapshot)
        check("contexts: what is live has a stack, or not", {size: bool(b["stack"]) for size, b in live.items()} ==
              {100: True, 200: False, 300: True, 400: True, 500: True, 600: False, 700: True, 800: False, 900: True},
              {size: b["stack"] for size, b in live.items()})
        check("contexts: events begin when they were last switched on", [size for _, size, _ in rows(snapshot, "alloc")] == [900],
              rows(snapshot))
        check("contexts: what was not written is counted", snapshot["history"]["paused"] == 2 and
              snapshot["history"]["dropped"] > 10, snapshot["history"])
    with Play() as room:
        behaves("stacks of events", room, "history", "alloc 100", "history all state", "alloc 300", "history all alloc", "alloc 400",
                "alloc 401", "free", "history all all", "alloc 501", "free", "history all none", "alloc 600", "exit 0")
        snapshot = exit_of(room)
        stacks = {(action, size): stack for action, size, stack in rows(snapshot, "alloc", "free_completed")}
        check("stacks of events: as the context says at that time", stacks[("alloc", 100)] and not stacks[("alloc", 300)] and
              stacks[("alloc", 400)] and stacks[("free_completed", 401)] == stacks[("alloc", 401)] and
              0 != stacks[("free_completed", 501)] != stacks[("alloc", 501)] and not stacks[("alloc", 600)], stacks)


def entries():
    with Play() as room:
        behaves("max_entries", room, "alloc 1", "history all all none 20", *(["alloc 7", "free"] * 40), "alloc 8", "exit 0")
        snapshot = exit_of(room)
        history = snapshot["history"]
        check("max_entries: the newest, the rest is counted", 15 <= history["events"] <= 20 and history["max_events"] == 20 and
              history["events"] + history["dropped"] == 2 + 40 * 3 + 1 and rows(snapshot)[-1][:2] == ("alloc", 8), history)
        check("max_entries: the trace adds up", not replayed(snapshot), replayed(snapshot))
    with Play() as room:
        behaves("max_entries 0", room, "alloc 1", "history all all none 0", "alloc 2", "exit 0")
        check("max_entries 0: one, as in PyTorch", exit_of(room)["history"]["max_events"] == 1 and
              exit_of(room)["history"]["events"] <= 1, exit_of(room)["history"])


def filters(**allocator):
    """Of the cache one segment serves all of it, and stays. With allocator:native each block has one, with two events."""
    native = bool(allocator)
    story = ["alloc 100", "alloc 5000", "free", "free", "alloc 99", "alloc 4096", "alloc 4095", "exit 0"]
    with Play() as room:
        behaves("history_min_size", room, *story, history_min_size="4KiB", **allocator)
        snapshot = exit_of(room)
        want = [("segment_alloc", 5000), ("alloc", 5000), ("free_requested", 5000), ("free_completed", 5000), ("segment_free", 5000),
                ("segment_alloc", 4096), ("alloc", 4096)]
        if not native:
            want = [("segment_alloc", 2 << 20)] + [row for row in want if "segment" not in row[0]]
        check("history_min_size: allocation and free of what is large enough, of nothing else",
              [row[:2] for row in rows(snapshot, *TRACE)] == want, rows(snapshot))
        check("history_min_size: all that is live is listed, and says so", {s: b.get("untraced", False) for s, b in
              blocks(snapshot).items()} == {99: True, 4095: True, 4096: False}, blocks(snapshot))
        check("history_min_size: what was left out is counted", snapshot["history"]["filtered_small"] == (2 + 3 + 2 + 2 if native else 1 + 2 + 1 + 1) and
              snapshot["history"]["min_size"] == 4096, snapshot["history"])
        check("history_min_size: the statistics are of all", snapshot["devices"][0]["memory_stats"]["allocation.all.allocated"] == 5)
        check("history_min_size: the trace adds up", not replayed(snapshot), replayed(snapshot))
    for wanted, present in (("alloc", TRACE[:3]), ("segment", TRACE[3:]), ("none", ()), ("oom,annotate", ("oom", "annotate")),
                            ("alloc,segment", TRACE)):
        with Play() as room:
            behaves("history_actions:" + wanted, room, story[0], "annotate here", *story[1:], history_actions=wanted, **allocator)
            snapshot = exit_of(room)
            got = {row[0] for row in rows(snapshot)}
            check("history_actions:%s: no other" % wanted, got == set(present) - ({"oom"} if native else {"oom", "segment_free"}), got)
            check("history_actions:%s: the rest is counted, and named" % wanted, snapshot["history"]["filtered_actions"] +
                  len(rows(snapshot)) == (5 * 2 + 2 * 3 + 1 if native else 1 + 5 + 2 * 2 + 1) and set(present) <= set(snapshot["history"]["actions"]), snapshot["history"])
    with Play() as room:
        behaves("history_enabled:state", room, *story, history_enabled="state", stacks="native")
        snapshot = exit_of(room)
        check("history_enabled:state: what is live, with stacks, and no events", not rows(snapshot) and
              all(b["stack"] for b in blocks(snapshot).values()) and len(blocks(snapshot)) == 3, snapshot["history"])
    with Play() as room:
        behaves("history_enabled:none, then all", room, "alloc 1", "history all", "alloc 2", "exit 0", history_enabled="none")
        check("history_enabled:none, then all: from there on", [row[1] for row in rows(exit_of(room), "alloc")] == [2])


def killed():
    """What was switched is in the journal: a recovered snapshot says the same."""
    with Play() as room:
        room.script("alloc 10", "history all none none 12", *(["alloc 9000", "free"] * 9), "alloc 11", "kill 9", history_min_size=100)
        journals = room.journal_files()
        run = room.run([GPUMEM, "recover", "-o", room.out + "/recovered.json"] + journals, preload=False)
        snapshot = room.snapshots("recovered")[0] if room.snapshots("recovered") else None
        check("killed: recovered", run.returncode == 0 and snapshot, tell(run))
        history = snapshot["history"]
        check("killed: with what was in force", history["max_events"] == 12 and history["stacks"] == "none" and
              history["min_size"] == 100 and history["events"] <= 12 and history["filtered_small"] == 2, history)
        check("killed: the trace adds up", not replayed(snapshot) and rows(snapshot), replayed(snapshot))
        check("killed: every rule of the journal is kept", room.run([os.path.join(B, "test/preload/journal_check")] + journals,
              preload=False).returncode == 0 or not glob.glob(room.journals + "/**/*.journal", recursive=True))


def threads():
    """Switched while others allocate: nobody waits for ever, and what is left adds up."""
    with Play() as room:
        run = room.script("alloc 1", *(["detached"] + ["many 300"] + ["end"]) * 4,
                          *["history " + w for w in ("none", "all", "state", "all all native 100", "all none", "all")] * 20,
                          "snapshot", "history all", "exit 0")
        check("threads: each switch answered", run.returncode == 0 and run.stdout.count("history: 0") == 121, tell(run))
        check("threads: what is there adds up", not replayed(room.snapshots("api")[0]), replayed(room.snapshots("api")[0]))


def main():
    words()
    contexts()
    entries()
    filters()
    filters(allocator="native")
    killed()
    threads()
    finish()


main()
