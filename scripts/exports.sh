#!/bin/sh
# The version script of libgpumem.so: what is exported is the hook list and the list of exports.def.
# usage: exports.sh hooks.def exports.def [MORE.def] >gpumem.map
set -eu
echo '{ global:'
sed -nE '/^GM_CALL\(/d; s/^GM_[A-Z_]+\([A-Z]+, ([A-Za-z0-9_]+),.*/  \1;/p' "$1"
sed -nE 's/^[[:space:]]*GM_EXPORT\(([A-Za-z0-9_]+)\).*/  \1;/p' "$2" ${3:+"$3"}
echo 'local: *; };'
