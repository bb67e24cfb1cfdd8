# timeout: 400
"""Live bytes per device and kind in the snapshot equal what the driver says, for every test program,
at every one of its checkpoints: the statically and the dynamically linked runtime, and the driver alone. By default,
and with allocator:native, where each byte of the program's is one of the driver's."""
import os
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, conserved, truth, differences  # noqa: E402
from tap import B, Room, check, finish  # noqa: E402

# It prints how often the driver was called, by us too.
LEFT_OUT = {"app_calls"}


def programs():
    for name in sorted(os.listdir(os.path.join(B, "test/apps"))):
        path = app(name)
        if name.split(".")[0] not in LEFT_OUT and os.access(path, os.X_OK) and not name.endswith((".d", ".o")):
            yield name


def forked(stdout):
    """A forked child writes to the same output, before this line of its parent's."""
    child, line, parent = stdout.partition("a child forked before CUDA: ok\n")
    return "".join("child: " + l for l in child.splitlines(True)) + line + parent if line else stdout


def can_fail():
    """The comparison itself: a byte too many, a checkpoint too few are found."""
    stdout = "checkpoint 1: a\ncheckpoint 1 device 0 kind device bytes 100\n"
    with Room() as room:
        path = os.path.join(room.path, "1.json")
        for size, native, wanted in ((100, False, 0), (101, False, 1), (100, True, 0), (101, True, 2)):
            with open(path, "w", encoding="utf-8") as text:
                text.write('{"segments": [{"device": 0, "kind": "device", "total_size": %d, "allocated_size": %d}], "host_segments": [],'
                           '"host": {}, "devices": [{"device": 0, "by_kind":'
                           '[{"kind": "device", "allocated_bytes": %d}]}]}' % (size, size, size))
            check("the comparison sees %d for 100 bytes, native %s" % (size, native),
                  len(differences(stdout, room.path, native=native)) == wanted, differences(stdout, room.path, native=native))
        os.unlink(path)
        check("the comparison misses no checkpoint", len(differences(stdout, room.path)) == 1)
    check("the truth is read", truth(stdout) == {("", 1): ({(0, "device"): 100}, "a")})


def main():
    can_fail()
    names = list(programs())
    check("there are programs to run", len(names) >= 15, names)
    for native in (False, True):
        for name in names:
            with Room() as room:
                conserved(name + (", native" if native else ""), room, [app(name)], checkpoints=0, told=forked, native=native)
    for seed in range(2, 8):
        with Room() as room:
            conserved("app_random, seed %d" % seed, room, [app("app_random"), str(seed)], checkpoints=30, native=seed == 7)
    finish()


main()
