"""What is recorded of each kind of memory beside its bytes: addresses, flags, sizes asked for, pools, modules."""
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, conserved, truth  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def of_kind(snapshot, kind):
    return [s for s in snapshot["segments"] + snapshot["host_segments"] if s["kind"] == kind]


def sizes(segments):
    return sorted(s["total_size"] for s in segments)


def tiled(segment):
    """Blocks of a cached segment, in order and without a gap."""
    at = segment["address"]
    for block in segment["blocks"]:
        if block["address"] != at:
            return False
        at += block["size"]
    return at == segment["address"] + segment["total_size"]


def one_block_each(taken, native):
    if not native:
        return all(tiled(s) for snapshot in taken.values() for s in snapshot["segments"] + snapshot["host_segments"])
    return all(len(s["blocks"]) == 1 and s["blocks"][0]["address"] == s["address"] and
               s["blocks"][0]["size"] == s["total_size"] and s["blocks"][0]["state"] == "active_allocated" and
               s["blocks"][0]["thread"] > 0
               for snapshot in taken.values() for s in snapshot["segments"] + snapshot["host_segments"])


def asked(segments):
    return sorted(b["requested_size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated")


def linear_memory(name, at, native):
    device = of_kind(at["three small ones"], "device")
    check("%s: sizes as asked for" % name, asked(device) == [100, 1600, 25600, 3000000], asked(device))
    check("%s: native: segments as asked for" % name, not native or sizes(device) == asked(device), sizes(device))
    new = [s for s in of_kind(at["cudaMallocPitch"], "device") if s["total_size"] not in sizes(device)]
    check("%s: a pitched one: what it takes, what was asked for" % name,
          len(new) == 1 and new[0]["requested_size"] == 1000 * 333 and new[0]["total_size"] % 333 == 0 and
          new[0]["total_size"] >= 333 * 1000, new)
    managed = of_kind(at["cudaMallocManaged"], "managed")
    check("%s: managed" % name, sizes(managed) == [12345, 3 << 20], managed)


def host_memory(name, at):
    host = of_kind(at["cudaHostRegister"], "host")
    registered = [s for s in host if s.get("registered")]
    check("%s: registered host memory is shown and marked" % name,
          sizes(registered) == [1 << 20] and sizes(host) == [5000, 70000, 1 << 20, 3 << 20], host)
    rows = [r["allocated_bytes"] for r in at["cudaHostRegister"]["host"]["by_kind"] if r["kind"] == "host"]
    check("%s: and counted nowhere" % name, rows == [5000 + 70000 + (3 << 20)], rows)


def virtual_memory(name, at):
    fresh = of_kind(at["two handles, not mapped"], "vmm")
    check("%s: handles without a mapping" % name,
          len(fresh) == 2 and all(s.get("unmapped") and s["address"] == s["handle"] for s in fresh), fresh)
    mapped = sorted(of_kind(at["three mappings of two handles"], "vmm"), key=lambda s: s["address"])
    check("%s: mapped ones have the address of the first mapping" % name,
          len(mapped) == 2 and not any(s.get("unmapped") for s in mapped) and
          mapped[1]["address"] - mapped[0]["address"] == 2 * mapped[0]["total_size"], mapped)
    moved = [s for s in of_kind(at["no reference left, one mapping gone"], "vmm")
             if s["total_size"] == mapped[0]["total_size"]]
    check("%s: when that is gone, of the next" % name,
          len(moved) == 1 and moved[0]["address"] == mapped[0]["address"] + 4 * mapped[0]["total_size"], moved)


def pools(name, at):
    own = [s for s in of_kind(at["cudaMallocFromPoolAsync of a pool of its own"], "pool")
           if s["total_size"] == 5000000]
    check("%s: memory of a pool names the pool and the stream" % name,
          len(own) == 1 and own[0]["handle"] and own[0]["stream"], own)


def graphs(name, at):
    held = of_kind(at["launched"], "graph")
    check("%s: what graphs hold is one record of the device" % name,
          len(held) == 1 and held[0]["device"] == 0 and held[0]["total_size"] >= 6 << 20, held)
    gone = of_kind(at["cudaDeviceGraphMemTrim"], "graph")
    check("%s: which goes down to nothing" % name, sum(sizes(gone)) == 0, gone)


def attribution(name, program, taken):
    wrong = []
    for key, snapshot in taken.items():
        modules = snapshot["modules"]
        for segment in snapshot["segments"] + snapshot["host_segments"]:
            path = modules[segment["module"]]["path"] if segment["module"] < len(modules) else ""
            if os.path.basename(path) != program:
                wrong.append((key, segment["kind"], path))
    check("%s: all of it is the program's own, by its name" % name, not wrong, wrong[:3])


def default_streams():
    """What has no handle of its own is shown as a program writes it."""
    for name, shown, kind in (("app_ptds.static", 2, "pool"), ("app_transparent", 0, "pool")):
        with Room() as room:
            room.run([app(name)])
            streams = set()
            for document in room.snapshots():
                streams |= {s for trace in document["device_traces"] for s, k in zip(trace["stream"], trace["kind"]) if s or kind == k}
            check("%s: default streams are %d" % (name, shown), shown in streams and all(0 <= s < (1 << 62) + 1000 for s in streams), streams)


def main():
    # What is recorded of a call that goes to the driver shows in segments of one block: with allocator:native all do.
    for program, native in (("app_kinds.static", False), ("app_kinds.shared", False), ("app_kinds.static", True)):
        name = program + (", native" if native else "")
        with Room() as room:
            taken = conserved(name, room, [app(program)], checkpoints=40, native=native)
            if not taken:
                continue
            told = truth(room.run([app(program)], preload=False).stdout)
            at = {text: taken[key] for key, (_, text) in told.items() if key in taken and not key[0]}
            check("%s: %s" % (name, "one block a segment" if native else "blocks fill their segments"), one_block_each(taken, native))
            linear_memory(name, at, native)
            host_memory(name, at)
            virtual_memory(name, at)
            pools(name, at)
            graphs(name, at)
            attribution(name, program, taken)
            opened = of_kind(taken[("importer", 1)], "ipc")
            check("%s: memory of another process has its size" % name, sizes(opened) == [4 << 20], opened)
    default_streams()
    finish()


main()
