"""A training on a device filled so that it just fits: gpu_full.py [--iterations N] [--room MIB | --find].

Every tensor is the device's (PYTORCH_NO_CUDA_MEMORY_CACHING=1): without a library the driver's, with
the preload the library's cache. Batches come by copies on side streams, which also work on them; the
kernels of an iteration take tens of milliseconds, and autograd frees in a thread of its own.

--find     print the least room, in MiB beyond what the warmed-up program holds, in which it runs
--room M   fill the device but for M MiB and run; exit 1 when memory runs out
Prints the loss of the last iteration, exactly: the same whoever serves the memory.
"""
import argparse
import os
import sys
import time

os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402 (the variables come first)

MIB = 1 << 20
WIDTH, BATCH, LAYERS, SIDES = 4096, 6144, 10, 2
STEP = 16           # MiB: how exact --find is


class Training:
    """State that is the same at the start of every run of iterations."""

    def __init__(self):
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = True
        layers = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.sides = [torch.cuda.Stream() for _ in range(SIDES)]
        self.batches = [torch.randn(BATCH, WIDTH).pin_memory() for _ in range(SIDES)]

    def fetch(self, number):
        side = self.sides[number % SIDES]
        with torch.cuda.stream(side):
            raw = self.batches[number % SIDES].to("cuda", non_blocking=True)
            batch = (raw - raw.mean(dim=1, keepdim=True)) / (raw.std(dim=1, keepdim=True) + 1e-5)
        return batch, side

    def run(self, iterations):
        rows = (BATCH, BATCH * 3 // 4, BATCH // 2)
        following, loss = self.fetch(0), None
        for number in range(iterations):
            batch, side = following
            torch.cuda.current_stream().wait_stream(side)
            following = self.fetch(number + 1)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.model(batch[:rows[number % 3]]).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            batch.record_stream(torch.cuda.current_stream())
            for ended in self.sides:
                ended.wait_stream(torch.cuda.current_stream())
        torch.cuda.synchronize()
        return loss.item()


def fill(room):
    """All of the device but @room MiB, in two pieces: what is left is one range or several."""
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    take = free - room * MIB
    if take <= 0:
        return []
    return [torch.empty(take // 2 // (2 * MIB) * 2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]


def is_refusal(error):
    """Without its cache PyTorch says the driver's error, as it says any."""
    return "out of memory" in str(error)


def fits(training, room, iterations):
    held = fill(room)
    try:
        training.run(iterations)
        return True
    except RuntimeError as error:
        if not is_refusal(error):
            raise
        return False
    finally:
        training.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        del held


def find(training):
    low, high = 0, 64 * STEP
    while not fits(training, high, 6):
        low, high = high, high * 2
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        if fits(training, middle, 6):
            high = middle
        else:
            low = middle
    return high


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--room", type=int)
    parser.add_argument("--find", action="store_true")
    options = parser.parse_args()
    training = Training()
    training.run(3)
    training.optimizer.zero_grad(set_to_none=True)
    if options.find:
        print("%d MiB of room" % find(training))
        return 0
    held = fill(options.room) if options.room else []
    begun = time.monotonic()
    try:
        loss = training.run(options.iterations)
    except RuntimeError as error:
        if not is_refusal(error):
            raise
        print("out of memory: %s" % str(error).splitlines()[0])
        return 1
    print("loss %s" % loss.hex())
    print("# %.1f ms an iteration" % ((time.monotonic() - begun) * 1e3 / options.iterations), file=sys.stderr)
    del held
    return 0


if __name__ == "__main__":
    sys.exit(main())
