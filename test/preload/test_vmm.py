"""Virtual memory: handles by references and mappings, mapped in part, in rows, by the thousand."""
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from account import app, conserved, truth  # noqa: E402
from tap import Room, check, finish  # noqa: E402


def overlaps(snapshot):
    """Segments that say where they are must not lie in each other."""
    last, wrong = None, []
    for s in sorted((s for s in snapshot["segments"] if not s.get("unmapped")), key=lambda s: s["address"]):
        if last and last["address"] + last["total_size"] > s["address"]:
            wrong.append((last["address"], s["address"]))
        last = s
    return wrong


def main():
    with Room() as room:
        taken = conserved("app_vmm", room, [app("app_vmm")], checkpoints=20)
        if taken:
            told = truth(room.run([app("app_vmm")], preload=False).stdout)
            at = {text: taken[key] for key, (_, text) in told.items()}
            wrong = [o for snapshot in taken.values() for o in overlaps(snapshot)]
            check("no record covers its neighbour", not wrong, wrong[:3])
            held = [at[name]["segments"] for name in ("mappings with holes between them", "one is left")]
            check("a handle whose first mapping goes is shown at the next",
                  len(held[0]) == 2 and len(held[1]) == 1 and
                  held[1][0]["address"] == min(s["address"] for s in held[0]) + (7 * (2 << 20)), held)
            many = at["three thousand handles"]["segments"]
            check("three thousand handles, on two devices",
                  len(many) == 3000 and len({s["address"] for s in many}) == 3000 and
                  {s["device"] for s in many} == {0, 1} and not any(s.get("unmapped") for s in many), len(many))
            host = [s for s in at["memory of the host, mapped"]["host_segments"] if s["kind"] == "vmm"]
            check("a handle of the host is the host's", len(host) == 1 and host[0]["total_size"] == 2 << 20, host)
    finish()


main()
