#!/usr/bin/env bash
# Write the generated parts of the README: the table of options, as gpumem prints it.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 - "$(build/gpumem options --markdown)" <<'PY'
import re
import sys

with open("README.md", encoding="utf-8") as text:
    readme = text.read()
readme = re.sub(r"(<!-- options: begin -->\n).*?(<!-- options: end -->)",
                lambda found: found.group(1) + sys.argv[1] + "\n" + found.group(2), readme, flags=re.DOTALL)
with open("README.md", "w", encoding="utf-8") as text:
    text.write(readme)
PY
