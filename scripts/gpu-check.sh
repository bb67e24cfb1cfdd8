#!/usr/bin/env bash
# make gpu-check: run the tests that need a real GPU. Needs a CUDA toolkit, a GPU, python3.
#
#   scripts/gpu-check.sh [--golden] [--only WORD] [--no-python] [--allocator caching|native]
#
# - Build the test programs with NVIDIA's runtime, statically and dynamically linked. Run each with and without the
#   library, and compare output and exit code. Compare the snapshots of their checkpoints with the memory that the
#   driver says is taken.
# - Print what this GPU's driver does (build/gpu/conformance.txt), and compare that with the committed
#   test/conformance/h200.golden; --golden writes that file. Compare the same output under the cache, except for
#   deliberate differences.
# - Run PyTorch, CuPy and JAX if they are installed, and check whose memory their snapshots say it is.
# Each test prints one line; the totals follow.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=$PWD/build
room=$build/gpu
library=$build/libgpumem.so
golden=$PWD/test/conformance/h200.golden
python=${PYTHON:-python3}
arch=${GPU_ARCH:-native}
write_golden=
only=
with_python=1
allocator=
while [ $# -gt 0 ]; do
	case $1 in
	--golden) write_golden=1 ;;
	--only) only=${2:?--only WORD} && shift ;;
	--no-python) with_python= ;;
	--allocator) allocator=${2:?--allocator caching or native} && shift ;;
	*) echo "usage: scripts/gpu-check.sh [--golden] [--only WORD] [--no-python]" >&2; exit 2 ;;
	esac
	shift
done

fail() { printf 'gpu-check: %s\n' "$*" >&2; exit 2; }
nvcc=${CUDA_HOME:+$CUDA_HOME/bin/}nvcc
command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$(command -v "$nvcc")" ] || fail "no nvcc: set CUDA_HOME"
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
[ -e /dev/nvidia0 ] || nvidia-smi -L 2>/dev/null | grep -q GPU || fail "no GPU here"
[ -e "$library" ] || fail "no $library: make it first"
stub=$(ls -d "$cuda"/lib64/stubs "$cuda"/targets/*/lib/stubs 2>/dev/null | head -n 1)
runtime=$(ls -d "$cuda"/lib64 "$cuda"/targets/*/lib 2>/dev/null | head -n 1)
export LD_LIBRARY_PATH=$runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset LD_PRELOAD "${!GPUMEM_@}"
rm -rf "$room"
mkdir -p "$room"

passed=0
failed=0
skipped=0
pass() { passed=$((passed + 1)); printf 'pass  %s%s\n' "$1" "${2:+: $2}"; }
wrong() { failed=$((failed + 1)); printf 'FAIL  %s: %s\n' "$1" "$2"; }
skip() { skipped=$((skipped + 1)); printf 'skip  %s: %s\n' "$1" "$2"; }
wanted() { case $1 in *"$only"*) return 0 ;; *) return 1 ;; esac; }

# run_bare NAME COMMAND...: run it without the library, and write $room/NAME/bare.{out,err,code}. If it crashes, run it
# once more, because the driver itself may crash now and then (once in five runs of app_lives).
run_bare() {
	local dir=$room/$1
	shift
	mkdir -p "$dir/bare.d"
	for attempt in first second; do
		CHECKPOINT_DIR=$dir/bare.d timeout -k 10 "$seconds" "$@" >"$dir/bare.out" 2>"$dir/bare.err" </dev/null
		echo $? >"$dir/bare.code"
		[ "$(cat "$dir/bare.code")" = 139 ] || break
		printf '      %s crashes without the library, %s run\n' "${dir##*/}" "$attempt"
	done
}

# run_ours NAME COMMAND...: run it with the library, and write $room/NAME/ours.{out,err,code}; snapshots are in
# $room/NAME/snapshots.
run_ours() {
	local dir=$room/$1
	shift
	mkdir -p "$dir/ours.d" "$dir/snapshots"
	CHECKPOINT_DIR=$dir/ours.d GPUMEM_OUTPUT=$dir/snapshots/gpumem.%c.%p.%r.json LD_PRELOAD=$library \
		env ${allocator:+GPUMEM_ALLOCATOR=$allocator} timeout -k 10 "$seconds" "$@" >"$dir/ours.out" 2>"$dir/ours.err" </dev/null
	echo $? >"$dir/ours.code"
}

# quiet NAME: check that both runs ended with 0, and that the library printed nothing.
quiet() {
	local dir=$room/$1
	if [ "$(cat "$dir/bare.code")" != 0 ]; then
		wrong "$1" "without the library: exit $(cat "$dir/bare.code"): $(tail -qn 1 "$dir/bare.err" "$dir/bare.out" | tr '\n' ' ')"
	elif [ "$(cat "$dir/ours.code")" != 0 ]; then
		wrong "$1" "with the library: exit $(cat "$dir/ours.code"): $(tail -n 1 "$dir/ours.err" | tr '\n' ' ')"
	elif grep -qi '^.\{0,3\}\(lib\)\?gpumem' "$dir/ours.err"; then
		wrong "$1" "the library said: $(grep -i gpumem "$dir/ours.err" | head -n 1)"
	else
		return 0
	fi
	return 1
}

# same NAME: check that both runs are quiet and print the same.
same() {
	local dir=$room/$1
	quiet "$1" || return 1
	if ! cmp -s "$dir/bare.out" "$dir/ours.out"; then
		wrong "$1" "the output differs: $(diff "$dir/bare.out" "$dir/ours.out" | sed -n 2,5p | tr '\n' ' ')"
	elif grep -q '^skip:' "$dir/ours.out"; then
		skip "$1" "$(grep -m 1 '^skip:' "$dir/ours.out" | cut -c 7-)"
	else
		pass "$1" "$(grep -cv '^checkpoint' "$dir/ours.out") lines, $(ls "$dir/snapshots" | wc -l) snapshots"
		return 0
	fi
	return 1
}

pair() {
	run_bare "$@"
	run_ours "$@"
	same "$1"
}

# judged NAME COMMAND...: a check that prints one line and exits 0 or 1.
judged() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		pass "$name" "$said"
	else
		wrong "$name" "$said"
	fi
}

# conserved NAME: check the sums at NAME's checkpoints, if the program makes any.
conserved() {
	[ -e "$room/$1/ours.d/1.json" ] || return 0
	judged "$1, conservation" "$python" test/gpu/check.py conservation "$room/$1/ours.d"
}

# begin NAME COMMAND...: compile beside the others, one for each processor. ready NAME: check that NAME compiled.
begin() {
	local dir=$room/$1
	shift
	mkdir -p "$dir"
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	{ "$@" >"$dir/compile.log" 2>&1 && touch "$dir/compiled"; } &
}

ready() {
	[ -e "$room/$1/compiled" ] && return 0
	wrong "$1" "does not compile: $(grep -m 1 error "$room/$1/compile.log")"
	return 1
}

compile() {
	begin "$@"
	wait
	ready "$1"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /'
seconds=120

for source in test/apps/*.cu; do
	app=$(basename "$source" .cu)
	wanted "$app" || continue
	flags=
	[ "$app" = app_ptds ] && flags='-default-stream per-thread'
	for runtime_kind in static shared; do
		name=$app.$runtime_kind
		# shellcheck disable=SC2086
		begin "$name" "$nvcc" -O1 -arch="$arch" -I. $flags -cudart $runtime_kind \
			-o "$room/$name/$app" "$source" -lpthread -ldl -lrt
	done
done
for source in test/apps/*.c; do
	app=$(basename "$source" .c)
	wanted "$app" || continue
	begin "$app" "${CC:-cc}" -std=gnu11 -O1 -I. -isystem "$cuda/include" -o "$room/$app/$app" "$source" \
		-L"$stub" -lcuda -lpthread -ldl
done
if wanted conformance; then
	for runtime_kind in static shared; do
		name=conformance.$runtime_kind
		begin "$name" "$nvcc" -O1 -arch="$arch" -I. -cudart $runtime_kind -o "$room/$name/conformance" \
			test/conformance/conformance.cu -lpthread -ldl -lrt
	done
fi
wait

for source in test/apps/*.cu test/apps/*.c; do
	app=$(basename "${source%.*}")
	wanted "$app" || continue
	case $source in *.cu) names="$app.static $app.shared" ;; *) names=$app ;; esac
	for name in $names; do
		ready "$name" || continue
		pair "$name" "$room/$name/$app" || continue
		conserved "$name"
	done
done

if wanted demo_app && [ -x "$room/demo_app.static/demo_app" ]; then
	pair demo_app-leak "$room/demo_app.static/demo_app" --leak
	pair demo_app-loop "$room/demo_app.static/demo_app" --loop --max-seconds 3 --threads 4
fi

if wanted conformance; then
	seconds=300
	for runtime_kind in static shared; do
		name=conformance.$runtime_kind
		ready "$name" || continue
		run_bare "$name" env CUDA_VISIBLE_DEVICES=0 "$room/$name/conformance"
		run_ours "$name" env CUDA_VISIBLE_DEVICES=0 GPUMEM_ALLOCATOR=native "$room/$name/conformance"
		same "$name"
		[ "$allocator" != native ] || continue
		mkdir -p "$room/$name-cached"
		cp "$room/$name"/bare.out "$room/$name"/bare.err "$room/$name"/bare.code "$room/$name-cached"
		run_ours "$name-cached" env CUDA_VISIBLE_DEVICES=0 "$room/$name/conformance"
		quiet "$name-cached" && judged "$name-cached" "$python" test/gpu/check.py deliberate \
			"$room/$name-cached/bare.out" "$room/$name-cached/ours.out"
	done
	output=$room/conformance.txt
	cp "$room/conformance.static/bare.out" "$output" 2>/dev/null
	if ! [ -s "$output" ]; then
		wrong conformance "nothing was printed"
	elif ! cmp -s "$output" "$room/conformance.shared/bare.out"; then
		wrong conformance "static and shared differ: $(diff "$output" "$room/conformance.shared/bare.out" | sed -n 2,3p | tr '\n' ' ')"
	elif grep -q 'CUT SHORT\|ENDED BADLY' "$output"; then
		wrong conformance "$(grep -m 1 'CUT SHORT\|ENDED BADLY' "$output")"
	elif [ -n "$write_golden" ]; then
		cp "$output" "$golden" && pass conformance "$(wc -l <"$golden") lines written to $golden"
	elif ! [ -s "$golden" ]; then
		wrong conformance "there is no $golden: run with --golden"
	elif cmp -s "$output" "$golden"; then
		pass conformance "static and shared agree, as in the golden file"
	else
		wrong conformance "$(diff "$golden" "$output" | grep -c '^[<>]') lines differ from the golden file"
	fi
fi

# A completely filled device, beside another process.
if wanted exhaust; then
	seconds=200
	compile exhaust "$nvcc" -O1 -std=c++17 -arch="$arch" -o "$room/exhaust/exhaust" test/gpu/exhaust.cu &&
		pair exhaust "$room/exhaust/exhaust"
fi

# Unused memory goes back to the driver while a kernel waits for the host.
if wanted idle; then
	seconds=60
	if compile idle "$nvcc" -O1 -std=c++17 -arch="$arch" -o "$room/idle/idle" test/gpu/idle.cu; then
		for case in malloc async; do
			for setting in X=1 GPUMEM_EXPANDABLE_SEGMENTS=True; do
				run_bare "idle" "$room/idle/idle" "$case"
				run_ours "idle" env "$setting" "$room/idle/idle" "$case"
				judged "idle-$case, $setting" grep "back, ended, no call was held up" "$room/idle/ours.out"
				printf '      %s; without the library: %s\n' "$(grep slowest "$room/idle/ours.err")" \
					"$(cat "$room/idle/bare.out") $(cat "$room/idle/bare.err")"
			done
		done
	fi
fi

# Some of these programs hang without the library, which depends on the driver; no other may hang with the library.
if wanted full; then
	if compile full "$nvcc" -O1 -std=c++17 -arch="$arch" -o "$room/full/full" test/gpu/full.cu; then
		for case in threads same async pitched long late ordered-async probe; do
			rounds=8
			[ $case != long ] || rounds=2
			run_bare "full-$case" "$room/full/full" "$case" $rounds
			for free in auto deferred sync; do
				GPUMEM_FREE=$free run_ours "full-$case" "$room/full/full" "$case" $rounds
				same "full-$case" && printf '      free:%s\n' "$free"
			done
		done
	fi
fi

if wanted waits; then
	seconds=30
	if compile waits "$nvcc" -O1 -std=c++17 -arch="$arch" -o "$room/waits/waits" test/gpu/waits.cu -L"$stub" -lcuda; then
		for case in stream used green context peer pool; do
			run_bare "waits-$case" "$room/waits/waits" "$case"
			run_ours "waits-$case" "$room/waits/waits" "$case"
			said="alone $(cat "$room/waits-$case/bare.out"), with the library $(cat "$room/waits-$case/ours.out")"
			case $said in
			"alone skip: "*) skip "waits-$case" "$(cut -c 7- "$room/waits-$case/bare.out")" ;;
			"alone $case: hung, with the library $case: hung" | *"library $case: ended") pass "waits-$case" "$said" ;;
			*) wrong "waits-$case" "$said" ;;
			esac
		done
	fi
fi

# Tools that watch memory or kernels, with the library preloaded: the library must step aside for them.
tool() {
	local name=$1 want=$2 unwanted=$3 log=$room/tools/$1.log
	shift 3
	wanted "$name" || return 0
	command -v "$1" >/dev/null || [ -x "$1" ] || { skip "$name" "no $1 here"; return 0; }
	env LD_PRELOAD="$library" GPUMEM_ALLOCATOR=caching GPUMEM_OUTPUT="$room/tools/%c.%p.%r.json" timeout 100 "$@" >"$log" 2>&1 </dev/null
	if ! grep -q "$want" "$log"; then
		wrong "$name" "no \"$want\": $(tail -n 2 "$log" | tr '\n' ' ')"
	elif [ -n "$unwanted" ] && grep -q "$unwanted" "$log"; then
		wrong "$name" "$(grep -m 1 "$unwanted" "$log")"
	else
		pass "$name" "$(grep -m 1 "$want" "$log")"
	fi
}
mkdir -p "$room/tools"
if compile tools "$nvcc" -O1 -lineinfo -arch="$arch" -o "$room/tools/overrun" test/gpu/overrun.cu; then
	tools=$cuda/bin
	tool sanitizer-clean 'ERROR SUMMARY: 0 errors' '' "$tools/compute-sanitizer" "$room/tools/overrun" clean
	tool sanitizer-finds 'Invalid __global__ write of size 4' '' "$tools/compute-sanitizer" "$room/tools/overrun"
	tool sanitizer-native 'allocator:native, since compute-sanitizer' '' "$tools/compute-sanitizer" "$room/tools/overrun" clean
	tool cuda-gdb 'exited normally' 'Segmentation' "$tools/cuda-gdb" -batch -ex run --args "$room/tools/overrun" clean
	tool cuda-gdb-native 'allocator:native, since cuda-gdb' '' "$tools/cuda-gdb" -batch -ex run --args "$room/tools/overrun" clean
	tool ncu 'write_at' 'ERROR' "$tools/ncu" "$room/tools/overrun" clean
fi

seconds=300
# Each framework, with words that must be in the paths of the modules that allocated.
for row in 'torch torch c10_cuda|torch,cublas' 'nccl torch nccl' 'cupy cupy cupy,cublas' 'jax jax jax|xla'; do
	read -r name module words <<<"$row"
	name=gpu_$name
	wanted "$name" && [ -n "$with_python" ] || continue
	if ! timeout 200 "$python" -c "import $module" >/dev/null 2>&1; then
		skip "$name" "no $module here"
		continue
	fi
	mkdir -p "$room/$name"
	pair "$name" "$python" "test/gpu/$name.py" || continue
	judged "$name, whose memory" "$python" test/gpu/check.py modules "$room/$name/snapshots" "$words"
done

# Training must be equal to the last bit, in every way in which PyTorch leaves its memory to the library.
for row in 'nocache PYTORCH_NO_CUDA_MEMORY_CACHING=1' \
	'async PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync' \
	'async-graph PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync --graph' 'cache X=1 --graph'; do
	read -r name setting flag <<<"$row"
	name=gpu_train-$name
	wanted "$name" && [ -n "$with_python" ] || continue
	timeout 200 "$python" -c "import torch" >/dev/null 2>&1 || { skip "$name" "no torch here"; continue; }
	mkdir -p "$room/$name"
	pair "$name" env "$setting" "$python" test/gpu/gpu_train.py ${flag:+"$flag"}
done

# Tensors between two processes. (With PYTORCH_NO_CUDA_MEMORY_CACHING=1 PyTorch itself never delivers them.)
for row in 'cache X=1' 'expandable PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'; do
	read -r name setting <<<"$row"
	name=gpu_ipc-$name
	wanted "$name" && [ -n "$with_python" ] || continue
	timeout 200 "$python" -c "import torch" >/dev/null 2>&1 || { skip "$name" "no torch here"; continue; }
	mkdir -p "$room/$name"
	pair "$name" env "$setting" "$python" test/gpu/gpu_ipc.py
done

# PyTorch's own pool, block by block: the library and PyTorch must report the same, and no bit may change.
for row in 'default X=1' 'expandable PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True' 'fraction X=1 --fraction'; do
	read -r name setting flag <<<"$row"
	name=gpu_pools-$name
	wanted "$name" && [ -n "$with_python" ] || continue
	timeout 200 "$python" -c "import torch, torchvision" >/dev/null 2>&1 || { skip "$name" "no torch or torchvision here"; continue; }
	mkdir -p "$room/$name"
	if [ -n "$flag" ]; then	# near its limit PyTorch itself may behave differently in each run
		run_bare "$name" env "$setting" "$python" test/gpu/gpu_pools.py "$flag"
		cp "$room/$name/bare.out" "$room/$name/again.out"
		run_bare "$name" env "$setting" "$python" test/gpu/gpu_pools.py "$flag"
		run_ours "$name" env "$setting" "$python" test/gpu/gpu_pools.py "$flag"
		quiet "$name" && judged "$name" "$python" test/gpu/compare.py repeats "$room/$name/"{bare,again,ours}.out
	else
		pair "$name" env "$setting" "$python" test/gpu/gpu_pools.py
	fi &&
		printf '      %s\n' "$(grep '^pools:' "$room/$name/ours.err")"
done

# PyTorch is killed within an iteration: the recovered snapshot must have the memory that it held.
if wanted gpu_kills && [ -n "$with_python" ]; then
	if timeout 200 "$python" -c "import torch" >/dev/null 2>&1; then
		judged gpu_kills timeout -k 10 300 "$python" test/gpu/gpu_kills.py "$build/gpumem" --kills 12 --beside 6
	else
		skip gpu_kills "no torch here"
	fi
fi

# A training on a device so full that it just fits if every free waits: it must fit with the default, too.
if wanted gpu_full && [ -n "$with_python" ]; then
	if timeout 200 "$python" -c "import torch" >/dev/null 2>&1; then
		mkdir -p "$room/gpu_full"
		fitting=$(GPUMEM_FREE=sync LD_PRELOAD=$library GPUMEM_SNAPSHOT_ON=none timeout 200 "$python" test/gpu/gpu_full.py --find)
		run_bare gpu_full "$python" test/gpu/gpu_full.py --room "${fitting%% *}"
		for turn in 1 2 3 4 5; do
			run_ours gpu_full "$python" test/gpu/gpu_full.py --room "${fitting%% *}"
			same gpu_full && printf '      %s, run %s\n' "$fitting" "$turn"
		done
	else
		skip gpu_full "no torch here"
	fi
fi

# Two ranks of torchrun, on one GPU.
if wanted gpu_torchrun && [ -n "$with_python" ]; then
	if timeout 200 "$python" -c "import torch.distributed.run" >/dev/null 2>&1; then
		mkdir -p "$room/gpu_torchrun"
		judged gpu_torchrun timeout -k 10 900 "$python" test/gpu/gpu_torchrun.py "$build/gpumem" "$room/gpu_torchrun"
	else
		skip gpu_torchrun "no torch here"
	fi
fi

# CuPy's pool through the Python package's hook, and PyTorch's phases.
for case in cupy phases label; do
	wanted "gpu_python-$case" && [ -n "$with_python" ] || continue
	[ $case = cupy ] && module=cupy || module=torch
	if timeout 200 "$python" -c "import $module" >/dev/null 2>&1; then
		mkdir -p "$room/gpu_python"
		judged "gpu_python-$case" timeout -k 10 300 "$python" test/gpu/gpu_python.py "$build/gpumem" "$room/gpu_python" "$case"
	else
		skip "gpu_python-$case" "no $module here"
	fi
done

# gpumem ctl while a program works, and while it ends.
if wanted gpu_ctl && [ -n "$with_python" ]; then
	if timeout 200 "$python" -c "import torch" >/dev/null 2>&1; then
		mkdir -p "$room/gpu_ctl"
		judged gpu_ctl timeout -k 10 200 "$python" test/gpu/gpu_ctl.py "$build/gpumem" "$room/gpu_ctl"
	else
		skip gpu_ctl "no torch here"
	fi
fi

printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
