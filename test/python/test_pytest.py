# timeout: 200
"""The pytest plugin in real runs of pytest: limits that hold, limits that do not, and the table at the end."""
import os
import re
import sys

sys.path.insert(0, "test")
sys.path.insert(0, "test/python")
from host import HERE, PACKAGE, interpreters  # noqa: E402
from tap import GPUMEM, Room, check, finish, tell  # noqa: E402

TESTS = '''
import unittest
import pytest
from host import alloc, free

pytestmark = pytest.mark.limit_gpu_memory("64 MiB")
cache = []


def model(size):
    return alloc(size)  # LINE model


@pytest.fixture
def weights():
    address = alloc(8 << 20)
    yield address
    free(address)


@pytest.mark.limit_gpu_memory("3 MiB")
def test_at_the_limit(weights):
    first, second = model(1 << 20), model(2 << 20)
    free(first)
    free(second)


@pytest.mark.limit_gpu_memory("3 MiB")
def test_over():
    first = model(2 << 20)  # LINE two
    second = model(1 << 20)  # LINE one
    free(second)
    third = model((1 << 20) + 512)  # LINE three
    free(third)
    free(first)


@pytest.mark.limit_gpu_memory("1 KiB", device=1)
@pytest.mark.limit_gpu_leaks("1 KiB")
def test_freed(weights):
    free(model(4 << 20))


@pytest.mark.limit_gpu_leaks("2 KiB")
def test_leaks():
    model(2000)
    for _ in range(3):
        model(1000)  # LINE leak


@pytest.mark.limit_gpu_leaks("2 KiB", filter_fn=lambda stack: all(f.function != "model" for f in stack.frames))
def test_known_leak():
    model(5000)


@pytest.mark.limit_gpu_leaks("1B", warmups=2)
def test_cache():
    cache.append(1)
    if len(cache) == 1:
        model(5000)


@pytest.mark.limit_gpu_leaks("1B")
@pytest.mark.limit_gpu_memory("1B")
def test_fails_itself():
    model(1000)
    raise KeyError("its own")


@pytest.mark.limit_gpu_memory("100 B")
@pytest.mark.limit_gpu_leaks("100 B", warmups=1)
def test_skips():
    pytest.skip("as it likes")


class TestUnit(unittest.TestCase):
    @pytest.mark.limit_gpu_leaks("1 KiB", warmups=1)
    def test_of_unittest(self):
        model(3000)


def test_under_the_limit_of_the_file():
    free(model(33 << 20))


def test_nothing():
    pass


@pytest.mark.xfail
@pytest.mark.limit_gpu_memory("1 MiB")
def test_expected():
    free(model(2 << 20))


@pytest.mark.xfail(strict=True)
@pytest.mark.limit_gpu_memory("1 MiB")
def test_expected_for_sure():
    free(model(2 << 20))


@pytest.mark.xfail(strict=True)
@pytest.mark.limit_gpu_memory("3 MiB")
def test_not_as_expected():
    free(model(2 << 20))
'''
WANT = {"test_at_the_limit": "passed", "test_over": "failed", "test_freed": "passed", "test_leaks": "failed",
        "test_known_leak": "passed", "test_cache": "passed", "test_fails_itself": "failed", "test_skips": "skipped",
        "TestUnit::test_of_unittest": "failed", "test_under_the_limit_of_the_file": "passed", "test_nothing": "passed",
        "test_expected": "xfailed", "test_expected_for_sure": "xfailed", "test_not_as_expected": "failed"}


def line(text, word):
    return 1 + [number for number, one in enumerate(text.splitlines()) if "# LINE " + word in one][0]


def run(room, python, text, *arguments, preload=True, **options):
    with open(os.path.join(room.path, "test_it.py"), "w", encoding="utf-8") as file:
        file.write(text)
    env = room.env(preload=preload, PYTHONPATH=PACKAGE + ":" + HERE, PYTHONDONTWRITEBYTECODE=1, COLUMNS=200, **options)
    return room.run([python, "-m", "pytest", "-p", "gpumem.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers",
                     "-rA", "--tb=short", *arguments], env=env, timeout=100)


def outcomes(told):
    return {name: word.lower().replace("xfail", "xfailed") for word, name in re.findall(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) test_it.py::(\S+)", told.stdout, re.M)}


def report(told, name):
    """The text of a test's failure."""
    found = re.search(r"^_+ %s _+\n(.*?)(?=^_{5,}|^={5,})" % re.escape(name), told.stdout, re.M | re.S)
    return found.group(1) if found else ""


def story(python):
    with Room() as room:
        told = run(room, python, TESTS, "--gpumem", "--gpumem-tests=2", snapshot_on="none")
        got = outcomes(told)
        check("each test has the outcome that it should have", told.returncode == 1 and
              got == {name: word for name, word in WANT.items() if word != "skipped"} and "1 skipped" in told.stdout, (got, tell(told)))
        over = report(told, "test_over")
        check("over the limit: what was held, the limit, and the lines that held it, with who called them",
              "held 3146240 B of GPU memory at once on device 0; its limit is 3145728 B" in over and
              re.search(r"2\.0 MiB in 1 block  .*< test_it\.py:%d in model < test_it\.py:%d in test_over\n" % (
                  line(TESTS, "model"), line(TESTS, "two")), over) and
              re.search(r"1\.0 MiB in 1 block  .*< test_it\.py:%d in model < test_it\.py:%d in test_over\n" % (
                  line(TESTS, "model"), line(TESTS, "three")), over) and
              ":%d in test_over" % line(TESTS, "one") not in over, over)
        leak = report(told, "test_leaks")
        check("leaks: only the stack that is over the limit, its sum, and its frames up to pytest's",
              re.search(r"more than 2\.0 KiB of one call stack:\n +2\.9 KiB in 3 blocks on device 0\n", leak) and
              "test_it.py:%d in test_leaks" % line(TESTS, "leak") in leak and "2.0 KiB in 1 block" not in leak and
              "_pytest" not in leak and leak.count("in test_leaks") == 1 and "ctypes" not in leak and
              re.search(r"on device 0\n +\S*host\.py:\d+ in try_alloc\n +\S*host\.py:\d+ in alloc\n +test_it\.py:\d+ in model\n", leak), leak)
        check("a test that fails by itself has its own failure", "its own" in report(told, "test_fails_itself") and
              "GPU memory" not in report(told, "test_fails_itself"), report(told, "test_fails_itself"))
        check("unittest's tests have limits, too", "2.9 KiB in 1 block" in report(told, "TestUnit.test_of_unittest"), tell(told))
        table = told.stdout[told.stdout.find("GPU memory by test"):]
        check("the table: the largest first, as many as were asked for", re.search(
            r"test_it\.py::test_under_the_limit_of_the_file\n  device 0: 33\.0 MiB held at most, 1 allocation\n +33\.0 MiB in 1 block "
            r" .* test_it\.py:%d in model.*\ntest_it\.py::test_freed\n  device 0: 4\.0 MiB" % line(TESTS, "model"), table) and
            "test_over" not in table[:table.find("and ")] and "more tests that allocated" in table, table[:900])
        check("the header says which library", "gpumem: libgpumem 0." in told.stdout, told.stdout[:300])
    with Room() as room:
        told = run(room, python, TESTS, preload=False, CI="")
        own = {"test_fails_itself": "failed", "test_expected": "xpass", "test_expected_for_sure": "failed", "test_not_as_expected": "failed"}
        want = {name: own.get(name, "passed") for name, word in WANT.items() if word != "skipped"}
        check("without the library every limit is passed over, and the end says how many", outcomes(told) == want and
              "gpumem: 14 tests have a limit of GPU memory that was not checked" in told.stdout, tell(told))
    with Room() as room:
        text = "import pytest\n@pytest.mark.limit_gpu_leaks('1 MiB')\ndef test_limited():\n    pass\n\ndef test_free():\n    pass\n"
        for ci, word in (("true", "failed"), ("1", "failed"), ("false", "passed"), ("0", "passed")):
            told = run(room, python, text, preload=False, CI=ci)
            check("CI=%s, without the library: a limit that nobody checks is %s" % (ci, word), outcomes(told) ==
                  {"test_limited": word, "test_free": "passed"}, tell(told))
        check("and says what to type", "gpumem run -- python -m pytest" in report(run(room, python, text, preload=False, CI="true"), "test_limited"))
        told = run(room, python, text, CI="true")
        check("with the library it is checked", outcomes(told) == {"test_limited": "passed", "test_free": "passed"}, tell(told))


def odd(python):
    one = "import pytest\nfrom host import alloc\n\n\n%s\ndef test_one():\n    alloc(1 << 20)\n"
    with Room() as room:
        text = "import pytest\nfrom host import alloc\n\n\ndef test_good():\n    alloc(1 << 20)\n\n\n"
        for number, (marker, _) in enumerate(BAD):
            text += "@pytest.mark.%s\ndef test_bad_%d():\n    assert False, 'it ran'\n\n\n" % (marker, number)
        text += "@pytest.mark.xfail\n@pytest.mark.limit_gpu_memory('lots')\ndef test_bad_xfail():\n    pass\n"
        told = run(room, python, text)
        check("a marker that cannot be read is an error of its test, and the others run", told.returncode == 1 and outcomes(told) ==
              dict({"test_bad_%d" % number: "error" for number in range(len(BAD))}, test_bad_xfail="error", test_good="passed") and
              "it ran" not in told.stdout, tell(told))
        for number, (marker, want) in enumerate(BAD):
            said = report(told, "ERROR at setup of test_bad_%d" % number)
            check("%s: a sentence says why" % marker, said.strip() == want, said)
        told = run(room, python, text, "-k", "good", "--gpumem")
        check("a test that is deselected is not looked at", told.returncode == 0 and outcomes(told) == {"test_good": "passed"}, tell(told))
        told = run(room, python, "import pytest\n1 / 0\n", "--gpumem")
        check("no table where no test ran", "ZeroDivisionError" in told.stdout and "GPU memory by test" not in told.stdout, tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory('9 MiB', device=3)", FAKECUDA_DEVICES=1)
        check("a device that is not there, known once the test has used CUDA: an error", told.returncode == 1 and
              "a marker names device 3, and this process has 1 device\n" in report(told, "test_one"), tell(told))
        told = run(room, python, one % "@pytest.mark.xfail\n@pytest.mark.limit_gpu_leaks('9 MiB', device=3)", FAKECUDA_DEVICES=1)
        check("also where a failure is expected: this one is not", told.returncode == 1 and outcomes(told) == {"test_one": "failed"}, tell(told))
        told = run(room, python, one % "alloc(1)\n@pytest.mark.limit_gpu_memory('9 MiB', device=3)", FAKECUDA_DEVICES=2)
        check("a device that is not there, known before: the test does not run", told.returncode == 1 and
              "a marker names device 3, and this process has 2 devices\n" in report(told, "ERROR at setup of test_one"), tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory('1 KiB', device=0)\n@pytest.mark.limit_gpu_memory('1 KiB', device=1)\n"
                   "@pytest.mark.limit_gpu_memory('9 MiB', device=0)", FAKECUDA_DEVICES=2)
        check("a limit for each device; the nearest of two for one device counts", told.returncode == 0, tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory('9 MiB', device=1)\n@pytest.mark.limit_gpu_memory('1 KiB', device=0)", FAKECUDA_DEVICES=2)
        check("a limit for each device: the second one, too, is looked at", told.returncode == 1 and "its limit is 1.0 KiB" in report(told, "test_one"), tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory(1 << 20)", "-v")
        check("bytes as a number; no table unless it is asked for", told.returncode == 0 and "GPU memory by test" not in told.stdout, tell(told))
        for why, options in (("the library keeps no events (option history:0)", {"history": 0}),
                             ("the recording of events is off (option history_enabled, or record_memory_history())", {"history_enabled": "state"}),
                             ("the option history_actions leaves allocations out", {"history_actions": "annotate"})):
            told = run(room, python, one % "@pytest.mark.limit_gpu_memory(1000)", CI="", **options)
            check("a limit that cannot be checked is a warning that says why: %s" % why, told.returncode == 0 and
                  "GpumemWarning: the limit of GPU memory is not checked: " + why in told.stdout, tell(told))
            told = run(room, python, one % "@pytest.mark.xfail\n@pytest.mark.limit_gpu_memory(1000)", CI="true", **options)
            check("and a failure in CI, which xfail does not expect: %s" % why, told.returncode == 1 and
                  "CI is set, and the limit of GPU memory is not checked: " + why in report(told, "test_one"), tell(told))
        text = one % "@pytest.mark.limit_gpu_memory(1000)" + "    import gpumem\n    gpumem.record_memory_history(None)\n    gpumem.record_memory_history('all')\n"
        told = run(room, python, text, CI="true")
        check("a test that drops its own events is not within its limit", told.returncode == 1 and
              "is not checked: its events were dropped" in report(told, "test_one"), tell(told))
        told = run(room, python, "import pytest, gpumem, host, os\n@pytest.mark.limit_gpu_leaks(1000)\ndef test_one():\n"
                   "    host.alloc(9)\n    gpumem.snapshot = lambda path: open(path, 'w').close() or True\n", CI="true")
        check("nor one whose snapshot cannot be read", told.returncode == 1 and "is not checked: JSONDecodeError" in report(told, "test_one"), tell(told))
        told = run(room, python, "from gpumem import __main__ as command\ncommand.find = lambda: None\n" + one % "@pytest.mark.limit_gpu_leaks(1000)", CI="true")
        check("nor one without the command gpumem", told.returncode == 1 and
              "is not checked: OSError('the command gpumem is not installed')" in report(told, "test_one"), tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_leaks(1000)", history=0)
        check("leaks need none", told.returncode == 1 and "1.0 MiB in 1 block" in told.stdout, tell(told))
        many = "    for i in range(3000):\n        alloc(512)\n"
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory(1000)" + many, "--gpumem", history=1024)
        check("of a history that is not whole, what is left of it counts", told.returncode == 1 and
              re.search(r"held at least \d", told.stdout) and "of 1 test the history is not whole" in told.stdout, tell(told))
        told = run(room, python, "def test_none():\n    pass\n", "--gpumem")
        check("no CUDA at all", told.returncode == 0 and "no test allocated GPU memory" in told.stdout, tell(told))
        with open(os.path.join(room.path, "pytest.ini"), "w", encoding="utf-8") as file:
            file.write("[pytest]\ngpumem = true\n")
        told = run(room, python, one % "")
        check("asked for by the setting", "device 0: 1.0 MiB held at most" in told.stdout, tell(told))
        told = run(room, python, one % "@pytest.mark.limit_gpu_memory(1000)")
        check("the same with the cache", told.returncode == 1 and "held 1.0 MiB of GPU memory" in told.stdout, tell(told))


OF_MEMORY, OF_LEAKS = ("limit_gpu_memory(limit, device=None)", "limit_gpu_leaks(limit, device=None, warmups=0, filter_fn=None)")
BAD = [(marker, "the marker %s cannot be read: %s. It is written %s" % (
    marker.split("(")[0], why, OF_MEMORY if "_memory" in marker else OF_LEAKS)) for marker, why in (
        ('limit_gpu_memory("lots")', "not a size, as \"2 GiB\": 'lots'"), ("limit_gpu_memory()", "missing a required argument: 'limit'"),
        ("limit_gpu_memory(-5)", 'not a size, as "2 GiB": -5'), ('limit_gpu_memory("1 MiB", device="cuda")', "not a CUDA device with a number: 'cuda'"),
        ('limit_gpu_leaks("1 MiB", device=-1)', "not a CUDA device with a number: -1"),
        ('limit_gpu_leaks("1 MiB", warmups=-1)', "warmups is a number of runs: -1"),
        ('limit_gpu_leaks("1 MiB", warmup=1)', "got an unexpected keyword argument 'warmup'"),
        ('limit_gpu_leaks("1 MiB", 3)', "too many positional arguments"), ('limit_gpu_leaks("1 MiB", filter_fn=5)', "filter_fn is a function: 5"))]

POOLED = '''
import gpumem
import pytest
from host import alloc

POOL = gpumem.Pool("mine")
PIECE = alloc(64 << 20)
COUNT = 1 << 20


def take(place, size):
    assert POOL.allocated(PIECE + place * COUNT, size)  # LINE take
    return PIECE + place * COUNT


@pytest.mark.limit_gpu_memory("3 MiB")
def test_within_the_piece():
    first, second = take(0, COUNT), take(1, 2 * COUNT)
    POOL.freed(first)
    POOL.freed(second)


@pytest.mark.limit_gpu_memory("2 MiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_over():
    first, second = take(0, COUNT), take(1, 2 * COUNT)
    POOL.freed(first)


@pytest.mark.limit_gpu_memory("9 MiB")
def test_a_new_piece_counts_once():
    piece = alloc(8 << 20)
    POOL.allocated(piece, 8 << 20)


@pytest.mark.limit_gpu_memory("9 MiB")
def test_what_is_no_pool_s_counts_too():
    take(10, 5 << 20)
    alloc(5 << 20)
'''


GIVEN_BACK = '''
import gpumem
import pytest
from host import alloc, free

POOL = gpumem.Pool("mine")
SIZE = 64 << 20
PIECE = alloc(SIZE)
POOL.allocated(PIECE, 1 << 20)
POOL.freed(PIECE)
free(PIECE)     # as empty_cache() does: from here on the addresses are anybody's
kept = []


def take(size):
    kept.append(alloc(size))
    assert PIECE <= kept[-1] < PIECE + SIZE, "not where the piece was: the test looks at nothing"


@pytest.mark.limit_gpu_leaks("1 MiB")
def test_leak_where_a_piece_was():
    take(48 << 20)


@pytest.mark.limit_gpu_memory("1 MiB")
def test_peak_where_a_piece_was():
    free(kept.pop())
    take(48 << 20)
    free(kept.pop())


@pytest.mark.limit_gpu_memory("49 MiB")
@pytest.mark.limit_gpu_leaks("1 MiB")
def test_a_piece_again():
    take(48 << 20)
    POOL.allocated(kept[-1], 48 << 20)
    POOL.freed(kept[-1])


@pytest.mark.limit_gpu_memory("49 MiB")
def test_a_piece_for_a_while():
    free(kept.pop())
    take(48 << 20)
    POOL.allocated(kept[-1], 48 << 20)
    free(kept.pop())
    take(48 << 20)
'''


def given_back(python):
    """Memory that a pool held once, and gave back, is counted for whoever gets it next."""
    with Room() as room:
        told = run(room, python, GIVEN_BACK)
        check("a piece given back: each test has the outcome that it should have", outcomes(told) == {
            "test_leak_where_a_piece_was": "failed", "test_peak_where_a_piece_was": "failed",
            "test_a_piece_again": "passed", "test_a_piece_for_a_while": "passed"}, tell(told))
        check("a piece given back: the leak and the peak have their line",
              "48.0 MiB in 1 block on device 0" in report(told, "test_leak_where_a_piece_was") and
              "held 48.0 MiB of GPU memory" in report(told, "test_peak_where_a_piece_was"), tell(told))


def pools(python):
    """Where a pool tells, what it hands out counts, and its pieces do not."""
    with Room() as room:
        told = run(room, python, POOLED)
        check("pools: each test has the outcome that it should have", outcomes(told) == {
            "test_within_the_piece": "passed", "test_over": "failed", "test_a_new_piece_counts_once": "passed",
            "test_what_is_no_pool_s_counts_too": "failed"}, tell(told))
        over = report(told, "test_over")
        check("pools: what was handed out, and by which line", "held 3.0 MiB of GPU memory" in over and
              "blocks  test_it.py:%d in take < test_it.py" % line(POOLED, "take") in over, over)
        check("pools: what was not given back", re.search(r"more than 1\.0 MiB of one call stack:\n +2\.0 MiB in 1 block on device 0", over),
              over)
        check("pools: beside memory that is no pool's", "held 10.0 MiB" in report(told, "test_what_is_no_pool_s_counts_too"), tell(told))


def by_command(python):
    """The command names the test, too, and nothing of what runs it."""
    with Room() as room:
        told = run(room, python, TESTS, "-k", "test_leaks or test_of_unittest or test_freed")
        snapshot, = [os.path.join(room.out, name) for name in room.files()]
        for words in (["leaks"], ["flame", "--format", "folded"]):
            out = room.run([GPUMEM, *words, snapshot], preload=False).stdout
            check("gpumem %s: the tests, and no frame of pytest, pluggy, unittest or libffi" % " ".join(words), all(
                name in out for name in ("test_leaks (", "TestUnit.test_of_unittest (", "model (")) and not re.search(
                    "pytest|pluggy|ffi|_ctypes|unittest/|runpy|case.py|runtest|HookCaller", out), (out, tell(told)))
        out = room.run([GPUMEM, "leaks", "--all-frames", snapshot], preload=False).stdout
        check("--all-frames has them", "_pytest/python.py" in out and "pluggy" in out and "ffi_call" in out, out)


def stacks():
    """Stacks of leaks begin with the program's lines."""
    from gpumem._snapshot import Stack, StackFrame, own_lines
    f = StackFrame
    inner, call, runner = f("forward", "/x/site-packages/torch/nn/linear.py", 9), f("_call", "/x/site-packages/torch/nn/module.py", 7), \
        f("run", "/x/dist-packages/_pytest/python.py", 1)
    model, test = f("model", "/home/me/model.py", 3), f("test_it", "/home/me/test_it.py", 5)
    for what, frames, want in (
            ("installed packages between are one line, before are the last one, behind are left out", (inner, call, model, call, call, inner, test, call, runner),
             ["/home/me/model.py:3 in model", "(torch: 3 frames)", "/home/me/test_it.py:5 in test_it",
              "(allocated in /x/site-packages/torch/nn/linear.py:9 in forward)"]),
            ("what runs the program is left out between its lines", (model, runner, f("call", "/x/site-packages/pluggy/_callers.py", 2), test, f("run", "/x/lib/python3.11/unittest/case.py", 1)),
             ["/home/me/model.py:3 in model", "/home/me/test_it.py:5 in test_it"]),
            ("none of the program's: all up to pytest's", (inner, call, runner), ["/x/site-packages/torch/nn/linear.py:9 in forward",
                                                                                  "/x/site-packages/torch/nn/module.py:7 in _call"]),
            ("none of the program's, and long: the first ones", (call,) * 11, ["/x/site-packages/torch/nn/module.py:7 in _call"] * 8 + ["... and 3 more frames"]),
            ("pytest's alone", (runner, runner), ["/x/dist-packages/_pytest/python.py:1 in run"]), ("none", (), ["(no stack)"])):
        check("a stack: %s" % what, own_lines(Stack(frames)) == want, own_lines(Stack(frames)))


def sizes():
    sys.path.insert(0, PACKAGE)
    from gpumem._snapshot import show_size, size_of
    for text, want in (("2 GiB", 2 << 30), ("1.5GB", 3 << 29), ("24 MB", 24 << 20), ("512K", 512 << 10), ("7", 7), ("7 B", 7),
                       (9, 9), ("0", 0), ("1TiB", 1 << 40), (" 3 mib ", 3 << 20)):
        check("size: %r" % (text,), size_of(text) == want, size_of(text))
    for text in ("", "GiB", "1 XB", "-1", -1, None, 1.5, "1e3", "1..5 GB", True, "iB", "3 iB"):
        try:
            check("size: %r is none" % (text,), False, size_of(text))
        except ValueError:
            check("size: %r is none" % (text,), True)
    check("sizes are shown as the command shows them", [show_size(n) for n in (0, 1023, 1024, 3 << 19, 5 << 40)] ==
          ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 TiB"])


def main():
    sizes()
    stacks()
    found = interpreters("import ctypes, pytest")
    if check("there is a Python with pytest (scripts/setup.sh check installs Debian's)", found):
        story(found[0][0])
        odd(found[0][0])
        pools(found[0][0])
        given_back(found[0][0])
        by_command(found[0][0])
    finish()


main()
