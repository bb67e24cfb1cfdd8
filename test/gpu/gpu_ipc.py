"""PyTorch tensors between two processes (torch.multiprocessing, CUDA IPC): prints what each side read, exactly.

The parent sends tensors of many sizes, some of which lie in one segment; the child reads and changes them in place and
sends tensors of its own back. With and without the library the output is the same.
"""
import hashlib

import torch
import torch.multiprocessing as multiprocessing

SIZES = [1, 128, 1000, 4096, 100_000, 1 << 20, 3 << 20, 9_000_001]


def digest(tensor):
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


def child(inbox, outbox):
    for number in range(len(SIZES)):
        tensor = inbox.get()
        seen = digest(tensor)
        tensor.add_(1)
        torch.cuda.synchronize()
        own = tensor * 2 + number
        torch.cuda.synchronize()
        outbox.put((seen, own))
        del tensor, own
    inbox.get()                 # until the parent has read what is the child's
    outbox.put(torch.cuda.memory_allocated() == 0)


def main():
    multiprocessing.set_start_method("spawn")
    torch.manual_seed(1)
    inbox, outbox = multiprocessing.Queue(), multiprocessing.Queue()
    process = multiprocessing.Process(target=child, args=(inbox, outbox))
    process.start()
    for size in SIZES:
        tensor = torch.randint(-1000, 1000, (size,), dtype=torch.int32, device="cuda")
        before = digest(tensor)
        inbox.put(tensor)
        seen, own = outbox.get()
        print(size, before == seen, digest(tensor), digest(own))
        del own
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()
    inbox.put("done")
    print("the child holds nothing", outbox.get())
    process.join()
    print("exit", process.exitcode)


if __name__ == "__main__":
    main()
