#!/usr/bin/env python3
"""Every entry point of the toolkit's driver is hooked, or left alone for a reason that is written down."""
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, "test")
from tap import check, finish  # noqa: E402

# What a name sounds like that changes memory, submits or orders work, captures, or ends a context.
SUSPECT = re.compile(r"""Alloc|Free|Create|Destroy|Import|Map(?!pedArrayGet)|Unmap|Load|Unload|Reserve|Release|Retain|
                         Bind|Instantiate|Register|Unregister|Trim|LinkAdd|LinkComplete|Launch|Memcpy|Memset|Async|
                         WaitValue|WriteValue|MemOp|Prefetch|Discard|Decompress|Upload|Callback|Semaphore|Attach|
                         Detach|Synchronize|WaitEvent|EventRecord|Capture|Reset|Query$|Checkpoint|GetGlobal|Init$|
                         ExportTable|Flush|ExecUpdate|AddNode|Add\w+Node|Dependencies|ToMemory""", re.X)
# Tells about one of these, and does no more: not suspect, whatever it is about.
TELLS = re.compile(r"^cu(?:Device|Ctx|Func|Kernel|Stream|TexRef|TexObject|SurfObject|Green|MemHost)\w*?Get(?!CaptureInfo)|"
                   r"^cuDeviceGetAttribute|^cuMemPoolGet|^cuGraph(?!Mem|Batch|Ext|Event|ics)\w+Get")


def stub():
    homes = [os.environ.get("CUDA_HOME")] + [os.path.dirname(os.path.dirname(os.path.realpath(n)))
                                             for n in [shutil.which("nvcc")] if n]
    homes += ["/usr/local/cuda", "/opt/cuda"] + sorted(glob.glob("/usr/local/cuda-*"))[-1:]
    for home in filter(None, homes):
        for place in ("lib64/stubs/libcuda.so", "targets/*/lib/stubs/libcuda.so"):
            for path in glob.glob(os.path.join(home, place)):
                return path
    return None


def of_graphics(library):
    """Names that the driver exports and the stub does not: those of the graphics libraries' headers."""
    include = os.path.join(re.sub(r"/(lib64|targets/[^/]+/lib)/stubs/.*", "", library), "include")
    text = "".join(open(os.path.join(include, name)).read() for name in ("cudaGL.h", "cudaVDPAU.h"))
    return {n for base in set(re.findall(r"\bcu(?:GL|VDPAU)\w+", text)) for n in (base, base + "_v2")}


def hooked():
    rows = open("preload/hooks/hooks.def").read()
    return re.findall(r"^GM_(?!CALL)\w+\((\w+), (\w+), (PFN_\w+)", rows, re.M)


def left_alone():
    for number, line in enumerate(open("preload/hooks/left-alone.txt"), 1):
        line = line.strip()
        if line and not line.startswith("#"):
            patterns, colon, reason = line.partition(": ")
            yield number, patterns.split(), reason if colon else ""


def uncovered(names, hooks, alone):
    """Names of @names that nothing covers, and suspects that only a pattern covers."""
    full = {p for _, patterns, _ in alone for p in patterns if not re.search(r"[*?\[]", p)}
    globs = [p for _, patterns, _ in alone for p in patterns if re.search(r"[*?\[]", p)]
    missing, by_pattern = [], []
    for name in sorted(names - hooks - full):
        if not any(fnmatch.fnmatchcase(name, p) for p in globs):
            missing.append(name)
        elif SUSPECT.search(name) and not TELLS.search(name):
            by_pattern.append(name)
    return missing, by_pattern


def main():
    library = stub()
    if not check("the toolkit has a stub libcuda", library):
        finish()
    out = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = {line.split()[-1] for line in out.splitlines() if line.split()[-2] == "T"}
    rows = hooked()
    hooks = {name for _, name, _ in rows}
    alone = list(left_alone())

    check("the stub was read", len(names) > 500, len(names))
    check("no name has two rows", len(rows) == len(hooks), len(rows) - len(hooks))
    missing, by_pattern = uncovered(names, hooks, alone)
    check("every name has a row in hooks.def or a reason in left-alone.txt", not missing, missing)
    check("what sounds like memory, work or order is left alone by its full name", not by_pattern, by_pattern)
    check("every reason is given", all(len(reason) > 3 for _, _, reason in alone),
          [n for n, _, reason in alone if len(reason) <= 3])
    stale = [p for _, patterns, _ in alone for p in patterns if not fnmatch.filter(names, p)]
    check("no pattern is stale", not stale, stale)
    both = [p for _, patterns, _ in alone for p in patterns if p in hooks]
    check("nothing is hooked and left alone (a name with a row leaves preload/hooks/left-alone.txt)", not both, both)
    # A row for what only another toolkit exports is allowed; a misspelt one is not.
    unknown = sorted(hooks - names - of_graphics(library))
    check("every hooked name is one of the toolkit's", not unknown, unknown)
    # All aliases of a hooked name are hooked: base, _v2.., _ptsz, _ptds.
    base = lambda n: re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", n)  # noqa: E731
    bases = {base(n) for n in hooks}
    aliases = sorted(n for n in names if base(n) in bases and n not in hooks)
    check("every alias of a hooked name is hooked", not aliases, aliases)
    # The suffix and the type agree: per-thread-stream names have per-thread-stream types.
    odd = [n for _, n, t in rows if re.search("_pt[sd][sz]$", n) and not t.endswith(n[-5:])]
    check("per-thread-stream names have such types", not odd, odd)

    # The test can fail: a new entry point that allocates is noticed, with and without a pattern for it.
    missing, _ = uncovered(names | {"cuMemAllocQuick"}, hooks, alone)
    check("a new allocating entry point is noticed", missing == ["cuMemAllocQuick"], missing)
    _, by_pattern = uncovered(names | {"cuStreamGetAndFreeAsync_v2", "cuGraphNodeLaunch"}, hooks, alone)
    check("a pattern does not hide one", "cuGraphNodeLaunch" in by_pattern, by_pattern)
    missing, _ = uncovered(names, hooks - {"cuMemAlloc_v2"}, alone)
    check("a row that is gone is noticed", missing == ["cuMemAlloc_v2"], missing)
    finish()


main()
