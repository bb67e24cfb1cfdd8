#!/usr/bin/env bash
# Write the generated parts of the docs: the table of docs/options.md, which gpumem prints, and with the argument
# "picture" also docs/summary.svg (scripts/picture.py; after make tests).
set -euo pipefail
cd "$(dirname "$0")/.."
python3 - "$(build/gpumem options --markdown)" <<'PY'
import re
import sys

with open("docs/options.md", encoding="utf-8") as text:
    page = text.read()
page = re.sub(r"(<!-- options: begin -->\n).*?(<!-- options: end -->)",
              lambda found: found.group(1) + sys.argv[1] + "\n" + found.group(2), page, flags=re.DOTALL)
with open("docs/options.md", "w", encoding="utf-8") as text:
    text.write(page)
PY
[ "${1:-}" != picture ] || scripts/picture.py
