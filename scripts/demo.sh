#!/usr/bin/env bash
# make demo: run an unchanged CUDA program under the library. It shows a live snapshot on SIGUSR1, a caught
# out-of-memory, the snapshot at exit, and another run that is killed with SIGKILL and recovered. With a GPU it uses the
# real driver and runtime, without one the fake device.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build
room=$build/demo
library=$build/libgpumem.so
gpumem=$build/gpumem
rm -rf "$room"
mkdir -p "$room"
chmod 700 "$room"
children=()
trap 'for pid in "${children[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done' EXIT

step() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

if [ -e /dev/nvidia0 ] || { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; }; then
	nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
	command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
	app=$room/demo_app
	"$nvcc" -g -O1 -arch=native -I. -cudart static -o "$app" test/apps/demo_app.cu
	echo "demo: on a real GPU: $(nvidia-smi -L 2>/dev/null | head -n 1)"
else
	app=$room/demo_app
	cp "$build/demo_app" "$app"
	export LD_LIBRARY_PATH=$build/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	echo "demo: no GPU here: the fake device (build/fakecuda) stands in for it"
fi
export GPUMEM_OUTPUT=$room/gpumem.%c.%p.%r.json

# Run a command up to N times, every 0.1 s, until it succeeds; fail if it never does.
until_true() {
	local tries=$1
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}

step "a CUDA program, unchanged, under the library; SIGUSR1 for a live snapshot"
show "LD_PRELOAD=libgpumem.so ./demo_app --wait 60 & kill -USR1 \$!"
LD_PRELOAD=$library "$app" --wait 60 >"$room/app.out" 2>"$room/app.err" &
pid=$!
children+=("$pid")
until_true 600 grep -q '^waiting' "$room/app.out" || { cat "$room/app.out" "$room/app.err"; fail "the program did not get to its wait"; }
kill -USR1 "$pid"
until_true 300 sh -c "ls $room/*.signal-1.json" || fail "no snapshot for the signal"
kill -TERM "$pid" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
LD_PRELOAD=$library "$app" >"$room/app.out" 2>"$room/app.err" || { cat "$room/app.out" "$room/app.err"; fail "the program failed"; }
grep -v ' kind .* bytes ' "$room/app.out"	# without the fake device's account, which is for tests

step "what was live when the signal came"
live=$(ls "$room"/*.signal-1.json)
show "gpumem summary ${live##*/}"
"$gpumem" summary "$live"

step "another one, killed with SIGKILL in the middle of its work"
show "gpumem recover journals"
mkdir -m 700 "$room/journals"
LD_PRELOAD=$library GPUMEM_JOURNAL=$room/journals "$app" --loop >"$room/loop.out" 2>&1 &
pid=$!
children+=("$pid")
until_true 300 sh -c "ls $room/journals/*/*.journal" || { cat "$room/loop.out"; fail "the program began no journal"; }
sleep 0.5
{ kill -KILL "$pid"; wait "$pid"; } 2>/dev/null || true		# bash would say "Killed" here
"$gpumem" recover "$room/journals"

step "its last events"
dead=$(find "$room" -name '*recovered*.json' | head -n 1)
show "gpumem events ${dead##*/} | tail -n 5"
"$gpumem" events "$dead" | tail -n 5

step "the snapshots, JSON each"
ls -l "$room"/*.json

# Without node the page is not built, and gpumem view says so.
step "the killed one as a page for a browser"
show "gpumem view -o demo.html ${dead##*/}"
if "$gpumem" view -o "$room/demo.html" "$dead"; then
	ls -l "$room/demo.html"
fi
