#!/usr/bin/env python3
"""Make a large snapshot, with nothing of it twice that need not be: ours, or PyTorch's pickle or JSON of the same shape.

usage: test/bench/large.py [--events N] [--frames N] [--stacks N] [--depth N] [--live N] [--pad BYTES]
                           [--as gpumem|pickle|torch-json] OUTPUT

An allocation makes one event and a free two, a segment for every 64 MiB. Texts, addresses and times are made by
arithmetic, the same every time. --pad makes the names longer, until the file has about so many bytes.
"""
import argparse
import io
import json
import pickle

KINDS = ("device", "device", "device", "pool", "managed", "vmm")
SLOT = 1 << 21                  # one block of at most 2 MiB a place
SEGMENT = 32 * SLOT
START = 1_700_000_000_000_000


def names_of(args):
    """[(name, file, line, module, python)] of all frames; 0 is none."""
    extra = "" if not args.pad else "<" + "T" * max(0, (args.pad - 140 * args.events) // max(1, args.frames)) + ">"
    frames = [("", "", 0, 0, False)]
    for i in range(1, args.frames + 1):
        python = i % 5 == 0
        frames.append(("step_%d" % i if python else "_ZN4somE%dlayer9forward%dEPvm%s" % (i % 97, i, extra),
                       "/work/train/model_%d.py" % (i % 300) if python else "", i % 4000 if python else 0, 0 if python else 1 + i % 60,
                       python))
    return frames


def stacks_of(args):
    """Lists of frame numbers, innermost first, that together name every frame."""
    stacks, at = [[]], 0
    for i in range(args.stacks):
        depth = args.depth // 2 + i * 7 % args.depth
        stacks.append([1 + (at + k * k % 911) % args.frames for k in range(depth)])
        at += max(1, args.frames // args.stacks) * 3
    return stacks


def history(args):
    """The events as (action, address, size, stream, time, stack, thread, kind), and what is live: {address: the same}."""
    live, free, events, top, seed, time = {}, [], [], 0, 12345, START
    order = []
    while len(events) < args.events:
        seed = (seed * 6364136223846793005 + 1442695040888963407) & (2 ** 64 - 1)
        r = seed >> 33
        time += 1 + r % 50
        stack, thread, stream = 1 + r % args.stacks, 1000 + r % 8, 0 if r % 3 else 0x5581_0000_0000 + r % 4 * 512
        if len(order) < args.live:
            if not free:
                base = 0x7f00_0000_0000 + top * SEGMENT
                events.append(("segment_alloc", base, SEGMENT, stream, time, stack, thread, "device"))
                free = [base + k * SLOT for k in range(SEGMENT // SLOT)]
                top += 1
            address = free.pop()
            size = 512 + r % (SLOT - 512)
            entry = ("alloc", address, size, stream, time, stack, thread, KINDS[r % len(KINDS)])
            events.append(entry)
            live[address] = entry
            order.append(address)
        else:
            for _ in range(1 + r % 4):
                k = (seed >> 20) % len(order)
                order[k], order[-1] = order[-1], order[k]
                address = order.pop()
                entry = live.pop(address)
                for action in ("free_requested", "free_completed"):
                    events.append((action, address, entry[2], entry[3], time, stack, thread, entry[7]))
                free.append(address)
    return events, live, top


def segments_of(live, top):
    """[(address, [(address, size, requested or 0, entry or None)])] whose blocks tile them."""
    by_segment = [[] for _ in range(top)]
    for address, entry in live.items():
        by_segment[(address - 0x7f00_0000_0000) // SEGMENT].append((address, entry))
    found = []
    for number, blocks in enumerate(by_segment):
        at, tiles = 0x7f00_0000_0000 + number * SEGMENT, []
        end = at + SEGMENT
        for address, entry in sorted(blocks):
            if address > at:
                tiles.append((at, address - at, None))
            size = (entry[2] + 511) // 512 * 512
            tiles.append((address, size, entry))
            at = address + size
        if at < end:
            tiles.append((at, end - at, None))
        found.append((end - SEGMENT, tiles))
    return found


def sums(tiles):
    return (sum(size for _, size, entry in tiles if entry), sum(entry[2] for _, _, entry in tiles if entry))


def write_ours(args, out):
    events, live, top = history(args)
    columns = {name: [event[i] for event in events] for i, name in enumerate(
        ("action", "addr", "size", "stream", "time_us", "stack", "thread", "kind"))}
    columns["module"] = [1 + event[1] // SLOT % 60 for event in events]
    allocated = requested = 0
    segments = []
    for address, tiles in segments_of(live, top):
        used, asked = sums(tiles)
        allocated, requested = allocated + used, requested + asked
        segments.append({"device": 0, "address": address, "total_size": SEGMENT, "allocated_size": used, "active_size": used,
                         "requested_size": asked, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
                         "is_expandable": False, "kind": "device", "module": 1, "stack": 1, "time_us": START, "blocks": [
                             {"address": at, "size": size, "requested_size": entry[2] if entry else 0,
                              "state": "active_allocated" if entry else "inactive", "stack": entry[5] if entry else 0,
                              "time_us": entry[4] if entry else 0, "thread": entry[6] if entry else 0,
                              "kind": entry[7] if entry else "device", "module": 1 + at // SLOT % 60} for at, size, entry in tiles]})
    stats = {"%s.all.%s" % (k, p): v for k, v in (("allocated_bytes", allocated), ("requested_bytes", requested),
                                                  ("reserved_bytes", top * SEGMENT), ("allocation", len(live)))
             for p in ("current", "peak", "allocated")}
    document = {"format": "gpumem-snapshot", "version": 1, "reason": "exit", "time_us": events[-1][4], "consistent": True,
                "process": {"pid": 1, "command": "large", "host": "bench", "start_time_us": START}, "allocator_settings": {},
                "devices": [{"device": 0, "present": True, "name": "A device", "total_bytes": 80 << 30, "free_bytes": 1 << 30,
                             "memory_stats": stats, "by_module": [], "by_kind": [], "unattributed_bytes": None}],
                "segments": segments, "host_segments": [], "device_traces": [dict({"dropped": 0}, **columns)],
                "host_trace": dict({"dropped": 0}, **{name: [] for name in columns}), "stacks": stacks_of(args),
                "frames": [{"filename": file, "line": line, "name": name, "module": module, "offset": 64 * i, "python": python}
                           for i, (name, file, line, module, python) in enumerate(names_of(args))],
                "modules": [{"path": "", "build_id": ""}] + [
                    {"path": "/opt/lib/libpart%d.so" % i, "build_id": "%040x" % i, "base": i << 40} for i in range(1, 62)],
                "annotations": []}
    out.write(json.dumps(document, separators=(",", ":")))      # json.dump takes five times as long


def json_parts(document):
    """The text of @document, a dict, in parts of one event or segment: frames are in it once for each."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for i, (name, value) in enumerate(document.items()):
        yield "%s%s:" % (",{"[i == 0], encode(name))
        rows = value[0] if name == "device_traces" else value
        if isinstance(rows, list):
            yield "[" * (1 + (rows is not value))
            for j, row in enumerate(rows):
                yield ("," if j else "") + encode(row)
            yield "]" * (1 + (rows is not value))
        else:
            yield encode(rows)
    yield "}"


def torch_of(args):
    events, live, top = history(args)
    frames = [{"name": name or "??", "filename": file or "??", "line": line} for name, file, line, _, _ in names_of(args)]
    stacks = [[frames[f] for f in stack] for stack in stacks_of(args)]
    trace = [{"action": action, "addr": address, "size": size, "stream": stream, "time_us": time, "compile_context": "N/A",
              "user_metadata": "", "frames": stacks[stack]} for action, address, size, stream, time, stack, _, _ in events]
    segments = []
    for address, tiles in segments_of(live, top):
        used, asked = sums(tiles)
        segments.append({"device": 0, "address": address, "total_size": SEGMENT, "allocated_size": used, "active_size": used,
                         "requested_size": asked, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                         "is_expandable": False, "frames": stacks[1], "blocks": [
                             {"address": at, "size": size, "requested_size": entry[2] if entry else 0,
                              "state": "active_allocated" if entry else "inactive",
                              "frames": stacks[entry[5]] if entry else []} for at, size, entry in tiles]})
    return {"segments": segments, "device_traces": [trace], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
            "external_annotations": []}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--stacks", type=int, default=50_000)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--live", type=int, default=20_000)
    parser.add_argument("--pad", type=int, default=0)
    parser.add_argument("--as", dest="form", choices=("gpumem", "pickle", "torch-json"), default="gpumem")
    parser.add_argument("output")
    args = parser.parse_args()
    with io.open(args.output, "wb") as out:
        if args.form == "pickle":
            pickle.dump(torch_of(args), out, 4)
        else:
            with io.TextIOWrapper(out, encoding="utf-8") as text:
                if args.form == "gpumem":
                    write_ours(args, text)
                else:
                    for part in json_parts(torch_of(args)):
                        text.write(part)


if __name__ == "__main__":
    main()
