"""Seven workloads of fixed bits under PyTorch's own cache: gpu_pools.py [--steps N] [--fraction]

Prints losses and a hash of all parameters, exactly: with and without the library the same to the last bit.
Under the library it also compares, at ten random moments of each workload, what the library says of
PyTorch's pool with what PyTorch says itself, to the last byte, and at the end of each the converted pickle
(by the command beside the library) with _snapshot(). What differs goes to stderr, and the exit
status is 1. --fraction: PyTorch may take little more than it needs, so that it gives back, tries again and
runs out; the library itself must have refused nothing. The other ways are the caller's
(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).
"""
import argparse
import ctypes
import hashlib
import os
import pickle
import random
import subprocess
import sys
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402 (the variable comes first)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import compare  # noqa: E402
from captured import captured  # noqa: E402

GPUMEM = os.path.join(os.path.dirname(os.environ.get("LD_PRELOAD", "").partition(":")[0]), "gpumem")
KEYS = ["%s.%s.%s" % (name, pool, what) for name in ("allocation", "allocated_bytes")
        for pool in ("all", "small_pool", "large_pool") for what in ("current", "peak", "allocated", "freed")]
KEYS += ["reserved_bytes.all.current", "num_ooms"]


class Stat(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 56), ("value", ctypes.c_int64)]


class Library:
    """What the library says of PyTorch's pool; nothing without it."""

    def __init__(self):
        self.this, self.looked, self.wrong, self.values, self.blocks = ctypes.CDLL(None), 0, 0, 0, 0
        self.there = hasattr(self.this, "gpumem_pool_find")

    def stats(self, of_device=False):
        items = (Stat * 256)()
        pool = self.this.gpumem_pool_find(b"pytorch", 0)
        count = (self.this.gpumem_memory_stats(0, items, 256) if of_device else
                 self.this.gpumem_pool_memory_stats(pool, items, 256))
        return {i.name.decode(): i.value for i in items[:max(count, 0)]}

    def look(self, what):
        if not self.there:
            return
        torch.cuda.synchronize()
        ours, theirs = self.stats(), torch.cuda.memory_stats()
        differ = ["%s %s, PyTorch %s" % (k, ours.get(k), theirs[k]) for k in KEYS if ours.get(k) != theirs[k]]
        self.looked += 1
        self.values += len(KEYS)
        self.wrong += bool(differ)
        if differ:
            print("pools: %s: %s" % (what, "; ".join(differ[:6])), file=sys.stderr)


    def compare(self, what):
        """The converted pickle beside PyTorch's own snapshot of this moment: the same segments, the same blocks in the same
        states, as far as the calls tell."""
        if not self.there:
            return
        torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as room:
            path, pickled = os.path.join(room, "snapshot.json"), os.path.join(room, "snapshot.pickle")
            self.this.gpumem_snapshot(path.encode())
            theirs = torch.cuda.memory._snapshot()
            env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            run = subprocess.run([GPUMEM, "convert", "--no-limit", "-o", pickled, path], env=env, capture_output=True, text=True, check=False)
            ours = {"segments": []}
            if os.path.exists(pickled):
                with open(pickled, "rb") as file:
                    ours = pickle.load(file)
        wrong, count = compare.snapshots(ours, theirs)
        self.looked += 1
        self.blocks += count
        if wrong or not count or run.returncode:
            self.wrong += 1
            print("pools: %s, the pickle beside _snapshot(), %d blocks: exit %d %s %s" % (
                what, count, run.returncode, run.stderr[-300:], "; ".join(wrong[:4])), file=sys.stderr)


class Gpt(nn.Module):
    def __init__(self, width=512, layers=6, words=8192):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.layers(self.words(x) + self.places.weight[:x.shape[1]], mask=mask))


def train(model, batch):
    """A function of the step: batch(i) makes the loss."""
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def one(i):
        optimizer.zero_grad()
        loss = batch(i)
        loss.backward()
        optimizer.step()
        return loss
    return model, one


def language(model, i, rows=8):
    x = torch.randint(0, 8192, (rows, 64 + 61 * (i % 7)), device="cuda")
    return functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def gpt():
    model = Gpt()
    return train(model, lambda i: language(model, i))


def resnet():
    import torchvision
    model = torchvision.models.resnet50()
    return train(model, lambda i: model(torch.randn(16 + i % 5, 3, 160, 160, device="cuda")).pow(2).mean())


def experts():
    width, count = 512, 8
    model = nn.ModuleList([nn.Linear(width, count)] +
                          [nn.Sequential(nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, width)) for _ in range(count)])

    def batch(i):
        x = torch.randn(2048 + 512 * (i % 3), width, device="cuda")
        weight, chosen = model[0](x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for e in range(count):
            rows, place = (chosen == e).nonzero(as_tuple=True)
            out = out.index_put((rows,), model[e + 1](x[rows]) * weight[rows, place, None], accumulate=True)
        return out.pow(2).mean()
    return train(model, batch)


def streams():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(6)])
    sides = [torch.cuda.Stream() for _ in range(3)]

    def batch(i):
        host = torch.randn(256 * (1 + i % 5), 2048).pin_memory()
        with torch.cuda.stream(sides[i % 3]):
            x = host.to("cuda", non_blocking=True)
            y = x * 2
        torch.cuda.current_stream().wait_stream(sides[i % 3])
        for given in (x, y):
            given.record_stream(torch.cuda.current_stream())
        return model(x + y).pow(2).mean()
    return train(model, batch)


def generation():
    model = Gpt(layers=4).cuda().eval()

    @torch.no_grad()
    def one(i):
        x, kept = torch.randint(0, 8192, (4, 8 + i % 16), device="cuda"), []
        for _ in range(12):
            logits = model(x)
            kept.append(logits[:, -1].clone())
            x = torch.cat([x, logits[:, -1:].argmax(-1)], 1)
        return torch.stack(kept).pow(2).mean()
    return model, one


def evaluation():
    model = Gpt(layers=3)
    model, step = train(model, lambda i: language(model, i, 6))

    def one(i):
        loss = step(i)
        if i % 5 == 4:
            model.eval()
            with torch.no_grad():
                loss = sum(language(model, j, 16) for j in range(3))
            model.train()
        return loss
    return model, one


def graphs():
    model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    step = captured(model, torch.randn(256, 1024, device="cuda"))
    return model, lambda i: step(torch.randn(256, 1024, device="cuda"))


def run(name, steps, fraction, library):
    torch.manual_seed(11)
    model, one = globals()[name]()
    if fraction:
        one(6)
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.max_memory_allocated() * 1.08 + (30 << 20)) / total)
    looks = set(random.Random(name).sample(range(steps), min(10, steps)))
    losses = []
    for i in range(steps):
        try:
            losses.append(one(i).item().hex())
        except torch.cuda.OutOfMemoryError:
            losses.append("none")
        if i in looks:
            library.look("%s, step %d" % (name, i))
    library.compare(name)
    torch.cuda.set_per_process_memory_fraction(1.0)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    stats = torch.cuda.memory_stats()
    print("%s: %s parameters %s; %d allocations, %d retries, %d ooms" % (
        name, " ".join(losses[-4:]), digest.hexdigest()[:16], stats["allocation.all.allocated"],
        stats["num_alloc_retries"], stats["num_ooms"]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--fraction", action="store_true")
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_flash_sdp(False)         # their gradients are summed in no order
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)
    library = Library()
    for name in ("gpt", "resnet", "experts", "streams", "generation", "evaluation", "graphs"):
        run(name, args.steps, args.fraction, library)
        torch.cuda.empty_cache()
        library.look("%s, over" % name)
        torch.cuda.reset_peak_memory_stats()
        if library.there:
            library.this.gpumem_pool_reset_peak_memory_stats(library.this.gpumem_pool_find(b"pytorch", 0))
    refused = library.stats(of_device=True)["num_ooms"] if library.there else 0
    if library.there:
        print("pools: %d requests refused below PyTorch; %d looks, %d that differ; %d values of memory_stats() and %d blocks of _snapshot() compared" % (
            refused, library.looked, library.wrong, library.values, library.blocks), file=sys.stderr)
    sys.exit(library.wrong != 0 or refused != 0 or (library.there and not library.looked))


main()
