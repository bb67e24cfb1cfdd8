"""gpumem ctl on a GPU: a PyTorch program whose memory the cache serves is controlled from outside while it works.

usage: gpu_ctl.py GPUMEM DIR

The program allocates, fills, compares and frees tensors in two streams all the time. Meanwhile its cache is emptied,
its snapshot is asked for, its history goes off and on, a limit refuses it and is lifted again; and programs end in the
middle of being emptied. Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import json
import os
import random
import subprocess
import sys
import threading
import time

LIMIT = 1 << 30
TOO_MUCH = 2 << 30
EMPTIED = 40
ENDED = 6


def work(seconds):
    """Tensors in two streams until the input ends or the time is up; each is compared before it is freed. A line of
    input asks for TOO_MUCH: it is answered with what came of it."""
    import torch                # pylint: disable=import-outside-toplevel
    asked = []
    threading.Thread(target=lambda: [asked.append(line) for line in sys.stdin] and None, daemon=True).start()
    streams, live, dice = [torch.cuda.Stream(), torch.cuda.Stream()], [], random.Random(3)
    wrong = rounds = 0
    print("begun", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rounds += 1
        with torch.cuda.stream(streams[rounds % 2]):
            if len(live) > 60:
                tensor, value = live.pop(dice.randrange(len(live)))
                tensor.record_stream(torch.cuda.current_stream())
                torch.cuda.current_stream().wait_stream(streams[(rounds + 1) % 2])
                wrong += int((tensor != value).any())
            live.append((torch.full((dice.randrange(1, 1 << 21),), rounds, device="cuda", dtype=torch.int32), rounds))
        if asked:
            if asked.pop(0).strip() == "end":
                break
            try:
                torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
                print("served", flush=True)
            except RuntimeError:    # without its cache PyTorch has no error of its own for this
                print("refused", flush=True)
    torch.cuda.synchronize()
    print("%d wrong" % wrong, rounds, flush=True)


def start(library, seconds):
    env = dict(os.environ, LD_PRELOAD=library, PYTORCH_NO_CUDA_MEMORY_CACHING="1", GPUMEM_SNAPSHOT_ON="signal")
    child = subprocess.Popen([sys.executable, __file__, "--work", str(seconds)], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == "begun\n"
    return child


def main(gpumem, directory):
    library = os.path.join(os.path.dirname(gpumem), "libgpumem.so")
    worst = 0.0

    def ctl(child, *words):
        nonlocal worst
        began = time.monotonic()
        done = subprocess.run([gpumem, "ctl", "--json", str(child.pid), *words], capture_output=True, text=True, check=False)
        worst = max(worst, time.monotonic() - began)
        assert done.returncode == 0, (words, done)
        return json.loads(done.stdout)

    def ask(child):
        child.stdin.write("ask\n")
        child.stdin.flush()
        return child.stdout.readline().strip()

    child = start(library, 100)
    first = ctl(child)
    for turn in range(EMPTIED):
        ctl(child, "empty-cache")
        if turn % 10 == 0:
            subprocess.run([gpumem, "snapshot", "-o", os.path.join(directory, "ctl.%d.json" % turn), str(child.pid)],
                           check=True, capture_output=True)
            ctl(child, "history", "off" if turn % 20 == 0 else "on")
    ctl(child, "history", "on")
    answers = [ask(child)]
    ctl(child, "empty-cache")
    ctl(child, "memory-limit", str(LIMIT))
    answers.append(ask(child))
    ctl(child, "memory-limit", "none")
    answers.append(ask(child))
    ctl(child, "reset-peaks")
    child.stdin.write("end\n")
    child.stdin.flush()
    said = child.stdout.readline().split()
    assert child.wait(60) == 0 and said[:2] == ["0", "wrong"], said
    assert answers == ["served", "refused", "served"], answers
    for turn in range(ENDED):
        short = start(library, 0.5 + 0.1 * turn)
        answered = 0
        while short.poll() is None:
            answered += not subprocess.run([gpumem, "ctl", str(short.pid), "empty-cache"], capture_output=True, check=False).returncode
        assert short.returncode == 0 and answered and short.stdout.read().startswith("0 wrong"), short.returncode
    print("%d rounds; emptied %d times, limited to %d bytes and freed of it; %d programs ended while they were emptied; "
          "the longest command took %.0f ms; allocator %s" % (int(said[2]), EMPTIED + 1, LIMIT, ENDED, worst * 1e3, first["allocator"]))


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(float(sys.argv[2]))
    else:
        main(os.path.abspath(sys.argv[1]), sys.argv[2])
