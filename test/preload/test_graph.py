"""Graphs that own memory: what they hold on a device is the driver's own number, at every step."""
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, by_requests, by_segments, conserved  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def main():
    with Room() as room:
        taken = conserved("app_graph", room, [app("app_graph")], checkpoints=22)
        if taken:
            held = [by_segments(snapshot) for snapshot in taken.values()]
            check("graphs held memory on both devices",
                  any((0, "graph") in h for h in held) and any((1, "graph") in h for h in held), held)
            most = max(sum(1 for s in snapshot["segments"] if s["kind"] == "graph") for snapshot in taken.values())
            check("one record a device", most == 2, most)
            check("what is captured is not counted as a pool's",
                  max(by_requests(s).get((0, "pool"), 0) for s in taken.values()) == 2 << 20, held)
    for name in ("app_capture.static", "app_capture.shared"):
        with Room() as room:
            taken = conserved(name, room, [app(name)])
            if taken:
                check("%s: nothing is left" % name, not any(by_requests(s) for s in taken.values()))
    finish()


main()
