"""Loops of nine kinds, to time and to weigh: workload.py [--history] [--turns] [--iterations N] NAME...

Prints a JSON line for each: seconds an iteration (each, after warm-up), the last loss, peak bytes reserved and live
since the loop began. They are PyTorch's own, or where that has no cache and the library is there the library's.
--history switches PyTorch's own memory history on, as its users would. --turns: such a line when it
is warm, and another one for each line of standard input, until that says "next".
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=NAMES)
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--iterations", type=int, default=60)
    args = parser.parse_args()
    torch.cuda.init()
    if args.history:
        torch.cuda.memory._record_memory_history(max_entries=1000000)
    for name in args.names:
        torch.manual_seed(1)
        peaks(start=True)
        one = globals()[name]()
        done = 0

        def turn(count, warm):
            """Seconds of each of @count iterations, after @warm that nobody counts."""
            nonlocal done
            seconds = []
            for i in range(warm + count):
                began = time.perf_counter()
                loss = one(done)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - began)
                done += 1
            reserved, live, active = peaks()
            print(json.dumps({"name": name, "seconds": seconds[warm:], "loss": loss.item(), "peak": reserved,
                              "live": live, "active": active}), flush=True)

        if args.turns:
            turn(1, 15)
            for line in sys.stdin:
                if line.strip() == "next":
                    break
                turn(args.iterations, 2)
        else:
            turn(args.iterations, 15)
        del one, turn
        torch.cuda.empty_cache()


main()
