"""Who holds what in a snapshot, computed apart from gpumem; and refusals that every verb shares."""
import json
import os

from tap import check
from verbs import gpumem


def live(snapshot, host=False):
    """The blocks that are live and not freed, of the devices (or of the host)."""
    return [b for s in snapshot["host_segments" if host else "segments"] if not s.get("registered")
            for b in s["blocks"] if b["state"] == "active_allocated" and b["kind"] != "ipc"]


def frames(snapshot, stack):
    """[(name as shown, module)], innermost first."""
    found = []
    for number in snapshot["stacks"][stack]:
        frame = snapshot["frames"][number]
        module = os.path.basename(snapshot["modules"][frame["module"]]["path"])
        found.append((frame["name"] or ("%s+0x%x" % (module, frame["offset"]) if module else "??"), module))
    return tuple(found)


def by_stack(snapshot, blocks):
    """{stack: [bytes, blocks]}"""
    sums = {}
    for block in blocks:
        entry = sums.setdefault(frames(snapshot, block["stack"]), [0, 0])
        entry[0] += block["requested_size"]
        entry[1] += 1
    return sums


def as_key(stack):
    return tuple((f["name"], f["module"]) for f in stack)


def refusals(verb, room, snapshot, *flags, twice=False):
    """What cannot be read: exit 3 and a line, no output."""
    path = os.path.join(room.path, "refused")
    text = json.dumps(snapshot).encode()
    for name, content, says in (("cut off", text[:len(text) // 2], "cut off"), ("empty", b"", "empty"),
                                ("no JSON", b"\x7fELF", "not a snapshot"), ("foreign", b'{"a": [1]}', "not a snapshot of gpumem"),
                                ("a later version", b'{"format": "gpumem-snapshot", "version": 7}', "version 7"),
                                ("a hostile pickle", b"\x80\x04cposix\nsystem\n.", "never done")):
        with open(path, "wb") as out:
            out.write(content)
        run = gpumem(verb, *flags, *([path] * (2 if twice else 1)))
        check("%s: %s: exit 3, and why" % (verb, name), run.returncode == 3 and says in run.stderr and path in run.stderr and
              run.stdout.strip() in ("", '{\n  "ok": false,\n  "offences": []\n}'), run)
    for name, content in (("nothing", {}), ("odd", {
            "segments": [1, {"device": 0, "blocks": [3, {"state": "x", "size": -1, "requested_size": 2 ** 63 - 1, "stack": 2 ** 40},
                                                     {"address": 1, "state": "active_allocated", "requested_size": 2 ** 63 - 1}]}],
            "device_traces": [{"action": ["alloc", "alloc"], "addr": [5, 6], "size": [2 ** 63 - 1, 2 ** 63 - 1], "stream": [0, 0],
                               "time_us": [0, 0], "stack": [-5, 1], "thread": [0, 0], "kind": ["", None], "module": [-1, 99]}],
            "stacks": [[1, 2], [0, -1, 99]], "frames": "no", "modules": {}, "devices": [None, {"present": True, "memory_stats": 5}]})):
        with open(path, "w", encoding="utf-8") as out:
            json.dump(dict({"format": "gpumem-snapshot", "version": 1}, **content), out)
        run = gpumem(verb, *flags, *([path] * (2 if twice else 1)))
        check("%s: a snapshot with %s in it: read as far as it goes" % (verb, name), run.returncode in (0, 1) and
              (not run.stderr or verb == "flame" and "nothing to draw" in run.stderr and run.stderr.count("\n") == 1), run)
    run = gpumem(verb, *flags, room.path, *([path] if twice else []))
    check("%s: a directory: exit 3" % verb, run.returncode == 3 and "a directory" in run.stderr, run)
    run = gpumem(verb, "--help")
    check("%s: --help" % verb, run.returncode == 0 and run.stdout.startswith("usage: gpumem " + verb), run)
    run = gpumem(verb, "--frobnicate")
    check("%s: an unknown flag: exit 2" % verb, run.returncode == 2 and "usage:" in run.stderr, run)
