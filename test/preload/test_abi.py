#!/usr/bin/env python3
"""What the library shows to the host: exactly its list of exports, and no need but libc, of 2012; for aarch64, too."""
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, "test")
from tap import GPUMEM, LIBRARY, Room, check, finish, tell  # noqa: E402


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def rows(path, pattern):
    return set(re.findall(pattern, open(path).read(), re.M))


def prototypes(path):
    """The functions that the public header declares."""
    return set(re.findall(r"^GPUMEM_API [\w ]*?\*?(gpumem_\w+)\(", open(path).read(), re.M))


def ceiling(what, path):
    """What is newer than glibc 2.17 would stop every program of an older system: preload/process/old_glibc.c."""
    asked = re.findall(r"\(GLIBC_([0-9.]+)\) (\w+)|\bGLIBC_([0-9.]+)\s+(\w+)$", run("objdump", "-T", path), re.M)
    names = {a[1] or a[3]: tuple(map(int, (a[0] or a[2]).split("."))) for a in asked}
    check("%s: the versions that it asks for were read" % what, len(names) > 50 and (2, 17) in names.values(), len(names))
    newer = {name: version for name, version in names.items() if version > (2, 17)}
    check("%s: asks for nothing newer than glibc 2.17" % what, not newer, newer)


def missing():
    """What a version that the loader lacks does: a copy of the library that asks for one stops any program."""
    image = bytearray(open(LIBRARY, "rb").read())

    def hash_of(name):
        value = 0
        for byte in name:
            value = (value << 4) + byte
            value = (value ^ ((value & 0xf0000000) >> 24)) & 0x0fffffff
        return value

    was, new = b"GLIBC_2.17", b"GLIBC_9.17"
    places = [m.start() for m in re.finditer(re.escape(struct.pack("<IHH", hash_of(was), 0, 0)[:6]), image)]
    check("the copy: the version is asked for once", len(places) == 1, places)
    image[places[0]:places[0] + 4] = struct.pack("<I", hash_of(new))
    image = image.replace(was + b"\0", new + b"\0")
    with Room() as room:
        path = os.path.join(room.path, "libgpumem.so")
        with open(path, "wb") as copy:
            copy.write(image)
        plain = room.run(["/bin/true"], LD_PRELOAD=LIBRARY)
        check("the library as it is: a program runs, and nothing is said", (plain.returncode, plain.stderr) == (0, ""), tell(plain))
        stopped = room.run(["/bin/true"], LD_PRELOAD=path)
        check("a version that is missing: no program starts", stopped.returncode == 1 and "version `GLIBC_9.17' not found" in stopped.stderr, tell(stopped))
        absent = room.run(["/bin/true"], LD_PRELOAD=os.path.join(room.path, "absent.so"))
        check("no such file: the program runs, after a line", absent.returncode == 0 and "ignored" in absent.stderr, tell(absent))


def library(path, machine):
    """The file at @path, for @machine as readelf calls it."""
    hooks = rows("preload/hooks/hooks.def", r"^GM_(?!CALL)\w+\(\w+, (\w+),")
    others = rows("preload/driver/exports.def", r"^GM_EXPORT\((\w+)\)")
    got = {line.split()[-1] for line in run("nm", "-D", "--defined-only", path).splitlines()}
    check("%s: for that machine" % machine, re.search(r"Machine:\s+.*%s$" % machine, run("readelf", "-hW", path), re.M))
    check("%s: every name of the lists is exported" % machine, not (hooks | others) - got, sorted((hooks | others) - got))
    check("%s: nothing else is exported" % machine, not got - hooks - others, sorted(got - hooks - others))
    dynamic = run("readelf", "-dW", path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    loader = [n for n in needed if not re.match(r"libc\.so|ld-linux", n)]
    check("%s: it needs libc alone" % machine, needed and not loader, needed)
    check("%s: no text relocations" % machine, "TEXTREL" not in dynamic)
    check("%s: bound at load, never unloaded" % machine, "NOW" in dynamic and "NODELETE" in dynamic, dynamic)
    check("%s: no search path of its own" % machine, "RPATH" not in dynamic and "RUNPATH" not in dynamic)
    segments = run("readelf", "-lW", path)
    check("%s: no executable stack" % machine, re.search(r"GNU_STACK\s.*\sRW\s", segments), segments)
    check("%s: no segment that is written and run" % machine, not re.search(r"LOAD\s.*RWE", segments), segments)
    # Exported names bind inside the library: another interposer's function is never taken for ours,
    # and the loader has no three hundred names to look up at every program's start.
    symbolic = re.findall(r"R_\w+\s+\w+\s+(cu[A-Z]\w+|gpumem_\w+)", run("readelf", "-rW", path))
    check("%s: no relocation by the name of a hook" % machine, not symbolic, sorted(set(symbolic)))
    ceiling(machine, path)
    names = subprocess.run(["strings", "-a", path], stdout=subprocess.PIPE, text=True).stdout.split("\n")
    check("%s: the name table holds every hook's link name" % machine, hooks <= set(names), sorted(hooks - set(names)))
    check("%s: the hook list was read" % machine, len(hooks) > 200, len(hooks))


def main():
    library(LIBRARY, "X86-64")
    ceiling("gpumem", GPUMEM)
    missing()
    arm = "build/aarch64/libgpumem.so"
    if check("AArch64: built (make check-abi, or make built-aarch64, does that)", os.path.exists(arm)):
        library(arm, "AArch64")
    others = rows("preload/driver/exports.def", r"^GM_EXPORT\((\w+)\)")
    check("the public header declares what is exported, and no more",
          prototypes("preload/api/gpumem.h") == {n for n in others if n.startswith("gpumem_")},
          prototypes("preload/api/gpumem.h") ^ {n for n in others if n.startswith("gpumem_")})
    macros = rows("preload/api/gpumem.h", r"^#define (gpumem_\w+)\(")
    check("every function of the header may be called without the library",
          macros == prototypes("preload/api/gpumem.h"), macros ^ prototypes("preload/api/gpumem.h"))
    # cuda.h renames: #name in the tables must be the link name of the function beside it.
    text = open("preload/driver/real.h").read()
    check("cuda.h's renames are undone (preload/driver/real.h)", "#define __CUDA_API_VERSION_INTERNAL 1" in text)
    finish()


main()
