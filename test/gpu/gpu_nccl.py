"""NCCL on a GPU, by PyTorch: one rank, an all-reduce; its buffers are NCCL's own allocations.

Prints only what is the same from run to run; see gpu_torch.py.
"""
import os
import tempfile

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402


def main():
    with tempfile.NamedTemporaryFile() as store:
        dist.init_process_group("nccl", init_method="file://" + store.name, rank=0, world_size=1,
                                device_id=torch.device("cuda", 0))
        x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
        for _ in range(3):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        print("all-reduce", x.sum().item())
        gathered = [torch.empty_like(x)]
        dist.all_gather(gathered, x)
        print("all-gather", torch.equal(gathered[0], x))
        dist.destroy_process_group()


main()
