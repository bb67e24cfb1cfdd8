"""What PyTorch's viewer and `_memory_viz.py` demand of a snapshot, as rules: each broken one is an AssertionError.

Written from the rules, not from their code: the viewer begins with what is live at the end and undoes the events.
"""
import pickletools

OPCODES = {"PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
           "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "LIST", "DICT", "TUPLE",
           "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "MEMOIZE", "BINPUT", "LONG_BINPUT",
           "BINGET", "LONG_BINGET"}


def check_opcodes(data):
    """Protocol 2, nothing that the viewer's unpickler lacks, batches of at most 1,000, integers of at most 8 bytes."""
    marks, height = [], 0
    for code, arg, _ in pickletools.genops(data):
        assert code.name in OPCODES, code.name
        if code.name == "PROTO":
            assert arg == 2, "protocol %d" % arg
        elif code.name == "MARK":
            marks.append(height)
        elif code.name in ("APPENDS", "SETITEMS", "TUPLE"):
            floor = marks.pop()
            most = {"APPENDS": 1000, "SETITEMS": 2000}.get(code.name, 3)
            assert 0 < height - floor <= most, "%d items in %s" % (height - floor, code.name)
            height = floor + (code.name == "TUPLE")
        elif code.name == "LONG1":
            assert -2 ** 63 <= arg < 2 ** 63, "an integer of more than 8 bytes"
            height += 1
        elif code.name not in ("PROTO", "STOP", "MEMOIZE", "BINPUT", "LONG_BINPUT"):
            height += 1
    assert height == 1 and not marks


def inside(segments, start, end):
    return [s for s in segments if s <= start and end <= segments[s][0]]


def check_segments(snapshot):
    """(d) a trace for each segment's device, (f) blocks that add up; sorted, none over another."""
    last = (-1, 0)
    for segment in snapshot["segments"]:
        assert segment["device"] < len(snapshot["device_traces"]), "(d) no trace for device %d" % segment["device"]
        assert (segment["device"], segment["address"]) >= last, "segments overlap or are out of order"
        last = (segment["device"], segment["address"] + segment["total_size"])
        address, external, internal, allocated = segment["address"], 0, 0, 0
        for block in segment["blocks"]:
            assert block["address"] == address, "(f) a hole before %#x" % block["address"]
            address += block["size"]
            if block["state"] == "active_allocated":
                allocated += block["requested_size"]
                internal += block["size"] - block["requested_size"]
                assert 0 <= block["requested_size"] <= block["size"], "(f) more asked for than the block has"
            else:
                assert block["state"] in ("inactive", "active_pending_free"), block["state"]
                external += block["size"]
        assert external + internal + allocated == segment["total_size"], "(f) the sums"


def undo(event, segments, blocks):
    """One event backward: @segments {start: (end, stream)}, @blocks {start: (end, pending)}."""
    action, start = event["action"], event.get("addr", 0)
    end = start + event["size"]
    if action == "alloc":
        assert start in blocks, "an allocation that is not live at %#x" % start
        del blocks[start]
    elif action == "free_completed":
        assert inside(segments, start, end), "(c) a block outside of every segment"
        assert not [b for b in blocks if b < end and blocks[b][0] > start], "a block over another"
        blocks[start] = (end, True)
    elif action == "free_requested":
        assert start in blocks and blocks[start][1], "(b) a lone free_requested"
        blocks[start] = (blocks[start][0], False)
    elif action == "segment_alloc":
        assert segments.get(start, (0, 0))[0] == end, "a segment that is not there"
        assert not [b for b in blocks if start <= b < end], "(c) a block whose segment is not there yet"
        del segments[start]
    elif action == "segment_free":
        assert not [s for s in segments if s < end and segments[s][0] > start], "a segment over another"
        segments[start] = (end, event["stream"])
    elif action == "segment_map":
        around = inside(segments, start, end)
        assert around, "(g) a mapping outside of its segment"
        assert not [b for b in blocks if b < end and blocks[b][0] > start], "(c) a block where nothing is mapped"
        old_end, stream = segments.pop(around[0])
        if around[0] < start:
            segments[around[0]] = (start, stream)
        if end < old_end:
            segments[end] = (old_end, stream)
    elif action == "segment_unmap":
        assert not [s for s in segments if s < end and segments[s][0] > start], "a mapping over another"
        segments[start] = (end, event["stream"])
        if end in segments and segments[end][1] == event["stream"]:      # neighbours of one stream become one
            segments[start] = (segments.pop(end)[0], event["stream"])
        for left in [s for s in segments if segments[s] == (start, event["stream"])]:
            segments[left] = segments.pop(start)
    else:
        assert action in ("oom", "snapshot"), "an action that it does not know: %s" % action


def check(snapshot):
    """All rules; returns how many events were undone."""
    check_segments(snapshot)
    entries = [e for trace in snapshot["device_traces"] for e in trace]
    categories = {e["category"] for e in entries if "category" in e}
    assert not categories or "unknown" in categories, "(a) categories without 'unknown'"
    for device, trace in enumerate(snapshot["device_traces"]):
        segments, blocks = {}, {}
        for segment in snapshot["segments"]:
            if segment["device"] != device:
                continue
            segments[segment["address"]] = (segment["address"] + segment["total_size"], segment["stream"])
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    blocks[block["address"]] = (block["address"] + block["size"], block["state"] == "active_pending_free")
        for event in reversed(trace):
            undo(event, segments, blocks)
    return len(entries)


def check_folding(trace):
    """(e) the two halves of a free stand side by side where nothing lay between them: the viewer makes one of them."""
    for i, event in enumerate(trace):
        if event["action"] == "free_requested":
            assert trace[i + 1]["action"] == "free_completed" and trace[i + 1]["addr"] == event["addr"], "(e) parted halves"


def drawn_peak(snapshot, device, segments):
    """The highest point that is drawn: of "Active Cached Segment Timeline" (@segments), else of "Active Memory Timeline".

    The viewer pairs the beginning and the end of an address, whatever lies between them is there; an end without a beginning,
    and what is live at the end without one, has been there from the first event on. Mappings are not looked at.
    """
    begins, ends = ("segment_alloc", "segment_free") if segments else ("alloc", "free_completed")
    steps, live, before = [], {}, 0
    for event in snapshot["device_traces"][device]:
        if event["action"] == begins:
            live[event["addr"]] = event["size"]
            steps.append(event["size"])
        elif event["action"] == ends:
            if event["addr"] not in live:
                before += event["size"]
            steps.append(-live.pop(event["addr"], event["size"]))
    for segment in (s for s in snapshot["segments"] if s["device"] == device):
        there = {segment["address"]: segment["total_size"]} if segments else {
            b["address"]: b["requested_size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
        before += sum(size for address, size in there.items() if address not in live)
    peak = height = before
    for step in steps:
        height += step
        peak = max(peak, height)
    return peak
