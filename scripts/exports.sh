#!/bin/sh
# The version script of libgpumem.so: what is exported is the hook list and the list of exports.def.
# usage: exports.sh hooks.def exports.def [MORE.def] >gpumem.map
set -eu
echo '{ global:'
sed -nE 's/^[[:space:]]*GM_(HOOK|PASS|WORK|RETRY)\([^,]*,[[:space:]]*([A-Za-z0-9_]+),.*/  \2;/p' "$1"
sed -nE 's/^[[:space:]]*GM_EXPORT\(([A-Za-z0-9_]+)\).*/  \1;/p' "$2" ${3:+"$3"}
echo 'local: *; };'
