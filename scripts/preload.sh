#!/bin/sh
# Start a program under libgpumem if the library can be loaded here, and without it otherwise.
#
# usage: preload.sh PROGRAM [ARGUMENT...]      GPUMEM_LIBRARY names another library than the one beside
#
# A library that is absent, damaged, of another machine or for another libc would stop every program of a
# container, or have each say so. So it is tried on one program first.
library=${GPUMEM_LIBRARY:-}
here=$(dirname "$0")
for place in "$here" "$here/../../lib" "$here/../../lib64" "$here"/../../lib/*-linux-gnu; do
	[ -n "$library" ] || [ ! -r "$place/libgpumem.so" ] || library=$place/libgpumem.so
done
said=$(LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD} sh -c : 2>&1)
if [ $? = 0 ] && [ -z "$said" ] && [ -r "$library" ]; then
	LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}
	export LD_PRELOAD
else
	echo "gpumem: nothing is recorded: ${said:-there is no libgpumem.so}" | head -n 1 >&2
fi
exec "$@"
