# timeout: 300
"""The Python package gpumem: every function, with the library and without it, in every Python that is here."""
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/python")
from host import HERE, PACKAGE, interpreters  # noqa: E402
from tap import B, GPUMEM, Room, check, finish, same, tell  # noqa: E402

PATHS = PACKAGE + ":" + HERE
ABSENT = '''
import gpumem
assert not gpumem.available() and gpumem.version() is None
for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "empty_cache"):
    assert getattr(gpumem, name)() == 0, name
for answer in (gpumem.snapshot("nowhere/x.json"), gpumem.reset_peak_memory_stats(), gpumem.mark("x"),
               gpumem.reset_accumulated_memory_stats(), gpumem.set_per_process_memory_fraction(0.5),
               gpumem.record_memory_history(), gpumem.register_oom_observer(print), gpumem.unregister_oom_observer(print)):
    assert answer is False, answer
assert gpumem.memory_stats() == {} and gpumem.memory_summary() == "" and gpumem.get_per_process_memory_fraction() == 1.0
assert gpumem.pool_memory_stats() == {} and gpumem.reset_pool_peak_memory_stats() is False
with gpumem.annotate("x"):
    pass
pool = gpumem.Pool("p")
assert not pool.allocated(4096, 512) and not pool.freed(4096) and pool.memory_stats() == {}
import gpumem.cupy
assert gpumem.cupy.install() is False
gpumem.cupy.uninstall()
print("absent")
'''
FIGURES = '''
import os, pathlib, threading
import gpumem
from host import alloc, free, try_alloc
assert gpumem.available() and gpumem.version().count(".") == 2
assert gpumem.memory_allocated() == 0 and gpumem.snapshot() is False and gpumem.memory_stats() == {}
seen = []
def observer(*what):
    seen.append(what)
    raise KeyError("printed, and no more")
assert gpumem.register_oom_observer(observer) and gpumem.register_oom_observer(observer)
first = alloc(1000)
second = alloc(3000)
free(second)
class Device:
    index = 0
assert gpumem.memory_allocated() == 1024 and gpumem.max_memory_allocated(Device()) == 4096
assert gpumem.memory_reserved() == gpumem.max_memory_reserved() == 2 << 20
stats = gpumem.memory_stats()
assert len(stats) == 122 and stats["requested_bytes.all.peak"] == 4000 and stats["allocation.all.freed"] == 1
assert gpumem.memory_summary().splitlines()[0].startswith("|====")
assert gpumem.reset_peak_memory_stats() and gpumem.max_memory_allocated() == 1024
assert gpumem.reset_accumulated_memory_stats() and gpumem.memory_stats()["allocation.all.allocated"] == 0
for wrong in (lambda: gpumem.memory_allocated(-1), lambda: gpumem.memory_stats(999), lambda: gpumem.memory_summary(-3),
              lambda: gpumem.memory_allocated("gpu"), lambda: gpumem.record_memory_history("perhaps"),
              lambda: gpumem.record_memory_history(max_entries=0), lambda: gpumem.snapshot(""),
              lambda: gpumem.set_per_process_memory_fraction(2), lambda: gpumem.memory_stats(1 << 40),
              lambda: gpumem.reset_peak_memory_stats(1.5), lambda: gpumem.memory_allocated("0"),
              lambda: gpumem.snapshot("x\\0y")):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError(wrong)
for wrong in (lambda: gpumem.mark(5), lambda: gpumem.record_memory_history(5), lambda: gpumem.register_oom_observer(5),
              lambda: gpumem.record_memory_history(max_entries=1.5), lambda: gpumem.Pool(5)):
    try:
        wrong()
    except TypeError:
        continue
    raise AssertionError(wrong)
try:
    gpumem.snapshot("x" * 3000)
    raise AssertionError("a name that long")
except OSError as error:
    assert error.errno, error
assert gpumem.get_per_process_memory_fraction() == 1.0 and gpumem.set_per_process_memory_fraction(0.5)
assert gpumem.get_per_process_memory_fraction() == 0.5
assert gpumem.empty_cache() == 0
free(first)
assert gpumem.empty_cache() == 2 << 20 and gpumem.memory_reserved() == 0
first = alloc(1000)
assert try_alloc(1 << 60)[0] == 2
assert [what[:2] for what in seen] == [(0, 1 << 60)], seen
assert gpumem.unregister_oom_observer(observer) and not gpumem.unregister_oom_observer(observer)
assert try_alloc(1 << 60)[0] == 2 and len(seen) == 1
assert gpumem.register_oom_observer(observer)           # and is gone when the interpreter ends
assert gpumem.snapshot(pathlib.Path("path.json")) and gpumem.snapshot("text.json") and gpumem.snapshot(b"bytes.json")
if os.fork() == 0:
    assert gpumem.memory_allocated() == 0 and gpumem.snapshot("child.json") is False and not gpumem.mark("child")
    os._exit(3)
assert os.wait()[1] == 3 << 8
assert gpumem.record_memory_history(None) and gpumem.record_memory_history("all", "alloc", "python", 1000)
print("figures")
'''
NATIVE = '''
import errno
import gpumem
from host import alloc
alloc(1000)
assert gpumem.memory_allocated() == gpumem.memory_reserved() == 1000 and gpumem.empty_cache() == 0
for fraction in (lambda: gpumem.set_per_process_memory_fraction(0.5), gpumem.get_per_process_memory_fraction):
    try:
        fraction()
    except OSError as error:
        assert error.errno == errno.ENOTSUP, error
        continue
    raise AssertionError("there is no cache that could refuse")
print("native")
'''
RANGES = '''
import asyncio, threading
import gpumem
from host import alloc

@gpumem.annotate("function")
def function(depth, size):
    return alloc(size) if not depth else function(depth - 1, size)

@gpumem.annotate("coroutine")
async def coroutine(size):
    await asyncio.sleep(0)
    return alloc(size)

@gpumem.annotate("generator")
def generator():
    yield alloc(300)
    return "returned"

closed = []

@gpumem.annotate("asynchronous")
async def asynchronous():
    try:
        try:
            got = yield alloc(500)
        except KeyError:
            got = "thrown"
        gpumem.mark("inside")
        yield got
    finally:
        closed.append(got)

async def each():
    sent, thrown = asynchronous(), asynchronous()
    await sent.__anext__()
    assert await sent.asend("sent") == "sent" and [item async for item in sent] == []
    await thrown.__anext__()
    assert await thrown.athrow(KeyError()) == "thrown"
    await thrown.aclose()
    assert closed == ["sent", "thrown"]

async def two():
    await asyncio.gather(coroutine(201), coroutine(202))

class Model:
    @gpumem.annotate("method")
    def run(self):
        """A method."""
        return alloc(400)

with gpumem.annotate("load"):
    alloc(100)
assert function.__name__ == "function" and Model.run.__doc__ == "A method."
function(1, 101)
asyncio.run(two())
asyncio.run(each())
def outer():
    assert (yield from generator()) == "returned"
list(outer())
Model().run()
try:
    with gpumem.annotate("raises"):
        raise KeyError("as it was")
except KeyError as error:
    assert error.args == ("as it was",)
thread = threading.Thread(target=function, args=(0, 102))
thread.start()
thread.join()
again = gpumem.annotate("again")
with again:
    with again:
        pass
assert gpumem.mark("Ein M\\u00e4rk \\ud800")
'''
POOLS = '''
import gpumem
from host import alloc
pool = gpumem.Pool("frames")
assert pool.number == 0 and not pool.allocated(4096, 512) and not pool.freed(4096)
base = alloc(1 << 20)
assert pool.number == gpumem.Pool("frames", 0).number > 0
assert pool.allocated(base, 512) and pool.allocated(base + 512, 1024, stream=7)
assert pool.freed(base) and not pool.freed(base)
assert pool.memory_stats()["allocated_bytes.all.current"] == 1024, pool.memory_stats()
assert pool.memory_stats()["allocated_bytes.all.peak"] == 1536
assert gpumem.reset_pool_peak_memory_stats("frames") and pool.memory_stats()["allocated_bytes.all.peak"] == 1024
assert pool.allocated(base, 512) and pool.freed(base) and not gpumem.reset_pool_peak_memory_stats("none")
assert pool.reset_peak_memory_stats() and pool.memory_stats()["allocated_bytes.all.peak"] == 1024
assert gpumem.pool_memory_stats("frames") == pool.memory_stats() and gpumem.pool_memory_stats("none") == {}
class Integer:
    def __init__(self, value):
        self.value = value
    def __index__(self):                # as numpy's
        return self.value
assert pool.allocated(Integer(base), Integer(512), Integer(0)) and pool.freed(Integer(base))
for wrong in ((base, "512"), (base, 512.0), (None, 512)):
    try:
        pool.allocated(*wrong)
    except TypeError:
        continue
    raise AssertionError(wrong)
assert gpumem.Pool("").number == 0 and not gpumem.Pool("").allocated(base, 1)
print("pools")
'''


def run(room, python, program, preload=True, **options):
    path = os.path.join(room.path, "program.py")
    with open(path, "w", encoding="utf-8") as script:
        script.write(program)
    return room.run([python, path], env=room.env(preload=preload, PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE=1, **options))


def functions(python, name):
    with Room() as room:
        bare = run(room, python, ABSENT, preload=False)
        check("%s: without the library everything does nothing, silently" % name,
              bare.returncode == 0 and bare.stdout == "absent\n" and not bare.stderr, tell(bare))
    with Room() as room:
        ours = run(room, python, FIGURES, snapshot_on="exit")
        check("%s: figures, errors and files are as gpumem.h says" % name,
              ours.returncode == 0 and ours.stdout == "figures\n" and "printed, and no more" in ours.stderr and
              ours.stderr.count("Traceback") == 1, tell(ours))
        check("%s: the snapshots are where they were asked for" % name,
              {"path.json", "text.json", "bytes.json"} <= set(os.listdir(room.path)) and "child.json" not in os.listdir(room.path),
              os.listdir(room.path))
    with Room() as room:
        ours = run(room, python, NATIVE, allocator="native")
        check("%s: allocator:native: what is a cache's is not there" % name, ours.returncode == 0 and ours.stdout == "native\n" and
              not ours.stderr, tell(ours))


EXAMPLE = """
def load():
    return 1
def step(model):
    return forward(model)
%s
assert forward(1) is None
print("example")
"""


def example(python, name):
    """The first example of docs/python.md, with the library and without it."""
    with open("docs/python.md", encoding="utf-8") as page:
        [block] = re.findall(r"^## In a program\n\n```python\n(.*?)^```$", page.read(), re.M | re.S)
    for preload in (True, False):
        with Room() as room:
            told = run(room, python, EXAMPLE % block, preload=preload)
            check("%s: the example of docs/python.md runs %s the library" % (name, "with" if preload else "without"),
                  told.returncode == 0 and told.stdout == "0 0\nexample\n" and not told.stderr, tell(told))


def ranges(python, name):
    with Room() as room:
        ours = run(room, python, RANGES)
        if not check("%s: ranges: the program ends well" % name, ours.returncode == 0 and not ours.stderr, tell(ours)):
            return
        bare = run(room, python, RANGES.replace("assert gpumem.mark", "assert not gpumem.mark"), preload=False)
        check("%s: ranges: and without the library" % name, same(bare, ours), tell(bare, ours))
        found = room.snapshots("exit")[0]["annotations"]
        lines = [(one["stage"], one["name"]) for one in found]
        both = [("START", "coroutine")] * 2
        want = [("START", "load"), ("END", "load")] + [("START", "function")] * 2 + [("END", "function")] * 2 + both + \
            [("END", "coroutine")] * 2 + [("START", "asynchronous"), ("MARK", "inside"), ("END", "asynchronous")] * 2 + [(stage, text) for text in ("generator", "method", "raises", "function")
                                          for stage in ("START", "END")] + \
            [("START", "again")] * 2 + [("END", "again")] * 2 + [("MARK", "Ein M\u00e4rk ?")]
        check("%s: ranges: begun and ended in order" % name, lines == want, lines)
        starts = {one["range"] for one in found if one["stage"] == "START"}
        ends = {one["range"] for one in found if one["stage"] == "END"}
        check("%s: ranges: each has an end of its own" % name, len(starts) == 13 and starts == ends,
              (starts, ends))
        times = {size: time for t in room.snapshots("exit")[0]["device_traces"]
                 for action, size, time in zip(t["action"], t["size"], t["time_us"]) if action == "alloc"}
        inside = [one["time_us"] for one in found if one["name"] == "generator"]
        check("%s: ranges: the generator's covers what it allocates" % name, inside[0] <= times[300] <= inside[1], (inside, times))


def header():
    """The package calls what gpumem.h declares, with as many arguments."""
    sys.path.insert(0, PACKAGE)
    from gpumem._library import PROTOTYPES
    with open("preload/api/gpumem.h", encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    declared = {}
    for result, name, arguments in re.findall(r"^GPUMEM_API ([\w ]*?\*?)(gpumem_\w+)\((.*?)\);", text, re.M | re.S):
        arguments = re.sub(r"\(\*fn\)\(.*?\)", "fn", arguments, flags=re.S)
        declared[name] = 0 if arguments.strip() == "void" else arguments.count(",") + 1
        wide = "double" if "double" in result else "long" if "int64" in result else "pointer" if "*" in result else "int"
        code = {"double": "d", "long": "l", "pointer": "z", "int": "i"}[wide]
        if name in PROTOTYPES:
            check("header: %s returns what the package expects" % name, PROTOTYPES[name][0]._type_ == code, (result, PROTOTYPES[name]))
    for name in ("gpumem_torch_malloc", "gpumem_torch_free"):       # for PyTorch, which finds them itself
        declared.pop(name)
    check("header: the package knows every function, and no more", declared and declared ==
          {name: len(arguments) for name, (_, arguments) in PROTOTYPES.items()},
          (declared, {name: len(arguments) for name, (_, arguments) in PROTOTYPES.items()}))


def command():
    """python -m gpumem is the command."""
    python = sys.executable
    with Room() as room:
        env = room.env(preload=False, PYTHONPATH=PATHS, PYTHONDONTWRITEBYTECODE=1)
        told = room.run([python, "-m", "gpumem", "--version"], env=env)
        want = room.run([GPUMEM, "--version"], env=env)
        check("command: python -m gpumem, of a source tree", told.returncode == 0 and told.stdout == want.stdout, tell(told))
        program = os.path.join(room.path, "train.py")
        with open(program, "w", encoding="utf-8") as script:
            script.write("import sys, gpumem, host\nhost.alloc(12288)\nprint(gpumem.memory_allocated())\nsys.exit(5)\n")
        told = room.run([python, "-m", "gpumem", "run", "--output=%s/run.%%r.json" % room.out, "--", python, program],
                        env=env)
        check("command: python -m gpumem run -- python: recorded, and its exit status",
              told.returncode == 5 and told.stdout == "12288\n" and room.files() == ["run.exit.json"], (tell(told), room.files()))
        ignored = ["run", "--quiet", "--", "grep", "SigIgn", "/proc/self/status"]
        told, want_ignored = (room.run(words + ignored, env=env) for words in ([python, "-m", "gpumem"], [GPUMEM]))
        check("command: the program ignores no signal that it does not ignore under gpumem itself",
              told.returncode == 0 and told.stdout.startswith("SigIgn") and same(told, want_ignored), tell(told, want_ignored))
        told = room.run([python, "-m", "gpumem", "run", "--quiet", "--", "sh", "-c", "yes | head -1"], env=env)
        check("command: a program whose reader is gone ends without a word", told.returncode == 0 and
              (told.stdout, told.stderr) == ("y\n", ""), tell(told))
        empty = os.path.join(room.path, "site/gpumem")
        os.makedirs(empty)
        for name in os.listdir(os.path.join(PACKAGE, "gpumem")):
            if name.endswith(".py"):
                os.symlink(os.path.join(PACKAGE, "gpumem", name), os.path.join(empty, name))
        script = os.path.join(room.path, "gpumem")
        with open(script, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 9\n")
        os.chmod(script, 0o755)
        env.update(PYTHONPATH=os.path.dirname(empty), PATH=room.path + ":/usr/bin:/bin")
        told = room.run([python, "-m", "gpumem", "--version"], env=env)
        check("command: none there: it says so, and runs no script of that name",
              told.returncode == 1 and "no command gpumem here" in told.stderr, tell(told))
        env["PATH"] = os.path.dirname(GPUMEM) + ":" + env["PATH"]
        told = room.run([python, "-m", "gpumem", "--version"], env=env)
        check("command: one on the PATH", told.stdout == want.stdout, tell(told))


def main():
    check("there is a build", os.path.isdir(B))
    header()
    command()
    found = interpreters()
    check("there are interpreters", found)
    for python, version in found:
        name = "Python %d.%d" % version
        functions(python, name)
        example(python, name)
        ranges(python, name)
        with Room() as room:
            told = run(room, python, POOLS)
            check("%s: pools" % name, told.returncode == 0 and told.stdout == "pools\n", tell(told))
    finish()


main()
