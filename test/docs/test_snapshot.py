"""docs/snapshot.md names every member of every object in a snapshot, and no member that there is none of."""
import glob
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, killed_journal, load  # noqa: E402

with open("docs/snapshot.md", encoding="utf-8") as page:
    TEXT = page.read()
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", TEXT))))
# Named by a rule instead of one by one.
OPEN = {"memory_stats", "refused", "gpumem", "roundup_power2_divisions", "registers"}


def members(value, found):
    if isinstance(value, dict):
        for key, inner in value.items():
            found.add(key)
            if key not in OPEN:
                members(inner, found)
    elif isinstance(value, list):
        for inner in value[:50]:
            members(inner, found)
    return found


with Room() as room:
    room.run([APP])
    room.run([os.path.join(B, "test/preload/crash"), "segv"])
    paths = glob.glob(room.out + "/*.json")
    _, journal = killed_journal(room, 0.2, "--threads", "4")
    gpumem("recover", "-o", os.path.join(room.out, "r.json"), journal)
    FOUND = set()
    for path in paths + [room.out + "/r.json"]:
        members(load(path), FOUND)
check("snapshots of an exit, an oom, a crash and a kill", len(FOUND) > 100, len(FOUND))
check("every member is in docs/snapshot.md", not FOUND - WORDS, sorted(FOUND - WORDS))
first_column = set()
for line in TEXT.splitlines():
    if line.startswith("| `"):
        first_column |= set(re.findall(r"`(?:\w+(?:\[\])?\.)?(\w+)`", line.split("|")[1]))
# What only some snapshots have.
rare = {"freeing", "untraced", "stage", "domain", "range", "handle", "registered", "unmapped", "inlined"}
check("every member of its tables is in a snapshot", not first_column - FOUND - rare, sorted(first_column - FOUND - rare))
finish()
