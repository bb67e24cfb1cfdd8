#!/usr/bin/env python3
"""Find rings of includes and of names. Exit status 1 if there is one.

Includes: X.c, X.h and X_internal.h are one unit, and no unit may reach itself through its includes. Names: files of
preload/cache/ share headers, so there no file may reach itself through the functions and variables of other files that
it names. The units of a ring can only be read, tested and changed together.
"""
import glob
import os
import re
import sys

FLOORS = ("allocator", "recorder", "preload", "tools")
BY_NAMES = ("preload/cache",)
DEFINED = re.compile(r"^(?!static|extern|typedef|#)[\w *(),]*?\b(gm_\w+)(?:\(|\[|;| =)", re.M)
NO_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"|\b(?:struct|enum|union) \w+', re.S)


def unit_of(path):
    return re.sub(r"(_internal)?\.(c|h|S)$", "", path)


def units():
    """Return {unit: the units that it includes}."""
    found = {}
    for floor in FLOORS:
        for path in sorted(glob.glob(floor + "/**/*.[chS]", recursive=True)):
            text = open(path, encoding="utf-8").read()
            included = (unit_of(name) for name in re.findall(r'^#include "([^"]+\.h)"', text, re.M))
            found.setdefault(unit_of(path), set()).update(included)
    return {unit: {i for i in included if i != unit and i in found} for unit, included in found.items()}


def users(folder):
    """Return {file: the files of the same folder that define a name in it}."""
    texts = {path: NO_CODE.sub("", open(path, encoding="utf-8").read()) for path in sorted(glob.glob(folder + "/*.c"))}
    where = {name: path for path, text in texts.items() for name in DEFINED.findall(text)}
    return {path: {where[name] for name in re.findall(r"\bgm_\w+", text) if name in where} - {path}
            for path, text in texts.items()}


def rings(graph):
    """Return the strongly connected components of more than one unit (Tarjan's algorithm, without recursion)."""
    number, low, stack, result = {}, {}, [], []
    for root in graph:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        stack.append(root)
        work = [(root, iter(sorted(graph[root])))]
        while work:
            unit, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == number[unit]:
                    at = stack.index(unit)
                    if len(stack) - at > 1:
                        result.append(sorted(stack[at:]))
                    del stack[at:]
            elif following not in number:
                number[following] = low[following] = len(number)
                stack.append(following)
                work.append((following, iter(sorted(graph[following]))))
            elif following in stack:
                low[unit] = min(low[unit], number[following])
    return result


def main():
    bad = False
    for what, graph in [("include", units())] + [("name", users(folder)) for folder in BY_NAMES]:
        for ring in rings(graph):
            bad = True
            print("lint: %d units %s one another in a ring:" % (len(ring), what))
            for unit in ring:
                print("  %s -> %s" % (unit, " ".join(os.path.relpath(i, os.path.dirname(unit))
                                                     for i in sorted(graph[unit] & set(ring)))))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
