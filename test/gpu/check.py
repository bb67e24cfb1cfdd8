"""What scripts/gpu-check.sh cannot say in shell: snapshots of runs on a real GPU against the facts.

usage: check.py modules DIR WORD[,WORD...]     each WORD (a|b: either) is in the path of a module
                                               that allocated, in the snapshots of DIR
       check.py deliberate BARE OURS           the conformance program's output without the library and
                                               under its cache differs in what is deliberate alone
       check.py conservation DIR [DEVICES]     the checkpoints of DIR: what cudaMemGetInfo says is
                                               taken is what the snapshot says is live
Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import glob
import json
import os
import re
import sys

MIB = 1 << 20
# On the device at once, to the granularity of the driver.
RESIDENT = ("device", "array", "vmm", "pool", "graph", "external")
# On the device when somebody has touched it there.
PERHAPS = ("managed",)
# The driver takes 2 MiB at a time, a pool 32 MiB; a late module or stack is a few more.
GRANULE, SLACK = 2 * MIB, 72 * MIB
# Checkpoints at which the driver takes or gives what no program asked for: a context (about 520 MiB
# on an H200), the first use of managed memory on the device (128 MiB).
OWN = re.compile(r"context|destroyed|reset|beginning|managed|linear|thread|gone|would not go|what is left", re.IGNORECASE)


def load(path):
    with open(path, encoding="utf-8") as text:
        snapshot = json.load(text)
    if snapshot.get("format") != "gpumem-snapshot":
        raise ValueError("%s is no snapshot" % path)
    return snapshot


def modules(directory, words):
    paths = sorted(glob.glob(os.path.join(directory, "*.json")))
    found = {}
    for path in paths:
        for device in load(path)["devices"]:
            for row in device.get("by_module", []):
                if row["total_allocated_bytes"] > 0:
                    found[row["path"]] = found.get(row["path"], 0) + row["total_allocated_bytes"]
    names = ", ".join("%s %.1f MiB" % (os.path.basename(path), count / MIB)
                      for path, count in sorted(found.items(), key=lambda item: -item[1]))
    missing = [word for word in words
               if not any(either.lower() in path.lower() for either in word.split("|") for path in found)]
    if missing:
        return "no memory of %s in %d snapshots: %s" % (", ".join(missing), len(paths), names or "none")
    print(names)
    return None


def driver_view(path):
    """({device: bytes taken}, what the checkpoint is called)."""
    view, what = {}, ""
    with open(path, encoding="utf-8") as text:
        for line in text:
            if line.startswith("what "):
                what = line[5:].strip()
                continue
            device, free, total = re.match(r"device (\d+) free (\d+) total (\d+)$", line).groups()
            view[int(device)] = int(total) - int(free)
    return view, what


def account(snapshot, device):
    """(bytes certainly on the device, bytes perhaps, blocks)."""
    for row in snapshot["devices"]:
        if row["device"] != device:
            continue
        kinds = {kind["kind"]: kind["allocated_bytes"] for kind in row.get("by_kind", [])}
        blocks = sum(1 for segment in snapshot["segments"] if segment["device"] == device)
        return (sum(kinds.get(kind, 0) for kind in RESIDENT), sum(kinds.get(kind, 0) for kind in PERHAPS), blocks)
    return 0, 0, 0


def conservation(directory):
    numbers = sorted(int(name[:-5]) for name in os.listdir(directory) if re.match(r"\d+\.json$", name))
    last, own, worst, most = {}, {}, 0, 0
    if not numbers:
        return "no checkpoints"
    for number in numbers:
        stem = os.path.join(directory, str(number))
        snapshot = load(stem + ".json")
        view, what = driver_view(stem + ".driver")
        for device, used in view.items():
            certain, perhaps, blocks = account(snapshot, device)
            before = last.get(device, (used - certain, perhaps, blocks))
            # What the driver took since the last checkpoint beyond what was recorded.
            step = used - certain - before[0]
            limit = max(perhaps, before[1]) + abs(blocks - before[2]) * GRANULE + SLACK
            last[device] = (used - certain, perhaps, blocks)
            if abs(step) > limit and OWN.search(what):
                own[number] = step      # a context, or the machinery of managed memory, came or went
            elif abs(step) > limit:
                return "checkpoint %d (%s), device %d: the driver has %.1f MiB taken that are not recorded" % (
                    number, what, device, step / MIB)
            else:
                worst = max(worst, abs(step))
            most = max(most, certain)
    print("%d checkpoints, up to %.1f MiB live, steps off by %.1f MiB at most%s" % (
        len(numbers), most / MIB, worst / MIB,
        "".join("; the driver's own at %d: %+.0f MiB" % (number, step / MIB) for number, step in own.items())))
    return None


def deliberate(bare, ours):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conformance"))
    from deliberate import DELIBERATE, differences      # pylint: disable=import-outside-toplevel
    texts = []
    for path in (bare, ours):
        with open(path, encoding="utf-8") as text:
            texts.append(text.read().splitlines())
    other, stale = differences(*texts)
    if len(texts[0]) < 500:
        return "only %d lines" % len(texts[0])
    if other:
        return "%d lines differ that are not meant to: %s" % (len(other), " ".join(other[:2]))
    print("%d lines, %d of the %d deliberate differences" % (len(texts[0]), len(DELIBERATE) - len(stale), len(DELIBERATE)))
    return None


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "deliberate":
        wrong = deliberate(sys.argv[2], sys.argv[3])
    elif len(sys.argv) > 3 and sys.argv[1] == "modules":
        wrong = modules(sys.argv[2], sys.argv[3].split(","))
    elif len(sys.argv) > 2 and sys.argv[1] == "conservation":
        wrong = conservation(sys.argv[2])
    else:
        sys.exit(__doc__)
    if wrong:
        print(wrong)
    sys.exit(1 if wrong else 0)


main()
