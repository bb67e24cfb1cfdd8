"""README.md: short enough to be read, every verb is in it, and its picture shows what the program says."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, "test")
from tap import GPUMEM, check, finish  # noqa: E402

MOST_WORDS = 1500
with open("README.md", encoding="utf-8") as text:
    README = text.read()

check("the README has at most %d words" % MOST_WORDS, len(README.split()) <= MOST_WORDS, len(README.split()))
usage = subprocess.run([GPUMEM, "help"], capture_output=True, text=True, check=True).stdout
for verb in re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE):
    check("the README shows the verb %s" % verb, re.search(r"gpumem %s\b" % verb, README))
    done = subprocess.run([GPUMEM, "help", verb], capture_output=True, text=True, check=False)
    check("gpumem help %s" % verb, done.returncode == 0 and done.stdout.startswith("usage: gpumem " + verb), done.stdout)


def shown(path):
    """The text of a picture, without what differs from run to run: process, machine, time, figures."""
    with open(path, encoding="utf-8") as picture:
        lines = re.findall(r"<text [^>]*>([^<]*)</text>", picture.read())
    words = re.sub(r"\d+(\.\d+)?", "0", " ".join(lines))
    return re.sub(r"\bon \S+\)", "on HOST)", re.sub(r" +", " ", words))


with tempfile.TemporaryDirectory() as place:
    now = os.path.join(place, "summary.svg")
    done = subprocess.run(["scripts/picture.py", now], capture_output=True, text=True, check=False)
    check("scripts/picture.py draws the picture", done.returncode == 0 and os.path.exists(now), done.stderr[-500:])
    check("docs/summary.svg is what the program says today (scripts/pages.sh picture draws it)",
          os.path.exists(now) and shown("docs/summary.svg") == shown(now), (shown("docs/summary.svg"), os.path.exists(now) and shown(now)))
    check("it shows who asked, who holds the memory, and what to change",
          all(word in shown("docs/summary.svg") for word in ("asked for", "by call site", "remember_loss", "gpumem replay --search")))
finish()
