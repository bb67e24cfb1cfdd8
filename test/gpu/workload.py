"""Training loops of three kinds, to time: workload.py [--history] [--turns] [--iterations N] NAME...

Prints a JSON line for each: seconds an iteration (each, after warm-up), the last loss, peak bytes.
--history switches PyTorch's own memory history on, as its users would. --turns: such a line when it
is warm, and another one for each line of standard input, until that says "next".
"""
import argparse
import json
import sys
import time

import torch


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=["gpt", "resnet", "side_streams", "moe"])
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--iterations", type=int, default=60)
    args = parser.parse_args()
    if args.history:
        torch.cuda.memory._record_memory_history(max_entries=1000000)
    for name in args.names:
        torch.manual_seed(1)
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
            print(json.dumps({"name": name, "seconds": seconds[warm:], "loss": loss.item(),
                              "peak": torch.cuda.max_memory_reserved()}), flush=True)

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
