"""Records the histories with several busy streams that test/traces has: on a machine with a GPU and PyTorch,

    python3 test/gpu/record_traces.py DIRECTORY [NAME...]

writes NAME.trace.gz, every allocation and free that PyTorch's cache saw with the address that it gave, and
NAME.stats.json, the cache's statistics at the end. `gpumem replay --verify` compares the two.
"""
import gzip
import json
import os
import random
import subprocess
import sys

STREAMS = 5
CONF = ""


def pipeline(torch, streams, rng):
    """Five streams, each with a transformer and a micro-batch of its own length, forward and backward at the same time."""
    models = [torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0) for _ in range(3)])
              .cuda().bfloat16() for _ in streams]
    torch.cuda.synchronize()
    for step in range(12):
        batches = [torch.randn(rng.randint(2, 8), 64 * rng.randint(1, 8), 512, device="cuda", dtype=torch.bfloat16) for _ in streams]
        for stream, model, batch in zip(streams, models, batches):
            stream.wait_stream(torch.cuda.current_stream())
            batch.record_stream(stream)
            with torch.cuda.stream(stream):
                out = model(batch)
                out.float().pow(2).mean().backward()
                out.record_stream(torch.cuda.default_stream())
                for parameter in model.parameters():
                    parameter.grad = None
        if step % 3 == 2:
            torch.cuda.synchronize()


def serving(torch, streams, rng):
    """Five streams that each answer requests: caches that grow by a few tokens at a time, and results for other streams."""
    def fresh(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    query, mlp = fresh(1024, 1024), fresh(1024, 1024)
    torch.cuda.synchronize()
    caches, results = [None] * len(streams), []
    for _ in range(800):
        i = rng.randrange(len(streams))
        with torch.cuda.stream(streams[i]):
            if caches[i] is None or rng.random() < .01:
                caches[i] = fresh(rng.randint(1, 6), rng.randint(32, 400), 1024)
            cache = caches[i]
            answer = torch.softmax(cache[:, -1:] @ query @ cache.transpose(1, 2), -1) @ cache
            caches[i] = torch.cat([cache, answer.repeat(1, rng.randint(1, 4), 1)], 1)
            hidden = torch.nn.functional.gelu(cache @ mlp)
            results.append(hidden[:, :8].clone())
            hidden.record_stream(streams[(i + 1) % len(streams)])
        if len(results) > 9:
            results.pop(0).record_stream(streams[rng.randrange(len(streams))])


WORKLOADS = {"pipeline": pipeline, "serving": serving}


def write(torch, path, about):
    """What was recorded, with addresses and streams as the replay reads them: streams by number, the default one 0."""
    events = torch.cuda.memory._snapshot()["device_traces"][0]      # pylint: disable=protected-access
    ids, numbers, count = {}, {0: 0}, 0
    with gzip.open(path, "wt") as out:
        out.write("# %s\n# recorded with PyTorch %s on one %s\n# conf=%s\n# memory_limit_bytes=0\n"
                  % (" ".join(about.split()), torch.__version__, torch.cuda.get_device_name(), CONF))
        for event in events:
            action, address, size = event["action"], event["addr"], event["size"]
            stream = numbers.setdefault(event["stream"], len(numbers))
            if action == "alloc":
                ids[address] = count
                out.write("a %d %d %d %x\n" % (count, size, stream, address))
                count += 1
            elif action == "free_requested":
                out.write("r %d\n" % ids[address])
            elif action == "free_completed":
                out.write("f %d\n" % ids.pop(address))
            elif action in ("segment_alloc", "segment_free"):
                out.write("# %s %d %d %x\n" % (action, size, stream, address))
    print(path, "%d allocations, %d streams" % (count, len(numbers)))


def record(directory, name):
    import torch        # pylint: disable=import-outside-toplevel

    torch.cuda.memory._record_memory_history(max_entries=10**6, context=None)     # pylint: disable=protected-access
    torch.manual_seed(0)
    WORKLOADS[name](torch, [torch.cuda.Stream() for _ in range(STREAMS)], random.Random(1))
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../traces/streams.stats.json"), encoding="utf-8") as like:
        keys = json.load(like)["stats"]
    with open(os.path.join(directory, name + ".stats.json"), "w", encoding="utf-8") as out:
        json.dump({"conf": CONF, "memory_limit_bytes": 0, "stats": {key: stats[key] for key in keys}, "torch": torch.__version__}, out, indent=1)
        out.write("\n")
    write(torch, os.path.join(directory, name + ".trace.gz"), WORKLOADS[name].__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 2 or any(name not in WORKLOADS for name in sys.argv[2:]):
        sys.exit(__doc__.strip())
    if len(sys.argv) == 3:
        record(sys.argv[1], sys.argv[2])
    else:                       # a process for each: a cache that nothing else was in
        for workload in sys.argv[2:] or WORKLOADS:
            subprocess.run([sys.executable, __file__, sys.argv[1], workload], check=True)
