#!/usr/bin/env python3
"""What the library costs real training loops on a GPU, beside PyTorch's own memory history.

usage: scripts/gpu-overhead.py [--pairs N] [--iterations N] [WORKLOAD...]

For each workload of test/gpu/workload.py, N rounds; a round runs the loop bare, under the library
with its default options, and bare with torch.cuda.memory._record_memory_history, in an order that
turns round by round. Prints, for each, the median over rounds of the ratio to the bare run of the
same round (of median seconds an iteration), with the middle half of the ratios.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = os.path.join(ROOT, "build", "libgpumem.so")


def run(workload, kind, iterations, room):
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_")}
    command = [sys.executable, os.path.join(ROOT, "test/gpu/workload.py"), workload, "--iterations", str(iterations)]
    if kind == "libgpumem":
        env.update(LD_PRELOAD=LIBRARY, GPUMEM_OUTPUT=os.path.join(room, "gpumem.%c.%p.%r.json"))
    if kind == "torch history":
        command.append("--history")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit("%s, %s: exit %d: %s" % (workload, kind, done.returncode, done.stderr[-400:]))
    result = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(result["seconds"]), result["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("workloads", nargs="*", default=["gpt", "resnet", "side_streams"])
    args = parser.parse_args()
    kinds = ["bare", "libgpumem", "torch history"]
    with tempfile.TemporaryDirectory() as room:
        for workload in args.workloads:
            times = {kind: [] for kind in kinds}
            losses = set()
            for pair in range(args.pairs):
                order = kinds[pair % 3:] + kinds[:pair % 3]
                for kind in order:
                    seconds, loss = run(workload, kind, args.iterations, room)
                    times[kind].append(seconds)
                    losses.add(loss)
            bare = statistics.median(times["bare"])
            for kind in kinds[1:]:
                ratios = sorted(ours / base for ours, base in zip(times[kind], times["bare"]))
                quarter = len(ratios) // 4
                print("%-13s %-14s %+.2f%% median of %d rounds, middle half %+.2f%% .. %+.2f%% (bare %.2f ms an iteration)"
                      % (workload, kind, 100 * (statistics.median(ratios) - 1), len(ratios),
                         100 * (ratios[quarter] - 1), 100 * (ratios[-1 - quarter] - 1), bare * 1e3))
            print("%-13s %d different last losses" % (workload, len(losses)))
            sys.stdout.flush()


main()
