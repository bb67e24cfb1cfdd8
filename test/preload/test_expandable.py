#!/usr/bin/env python3
# timeout: 200
"""expandable_segments:True in the library: segments as PyTorch's are, pages that come and go in the trace, and what
happens where the driver has no such memory."""
import json
import os
import pickle
import sys

sys.path[:0] = ["test", "test/preload", "test/tools"]
import viewer  # noqa: E402
from scripted import Play  # noqa: E402
from tap import B, GPUMEM, check, finish, tell  # noqa: E402

SCENARIOS = os.path.join(B, "test/model/scenarios")
MIB = 1 << 20
GOES = {"segment_map": 1, "segment_alloc": 1, "segment_unmap": -1, "segment_free": -1}


def mapped(snapshot, device):
    """Bytes that the driver gave and has not back, by the trace."""
    trace = snapshot["device_traces"][device]
    return sum(GOES.get(action, 0) * size for action, size in zip(trace["action"], trace["size"]))


def totals(path, snapshot):
    """PyTorch's viewer can follow the pickle, in which no page is lost at any moment."""
    with open(path, "rb") as file:
        made = pickle.load(file)
    viewer.check(made)
    now = [[(e["action"], e["addr"], e["size"]) for e in made["device_traces"][0] if e["action"] in GOES], []]
    trace = snapshot["device_traces"][0]
    now[1] = [row for row in zip(trace["action"], trace["addr"], trace["size"]) if row[0] in GOES]
    return now[0] == now[1] and sum(GOES[a] * size for a, _, size in now[0]) == sum(s["total_size"] for s in made["segments"]), now


def shape(scenario, kind):
    """A program whose sizes fit only where pages move: its snapshot, PyTorch's pickle of it, and back."""
    with Play() as room:
        run = room.run([SCENARIOS, scenario], GPUMEM_EXPANDABLE_SEGMENTS="True",
                       GPUMEM_COMPACTION_TIME="1", FAKECUDA_CAPACITY="96MiB", FAKECUDA_RACE="exit", FAKECUDA_HANG="exit")
        taken = room.snapshots("exit")
        if not check("%s: it runs" % scenario, run.returncode == 0 and len(taken) == 1, tell(run)):
            return
        snapshot, ours = taken[0], [s for s in taken[0]["segments"] if s["kind"] == kind]
        trace = snapshot["device_traces"][0]
        check("segments are expandable", ours and all(s["is_expandable"] for s in ours), ours[:2])
        check("each is whole pages, tiled by its blocks", all(
            s["address"] % (2 * MIB) == 0 == s["total_size"] % (2 * MIB) and
            s["total_size"] == sum(b["size"] for b in s["blocks"]) and
            all(b["state"] != "unmapped" for b in s["blocks"]) for s in ours), ours[:2])
        check("pages come and go", trace["action"].count("segment_unmap") > 0 and trace["action"].count("segment_map") > 0 and
              "segment_alloc" not in [a for a, k in zip(trace["action"], trace["kind"]) if k == kind],
              sorted(set(trace["action"])))
        reserved = snapshot["devices"][0]["memory_stats"]["reserved_bytes.all.current"]
        held = sum(s["total_size"] for s in snapshot["segments"] if s["device"] == 0)
        check("the trace, the segments and the statistics agree", mapped(snapshot, 0) == held == reserved,
              (mapped(snapshot, 0), held, reserved))
        path, torch, again = (os.path.join(room.out, name) for name in ("exit.json", "exit.pickle", "again.json"))
        with open(path, "w", encoding="utf-8") as file:
            json.dump(snapshot, file)
        done = [room.run([GPUMEM, "convert", "--to", kind, "-o", to, made], preload=False)
                for made, kind, to in ((path, "pickle", torch), (torch, "gpumem", again))]
        check("converted to PyTorch's pickle and back", all(d.returncode == 0 for d in done), [tell(d) for d in done])
        if os.path.exists(torch):
            check("what PyTorch's viewer draws is what was reserved", *totals(torch, snapshot))
        if os.path.exists(again):
            with open(again, encoding="utf-8") as file:
                back = json.load(file)
            check("the same segments", sorted((s["address"], s["total_size"], s["is_expandable"]) for s in back["segments"]) ==
                  sorted((s["address"], s["total_size"], s["is_expandable"]) for s in snapshot["segments"]), len(ours))
        for words in (["check", "--max-peak", "96MiB", path], ["summary", path], ["replay", path]):
            done = room.run([GPUMEM, *words], preload=False)
            check("gpumem %s" % words[0], done.returncode == 0, tell(done))


def without():
    """No such memory: as without the option, and one line."""
    for what, name, fault in (("no addresses", "limbo", {"FAKECUDA_FAIL": "cuMemAddressReserve:0:1000:2"}),
                              ("driver 12.4", "old_driver", {"FAKECUDA_DRIVER_VERSION": "12040", "FAKECUDA_CAPACITY": "64MiB"})):
        with Play() as room:
            run = room.run([SCENARIOS, name], GPUMEM_EXPANDABLE_SEGMENTS="True",
                           FAKECUDA_RACE="exit", FAKECUDA_HANG="exit", **fault)
            lines = [line for line in run.stderr.splitlines() if "expandable_segments" in line]
            check("%s: it runs, and one line says so" % what, run.returncode == 0 and len(lines) == 1, tell(run))
            check("%s: segments as ever" % what, not any(s["is_expandable"] for t in room.snapshots("exit")
                                                         for s in t["segments"]), room.files())


shape("pages_come_and_go", "device")
shape("pages_of_a_stream", "pool")
without()
finish()
