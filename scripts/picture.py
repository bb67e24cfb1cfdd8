#!/usr/bin/env python3
"""Draw docs/summary.svg, the README's picture: a program that runs out of memory, and what gpumem says of it.

usage: scripts/picture.py [FILE.svg]     after make and make tests; needs no GPU

It runs build/test/apps/app_training on the fake device, here with 1 GiB, and draws the terminal's output. Long lines
are folded.
"""
import glob
import html
import os
import subprocess
import sys
import tempfile
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("B", os.path.join(ROOT, "build")))
COLUMNS = 112
WIDTH, LINE, LEFT, TOP = 8.0, 18, 18, 52       # of a character, of a line, of the margins
COLOURS = {"prompt": "#7ec699", "command": "#ffffff", "text": "#d4d4d4"}


def terminal():
    """Yield the lines of the picture, as (kind, text)."""
    with tempfile.TemporaryDirectory() as place:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUMEM_", "FAKECUDA_"))}
        env.update(LD_LIBRARY_PATH=os.path.join(BUILD, "fakecuda"), FAKECUDA_CAPACITY="1GiB", TMPDIR=place)
        gpumem = os.path.join(BUILD, "gpumem")
        app = os.path.join(BUILD, "test/apps/app_training")
        # Run in the program's directory, as a user would, so that paths in the output are short.
        os.symlink(app, os.path.join(place, "app_training"))
        run = subprocess.run([gpumem, "run", "--output=%c.%r.json", "--", "./app_training", "--steps", "2000", "--leak"],
                             cwd=place, env=env, capture_output=True, text=True, check=False)
        failures = glob.glob(os.path.join(place, "*.oom-1.json"))
        if len(failures) != 1:
            sys.exit("picture.py: no snapshot of memory running out: " + run.stderr)
        name = os.path.basename(failures[0])
        summary = subprocess.run([gpumem, "summary", failures[0]], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    yield "command", "gpumem run --output=%c.%r.json -- ./app_training --steps 2000 --leak"
    for line in run.stderr.splitlines():
        yield "text", line.replace(place + "/", "")
    yield "command", "gpumem summary " + name
    for line in summary.stdout.splitlines():
        yield "text", line.replace(place + "/", "")


def folded(lines):
    """Fold long lines, and leave out all but one of several blank lines."""
    before = ""
    for kind, line in lines:
        width = COLUMNS - (2 if kind == "command" else 0)
        for part in textwrap.wrap(line, width, break_long_words=False, drop_whitespace=True) or [""]:
            part = part if part.strip() or before.strip() else None
            if part is not None:
                yield kind, part
                before = part
    yield "prompt", ""


def svg(lines):
    lines = list(lines)
    width, height = int(2 * LEFT + COLUMNS * WIDTH), TOP + LINE * len(lines) + 8
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">' % (width, height, width, height),
           "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}</style>",
           '<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>']
    for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        out.append('<circle cx="%d" cy="20" r="6" fill="%s"/>' % (24 + 20 * i, colour))

    def put(column, y, kind, text):
        # textLength keeps the columns aligned in every font.
        out.append('<text x="%g" y="%d" fill="%s" textLength="%g" xml:space="preserve">%s</text>' %
                   (LEFT + column * WIDTH, y, COLOURS[kind], len(text) * WIDTH, html.escape(text, quote=False)))

    for i, (kind, line) in enumerate(lines):
        y = TOP + LINE * i + 4
        if kind in ("command", "prompt"):
            put(0, y, "prompt", "$")
        if line:
            put(2 if kind == "command" else 0, y, kind, line)
    return "\n".join(out) + "\n</svg>\n"


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs/summary.svg")
    picture = svg(folded(terminal()))
    with open(target, "w", encoding="utf-8") as file:
        file.write(picture)
