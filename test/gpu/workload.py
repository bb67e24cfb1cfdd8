"""Training loops to time and to weigh: workload.py [--history] [--iterations N | --turns | --switch N] NAME...

Prints a JSON line for each loop: the seconds of each iteration after the warm-up, the last loss, and the peak bytes
reserved and live since the loop began. PyTorch counts these bytes, or the library where PyTorch has no cache of its own.

--history: switch PyTorch's own memory history on.
--turns: print one line when the loop is warm, then one line for each line of standard input. A line is the seconds that
the turn lasts at least; the line "next" ends the loop.
--switch N: print one line whose "seconds" are N pairs of lists. The first list of a pair has 20 iterations with the
library's recording of events and stacks switched off, the second has 20 iterations with both switched on.
"""
import argparse
import json
import os
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

from captured import captured

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/python"))
import gpumem  # noqa: E402


def gpt():
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    # Long enough for the GPU to be what is waited for; few lengths, all met while it warms up, since
    # attention is compiled anew for each (100 ms of NVRTC, which would be what is measured).
    def one(i):
        x = torch.randn(32, (512, 837, 640, 1011)[i % 4], 768, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return one


def resnet():
    import torchvision
    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def one(i):
        x = torch.randn(64 if i % 7 else 37, 3, 224, 224, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return one


def side_streams():
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU())
                                  for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    side = torch.cuda.Stream()
    host = torch.randn(2048, 2048).pin_memory()

    def one(i):
        with torch.cuda.stream(side):
            x = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return one


def moe():
    width, count = 1024, 8
    gate = torch.nn.Linear(width, count)
    experts = [torch.nn.Sequential(torch.nn.Linear(width, 4096), torch.nn.GELU(), torch.nn.Linear(4096, width))
               for _ in range(count)]
    model = torch.nn.ModuleList([gate] + experts).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    # Which rows an expert gets differs each time: so do the sizes, and the host waits for them.
    def one(i):
        x = torch.randn(16384 + 4096 * (i % 3), width, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            weight, chosen = gate(x).softmax(-1).topk(2)
            out = torch.zeros_like(x)
            for e, expert in enumerate(experts):
                rows, place = (chosen == e).nonzero(as_tuple=True)
                out = out.index_add(0, rows, expert(x[rows]).float() * weight[rows, place, None])
            loss = out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return one


def gpt_random(checkpointed=False):
    """As gpt, with a length of its own each time."""
    layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(6)).cuda()
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-4, fused=True)

    def one(i):
        x = torch.randn(16, 64 * (1 + i * 7 % 13), 512, device="cuda", requires_grad=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
            loss = x.float().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return one


def checkpointing():
    return gpt_random(checkpointed=True)


def generate():
    """Decoding with caches that grow token by token, by a step of 16."""
    layers = [torch.randn(3, 1024, 1024, device="cuda", dtype=torch.bfloat16) / 32 for _ in range(8)]

    @torch.no_grad()
    def one(i):
        batch, caches = 4 + i % 5, [None] * len(layers)
        x = torch.randn(batch, 64 + 32 * (i % 7), 1024, device="cuda", dtype=torch.bfloat16)
        for _ in range(16):
            for number, (q, k, v) in enumerate(layers):
                new = torch.stack((x @ k, x @ v))
                caches[number] = new if caches[number] is None else torch.cat((caches[number], new), 2)
                x = torch.nn.functional.scaled_dot_product_attention(x @ q, *caches[number])
            x = x[:, -1:]
        return x.float().mean()
    return one


def train_and_eval():
    """As gpt_random, and now and then a larger batch without gradients."""
    train = gpt_random()
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
                                  for _ in range(4)]).cuda()

    def one(i):
        loss = train(i)
        if i % 3 == 2:
            with torch.no_grad():
                loss = loss + model(torch.randn(8192 + 1024 * (i % 4), 1024, device="cuda")).pow(2).mean()
        return loss
    return one


def graphs():
    """A training step as a CUDA graph that is replayed."""
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU())
                                  for _ in range(8)]).cuda()
    step = captured(model, torch.randn(2048, 2048, device="cuda"))
    return lambda i: step(torch.randn(2048, 2048, device="cuda") + i % 3)


NAMES = ["gpt", "resnet", "side_streams", "gpt_random", "checkpointing", "moe", "generate", "train_and_eval", "graphs"]


def peaks(start=False):
    """Bytes reserved and live at the peak, since the last start, which gives back what was cached before."""
    ours = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") and gpumem.available()
    source = gpumem if ours else torch.cuda
    if start:
        torch.cuda.synchronize()
        source.empty_cache()
        source.reset_peak_memory_stats()
    return source.max_memory_reserved(), source.max_memory_allocated(), source.memory_stats()["active_bytes.all.peak"]


class Loop:
    """One training loop: runs iterations and tells how long each took."""

    def __init__(self, name):
        torch.manual_seed(1)
        peaks(start=True)
        self.name = name
        self.one = globals()[name]()
        self.done = 0
        self.loss = None

    def times(self, count, seconds=0.0):
        """The seconds of each of @count iterations, and of further ones until @seconds have passed."""
        taken = []
        while len(taken) < count or sum(taken) < seconds:
            began = time.perf_counter()
            self.loss = self.one(self.done)
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
            self.done += 1
        return taken

    def say(self, seconds):
        reserved, live, active = peaks()
        print(json.dumps({"name": self.name, "seconds": seconds, "loss": self.loss.item(), "peak": reserved,
                          "live": live, "active": active}), flush=True)


def switched(loop, recorded):
    """The seconds of 20 iterations with recording off or on; two iterations before them are not counted."""
    if recorded:
        gpumem.record_memory_history("all", "alloc", "all")
    else:
        gpumem.record_memory_history(None)
    loop.times(2)
    return loop.times(20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=NAMES)
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--switch", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=60)
    args = parser.parse_args()
    torch.cuda.init()
    if args.history:
        torch.cuda.memory._record_memory_history(max_entries=1000000)
    for name in args.names:
        loop = Loop(name)
        loop.times(15)
        if args.switch:
            loop.say([[switched(loop, False), switched(loop, True)] for _ in range(args.switch)])
        elif args.turns:
            loop.say(loop.times(1))
            for line in sys.stdin:
                if line.strip() == "next":
                    break
                loop.say(loop.times(1, float(line)))
        else:
            loop.say(loop.times(args.iterations))
        del loop
        torch.cuda.empty_cache()


main()
