#!/usr/bin/env python3
"""How a program gets hold of the driver's functions: what it is handed, and by whom."""
import os
import re
import subprocess
import sys

sys.path.insert(0, "test")
from tap import B, FAKE, LIBRARY, Room, check, finish, live_bytes, tell  # noqa: E402

HERE = os.path.join(B, "test/preload")
RESOLVE = os.path.join(HERE, "resolve")
OURS, DRIVER, SHIM = "libgpumem.so", "libstandin.so", "libshim.so"


def status(answer):
    """Of a call's answer: where memory is, a cache decides."""
    return answer.split()[0]


def lines(run):
    """"what: answer" lines as a list of pairs, since a question may be asked twice."""
    return [tuple(line.split(": ", 1)) for line in run.stdout.splitlines()]


def both(room, *args, **options):
    """The same questions without the library and with it."""
    command = [RESOLVE] + list(args)
    bare = room.run(command, preload=False, fake=False, **options)
    ours = room.run(command, fake=False, **options)
    if not check("%s: runs without" % args[0], bare.returncode == 0, tell(bare)):
        return [], []
    if not check("%s: runs with" % args[0], ours.returncode == 0 and not ours.stderr, tell(ours)):
        return [], []
    return lines(bare), lines(ours)


def by_handle(early):
    with Room() as room:
        bare, ours = both(room, "handle", os.path.join(HERE, DRIVER), **({"STANDIN_EARLY": "1"} if early else {}))
        # cuMemcpy: whether work has to be known of is not decided before the library has started.
        hooked = {"cuMemAlloc_v2", "cuMemAlloc", "cuMemAllocAsync_ptsz", "cuGetProcAddress_v2", "cuMemcpy"}
        check("handle: as many answers", len(bare) == len(ours), (bare, ours))
        for (what, without), (_, got) in zip(bare, ours):
            if what in hooked and without == DRIVER:
                check("handle: %s is ours" % what, got == OURS, got)
            elif what not in ("the driver's own look-up", "calls"):     # of which a cache makes fewer
                check("handle: %s as without" % what, status(got) == status(without), (without, got))
        if early:
            check("handle: what the driver looks up while it is loaded is a working function",
                  dict(ours).get("the driver's own look-up") in (OURS, DRIVER), ours)
        # 64 bytes were asked for and 666 were not to be had: both went into the record.
        oom, at_exit = room.snapshots("oom"), room.snapshots("exit")
        check("handle: the allocation through the pointer is recorded",
              [live_bytes(s) for s in at_exit] == [64], room.files())
        check("handle: and what could not be had", len(oom) == 1 and oom[0]["failure"], room.files())


def by_version():
    """Work is hooked for the cache, and only for it: with allocator:native the program gets the driver's own."""
    for allocator, work in (({}, OURS), ({"allocator": "native"}, DRIVER)):
        with Room() as room:
            bare, ours = both(room, "version", os.path.join(HERE, DRIVER), **allocator)
            answers = dict(ours)
            for what, without in bare:
                hooked = "cuMemAlloc" in what or what == "cuMemcpy" and work == OURS
                want = without.replace(DRIVER, OURS) if hooked else without
                check("version: %s%s" % (what, ", native" if allocator else ""), answers.get(what) == want, (want, answers.get(what)))
            check("version: work is hooked while allocator is caching, and only then", work in answers.get("cuMemcpy", ""), answers)


def nowhere():
    with Room() as room:
        bare, ours = both(room, "nowhere")
        for (what, without), (_, got) in zip(bare, ours):
            check("no driver: %s as without" % what, got == without, (without, got))
        check("no driver: a hook that is called says that nothing is initialised",
              ("cuMemAlloc_v2", "3, address untouched") in ours, ours)
        check("no driver: nothing is written", not room.files() and not room.snapshots(), room.files())


def local():
    for allocator, calls in (({}, "1"), ({"allocator": "native"}, "2")):
        with Room() as room:
            _, ours = both(room, "local", os.path.join(HERE, DRIVER), **allocator)
            answers = dict(ours)
            check("a driver loaded RTLD_LOCAL serves exported hooks, too", status(answers["linked cuMemAlloc_v2"]) == "0", ours)
            check("and RTLD_DEFAULT", status(answers["RTLD_DEFAULT cuMemAlloc_v2"]) == "0", ours)
            check("a function that the driver lacks is not found", answers.get("a function that this driver lacks") == "500", ours)
            # The addresses of the stand-in say by which function it was asked.
            check("native: each is the driver's answer to the program's own call", not allocator or
                  (answers["linked cuMemAlloc_v2"], answers["RTLD_DEFAULT cuMemAlloc_v2"]) == ("0 200100009", "0 200000009"), ours)
            check("each call reached the driver once, or the one that a cache makes of them", answers.get("calls") == calls, ours)


def others():
    with Room() as room:
        bare, ours = both(room, "shim", os.path.join(HERE, SHIM), os.path.join(HERE, DRIVER))
        check("another provider's functions stay its own", bare == ours and ("alone", SHIM) in ours, (bare, ours))
        bare, ours = both(room, "deepbind", os.path.join(HERE, DRIVER))
        check("RTLD_DEEPBIND is unharmed", [(w, status(a)) for w, a in bare] == [(w, status(a)) for w, a in ours] and bare, (bare, ours))
        bare, ours = both(room, "threads", os.path.join(HERE, DRIVER))
        check("sixteen threads that are the first get the same", ("same", "1") in ours and ("in", OURS) in ours, ours)


def next_in_line():
    """RTLD_NEXT asked through dlsym: whoever asks must be seen by the real one."""
    names = ["libnextfirst.so", "libnextlast.so"]
    with Room() as room:
        interposers = [os.path.join(HERE, n) for n in names]
        for title, preload in (("without us", interposers), ("before", [LIBRARY] + interposers),
                               ("behind", interposers + [LIBRARY])):
            run = room.run([RESOLVE, "next"], env=room.env(LD_PRELOAD=" ".join(preload)))
            check("RTLD_NEXT of another interposer, %s" % title, run.stdout == "111 211\n", tell(run))


def every_name():
    """All that the list has, and all that the runtime asks for at its start, looked up in the whole driver."""
    rows = re.findall(r"^GM_(?!CALL)(\w+)\((\w+), (\w+),", open("preload/hooks/hooks.def").read(), re.M)
    hooked = {name for kind, group, name in rows if kind != "PASS"}
    rows = [(group, name) for _, group, name in rows]
    queries = re.findall(r"^CUDART_QUERY\((\w+), (\d+), (\d+)\)", open("test/fakecuda/cudart/queries.def").read(), re.M)
    asked = "".join(name + "\n" for _, name in rows) + "".join(" ".join(q) + "\n" for q in queries)
    with Room() as room:
        got = []
        for preload in (False, True):
            run = subprocess.run([RESOLVE, "all", os.path.join(FAKE, "libcuda.so.1")], input=asked, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env=room.env(preload=preload), timeout=60)
            check("every name: asked %s the library" % ("with" if preload else "without"), run.returncode == 0 and not run.stderr,
                  tell(run))
            got.append(lines(run))
        bare, ours = got
        check("every name: %d answers" % len(ours), len(bare) == len(ours) == len(rows) + len(queries), (len(bare), len(ours)))
        check("every name: most are in the fake driver", sum(a != "NULL" for _, a in bare) > 400, len(bare))
        wrong = []
        for (what, without), (_, answer) in zip(bare, ours):
            place, _, symbol = without.partition(" ")
            want = "libgpumem.so " + symbol if symbol in hooked else without
            if answer != want:
                wrong.append((what, want, answer))
        check("every name: the hook where there is a body, else the driver's, of the same ABI", not wrong, wrong[:5])
        check("every name: every body is handed out", hooked == {a.split()[1] for w, a in ours if OURS in a and " " not in w},
              hooked ^ {a.split()[1] for w, a in ours if OURS in a and " " not in w})


def sanitized_host():
    """A host whose sanitizer looks functions up while it starts, before anything is initialised."""
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if not os.path.isabs(runtime):
        print("# no libasan here")
        return
    with Room() as room:
        host = os.path.join(room.path, "host")
        made = subprocess.run(["gcc", "-fsanitize=address", "-x", "c", "-", "-o", host, "-ldl"], text=True,
                              input="#include <dlfcn.h>\n#include <stdio.h>\n"
                              "int main(void) { puts(dlsym(RTLD_DEFAULT, \"puts\") ? \"runs\" : \"lost\"); return 0; }\n")
        check("sanitized host: compiles", made.returncode == 0)
        run = room.run([host], env=room.env(LD_PRELOAD=os.path.realpath(runtime) + " " + LIBRARY))
        check("sanitized host: runs", run.returncode == 0 and run.stdout == "runs\n" and not run.stderr, tell(run))


def main():
    by_handle(early=False)
    by_handle(early=True)
    by_version()
    nowhere()
    local()
    others()
    next_in_line()
    every_name()
    sanitized_host()
    finish()


main()
