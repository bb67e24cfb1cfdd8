#!/usr/bin/env bash
# Unpack the Pythons of other Debian releases into a directory, with all that they need, for make check-pythons.
#
# usage: scripts/pythons.sh DIRECTORY [RELEASE...]
#
# DIRECTORY/RELEASE is then a root with every python3.x of that release, its debug build, and its library. The machine's
# own packages stay as they are. It needs a network and 1.5 GB, and nothing for what is there already. A release whose C
# library is not newer than this machine's is unpacked without it: programs run with this machine's.
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
