"""What a program may see differ under the caching allocator, on purpose: the list in docs/behaviour.md, line by line.

The conformance program's output (conformance.cu) of the driver alone, and under the cache: test_caching.py
holds the one on the fake driver to the golden file of a GPU, scripts/gpu-check.sh both on the GPU itself.
"""
import difflib
import re

# (reason, section, line): every line that may differ, and why. One that does not differ is stale.
DELIBERATE = [
    ("a freed block waits for the GPU: its address comes again later",
     "placement", r"a hole is filled again at once|cudaFree"),
    ("blocks of 1 MiB and a little more lie in shared segments, 512 bytes apart", "placement", r"1 MiB( and a byte)?: 2 MiB aligned"),
    ("memory is taken from the device in segments of 2 and 20 MiB", "what cudaMemGetInfo counts", r"(4|one|2|3) of "),
    ("an access past a block's end, or after its free, lies in the same segment of the driver's",
     "copies", r"cudaMem(set|cpy) .*(past the end|freed memory)"),
    ("a freed block waits for the GPU: its address comes again later", "buffer ids", r"the same address again"),
    ("the driver goes on counting what was freed after a reset: the whole segment", "cudaDeviceReset", r"used by the default pool"),
]


def named(line):
    section, _, rest = line.partition(" | ")
    return [i for i, (_, s, pattern) in enumerate(DELIBERATE) if s == section and re.match(pattern, rest)]


def differences(bare, ours):
    """(lines that differ though nothing names them, entries of DELIBERATE that no line differs by)."""
    lines = [line for line in difflib.unified_diff(bare, ours, lineterm="", n=0)
             if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    other = [line for line in lines if not named(line[1:])]
    found = {i for line in lines for i in named(line[1:])}
    return other, [DELIBERATE[i] for i in range(len(DELIBERATE)) if i not in found]
