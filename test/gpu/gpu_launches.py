"""Do the hooks see every kernel? Those that CUPTI counts beside the submissions that a RULES=1 build
counts, over matrix products in many types and shapes (cuBLAS, cuBLASLt), convolutions, attention,
sorting. Without gpumem_test_works in the process it only says what CUPTI counted.

Prints "kernels N, copies and fills N" and, with the library, "submissions seen N"; exit 1 if fewer
were seen than ran.
"""
import ctypes

import torch
from torch.profiler import ProfilerActivity, profile


def work():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for m, n, k in ((64, 64, 64), (512, 768, 1024), (4096, 4096, 512), (17, 33, 65)):
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(k, n, device="cuda", dtype=dtype)
            bias = torch.randn(n, device="cuda", dtype=dtype)
            torch.addmm(bias, a, b)
            torch.nn.functional.linear(a, b.t(), bias)
            torch.nn.functional.gelu(torch.nn.functional.linear(a, b.t(), bias))
            torch.bmm(a.expand(4, m, k), b.expand(4, k, n))
        q = torch.randn(2, 8, 256, 64, device="cuda", dtype=dtype, requires_grad=True)
        torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
        x = torch.randn(8, 16, 32, 32, device="cuda", dtype=dtype)
        torch.nn.functional.conv2d(x, torch.randn(32, 16, 3, 3, device="cuda", dtype=dtype))
    if hasattr(torch, "_scaled_mm"):
        a = torch.randn(128, 128, device="cuda").to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    torch.sort(torch.randn(1 << 20, device="cuda"))
    torch.linalg.svd(torch.randn(64, 64, device="cuda"))
    torch.fft.fft(torch.randn(1 << 16, device="cuda"))
    torch.cuda.synchronize()


def main():
    try:
        seen = ctypes.CDLL(None).gpumem_test_works
        seen.restype = ctypes.c_uint64
    except AttributeError:
        seen = None
    work()
    with profile(activities=[ProfilerActivity.CUDA]) as measured:
        before = seen() if seen else 0
        work()
        after = seen() if seen else 0
    kernels = copies = 0
    for event in measured.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            moved = event.name.startswith(("Memcpy", "Memset"))
            copies += moved
            kernels += not moved
    print("kernels %d, copies and fills %d" % (kernels, copies))
    if seen:
        print("submissions seen %d" % (after - before))
        raise SystemExit(after - before < kernels + copies or kernels < 100)


main()
