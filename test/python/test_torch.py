# timeout: 120
"""gpumem.torch.label on a stand-in for PyTorch (standin/torch): each block has its class, in snapshots, summary --by class and diff."""
import json
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/python")
sys.path.insert(0, "test/tools")
from host import HERE, PACKAGE, interpreters  # noqa: E402
from tap import Room, check, finish, tell  # noqa: E402
from verbs import gpumem  # noqa: E402

PATHS = ":".join((PACKAGE, HERE, os.path.join(HERE, "standin")))
PROGRAM = '''
import sys
from host import alloc
alloc(4096)
import torch, gpumem, gpumem.torch
model = torch.Module(1 << 20, [torch.Module(2 << 20), torch.Module(3 << 20)])
optimizer = torch.Adam(model.parameters())
labels = gpumem.torch.label(model, optimizer)
hooks = lambda: len(optimizer.hooks) + sum(len(m.hooks) + len(m.weight._hooks) for m in model.modules())
assert hooks() == (7 if gpumem.available() else 0), hooks()
for step in range(3):
    output = model(torch.Tensor(5000))
    torch.backward(model)
    if step == 2:
        gpumem.snapshot(sys.argv[1] + "/peak.json")
    del output
    optimizer.step()
gpumem.snapshot(sys.argv[1] + "/end.json")
labels.remove()
assert hooks() == 0
again = torch.Tensor(1 << 20)       # where an activation was: it has no label
gpumem.snapshot(sys.argv[1] + "/removed.json")
print("done")
'''


# Several optimizers in a list, and two models: the sample of docs/python.md.
SAMPLE = '''
import sys
import torch, gpumem, gpumem.torch
from host import alloc
model, critic = torch.Module(1 << 20, [torch.Module(2 << 20), torch.Module(3 << 20)]), torch.Module(4 << 20)
first, *rest = model.parameters()
optimizers = [torch.Adam([first]), torch.Adam(rest)]
gpumem.torch.label(model, optimizers)
gpumem.torch.label(critic)
for step in range(3):
    output, functional = model(torch.Tensor(5000)), torch.Tensor(5 << 20, True)
    torch.backward(model)
    if step == 2:
        gpumem.snapshot(sys.argv[1] + "/step.json")
    del output, functional
    for one in optimizers:
        one.step()
print("done")
'''


# PyTorch itself, without a GPU: what would be labelled where its tensors lay on one.
REAL = '''
import torch, gpumem.torch
found = {}
gpumem.torch._place = lambda tensor: (0, tensor.data_ptr())
gpumem.torch._library.call = lambda name, *args: 1 if name == "gpumem_pool_find" else found.update({(a, args[3].decode()): None for a in args[1]})
model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 5))
optimizer, other = torch.optim.Adam(model[0].parameters()), torch.optim.Adam(model[2].parameters())
labels = gpumem.torch.Labels(model, [optimizer, other]).begin()
output = model(torch.ones(7, 30))
saved = output.data_ptr()
output.sum().backward()
optimizer.step()
other.step()
labels.step()       # of PyTorch before 2.0
labels.remove()
p = list(model.parameters())
assert all((one.data_ptr(), "parameter") in found and (one.grad.data_ptr(), "gradient") in found for one in p)
state = {**optimizer.state, **other.state}
assert all((state[one]["exp_avg"].data_ptr(), "optimizer state") in found for one in p)
assert (saved, "activation") in found and not any((one.data_ptr(), "activation") in found for one in p)
before = len(found)
model(torch.ones(9, 30)).sum().backward()
assert len(found) == before
print("done")
'''


def classes(path):
    return {row["class"]: row["allocated_bytes"] for row in json.loads(gpumem("summary", "--by", "class", "--json", path).stdout)["by_class"] if row["blocks"]}


M = 1 << 20
for python, version in interpreters("import torch"):
    with Room() as room:
        run = room.run([python, "-c", REAL], preload=False, timeout=100, PYTHONPATH=PACKAGE, PYTHONDONTWRITEBYTECODE="1")
        check("%d.%d: PyTorch's own hooks and tensors" % version, run.returncode == 0 and run.stdout == "done\n", tell(run))
with Room() as room:
    run = room.run([sys.executable, "-c", SAMPLE, room.path], PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE="1")
    shown = gpumem("summary", "--by", "class", os.path.join(room.path, "step.json")).stdout
    table = shown[shown.find("        live      blocks"):].split("\n\n")[0]
    with open(os.path.join(HERE, "../../docs/python.md"), encoding="utf-8") as docs:
        check("several optimizers and models: what docs/python.md shows", run.returncode == 0 and not run.stderr and table and
              "\n```\n" + table + "\n```\n" in docs.read(), (tell(run), shown))
for python, version in interpreters():
    name = "%d.%d" % version
    with Room() as room:
        run = room.run([python, "-c", PROGRAM, room.path], PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE="1")
        check("%s: it runs" % name, run.returncode == 0 and run.stdout == "done\n" and not run.stderr, tell(run))
        if run.returncode:
            continue
        peak, end, removed = (os.path.join(room.path, n + ".json") for n in ("peak", "end", "removed"))
        # Outside of the pool: 4,096 bytes of the driver's.
        check("%s: in the middle of a step each class" % name, classes(peak) == {
            "parameter": 6 * M, "gradient": 6 * M, "optimizer state": 12 * M, "activation": 18 * M, "other": 100 + 4096}, classes(peak))
        check("%s: behind a step" % name, classes(end) == {"parameter": 6 * M, "gradient": 6 * M, "optimizer state": 12 * M, "other": 4096}, classes(end))
        check("%s: a label ends with its block, and no new one comes after remove()" % name, classes(removed) ==
              {"parameter": 6 * M, "gradient": 6 * M, "optimizer state": 12 * M, "other": M + 4096}, classes(removed))
        text = gpumem("summary", "--by", "class", peak).stdout
        check("%s: as text" % name, "by class" in text and any(line.split()[:2] == ["18.00", "MiB"] and line.endswith("  activation") for line in text.splitlines()), text)
        diff = {row["name"]: row["growth"] for row in json.loads(gpumem("diff", "--by", "class", "--json", peak, end).stdout)}
        check("%s: diff" % name, diff == {"activation": -18 * M, "other": -100}, diff)
        run = room.run([python, "-c", PROGRAM, room.path], preload=False, PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE="1")
        check("%s: without the library it runs, and no hook is set" % name, run.returncode == 0 and run.stdout == "done\n", tell(run))
finish()
