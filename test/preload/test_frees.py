"""Frees: double, interior, foreign, of nothing, by another door: the driver decides, and the account stays true."""
import collections
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, conserved  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def traces(snapshot):
    for trace in snapshot["device_traces"] + [snapshot["host_trace"]]:
        yield [dict(zip(("action", "addr", "size", "time_us"), row))
               for row in zip(trace["action"], trace["addr"], trace["size"], trace["time_us"])]


def balanced(snapshot):
    """Every free in the trace is of what was allocated before it and not freed since."""
    wrong = []
    for trace in traces(snapshot):
        live = {}
        for event in trace:
            if event["action"] == "alloc":
                if event["addr"] in live:
                    wrong.append(("allocated twice", event))
                live[event["addr"]] = event["size"]
            elif event["action"] == "free_completed" and live.pop(event["addr"], None) != event["size"]:
                wrong.append(("freed what was not there", event))
    return wrong


PROGRAMS = ("app_vmm", "app_graph", "app_ipc", "app_pools", "app_kinds.static", "app_ctx", "app_lives")


def with_stacks(snapshot):
    """(kind, action, stack, stack of the allocation that ends or None) of each event that is about memory."""
    for trace in snapshot["device_traces"] + [snapshot["host_trace"]]:
        live = {}
        for action, addr, kind, stack in zip(trace["action"], trace["addr"], trace["kind"], trace["stack"]):
            if action == "alloc":
                live[addr] = stack
            if action not in ("oom", "snapshot", "annotate"):
                yield kind, action, stack, live.get(addr) if action.startswith("free_") else None


def stacks():
    """Of every kind: an allocation has the stack of who asked, a free that of who freed."""
    for name in PROGRAMS:
        for context in ("all", "alloc", "state"):
            with Room() as room:
                room.run([app(name)], snapshot_on="exit", context=context)
                events = [e for snapshot in room.snapshots("exit") for e in with_stacks(snapshot)]
                frees = [e for e in events if e[3] is not None]
                if context == "all":
                    bare = collections.Counter(e[:2] for e in events if not e[2])
                    check("%s: every event has a stack" % name, events and not bare, dict(bare))
                    alike = collections.Counter(e[0] for e in frees if e[2] == e[3] and e[2])
                    check("%s: a free's is not the allocation's" % name, frees and not alike, dict(alike))
                elif context == "alloc":
                    wrong = collections.Counter(e[:2] for e in frees if e[2] != e[3])
                    check("%s, context:alloc: a free has the allocation's" % name, frees and not wrong, dict(wrong))
                else:
                    check("%s, context:state: no event has one" % name, events and not any(e[2] for e in events),
                          dict(collections.Counter(e[:2] for e in events if e[2])))


def main():
    stacks()
    for name, native in (("app_frees", False), ("app_frees, native", True)):      # native: the driver judges each free
        with Room() as room:
            taken = conserved(name, room, [app("app_frees")], checkpoints=11, native=native)
            if not taken:
                continue
            last = taken[("", max(number for _, number in taken))]
            left = [s for s in last["segments"] + last["host_segments"]
                    if native or any(b["state"] != "inactive" for b in s["blocks"])]
            check("%s: nothing is left" % name, not left, left)
            wrong = balanced(last)
            check("%s: the trace adds up" % name, not wrong, wrong[:3])
            actions = collections.Counter(e["action"] for trace in traces(last) for e in trace)
            check("%s: as many frees as allocations" % name, actions["alloc"] == actions["free_completed"] ==
                  actions["free_requested"] > 10, dict(actions))
            check("%s: as many segments given back as taken, but for what is kept" % name, actions["segment_alloc"] ==
                  actions["segment_free"] + len(last["segments"]) >= 10, (dict(actions), len(last["segments"])))
            check("%s: nothing was in flight" % name, not last["recovered"]["in_flight"] and last["consistent"])
    finish()


main()
