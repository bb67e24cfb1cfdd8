"""What scripts/gpu-check.sh cannot say in shell: snapshots of runs on a real GPU against the facts.

usage: check.py modules DIR WORD[,WORD...]     each WORD (a|b: either) is in the path of a module
                                               that allocated, in the snapshots of DIR
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
# The driver takes 2 MiB at a time, pools 32 MiB; a late module or stack is a few more.
GRANULE, SLACK = 2 * MIB, 96 * MIB


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
    view = {}
    with open(path, encoding="ascii") as text:
        for line in text:
            device, free, total = re.match(r"device (\d+) free (\d+) total (\d+)$", line).groups()
            view[int(device)] = int(total) - int(free)
    return view


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
    first, worst, most = {}, 0, 0
    if not numbers:
        return "no checkpoints"
    for number in numbers:
        stem = os.path.join(directory, str(number))
        snapshot = load(stem + ".json")
        for device, used in driver_view(stem + ".driver").items():
            certain, perhaps, blocks = account(snapshot, device)
            base = first.setdefault(device, (used - certain, perhaps, blocks))
            # What the driver has taken beyond what was taken at the first checkpoint and is live.
            rest = used - base[0] - certain
            above = perhaps + max(blocks, base[2]) * GRANULE + SLACK
            below = -(base[1] + base[2] * GRANULE + SLACK)
            if not below <= rest <= above:
                return "checkpoint %d, device %d: the driver has %.1f MiB taken that are not recorded" % (
                    number, device, rest / MIB)
            worst, most = max(worst, abs(rest)), max(most, certain)
    print("%d checkpoints, up to %.1f MiB live, off by %.1f MiB at most" % (len(numbers), most / MIB, worst / MIB))
    return None


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "modules":
        wrong = modules(sys.argv[2], sys.argv[3].split(","))
    elif len(sys.argv) > 2 and sys.argv[1] == "conservation":
        wrong = conservation(sys.argv[2])
    else:
        sys.exit(__doc__)
    if wrong:
        print(wrong)
    sys.exit(1 if wrong else 0)


main()
