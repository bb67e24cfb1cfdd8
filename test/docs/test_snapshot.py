"""docs/snapshot.md names every member of every object in a snapshot, in that object's own section, and none that there is not."""
import glob
import json
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/tools")
from tap import B, Room, check, finish  # noqa: E402
from verbs import APP, gpumem, killed_journal, load  # noqa: E402

with open("docs/snapshot.md", encoding="utf-8") as page:
    TEXT = page.read()
SECTIONS = {title: body for title, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", TEXT, re.M)}
# Where the members of what lies below each member of the whole are told of.
SECTION_OF = {"recovered": "recovered", "process": "process", "allocator_settings": "allocator_settings",
              "history": "history, refused", "refused": "history, refused", "failure": "failure, failures",
              "failures": "failure, failures", "devices": "devices, host", "host": "devices, host",
              "segments": "segments, host_segments", "host_segments": "segments, host_segments",
              "device_traces": "device_traces, host_trace", "host_trace": "device_traces, host_trace",
              "frames": "frames, modules", "modules": "frames, modules", "annotations": "annotations", "pools": "pools"}
# Of a pool, what has the shape of something above.
SHAPE_OF = {"segments": "segments, host_segments", "trace": "device_traces, host_trace"}
HOLDERS = ("by_module", "by_kind", "at_peak")      # wherever they are
with open("test/data/torch-stats-and-summary.json", encoding="utf-8") as text:
    TORCH_STATS = set(json.load(text)["stats"])
OPTIONS = {option["name"] for option in json.loads(gpumem("options", "--json").stdout)}
# Told of by a rule instead of one by one: what they may be.
RULES = {"memory_stats": TORCH_STATS.__contains__, "gpumem": OPTIONS.__contains__,
         "roundup_power2_divisions": re.compile(r"[0-9]+").fullmatch, "registers": re.compile(r"[a-z0-9]+").fullmatch}


def words(text):
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))


WORDS = {title: words(body) for title, body in SECTIONS.items()}


def members(value, section, found, rule=None):
    """Add (section, member, is it told of?) of all objects in @value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            found.add((section, key, bool(rule(key) if rule else key in WORDS[section])))
            below = SECTION_OF.get(key, section) if section == "The whole" else "devices, host" if key in HOLDERS else \
                SHAPE_OF.get(key, section) if section == "pools" else section
            members(inner, below, found, None if rule else RULES.get(key))
    elif isinstance(value, list):
        for inner in value[:200]:
            members(inner, section, found)
    return found


with Room() as room:
    room.run([APP])
    room.run([os.path.join(B, "test/apps/app_kinds.static")])
    room.run([os.path.join(B, "test/preload/crash"), "segv"])
    room.run([os.path.join(B, "test/preload/script"), "alloc 100", "annotate here", "exit 0"])
    room.run([sys.executable, "-c", "from pool_user import *; context(); given(pool('mine'), malloc(4096), 512); given(1, 77, 512)"],
             PYTHONPATH=os.path.abspath("test/preload/programs"))
    paths = glob.glob(room.out + "/*.json")
    _, journal = killed_journal(room, 0.2, "--threads", "4")
    gpumem("recover", "-o", os.path.join(room.out, "r.json"), journal)
    ALL = set()
    NAMES = [os.path.basename(path) for path in paths] + ["r.json"]
    KEPT = [load(path) for path in paths + [room.out + "/r.json"]]
    for one in KEPT:
        members(one, "The whole", ALL)
FOUND = {key for _, key, _ in ALL}
check("snapshots of an exit, an oom, a crash, a kill, an annotation", len(FOUND) > 200 and
      {"limbo_bytes", "signal_name", "in_flight", "stage"} <= FOUND, len(FOUND))
untold = sorted({(section, key) for section, key, told in ALL if not told})
check("every member is in docs/snapshot.md, in the section of its object", not untold, untold)
# And those that these snapshots happen not to have: every name that the writer gives.
GIVEN = set()
for path in glob.glob("recorder/snapshot/*.c"):
    with open(path, encoding="utf-8") as text:
        GIVEN |= set(re.findall(r'(?:_key\w*|COLUMN)\(\s*[^",;]+,\s*"(\w+)"', text.read()))
everywhere = TORCH_STATS.union(*WORDS.values())
check("every name in the source of the writer is, too (%d)" % len(GIVEN), len(GIVEN) > 100 and not GIVEN - everywhere,
      sorted(GIVEN - everywhere))
first_column = set()
for line in TEXT.splitlines():
    if line.startswith("| `"):
        first_column |= set(re.findall(r"`(?:\w+(?:\[\])?\.)?(\w+)`", line.split("|")[1]))
# What only some snapshots have.
rare = {"freeing", "outside", "untraced", "stage", "domain", "range", "handle", "registered", "unmapped", "inlined", "symbol"}
check("every member of its tables is in a snapshot", not first_column - FOUND - rare, sorted(first_column - FOUND - rare))


# ---- docs/snapshot.schema.json -------------------------------------------------------------------------------------

try:
    import jsonschema
except ImportError:                     # another Python than Debian's, which has it
    sys.path.append("/usr/lib/python3/dist-packages")
    import jsonschema


def strict(schema):
    """@schema where no object has a member that it does not name."""
    if isinstance(schema, dict):
        made = {key: strict(value) for key, value in schema.items()}
        if made.get("type") == "object" and "properties" in made:
            made.setdefault("additionalProperties", False)
        return made
    return [strict(value) for value in schema] if isinstance(schema, list) else schema


with open("docs/snapshot.schema.json", encoding="utf-8") as text:
    SCHEMA = json.load(text)
JUDGE = jsonschema.Draft202012Validator
JUDGE.check_schema(SCHEMA)
EXACT = JUDGE(strict(SCHEMA))
for path, name in zip(KEPT, NAMES):
    wrong = [(list(e.absolute_path)[:4], e.message[:200]) for e in EXACT.iter_errors(path)]
    check("the schema: %s has its shape, and no member besides" % name, not wrong, wrong[:3])
one = json.loads(json.dumps(KEPT[0]))
one["pools"] = [{"number": 0}]
check("the schema refuses what is no pool", list(JUDGE(SCHEMA).iter_errors(one)))
one = dict(KEPT[0], later=1)
check("the schema lets a later member pass", not list(JUDGE(SCHEMA).iter_errors(one)))
finish()
