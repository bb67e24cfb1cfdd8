"""A training loop whose every bit is fixed: gpu_train.py [--steps N] [--graph].

Two networks, fed by copies on side streams, random lengths; --graph: a step captured and launched
as a CUDA graph besides. Prints the loss of every tenth step and a hash of all parameters, exactly:
run with and without a library in between, the output must be the same to the last bit. What serves
PyTorch's memory is the caller's choice (PYTORCH_NO_CUDA_MEMORY_CACHING, PYTORCH_CUDA_ALLOC_CONF).
"""
import argparse
import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402 (the variable comes first)
from captured import captured  # noqa: E402


def attention():
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()


def convolution():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(),
                               torch.nn.Flatten(), torch.nn.Linear(64 * 16 * 16, 10)).cuda()


def graphed():
    """One step of a small network, captured once; inputs are copied into its own."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda()
    return model, captured(model, torch.randn(128, 512, device="cuda"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--graph", action="store_true")
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(7)
    nets = [attention(), convolution()]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-3) for net in nets]
    graph = graphed() if args.graph else None
    copies = [torch.cuda.Stream() for _ in range(3)]
    work = torch.cuda.Stream()
    lengths = torch.randint(8, 96, (args.steps,)).tolist()
    for i in range(args.steps):
        texts = torch.randn(16, lengths[i], 256).pin_memory()
        images = torch.randn(8 + i % 5, 3, 32, 32).pin_memory()
        with torch.cuda.stream(copies[i % 3]):
            text = texts.to("cuda", non_blocking=True)
            image = images.to("cuda", non_blocking=True)
        current = torch.cuda.current_stream()
        current.wait_stream(copies[i % 3])
        work.wait_stream(copies[i % 3])
        text.record_stream(current)
        image.record_stream(work)
        losses = []
        with torch.cuda.stream(work):
            losses.append(nets[1](image).pow(2).mean())
            optimizers[1].zero_grad()
            losses[-1].backward()
            optimizers[1].step()
        losses.append(nets[0](text).pow(2).mean())
        optimizers[0].zero_grad()
        losses[-1].backward()
        optimizers[0].step()
        current.wait_stream(work)
        losses[0].record_stream(current)
        if graph:
            losses.append(graph[1](torch.randn(128, 512, device="cuda")))
        if i % 10 == 9:
            print("step %d: %s" % (i + 1, " ".join(loss.item().hex() for loss in losses)), flush=True)
    torch.cuda.synchronize()
    digest = hashlib.sha256()
    for net in nets + ([graph[0]] if graph else []):
        for parameter in net.parameters():
            digest.update(parameter.detach().cpu().numpy().tobytes())
    print("parameters: %s" % digest.hexdigest())


main()
