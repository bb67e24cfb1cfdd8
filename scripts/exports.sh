#!/bin/sh
# Write the version script of libgpumem.so. Exported are the functions of the hook list and those of exports.def.
# usage: exports.sh hooks.def exports.def [MORE.def] >gpumem.map
set -eu
echo '{ global:'
sed -nE '/^GM_CALL\(/d; s/^GM_[A-Z_]+\([A-Z]+, ([A-Za-z0-9_]+),.*/  \1;/p' "$1"
sed -nE 's/^[[:space:]]*GM_EXPORT\(([A-Za-z0-9_]+)\).*/  \1;/p' "$2" ${3:+"$3"}
echo 'local: *; };'
