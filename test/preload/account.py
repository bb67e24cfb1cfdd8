"""The driver's truth and the library's account of it, side by side: for the tests of the hooks.

A program of test/apps prints at every checkpoint what the fake driver knows to be live, and has the
library write its snapshot (test/apps/checkpoint.h). Both become {(device, kind): bytes}; memory of the
host is one number, of device "host": the driver tells neither for which device it was pinned nor
whether a VMM handle or a pool holds it.

@native: the program runs with allocator:native, where a byte that the program has is a byte of the driver's,
and its calls are the driver's calls. With the cache both differ, and the driver without us is asked as well.
"""
import difflib
import json
import os
import re
import sys

sys.path.insert(0, "test")
from tap import B, check, tell  # noqa: E402

LINE = re.compile(r"^(?:(\w+): )?checkpoint (\d+) device (\d+) kind (\w+) bytes (\d+)$")
HOST = ("host", "host")
NAME = re.compile(r"^(?:(\w+): )?checkpoint (\d+): (.*)$")
CALLS = re.compile(r"^calls \w+ \d+$")
CACHED = ("device", "pool")
HELD = CACHED + ("ipc",)   # an imported block is all of its exporter's segment to the driver
UNIT = 2 << 20      # segments of the cache are multiples of it


def app(name):
    return os.path.join(B, "test/apps", name)


def truth(stdout):
    """{(role, checkpoint): ({(device, kind): bytes}, its name)} as the driver said, zeroes left out."""
    found = {}
    for line in stdout.splitlines():
        named = NAME.match(line)
        if named:
            found[(named.group(1) or "", int(named.group(2)))] = ({}, named.group(3))
            continue
        match = LINE.match(line)
        if match and int(match.group(5)):
            role, number, device, kind, count = match.groups()
            bytes_ = found[(role or "", int(number))][0]
            place = HOST if kind == "host" else (int(device), kind)
            bytes_[place] = bytes_.get(place, 0) + int(count)
    return found


def by_segments(snapshot):
    """The same, as the segments of a snapshot add up. Registered host memory is nobody's."""
    found = {}
    for segment in snapshot["segments"] + snapshot["host_segments"]:
        if segment.get("registered"):
            continue
        place = HOST if segment in snapshot["host_segments"] else (segment["device"], segment["kind"])
        found[place] = found.get(place, 0) + segment["total_size"]
    return {place: count for place, count in found.items() if count}


def by_requests(snapshot):
    """{(device, kind): bytes} that the program asked for and has: what the driver knows to be live without us."""
    found = {}
    for segment in snapshot["segments"] + snapshot["host_segments"]:
        if segment.get("registered"):
            continue
        place = HOST if segment in snapshot["host_segments"] else (segment["device"], segment["kind"])
        cached = segment["kind"] in CACHED and not segment.get("handle") and not segment["total_size"] % UNIT
        asked = sum(b["requested_size"] for b in segment["blocks"] if b["state"] == "active_allocated")
        found[place] = found.get(place, 0) + (asked if cached else segment["total_size"])
    return {place: count for place, count in found.items() if count}


def by_blocks(snapshot):
    """{(device, kind): bytes} of the blocks that the program has."""
    found = {}
    for segment in snapshot["segments"] + snapshot["host_segments"]:
        if not segment.get("registered"):
            place = HOST if segment in snapshot["host_segments"] else (segment["device"], segment["kind"])
            found[place] = found.get(place, 0) + segment["allocated_size"]
    return {place: count for place, count in found.items() if count}


def by_rows(snapshot):
    """The same, as the rows by kind say."""
    found = {HOST: sum(row["allocated_bytes"] for row in snapshot["host"].get("by_kind", []))}
    for device in snapshot["devices"]:
        for row in device.get("by_kind", []):
            found[(device["device"], row["kind"])] = row["allocated_bytes"]
    return {place: count for place, count in found.items() if count}


def snapshots(directory):
    """{(role, checkpoint): snapshot} of the files that checkpoints left."""
    found = {}
    for name in os.listdir(directory):
        match = re.match(r"^(?:(\w+)-)?(\d+)\.json$", name)
        if match:
            with open(os.path.join(directory, name), encoding="utf-8") as text:
                found[(match.group(1) or "", int(match.group(2)))] = json.load(text)
    return found


def except_imports(account):
    return {place: count for place, count in account.items() if place[1] != "ipc"}


def differences(stdout, directory, bare=None, native=False):
    """Every checkpoint whose account is not the truth, as sentences. With a cache what the driver knows to be live
    is what it was asked for by us, and what the program has is what the driver said without us: @bare."""
    wrong = []
    taken = snapshots(directory)
    told = truth(stdout)
    if set(told) != set(taken):
        wrong.append("checkpoints %s but snapshots %s" % (sorted(told), sorted(taken)))
    for key in sorted(set(told) & set(taken)):
        expected, name = told[key]
        accounts = [("the driver", expected, "segments", by_segments(taken[key])),
                    ("the driver", expected, "rows", by_rows(taken[key]))]
        if not native:
            accounts[0] = ("the driver", except_imports(expected), "segments", except_imports(by_segments(taken[key])))
            accounts[1] = ("our blocks", by_blocks(taken[key]), "rows", by_rows(taken[key]))
        if not native and bare is not None:
            without = truth(bare).get(key, ({}, ""))[0]
            accounts.append(("the driver without us", without, "requests", by_requests(taken[key])))
        for whose, want, what, account in accounts:
            if account != want:
                wrong.append("checkpoint %s (%s): %s %s, our %s %s" % (key, name, whose, want, what, account))
    return wrong


def run_pair(room, command, native=False, **options):
    """The program without the library and with it, checkpoints on: (bare, ours, directory of ours)."""
    runs = []
    if native:
        options["allocator"] = "native"
    for preload in (False, True):
        directory = os.path.join(room.path, "checkpoints-%d" % preload)
        os.makedirs(directory, exist_ok=True)
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        runs.append(room.run(command, preload=preload, CHECKPOINT_DIR=directory, **options))
    return runs[0], runs[1], directory


def output(run, native=False):
    """What the program said, without what the driver holds and how often it was called: a cache keeps more than the
    program asked for, and asks less often."""
    lines = run.stdout.splitlines()
    if native:
        return lines
    return [l for l in lines if not (LINE.match(l) and LINE.match(l).group(4) in HELD or CALLS.match(l))]


def alike(bare, ours, native=False):
    """Two runs that differ, if at all, in what the driver holds for a cache."""
    return (bare.returncode, output(bare, native), bare.stderr) == (ours.returncode, output(ours, native), ours.stderr)


def unlike(bare, ours, native=False):
    parted = difflib.unified_diff(output(bare, native), output(ours, native), lineterm="", n=0)
    return "%s // %s" % ("; ".join(list(parted)[:8]), tell(bare, ours))


def conserved(name, room, command, checkpoints=1, told=lambda stdout: stdout, native=False, **options):
    """Test: the program's output is the same with the library, and every checkpoint's account true. @told: its
    output with what another process of it says marked as that one's."""
    bare, ours, directory = run_pair(room, command, native, **options)
    if not check("%s: same output and status" % name, alike(bare, ours, native) and bare.returncode == 0,
                 unlike(bare, ours, native)):
        return None
    wrong = differences(told(ours.stdout), directory, told(bare.stdout), native)
    count = len(truth(told(ours.stdout)))
    enough = count >= checkpoints
    check("%s: at each of %d checkpoints the account is the driver's" % (name, count),
          enough and not wrong, "; ".join(wrong[:3]) or "too few checkpoints")
    return snapshots(directory)
