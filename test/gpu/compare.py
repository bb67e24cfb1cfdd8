"""What is compared of two runs, or of one moment seen from two sides; gpu_pools.py and the tests of pools use it, too.

usage: compare.py repeats BARE AGAIN OURS      two runs without the library and one with it: what the program
                                               prints alike without it must be alike with it, line by line; what
                                               follows a ";" in a line may differ, and is named
Prints one line: what was found. Exit 0: as it should be; 1: not.
"""
import sys


def layout(segments):
    """{address: (bytes, of small blocks, [(address, bytes, handed out)])}: what is idle or waits for a stream is one piece
    where it lies side by side, for what waits is not told."""
    found = {}
    for segment in segments:
        blocks = []
        for block in segment["blocks"]:
            out = block["state"] == "active_allocated"
            if blocks and not out and not blocks[-1][2]:
                blocks[-1] = (blocks[-1][0], blocks[-1][1] + block["size"], False)
            else:
                blocks.append((block["address"], block["size"], out))
        found[segment["address"]] = (segment["total_size"], segment["segment_type"], blocks)
    return found


def snapshots(ours, theirs, device=0):
    """A converted pickle beside _snapshot(), of one moment: a text for each segment that differs, and how many blocks were
    compared. Streams, requested sizes and private pools are not told (docs/frameworks.md)."""
    sides = [layout([s for s in side["segments"] if s["device"] == device]) for side in (ours, theirs)]
    wrong = ["segment %#x: %s" % (address, "ours alone" if address in sides[0] else "PyTorch's alone")
             for address in sorted(set(sides[0]) ^ set(sides[1]))]
    count = 0
    for address in sorted(set(sides[0]) & set(sides[1])):
        a, b = sides[0][address], sides[1][address]
        count += len(b[2])
        if a[:2] != b[:2]:
            wrong.append("segment %#x: ours %d bytes of %s, PyTorch's %d of %s" % ((address,) + a[:2] + b[:2]))
        elif a[2] != b[2]:
            wrong.append("segment %#x: ours alone %s, PyTorch's alone %s" % (
                address, sorted(set(a[2]) - set(b[2]))[:3], sorted(set(b[2]) - set(a[2]))[:3]))
    return wrong, count


def repeats(bare, again, ours):
    """(what is wrong or "", what was found) of three outputs, as lists of lines. What follows a ";" is counts of PyTorch's own
    cache: of idle pieces of one size it takes the one of the lowest address, so another order of addresses from cudaMalloc
    changes how often it tries again near its limit."""
    bits = [[line.partition(";")[0] for line in lines] for lines in (bare, again, ours)]
    alike = [i for i, line in enumerate(bits[0]) if i < len(again) and bits[1][i] == line]
    differ = [i for i in alike if i >= len(ours) or bits[2][i] != bits[0][i]]
    if len(ours) != len(bare):
        return "%d lines with the library, %d without" % (len(ours), len(bare)), ""
    if not alike:
        return "without the library no line comes twice: nothing can be compared", ""
    if differ:
        return "line %d is alike without the library, and differs with it: %s / %s" % (
            differ[0] + 1, bare[differ[0]], ours[differ[0]]), ""
    own = [str(i + 1) for i in range(len(bare)) if i not in alike]
    counts = ["%s /%s" % (bare[i], ours[i].partition(";")[2]) for i in alike if bare[i] == again[i] != ours[i]]
    return "", "%d lines alike%s%s" % (len(alike), "; without the library, too, lines %s differ" % ", ".join(own) if own else "",
                                       "; other counts: " + " and ".join(counts) if counts else "")


def main():
    if len(sys.argv) != 5 or sys.argv[1] != "repeats":
        sys.exit(__doc__)
    outputs = []
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as text:
            outputs.append(text.read().splitlines())
    wrong, found = repeats(*outputs)
    print(wrong or found)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
