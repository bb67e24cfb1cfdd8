#!/usr/bin/env bash
# What a pair of allocation calls costs on this GPU: the driver, PyTorch's cache and the library, in one
# run, in turns. Needs nvcc, a GPU, build/libgpumem.so; PyTorch and a C++ compiler for the peer.
#
#   scripts/gpu-calls.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
python=${PYTHON:-python3}
library=$PWD/build/libgpumem.so
for kind in static shared; do
	"$nvcc" -O2 -std=c++17 -cudart $kind -o "$room/$kind" test/gpu/calls.cu
done
if paths=$("$python" -c 'import torch, os; print(os.path.dirname(torch.__file__))' 2>/dev/null); then
	g++ -O2 -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=1 -I"$paths/include" -I"$paths/include/torch/csrc/api/include" \
		-I"$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")/include" -o "$room/torch" \
		test/gpu/calls_torch.cpp -L"$paths/lib" -lc10_cuda -lc10 -Wl,-rpath,"$paths/lib" -Wl,--unresolved-symbols=ignore-in-shared-libs \
		2>"$room/log" || { echo "# no PyTorch peer: $(grep -m 1 error "$room/log" || tail -n 1 "$room/log")"; rm -f "$room/torch"; }
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/# /'
ours() { env LD_PRELOAD="$library" GPUMEM_ALLOCATOR=caching GPUMEM_SNAPSHOT_ON=none "$@"; }
for round in $(seq "$rounds"); do
	echo "## round $round"
	"$room/static" | sed 's/^/driver: /'
	ours GPUMEM_STACKS=none GPUMEM_HISTORY=0 "$room/static" | sed 's/^/libgpumem, no history: /'
	ours GPUMEM_STACKS=none "$room/static" | sed 's/^/libgpumem, history without stacks: /'
	ours "$room/static" | sed 's/^/libgpumem, default: /'
	ours GPUMEM_STACKS=none GPUMEM_HISTORY=0 "$room/shared" | sed 's/^/libgpumem, no history, shared runtime: /'
	[ ! -x "$room/torch" ] || "$room/torch"
	for threads in 1 2 4 8 16; do
		"$room/static" $threads | sed 's/^/driver: /'
		ours GPUMEM_STACKS=none GPUMEM_HISTORY=0 "$room/static" $threads | sed 's/^/libgpumem, no history: /'
		ours "$room/static" $threads | sed 's/^/libgpumem, default: /'
	done
done
