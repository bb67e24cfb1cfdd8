"""All pages: their links lead somewhere, their commands and targets are there, and the table of options is gpumem's own."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import GPUMEM, check, finish  # noqa: E402

PAGES = [page for page in subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=False).stdout.split()
         if os.path.exists(page)]
if not PAGES:       # an export without its history
    PAGES = [os.path.join(place, name) for place in (".", "docs", "test", "test/fakecuda") for name in os.listdir(place) if name.endswith(".md")]
TEXT = {}
for page in PAGES:
    with open(page, encoding="utf-8") as text:
        TEXT[page] = text.read()
check("there are pages", len(PAGES) >= 10, PAGES)


def titles(page):
    """The anchors of a page, as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", TEXT[page], re.M)}


for page in PAGES:
    broken = []
    for target in set(re.findall(r"\]\(([^)]+)\)", TEXT[page])):
        path, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not target.startswith("http") and (not os.path.exists(there) or (anchor and there in TEXT and anchor not in titles(there))):
            broken.append(target)
    check("%s: its links lead somewhere" % page, not broken, broken)

# ---- targets of make, verbs of gpumem with their options -------------------------------------------------------------------
with open("Makefile", encoding="utf-8") as text:
    MAKEFILE = text.read()
for page in PAGES:
    for target in sorted(set(re.findall(r"^(?:`)?make(?: -j\d+)? ([a-z][a-z0-9-]*)\b(?!/)", TEXT[page], re.M)) |
                         set(re.findall(r"`make ([a-z0-9-]+)[` ]", TEXT[page]))):
        check("%s: make %s is a target" % (page, target), re.search(r"^(?:[\w-]+ )*%s(?: [\w-]+)*:" % target, MAKEFILE, re.M))
verbs = set(re.findall(r"^  ([a-z]+) ", subprocess.run([GPUMEM, "help"], capture_output=True, text=True, check=True).stdout, re.M))
library = {row["name"] for row in json.loads(subprocess.run([GPUMEM, "options", "--json"], capture_output=True, text=True, check=True).stdout)}
accepted = {}
for verb in verbs:
    text = subprocess.run([GPUMEM, "help", verb], capture_output=True, text=True, check=True).stdout
    accepted[verb] = set(re.findall(r"--([a-z-]+)", text)) | {"help", "man"}
for page in PAGES:
    if page.endswith("fleet.md"):       # test_fleet.py runs its commands
        continue
    wrong = []
    for verb, words in re.findall(r"(?:^|`|\$ )gpumem ([a-z]+)\b([^`|#\n]*)", TEXT[page], re.M):
        flags = set(re.findall(r"(?:^| )--([a-z][a-z-]*)", words.split(" -- ")[0]))
        known = accepted.get(verb, set()) | ({name.replace("_", "-") for name in library} | {"name"} if verb == "run" else set())
        if verb not in verbs or not flags <= known:
            wrong.append((verb, words))
    check("%s: gpumem's verbs and their options" % page, not wrong, wrong)

# ---- options ---------------------------------------------------------------------------------------------------------------
table = subprocess.run([GPUMEM, "options", "--markdown"], capture_output=True, text=True, check=True).stdout
inside = re.search(r"<!-- options: begin -->\n(.*?)<!-- options: end -->", TEXT["docs/options.md"], re.DOTALL)
check("docs/options.md has gpumem's own table (scripts/pages.sh writes it)", inside and inside.group(1) == table)
for page in PAGES:
    unknown = {name for name in re.findall(r"GPUMEM_([A-Z_]+)=", TEXT[page]) if name != "CONF" and name != "NAME" and name.lower() not in library}
    for pair in re.findall(r"GPUMEM_CONF=([a-z_]+):", TEXT[page]):
        unknown |= {pair} - library - {"name"}
    check("%s: the options that it names are there" % page, not unknown, unknown)
finish()
