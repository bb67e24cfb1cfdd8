#!/usr/bin/env bash
# make bench: every benchmark, one after the other, on a machine that is named first.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${B:-build}
echo "machine: $(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $(nproc) cores, kernel $(uname -r)"
for bench in "$build"/test/bench/bench_*; do
	[ -x "$bench" ] && [ -f "$bench" ] || continue
	echo
	echo "== ${bench##*/}"
	"$bench"
done
echo
echo "== bench_verbs.py"
B=$build "${PYTHON:-python3}" test/bench/bench_verbs.py
echo "== bench_viewer.mjs"
node test/bench/bench_viewer.mjs || echo "the viewer was not measured"
