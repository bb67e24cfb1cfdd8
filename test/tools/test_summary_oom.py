"""gpumem summary: why memory ran out and what to change, from the actual state; who holds it, by call site; what lies idle."""
import glob
import json
import os
import pickle
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, load  # noqa: E402

TRAINING = os.path.join(B, "test/apps/app_training")
MiB, GiB = 1 << 20, 1 << 30


def summary(*words):
    run = gpumem("summary", "--json", *words)
    return json.loads(run.stdout) if run.returncode == 0 else run


with Room() as room:
    path = os.path.join(room.path, "x.json")

    def with_changes(snapshot, change):
        copy = json.loads(json.dumps(snapshot))
        change(copy, copy["failure"], copy["devices"][0]["memory_stats"])
        with open(path, "w", encoding="utf-8") as out:
            json.dump(copy, out)
        return path

    def cause(name, want, file, *words):
        found = summary(file)["explanation"]
        text = gpumem("summary", "--full", file).stdout
        check("%s: %s" % (name, want), found and found["cause"] == want and all(re.search(w, found["why"] + "\n" + found["change"]) for w in words),
              found)
        check("%s: both sentences are in the text" % name, found and "why memory ran out\n%s\n%s\n" % (found["why"], found["change"]) in text, text)

    # ---- real programs ------------------------------------------------------------------------------------------------
    LARGE = r"^evaluate \(app_training\.c:\d+\) asked for 7\.81 GiB on device 0, where "
    room.run([TRAINING, "--oom", "--leak"], output=room.out + "/cached.%r.json")
    cause("one request of 95% of the device", "large", room.out + "/cached.oom-1.json", LARGE, "That one request is more than all that the program held")
    # Native: what is changed below begins with a program of which nothing lies idle or in limbo.
    room.run([TRAINING, "--oom", "--leak"], allocator="native")
    full = glob.glob(room.out + "/gpumem.*oom-1.json")[0]
    snapshot = load(full)
    failure = snapshot["failure"]
    lacks = failure["requested_bytes"] - failure["free_bytes"]
    cause("one request of 95% of the device: no holder of 168 MiB is to blame", "large", full, LARGE,
          r" %s too little\. The program itself held 272\.00 MiB\." % re.escape("%.2f MiB" % (lacks / MiB)), "That one request is more than all that the program held")
    check("and none is named", "make_moments" not in summary(full)["explanation"]["change"])

    def less(copy, fail, _stats):
        fail.update(requested_bytes=130 * MiB, free_bytes=20 * MiB, total_bytes=302 * MiB)
        copy["failures"][-1].update(fail)
    cause("the program holds it", "full", with_changes(snapshot, less), r" 110\.00 MiB too little\. The program itself held 272\.00 MiB\.",
          r"make_moments \(app_training\.c:\d+\) held the most, 168\.00 MiB in 12 blocks: more than was lacking")

    def stackless(copy, fail, _stats):
        less(copy, fail, _stats)
        for segment in copy["segments"]:
            for block in segment["blocks"]:
                block["stack"] = 0
        for trace in copy["device_traces"]:
            trace["stack"] = [0] * len(trace["stack"])
    cause("without stacks its holder is a module", "full", with_changes(snapshot, stackless), r"app_training held the most, 272\.00 MiB in 44 blocks")

    def forgotten(copy, fail, stats):
        less(copy, fail, stats)
        copy.update(failure=None, reason="exit")
        for trace in copy["device_traces"]:
            for column in trace.values():
                if isinstance(column, list):
                    column.clear()
    cause("who held it then is not known any more: nobody is named", "full", with_changes(snapshot, forgotten), "Free earlier")
    check("nobody at all", "the most" not in summary(path)["explanation"]["change"])
    end = glob.glob(room.out + "/gpumem.*exit.json")[0]
    cause("and in the snapshot of the end, of that moment", "large", end, r"^evaluate ")
    text = gpumem("summary", "--full", full).stdout
    check("in a snapshot of that moment it comes first", text.index("why memory ran out") < text.index("CUDA memory summary"), text)
    text = gpumem("summary", "--full", end).stdout
    check("in another behind the list of what could not be had", text.index("failed allocations") < text.index("why memory ran out"), text)
    room.run([APP])
    large = next(p for p in glob.glob(room.out + "/gpumem.demo_app*oom-1.json"))
    cause("more than there is", "too_large", large, r"^main \(demo_app", r"asked for 16\.00 GiB.*more than the whole device has, 8\.00 GiB", "Freeing memory would not help")
    room.run([TRAINING, "--oom"], FAKECUDA_OTHER_BYTES="6G", output=room.out + "/others.%r.json")
    cause("others hold it", "others", room.out + "/others.oom-1.json", r"6\.0\d GiB were held by others, which are not recorded.*; even without them it would have been \d+\.\d\d MiB too little", "nvidia-smi")
    room.run([TRAINING, "--steps", "3"], output=room.out + "/well.%r.json")
    check("nothing to explain where nothing failed", summary(room.out + "/well.exit.json")["explanation"] is None and
          "why memory ran out" not in gpumem("summary", room.out + "/well.exit.json").stdout)
    cause("a snapshot of PyTorch", "too_large", "test/data/torch-snapshot.pickle", r"^<module> \(.*train\.py:\d+\) asked for 1\.00 TiB .* 138\.89 GiB were free: more than that and all that PyTorch held")
    check("which does not say how large the device is: nothing is said of it", "whole device" not in summary("test/data/torch-snapshot.pickle")["explanation"]["why"])

    # ---- limits of the program's own ----------------------------------------------------------------------------------
    for n, (option, value, allows, takes) in enumerate([("memory_limit", "300MiB", "300.00 MiB", "320.00 MiB"),
                                                        ("per_process_memory_fraction", "0.04", "327.68 MiB", r"336.00 MiB \(a fraction of 0.0411\)")]):
        room.run([TRAINING, "--leak"], output=room.out + "/limit%d.%%r.json" % n, **{option: value})
        limited = room.out + "/limit%d.oom-1.json" % n
        cause("%s: it was ours, and what it takes" % option, "limit", limited, r"^forward \(app_training\.c:\d+\) asked for .* on device 0, where 7\.\d\d GiB were free: refused by "
              r"a limit that was set for this process, option %s\. It allows %s; 3\d\d\.00 MiB were taken, with .* idle" % (option, allows),
              "It takes a limit of at least %s; or the program must hold less. make_moments" % takes)
        check("%s: nothing of the driver's or MPS" % option, "driver" not in str(summary(limited)["explanation"]) and "MPS" not in str(summary(limited)["explanation"]),
              summary(limited)["explanation"])
        took = re.search(r"at least ([\d.]+ MiB)", summary(limited)["explanation"]["change"])[1].replace(" ", "")
        room.run([TRAINING, "--leak"], memory_limit=took, output=room.out + "/again%d.%%r.json" % n)
        calls = [load(f)["devices"][0]["memory_stats"]["allocation.all.allocated"] for f in (limited, room.out + "/again%d.exit.json" % n)]
        check("%s: with as much as that it has what that call asked for" % option, calls[0] < calls[1], calls)

    def by_call(_copy, fail, _stats):
        fail.update(requested_bytes=GiB, free_bytes=GiB // 2, refused_by="gpumem_set_per_process_memory_fraction", limit_bytes=2 * GiB,
                    limit_used_bytes=3 * GiB // 2)
    cause("by the API; a higher one alone would not do", "limit", with_changes(snapshot, by_call), r"this process, gpumem_set_per_process_memory_fraction\. It allows 2\.00 GiB",
          r"at least 2\.50 GiB \(a fraction of 0\.3125\), and 512\.00 MiB more of the device than were free; or the program must hold less")
    with open("test/data/torch-snapshot.pickle", "rb") as file:
        torch = pickle.load(file)

    def torch_oom(size, free, **settings):
        copy = pickle.loads(pickle.dumps(torch))
        next(e for e in copy["device_traces"][0] if e["action"] == "oom").update(size=size, device_free=free)
        copy["allocator_settings"].update(settings)
        with open(path, "wb") as out:
            pickle.dump(copy, out)
        return path
    cause("PyTorch's fraction", "limit", torch_oom(100 * MiB, 50 * GiB, PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.3"),
          r"would have fitted\. PyTorch refuses by itself .*per_process_memory_fraction of PYTORCH_CUDA_ALLOC_CONF \(0\.3 here\)", "It takes a fraction of at least")
    found = summary(torch_oom(3 * MiB, 10 * MiB))["explanation"]
    check("PyTorch asks for 20 MiB where 3 are wanted: 10 would not have done", "would have fitted" not in found["why"] and "10.00 MiB too little" in found["why"], found)
    idle_bytes = sum(b["size"] for s in torch["segments"] for b in s["blocks"] if b["state"] == "inactive")
    cause("in pieces, with expandable segments: no advice to take them", "fragmented", torch_oom(idle_bytes, 4096, expandable_segments=True), "idle in the cache")
    check("no such advice", "expandable" not in summary(path)["explanation"]["change"])
    later = pickle.loads(pickle.dumps(torch))
    trace = later["device_traces"][0]
    at = next(i for i, e in enumerate(trace) if e["action"] == "oom")
    trace[at].update(size=8 * GiB, device_free=4 * GiB)
    trace[at + 1:] = [dict(trace[at], action="segment_free", addr=1 << 45, size=6 * GiB, device_free=0)]
    with open(path, "wb") as out:
        pickle.dump(later, out)
    cause("what PyTorch's cache had then, not what the snapshot has of later", "fragmented", path, r"4\.00 GiB too little, while 6\.\d\d GiB lay idle")

    with open("test/data/torch-snapshot.pickle", "rb") as file:
        torch = pickle.load(file)
    idle_bytes = sum(b["size"] for s in torch["segments"] for b in s["blocks"] if b["state"] == "inactive")
    next(e for e in torch["device_traces"][0] if e["action"] == "oom").update(size=idle_bytes, device_free=4096)
    with open(path, "wb") as out:
        pickle.dump(torch, out)
    cause("PyTorch's cache in pieces", "fragmented", path, "expandable_segments:True")

    # ---- states that take a cache or a driver's whim -------------------------------------------------------------------
    def idle(_copy, fail, stats):
        fail.update(requested_bytes=2 * GiB, free_bytes=GiB)
        stats["reserved_bytes.all.current"] = 5 * GiB
        stats["active_bytes.all.current"] = stats["allocated_bytes.all.current"] = 3 * GiB
        stats["inactive_split_bytes.all.current"] = GiB
        fail["live_bytes"] = 3 * GiB
        _copy["segments"].append(dict(_copy["segments"][0], address=1 << 40, total_size=2 * GiB, blocks=[
            {"address": 1 << 40, "size": 700 * MiB, "requested_size": 0, "state": "inactive", "stack": 0, "time_us": 0, "thread": 0,
             "kind": "device", "module": 0}]))
    cause("fragmentation", "fragmented", with_changes(snapshot, idle), r"1\.00 GiB too little, while 2\.00 GiB lay idle in the cache in pieces",
          r"the largest: 700\.00 MiB", "gpumem replay --search")
    check("advice of what this library has: no expandable segments", "expandable_segments" not in summary(path)["explanation"]["change"])
    text = gpumem("summary", "--full", path).stdout
    check("what lies idle, in a line", "idle in the cache: 2.00 GiB, the largest block 700.00 MiB; 1.00 GiB of it cannot be given back, since its "
          "segments are in use (20.0% of what is reserved)" in text, text)

    def pending(_copy, fail, stats):
        fail.update(requested_bytes=2 * GiB, free_bytes=GiB, live_bytes=GiB)
        stats["allocated_bytes.all.current"] = GiB
        stats["reserved_bytes.all.current"] = stats["active_bytes.all.current"] = 3 * GiB
    cause("limbo", "pending", with_changes(snapshot, pending), r"2\.00 GiB were freed and not yet reusable", "Synchronise")

    # ---- limbo, and the cache as it was when memory ran out -------------------------------------------------------------
    def limbo(_copy, _fail, stats):
        stats["active_bytes.all.current"] = stats["allocated_bytes.all.current"] + 43 * MiB
        stats["active.all.current"] = stats["allocation.all.current"] + 5
    text = gpumem("summary", "--full", with_changes(snapshot, limbo)).stdout
    check("what is in limbo, in a line", "in limbo: 43.00 MiB in 5 blocks, freed and not yet reusable" in text, text)
    check("nothing in limbo: no such line", "in limbo" not in gpumem("summary", "--full", full).stdout)

    def then(copy, fail, _stats):
        fail.update(requested_bytes=2 * GiB, free_bytes=GiB, live_bytes=3 * GiB, reserved_bytes=6 * GiB, cached_bytes=3 * GiB,
                    limbo_bytes=5 * MiB, largest_free_bytes=600 * MiB)
        copy["failures"][-1].update(fail)
    cause("fragmentation, by the failure's own figures", "fragmented", with_changes(snapshot, then), r"3\.00 GiB lay idle", r"the largest: 600\.00 MiB")
    text = gpumem("summary", "--full", path).stdout
    check("and in its line", "the cache held 3.00 GiB, the largest block 600.00 MiB, and 5.00 MiB in limbo" in text, text)

    def later(copy, fail, stats):
        then(copy, fail, stats)
        copy.update(failure=None, reason="exit")
    cause("also in a later snapshot", "fragmented", with_changes(snapshot, later), r"3\.00 GiB lay idle")

    def since(copy, _fail, _stats):
        copy["devices"][0]["unattributed_bytes"] = -558 * MiB
    text = gpumem("summary", "--full", with_changes(snapshot, since)).stdout
    check("more than the driver knew of when it was asked: no bytes below nothing", "558.00 MiB of what was recorded here then did not lie on the device" in text
          and "not recorded here" not in text.split("CUDA memory summary")[1], text)

    def refused(_copy, fail, _stats):
        fail.update(requested_bytes=GiB, free_bytes=2 * GiB)
    cause("the driver's whim", "refused", with_changes(snapshot, refused), "would have fitted", "limit")

    def many(copy, fail, _stats):
        less(copy, fail, _stats)
        segment = next(s for s in copy["segments"] if s["blocks"][0]["requested_size"] == MiB)
        for i in range(150):
            one = json.loads(json.dumps(segment))
            one["address"] = one["blocks"][0]["address"] = (1 << 41) + i * MiB
            copy["segments"].append(one)
        fail["live_bytes"] += 150 * MiB
        for trace in copy["device_traces"]:      # then what is live is what the tables say
            for column in trace.values():
                if isinstance(column, list):
                    column.clear()
    cause("very many blocks of one call site", "full", with_changes(snapshot, many), 
          r"remember_loss .* (170|320) blocks.*may be a leak")     # each segment doubled: one block in it, or many

    def torch(copy, fail, stats):
        less(copy, fail, stats)
        for module in copy["modules"]:
            if module["path"].endswith("app_training"):
                module["path"] = "/usr/lib/libc10_cuda.so"
    cause("PyTorch's own cache", "full", with_changes(snapshot, torch), "PyTorch's allocator holds may lie idle")

    def absurd(_copy, fail, _stats):
        fail.update(requested_bytes=(1 << 63) - 1, free_bytes=-(1 << 63), live_bytes=-(1 << 63))
    run = gpumem("summary", "--full", with_changes(snapshot, absurd))
    check("numbers that are no sizes: no sentence, no crash", run.returncode == 0 and "why memory ran out" not in run.stdout, run)

    def below(_copy, fail, stats):
        fail.update(requested_bytes=1 << 40, free_bytes=5, live_bytes=-1, total_bytes=1 << 41)
        stats.update({"allocated_bytes.all.current": -(1 << 63) + 5, "active_bytes.all.current": -(1 << 62)})
    run = gpumem("summary", "--full", with_changes(snapshot, below))
    check("likewise those far below nothing", run.returncode == 0 and "why memory ran out" not in run.stdout, run)
    check("-d of another device: not explained there", "why memory" not in gpumem("summary", "-d", "3", full).stdout)

    # ---- a program that ends at once -----------------------------------------------------------------------------------
    with Room() as quick:
        run = quick.run([TRAINING, "--oom", "--steps", "1", "--small", "40000"], snapshot_on="oom")
        check("the snapshot of memory running out is whole, though the program ends at once", run.returncode == 1 and len(quick.files()) == 1 and
              quick.files()[0].endswith("oom-1.json") and not quick.journal_files() and
              load(os.path.join(quick.out, quick.files()[0]))["devices"][0]["memory_stats"]["allocation.all.current"] == 40024, (run, quick.files()))

    # ---- by call site --------------------------------------------------------------------------------------------------
    whole = summary(full)
    sites = {re.sub(r"\.c:\d+", "", row["site"]): (row["allocated_bytes"], row["blocks"]) for row in whole["by_site"] if row["blocks"]}
    most = [max(row["allocated_bytes"], row["peak_bytes"]) for row in whole["by_site"]]
    check("by call site, at the peak, too: the largest of either first", most == sorted(most, reverse=True) and
          sum(row["peak_bytes"] for row in whole["by_site"]) == whole["devices"][0]["memory_stats"]["requested_bytes.all.peak"] and
          any(row["peak_bytes"] and not row["blocks"] for row in whole["by_site"]), whole["by_site"])
    check("by call site", sites == {"make_moments (app_training)": (168 * MiB, 12), "load_weights (app_training)": (84 * MiB, 12),
                                    "remember_loss (app_training)": (20 * MiB, 20)}, sites)
    text = gpumem("summary", "--full", full).stdout
    check("in the text, the largest first", re.search(r"live +blocks +at the peak  by call site\n +168\.00 MiB +12 +168\.00 MiB  make_moments .*\n"
                                                       r"( .*\n)* +84\.00 MiB +12 +84\.00 MiB  load_weights", text) and
          re.search(r"\n +272\.00 MiB +44 +%s  in all" % re.escape("%.2f MiB" % (sum(row["peak_bytes"] for row in whole["by_site"]) / MiB)), text), text)
    text = gpumem("summary", "--full", "--by", "stack", full).stdout
    check("--by stack: each with its stack, innermost first", re.search(
        r"\n +live +blocks +at the peak  by stack\n +168\.00 MiB +12 +168\.00 MiB  make_moments\n {41}get \(.*app_training\.c:\d+\)\n {41}make_moments \(.*app_training\.c:\d+\)\n {41}main .*\n", text), text)
    stacks = json.loads(gpumem("summary", "--json", "--by", "stack", full).stdout)
    check("--json --by stack", "by_site" not in stacks and sum(r["allocated_bytes"] for r in stacks["by_stack"]) == 272 * MiB and
          "make_moments" in [f["name"] for f in stacks["by_stack"][0]["stack"]] and stacks["by_stack"][0]["blocks"] == 12, stacks["by_stack"][:1])
    for by, row in (("module", r" 272\.00 MiB +44 .*  app_training"), ("kind", r" 272\.00 MiB +44 .*  device"), ("size", r"up to "), ("stream", r"  0\b")):
        text = gpumem("summary", "--by", by, full).stdout
        check("--by %s" % by, re.search(r"live +blocks +at the peak  by %s\n.*%s" % (by, row), text), text)
    run = gpumem("summary", "--by", "frame", full)
    check("--by of what is none: exit 2, and why", run.returncode == 2 and "--by frame: not site, stack" in run.stderr and not run.stdout, run)
    rows = summary("test/data/torch-snapshot.pickle")["by_site"]
    check("of PyTorch's: the program's own lines", any(re.match(r"train_step \(.*train\.py:\d+\)", row["site"]) for row in rows), rows)
finish()
