#!/bin/sh
# Start a program under libgpumem if the library can be loaded here, else without it.
#
# usage: preload.sh PROGRAM [ARGUMENT...]      GPUMEM_LIBRARY names a library other than the one beside this script
#
# A library that is missing, damaged, or built for another machine or libc would stop every program of a container, or
# make each print an error. So this script first tries the library on one program.
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
