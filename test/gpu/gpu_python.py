"""The Python package on a GPU: CuPy's pool through its hook, to the byte; PyTorch's phases against PyTorch's own peaks; the
classes of its tensors against its own blocks.

usage: gpu_python.py GPUMEM DIR cupy|phases|label

Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import json
import os
import random
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.normpath(os.path.join(HERE, "../../tools/python"))
MOMENTS = 10


def cupy_program():
    """Arrays of many sizes, in threads, and freed; what the library knows against what the pool says."""
    import cupy                 # pylint: disable=import-outside-toplevel
    import gpumem               # pylint: disable=import-outside-toplevel
    import gpumem.cupy          # pylint: disable=import-outside-toplevel
    assert gpumem.cupy.install()
    pool, dice, kept, lock = cupy.get_default_memory_pool(), random.Random(7), [], threading.Lock()

    def make(count, seed):
        mine = random.Random(seed)
        for _ in range(count):
            array = cupy.ones(mine.randrange(1, 1 << 18), dtype=cupy.float32)
            with lock:
                kept.append(array * 2)
                if mine.random() < 0.45:
                    kept.pop(mine.randrange(len(kept)))

    seen = []
    for moment in range(MOMENTS):
        threads = [threading.Thread(target=make, args=(dice.randrange(20, 200), dice.random())) for _ in range(3)]
        for thread in threads:
            thread.start()
        make(dice.randrange(20, 200), moment)
        for thread in threads:
            thread.join()
        stats = gpumem.pool_memory_stats("cupy")
        seen.append((stats["allocated_bytes.all.current"], pool.used_bytes()))
    assert all(ours == theirs > 0 for ours, theirs in seen), seen
    held = len(kept)
    kept.clear()
    assert gpumem.pool_memory_stats("cupy")["allocated_bytes.all.current"] == pool.used_bytes() == 0
    print("%d moments of CuPy's pool equal to the byte, the largest %d bytes in %d arrays, of %d allocations in 4 threads" % (
        len(seen), max(seen)[0], held, stats["allocation.all.allocated"]))


def phases_program(path):
    """Three steps under emit_nvtx(), and a snapshot: PyTorch's own peak in each phase is printed as JSON."""
    import torch                # pylint: disable=import-outside-toplevel
    import gpumem               # pylint: disable=import-outside-toplevel
    peaks = {}

    class Phase:
        """A range, and what PyTorch says was allocated at most in it."""

        def __init__(self, name):
            self.name, self.range = name, gpumem.annotate(name)

        def __enter__(self):
            torch.cuda.reset_peak_memory_stats()
            self.range.__enter__()

        def __exit__(self, *_):
            self.range.__exit__()
            peaks[self.name] = max(peaks.get(self.name, 0), torch.cuda.max_memory_allocated())

    with gpumem.annotate("load"):
        model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]).cuda()
        optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(512, 2048, device="cuda")
    # What cuBLAS takes for itself, past PyTorch's pool, is there before the first phase.
    with gpumem.annotate("warm up"):
        model(batch).square().mean().backward()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        for step in range(3):
            with gpumem.annotate("step %d" % step):
                with Phase("forward"):
                    loss = model(batch).square().mean()
                with Phase("backward"):
                    loss.backward()
                with Phase("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                    del loss
    assert gpumem.snapshot(path)
    print(json.dumps(peaks))


def beside_pools(path):
    """Bytes of the driver's level that are in no pool's piece: what cuBLAS has for itself."""
    with open(path, encoding="utf-8") as file:
        snapshot = json.load(file)
    pieces = [(segment["address"], segment["address"] + segment["total_size"]) for pool in snapshot["pools"]
              for segment in pool["segments"]]
    # A pool's segment may be a part of a block, or, of expandable memory, many blocks that follow one another.
    return sum(block["requested_size"] for segment in snapshot["segments"] for block in segment["blocks"]
               if block["state"] != "inactive" and
               not any(block["address"] < end and start < block["address"] + block["size"] for start, end in pieces))


def phases(gpumem, room, said):
    """The command's peaks are PyTorch's, and what is no tensor's, to the byte."""
    peaks, path = json.loads(said.splitlines()[-1]), "%s/phases.json" % room
    told = subprocess.run([gpumem, "summary", "--json", "--by", "annotation", path], stdout=subprocess.PIPE, text=True, timeout=100,
                          check=True)
    rows = {row["annotation"]: row for row in json.loads(told.stdout)["by_annotation"]}
    beside = {name: rows[name]["peak_bytes"] - peak for name, peak in peaks.items()}
    nodes = [name for name in rows if "Backward0" in name]
    right = (set(beside.values()) == {beside_pools(path)} and len(peaks) == 3 and
             {"load", "step 0", "step 2", "aten::linear"} <= set(rows) and nodes and
             rows["load"]["allocated_bytes"] >= 6 * 2048 * 2049 * 4 and not any(", seq = " in name for name in rows) and
             rows["backward"]["allocations"] >= max(rows[name]["allocations"] for name in nodes) > 0)
    print("peaks of forward, backward and optimizer are PyTorch's own, to the byte, and %d bytes that are no tensor's (%s); %d ranges "
          "of %d names; %d bytes of the model by its range" % (
              beside_pools(path), beside, sum(row["ranges"] for row in rows.values()), len(rows), rows["load"]["allocated_bytes"]))
    return 0 if right else 1


def label_program(path):
    """A step with labels, and a snapshot within it: what PyTorch's own blocks of each class have is printed as JSON."""
    import torch                # pylint: disable=import-outside-toplevel
    import gpumem               # pylint: disable=import-outside-toplevel
    import gpumem.torch         # pylint: disable=import-outside-toplevel
    layers = [torch.nn.Linear(1024 + 8 * at, 1032 + 8 * at) for at in range(12)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    gpumem.torch.label(model, optimizer)
    batch = torch.randn(512, 1024, device="cuda")
    for step in range(3):
        outputs = []
        last = batch
        for layer in layers:
            last = layer(last)
            outputs.append(last)
        last.square().mean().backward()
        if step == 2:
            classes = {"parameter": list(model.parameters()), "gradient": [one.grad for one in model.parameters()],
                       "optimizer state": [one for of in optimizer.state.values() for one in of.values() if one.is_cuda],
                       "activation": outputs}
            size = {}
            for segment in torch.cuda.memory_snapshot():
                at = segment["address"]
                for block in segment["blocks"]:
                    size[at] = block["size"]
                    at += block["size"]
            assert gpumem.snapshot(path)
            print(json.dumps({name: [sum(size[one.untyped_storage().data_ptr()] for one in tensors), len(tensors)]
                              for name, tensors in classes.items()}))
        optimizer.step()
        optimizer.zero_grad()


def label(gpumem, room, said):
    """Each class has the bytes of PyTorch's blocks, and as many of them."""
    want, path = json.loads(said.splitlines()[-1]), "%s/label.json" % room
    told = subprocess.run([gpumem, "summary", "--json", "--by", "class", path], stdout=subprocess.PIPE, text=True, timeout=100,
                          check=True)
    rows = {row["class"]: [row["allocated_bytes"], row["blocks"]] for row in json.loads(told.stdout)["by_class"]}
    right = len(want) == 4 and all(rows.get(name) == want[name] for name in want)
    print("bytes and blocks of each class as PyTorch's own blocks say: %s" % want if right else "PyTorch says %s, the summary %s" % (want, rows))
    return 0 if right else 1


def run(gpumem, room, case):
    """A case under gpumem run: its exit status and what it said."""
    env = dict(os.environ, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([gpumem, "run", "-q", "--output=%s/%s.%%r.json" % (room, case), "--", sys.executable, __file__, "--" + case, "%s/%s.json" % (room, case)],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    return done.returncode, done.stdout.strip() or done.stderr.strip()[-400:]


def main():
    if sys.argv[1] == "--cupy":
        cupy_program()
        return 0
    if sys.argv[1] == "--label":
        label_program(sys.argv[2])
        return 0
    if sys.argv[1] == "--phases":
        phases_program(sys.argv[2])
        return 0
    gpumem, room, case = sys.argv[1:4]
    status, said = run(gpumem, room, case)
    if case in ("phases", "label") and status == 0:
        return (phases if case == "phases" else label)(gpumem, room, said)
    print(said.splitlines()[-1] if said else "nothing was said")
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
