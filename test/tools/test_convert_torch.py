"""gpumem convert: PyTorch's pickle and JSON, there and back; what its viewer demands, rule by rule."""
import copy
import glob
import json
import os
import pickle
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
import viewer  # noqa: E402
from tap import B, GPUMEM, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, killed_journal, load  # noqa: E402

PICKLE = os.path.abspath("test/data/torch-snapshot.pickle")


def convert(to, path, data=None, options=()):
    """The output's bytes; b"" and the message when it failed."""
    run = subprocess.run([GPUMEM, "convert", "--to", to, *options, path], input=data, capture_output=True, timeout=120, check=False)
    return run.stdout if run.returncode == 0 else b"", run.stderr.decode()


def broken(snapshot):
    """What the viewer would fail on, "" when nothing."""
    try:
        viewer.check(snapshot)
        return ""
    except AssertionError as error:
        return str(error)


def same(a, b):
    """Equal, in types too."""
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def lists(value):
    """As JSON has it: no tuples."""
    return json.loads(json.dumps(value))


with open(PICKLE, "rb") as file:
    torch = pickle.load(file)

with Room() as room:
    path = os.path.join(room.path, "x")

    def wrote(content):
        with open(path, "wb") as out:
            out.write(content)
        return path

    # ---- there and back -----------------------------------------------------------------------------------------
    out, said = convert("pickle", PICKLE)
    check("a PyTorch pickle read and written back is equal", out and same(pickle.loads(out), torch), said)
    viewer.check_opcodes(out)
    check("it is not larger than what PyTorch wrote", len(out) <= os.path.getsize(PICKLE), len(out))
    out, said = convert("pytorch-json", PICKLE)
    check("as JSON: equal", out and same(json.loads(out), lists(torch)), said)
    out, said = convert("pickle", wrote(json.dumps(torch).encode()))
    check("from JSON, as a pickle: equal, pools are pairs again", out and same(pickle.loads(out), torch), said)
    out, said = convert("pytorch-json", wrote(json.dumps(torch, indent=3).encode()))
    check("from JSON, as JSON: equal", out and same(json.loads(out), lists(torch)), said)
    for protocol in (2, 3, 4, 5):
        out, said = convert("pickle", wrote(pickle.dumps(torch, protocol)))
        check("protocol %d is read" % protocol, out and same(pickle.loads(out), torch), said)
        out, said = convert("pickle", wrote(pickle._dumps(torch, protocol)))
        check("protocol %d of the Python pickler is read" % protocol, out and same(pickle.loads(out), torch), said)
    odd = {"segments": [], "device_traces": [[{"action": "alloc", "addr": a, "size": 1, "stream": 0, "time_us": 1,
                                               "user_metadata": text, "real": real, "frames": []}
                                              for a, text, real in ((0, "", 0.0), (255, "\x00\x1f\"\\/", 1.5), (256, "ä€😀", -0.1),
                                                                    (65535, "x" * 300, 1e300), (65536, "y" * 70000, 5e-324),
                                                                    (2 ** 31 - 1, "\ud800", 1 / 3), (2 ** 31, "\n", 0.1),
                                                                    (-1, "a", 2.0), (-2 ** 31, "b", 3.0), (-2 ** 31 - 1, "c", 4.0),
                                                                    (2 ** 63 - 1, "d", 5.0), (-2 ** 63, "e", 6.0),
                                                                    (2 ** 63, "f", 7.0), (2 ** 64 - 1, "g", 8.0))]],
           "none": None, "yes": True, "no": False, "t0": (), "t1": (1,), "t4": (1, 2, 3, (4,)), "nest": [[[[{}]]]],
           "many": list(range(5000)), "wide": {"k%d" % i: i for i in range(3000)}}
    for protocol in (2, 4):
        out, said = convert("pickle", wrote(pickle.dumps(odd, protocol)))
        check("every kind of value, protocol %d" % protocol, out and same(pickle.loads(out), odd), said)
    out, said = convert("pytorch-json", wrote(pickle.dumps(odd)))
    check("every kind of value, as JSON", out and same(json.loads(out), lists(odd)), said)
    back, said = convert("pytorch-json", wrote(out))
    check("and back", back == out, said)
    shared = [{"name": "f", "filename": "f.py", "line": 7}]
    twice = {"segments": [], "device_traces": [[{"action": "alloc", "frames": shared}, {"action": "alloc", "frames": shared}]]}
    out, said = convert("pickle", wrote(pickle.dumps(twice)))
    again = pickle.loads(out)["device_traces"][0]
    check("what was one list is one list", again[0]["frames"] is again[1]["frames"], said)
    out, said = convert("gpumem", PICKLE)
    ours = json.loads(out)
    check("as our own: segments, blocks, events, stacks", ours["format"] == "gpumem-snapshot" and
          [s["address"] for s in ours["segments"]] == [s["address"] for s in torch["segments"]] and
          ours["device_traces"][0]["action"] == [e["action"] for e in torch["device_traces"][0]] and
          [[ours["frames"][f]["name"] for f in ours["stacks"][s]] for s in ours["device_traces"][0]["stack"]] ==
          [[f["name"] for f in e["frames"]] for e in torch["device_traces"][0]], said)
    second, said = convert("pickle", wrote(out))
    second = pickle.loads(second)
    plain = [{k: v for k, v in e.items() if k != "user_metadata"} for e in torch["device_traces"][0]]
    check("ours and back to PyTorch's: nothing is lost", second["segments"] == torch["segments"] and
          [{k: v for k, v in e.items() if k != "user_metadata"} for e in second["device_traces"][0]] == plain and
          second["external_annotations"] == torch["external_annotations"] and
          second["allocator_settings"] == torch["allocator_settings"], said)
    check("PyTorch's own keeps the rules that are tested here", broken(torch) == "", broken(torch))

    # ---- real programs ------------------------------------------------------------------------------------------
    def misdrawn(source, snapshot, threads):
        """Where the viewer draws another peak than what was: "" nowhere. Of @threads, what one stamps, a free or an allocation,
        another may count something before: the peak may be drawn higher or lower. Some of what was is drawn."""
        for device in (d for d in source["devices"] if d["present"]):
            stats = device["memory_stats"]
            for segments, name in ((True, "reserved_bytes"), (False, "requested_bytes")):
                drawn = viewer.drawn_peak(snapshot, device["device"], segments) if device["device"] < len(snapshot["device_traces"]) else 0
                if drawn != stats[name + ".all.peak"] and (not threads or drawn < stats[name + ".all.peak"] / 2):
                    return "%s of device %d: %d are drawn, %d were" % (name, device["device"], drawn, stats[name + ".all.peak"])
        return ""

    for app in ("demo_app.static", "app_kinds.static", "app_threads.static", "app_multidev.static", "app_vmm", "app_pools",
                "app_graph", "app_ipc", "app_random", "app_frees", "app_oom.static"):
        with Room() as place:
            place.run([os.path.join(B, "test/apps", app)], snapshot_on="exit,oom", timeout=120)
            found = sorted(glob.glob(place.out + "/*.json"))
            events, why = 0, "no snapshot" if not found else ""
            for one in found:
                out, said = convert("pickle", one)
                viewer.check_opcodes(out)
                snapshot = pickle.loads(out)
                events += sum(map(len, snapshot["device_traces"]))
                why = why or broken(snapshot) or ("" if out else said)
                text, _ = convert("pytorch-json", one)
                why = why or ("" if json.loads(text) == lists(snapshot) else "JSON and pickle differ")
                source = load(one)
                wanted = sum(a != "annotate" and k != "ipc" for t in source["device_traces"] for a, k in zip(t["action"], t["kind"]))
                kept = sum(map(len, snapshot["device_traces"]))
                why = why or ("" if kept == wanted else "%d of %d events: %s" % (kept, wanted, said))
                why = why or misdrawn(source, snapshot, app.startswith("app_threads"))
                others = sum(k == "ipc" for t in source["device_traces"] for k in t["kind"])
                why = why or ("" if ("of other processes" in said if others else not said) else "it says: " + said)
            check("%s: the viewer can follow it, all of it (%d snapshots, %d events)" % (app, len(found), events), not why, why)
    for app in ("demo_app.static", "app_threads.static", "app_training", "app_oom.static", "app_kinds.static", "app_ipc"):
        with Room() as place:
            place.run([os.path.join(B, "test/apps", app)], snapshot_on="exit,oom", timeout=120)
            found = sorted(glob.glob(place.out + "/*.json"))
            taken = [pickle.loads(convert("pickle", one)[0]) for one in found]
            states = {b["state"] for s in taken for g in s["segments"] for b in g["blocks"]}
            why = next(filter(None, map(broken, taken)), "") or next(filter(None, (
                misdrawn(load(one), made, app.startswith("app_threads")) for one, made in zip(found, taken))), "")
            check("%s with the cache: the viewer can follow it, idle blocks too" % app, taken and "inactive" in states and not why, (why, states))
    with Room() as place:
        _, journal = killed_journal(place, 0.3, "--threads", "4")
        out, said = convert("pickle", journal)
        check("a journal of four threads, killed", out and broken(pickle.loads(out)) == "", said)

    # ---- rule by rule: what is wrong in the input is not in the output; the judge sees it when it is --------------
    def snapshot_of(segments, events, traces=1):
        columns = ["action", "addr", "size", "stream", "time_us", "stack", "thread", "kind", "module"]
        trace = {c: [] for c in columns}
        for i, (action, addr, size) in enumerate(events):
            for column, value in zip(columns, (action, addr, size, 0, 1000 + i, 0, 1, "device", 0)):
                trace[column].append(value)
        empty = {c: [] for c in columns}
        return {"format": "gpumem-snapshot", "version": 1, "segments": segments, "stacks": [[]], "frames": [{}],
                "device_traces": [trace] + [copy.deepcopy(empty) for _ in range(traces - 1)], "modules": [{"path": ""}]}

    def segment(address, size, blocks=(), device=0, **more):
        return dict({"device": device, "address": address, "total_size": size, "stream": 0, "segment_type": "large",
                     "segment_pool_id": [0, 0], "is_expandable": False, "stack": 0, "blocks": [
                         {"address": a, "size": s, "requested_size": r, "state": state, "stack": 0} for a, s, r, state in blocks]},
                    **more)

    def naively(snapshot):
        """Our snapshot as PyTorch's, without a thought: what the judge must refuse."""
        traces = [[{"action": a, "addr": p, "size": s, "stream": 0} for a, p, s in zip(t["action"], t["addr"], t["size"])]
                  for t in snapshot["device_traces"]]
        idle = [{"state": "inactive", "requested_size": 0}]
        return {"segments": [dict(s, blocks=s["blocks"] or [dict(idle[0], address=s["address"], size=s["total_size"])])
                             for s in snapshot["segments"]], "device_traces": traces}

    def rule(name, snapshot, refusal, wanted):
        naive = broken(naively(snapshot))
        output, message = convert("pickle", wrote(json.dumps(snapshot).encode()))
        result = pickle.loads(output) if output else {"device_traces": [], "segments": []}
        got = [(e["action"], e.get("addr"), e["size"]) for t in result["device_traces"] for e in t]
        check(name, refusal in naive and output and broken(result) == "" and wanted(result, got), (naive, got, message))
        return message

    live = "active_allocated"
    rule("(b) a free without its end", snapshot_of([segment(4096, 512, [(4096, 512, 512, live)])], [
        ("segment_alloc", 4096, 512), ("alloc", 4096, 512), ("free_requested", 4096, 512)]), "(b)",
        lambda r, got: len(got) == 2)
    output, _ = convert("pickle", wrote(json.dumps(snapshot_of([segment(4096, 512, [(4096, 512, 512, "active_pending_free")])], [
        ("alloc", 4096, 512), ("free_requested", 4096, 512)])).encode()))
    check("(b) but with the block waiting to be free it stays", len(pickle.loads(output)["device_traces"][0]) == 2)
    said = rule("(c) a free in no segment", snapshot_of([], [("free_requested", 4096, 512), ("free_completed", 4096, 512)]), "(c)",
                lambda r, got: got == [])
    check("what is left out is said", "2 events" in said, said)
    rule("(c) a segment that comes after its block", snapshot_of([segment(4096, 512, [(4096, 512, 512, live)])], [
        ("alloc", 4096, 512), ("segment_alloc", 4096, 512)]), "(c)", lambda r, got: [g[0] for g in got] == ["alloc"])
    rule("(d) a segment of a device without a trace", snapshot_of([segment(4096, 512, device=3)], []), "(d)",
         lambda r, got: len(r["device_traces"]) == 4)
    rule("(f) a hole, and a request larger than its block", snapshot_of([segment(4096, 2048, [(4608, 512, 600, live)])], []), "(f)",
         lambda r, got: [(b["size"], b["state"]) for b in r["segments"][0]["blocks"]] ==
         [(512, "inactive"), (512, live), (1024, "inactive")])
    rule("(f) blocks over one another", snapshot_of([segment(4096, 1024, [(4096, 1024, 1, live), (4608, 512, 1, live)])], []), "(f)",
         lambda r, got: len(r["segments"][0]["blocks"]) == 1)
    expandable = segment(4096, 4096, [(4096, 3904, 0, "inactive"), (8000, 100, 100, live), (8100, 92, 0, "inactive")],
                         is_expandable=True)
    rule("(g) mappings outside of the segment, over a block, and one that fits", snapshot_of([expandable], [
        ("segment_map", 7900, 200), ("segment_map", 4096, 1024), ("segment_map", 100000, 512)]), "(g)",
        lambda r, got: got == [("segment_map", 4096, 1024)])
    rule("(g) unmapped and mapped again in pieces", snapshot_of([segment(4096, 512)], [
        ("segment_map", 4096, 512), ("segment_map", 4608, 512), ("segment_map", 4608, 1024), ("segment_unmap", 4608, 512)]), "(g)",
        lambda r, got: len(got) == 3 and got[-1][0] == "segment_unmap")
    rule("segments over one another", snapshot_of([segment(4096, 1024), segment(4608, 1024)], []), "overlap",
         lambda r, got: len(r["segments"]) == 1)
    rule("segments out of order", snapshot_of([segment(8192, 1024), segment(4096, 1024)], []), "out of order",
         lambda r, got: [s["address"] for s in r["segments"]] == [4096, 8192])
    rule("an action that is none", snapshot_of([], [("frobnicate", 1, 1)]), "does not know", lambda r, got: got == [])
    categories = {"segments": [], "device_traces": [[{"action": "oom", "size": 1, "category": "temporary"}]]}
    check("(a) the judge knows categories without 'unknown'; what we make has no categories", "(a)" in broken(categories) and
          b"category" not in convert("pickle", wrote(json.dumps(snapshot_of([segment(4096, 512)], [])).encode()))[0])
    with Room() as place:
        # Native: where the cache waits for the GPU, other events lie between the halves of a free.
        place.run([APP], snapshot_on="exit", allocator="native")
        one = max(glob.glob(place.out + "/*exit.json"), key=os.path.getsize)      # not the child's
        text, _ = convert("pytorch-json", one)
        traces = json.loads(text)["device_traces"]
        try:
            viewer.check_folding(traces[0])
            why = ""
        except AssertionError as error:
            why = str(error)
        check("(e) the halves of a free stand side by side", not why and
              any(e["action"] == "free_requested" for e in traces[0]), why)
        source = load(one)
        text, _ = convert("pytorch-json", one, options=["--no-lines"])
        names = {f["name"] for e in json.loads(text)["device_traces"][0] for f in e["frames"]}
        unnamed = [f for f in source["frames"][1:] if not f["name"]]
        check("a frame without a name is its module and offset", not unnamed or any("+0x" in name for name in names), sorted(names)[:20])
        check("no frame is nameless", all(names), names)

    # ---- hostile pickles ----------------------------------------------------------------------------------------
    class Evil:
        def __reduce__(self):
            return os.system, ("touch %s.ran" % path,)

    def refuses(name, content, says):
        run = gpumem("convert", "--to", "pickle", wrote(content))
        check("%s: exit 3, and why" % name, run.returncode == 3 and says in run.stderr and path in run.stderr and
              run.stdout == "", run)

    for protocol in (2, 3, 4, 5):
        refuses("a pickle that would run a program, protocol %d" % protocol, pickle.dumps(Evil(), protocol), "never done")
    check("and nothing was run", not os.path.exists(path + ".ran"))
    loop = {"segments": []}
    loop["segments"].append(loop)
    refuses("a pickle that holds itself", pickle.dumps(loop), "in itself")
    deep = {"segments": []}
    for _ in range(100):
        deep = {"segments": [deep]}
    refuses("a hundred levels", pickle.dumps(deep), "nested")
    refuses("an empty file", b"", "empty")
    refuses("a pickle of something else", pickle.dumps({"a": 1}), "not a snapshot of PyTorch")
    refuses("a pickle of a number", pickle.dumps(5), "not a snapshot of PyTorch")
    refuses("protocol 9", b"\x80\x09N.", "protocol 9")
    refuses("an integer of 9 bytes", b"\x80\x02\x8a\x09" + b"\x01" * 9 + b".", "64 bits")
    refuses("a memo number of 4 billion", b"\x80\x02Nr\xff\xff\xff\xff.", "memo")
    refuses("a memo number that was never given", b"\x80\x02h\x05.", "memo")
    refuses("a key that is no text", pickle.dumps({1: 2}), "key")
    refuses("a text that is not UTF-8", b"\x80\x02X\x02\x00\x00\x00\xff\xfe.", "UTF-8")
    refuses("a text longer than the file", b"\x80\x02X\xff\xff\xff\xff.", "cut off")
    whole = pickle.dumps(torch)
    for length in (1, 2, 11, 1000, len(whole) // 2, len(whole) - 1):
        refuses("cut off after %d bytes" % length, whole[:length], "cut off")
    bomb = [{"name": "x", "filename": "y", "line": 0}]
    for _ in range(50):
        bomb = [bomb, bomb]
    data = pickle.dumps({"segments": [], "device_traces": [], "bomb": bomb})
    out, said = convert("pickle", wrote(data))
    check("a pickle of 2^50 values that is 500 bytes long stays so", 0 < len(out) < 2000 and len(data) < 2000, said)
    text = json.dumps(torch)
    refuses("JSON cut off", text[:len(text) // 2].encode(), "cut off")
    refuses("JSON nested too deeply", b"[" * 100000, "nested")
    refuses("JSON of something else", b'{"a": 1}', "not a snapshot of gpumem or PyTorch")
    refuses("JSON with something behind it", text.encode() + b"x", "behind the end")
finish()
