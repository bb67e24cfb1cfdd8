#!/usr/bin/env bash
# Everything that wants two GPUs, in one call of at most nine minutes: a line for each, then the totals.
#
#   test/gpu/devices.sh [A B]
#
# A and B are the devices, 0 and 1. On a machine with one, "0 0" tries the programs themselves, without peer access.
# Needs a CUDA toolkit, build/libgpumem.so and build/gpumem; PyTorch for its part.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
library=$PWD/build/libgpumem.so
gpumem=$PWD/build/gpumem
python=${PYTHON:-python3}
devices=("${1:-0}" "${2:-1}")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$(command -v "$nvcc")" ] || { echo "devices: no nvcc: set CUDA_HOME" >&2; exit 2; }
[ -e "$library" ] || { echo "devices: no $library: make it first" >&2; exit 2; }
unset LD_PRELOAD "${!GPUMEM_@}"
export NCCL_NVLS_ENABLE=0
passed=0
failed=0
skipped=0
modes=("default " "exact GPUMEM_SHARED_SEGMENTS=0" "pages GPUMEM_EXPANDABLE_SEGMENTS=True" "native GPUMEM_ALLOCATOR=native")

# NAME, bare's and our exit status, the file of our output: what came of it.
judge() {
	if [ "$2" -ne 0 ]; then
		skipped=$((skipped + 1))
		printf 'skip  %s: without the library: exit %d: %s\n' "$1" "$2" "$(tail -n 1 "$room/bare")"
	elif [ "${limit:-}" ] && [ "$(cat "$4")" = "$limit" ]; then
		skipped=$((skipped + 1))
		printf 'skip  %s: %s: as docs/limits.md says\n' "$1" "$limit"
	elif [ "$3" -ne 0 ] || ! cmp -s "$room/bare" "$4"; then
		failed=$((failed + 1))
		printf 'FAIL  %s: exit %d: %s\n' "$1" "$3" "$(diff "$room/bare" "$4" | sed -n 2,4p | tr '\n' ' ') $(tail -n 1 "$4.err")"
	elif grep -q '^skip:' "$4"; then
		skipped=$((skipped + 1))
		printf 'skip  %s: %s\n' "$1" "$(cut -c 7- "$4")"
	else
		passed=$((passed + 1))
		printf 'pass  %s: %s\n' "$1" "$(tail -n 1 "$4")"
	fi
}

# Run a program once without the library and once in each of the @modes: NAME COMMAND... With $together at once: a start
# of PyTorch takes ten seconds.
in_all_modes() {
	local name=$1 bare mode setting ours
	shift
	timeout -k 5 "$seconds" "$@" >"$room/bare" 2>"$room/err" </dev/null
	bare=$?
	[ $bare -eq 0 ] || { judge "$name" $bare 0; return; }
	for mode in "${modes[@]}"; do
		setting=${mode#* }
		ours=$room/${mode%% *}
		{
			env ${setting:+"$setting"} LD_PRELOAD="$library" GPUMEM_SNAPSHOT_ON=none \
				timeout -k 5 "$seconds" "$@" >"$ours" 2>"$ours.err" </dev/null
			echo $? >"$ours.status"
		} &
		[ "$together" ] || wait
	done
	wait
	for mode in "${modes[@]}"; do
		ours=$room/${mode%% *}
		judge "$name, ${mode%% *}" 0 "$(cat "$ours.status")" "$ours"
	done
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /'
seconds=40
together=
"$nvcc" -O1 -std=c++17 -arch="${GPU_ARCH:-native}" -o "$room/devices" test/gpu/devices.cu || exit
for case in first later copies peercopies pool persistent; do
	in_all_modes "$case" "$room/devices" "$case" "${devices[@]}"
done
if "$python" -c 'import torch' 2>/dev/null; then
	seconds=100
	together=1
	for case in ddp fsdp ipc; do
		in_all_modes "$case" "$python" test/gpu/gpu_devices.py "$case"
	done
	# PyTorch without its cache, and on the driver's pool: our cache serves both.
	modes=("default " "pages GPUMEM_EXPANDABLE_SEGMENTS=True")
	for setting in PYTORCH_NO_CUDA_MEMORY_CACHING=1 PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync; do
		in_all_modes "ddp with $setting" env "$setting" "$python" test/gpu/gpu_devices.py ddp
	done
	if timeout -k 5 200 "$python" test/gpu/gpu_devices.py tools "$gpumem" "$room/tools" >"$room/ours" 2>"$room/err"; then
		passed=$((passed + 1))
		printf 'pass  tools: %s\n' "$(tail -n 1 "$room/ours")"
	else
		failed=$((failed + 1))
		printf 'FAIL  tools: %s %s\n' "$(tail -n 1 "$room/ours")" "$(tail -n 1 "$room/err")"
	fi
fi
if [ "${devices[0]}" != "${devices[1]}" ]; then
	for word in app_multidev app_graph app_lives app_pools app_vmm waits; do
		scripts/gpu-check.sh --no-python --only $word >"$room/ours" 2>&1
		grep -E '^(pass|FAIL|skip)' "$room/ours"
		passed=$((passed + $(grep -c '^pass' "$room/ours")))
		failed=$((failed + $(grep -c '^FAIL' "$room/ours")))
		skipped=$((skipped + $(grep -c '^skip' "$room/ours")))
	done
	seconds=30
	together=
	modes=("sync GPUMEM_FREE=sync" "native GPUMEM_ALLOCATOR=native")
	in_all_modes "waits later" build/gpu/waits/waits later
	modes=("default ")
	limit="later: hung"	# and no more than this may differ
	in_all_modes "waits later" build/gpu/waits/waits later
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
