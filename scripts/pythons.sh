#!/usr/bin/env bash
# Unpack the Pythons of other Debian releases into a directory, with all that they need, for make check-pythons.
#
# usage: scripts/pythons.sh DIRECTORY [RELEASE...]
#
# DIRECTORY/RELEASE becomes a root with every python3.x of that release, its debug build, and its library. The machine's
# own packages are not changed. The script needs a network and 1.5 GB; a release that is there already is skipped. A
# release's C library is unpacked only if it is newer than this machine's, which the programs use otherwise.
#
# PYTHONS_FROM_SOURCE=1 also builds free-threaded Pythons, for which Debian has no package: from the mirror's newest
# sources of python3.13 and python3.14, and from each DIRECTORY/source/python3.*.tar.xz that was put there. Each build
# takes libffi-dev and ten minutes on two cores.
set -euo pipefail

to=$(mkdir -p "${1:?usage: scripts/pythons.sh DIRECTORY [RELEASE...]}" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- bullseye bookworm trixie sid
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI)' | awk '$1 == "Debian" && $2 == "main" { print $3; exit }')
own=$(dpkg-query -W -f '${Version}' libc6)

get() {
	local release=$1 root=$to/$1 state=$to/.$1 packages package
	local apt=(-o "Dir::State=$state" -o Dir::State::status=/dev/null -o "Dir::Cache=$state" -o APT::Sandbox::User=root
		-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o APT::Install-Recommends=false)

	mkdir -p "$state/lists/partial" "$state/archives/partial" "$root.new"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$state/sources.list"
	apt-get "${apt[@]}" update || return
	packages=$(apt-cache "${apt[@]}" pkgnames | grep -E '^(lib)?python3\.[0-9]+(-dbg)?$') || return
	# shellcheck disable=SC2086
	apt-get "${apt[@]}" -y --download-only install $packages || return
	for package in "$state"/archives/*.deb; do
		case ${package##*/} in
		libc6_*)
			dpkg --compare-versions "$(dpkg-deb -f "$package" Version)" gt "$own" || continue ;;
		esac
		dpkg -x "$package" "$root.new" || return
	done
	rm -rf "$state" "$root" && mv "$root.new" "$root"
}

for release; do
	[ -e "$to/$release" ] && continue
	if ! get "$release" >"$to/$release.log" 2>&1; then
		tail -n 5 "$to/$release.log" >&2
		echo "scripts/pythons.sh: the Pythons of $release could not be fetched" >&2
		exit 1
	fi
done

# source_of PACKAGE: download its newest source that the mirror has; the mirror may list more.
source_of() {
	local package=$1 state=$to/.source version
	local apt=(-o "Dir::State=$state" -o Dir::State::status=/dev/null -o "Dir::Cache=$state" -o APT::Sandbox::User=root
		-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null)

	compgen -G "$to/source/${package}_*.orig.tar.xz" >/dev/null && return
	mkdir -p "$state/lists/partial" "$state/archives/partial"
	printf "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror %s main\n" trixie sid >"$state/sources.list"
	apt-get "${apt[@]}" update || return
	for version in $(apt-cache "${apt[@]}" showsrc "$package" | sed -n 's/^Version: //p' | sort -rVu); do
		(cd "$to/source" && apt-get "${apt[@]}" --download-only --tar-only --only-source source "$package=$version") && return
	done
	return 1
}

# build NAME TARBALL [OPTION...]: build the tarball, with options for configure, into the root of that name.
build() {
	local root=$to/$1 tree=$to/.$1 tarball=$2
	shift 2

	rm -rf "$tree" "$root.new" && mkdir "$tree" || return
	tar -C "$tree" --strip-components=1 -xf "$tarball" || return
	cd "$tree" || return
	# Only programs and modules are wanted; -l compiles no folder below the library's.
	./configure -q --prefix="$root/usr" --without-ensurepip --disable-test-modules "$@" &&
		make -s -j"$(nproc)" && make -s -j1 altinstall "DESTDIR=$root.new" COMPILEALL_OPTS=-lq || return
	cd "$root.new$root/usr/bin" || return
	rm python3.*[0-9] || return		# the other name of, for example, python3.13t
	set -- python3.*[0-9]t && "./$1" -c 'import asyncio, ctypes' || return
	cd / && mv "$root.new$root" "$root" && rm -rf "$tree" "$root.new"
}

[ -n "${PYTHONS_FROM_SOURCE:-}" ] || exit 0
mkdir -p "$to/source"
for package in python3.13 python3.14; do
	source_of "$package" >"$to/$package.log" 2>&1 || echo "scripts/pythons.sh: the mirror has no source of $package: left out"
done
built=0
for tarball in "$to"/source/python3.*.tar.xz; do
	[ -e "$tarball" ] || continue
	version=$(basename "$tarball" | sed 's/^python3[^_-]*[_-]//; s/\.orig//; s/\.tar\.xz$//')
	built=$((built + 1))
	[ -e "$to/${version}t" ] && continue
	echo "scripts/pythons.sh: building ${version}t"
	if ! (build "${version}t" "$tarball" --disable-gil) >"$to/${version}t.log" 2>&1; then
		tail -n 5 "$to/${version}t.log" >&2
		echo "scripts/pythons.sh: ${version}t could not be built" >&2
		exit 1
	fi
done
if [ "$built" = 0 ]; then
	echo "scripts/pythons.sh: no source to build, neither from the mirror nor in $to/source" >&2
	exit 1
fi
