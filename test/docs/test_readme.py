"""The README says what the program says: the table of options is printed by gpumem itself."""
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import GPUMEM, check, finish  # noqa: E402

with open("README.md", encoding="utf-8") as text:
    README = text.read()

table = subprocess.run([GPUMEM, "options", "--markdown"], capture_output=True, text=True, check=True).stdout
inside = re.search(r"<!-- options: begin -->\n(.*?)<!-- options: end -->", README, re.DOTALL)
check("the options table is gpumem's own (scripts/readme.sh writes it)", inside and inside.group(1) == table)

usage = subprocess.run([GPUMEM, "help"], capture_output=True, text=True, check=True).stdout
for verb in re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE):
    check("the README shows the verb %s" % verb, re.search(r"gpumem %s\b" % verb, README))
    done = subprocess.run([GPUMEM, "help", verb], capture_output=True, text=True, check=False)
    check("gpumem help %s" % verb, done.returncode == 0 and done.stdout.startswith("usage: gpumem " + verb), done.stdout)
for path in sorted(set(re.findall(r"\]\(([^)#]+)\)", README))):
    check("%s is there" % path, path.startswith("http") or os.path.exists(path))
for target in re.findall(r"^make ([a-z-]+)", README, re.MULTILINE):
    done = subprocess.run(["make", "-n", target], capture_output=True, text=True, check=False)
    check("make %s is a target" % target, done.returncode == 0, done.stderr[-300:])
finish()
