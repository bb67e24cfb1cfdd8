#!/bin/sh
# Install the files that lie beside this script. They run from here as well: bin/gpumem finds lib/libgpumem.so.
#
# usage: install.sh [PREFIX]      /usr/local if none is named; DESTDIR is put before it
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in -*) sed -n 's/^# usage: /usage: /p' "$0"; exit 2 ;; esac
prefix=${1:-/usr/local}
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
to=${DESTDIR:-}$prefix
mkdir -p "$to" 2>/dev/null && [ -w "$to" ] || { echo "install.sh: $to cannot be written to: name another PREFIX, or run this as root" >&2; exit 1; }
for part in bin lib include share; do
	(cd "$here" && find "$part" -type d) | while read -r directory; do mkdir -p "$to/$directory"; done
	# A file that a running program has mapped is replaced, never written into.
	(cd "$here" && find "$part" -type f) | while read -r file; do
		cp -p "$here/$file" "$to/$file.new.$$"
		mv "$to/$file.new.$$" "$to/$file"
	done
done
echo "installed below $prefix. Try: $prefix/bin/gpumem run -- PROGRAM"
