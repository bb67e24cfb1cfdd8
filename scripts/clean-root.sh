#!/usr/bin/env bash
# Show what a user of a clean Debian 12 sees: install one of our packages, record a CUDA program, read the record.
#
# usage: scripts/clean-root.sh [deb|wheel] [DIRECTORY]
#
# DIRECTORY is, or becomes, a root with only Debian's own packages, pip among them; debootstrap makes it, which takes a
# network and some minutes. The package is that of `make dist`. The program and the driver that needs no GPU are in
# /cuda of the root. The script must run as root, for chroot. It keeps the directory for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-deb}
root=${2:-/tmp/gpumem-clean-root}
case $kind in
deb) package=$(ls build/dist/gpumem_*.deb) install="dpkg -i" ;;
wheel) package=$(ls build/dist/gpumem-*.whl) install="pip install --no-index --break-system-packages --root-user-action=ignore" ;;
*) echo "usage: scripts/clean-root.sh [deb|wheel] [DIRECTORY]" >&2; exit 2 ;;
esac
if [ ! -e "$root/etc/debian_version" ]; then
	debootstrap --variant=minbase --include=python3-pip bookworm "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1 ||
		{ tail -n 3 "$root.log" >&2; exit 1; }
fi
mkdir -p "$root/cuda" "$root/tmp"
cp build/fakecuda/libcuda.so.1 build/fakecuda/libcudart.so.13 build/test/apps/demo_app.shared "$root/cuda/"
cp "$package" "$root/tmp/"
tell() {
	printf '$ %s\n' "$*"
	chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		LD_LIBRARY_PATH=/cuda sh -c "cd /tmp && $*"
}
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
tell cat /etc/debian_version
tell "$install $(basename "$package")"
tell "gpumem run -- /cuda/demo_app.shared"
tell "gpumem summary gpumem.demo_app*.json"
case $kind in
deb) chroot "$root" dpkg -P gpumem ;;
wheel) chroot "$root" pip uninstall -y --break-system-packages --root-user-action=ignore gpumem ;;
esac >/dev/null
rm -f "$root"/tmp/gpumem*
