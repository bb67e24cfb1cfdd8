#!/usr/bin/env bash
# The fake driver against a real one: the conformance program, linked statically and dynamically
# with the stand-in runtime, prints what it printed on a GPU with NVIDIA's (h200.golden).
# timeout: 300
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
build=${B:-build}
golden=test/conformance/h200.golden
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
number=0
failed=0

ok() { number=$((number + 1)); printf 'ok %d - %s\n' "$number" "$1"; }
not_ok() {
	number=$((number + 1))
	failed=1
	printf 'not ok %d - %s # %s\n' "$number" "$1" "$2"
}

for kind in static shared; do
	program=$build/test/conformance/conformance.$kind
	LD_LIBRARY_PATH=$build/fakecuda FAKECUDA_DEVICES=1 timeout -k 5 120 "$program" \
		>"$room/$kind" 2>"$room/$kind.err" </dev/null
	code=$?
	lines=$(wc -l <"$room/$kind")
	if [ "$code" -eq 0 ] && [ "$lines" -gt 500 ] && ! [ -s "$room/$kind.err" ]; then
		ok "the $kind program runs: $lines lines"
	else
		not_ok "the $kind program runs" "exit $code, $lines lines, $(head -c 300 "$room/$kind.err" | tr '\n' ' ')"
	fi
	if ! [ -s "$golden" ]; then
		not_ok "$kind: as on the GPU" "there is no $golden: run scripts/gpu-check.sh on a GPU machine"
	elif diff -u "$golden" "$room/$kind" >"$room/diff"; then
		ok "$kind: as on the GPU, $(wc -l <"$golden") lines"
	else
		not_ok "$kind: as on the GPU" "$(grep -c '^[-+][^-+]' "$room/diff") lines of the diff differ"
		grep '^[-+]' "$room/diff" | head -n 60 | sed 's/^/# /'
	fi
done
if grep -q 'SECTION CUT SHORT\|ENDED BADLY' "$room/static" "$room/shared"; then
	not_ok "no section was cut short" "$(grep -h 'CUT SHORT\|BADLY' "$room/static" | head -n 3 | tr '\n' ' ')"
else
	ok "no section was cut short"
fi
printf '1..%d\n' "$number"
exit "$failed"
