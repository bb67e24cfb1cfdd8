#!/usr/bin/env python3
"""What the library costs real training loops on a GPU, beside PyTorch's own memory history.

usage: scripts/gpu-overhead.py [--pairs N] [--iterations N] [--kinds LIST] [--cores N] [--library FILE]
                               [WORKLOAD...]

Each training loop of test/gpu/workload.py is run by a process of each kind. The processes live at the same
time and take turns of --iterations iterations, in --pairs rounds; the order of the kinds changes from round
to round. So what else the machine does meets all of them alike. They all run on the same few cores
(--cores), since one core of a machine that others use, too, may be half as fast as another.
Kinds: bare; libgpumem, with its default options; native, the same with stacks=none; history, bare
with torch.cuda.memory._record_memory_history; nocache, PyTorch without its cache; cached, the same
with the library, whose cache serves it; cached-nostacks, that with stacks=none; expandable and async,
PyTorch with expandable_segments:True and with backend:cudaMallocAsync; cached-expandable and
async-libgpumem, those settings with the library in the place of PyTorch's cache and of the driver's
pool. A kind may have settings of its own: cached-expandable+GPUMEM_LIMBO=0.1.

Prints for each workload and kind the median over the rounds of the ratio to the bare turn of the same
round (of median seconds an iteration), the middle half of the ratios, and what was reserved at the
peak in parts of what was live and of what was active, which counts memory that was freed and waits
for the GPU; the spread of the bare turns themselves tells what is noise.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 240                   # no turn takes as long, nor a start


class Kind:
    def __init__(self, kind, name, args, room):
        env = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_")}
        whole, (kind, *settings) = kind, kind.split("+")
        command = [sys.executable, os.path.join(ROOT, "test/gpu/workload.py"), "--turns",
                   "--iterations", str(args.iterations)]
        if kind.startswith(("nocache", "cached")):
            env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        if kind.startswith("cached"):
            env["GPUMEM_ALLOCATOR"] = "caching"
        if kind not in ("bare", "history", "nocache", "expandable", "async"):
            env.update(LD_PRELOAD=args.library, GPUMEM_OUTPUT=os.path.join(room, "gpumem.%c.%p.%r.json"))
        if kind in ("native", "cached-nostacks"):
            env["GPUMEM_STACKS"] = "none"
        if kind in ("expandable", "cached-expandable"):
            env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
            env["GPUMEM_EXPANDABLE_SEGMENTS"] = "True"      # of the library's own cache
        if kind in ("async", "async-libgpumem"):
            env["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
        env.update(setting.split("=", 1) for setting in settings)
        if kind == "history":
            command.append("--history")
        self.kind = whole
        self.log = open(os.path.join(room, whole.replace("/", "_") + ".log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command + [name], env=env, stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=self.log)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self):
        """The median of its last turn, in seconds, and the ratio of what was reserved to what was live so far."""
        watch = threading.Timer(LIMIT_S, self.process.kill)
        watch.start()
        for line in self.process.stdout:
            if line.startswith("{"):
                watch.cancel()
                said = json.loads(line)
                return statistics.median(said["seconds"]), (said["peak"] / max(1, said["live"]),
                                                            said["peak"] / max(1, said["active"]))
        self.log.seek(0)
        raise RuntimeError("%s: exit %d: %s" % (self.kind, self.process.wait(), self.log.read()[-400:]))


def spread(values):
    values = sorted(values)
    quarter = len(values) // 4
    return statistics.median(values), values[quarter], values[-1 - quarter]


def rounds(name, live, args):
    kinds = []
    for kind, one in live.items():
        try:
            one.heard()         # it is warm
            kinds.append(kind)
        except RuntimeError as error:       # PyTorch captures no graph without a cache of its own
            print("# %s, left out: %s" % (name, error), flush=True)
    times, reserved = {kind: [] for kind in kinds}, {}
    for pair in range(args.pairs):
        for kind in kinds[pair % len(kinds):] + kinds[:pair % len(kinds)]:
            live[kind].say("turn")
            seconds, reserved[kind] = live[kind].heard()
            times[kind].append(seconds)
        print("# %s, round %d: %s" % (name, pair + 1, ", ".join(
            "%s %.2f ms" % (kind, times[kind][-1] * 1e3) for kind in kinds)), flush=True)
    for kind in kinds:
        live[kind].say("next")
    middle, low, high = spread(times["bare"])
    print("%-14s %-17s %.2f ms an iteration, middle half %+.2f%% .. %+.2f%%; %.3f of live, %.3f of active" % (
        name, "bare", middle * 1e3, 100 * (low / middle - 1), 100 * (high / middle - 1), *reserved["bare"]))
    for kind in kinds:
        if kind != "bare":
            middle, low, high = spread([one / base for one, base in zip(times[kind], times["bare"])])
            print("%-14s %-17s %+.2f%%, middle half %+.2f%% .. %+.2f%% of %d rounds; %.3f of live, %.3f of active" % (
                name, kind, 100 * (middle - 1), 100 * (low - 1), 100 * (high - 1), args.pairs,
                *reserved[kind]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--kinds", default="bare,libgpumem,history")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "libgpumem.so"))
    parser.add_argument("workloads", nargs="*", default=["gpt", "resnet", "side_streams"])
    args = parser.parse_args()
    args.library = os.path.abspath(args.library)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.cores:])
    kinds = args.kinds.split(",")
    with tempfile.TemporaryDirectory() as room:
        for name in args.workloads:
            live = {}
            try:
                for kind in kinds:
                    live[kind] = Kind(kind, name, args, room)
                rounds(name, live, args)
            finally:
                for one in live.values():
                    one.process.kill()
                    one.process.wait()


main()
