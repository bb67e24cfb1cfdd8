#!/usr/bin/env bash
# Unpack into a directory Debian's aarch64 libraries that the command and the unit tests are linked with.
#
# usage: scripts/arm-root.sh DIRECTORY
#
# The machine's own packages and its list of architectures are not changed. The script needs a network, unless the
# directory is complete already.
set -euo pipefail

to=$(mkdir -p "${1:?usage: scripts/arm-root.sh DIRECTORY}" && cd "$1" && pwd)
packages=(check libsubunit-dev libjansson-dev zlib1g-dev libiberty-dev)
[ -e "$to/complete" ] && exit 0
mkdir -p "$to/state/lists/partial" "$to/cache/archives/partial"
apt=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o "Dir::State=$to/state"
	-o Dir::State::status=/dev/null -o "Dir::Cache=$to/cache" -o APT::Sandbox::User=root)
if ! { apt-get "${apt[@]}" update && cd "$to/cache" && apt-get "${apt[@]}" download "${packages[@]}"; } >"$to/log" 2>&1; then
	tail -n 5 "$to/log" >&2
	echo "scripts/arm-root.sh: apt-get could not fetch ${packages[*]} for arm64" >&2
	exit 1
fi
for package in "$to"/cache/*.deb; do
	dpkg -x "$package" "$to"
done
rm -rf "$to/state" "$to/cache"
touch "$to/complete"
