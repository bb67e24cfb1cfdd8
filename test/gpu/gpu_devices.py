"""PyTorch over all devices of the machine: prints only what is the same from run to run.

usage: gpu_devices.py ddp|fsdp|ipc
       gpu_devices.py tools GPUMEM DIR

  ddp, fsdp  a training over NCCL with a rank for each device: a hash of all losses and parameters, from rank 0
  ipc        tensors of the first device go to a process that works on the last one, which copies them and sends its own
  tools      torchrun with eight processes, spread over the devices, under gpumem run: gpumem serve and top see all of
             them, gpumem merge adds their snapshots up. Prints one line; exit 0: as it should be, 1: not
"""
import glob
import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
RANKS = 8
MIB = 1 << 20
SECONDS = 120


def digest(*tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().float().cpu().numpy().tobytes())
    return whole.hexdigest()[:16]


def train(rank, ranks, port, sharded):
    """A rank of the training; rank 0 prints what came of it."""
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    if sharded:
        from torch.distributed.fsdp import FullyShardedDataParallel
        model = FullyShardedDataParallel(model, device_id=rank)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    losses = []
    for step in range(40):
        loss = model(torch.randn(8, 16 + step % 7 * 8, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        losses.append(loss.detach())
    summed = torch.stack(losses)
    dist.all_reduce(summed)
    if rank == 0:
        print("fsdp" if sharded else "ddp", ranks, "ranks", digest(summed), digest(*model.parameters()), flush=True)
    dist.destroy_process_group()


def trained(sharded):
    import torch
    import torch.multiprocessing as multiprocessing
    ranks = torch.cuda.device_count()
    multiprocessing.spawn(train, args=(ranks, 20000 + os.getpid() % 20000, sharded), nprocs=ranks)


def exporting(device):
    """Export one tensor first: memory in pages has no IPC handle, and after this refusal the library serves memory that
    has one. Nowhere else may the export be refused."""
    import torch
    tried = torch.empty(1, device="cuda:%d" % device)
    try:
        tried.untyped_storage()._share_cuda_()
    except RuntimeError as refusal:
        if os.environ.get("GPUMEM_EXPANDABLE_SEGMENTS") != "True":
            raise
        print("refused: %s" % str(refusal).splitlines()[0], file=sys.stderr)
    del tried
    torch.cuda.empty_cache()


def other_end(inbox, outbox, device):
    import torch
    torch.cuda.set_device(device)
    exporting(device)
    while (tensor := inbox.get()) is not None:
        copied = tensor.to("cuda:%d" % device, copy=True) + 1
        torch.cuda.synchronize()
        outbox.put((digest(tensor), copied))
        del tensor, copied


def between():
    import torch
    import torch.multiprocessing as multiprocessing
    multiprocessing.set_start_method("spawn")
    last = torch.cuda.device_count() - 1
    inbox, outbox = multiprocessing.Queue(), multiprocessing.Queue()
    process = multiprocessing.Process(target=other_end, args=(inbox, outbox, last))
    process.start()
    exporting(0)
    torch.manual_seed(2)
    for size in (1, 1000, 1 << 20, 9_000_001):
        for _ in range(4):
            tensor = torch.randint(-1000, 1000, (size,), dtype=torch.int32, device="cuda:0")
            inbox.put(tensor)
            seen, own = outbox.get()
            print("ipc", size, seen == digest(tensor), digest(own) == digest(tensor + 1), own.device == torch.device("cuda", last))
            del own, tensor
            torch.cuda.empty_cache()
    inbox.put(None)
    process.join()
    print("ipc: exit", process.exitcode)


def worker(directory):
    """A process of torchrun: memory by its rank on its device, until the file "end" is there."""
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    device = rank % torch.cuda.device_count()
    kept = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda:%d" % device) for _ in range(rank + 1)]
    dist.init_process_group("gloo")
    dist.barrier()
    with open(os.path.join(directory, "%d.ready" % rank), "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    end = time.monotonic() + SECONDS
    while not os.path.exists(directory + "/end") and time.monotonic() < end:
        time.sleep(0.1)
    dist.barrier()
    dist.destroy_process_group()
    return len(kept)


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def scraped(gpumem, pids):
    """The metrics of gpumem serve, once they name all of @pids; None where serve lacks its library."""
    port = 20000 + os.getpid() % 20000
    with subprocess.Popen([gpumem, "serve", "--prometheus", "127.0.0.1:%d" % port], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                time.sleep(0.3)
                if server.poll() is not None:
                    error = server.stderr.read().decode(errors="replace")
                    assert "microhttpd" in error, "serve: " + error
                    return None
                try:
                    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
                        text = answer.read().decode()
                except OSError:
                    continue
                if all('pid="%d"' % pid in text for pid in pids):
                    return text
            raise AssertionError("serve does not name all of %s" % pids)
        finally:
            server.terminate()


def tools(gpumem, directory):
    import torch
    devices = torch.cuda.device_count()
    os.makedirs(directory, exist_ok=True)
    command = [gpumem, "run", "--quiet", "--output=%s/%%k.%%r.json" % directory, "--", sys.executable, "-m",
               "torch.distributed.run", "--standalone", "--nproc-per-node=%d" % RANKS, "--max-restarts=0",
               os.path.abspath(__file__), "worker", directory]
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with open(os.path.join(directory, "stderr"), "w", encoding="utf-8") as err, \
         subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err) as child:
        try:
            end = time.monotonic() + SECONDS
            while len(glob.glob(directory + "/*.ready")) < RANKS and child.poll() is None and time.monotonic() < end:
                time.sleep(0.2)
            pids = []
            for rank in range(RANKS):
                with open("%s/%d.ready" % (directory, rank), encoding="utf-8") as file:
                    pids.append(int(file.read()))
            metrics = scraped(gpumem, pids)
            top = said(gpumem, "top", "--once", "all")
        finally:
            with open(directory + "/end", "w", encoding="utf-8"):
                pass
            child.wait(SECONDS)
    assert child.returncode == 0, "torchrun: exit %d" % child.returncode
    assert top.returncode == 0 and all(str(pid) in top.stdout for pid in pids), "top: %s %s" % (top.stdout, top.stderr)
    for device in range(devices if metrics else 0):
        assert 'device="%d"' % device in metrics, "serve has no device %d" % device
    files = sorted(path for path in glob.glob(directory + "/*.json") if os.path.basename(path)[0] in "01234567")
    merged = said(gpumem, "merge", "--json", *files)
    assert merged.returncode == 0 and json.loads(merged.stdout), "merge: " + merged.stderr
    peaks = {}
    for path in files:
        with open(path, encoding="utf-8") as text:
            snapshot = json.load(text)
        rank = snapshot["process"]["rank"]
        for domain in snapshot["devices"]:
            stats = domain.get("memory_stats") or {}
            if domain.get("device") == rank % devices:
                peaks[rank] = max(peaks.get(rank, 0), stats.get("allocated_bytes.all.peak", 0))
    assert sorted(peaks) == list(range(RANKS)), "ranks with a snapshot: %s" % sorted(peaks)
    assert all(peak >= (rank + 1) * 8 * MIB for rank, peak in peaks.items()), "peaks: %s" % peaks
    named = "serve, top and merge" if metrics else "top and merge (serve: no libmicrohttpd here)"
    print("%d processes on %d devices: %s name them all" % (RANKS, devices, named))


if __name__ == "__main__":
    if sys.argv[1:] in (["ddp"], ["fsdp"]):
        trained(sys.argv[1] == "fsdp")
    elif sys.argv[1:] == ["ipc"]:
        between()
    elif len(sys.argv) == 3 and sys.argv[1] == "worker":
        worker(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "tools":
        try:
            tools(os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
        except AssertionError as wrong:
            print(str(wrong).replace("\n", " | ")[:900])
            sys.exit(1)
    else:
        sys.exit(__doc__)
