#!/usr/bin/env bash
# Measure on this GPU first allocations with the library, beside the driver's cudaMalloc and cudaMallocAsync, PyTorch's
# cache with and without expandable segments, and CuPy's pool, and how much of the device a program gets: one table
# (scripts/bench.py). Then moves of pages (test/bench/remap.c), then whole PyTorch workloads (scripts/gpu-overhead.py).
# Needs nvcc, a GPU and build/libgpumem.so; for the peers also PyTorch with a C++ compiler, and CuPy.
#
#   scripts/gpu-bench.sh [--rounds N] [--seconds N] [--rows WORD,...] [--turns N] [--kinds LIST] [WORKLOAD...|none]
#
# --rounds, --seconds and --rows are for the table; --turns is the number of rounds of the workloads.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3
turns=10
kinds=bare,twin,expandable,async,libgpumem,async-libgpumem,cached,cached-expandable
rows=
seconds=1000000
while [ $# -gt 0 ]; do
	case $1 in
	--rounds) rounds=$2; shift ;;
	--turns) turns=$2; shift ;;
	--kinds) kinds=$2; shift ;;
	--seconds) seconds=$2; shift ;;
	--rows) rows=$2; shift ;;
	-*) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || set -- gpt resnet side_streams gpt_random checkpointing moe generate train_and_eval
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
python=${PYTHON:-python3}
"$nvcc" -O2 -std=c++17 -I. -arch=native -cudart static -o "$room/calls.static" test/bench/calls.cu
mkdir -p build/test/bench
cc -O2 -I"$cuda/include" -o "$room/fill" test/bench/fill.c -L"$cuda/lib64/stubs" -lcuda
cc -O2 -fPIC -shared -I"$cuda/include" -o build/test/bench/trivial.so test/bench/trivial.c -ldl
if paths=$("$python" -c 'import torch, os; print(os.path.dirname(torch.__file__))' 2>/dev/null); then
	g++ -O2 -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=1 -I. -I"$paths/include" -I"$paths/include/torch/csrc/api/include" \
		-I"$cuda/include" -o "$room/calls.torch" test/bench/calls_torch.cpp -L"$paths/lib" -lc10_cuda -lc10 -pthread \
		-Wl,-rpath,"$paths/lib" -Wl,--unresolved-symbols=ignore-in-shared-libs 2>"$room/log" ||
		{ echo "# no PyTorch peer: $(grep -m 1 error "$room/log" || tail -n 1 "$room/log")"; rm -f "$room/calls.torch"; }
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/# /'
"$python" scripts/bench.py --gpu "$room" --rounds "$rounds" --seconds "$seconds" --rows "$rows"
if [ -z "$rows" ] && cc -O2 -I"$cuda/include" -o "$room/remap" test/bench/remap.c -L"$cuda/lib64/stubs" -lcuda; then
	"$room/remap"
fi
[ "$1" = none ] || "$python" scripts/gpu-overhead.py --rounds "$turns" --kinds "$kinds" "$@" |
	grep -v '^# round '
