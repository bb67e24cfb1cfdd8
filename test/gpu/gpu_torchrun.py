"""torchrun under gpumem run, and gpumem run under torchrun: two ranks on one GPU, by gloo.

usage: gpu_torchrun.py GPUMEM DIR

The ranks end by themselves; one dies of SIGKILL and torchrun ends the other; the whole is sent
SIGTERM. Each time: a file for each rank under its number, one table with both, the exit status of
torchrun without gpumem. Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

MIB = 1 << 20
SECONDS = 150


def worker(mode, directory):
    """A rank: memory by its number, a word to the other, and its end."""
    import torch                                        # pylint: disable=import-outside-toplevel
    import torch.distributed as dist                    # pylint: disable=import-outside-toplevel
    rank = int(os.environ["RANK"])
    kept = [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda:0") for _ in range(rank + 1)]
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    with open(os.path.join(directory, "rank%d.ready" % rank), "w", encoding="utf-8") as file:
        file.write("%d %d" % (os.getpid(), int(total.item())))
    if mode == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if mode != "end":
        time.sleep(SECONDS)
    dist.destroy_process_group()
    del kept


def torchrun(mode, directory, outer=(), inner=()):
    """(exit status, standard error) of torchrun with two workers, with words before it and before each."""
    os.makedirs(directory)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0"]
    script = [os.path.abspath(__file__), "--worker", mode, directory]
    command = [*outer, sys.executable, *run, *(["--no-python", *inner, sys.executable] if inner else []), *script]
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    with open(os.path.join(directory, "stderr"), "w+", encoding="utf-8", errors="replace") as err:
        with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
                              start_new_session=True) as child:
            end = time.monotonic() + SECONDS
            sent = mode != "term"
            while child.poll() is None and time.monotonic() < end:
                if not sent and len(glob.glob(directory + "/*.ready")) == 2:
                    time.sleep(1)
                    child.send_signal(signal.SIGTERM)
                    sent = True
                time.sleep(0.1)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        err.seek(0)
        return child.returncode, err.read()


def rows(err):
    """{rank: (pid, end, snapshot)} of the closing table; None: there is not one."""
    if len(re.findall(r"^gpumem: +rank +pid ", err, re.M)) != 1:
        return None
    found = re.findall(r"^gpumem: +(\d+) +(\d+) +\S+ +(\w+) .* (/\S+\.json)(?: \(and \d+ more\))?$", err, re.M)
    return {int(rank): (int(pid), end, path) for rank, pid, end, path in found}


def snapshots(directory):
    """{rank: [(pid, peak bytes, reason)]} of the files, each under its rank's number."""
    found = {}
    for path in glob.glob(directory + "/*.json"):
        with open(path, encoding="utf-8") as text:
            snapshot = json.load(text)
        rank = int(os.path.basename(path).split(".")[0])
        if snapshot["process"]["rank"] != rank:
            raise AssertionError("%s is of rank %s" % (path, snapshot["process"]["rank"]))
        peak = max(d["memory_stats"]["allocated_bytes.all.peak"] for d in snapshot["devices"] if d.get("memory_stats"))
        found.setdefault(rank, []).append((snapshot["process"]["pid"], peak, snapshot["reason"]))
    return found


def expect(condition, *words):
    if not condition:
        raise AssertionError(" ".join(str(word) for word in words)[:900])


def judge(gpumem, mode, bare, directory, ends):
    """One torchrun with gpumem run around it; @ends: how each rank's row may say that it ended."""
    template = "--output=%s/%%k.%%r.json" % directory
    status, err = torchrun(mode, directory, outer=[gpumem, "run", template, "--"])
    expect(status == bare, mode, "exit", status, "instead of", bare, err[-700:])
    found, files = rows(err), snapshots(directory)
    expect(found is not None, mode, "no table, or several:", err[-700:])
    expect(sorted(found) == [0, 1] and sorted(files) == [0, 1], mode, "ranks", found, files)
    for rank in (0, 1):
        with open(os.path.join(directory, "rank%d.ready" % rank), encoding="utf-8") as text:
            pid, total = (int(word) for word in text.read().split())
        expect(total == 2, mode, "the ranks counted", total)
        expect(found[rank][0] == pid and any(pid == of for of, _, _ in files[rank]), mode, "rank", rank, "is", pid, found, files)
        expect(found[rank][1] in ends[rank], mode, "rank", rank, "ended:", found[rank][1])
        expect(all(peak >= (rank + 1) * 64 * MIB for _, peak, _ in files[rank]), mode, "peaks", files)
    return "%s: %s" % (mode, " ".join(found[rank][1] for rank in (0, 1)))


def main(gpumem, directory):
    bare = {mode: torchrun(mode, os.path.join(directory, "bare-" + mode))[0] for mode in ("end", "kill", "term")}
    expect(bare["end"] == 0 and bare["kill"] != 0, "without gpumem: exit", bare)
    said = [judge(gpumem, "end", bare["end"], os.path.join(directory, "end"), {0: ["exit"], 1: ["exit"]}),
            judge(gpumem, "kill", bare["kill"], os.path.join(directory, "kill"), {0: ["SIGTERM", "killed"], 1: ["killed"]}),
            judge(gpumem, "term", bare["term"], os.path.join(directory, "term"), {r: ["exit", "SIGTERM", "killed"] for r in (0, 1)})]
    inside = os.path.join(directory, "inside")
    status, err = torchrun("end", inside, inner=[gpumem, "run", "--quiet", "--output=%s/%%k.%%r.json" % inside])
    files = snapshots(inside)
    expect(status == 0 and sorted(files) == [0, 1], "gpumem run around each rank: exit", status, files, err[-700:])
    paths = [glob.glob(os.path.join(inside, "%d.*.json" % rank))[0] for rank in (0, 1)]
    merged = subprocess.run([gpumem, "merge", "--json", *paths], capture_output=True, text=True, check=False)
    expect(merged.returncode == 0 and json.loads(merged.stdout), "gpumem merge:", merged.stderr)
    print("%s; exit %s; around each rank: exit %d" % (", ".join(said), "/".join(str(bare[m]) for m in ("end", "kill", "term")), status))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 3:
        try:
            main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
        except AssertionError as wrong:
            print(str(wrong).replace("\n", " | "))
            sys.exit(1)
    else:
        sys.exit(__doc__)
