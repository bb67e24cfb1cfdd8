# timeout: 120
"""Why PyTorch ran out of memory: the first lines of gpumem summary, sentence by sentence, and where each must not appear."""
import copy
import json
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
sys.path.insert(0, "test/preload")
from scripted import TOO_MUCH, Play  # noqa: E402
from tap import B, GPUMEM, Room, check, finish, tell  # noqa: E402
from verbs import gpumem, load  # noqa: E402

MIB = 1 << 20
PROGRAM = '''
from pool_user import *
context()
torch = Torch(limit=%d << 20)
def weights():
    return [torch.alloc(1000) for i in range(20)]
def batches():
    return [torch.alloc(9 << 20) for i in range(14)]
def asks(size):
    return torch.alloc(size << 20)
kept = weights()
%s
got = asks(%d)
assert not got
'''
SPLIT = "first = batches()\nfor block in first[::2]:\n    torch.free(block)"	# 7 of 9 MiB, each in a segment of 20 MiB
# A tensor of 9 MiB in a segment of 70.
LARGE = "big = asks(70)\ntorch.free(big)\ndef activation():\n    return torch.alloc(9 << 20)\nsmall = activation()"


def snapshot(room, name, limit, before, asked, **options):
    """What the library wrote when the program ran out of memory; None when it did not."""
    run = room.run([sys.executable, "-c", PROGRAM % (limit, before, asked)], env=room.env(
        PYTHONPATH=os.path.abspath("test/preload/programs"), TORCH=os.path.join(B, "test/preload/torch"), **options))
    taken = [os.path.join(room.out, file) for file in room.files() if ".oom-" in file]
    if not check("%s: the program runs out of memory" % name, run.returncode == 0 and len(taken) == 1, tell(run)):
        return None
    path = os.path.join(room.path, name + ".json")
    os.rename(taken[0], path)
    return path


def said(path, *words):
    """The sentences about the pool, as one text; and of what JSON has, they are the same."""
    run = gpumem("summary", "--full", *words, path)
    lines = (json.loads(gpumem("summary", "--json", *words, path).stdout)["explanation"] or {"pool": []})["pool"]
    assert run.returncode == 0 and all(line in run.stdout for line in lines), tell(run)
    return "\n".join(lines)


def changed(room, path, change):
    """The snapshot with something else in it."""
    whole = copy.deepcopy(load(path))
    change(whole, whole["pools"][0], whole["failure"])
    other = os.path.join(room.path, "changed.json")
    with open(other, "w", encoding="utf-8") as file:
        json.dump(whole, file)
    return said(other)


def resize(size):
    def change(whole, pool, failure):
        failure["requested_bytes"] = whole["failures"][-1]["requested_bytes"] = size
        trace = pool["trace"]
        trace["size"][trace["action"].index("oom")] = size
    return change


def room_for(more):
    """So much more of the device was free, and not enough."""
    def change(_, __, failure):
        failure["free_bytes"] = more * MIB
    return change


def fill(_, pool, failure):
    failure["largest_idle_block_bytes"] = 0
    for segment in pool["segments"]:
        for block in segment["blocks"]:
            block["state"] = "active_allocated"


def expand(_, pool, __):
    for segment in pool["segments"]:
        segment["is_expandable"] = True


def drop(_, pool, __):
    pool["trace"]["dropped"] = 77


def split():
    """Enough lies idle, in pieces too small."""
    with Room() as room:
        path = snapshot(room, "split", 160, SPLIT, 60)
        if not path:
            return
        text, top = said(path), gpumem("summary", "--full", path).stdout.split("device 0:")[0]
        check("who asked, by Python line", "asks (<string>:10) asked for 60.00 MiB" in top, top)
        check("what tensors hold, and by line", "63.02 MiB in 27 blocks" in text and "63.00 MiB in 7 blocks  batches" in text and
              "20.00 KiB in 20 blocks  weights" in text, text)
        check("idle, and too small", "held 78.98 MiB idle in 15 pieces, the largest 9.00 MiB: too small." in text, text)
        check("no segment is blamed where none would have served", "is kept by" not in text, text)
        check("the setting that would have served", "Replayed with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text and
              "with at most 132.00 MiB reserved where 142.00 MiB were available" in text and "With 5% less memory the run would have fitted, too" in text and
              "with any of" not in text and "as it was" not in text, text)
        # 126 MiB of batches were live at once; of 142 MiB four units of 32 can be had, and the page of the small ones is a fifth.
        check("the driver's own pool, in whole units, does not serve it", "Replayed with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, the run would not have fitted. "
              "(backend:cudaMallocAsync is modelled by" in text and "2% to 28% more" in text, text)
        other = changed(room, path, room_for(20))
        check("with another unit it does, though perhaps not in truth", "Replayed with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, the run would also have fitted, "
              "with at most 160.00 MiB reserved; but not if" in other, other)
        other = changed(room, path, room_for(58))
        check("with more room it does, the error counted", "the run would also have fitted, with at most 160.00 MiB reserved; even if" in other, other)
        check("nothing was dropped", "older events" not in text)
        run, driver = gpumem("check", "--max-ooms", "0", path), gpumem("check", "--max-ooms", "0", "--level", "driver", path)
        check("check: the pool ran out by a limit of its own, the driver refused nothing", run.returncode == 1 and
              run.stdout == "%s: device 0, pool pytorch: ooms 1, allowed: 0\n" % path and driver.returncode == 0, (tell(run), tell(driver)))
        check("--level driver has no word of the pool", said(path, "--level", "driver") == "")
        other = changed(room, path, drop)
        check("what was dropped is said", "77 older events" in other, other)
        other = changed(room, path, resize(5 * MIB))
        check("a piece that is large enough was another stream's", "large enough" in other and "too small" not in other, other)
        check("what the replay serves as it was names no setting", "Replayed as it was" in other and "Replayed with" not in other, other)
        other = changed(room, path, expand)
        check("what is expandable already, though no variable says so, is not told to be", "Replayed as it was" in other and
              "Replayed with" not in other, other)
        other = changed(room, path, fill)
        check("nothing idle", "held nothing idle" in other and "too small" not in other, other)
        other = changed(room, path, resize(66 * MIB))
        check("an answer within the error says so", "Replayed with" in other and "With 5% less memory the run would not have fitted." in other, other)
        other = changed(room, path, resize(100 * MIB))
        check("no setting would have served it", "not have fitted with any of expandable_segments" in other and "divisions: the program must hold less" in other and
              "Replayed with PYTORCH_CUDA_ALLOC_CONF=expandable" not in other and "backend:cudaMallocAsync, the run would not have fitted" in other, other)

        check("and none within the replay's error", "With 5% more memory it would not have fitted, either." in other, other)
        other = changed(room, path, resize(72 * MIB))
        check("an answer that no setting would have is within the error, too", "with any of expandable_segments" in other and
              "With 5% more memory it would have fitted with expandable_segments:True." in other and "must hold less" not in other, other)

        def no_history(_, pool, __):
            for values in pool["trace"].values():
                if isinstance(values, list):
                    values.clear()
        other = changed(room, path, no_history)
        check("without a history nothing is replayed", "Replayed" not in other and "too small" in other, other)


def fraction():
    """PyTorch's own limit counts what PyTorch has of the driver, and not what our cache keeps below it."""
    with Room() as room:
        path = snapshot(room, "fraction", 160, SPLIT, 60)
        if not path:
            return
        text, whole = gpumem("summary", "--full", path).stdout.split("device 0:")[0], load(path)
        kept = whole["devices"][0]["memory_stats"]["reserved_bytes.all.current"]
        check("a limit of PyTorch's: what its pool had, and what it takes", kept >= 142 * MIB and "it had 142.00 MiB." in text and
              "a fraction of at least 202.00 MiB" in text, (kept, text))


def kept():
    """A segment that would have served, but for one tensor in it."""
    with Room() as room:
        path = snapshot(room, "kept", 100, LARGE, 69)
        if not path:
            return
        text = said(path)
        check("the segment, and the tensor that keeps it", "A segment of 70.00 MiB at 0x" in text and "is kept by 9.00 MiB" in text and
              "of activation (" in text, text)


def retried():
    """What the driver refuses below PyTorch is no end: it tries again, and its own failure comes later."""
    with Room() as room:
        path = snapshot(room, "retried", 160, SPLIT, 60)
        if not path:
            return
        whole = load(path)
        for failure in (whole["failure"], whole["failures"][-1]):
            failure.update(pool=None, entry="cuMemAlloc_v2", free_bytes=MIB, total_bytes=200 * MIB, live_bytes=199 * MIB, cached_bytes=0, reserved_bytes=0, largest_free_bytes=0,
                           module=[m["path"].rpartition("/")[2].startswith("libc10_cuda") for m in whole["modules"]].index(True))
        other = os.path.join(room.path, "driver.json")
        for told in (True, False):
            with open(other, "w", encoding="utf-8") as file:
                json.dump(whole if told else dict(whole, pools=[]), file)
            text = gpumem("summary", "--full", other).stdout
            check("PyTorch's pool %s: %s" % (("tells", "it asks again") if told else ("does not tell", "its own snapshot would")),
                  ("asks again" in text, "its own snapshot shows" in text) == (told, not told), text[:900])


def run_says():
    """What gpumem run says at the end is what the verbs that it names will say, also of a program that was killed."""
    for name, end, words in (("ended", "", "ended: peak %s, 63.02 MiB in 27 blocks never freed"),
                             ("killed", "os.kill(os.getpid(), 9)", "died of SIGKILL: peak %s, 63.02 MiB in 27 blocks live, 0 in flight")):
        with Room() as room:
            env = room.env(preload=False, PYTHONPATH=os.path.abspath("test/preload/programs"), TORCH=os.path.join(B, "test/preload/torch"))
            run = room.run([GPUMEM, "run", "--output=%r.json", "--", sys.executable, "-c", PROGRAM % (160, SPLIT, 60) + end], env=env)
            check("gpumem run, %s: what the pool has handed out, and that it ran out" % name, re.search(
                words % r"[0-9.]+ MiB" + r", out of memory 1 time: .*\ngpumem: look at it with: gpumem summary \S*/(oom-1|recovered)\.json\n", run.stderr),
                tell(run))


FAULTS = '''
from pool_user import *
context()
mine, other, base = pool("mine"), pool("other"), malloc(8192)
given(mine, base, 4096), given(mine, base, 512), given(mine, 0x1000, 1 << 20), given(mine, 0x200000, 1 << 20)
given(other, base + 4096, 512)
taken(mine, base + 512), taken(mine, 0x5000), taken(other, base + 4096)
this.gpumem_snapshot(b"%s")
'''


def faults():
    """What a pool told that cannot be; and what lies in no piece of a pool's is no part of what it keeps idle."""
    with Room() as room:
        path = os.path.join(room.path, "faults.json")
        run = room.run([sys.executable, "-c", FAULTS % path], env=room.env(PYTHONPATH=os.path.abspath("test/preload/programs")))
        if not check("faults: the program ends well", run.returncode == 0 and os.path.exists(path), tell(run)):
            return
        text = gpumem("summary", "--full", path).stdout
        check("faults: each is counted, of the pool that it is", [line for line in text.splitlines() if line.startswith("pool ")] == [
            "pool mine: 2 calls freed what it had not handed out",
            "pool mine: 1 call handed out again what was not freed, which then ended",
            "pool mine: 2 calls handed out what lies in no memory that is known"], text[-1500:])
        check("faults: idle is what lies in its pieces", re.search(
            r"\n +2\.00 MiB +2\.00 MiB +7\.50 KiB +1 +7\.50 KiB +4  mine\n +0 B +512 B +8\.00 KiB +1 +8\.00 KiB +1  other\n", text), text[-1500:])


def stacks():
    """Stacks of a Python program: its lines, without the interpreter's; few of the native frames that a line called."""
    with Room() as room:
        path = snapshot(room, "stacks", 160, SPLIT, 60)
        if not path:
            return
        whole = load(path)
        asks = whole["stacks"][whole["failure"]["stack"]]
        python = [i for i in asks if whole["frames"][i]["python"]]
        whole["modules"].append(dict(whole["modules"][-1], path="/opt/libmodel.so"))
        module = len(whole["modules"]) - 1

        def frames_of(count):
            """The lines of a stack of @count native frames below Python's, and outside of them libc's."""
            names = ["f%d" % i for i in range(count)] + ["outside"]
            whole["frames"] += [dict(whole["frames"][asks[0]], name=name, module=module, python=False, filename="", line=0) for name in names]
            libc = dict(whole["frames"][-1], name="run_main", module=len(whole["modules"]))
            whole["modules"].append(dict(whole["modules"][module], path="/usr/lib/libpython3.12.so.1.0"))
            whole["frames"].append(libc)
            first = len(whole["frames"]) - count - 2
            whole["stacks"][whole["failure"]["stack"]] = (list(range(first, first + count)) + [len(whole["frames"]) - 1] + python[:1] +
                                                          [len(whole["frames"]) - 1] + python[1:] + [len(whole["frames"]) - 2])
            other = os.path.join(room.path, "stacks-%d.json" % count)
            with open(other, "w", encoding="utf-8") as file:
                json.dump(whole, file)
            stack = [frame["name"] for frame in json.loads(gpumem("summary", "--no-lines", "--json", other).stdout)["explanation"]["stack"]]
            assert len(stack) == count + len(python) + 3, stack
            text = gpumem("summary", "--full", "--no-lines", other).stdout.split("device 0:")[0]
            return [re.sub(r" \((?:test/|libmodel).*", "", line.strip()) for line in text.splitlines() if line.startswith("  ") and " in " not in line]
        lines = ["asks (<string>:10)", "<module> (<string>:15)", "outside"]
        check("8 native frames are shown", frames_of(8) == ["f%d" % i for i in range(8)] + lines, frames_of(8))
        check("of 30 the ends", frames_of(30) == ["f0", "f1", "... (25 more of native code; --all-frames has all)", "f27", "f28", "f29"] + lines,
              frames_of(30))


BACKWARD = "_ZN5torch8autograd9generated14AddmmBackward05applyEOSt6vectorIN2at6TensorESaIS4_EE"


def sites():
    """What a thread of PyTorch's backward allocates is called by its step; it does not keep an allocation function of the
    program's, through which every line of Python goes, from being passed over."""
    with Room() as room:
        path = snapshot(room, "sites", 160, SPLIT, 60)
        if not path:
            return
        whole = load(path)
        wanted = {row["site"]: row["allocated_bytes"] for row in json.loads(gpumem("summary", "--json", path).stdout)["by_site"]}
        frames, stacks = whole["frames"], whole["stacks"]
        native = dict(next(f for f in frames if not f["python"] and f["name"]), filename="", line=0,
                      module=len(whole["modules"]))
        whole["modules"].append(dict(whole["modules"][-1], path="/usr/lib/libtorch_cpu.so"))
        first = len(frames)
        frames += [dict(native, name="tensor", filename="<string>", line=7, python=True), dict(native, name="empty_generic"),
                   dict(native, name=BACKWARD), dict(native, name="thread_main")]
        for stack in stacks:
            at = next((i for i, f in enumerate(stack) if frames[f]["python"]), None)
            if at is not None:
                stack.insert(at, first)
        stacks.append([first + 1, first + 2, first + 3])
        block = next(b for s in whole["pools"][0]["segments"] for b in s["blocks"] if b["size"] == 9 * MIB and b["state"] == "active_allocated")
        block["stack"] = len(stacks) - 1
        trace = whole["pools"][0]["trace"]
        for i, (action, address, time) in enumerate(zip(trace["action"], trace["addr"], trace["time_us"])):
            if (action, address, time) == ("alloc", block["address"], block["time_us"]):
                trace["stack"][i] = block["stack"]
        other = os.path.join(room.path, "backward.json")
        with open(other, "w", encoding="utf-8") as file:
            json.dump(whole, file)
        got = {row["site"]: row["allocated_bytes"] for row in json.loads(gpumem("summary", "--json", other).stdout)["by_site"]}
        batches, = [site for site in wanted if site.startswith("batches")]
        wanted[batches] -= 9 * MIB
        wanted["AddmmBackward0 (libtorch_cpu.so)"] = 9 * MIB
        check("a step of backward, and what every line of Python goes through", got == wanted, (got, wanted))


def not_a_pools():
    """An out-of-memory of the driver's, without a pool."""
    with Play() as room:
        run = room.script("alloc 100", "alloc %d" % TOO_MUCH, "exit 0")
        taken = [file for file in room.files() if ".oom-" in file]
        if check("the driver runs out of memory", len(taken) == 1, tell(run)):
            check("no word of a pool", said(os.path.join(room.out, taken[0])) == "")


def main():
    split()
    fraction()
    kept()
    run_says()
    retried()
    faults()
    stacks()
    sites()
    not_a_pools()
    finish()


main()
