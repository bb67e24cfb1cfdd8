#!/usr/bin/env python3
"""make compile_commands.json: turn the output of `make -nB V=1`, on standard input, into JSON for clangd and
clang-tidy."""
import json
import os
import re
import shlex
import sys

found = []
for line in sys.stdin:
    if re.match(r"\S*(?:gcc|g\+\+|cc|c\+\+|clang)\b.* -c ", line):
        words = shlex.split(line)
        found.append({"directory": os.getcwd(), "file": words[-1], "output": words[words.index("-o") + 1], "arguments": words})
if not found:
    sys.exit("compile_commands: make named no file to compile")
json.dump(found, sys.stdout, indent=1)
