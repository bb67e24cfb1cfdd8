#!/usr/bin/env python3
"""Pools of programs: what is told by gpumem_pool_*, on the fake driver, with and without the cache."""
import errno
import glob
import json
import operator
import os
import pickle
import re
import shutil
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/gpu")
import compare  # noqa: E402
from tap import B, FAKE, GPUMEM, LIBRARY, Room, check, finish, same, tell  # noqa: E402

PROGRAMS = os.path.abspath("test/preload/programs")
TORCH = os.path.join(B, "test/preload/torch")
MIB = 1 << 20


def run(room, source, **options):
    """A Python program with pool_user's names; what it prints last is a dictionary or list."""
    command = [sys.executable, "-c", "from pool_user import *\n" + source]
    done = room.run(command, env=room.env(PYTHONPATH=PROGRAMS, **options))
    check("%s: runs" % options.get("allocator", "caching"), done.returncode == 0 and not done.stderr, tell(done))
    return eval(done.stdout) if done.returncode == 0 else {}


def known_late(allocator):
    """A block is handed out before its memory is the driver's, and ends; another one goes with the memory."""
    with Room() as room:
        now = run(room, """
context()
p, base = pool("a"), malloc(4 << 20)
free(base)
answers = [given(p, base, 1 << 20), malloc(4 << 20) - base, given(p, base + (2 << 20), 1 << 20), taken(p, base)]
free(base)
print((answers, stats(p)["allocation.all.current"], stats(p)["segment.all.current"]))
""", allocator=allocator)
        check("%s: with memory that became known late all that is in it goes" % allocator, now == ([0, 0, 0, 0], 0, 0), now)


def numbers(allocator):
    """Statistics, and what each call answers."""
    source = """
before = [pool("early"), given(1, 4096, 512), this.gpumem_pool_find(b"early", 0)]
context()
p, again, other = pool("a"), pool("a"), pool("b")
base = malloc(4 << 20)
answers = [given(p, base, 1024), given(p, base + 1024, 2 << 20), taken(p, base), taken(p, base),
           given(p, 0, 512), given(p, base, 0), given(99, base, 512), given(p, base, 512), given(p, base, 4096),
           given(other, 0x1000, 512), pool(""), pool("x", -1), pool("x", 64), taken(0, base),
           given(p, base, 1 << 62), given(p, (1 << 57) - 512, 1024), given(p, (1 << 64) - 4096, 4096),
           given(other, 8192, 1 << 56), given(other, 16384, 1 << 56), given(other, 16384, 1 << 40)]
now = stats(p)
snapshot()
free(base)
after = stats(p)
this.gpumem_pool_reset_peak_memory_stats(p)
print((before, [p, again, other, this.gpumem_pool_find(b"b", 0), this.gpumem_pool_find(b"c", 0)], answers, now, after,
       stats(p), stats(3)))
"""
    with Room() as room:
        result = run(room, source, allocator=allocator)
        if not result:
            return
        before, pools, answers, now, after, reset, none = result
        what = "%s: " % allocator
        check(what + "nothing is recorded before the first CUDA call", before == [0, -errno.EINVAL, 0], before)
        check(what + "pools are numbered, and the same name is the same pool", pools == [1, 1, 2, 2, 0], pools)
        bad = -errno.EINVAL
        check(what + "what the calls answer", answers == [0, 0, 0, -errno.ENOENT, bad, bad, bad, 0, 0, 0, 0, 0, 0, bad, bad, bad, bad,
                                                       0, bad, 0],
              answers)
        check(what + "a block given twice ends first", now.get("allocation.all.current") == 2 and
              now["allocated_bytes.all.current"] == 2 * MIB + 4096 and now["allocation.all.allocated"] == 4, now)
        trace = room.snapshots("api")[0]["pools"][0]["trace"]
        check(what + "in the history, too: an address is free when it is handed out again", [
            (action, size) for action, size in zip(trace["action"], trace["size"]) if not action.startswith("segment")] == [
                ("alloc", 1024), ("alloc", 2 * MIB), ("free_requested", 1024), ("free_completed", 1024), ("alloc", 512),
                ("free_requested", 512), ("free_completed", 512), ("alloc", 4096)], list(zip(trace["action"], trace["size"])))
        check(what + "blocks of up to 1 MiB are the small pool's", now["allocated_bytes.small_pool.current"] == 4096, now)
        check(what + "the driver's memory is the pool's segment", now["segment.all.current"] == 1 and
              now["reserved_bytes.all.current"] == 4 * MIB, now)
        check(what + "what cannot be known is not there", not any(k.startswith(("active", "requested", "inactive")) for k in now),
              sorted(now))
        check(what + "the segment goes with all that is in it", after["allocation.all.current"] == 0 and
              after["allocated_bytes.all.freed"] == after["allocated_bytes.all.allocated"] and
              after["segment.all.current"] == after["reserved_bytes.all.current"] == 0, after)
        check(what + "the peak is kept, and set back", after["allocated_bytes.all.peak"] >= 2 * MIB + 4096 and
              reset["allocated_bytes.all.peak"] == 0, (after, reset))
        check(what + "no such pool", none == bad, none)


def torch(allocator, expandable):
    """PyTorch's functions: every call is noted, and reaches the libc10 of its caller. To the last byte, at random moments."""
    source = """
context()
torch, other = Torch(expandable=%d), Torch(name="-other")
a = [torch.alloc(3000), torch.alloc(2 << 20), torch.alloc(100)]
b = other.alloc(700)
torch.free(a[1])
p = this.gpumem_pool_find(b"pytorch", 0)
q = 3 - p
few = [torch.reports(), other.reports(), torch.account(), other.account(), stats(p), stats(q)]
wrong = torch.storm(4, 3000, 7, differs(p))
end = [torch.reports(), torch.account(), stats(p)]
torch.free(a[0]), torch.free(a[2]), torch.empty_cache()
print((p, q, few, wrong, end, torch.account(), stats(p)))
""" % expandable
    with Room() as room:
        result = run(room, source, allocator=allocator, TORCH=TORCH)
        if not result:
            return
        p, q, few, wrong, end, last, left = result
        what = "%s, expandable %d: " % (allocator, expandable)
        check(what + "a pool for each PyTorch", p == 1 and few[5] != -errno.EINVAL, (p, q))
        check(what + "the profiler of each gets its own calls, unchanged",
              [few[0][k] for k in ("calls", "bytes", "allocated", "device_type", "device_index")] == [4, 3584, 3584, 1, 0] and
              [few[1][k] for k in ("calls", "bytes", "allocated", "device_type", "device_index")] == [1, 1024, 1024, 1, 0] and
              few[0]["reserved"] == few[2]["reserved_bytes"], few[:2])
        check(what + "the second one's blocks are its own", few[5]["allocation.all.current"] == 1 and
              few[5]["allocated_bytes.all.current"] == 1024 and few[5]["reserved_bytes.all.current"] == 2 * MIB, few[5])
        check(what + "at random moments of four threads the statistics are the pool's", wrong == 0, wrong)
        reports, account, now = end
        check(what + "nothing is lost", account["allocations"] > 3000 and
              reports["calls"] == account["allocations"] + account["frees"] == now["allocation.all.allocated"] + now["allocation.all.freed"] and
              now["allocation.all.allocated"] == account["allocations"], end)
        check(what + "all memory goes back", last["reserved_bytes"] == left["reserved_bytes.all.current"] == 0 and
              left["allocation.all.current"] == left["segment.all.current"] == 0, (last, left))


def sound(what, pool):
    """Segments in order, tiled by blocks without two idle ones side by side; sums are those of the statistics; and the
    trace, played from nothing, ends at the blocks that are live."""
    segments, stats = pool["segments"], pool["memory_stats"]
    wrong = []
    for segment in segments:
        at, idle = segment["address"], False
        for block in segment["blocks"]:
            now = block["state"] == "inactive"
            if block["address"] != at or not block["size"] or (idle and now):
                wrong.append((segment["address"], block))
            at, idle = at + block["size"], now
        if at != segment["address"] + segment["total_size"]:
            wrong.append((segment["address"], "ends at", at))
        if segment["allocated_size"] != sum(b["size"] for b in segment["blocks"] if b["state"] != "inactive"):
            wrong.append((segment["address"], "adds up"))
    check(what + "blocks tile the segments", not wrong, wrong[:3])
    live = {b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    check(what + "what is live is what is counted", len(live) == stats["allocation.all.current"] and
          sum(live.values()) == stats["allocated_bytes.all.current"] ==
          sum(r["allocated_bytes"] for r in pool["by_module"]) == sum(r["allocated_bytes"] for r in pool["by_kind"]),
          (len(live), sum(live.values()), stats))
    held = sum(s["total_size"] for s in segments if not s.get("outside"))
    check(what + "what is held is what is counted", held == stats["reserved_bytes.all.current"], (held, stats))
    trace, played, pieces = pool["trace"], {}, {}
    for action, address, size in zip(trace["action"], trace["addr"], trace["size"]):
        if action == "alloc":
            played[address] = size
        elif action == "free_completed":
            played.pop(address, None)
        elif action == "segment_alloc":
            pieces[address] = size
        elif action == "segment_free":
            pieces.pop(address, None)
    check(what + "the trace ends at what is live and held", trace["dropped"] or (played == live and
          sum(pieces.values()) == stats["reserved_bytes.all.current"]), (len(played), len(live), len(pieces)))
    return live


def shown(allocator, expandable):
    """The section "pools" of a snapshot, of a program in which everything happens."""
    source = """
context()
torch = Torch(expandable=%d)
torch.storm(3, 1500, 3)
def model():
    return [torch.alloc(100 * i) for i in range(1, 50)] + [torch.alloc(5 << 20)]
kept = model()
for block in kept[::3]:
    torch.free(block)
p = pool("mine")
base = malloc(1 << 20)
for at in range(4):
    given(p, base + at * 65536, 40000, 77)
taken(p, base + 65536)
given(p, base + 100, 10), given(p, 0x7000000, 4096), given(p, base + (1 << 20) - 512, 1024)
snapshot()
print(torch.account())
""" % expandable
    what = "%s, expandable %d: " % (allocator, expandable)
    with Room() as room:
        account = run(room, source, allocator=allocator, TORCH=TORCH)
        taken = room.snapshots("api")
        if not account or not check(what + "a snapshot", len(taken) == 1, room.files()):
            return
        torch_pool, mine = taken[0]["pools"]
        live = sound(what + "PyTorch's: ", torch_pool)
        check(what + "every block of PyTorch's", sum(live.values()) == account["live_bytes"] and len(live) == account["live"],
              (sum(live.values()), account))
        check(what + "what PyTorch said itself", torch_pool["told_allocated_bytes"] == account["live_bytes"] and
              torch_pool["told_reserved_bytes"] == account["reserved_bytes"] and
              torch_pool["source"] == "libc10" and torch_pool["name"] == "pytorch", torch_pool["told_reserved_bytes"])
        check(what + "expandable segments", all(s["is_expandable"] == bool(expandable) for s in torch_pool["segments"]) and
              {r["kind"] for r in torch_pool["by_kind"]} == {"vmm" if expandable else "device"}, torch_pool["by_kind"])
        frames, stacks = taken[0]["frames"], taken[0]["stacks"]
        names = {frames[f]["name"] for s in torch_pool["segments"] for b in s["blocks"] for f in stacks[b["stack"]]}
        check(what + "native and Python frames of each", {"model", "pool_alloc"} <= names, sorted(names)[:20])
        live = sound(what + "its own: ", mine)
        check(what + "odd blocks are there", {base - min(live) for base in live if base > 0x7000000} and
              sorted(live.values()) == [10, 1024, 4096] + 3 * [40000] and mine["outside"] == 2, (live, mine["outside"]))
        check(what + "those are segments of their own", sorted(s["total_size"] for s in mine["segments"] if s.get("outside")) ==
              [10, 1024, 4096], [s["total_size"] for s in mine["segments"]])
        again = room.run([GPUMEM, "convert", "--to", "gpumem", "-o", os.path.join(room.path, "again.json"), glob.glob(room.out + "/*api*")[0]], preload=False)
        with open(os.path.join(room.path, "again.json"), encoding="utf-8") as text:
            read = json.load(text)["pools"]
        check(what + "read and written again it is the same", again.returncode == 0 and len(read) == 2 and operator.eq(
              *(json.dumps(pools, sort_keys=True).replace("null", "0") for pools in (read, taken[0]["pools"]))), tell(again))
        levels = {b["address"]: b["size"] for s in taken[0]["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
        check(what + "the driver's level is as ever", all(s["address"] in levels for s in torch_pool["segments"]),
              len(levels))


def runs_out():
    """What PyTorch could not serve, though the driver was not asked, is a failure of the pool with a snapshot of its own."""
    source = """
context()
torch = Torch(limit=44 << 20)
def asks():
    return torch.alloc(39 << 20)
kept = [torch.alloc(3 << 20), torch.alloc(3 << 20)]
torch.free(kept[0])
got = asks()
snapshot()
print((got, torch.reports(), torch.account(), stats(1)))
"""
    with Room() as room:
        result = run(room, source, TORCH=TORCH)
        shots = room.snapshots("oom")
        if not result or not check("out of memory: one snapshot of it", len(shots) == 1, room.files()):
            return
        got, reports, account, stats = result
        failure, pool = shots[0]["failure"], shots[0]["pools"][0]
        check("out of memory: PyTorch's profiler is told, too", got is None and reports["ooms"] == account["ooms"] == 1 ==
              stats["num_ooms"], (got, reports))
        check("out of memory: whose, how much, where", failure["pool"] == 1 and failure["device"] == 0 and
              failure["requested_bytes"] == 39 << 20 and failure["reserved_bytes"] == account["reserved_bytes"] and
              failure["cached_bytes"] == account["reserved_bytes"] - account["live_bytes"] and
              failure["live_bytes"] == 3 << 20, failure)
        check("out of memory: the largest idle piece of the pool", failure["largest_idle_block_bytes"] ==
              max(b["size"] for s in pool["segments"] for b in s["blocks"] if b["state"] == "inactive"), failure)
        names = [shots[0]["frames"][f]["name"] for f in shots[0]["stacks"][failure["stack"]]]
        check("out of memory: who asked", "asks" in names, names)
        check("out of memory: an event of the pool", "oom" in pool["trace"]["action"], pool["trace"]["action"])


def pickled(allocator, expandable):
    """The converted pickle, beside what the pool itself has at the same moment; by what gpu_pools.py compares with PyTorch's."""
    source = """
context()
torch = Torch(expandable=%d)
torch.storm(1, 1500, 9)
kept = [torch.alloc(n) for n in (100, 700000, 3 << 20, 9 << 20, 15 << 20, 45 << 20, 100, 100)]
torch.free(kept[1]), torch.free(kept[3]), torch.free(kept[6])
must(torch.cuda.pool_layout(%r.encode()))
snapshot()
print(1)
"""
    what = "%s, expandable %d, pickle: " % (allocator, expandable)
    with Room() as room:
        layout, path = os.path.join(room.path, "layout"), os.path.join(room.path, "x.pickle")
        conf = "max_split_size_mb:100,garbage_collection_threshold:0.5,roundup_power2_divisions:[256:1,512:2,>:8],later:7"
        if not run(room, source % (expandable, layout), allocator=allocator, TORCH=TORCH, PYTORCH_CUDA_ALLOC_CONF=conf):
            return
        done = room.run([GPUMEM, "convert", "-o", path, glob.glob(room.out + "/*api*")[0]], preload=False)
        if not check(what + "written", done.returncode == 0 and os.path.exists(path), tell(done)):
            return
        with open(path, "rb") as file:
            ours = pickle.load(file)
        theirs = {"segments": []}
        with open(layout, encoding="utf-8") as text:
            for word, address, size, state in map(str.split, text):
                if word == "segment":
                    theirs["segments"].append({"device": 0, "address": int(address), "total_size": int(size), "segment_type": state,
                                               "blocks": []})
                else:
                    theirs["segments"][-1]["blocks"].append({"address": int(address), "size": int(size), "state": state})
        wrong, count = compare.snapshots(ours, theirs)
        check(what + "the same segments, blocks, addresses and states", not wrong and count >= 5, (count, wrong[:3]))
        with open("test/data/torch-snapshot.pickle", "rb") as file:
            real = pickle.load(file)["allocator_settings"]
        settings, divisions = ours["allocator_settings"], ours["allocator_settings"]["roundup_power2_divisions"]
        check(what + "the settings that PyTorch has, of PyTorch's types", {k: type(v) for k, v in settings.items()} ==
              {k: type(v) for k, v in real.items()} and divisions.keys() == real["roundup_power2_divisions"].keys(), settings)
        check(what + "they are what PyTorch was told", settings["PYTORCH_CUDA_ALLOC_CONF"] == conf and settings["max_split_size"] ==
              100 << 20 and settings["garbage_collection_threshold"] == 0.5 and settings["expandable_segments"] == bool(expandable) and
              [divisions[k] for k in ("1", "256", "512", "1024", "32768")] == [1, 1, 2, 8, 8], settings)
        # Each of these would have been seen.
        first, last = theirs["segments"][0], [s for s in theirs["segments"] if len(s["blocks"]) > 1][-1]
        block = [b for b in first["blocks"] if b["state"] == "active_allocated"][:1] or first["blocks"][:1]
        changes = [(block[0], "state", "inactive" if block[0]["state"] == "active_allocated" else "active_allocated"),
                   (last["blocks"][0], "size", last["blocks"][0]["size"] - 512), (last["blocks"][1], "address", last["blocks"][1]["address"] + 512),
                   (first, "total_size", first["total_size"] + (2 << 20)), (first, "segment_type", "other"), (first, "address", 0)]
        unseen = []
        for whole, key, value in changes:
            kept, whole[key] = whole[key], value
            if len(compare.snapshots(ours, theirs)[0]) not in (1, 2):
                unseen.append((key, value))
            whole[key] = kept
        theirs["segments"].append(dict(first, address=4096))
        check(what + "what differs is found", not unseen and len(compare.snapshots(ours, theirs)[0]) == 1, unseen)


def repeats():
    """Lines that a program prints alike without the library must be alike with it; others need not."""
    got = [compare.repeats(*(text.split() for text in texts))[0] for texts in (
        ("a b c", "a b c", "a b c"), ("a b c", "a x c", "a y c"), ("a b c", "a x c", "a b z"), ("a b", "x y", "a b"), ("a b", "a b", "a"),
        ("a;1 b;2", "a;1 b;2", "a;1 b;3"), ("a;1 b;2", "a;1 b;2", "a;1 c;2"))]
    check("compare.py repeats: alike, alike where it can be, not alike, nothing to compare, too few, other counts, other bits",
          [bool(wrong) for wrong in got] == [False, False, True, True, True, False, True], got)


def tells_nothing():
    """A PyTorch whose libc10 has neither signature: said once at verbose:1, and nothing at all otherwise."""
    with Room() as room:
        for name, text in (("libc10.so", "int c10_nothing;"), ("libc10_cuda.so", """#include <stddef.h>
#include <dlfcn.h>
int grow(void) { unsigned long long p; int (*f)(void *, size_t) = dlsym(dlopen("libcuda.so.1", 2), "cuMemAlloc_v2"); return f(&p, 4096); }
""")):
            subprocess.run(["gcc", "-shared", "-fPIC", "-g", "-x", "c", "-", "-Wl,-soname," + name, "-o", os.path.join(room.path, name)],
                           input=text, text=True, check=True)
        source = """
context()
c10, cuda10 = [ctypes.CDLL(%r + "/" + name) for name in ("libc10.so", "libc10_cuda.so")]
must(cuda10.grow()), must(cuda10.grow())
print(pool("x"))
""" % room.path
        for verbose in (0, 1):
            done = room.run([sys.executable, "-c", "from pool_user import *\n" + source],
                            env=room.env(PYTHONPATH=PROGRAMS, verbose=verbose))
            check("an unknown libc10, verbose:%d" % verbose, done.returncode == 0 and
                  done.stderr.count("tells nobody of its tensors") == verbose, tell(done))


def debian_torch():
    """Debian's PyTorch, without CUDA: its libc10 calls our functions and its profiler gets every call, as without us."""
    source = """
import sys, torch
with torch.profiler.profile(profile_memory=True) as p:
    kept = [torch.ones(1000 * i) for i in range(1, 20)]
    del kept
events = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
print(sum(e.nbytes() for e in events), [e.nbytes() for e in events][:60])
"""
    with Room() as room:
        there = room.run(["/usr/bin/python3", "-c", "import torch"], preload=False)
        if there.returncode:
            print("ok 1 - Debian's PyTorch # SKIP no python3-torch here")
            return
        runs = [room.run(["/usr/bin/python3", "-c", source], preload=preload) for preload in (False, True)]
        binds = room.run(["/usr/bin/python3", "-c", source], env=room.env(LD_DEBUG="bindings", LD_DEBUG_OUTPUT=room.path + "/bind"))
        check("Debian's PyTorch: its profiler sees the same", same(*runs) and len(runs[0].stdout) > 60, tell(*runs))
        bound = [line for name in os.listdir(room.path) if name.startswith("bind")
                 for line in open(os.path.join(room.path, name), errors="replace") if "reportMemoryUsageToProfiler" in line]
        check("Debian's PyTorch: its calls are bound to us", binds.returncode == 0 and
              any("libc10.so" in line.split(" to ")[0] and "libgpumem.so" in line.split(" to ")[1] for line in bound), bound)


def nvtx(allocator):
    """A program annotated for compute-sanitizer: its heap is a pool, its regions are blocks."""
    what = "NVTX, %s: " % allocator
    program = os.path.join(B, "test/preload/nvtx_mem")
    with Room() as room:
        bare, done, off = room.run([program], preload=False), room.run([program], allocator=allocator), None
        check(what + "it runs as without us", same(bare, done) or (done.returncode == bare.returncode == 0 and not done.stderr),
              tell(bare, done))
        shots = room.snapshots("api")
        if not check(what + "its snapshots", len(shots) == 3, room.files()):
            return
        at = int(done.stdout)
        pools = [[p for p in shot["pools"] if p["name"] == "frames"] for shot in shots]
        check(what + "the suballocator is a pool, a layout is not", all(len(shot["pools"]) == 1 for shot in shots) and
              pools[0][0]["source"] == "nvtx" and pools[0][0]["device"] == 0, [p["name"] for p in shots[0]["pools"]])
        named = [{b["address"] - at: (b["size"], b.get("name")) for s in pool[0]["segments"] for b in s["blocks"]
                  if b["state"] == "active_allocated"} for pool in pools]
        check(what + "region by region", named == [{4096: (8192, "body"), 65536: (200, "a longer header")}, {512: (1000, None)}, {}],
              named)
        check(what + "in the memory that it lies in", [s["address"] for s in pools[0][0]["segments"]] == [at] and
              pools[0][0]["memory_stats"]["reserved_bytes.all.current"] == 1 << 20, pools[0][0]["segments"][0]["total_size"])
        for number, pool in enumerate(pools):
            sound(what + "snapshot %d: " % number, pool[0])
        # A compiler that does not optimise keeps the function of NVTX's header, which is linked into the program.
        frames, header = shots[0]["frames"], os.path.join(room.path, "header.json")
        frames[:] = [dict(f, name="nvtxMemRegionsRegister", module=0) if f["name"] == "add" else f for f in frames]
        with open(header, "w", encoding="utf-8") as file:
            json.dump(shots[0], file)
        sites = json.loads(subprocess.run([GPUMEM, "summary", "--json", header], stdout=subprocess.PIPE, check=True).stdout)["by_site"]
        check(what + "who asked is the program, not NVTX's header", len(sites) > 1 and
              all(row["site"].startswith(("main ", "grow ")) for row in sites), sites)
        leaks = subprocess.run([GPUMEM, "leaks", glob.glob(room.out + "/*api-1.json")[0]], stdout=subprocess.PIPE, text=True,
                               check=True).stdout
        check(what + "leaks: by the name that the program gave it", re.search(r'^8\.00 KiB in 1 block \(device\), named "body"$', leaks, re.M) and
              leaks.count("named") == 2, leaks)
        with Room() as other:
            done = other.run([program, "many"], allocator=allocator)
            shot = (other.snapshots("api") or [{"pools": []}])[0]
            live = {b["address"] - int(done.stdout or 0): b["size"] for pool in shot["pools"] for s in pool["segments"] for b in s["blocks"]
                    if b["state"] == "active_allocated"}
            check(what + "200 heaps of one name are one pool, and go one by one", done.returncode == 0 and
                  [pool["name"] for pool in shot["pools"]] == ["pieces"] and live == {
                      i * 4096 + at: size for i in range(1, 200, 2) for at, size in ((0, 256), (1024, 512)) if (i, at) != (1, 0)},
                  (done.returncode, [pool["name"] for pool in shot["pools"]][:3], len(live)))
        off = room.run([program], allocator=allocator, nvtx=0)
        # By process: names are in the order of letters, in which 10002 comes before 9998.
        later = [shot for shot in room.snapshots("api") if shot["process"]["pid"] != shots[0]["process"]["pid"]]
        check(what + "nvtx:0: nothing of it", off.returncode == 0 and not any(shot["pools"] for shot in later) and
              len(later) == 3, (len(later), tell(off)))


def ends(allocator):
    """A context that ends takes what pools have of it along; a libtorch that is unloaded is forgotten; small blocks stay out
    of the trace where the history leaves them out, and in all figures."""
    source = """
import _ctypes
context()
other = Torch(name="-other")
a = other.alloc(100)
other.free(a)
first = stats(1)["allocation.all.allocated"]
handles = [other.cuda._handle, other.c10._handle]
del other
for handle in handles:
    _ctypes.dlclose(handle)
torch = Torch()
kept = [torch.alloc(100), torch.alloc(3 << 20)]
again = Torch(name="-other")
kept.append(again.alloc(700))
p = pool("mine")
base = malloc(8192)
given(p, base, 300), given(p, base + 4096, 4096)
before = [stats(n) for n in range(1, 5)]
snapshot()
must(cuda.cuDevicePrimaryCtxReset_v2(0))
print((first, [s["allocation.all.current"] if s != -22 else s for s in before],
       [s["allocation.all.current"] + s["segment.all.current"] if s != -22 else 0 for s in (stats(n) for n in range(1, 5))]))
"""
    what = "%s: " % allocator
    with Room() as room:
        result = run(room, source, allocator=allocator, TORCH=TORCH, history_min_size=1000)
        if not result:
            return
        first, before, after = result
        check(what + "a libtorch unloaded and loaded again", first == 1 and sum(n for n in before if n > 0) == 5, before)
        check(what + "nothing outlives its context", not any(after), after)
        pools = {p["number"]: p for p in room.snapshots("api")[0]["pools"]}
        mine = [p for p in pools.values() if p["name"] == "mine"][0]
        trace = list(zip(mine["trace"]["action"], mine["trace"]["size"]))
        check(what + "history_min_size holds for blocks", ("alloc", 4096) in trace and ("segment_alloc", 8192) in trace and
              ("alloc", 300) not in trace and mine["memory_stats"]["allocation.all.current"] == 2, trace)


def many():
    """More PyTorches than the library remembers, one after the other: the profiler of each gets each call."""
    most = 260
    source = """
context()
def used(torch):
    a, b = torch.alloc(100), torch.alloc(2 << 20)
    torch.free(a), torch.free(b)
    r = torch.reports()
    torch.cuda.pool_begin(0, 0, u64(1 << 20))
    torch.empty_cache()
    return [r[k] for k in ("calls", "bytes", "allocated", "device_type")] + [torch.alloc(3 << 20), torch.reports()["ooms"]]
place, seen = %r, []
for turn in range(%d):
    os.rename(place + str(turn), place + str(turn + 1))
    torch = Torch(directory=place + str(turn + 1))
    seen.append(used(torch) + [torch.unload()])
print((seen, sum(s["allocation.all.allocated"] for s in map(stats, range(1, 64)) if s != -22)))
"""
    with Room() as room:
        shutil.copytree(TORCH, os.path.join(room.path, "0"))
        result = run(room, source % (room.path + "/", most), TORCH=TORCH)
        if not result:
            return
        seen, recorded = result
        wrong = [(turn, got) for turn, got in enumerate(seen) if got != [4, 0, 0, 1, None, 1, True]]
        check("%d PyTorches, loaded and unloaded: each call reaches their profilers" % most, len(seen) == most and not wrong,
              wrong[:3])
        check("and their blocks are recorded", recorded == 2 * most, recorded)


TOLD = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
TELL_SOURCES = {
    # Of the second one other code lies where the function of the first one was.
    "a/libc10.so": '#include <stdio.h>\nvoid %s(void *b, long n) { (void)b; printf("a was told of %%ld\\n", n); fflush(stdout); }' % TOLD,
    "b/libc10.so": '#include <unistd.h>\n__asm__(".skip 400000, 0xcc");\n'
                   'void %s(void *b, long n) { (void)b; (void)n; (void)!write(1, "b was told\\n", 11); }' % TOLD,
    "a/libc10_cuda.so": "void %s(void *, long); void tell(long n) { %s(0, n); }" % (TOLD, TOLD),
    "b/libc10_cuda.so": "void %s(void *, long); void tell(long n) { %s(0, n); }" % (TOLD, TOLD),
    "interposer.so": """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
void %s(void *block, long bytes)
{
	void (*next)(void *, long) = (void (*)(void *, long))dlsym(RTLD_NEXT, "%s");
	printf("passed on\\n"), fflush(stdout);
	if (next)
		next(block, bytes);
}
""" % (TOLD, TOLD),
    "host": """#include <dlfcn.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(unsigned long *, size_t);
static void (*tell)(long);
static void *load(const char *path)
{
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) { puts(dlerror()); exit(1); }
	tell = (void (*)(long))dlsym(h, "tell");
	tell(7);
	return h;
}
/* As first, what it loaded is closed, and another one is loaded; in a child of its own. */
static int again(void *h)
{
	void (*first)(long) = tell;
	char *p;
	for (size_t size = 1ul << 40; size >= 4096; size /= 2) {	/* nothing above it is free */
		while ((p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) != MAP_FAILED && p > (char *)first)
			;
		if (p != MAP_FAILED) munmap(p, size);
	}
	dlclose(h);
	load("b/libc10_cuda.so");
	puts(tell == first ? "in its place" : "elsewhere"), fflush(stdout);
	return 0;
}
int main(int argc, char **argv)
{
	void *h, *context;
	unsigned long memory;
	int status;
	if (!strcmp(argv[1], "once")) { load("a/libc10_cuda.so"); return 0; }
	if (!strcmp(argv[1], "early")) return again(load("a/libc10_cuda.so"));
	if (!strcmp(argv[1], "child")) {
		if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&memory, 4096)) return 1;
		h = load("a/libc10_cuda.so");
		if (fork() == 0) _exit(again(h));
		wait(&status);
		return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
	/* One after the other, all at once in other places: then a call of the newest makes no system call but write. */
	for (int i = 0; i < atoi(argv[1]); i++) {
		char from[32], to[32];
		snprintf(from, sizeof from, "%d", i), snprintf(to, sizeof to, "%d", i + 1);
		if (rename(from, to)) return 1;
		strcat(to, "/libc10_cuda.so");
		h = load(to);
		if (i + 1 < atoi(argv[1])) dlclose(h);
	}
	if (rename(argv[1], "0")) return 1;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
	tell(8);
	syscall(SYS_exit, 0);
}
""",
}


def tells(room):
    """The sources above, made."""
    for name, text in TELL_SOURCES.items():
        path = os.path.join(room.path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if name == "host":
            flags = ["-L" + FAKE, "-lcuda", "-ldl"]
        else:
            flags = ["-shared", "-fPIC", "-Wl,-soname," + os.path.basename(name), "-Wl,-rpath,$ORIGIN"]
            flags += ["-L" + os.path.dirname(path), "-lc10"] if "cuda" in name else ["-ldl"]
        subprocess.run(["gcc", "-x", "c", "-", "-x", "none", "-o", path] + flags, input=text, text=True, check=True)


def unloaded():
    """What was looked for in objects that are gone: before the library has started, in a child, and more than there are places."""
    with Room() as room:
        tells(room)
        for mode in ("early", "child"):
            runs = [room.run(["./host", mode], preload=preload) for preload in (False, True)]
            check("%s: another libc10 where one was unloaded gets the calls, as without us" % mode, same(*runs) and
                  runs[0].stdout == "a was told of 7\nb was told\nin its place\n", tell(*runs))
        shutil.copytree(os.path.join(room.path, "b"), os.path.join(room.path, "0"))
        runs = [room.run(["./host", "600"], preload=preload) for preload in (False, True)]
        check("after 600 of them the newest is known, and is not looked for at each call", same(*runs) and
              runs[0].stdout == 601 * "b was told\n", tell(*runs)[-800:])


def interposed():
    """A library that was preloaded before ours passes calls on by RTLD_NEXT, which is ours."""
    with Room() as room:
        tells(room)
        interposer, torch = os.path.join(room.path, "interposer.so"), os.path.join(room.path, "a/libc10_cuda.so")
        runs = [room.run(["./host", "once"], env=room.env(LD_PRELOAD=" ".join(preload)))
                for preload in ([interposer, torch], [interposer, LIBRARY, torch])]
        check("an interposer before us passes calls on, as without us", same(*runs) and
              runs[0].stdout == "passed on\na was told of 7\n", tell(*runs))


def main():
    unloaded()
    interposed()
    many()
    for allocator in ("native", "caching"):
        ends(allocator)
    for allocator in ("native", "caching"):
        nvtx(allocator)
    runs_out()
    repeats()
    for allocator in ("native", "caching"):
        for expandable in (0, 1):
            pickled(allocator, expandable)
    tells_nothing()
    debian_torch()
    for allocator in ("native", "caching"):
        for expandable in (0, 1):
            shown(allocator, expandable)
    for allocator in ("native", "caching"):
        for expandable in (0, 1):
            torch(allocator, expandable)
    for allocator in ("native", "caching"):
        numbers(allocator)
        known_late(allocator)
    finish()


main()
