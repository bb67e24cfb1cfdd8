#!/usr/bin/env python3
"""Pools of programs: what is told by gpumem_pool_*, on the fake driver, with and without the cache."""
import errno
import os
import sys

sys.path.insert(0, "test")
from tap import B, Room, check, finish, tell  # noqa: E402

PROGRAMS = os.path.abspath("test/preload/programs")
TORCH = os.path.join(B, "test/preload/torch")
MIB = 1 << 20


def run(room, source, **options):
    """A Python program with pool_user's names; what it prints last is a dictionary or list."""
    command = [sys.executable, "-c", "from pool_user import *\n" + source]
    done = room.run(command, env=room.env(PYTHONPATH=PROGRAMS, **options))
    check("%s: runs" % options.get("allocator", "native"), done.returncode == 0 and not done.stderr, tell(done))
    return eval(done.stdout) if done.returncode == 0 else {}


def numbers(allocator):
    """Statistics, and what each call answers."""
    source = """
before = [pool("early"), given(1, 4096, 512), this.gpumem_pool_find(b"early", 0)]
context()
p, again, other = pool("a"), pool("a"), pool("b")
base = malloc(4 << 20)
answers = [given(p, base, 1024), given(p, base + 1024, 2 << 20), taken(p, base), taken(p, base),
           given(p, 0, 512), given(p, base, 0), given(99, base, 512), given(p, base, 512), given(p, base, 4096),
           given(other, 0x1000, 512), pool(""), pool("x", -1), pool("x", 64), taken(0, base)]
now = stats(p)
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
        check(what + "what the calls answer", answers == [0, 0, 0, -errno.ENOENT, bad, bad, bad, 0, 0, 0, 0, 0, 0, bad],
              answers)
        check(what + "a block given twice ends first", now.get("allocation.all.current") == 2 and
              now["allocated_bytes.all.current"] == 2 * MIB + 4096 and now["allocation.all.allocated"] == 4, now)
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


def main():
    for allocator in ("native", "caching"):
        for expandable in (0, 1):
            torch(allocator, expandable)
    for allocator in ("native", "caching"):
        numbers(allocator)
    finish()


main()
