#!/usr/bin/env bash
# Set up this machine: install the Debian packages that are missing, and find the CUDA toolkit.
#
# usage: scripts/setup.sh [--list] [demo|check|more]
#
# demo installs the packages that build the library and the command and run `make demo`; also those that give the
# command source lines, readable names and serve, without which the demo runs, too. check, the default, also installs
# the packages for the tests; more, also those for `make check-more`. --list prints these packages, missing or not, and
# installs nothing. The script can be run again at any time, and says in one line what it cannot do.
set -euo pipefail

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

list=
[ "${1:-}" = --list ] && list=1 && shift
purpose=${1:-check}

# The compilers (nvcc needs g++), and the libraries with which the command reads and writes files.
demo_packages=(gcc make g++ pkg-config libjansson-dev zlib1g-dev)
# Optional parts of the command: source lines, names of C++ and Rust, serve. Without them the command says so.
command_packages=(libdw-dev libiberty-dev libmicrohttpd-dev)
# For the tests: libcheck and Python; libunwind, to compare stacks with; clang for fuzzing; for lint clang, cppcheck and
# also shellcheck and pyflakes; a compiler and a C library for aarch64; programs that the tests run; node, which makes the viewer's
# page; lld and a C library, with which clang makes the page's reader of journals; a browser to test the page;
# jsonschema for docs/snapshot.schema.json; PyTorch, for its own libc10.
check_packages=("${demo_packages[@]}" "${command_packages[@]}" check python3 libunwind8 clang libclang-rt-14-dev cppcheck shellcheck
	pyflakes3 gcc-aarch64-linux-gnu libc6-dev-arm64-cross openjdk-17-jdk-headless util-linux procps man-db
	python3-pytest python3-pip python3-setuptools python3-wheel python3-venv nodejs npm chromium-headless-shell
	python3-jsonschema python3-torch lld wasi-libc libclang-rt-14-dev-wasm32)
# For packages: tools that make and check them; containers; the tests for aarch64; Prometheus and systemd.
more_packages=("${check_packages[@]}" debhelper lintian rpm rpmlint buildah kubernetes-client python3-yaml
	g++-aarch64-linux-gnu qemu-user-static prometheus systemd)
case $purpose in
demo) packages=("${demo_packages[@]}" "${command_packages[@]}") ;;
check) packages=("${check_packages[@]}") ;;
more) packages=("${more_packages[@]}") ;;
*) fail "usage: scripts/setup.sh [--list] [demo|check|more]" ;;
esac
if [ -n "$list" ]; then
	printf '%s\n' "${packages[@]}"
	exit 0
fi

# package -> a command that succeeds if the package is there
declare -A there=(
	[gcc]='command -v gcc'
	[g++]='command -v g++'
	[make]='command -v make'
	[pkg-config]='command -v pkg-config'
	[python3]='command -v python3'
	[libjansson-dev]='pkg-config --exists jansson'
	[zlib1g-dev]='pkg-config --exists zlib'
	[check]='pkg-config --exists check'
	[libunwind8]='PATH=$PATH:/sbin ldconfig -p | grep -q libunwind.so.8'
	[libdw-dev]='pkg-config --exists libdw'
	[libiberty-dev]='test -r /usr/include/libiberty/demangle.h'
	[clang]='command -v clang'
	[cppcheck]='command -v cppcheck'
	[shellcheck]='command -v shellcheck'
	[pyflakes3]='command -v pyflakes3'
	[libclang-rt-14-dev]='clang -fsanitize=fuzzer -x c -c /dev/null -o /dev/null'
	[lld]='command -v wasm-ld'
	[wasi-libc]='test -r /usr/include/wasm32-wasi/stdio.h'
	[libclang-rt-14-dev-wasm32]='test -r "$(clang --target=wasm32-wasi -print-libgcc-file-name)"'
	[libmicrohttpd-dev]='pkg-config --exists libmicrohttpd'
	[gcc-aarch64-linux-gnu]='command -v aarch64-linux-gnu-gcc'
	[libc6-dev-arm64-cross]='test -r /usr/aarch64-linux-gnu/include/stdint.h'
	[g++-aarch64-linux-gnu]='command -v aarch64-linux-gnu-g++'
	[qemu-user-static]='command -v qemu-aarch64-static'
	[prometheus]='command -v prometheus && command -v promtool'
	[openjdk-17-jdk-headless]='command -v javac'
	[util-linux]='command -v unshare'
	[procps]='command -v ps'
	[debhelper]='command -v dh'
	[lintian]='command -v lintian'
	[rpm]='command -v rpmbuild'
	[rpmlint]='command -v rpmlint'
	[buildah]='command -v buildah'
	[kubernetes-client]='command -v kubectl'
	[python3-yaml]='/usr/bin/python3 -c "import yaml"'
	[systemd]='command -v systemd-analyze'
	[python3-pytest]='/usr/bin/python3 -c "import pytest"'
	[python3-pip]='/usr/bin/python3 -c "import pip"'
	[python3-setuptools]='/usr/bin/python3 -c "import setuptools"'
	[python3-wheel]='/usr/bin/python3 -c "import wheel"'
	[python3-venv]='/usr/bin/python3 -c "import ensurepip, venv"'
	[python3-venv]='/usr/bin/python3 -c "import ensurepip"'
	[python3-jsonschema]='/usr/bin/python3 -c "import jsonschema"'
	[python3-torch]='/usr/bin/python3 -c "import torch"'
	[nodejs]='node -e "process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)"'
	[npm]='command -v npm'
	[chromium-headless-shell]='command -v chromium-headless-shell || command -v chromium'
	[man-db]='command -v man && command -v groff'
)

missing=()
for package in "${packages[@]}"; do
	bash -c "${there[$package]}" >/dev/null 2>&1 || missing+=("$package")
done

# Packages that the demo can do without are extra; all others are needed.
needed=() extra=() installed=()
for package in "${missing[@]}"; do
	case "$purpose ${command_packages[*]} " in
	demo*" $package "*) extra+=("$package") ;;
	*) needed+=("$package") ;;
	esac
done

may_install() { command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; }

# install PACKAGE...: return 1, after the end of apt-get's output, if apt-get failed.
install() {
	local log
	say "installing $*"
	log=$(mktemp)
	if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		return 1
	fi
	rm -f "$log"
	installed+=("$@")
}

if [ ${#needed[@]} -gt 0 ]; then
	command -v apt-get >/dev/null 2>&1 ||
		fail "these are missing and there is no apt-get to install them: ${needed[*]}"
	may_install ||
		fail "these Debian packages are missing: ${needed[*]}. Run as root: apt-get install ${needed[*]}"
	install "${needed[@]}" || fail "apt-get could not install: ${needed[*]}"
	for package in "${needed[@]}"; do
		bash -c "${there[$package]}" >/dev/null 2>&1 || fail "$package was installed and still does not answer"
	done
fi
if [ ${#extra[@]} -gt 0 ] && ! { may_install && install "${extra[@]}"; }; then
	say "gpumem will lack source lines, readable names or serve without ${extra[*]} (as root: apt-get install ${extra[*]})"
fi

# Install the hook that checks a commit's first line; only in a checkout of this repository, and only if the checkout
# has neither such a hook nor a hooks folder of its owner's.
root=$(cd "$(dirname "$0")/.." && pwd -P)
if [ "$purpose" != demo ] && [ -e "$root/.git" ] && ! git -C "$root" config core.hooksPath >/dev/null 2>&1 &&
	hooks=$(git -C "$root" rev-parse --git-path hooks 2>/dev/null); then
	hook=$(cd "$root" && mkdir -p "$hooks" && cd "$hooks" && pwd)/commit-msg
	[ -e "$hook" ] || [ -L "$hook" ] || { cp "$root/.githooks/commit-msg" "$hook" && say "git's hook commit-msg: $hook"; }
fi

# npm installs pinned versions of the bundler, which makes the viewer's page, and of the driver for the browser in the
# page's tests. The demo shows the page only if node is there already.
viewer=$(dirname "$0")/../tools/viewer
bundler=$viewer/node_modules/.package-lock.json
if { [ "$purpose" != demo ] || bash -c "${there[nodejs]} && ${there[npm]}" >/dev/null 2>&1; } &&
	{ [ ! -e "$bundler" ] || [ "$viewer/package-lock.json" -nt "$bundler" ]; }; then
	say "installing the viewer's bundler and browser driver in tools/viewer/node_modules"
	if ! timeout 300 npm --prefix "$viewer" ci --ignore-scripts --silent >/dev/null; then
		without="npm could not install what tools/viewer/package-lock.json names"
		[ "$purpose" = demo ] || fail "$without: the viewer cannot be built"
		say "$without: gpumem view will have no page"
	fi
fi

# The CUDA toolkit is no Debian package: find it, or fail.
cuda=${CUDA_HOME:-}
if [ -z "$cuda" ] && command -v nvcc >/dev/null 2>&1; then
	cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
fi
for candidate in /usr/local/cuda /opt/cuda /usr/local/cuda-*; do
	[ -n "$cuda" ] && break
	[ -x "$candidate/bin/nvcc" ] && cuda=$candidate
done
[ -n "$cuda" ] && [ -x "$cuda/bin/nvcc" ] && [ -r "$cuda/include/cudaTypedefs.h" ] ||
	fail "no CUDA toolkit (12.9 or later, with nvcc and headers) found: install it, or set CUDA_HOME to where it is"
say "ready: CUDA toolkit at $cuda$( [ ${#installed[@]} -gt 0 ] && echo ", installed ${installed[*]}" || true)"
