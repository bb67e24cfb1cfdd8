#!/usr/bin/env bash
# make lint: find what a compiler does not report. The last line names missing tools; in CI, lint fails without them.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8	# columns are characters, and pictures in comments have some of three bytes
status=0
missing=
jobs=$(nproc 2>/dev/null || echo 2)
have() { command -v "$1" >/dev/null 2>&1 || { missing="$missing $1"; return 1; }; }

if have shellcheck; then
	shellcheck -S warning scripts/*.sh packaging/*.sh .ci/run .githooks/* test/*/*.sh || status=1
fi
if have cppcheck; then
	cppcheck -j "$jobs" --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
		--suppress=missingIncludeSystem --suppress='*:/usr/*' --suppress=ctuuninitvar -I. \
		-DGPUMEM_VERSION='""' -D'ElfW(t)=Elf64_##t' \
		-D'json_array_foreach(a,i,v)=for(i=0;(v=json_array_get(a,i));i++)' \
		-D'json_object_foreach(o,k,v)=for(k="";(v=json_object_get(o,k));)' \
		allocator recorder preload tools || status=1
fi
if have clang; then
	cuda=${CUDA_HOME:-/usr/local/cuda}
	printf '%s\n' allocator/*.c recorder/*/*.c preload/*/*.c tools/*/*.c | xargs -P "$jobs" -n 16 \
		clang -fsyntax-only -std=gnu11 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes \
			-Wmissing-prototypes -Wvla -Werror -I. -isystem "$cuda/include" \
			-DGPUMEM_VERSION='""' || status=1
fi
# The floors: each may include only the floors below it.
if grep -nE '#include "(recorder|preload|tools)/' allocator/*.[ch]; then
	echo 'lint: allocator/ includes from a floor above it'; status=1
fi
if grep -nE '#include "(preload|tools)/' recorder/*/*.[ch]; then
	echo 'lint: recorder/ includes from a floor above it'; status=1
fi
if grep -nE '#include "allocator/' recorder/*/*.[ch] | grep -vE '"allocator/(table|lock)\.h"'; then
	echo 'lint: recorder/ may read allocator/table.h and lock.h only'; status=1
fi
# The parts of the cache that need no driver are tested without one.
if grep -nE '#include "preload/' preload/cache/cache_heap*.[ch] preload/cache/thread_cache*.[ch] preload/order/reuse*.[ch] \
	preload/order/timeline*.[ch] | grep -vE '"preload/(cache/(cache_heap|thread_cache)|order/(reuse|timeline))'; then
	echo 'lint: the heaps and thread caches of preload/cache/, reuse and the timeline may read nothing else of preload/'; status=1
fi
if grep -nE '#include "preload/' tools/*/*.[ch] | grep -vE '"preload/options/'; then
	echo 'lint: tools/ may read the options of preload/ only'; status=1
fi
if grep -nE '#include <cuda' allocator/*.[ch]; then
	echo 'lint: allocator/ knows no CUDA header'; status=1
fi
# Lines of C outside the tests have at most 120 columns, with tabs of 8. One process checks all files.
find allocator recorder preload tools -name node_modules -prune -o \( -name '*.[chS]' -o -name '*.def' \) -print0 | python3 -c '
import sys
bad = 0
for path in sys.stdin.read().split("\0")[:-1]:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n").expandtabs(8)
            if len(line) > 120:
                print("%s:%d:%s" % (path, number, line[:80]))
                bad = 1
sys.exit(bad)' || { echo 'lint: a line of more than 120 columns'; status=1; }
# Benchmarks are run by hand: check at least that they can be compiled.
if have node; then
	for file in test/bench/*.mjs test/viewer/pictures.mjs; do
		node --check "$file" || status=1
	done
fi
if have pyflakes3; then
	find scripts test tools -name node_modules -prune -o -name '*.py' -print0 | xargs -0 -P "$jobs" -n 40 pyflakes3 || status=1
fi
python3 scripts/lint_rings.py || status=1
# Check the commits since the rule exists; the hook in .githooks checks a commit before it is made.
if [ -e .git ] && commits=$(git log --no-merges --since=2026-11-24T12:30:00Z --format='%h %s' 2>/dev/null) &&
	grep -E '^[^ ]+ .{73}' <<<"$commits"; then
	echo 'lint: the first line of a commit has at most 72 characters'; status=1
fi
if [ -n "$missing" ]; then
	echo "lint: not linted, for want of:$missing"
	[ -z "${CI:-}" ] || status=1
fi
exit $status
