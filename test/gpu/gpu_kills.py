"""PyTorch on a GPU, killed with SIGKILL in the middle of an iteration at random moments: nothing that it held is lost.

usage: gpu_kills.py GPUMEM [--kills N] [--beside N] [--seed N]
       gpu_kills.py --train FILE SEED       the program that is killed

The program trains until it is killed, after its first iteration, and tells in the mapped FILE which tensors it was
handed out and holds; a thread beside loads batches on a stream of its own. N of them live side by side. What
`gpumem recover` makes of each one's journal must have every tensor of FILE, in a block at its address that is large
enough, and in the block's stack the lines of this program that asked for it. Gradients are made in a thread of
PyTorch's own, where no line of Python runs; every second program makes them in the thread that asks, with its lines.
Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.abspath(__file__)
SLOTS = 4096
HEAD = 3                        # iterations begun, the phase, the allocations that PyTorch counted when it began
PHASES = ("forward", "backward", "optimizer")
DEPTH = 64                      # frames of a stack, the library's default
LINES = 4                       # of the program in a stack, that are compared
LIMIT_S = 150                   # until the first iteration is over, with many that start at once


class Told:
    """The file: of each tensor that is held its address (0: the slot is free), its bytes, and the lines of this program that
    asked for it, innermost first, 16 bits each. A slot is filled before its address is written, and is free before its
    tensor is: so what is there at any moment was handed out, and was not given back."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.words = (ctypes.c_uint64 * (HEAD + 3 * SLOTS)).from_buffer(mmap.mmap(file.fileno(), 0))
        self.free = list(range(SLOTS - 1, -1, -1))

    def keep(self, tensor, held, depth=1):
        """Tell of @tensor, which the line of the caller made: what drop() needs goes to @held."""
        lines, frame = [], sys._getframe(1)
        for _ in range(depth - 1):
            frame = frame and frame.f_back
        while frame and len(lines) < LINES:
            if frame.f_code.co_filename == HERE:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        slot, storage = self.free.pop(), tensor.untyped_storage()
        at = HEAD + 3 * slot
        self.words[at + 1], self.words[at + 2] = storage.nbytes(), sum(line << 16 * i for i, line in enumerate(lines))
        self.words[at] = storage.data_ptr()
        held.append((slot, tensor))
        return tensor

    def drop(self, held):
        while held:
            slot, tensor = held.pop()
            self.words[HEAD + 3 * slot] = 0
            self.free.append(slot)
            del tensor


def train(path, seed):
    """Never returns. Every tensor is made and told of in one line."""
    import torch                # pylint: disable=import-outside-toplevel
    from torch import nn        # pylint: disable=import-outside-toplevel
    from torch.nn import functional  # pylint: disable=import-outside-toplevel
    told, held, always, device = Told(path), [], [], "cuda"
    words, dice = told.words, random.Random(seed)
    torch.manual_seed(seed)

    def made(tensor):
        return told.keep(tensor, held, 2)

    def kept(tensors):
        for tensor in tensors:
            told.keep(tensor, always, 2)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            h = made(self.norm(x))
            h = made(self.up(h))
            h = made(functional.gelu(h))
            return made(x + made(self.down(h)))

    def load():
        stream, mine, chance = torch.cuda.Stream(), collections.deque(), random.Random(seed + 1)
        with torch.cuda.stream(stream):
            while True:
                mine.append([])
                told.keep(torch.full((chance.randrange(1, 1 << 20),), 1.0, device=device), mine[-1])
                if len(mine) > 20:
                    told.drop(mine.popleft())
                time.sleep(0.001)

    def accumulated(parameter):
        told.keep(parameter.grad, held, 2)

    model = nn.Sequential(*[Block(256) for _ in range(8)], nn.Linear(256, 1000))
    kept(model.to(device).parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(accumulated)
    torch.autograd.set_multithreading_enabled(seed % 2 == 0)
    threading.Thread(target=load, daemon=True).start()
    while True:
        words[2] = torch.cuda.memory_stats()["allocation.all.allocated"]
        words[1] = 0
        words[0] += 1
        x = made(torch.randn(dice.randrange(200, 2000), 256, device=device))
        loss = made(made(model(x)).logsumexp(-1).mean())
        words[1] = 1
        loss.backward()
        words[1] = 2
        if words[0] == 1:
            kept([optimizer.step()] and [t for state in optimizer.state.values() for t in state.values() if t.device.type == device])
        else:
            optimizer.step()
        told.drop(held)
        optimizer.zero_grad()


def same_lines(snapshot, block, lines):
    """Whether the stack of a block has these lines of this program, innermost first; a long stack may end before the last."""
    stack = [snapshot["frames"][i] for i in snapshot["stacks"][block["stack"]]]
    found = [f["line"] for f in stack if f["filename"] == HERE and f["python"]][:LINES]
    return found == lines or (len(stack) >= DEPTH and bool(found) and found == lines[:len(found)])


def recovered(gpumem, room, path):
    """(what is wrong or "", phase, tensors, those with lines) of a killed program's journal and its FILE."""
    output = os.path.join(room, "recovered.json")
    run = subprocess.run([gpumem, "recover", "-o", output, room], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if run.returncode or not os.path.exists(output):
        return "recover: exit %d: %s" % (run.returncode, (run.stdout + run.stderr)[-300:]), 0, 0, 0
    with open(output, encoding="utf-8") as text:
        snapshot = json.load(text)
    with open(path, "rb") as raw:
        words = struct.unpack("<%dQ" % (HEAD + 3 * SLOTS), raw.read())
    pools = [pool for pool in snapshot["pools"] if pool["name"] == "pytorch"]
    if len(pools) != 1 or snapshot["recovered"]["damaged"]:
        return "%d pools of PyTorch's; %s" % (len(pools), snapshot["recovered"]), 0, 0, 0
    have = {b["address"]: b for s in pools[0]["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    count = with_line = 0
    for at in range(HEAD, len(words), 3):
        address, size, packed = words[at:at + 3]
        if not address:
            continue
        lines = [packed >> 16 * i & 0xffff for i in range(LINES) if packed >> 16 * i & 0xffff]
        block = have.get(address)
        if not block:
            return "lost: %d bytes at %#x, of lines %s" % (size, address, lines), 0, 0, 0
        if block["size"] < size or not same_lines(snapshot, block, lines):
            return "%d bytes of lines %s: a block of %d bytes, %s" % (size, lines, block["size"], [
                (f["filename"][-30:], f["line"], f["name"][:40]) for f in (snapshot["frames"][i] for i in snapshot["stacks"][block["stack"]])
                if f["python"]]), 0, 0, 0
        count += 1
        with_line += bool(lines)
    if pools[0]["memory_stats"]["allocation.all.allocated"] < words[2]:
        return "PyTorch counted %d allocations, we %d" % (words[2], pools[0]["memory_stats"]["allocation.all.allocated"]), 0, 0, 0
    return "", words[1], count, with_line


def one_kill(gpumem, number):
    """Start one, kill it, look."""
    with tempfile.TemporaryDirectory() as room:
        path, log = os.path.join(room, "told"), os.path.join(room, "log")
        with open(path, "wb") as file:
            file.truncate(8 * (HEAD + 3 * SLOTS))
        env = {name: value for name, value in os.environ.items() if not name.startswith("GPUMEM_")}
        env.update(LD_PRELOAD=os.path.join(os.path.dirname(gpumem), "libgpumem.so"), GPUMEM_JOURNAL=os.path.join(room, ""),
                   GPUMEM_OUTPUT=os.path.join(room, "%p.%r.json"), OMP_NUM_THREADS="1")
        with open(log, "w", encoding="utf-8") as err, \
                subprocess.Popen([sys.executable, HERE, "--train", path, str(number)], env=env, stderr=err) as program:
            began = 0
            until = time.monotonic() + LIMIT_S
            while began < 2 and program.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
                with open(path, "rb") as raw:
                    began = struct.unpack("<Q", raw.read(8))[0]
            time.sleep(0.2 * random.Random(number).random())
            ended = program.poll()
            program.kill()
        if began < 2 or ended is not None:
            with open(log, encoding="utf-8") as err:
                return "it was not killed: %d iterations, exit %s: %s" % (began, ended, err.read()[-500:]), 0, 0, 0
        return recovered(gpumem, room, path)


def main():
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser()
    parser.add_argument("gpumem", type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--beside", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    phases, tensors, with_line, wrong = collections.Counter(), 0, 0, []
    with concurrent.futures.ThreadPoolExecutor(args.beside) as workers:
        for number, (fault, phase, count, lines) in enumerate(workers.map(
                lambda i: one_kill(args.gpumem, args.seed + i), range(args.kills))):
            if fault:
                wrong.append("kill %d: %s" % (args.seed + number, fault))
            else:
                phases[PHASES[phase]] += 1
            tensors += count
            with_line += lines
    print("killed %d times (%s): %d tensors held, none lost, %d with their lines of Python, %d of PyTorch's own thread; "
          "%d kills went wrong%s" % (args.kills, ", ".join("%d in %s" % (n, name) for name, n in sorted(phases.items())), tensors,
                                     with_line, tensors - with_line, len(wrong), "".join("; " + w for w in wrong[:3])))
    sys.exit(bool(wrong) or with_line < 50 * args.kills)


main()
