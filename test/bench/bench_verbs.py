#!/usr/bin/env python3
"""What every verb takes for a large input: seconds, those of a processor, and the most memory that it had.

usage: test/bench/bench_verbs.py [--events N] [--gigabyte] [--only TEXT]

Inputs: a snapshot of ours, PyTorch's pickle and PyTorch's JSON of the same history (test/bench/large.py), the journal of a
killed process, and a living one; --gigabyte: a snapshot and a PyTorch JSON of more than 10^9 bytes as well. Bare figures:
nothing is asserted but that each verb exits as it should.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import time

B = os.environ.get("B", "build")
GPUMEM = os.path.abspath(os.path.join(B, "gpumem"))
LARGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "large.py")
VERBS = (("summary",), ("events",), ("events", "-n", "10"), ("events", "--csv"), ("events", "--jsonl"), ("events", "--stack", "step"),
         ("leaks",), ("leaks", "TWICE"), ("diff", "TWICE"), ("flame", "-w", "live"), ("flame", "-w", "peak"), ("flame", "-w", "churn"),
         ("check", "--max-peak", "100GiB", "--no-leaks"), ("merge", "TWICE"), ("replay",), ("replay", "--search"),
         ("symbolize",)) + tuple(
             ("convert", "--to", to) for to in ("pickle", "pytorch-json", "chrome", "csv", "rmm", "speedscope", "folded",
                                                "prometheus", "gpumem"))


def measure(words, path):
    command = [GPUMEM] + [w for w in words if w != "TWICE"] + [path] * (2 if "TWICE" in words else 1)
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said


def table(name, path, verbs, only, slow=()):
    size = "" if not os.path.exists(path) else ", %.0f MB" % (os.path.getsize(path) / 1e6)
    print("\n%s%s\n%-44s %9s %9s %9s" % (name, size, "", "seconds", "of CPU", "MB"))
    failed = 0
    for words in verbs:
        if only and only not in " ".join(words) or words in slow:
            continue
        code, seconds, busy, megabytes, said = measure(words, path)
        wanted = (0, 1) if words[0] == "check" else (0,)
        failed += code not in wanted
        print("%-44s %9.2f %9.2f %9.0f%s" % ("gpumem " + " ".join(words).replace("TWICE", "A B"), seconds, busy, megabytes,
                                             "" if code in wanted else "  exit %d: %s" % (code, said.strip()[-200:])))
        sys.stdout.flush()
    return failed


def make(path, *words):
    subprocess.run([sys.executable, LARGE, *map(str, words), path], check=True)
    return path


def living(room, events):
    """demo_app under the library until it has made so many events: the process."""
    env = dict(os.environ, LD_PRELOAD=os.path.abspath(os.path.join(B, "libgpumem.so")), GPUMEM_HISTORY=str(events),
               LD_LIBRARY_PATH=os.path.abspath(os.path.join(B, "fakecuda")), GPUMEM_SNAPSHOT_ON="none",
               GPUMEM_JOURNAL=os.path.join(room, "journals"))
    os.makedirs(os.path.join(room, "journals"), exist_ok=True)
    child = subprocess.Popen([os.path.join(B, "test/apps/demo_app.static"), "--loop", "--max-seconds", "600"], env=env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        run = subprocess.run([GPUMEM, "summary", "--json", str(child.pid)], capture_output=True, text=True, check=False)
        found = re.search(r'"dropped": ([0-9]+)', run.stdout)
        if found and int(found.group(1)):
            break
        time.sleep(1)
    return child


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--gigabyte", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    print("machine: %s, %d cores; 1,000,000 events are %d here, 200,000 frames, 50,000 stacks of 12 to 35 frames" %
          (model.group(1) if model else "?", os.cpu_count(), args.events))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="gpumem-bench-") as room:
        path = os.path.join(room, "large")
        failed += table("a snapshot", make(path, "--events", args.events), VERBS, args.only)
        failed += table("PyTorch's pickle", make(path, "--events", args.events, "--as", "pickle"), VERBS, args.only)
        failed += table("PyTorch's JSON (a tenth of the events: it writes every stack out)",
                        make(path, "--events", args.events // 10, "--as", "torch-json"), VERBS, args.only)
        child = living(room, args.events)
        try:
            failed += table("a living process", str(child.pid), VERBS, args.only)
        finally:
            child.kill()
            child.wait(timeout=60)
        [journal] = glob.glob(os.path.join(room, "journals", "**", "*.journal"), recursive=True)
        failed += table("the journal of a killed process", journal, VERBS, args.only)
        os.unlink(journal)
        if args.gigabyte:
            failed += table("a gigabyte of snapshot", make(path, "--events", 4_000_000, "--pad", 1_600_000_000), VERBS, args.only)
            failed += table("a gigabyte of PyTorch's JSON", make(path, "--events", 400_000, "--as", "torch-json"), VERBS, args.only)
    print("\n%d verbs failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
