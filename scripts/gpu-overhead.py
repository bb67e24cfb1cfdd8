#!/usr/bin/env python3
"""Measure what the library costs real training loops on a GPU, beside PyTorch's own memory history.

usage: scripts/gpu-overhead.py [--rounds N] [--seconds S] [--kinds LIST] [--cores N] [--library FILE] [WORKLOAD...]
       scripts/gpu-overhead.py --switch N [WORKLOAD...]

One process of each kind runs each training loop of test/gpu/workload.py. All processes live at the same time, on the
same --cores processors, and take turns of at least --seconds. A round is one turn of each kind, in random order. The
first tenth of a turn is left out, because the processor's caches warm up in it. A turn counts as the median of its
iterations, and each kind is compared with the bare turn of the same round.

--switch N measures inside one process instead: the library's recording of events and stacks is switched off and on
every 20 iterations, N times. The parts that stay on (the hooks, the tables of live blocks) are not in that result.

Kinds:
  bare              without the library
  twin              a second bare process, which shows the noise of the measurement
  libgpumem         with default options
  native            as libgpumem, with stacks=none
  history           bare, with torch.cuda.memory._record_memory_history
  nocache           PyTorch without its cache
  cached            as nocache, with the library, whose cache serves PyTorch
  cached-nostacks   as cached, with stacks=none
  expandable        PyTorch with expandable_segments:True
  cached-expandable as cached, both with expandable_segments:True
  async             PyTorch with backend:cudaMallocAsync
  async-libgpumem   as async, with the library in place of the driver's pool
A kind may have settings of its own: cached-expandable+GPUMEM_LIMBO=0.1.

It prints for each workload and kind the median of the ratios and its bootstrap interval of 95%, then the peak of
reserved bytes divided by that of live and of active bytes (active memory includes freed memory that waits for the GPU).
"cannot tell" means that the twin's interval is wider than the difference.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 240                   # longer than any start or turn
RESAMPLES = 4000
CHANCE = random.Random(20261124)


class Kind:
    """A process that runs one workload in one way."""

    def __init__(self, kind, name, args, room):
        env = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_")}
        whole, (kind, *settings) = kind, kind.split("+")
        command = [sys.executable, os.path.join(ROOT, "test/gpu/workload.py")]
        command += ["--switch", str(args.switch)] if args.switch else ["--turns"]
        if kind.startswith(("nocache", "cached")):
            env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        if kind not in ("bare", "twin", "history", "nocache", "expandable", "async"):
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
        """Return the next line of JSON that the process prints, parsed. Raises RuntimeError if it ends."""
        watch = threading.Timer(LIMIT_S, self.process.kill)
        watch.start()
        try:
            for line in self.process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            watch.cancel()
        self.log.seek(0)
        raise RuntimeError("%s: exit %d: %s" % (self.kind, self.process.wait(), self.log.read()[-400:]))

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def middle(seconds):
    """Return the median of a turn without its first tenth."""
    return statistics.median(seconds[len(seconds) // 10:])


def interval(ratios):
    """Return the median of @ratios and its bootstrap interval of 95%."""
    medians = sorted(statistics.median(CHANCE.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES // 40], medians[-1 - RESAMPLES // 40]


def told(ratios, noise=None):
    """Return the result in words. @noise: the width of the twin's interval."""
    at, low, high = interval(ratios)
    text = "%+.2f%% (%+.2f .. %+.2f)" % (100 * (at - 1), 100 * (low - 1), 100 * (high - 1))
    if noise is not None and abs(at - 1) < noise:
        text += ", cannot tell: the twin's interval is %.2f%% wide" % (100 * noise)
    return text


def take_turns(kinds, live, args):
    """Run the rounds. Return by kind the median of each turn, and the last line."""
    times, last = {kind: [] for kind in kinds}, {}
    for number in range(args.rounds):
        for kind in CHANCE.sample(kinds, len(kinds)):
            live[kind].say(str(args.seconds))
            last[kind] = live[kind].heard()
            times[kind].append(middle(last[kind]["seconds"]))
        print("# round %d: %s" % (number + 1, ", ".join("%s %.2f ms" % (kind, times[kind][-1] * 1e3) for kind in kinds)),
              flush=True)
    return times, last


def rounds(name, live, args):
    kinds = []
    for kind, one in live.items():
        try:
            one.heard()         # the process is warm
            kinds.append(kind)
        except RuntimeError as error:       # for example, PyTorch captures no graph without its own cache
            print("# %s, left out: %s" % (name, error), flush=True)
    if "bare" not in kinds:
        return
    times, last = take_turns(kinds, live, args)
    ratios = {kind: [one / base for one, base in zip(times[kind], times["bare"])] for kind in kinds}
    noise = None
    if "twin" in kinds:
        _, low, high = interval(ratios["twin"])
        noise = high - low
    for kind in kinds:
        said = last[kind]
        answer = "%.2f ms an iteration, %d in the last turn" % (statistics.median(times[kind]) * 1e3, len(said["seconds"]))
        if kind != "bare":
            answer = told(ratios[kind], None if kind == "twin" else noise)
        print("%-14s %-17s %s; %.3f of live, %.3f of active" % (
            name, kind, answer, said["peak"] / max(1, said["live"]), said["peak"] / max(1, said["active"])), flush=True)


def switch(name, args, room):
    """Measure the cost of events and stacks inside one process."""
    one = Kind("libgpumem", name, args, room)
    try:
        pairs = [(statistics.median(off), statistics.median(on)) for off, on in one.heard()["seconds"]]
    finally:
        one.end()
    off = [pair[0] for pair in pairs]
    twins = [b / a for a, b in zip(off, off[1:])]   # ratios of adjacent off turns: the noise
    _, low, high = interval(twins)
    print("%-14s %-17s %s; %.2f ms an iteration with recording off" % (
        name, "switched on", told([on / off for off, on in pairs], high - low), statistics.median(off) * 1e3), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--switch", type=int, default=0)
    parser.add_argument("--kinds", default="bare,twin,libgpumem,history")
    parser.add_argument("--cores", type=int, default=4)
    parser.add_argument("--library", default=os.path.join(ROOT, "build", "libgpumem.so"))
    parser.add_argument("workloads", nargs="*", default=["gpt", "resnet", "side_streams"])
    args = parser.parse_args()
    args.library = os.path.abspath(args.library)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.cores:])
    with tempfile.TemporaryDirectory() as room:
        for name in args.workloads:
            if args.switch:
                switch(name, args, room)
                continue
            live = {}
            try:
                for kind in args.kinds.split(","):
                    live[kind] = Kind(kind, name, args, room)
                rounds(name, live, args)
            finally:
                for one in live.values():
                    one.end()


if __name__ == "__main__":
    main()
