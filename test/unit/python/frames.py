"""Run by test_python with each CPython it finds: what the recorder makes of this interpreter's stacks is compared with
what the interpreter says of itself, frame by frame. frames.py LIBRARY DIRECTORY [GROUP]; prints a line for each case."""
import asyncio
import ctypes
import gc
import os
import sys
import threading

if hasattr(sys, "setrecursionlimit"):
    sys.setrecursionlimit(5000)
LIB = ctypes.CDLL(sys.argv[1])
HELD = ctypes.PyDLL(sys.argv[1])        # keeps the GIL during the call
LIB.pyframes_note.restype = ctypes.c_char_p
LIB.pyframes_time.restype = LIB.pyframes_time_walk.restype = ctypes.c_double
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)
BUFFER = 1 << 18
cases = failures = 0


def text_of(stack):
    buffer = ctypes.create_string_buffer(BUFFER)
    size = LIB.pyframes_text(stack, buffer, BUFFER)
    lines = ctypes.string_at(buffer, size).decode("utf-8", "replace").splitlines()     # buffer.raw would read all of it
    return [tuple(line.split("\t")) for line in lines if line != "..."], lines[-1:] == ["..."]


def chain():
    """The caller's stack as Python has it, innermost first."""
    frame, found = sys._getframe(1), []
    while frame:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        file = frame.f_code.co_filename
        if not file.isascii():
            file = "".join("\ufffd" if 0xd800 <= ord(c) < 0xe000 else c for c in file)
        found.append(("P", name, file, str(frame.f_lineno or 0)))
        frame = frame.f_back
    return found


def result(name, good, *why):
    global cases, failures
    cases += 1
    failures += not good
    if not good:
        print("# %s %s: %s" % (sys.version.split()[0], name, " ".join(str(w) for w in why)))


def compare(name, stack, want, depth=256, native=True):
    got, cut = text_of(stack)
    python = [frame for frame in got if frame[0] == "P"]
    if len(want) < depth // 4 and not cut:
        good = python == want
        good = good and not (native and any("EvalFrameDefault" in frame[1] for frame in got))
    else:
        good = len(python) > 10 and python == want[:len(python)]
    first = next((pair for pair in zip(python, want) if pair[0] != pair[1]), (len(python), len(want)))
    result(name, good, "cut" if cut else "", first, got if len(got) < 25 else "")
    return got


def check(name):
    got, want = LIB.pyframes_capture(), chain()
    compare(name, got, want)
    got, want = HELD.pyframes_capture(), chain()
    compare(name + ", GIL held", got, want)
    return True


def names_of(frames, natives=("pyframes_call", "pyframes_call_large")):
    """The stack without what is not ours: to see the order of native and Python frames."""
    return [frame[1].split(".")[-1] for frame in frames if frame[0] == "P" or frame[1] in natives]


# ---- what Python code can be like ----

class Things:
    def __init__(self, name):
        self.name = name
        check(name + " in __init__")

    def __del__(self):
        check(self.name + " in __del__")

    def __lt__(self, other):
        return check("compared by sort")

    def __enter__(self):
        check("__enter__")
        return self

    def __exit__(self, *_):
        check("__exit__, exception in flight")
        return True

    @property
    def value(self):
        return check("property")

    @staticmethod
    def over_lines(*args):
        return check(
            "a call "
            "over lines",
        )


def generator(n):
    for i in range(n):
        check("generator")
        yield i
    yield from inner_generator()


def inner_generator():
    check("inner generator")
    yield 1


async def coroutine(depth):
    if depth:
        await asyncio.sleep(0)
        await coroutine(depth - 1)
    else:
        check("coroutine")
        async for _ in async_generator():
            check("in async for")


async def async_generator():
    check("async generator")
    yield 1


def cells():
    one = 1

    def inner(two=2):
        return one + two + check("closure")
    return inner()


def ünïcödé_名前():
    check("a name that is not ASCII")


def plain_code():
    check("plain")
    (lambda: check("lambda"))()
    [check("comprehension") for _ in range(2)]
    list(check("generator expression") for _ in range(2))
    {k: check("dict comprehension") for k in range(1)}
    list(map(lambda x: check("map"), [1]))
    cells()
    ünïcödé_名前()
    thing = Things("object")
    sorted([thing, thing, thing])
    thing.value
    thing.over_lines(
        1,
        2)
    with thing:
        raise ValueError
    try:
        raise KeyError
    except KeyError:
        check("except")
        try:
            raise ValueError
        except ValueError:
            check("except in except")
        finally:
            check("finally")
    del thing
    gc.collect()
    list(generator(3))
    g = generator(1)
    next(g)
    g.close()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(coroutine(4))
    loop.close()
    type("Made", (), {"__set_name__": lambda *_: check("never"), "run": lambda self: check("made class")})().run()
    eval("check('eval')")


def long_code():
    """A function with a line table of thousands of bytes, and lines far apart."""
    for name, file in (("plain", "<long>"), ("path", "/tmp/" + "long/" * 150 + "Ж.py"), ("wide", "𝔘" * 90 + ".py"),
                       ("lone", "undecodable \udce9.py")):
        source = "def long_function():\n"
        for i in range(400):
            source += "    x = [%d,\n%s  %d]\n" % (i, "\n" * (i % 7 * 40), i)
            if i % 80 == 79:
                source += "    check('long code %s %d')\n" % (name, i)
        scope = {"check": check}
        exec(compile(source, file, "exec"), scope)
        scope["long_function"]()


def reused_code():
    """Code objects that come and go at the same addresses, told apart by file, by name and by line only; until some
    were seen to have been where others were, with all that they refer to."""
    def parts(code):
        return [getattr(code, name, None) for name in ("co_filename", "co_name", "co_linetable")]

    def sources(i):
        yield compile("\n" * (i % 3) + "check('line of code made anew')", "<made>", "exec")
        yield compile("check('file of code made anew')", "".join(["made-%d.py" % (i % 3)]), "exec")
        scope = {"check": check}
        exec("def made_%d(): check('name of code made anew')" % (i % 3), scope)
        yield scope["made_%d" % (i % 3)].__code__
        if sys.version_info >= (3, 12):         # older ones have no number to tell these by
            lines = "".join("x = %d\n" % k + "\n" * ((k == 20) * (i % 3)) for k in range(40))
            yield compile(lines + "check('line deep in code made anew')", "<made>", "exec")
            yield compile("check('directory of code made anew')", "".join(["/made/%d/the/same/end/name.py" % (i % 3)]), "exec")

    seen, again = {}, [0, 0, 0, 0, 0]
    for i in range(400):
        for kind, code in enumerate(sources(i)):
            place = (kind, id(code)) + tuple(map(id, parts(code)))
            again[kind] += seen.setdefault(place, i % 3) != i % 3
            if place in seen or i < 20:
                exec(code, {"check": check})
            del code
    print("# %s: code at the place of other code, told apart by line, file, name, end: %s" % (sys.version.split()[0], again))


class Warm:
    def __init__(self, deep=False):
        if deep:
            check("in __init__ of a class that is often called")


def often_called():
    """Calls of classes that the interpreter has specialised."""
    for i in range(3000):
        Warm(i == 2999)
    for i in range(3000):
        generated = next(iter_of(i == 2999))
    return generated


def iter_of(deep):
    for _ in (1,):
        yield check("generator often called") if deep else 0


def recursion(depth, bottom):
    return recursion(depth - 1, bottom) if depth else bottom()


def recursion_through_c(depth, bottom):
    return next(map(lambda d: recursion_through_c(d, bottom), [depth - 1])) if depth else bottom()


def deep_code():
    for depth in (1, 5, 20, 60):
        recursion(depth, lambda: check("recursion %d" % depth))
    calls = 20 if hasattr(sys, "gettotalrefcount") else 4       # a debug build allows few calls in C
    for depth in (100, 300, 1000):
        recursion(depth, lambda: check("deep recursion %d" % depth))
        recursion_through_c(depth // calls, lambda: check("recursion through C %d" % depth))


# ---- what is not walked again: the frames that are as they were in the thread's walk before ----

def bottom():
    check("as before, further in")


def caller_a(depth):
    return recursion(depth, bottom)


def caller_b(depth):
    return recursion(depth, bottom)


def resumed(depth):
    while True:
        yield recursion(depth, bottom)


def resume_a(made):
    return next(made)


def resume_b(made):
    return next(made)


def as_before():
    """The inner frames stand where they did, with the same code at the same instruction, and those further out do not."""
    made = [resumed(0), resumed(9)]
    for i in range(40):
        for depth in (0, 3, 9, 30):
            caller_a(depth)
            caller_b(depth)
            (caller_a if i % 2 else caller_b)(depth)
            recursion(i % 7, lambda: caller_a(depth))
            recursion(i % 5, lambda: caller_b(depth))
        for generator_of in made:
            resume_a(generator_of)
            resume_b(generator_of)
            next(generator_of)
    for depth in (20, 70, 20, 150, 20, 300, 5):
        caller_a(depth)
        caller_b(depth)
    # code made anew where other code was, further out
    for i in range(200):
        code = compile("\n" * (i % 3) + "run(12, bottom)", "".join(["outer-%d.py" % (i % 2)]), "exec")
        exec(code, {"run": recursion, "bottom": bottom})
        del code
    for i in range(200):
        made = type(caller_a)(caller_a.__code__.replace(co_firstlineno=caller_a.__code__.co_firstlineno + i % 3), globals())
        made(12)
        del made


# ---- places among native frames ----

def through_c(depth, call=None):
    if not depth:
        got, want = LIB.pyframes_capture(), chain()
        return names_of(compare("through C", got, want)), [frame[1].split(".")[-1] for frame in want]
    seen = []

    def back():
        seen.append(between(depth - 1))
        return 0
    (call or (LIB.pyframes_call if depth % 2 else LIB.pyframes_call_large))(CALLBACK(back))
    return seen[0]


def between(depth):
    return through_c(depth)


def places():
    for depth in (1, 2, 3, 4, 5):
        got, want = through_c(depth)
        expected = []
        for at, name in enumerate(want):
            expected.append(name)
            if name == "back":
                level = sum(1 for n in want[:at + 1] if n == "back")
                expected.append("pyframes_call" if level % 2 else "pyframes_call_large")
        result("places among native frames, depth %d" % depth, got == expected, got, expected)


def only_python():
    LIB.pyframes_configure(0, 1, 64)
    got, want = LIB.pyframes_capture(), chain()
    compare("without native frames", got, want, native=False)
    result("without native frames", all(frame[0] == "P" for frame in text_of(got)[0]), text_of(got))
    recursion(100, lambda: result("python only, cut at its depth", len(text_of(LIB.pyframes_capture())[0]) == 64))
    LIB.pyframes_configure(1, 0, 64)
    got = text_of(LIB.pyframes_capture())[0]
    result("native only", got and all(frame[0] == "N" for frame in got), got)
    LIB.pyframes_configure(1, 1, 5)
    got, cut = text_of(LIB.pyframes_capture())
    result("cut at 5 frames", len(got) == 5 and cut, got, cut)
    LIB.pyframes_configure(1, 1, 256)


# ---- threads, interpreters, the end ----

def threads():
    def run(number):
        for _ in range(20):
            recursion(number, lambda: check("thread"))
    workers = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    LIB.pyframes_call_in_thread(CALLBACK(lambda: check("thread that C made") and 0))


INTERPRETED = """
import sys, ctypes
lib = ctypes.%s(%r)
def chain():
    frame, found = sys._getframe(1), []
    while frame:
        found.append(("P", getattr(frame.f_code, "co_qualname", frame.f_code.co_name), frame.f_code.co_filename,
                      str(frame.f_lineno)))
        frame = frame.f_back
    return found
def inner():
    got, want = lib.pyframes_capture(), chain()
    buffer = ctypes.create_string_buffer(1 << 16)
    size = lib.pyframes_text(got, buffer, 1 << 16)
    got = [tuple(l.split("\\t")) for l in buffer.raw[:size].decode().splitlines()]
    python = [f for f in got if f[0] == "P"]
    with open(%r, "a") as report:
        report.write(repr((python[:len(want)] == want, python, want, got)) + "\\n")
def outer():
    inner()
outer()
"""


def subinterpreters():
    """In a sub-interpreter made and entered through C. With the GIL released, up to 3.11 nobody can say which one."""
    report = os.path.join(sys.argv[2], "report-%d" % os.getpid())
    loaders = ["PyDLL"] + (["CDLL"] if sys.version_info >= (3, 12) else [])
    interpreters = __import__("_interpreters" if has("_interpreters") else "_xxsubinterpreters")
    for loader in loaders:
        source = INTERPRETED % (loader, sys.argv[1], report)
        number = new_interpreter(interpreters)
        interpreters.run_string(number, source)
        check("beside a sub-interpreter")
        interpreters.destroy(number)
        check("after a sub-interpreter")
        with open(report) as lines:
            for line in lines:
                good, python, want, got = eval(line)
                result("sub-interpreter, " + loader, good, python, want, got)
        os.unlink(report)
    if sys.version_info < (3, 12):
        source = INTERPRETED % ("CDLL", sys.argv[1], report)
        number = new_interpreter(interpreters)
        interpreters.run_string(number, source)
        with open(report) as lines:
            for line in lines:
                _, python, want, got = eval(line)
                rest = chain()
                result("sub-interpreter, GIL released: the frames that are shown are of the outer one, behind native ones",
                       [f[:3] for f in python if f[1] != "subinterpreters"] == [f[:3] for f in rest[1:]], python, rest)
        interpreters.destroy(number)
        os.unlink(report)


def new_interpreter(interpreters):
    """One that shares what it can: ctypes does not load in others before 3.13."""
    return interpreters.create(isolated=False) if (3, 9) <= sys.version_info < (3, 13) else interpreters.create()


def has(module):
    try:
        __import__(module)
        return True
    except ImportError:
        return False


def at_end():
    import atexit
    atexit.register(lambda: (check("atexit"), print("# at exit: %d failed" % failures), failures and os._exit(3)))
    capture, lock = LIB.pyframes_capture, threading.Event()

    def forever():
        lock.set()
        while True:
            capture()
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    lock.wait()
    sys.modules["kept"] = type("Late", (), {"__del__": lambda self, capture=capture: capture()})()


GROUPS = [plain_code, often_called, long_code, reused_code, deep_code, as_before, places, only_python, threads, subinterpreters, at_end]


def main():
    started = LIB.pyframes_start(sys.argv[2].encode(), 1, 1, 256)
    assert started == 0, started
    LIB.pyframes_capture()
    note = LIB.pyframes_note().decode()
    supported = sys.implementation.name == "cpython" and sys.version_info >= (3, 8)
    if not supported:
        result("said to be off", "Python stacks are off" in note, note)
        got = text_of(LIB.pyframes_capture())[0]
        result("native frames only", got and all(frame[0] == "N" for frame in got), got)
    else:
        result("not off", not note, note)
        for group in GROUPS:
            if len(sys.argv) < 4 or group.__name__ in sys.argv[3:]:
                group()
        result("still not off", not LIB.pyframes_note(), LIB.pyframes_note())
    print("# %s: %d compared, %d failed %s" % (sys.version.split()[0], cases, failures, note))
    sys.stdout.flush()
    sys.exit(1 if failures else 0)


main()
