#!/usr/bin/env python3
"""What the library costs real training loops on a GPU, beside PyTorch's own memory history.

usage: scripts/gpu-overhead.py [--pairs N] [--iterations N] [--kinds LIST] [--library FILE] [WORKLOAD...]

N rounds; in a round each kind is one process that runs the workloads of test/gpu/workload.py one
after the other, the order of the kinds turning round by round. Kinds: bare; libgpumem, with its
default options; native, the same with stacks=none; history, bare with
torch.cuda.memory._record_memory_history; nocache, PyTorch without its cache; cached, the same with
the library, whose cache serves it; cached-nostacks, that with stacks=none. Prints for each workload and kind the median over the
rounds of the ratio to the bare run of the same round (of median seconds an iteration), and the
middle half of the ratios; the spread of the bare runs themselves tells what is noise.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(kind, args, room):
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_")}
    command = [sys.executable, os.path.join(ROOT, "test/gpu/workload.py"), "--iterations", str(args.iterations)]
    if kind.startswith(("nocache", "cached")):
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if kind.startswith("cached"):
        env["GPUMEM_ALLOCATOR"] = "caching"
    if kind not in ("bare", "history", "nocache"):
        env.update(LD_PRELOAD=args.library, GPUMEM_OUTPUT=os.path.join(room, "gpumem.%c.%p.%r.json"))
    if kind in ("native", "cached-nostacks"):
        env["GPUMEM_STACKS"] = "none"
    if kind == "history":
        command.append("--history")
    done = subprocess.run(command + args.workloads, env=env, capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        sys.exit("%s: exit %d: %s" % (kind, done.returncode, done.stderr[-400:]))
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {result["name"]: statistics.median(result["seconds"]) for result in results}


def spread(values):
    values = sorted(values)
    quarter = len(values) // 4
    return statistics.median(values), values[quarter], values[-1 - quarter]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--kinds", default="bare,libgpumem,history")
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "libgpumem.so"))
    parser.add_argument("workloads", nargs="*", default=["gpt", "resnet", "side_streams"])
    args = parser.parse_args()
    args.library = os.path.abspath(args.library)
    kinds = args.kinds.split(",")
    times = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as room:
        for pair in range(args.pairs):
            for kind in kinds[pair % len(kinds):] + kinds[:pair % len(kinds)]:
                times[kind].append(run(kind, args, room))
                print("# round %d %-10s %s" % (pair + 1, kind, " ".join(
                    "%s %.2f ms" % (name, seconds * 1e3) for name, seconds in times[kind][-1].items())))
                sys.stdout.flush()
    for name in args.workloads:
        bare = [one[name] for one in times["bare"]]
        middle, low, high = spread(bare)
        print("%-13s bare       %.2f ms an iteration, middle half %+.2f%% .. %+.2f%%" % (
            name, middle * 1e3, 100 * (low / middle - 1), 100 * (high / middle - 1)))
        for kind in kinds:
            if kind != "bare":
                middle, low, high = spread([one[name] / base for one, base in zip(times[kind], bare)])
                print("%-13s %-10s %+.2f%%, middle half %+.2f%% .. %+.2f%% of %d rounds" % (
                    name, kind, 100 * (middle - 1), 100 * (low - 1), 100 * (high - 1), args.pairs))


main()
