"""PyTorch on a GPU: a few training steps, streams, a graph, an out-of-memory, a forked worker.

Prints only what is the same from run to run, so that a run under the library can be compared with
one without it. scripts/gpu-check.sh runs both.
"""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic cuBLAS wants

import torch  # noqa: E402


def train():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048),
                                torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(5):
        x = torch.randn(256, 512, device="cuda")
        loss = torch.nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step %d loss %.5f" % (step, loss.item()))
    print("allocated", torch.cuda.memory_allocated(), "reserved", torch.cuda.memory_reserved())


def streams():
    side = torch.cuda.Stream()
    a = torch.ones(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = (a * 2).sum()
    torch.cuda.current_stream().wait_stream(side)
    print("side stream", b.item())


def graph():
    static_in = torch.zeros(1024, device="cuda")
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        (static_in * 3 + 1).sum()
    torch.cuda.current_stream().wait_stream(warm)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = (static_in * 3 + 1).sum()
    for value in (1.0, 2.0):
        static_in.fill_(value)
        captured.replay()
        print("graph", out.item())


def out_of_memory():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        print("out of memory, caught")
    print("and on", torch.arange(10, device="cuda").sum().item())


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((16,), float(i))


def workers():
    total = torch.zeros((), device="cuda")
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True):
        total += batch.cuda(non_blocking=True).sum()
    print("two forked workers", total.item())


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    train()
    streams()
    graph()
    out_of_memory()
    workers()
    torch.cuda.empty_cache()
    print("after empty_cache", torch.cuda.memory_allocated())
    print("gpu_torch: done")


if __name__ == "__main__":
    main()
