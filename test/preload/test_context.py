"""What dies with a context and what does not; contexts, their handles and their devices told apart."""
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, by_segments, conserved, truth  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def survivors(name, room, taken):
    """Of everything in a context, pools and VMM handles alone outlive it."""
    told = truth(room.run([app(name)], preload=False).stdout)
    at = {text: taken[key] for key, (_, text) in told.items()}
    kinds = {kind for _, kind in by_segments(at["everything in a primary context"])}
    check("%s: everything was there" % name, kinds == {"device", "managed", "array", "host", "pool", "vmm"}, kinds)
    for moment in ("released for good, the context gone", "reset"):
        kinds = {kind for _, kind in by_segments(at[moment])}
        check("%s: %s: pools and handles remain" % (name, moment), kinds == {"pool", "vmm"}, kinds)
        check("%s: %s: no registered memory" % (name, moment),
              not [s for s in at[moment]["host_segments"] if s.get("registered")])
    devices = at["all given back, the context too"]["devices"]
    check("%s: both devices are named and told apart" % name,
          len(devices) == 2 and all(d["name"] and d["total_bytes"] for d in devices) and
          devices[0]["uuid"] != devices[1]["uuid"], devices)


def main():
    for name, checkpoints in (("app_ctx", 7), ("app_lives", 20), ("app_multidev.static", 1)):
        with Room() as room:
            taken = conserved(name, room, [app(name)], checkpoints=checkpoints)
            if taken and name == "app_lives":
                survivors(name, room, taken)
    finish()


main()
