#!/usr/bin/env python3
"""Options in a living program: what is said, where, and that the program runs whatever was wrong."""
import os
import subprocess
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/preload")
from scripted import DRIVER, SCRIPT, Play, behaves  # noqa: E402
from tap import LIBRARY, check, finish, tell  # noqa: E402


def said():
    with Play() as room:
        run = behaves("bad values", room, "say before", "alloc 100", "say after", "exit 3", status=3,
                      said="gpumem: GPUMEM_HISTORY=many is not allowed", history="many", histroy="1",
                      GPUMEM_CONF="stacks:some,verbose:0")
        lines = run.stderr.splitlines()
        check("bad values: one line each, and no more", len(lines) == 3 and all(line.startswith("gpumem: ") for line in lines),
              lines)
        check("bad values: the unknown one has a hint", any("did you mean GPUMEM_HISTORY?" in line for line in lines), lines)
        check("bad values: the defaults are in force", room.live("exit") == [100] and
              room.snapshots("exit")[0]["process"]["pid"] > 0, room.files())
    with Play() as room:
        run = room.script("say x", history="many")
        check("nothing is said before the first CUDA call", run.returncode == 0 and not run.stderr, tell(run))
    with Play() as room:
        run = behaves("verbose:1", room, "alloc 100", "exit 0", verbose=1, said="gpumem: snapshot (exit): " + room.out, stacks="none")
        check("verbose:1: the effective options and their source", "gpumem: stacks=none (environment)" in run.stderr and
              "gpumem: history=1048576 (default)" in run.stderr, run.stderr)
    with Play() as room:
        run = room.script("alloc 1", "exit 0", GPUMEM_CONF=",".join("no%d:1" % i for i in range(500)))
        check("five hundred mistakes: a few lines", run.returncode == 0 and run.stderr.count("\n") < 20, run.stderr)


def segment_sizes(room):
    return [s["total_size"] for snapshot in room.snapshots("exit") for s in snapshot["segments"]]


def allocators():
    """Which one serves shows in the segments: 2 MiB of the cache's, or just what was asked for."""
    for value, sizes, line in (("caching", [2 << 20], ""), ("native", [100], ""), ("", [2 << 20], "is not allowed"),
                               ("cached", [2 << 20], "GPUMEM_ALLOCATOR=cached is not allowed: it takes one of caching, native; using caching")):
        with Play() as room:
            behaves("allocator:%s" % value, room, "alloc 100", "exit 0", allocator=value, said=line)
            check("allocator:%s: is in force" % value, segment_sizes(room) == sizes and room.live("exit") == [100], segment_sizes(room))
    with Play() as room:
        env = room.env(DRIVER=DRIVER, OUT=room.out)
        check("the tests set no allocator", not [name for name in env if "ALLOC" in name or name == "GPUMEM_CONF"], env)
        run = room.run([SCRIPT, "alloc 100", "exit 0"], env=env)
        check("allocator: caching by default", segment_sizes(room) == [2 << 20] and not run.stderr, (segment_sizes(room), tell(run)))


def debuggers():
    """What looks for faults in the driver's own allocations must find the program's there."""
    line = "gpumem: allocator:native, since compute-sanitizer is here"
    with Play() as room:
        behaves("compute-sanitizer's variable", room, "alloc 100", "exit 0", said=line,
                NV_SANITIZER_INJECTION_PORT_RANGE_END="49152")
        check("compute-sanitizer's variable: native", segment_sizes(room) == [100], segment_sizes(room))
    with Play() as room:
        run = behaves("told to be native", room, "alloc 100", "exit 0", allocator="native",
                      NV_SANITIZER_INJECTION_PORT_RANGE_END="49152")
        check("told to be native: nothing to say", not run.stderr and segment_sizes(room) == [100], segment_sizes(room))
    for name in ("libsanitizer-collection.so", "libsanitizer-public.so", "libcudadebugger.so.1"):
        with Play() as room:
            path = os.path.join(room.path, name)
            subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", path, "/dev/null"], check=True)
            run = room.script("alloc 100", "exit 0", LD_PRELOAD=LIBRARY + ":" + path)
            check("%s in the process: native, and said once" % name, run.returncode == 0 and segment_sizes(room) == [100] and
                  run.stderr.count("\n") == 1 and "allocator:native, since " in run.stderr, (segment_sizes(room), tell(run)))


def where():
    """stderr belongs to the host: nothing is written to what it opened under that number."""
    for title, words in (("closed, then a file of the host's", ["close 2", "stderr_to %s"]),
                         ("replaced by a file of the host's", ["stderr_to %s"])):
        with Play() as room:
            path = os.path.join(room.path, "host-data")
            run = room.script(*[w.replace("%s", path) for w in words], "alloc 100", "exit 0", history="many", verbose=1)
            content = open(path).read() if os.path.exists(path) else "missing"
            check("stderr %s: not written to" % title, run.returncode == 0 and content == "" and not run.stderr,
                  (content, tell(run)))
            check("stderr %s: recorded all the same" % title, room.live("exit") == [100], room.files())
    with Play() as room:
        run = room.run(["sh", "-c", 'exec "$0" "$@" 2>&-', SCRIPT, "stderr_to " + os.path.join(room.path, "host-data"),
                        "alloc 100", "exit 0"], env=room.env(history="many", DRIVER=DRIVER))
        check("stderr closed from the start: not written to", run.returncode == 0 and
              open(os.path.join(room.path, "host-data")).read() == "", tell(run))
    # The reader of stderr is gone: no SIGPIPE for the host.
    with Play() as room:
        env = room.env(verbose=1, history="many", DRIVER=DRIVER)
        reader, writer = os.pipe()
        os.close(reader)
        status = subprocess.run([SCRIPT, "alloc 100", "exit 6"], env=env, stdout=subprocess.DEVNULL, stderr=writer,
                                timeout=60, restore_signals=True, cwd=room.path).returncode
        os.close(writer)
        check("stderr is a broken pipe: the program goes on", status == 6, status)
        check("stderr is a broken pipe: recorded", room.live("exit") == [100], room.files())


def output():
    with Play() as room:
        behaves("a relative output", room, "alloc 100", "chdir /", "exit 0", output="here.%r.json")
        check("a relative output: from the directory of the first CUDA call", os.path.exists(os.path.join(room.path, "here.exit.json")),
              os.listdir(room.path))
    with Play() as room:
        behaves("a rank", room, "alloc 100", "exit 0", output=room.out + "/%c-%k-%r.json", OMPI_COMM_WORLD_RANK="17")
        check("a rank: from the launcher's variable", room.files() == ["script-17-exit.json"], room.files())
    with Play() as room:
        run = room.script("alloc 100", "exit 0", output=room.out + "/same.json")
        again = room.script("alloc 200", "exit 0", output=room.out + "/same.json")
        check("the same name twice: nothing is overwritten", run.returncode == again.returncode == 0 and
              room.files() == ["same-2.json", "same.json"] and room.live("same") == [200, 100], room.files())
        check("files are the user's alone", all(os.stat(os.path.join(room.out, f)).st_mode & 0o777 == 0o600 for f in room.files()))


def of_torch():
    """Snapshots say what PyTorch's own allocator was told, in the words of PyTorch's own."""
    for env, shown in (({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64"),
                       ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "expandable_segments:True"),
                       ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_ALLOC_CONF": "no:1"}, "max_split_size_mb:64"),
                       ({}, "")):
        with Play() as room:
            run = room.script("alloc 100", "exit 0", **env)
            settings = [s["allocator_settings"] for s in room.snapshots("exit")]
            check("PyTorch's settings: %s" % (shown or "none"), run.returncode == 0 and len(settings) == 1 and
                  settings[0]["PYTORCH_CUDA_ALLOC_CONF"] == shown and "PYTORCH_CUDA_ALLOC_CONF" not in settings[0]["gpumem"],
                  (tell(run), settings))


def main():
    said()
    allocators()
    debuggers()
    of_torch()
    where()
    output()
    finish()


main()
