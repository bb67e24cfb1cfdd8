"""pytest plugin: limits of GPU memory for tests, and a table of the memory that each test used.

::

    @pytest.mark.limit_gpu_memory("2 GiB")
    def test_training_step(): ...

    @pytest.mark.limit_gpu_leaks("1 MiB", warmups=1)
    def test_inference(): ...

    gpumem run -- python -m pytest --gpumem

A test that exceeds its limit fails, and the failure lists the lines that held the memory. Only allocations
of the test itself count, for each device separately. Where a pool reports its blocks (PyTorch, CuPy), these
count. A limit that cannot be checked is a warning, and a failure where CI is set. A marker that cannot be
read is an error of its test.
"""
import contextlib
import ctypes
import gc
import inspect
import os
import tempfile
import time
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple

import pytest

import gpumem
from gpumem import _library
from gpumem._snapshot import Leak, Snapshot, Stack, Usage, own_lines, show_size, size_of

__all__ = ["GpumemWarning", "Stack"]

SITES_SHOWN = 10
MARKERS = (
    "limit_gpu_memory(limit, device=None): fail the test when it holds more GPU memory than this at once, as "
    "\"2 GiB\", on any device or on this one.",
    "limit_gpu_leaks(limit, device=None, warmups=0, filter_fn=None): fail the test when a call stack of it leaves more "
    "GPU memory behind than this. The test is run `warmups` times before; filter_fn(stack) is False for stacks "
    "that do not count.",
)


class GpumemWarning(pytest.PytestWarning):
    """A limit could not be checked."""


class _Limit(NamedTuple):
    bytes: int
    device: Optional[int] = None
    warmups: int = 0
    filter_fn: Optional[Callable[[Stack], bool]] = None


def _number(device: Any) -> Optional[int]:
    return None if device is None else gpumem._ordinal(device)      # pylint: disable=protected-access


def _limit_gpu_memory(limit: Any, device: Any = None) -> _Limit:
    return _Limit(size_of(limit), _number(device))


def _limit_gpu_leaks(limit: Any, *, device: Any = None, warmups: int = 0,
                     filter_fn: Optional[Callable[[Stack], bool]] = None) -> _Limit:
    if not isinstance(warmups, int) or warmups < 0:
        raise ValueError("warmups is a number of runs: %r" % (warmups,))
    if filter_fn is not None and not callable(filter_fn):
        raise TypeError("filter_fn is a function: %r" % (filter_fn,))
    return _Limit(size_of(limit), _number(device), warmups, filter_fn)


_READERS: Dict[str, Callable[..., _Limit]] = {
    "limit_gpu_memory": _limit_gpu_memory, "limit_gpu_leaks": _limit_gpu_leaks,
}


def _read(name: str, marker: pytest.Mark) -> _Limit:
    """Return the limit of a marker. Raises ValueError with a sentence for people."""
    reader = _READERS[name]
    try:
        bound = inspect.signature(reader).bind(*marker.args, **marker.kwargs)
        return reader(*bound.args, **bound.kwargs)
    except (TypeError, ValueError) as error:
        usage = next(line for line in MARKERS if line.startswith(name)).split(":", maxsplit=1)[0]
        raise ValueError("the marker %s cannot be read: %s. It is written %s" % (name, error, usage)) from None


def _limits(item: pytest.Item, name: str) -> List[_Limit]:
    """Return the limits of the markers @name, one for each device that they name. Only the nearest node that has such
    markers counts: the test, else its class, else its file."""
    found: Dict[Optional[int], _Limit] = {}
    nearest = None
    for node, marker in item.iter_markers_with_node(name):
        nearest = nearest or node
        if node is nearest:
            limit = _read(name, marker)
            found.setdefault(limit.device, limit)
    return list(found.values())


class _Run(NamedTuple):
    """A test that ran: the name of its range, and its times by our own clock."""

    nodeid: str
    prefix: str
    began_us: int
    ended_us: int
    named: bool         # the library recorded the range


class _Problem(NamedTuple):
    """Why the plugin lets a test fail."""

    text: str
    marker: bool        # the marker cannot be read or checked; xfail does not expect such a failure


class _Result(NamedTuple):
    nodeid: str
    usages: List[Usage]


def _now_us() -> int:
    return time.time_ns() // 1000


class Plugin:
    """The state of one pytest run, and its hooks."""

    def __init__(self, config: pytest.Config) -> None:
        self.wanted = bool(config.getoption("--gpumem") or config.getini("gpumem"))
        self.shown = int(config.getoption("--gpumem-tests"))
        self.runs: List[_Run] = []
        self.count = 0
        self.unchecked = 0
        self.problems: Dict[str, _Problem] = {}
        self.results: List[_Result] = []
        self.unknown: List[str] = []
        self.trouble: Optional[str] = None

    # ---- before ----

    def pytest_report_header(self) -> Optional[str]:
        """Say which library is loaded."""
        if gpumem.available():
            return "gpumem: libgpumem %s" % gpumem.version()
        return "gpumem: the library is not loaded (gpumem run -- python -m pytest ...)" if self.wanted else None

    # ---- a test ----

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test with a marker that cannot be read, before the test's fixtures. Other tests run."""
        try:
            _check_devices([limit for name in _READERS for limit in _limits(item, name)])
        except ValueError as error:
            self.problems[item.nodeid] = _Problem(str(error), True)
            pytest.fail(str(error), pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Record the test function, without its fixtures, and check its limits."""
        memory, leaks = _limits(item, "limit_gpu_memory"), _limits(item, "limit_gpu_leaks")
        if not gpumem.available() or not (memory or leaks or self.wanted):
            yield
            if not gpumem.available() and (memory or leaks):
                self.unchecked += 1
                if _in_ci():
                    self._not_checked(item, "the library is not loaded: gpumem run -- python -m pytest ...")
            return
        if leaks:
            _warm_up(item, max(limit.warmups for limit in leaks))
            gc.collect()
        self.count += 1
        prefix = "pytest %d: " % self.count
        began = _now_us()
        number = int(_library.call("gpumem_range_start", _library.text(prefix + item.nodeid)))
        outcome = yield
        failed = outcome.excinfo is not None
        if leaks and not failed:
            gc.collect()
        if number > 0:
            _library.call("gpumem_range_end", number)
        run = _Run(item.nodeid, prefix, began, _now_us(), number > 0)
        self.runs.append(run)
        if (memory or leaks) and not failed:
            try:
                with _taken() as snapshot:
                    if snapshot is not None:
                        self._judge(item, run, snapshot, memory, leaks)
            except Exception as error:      # pylint: disable=broad-except      # our error, not the test's
                self._not_checked(item, repr(error))

    def _not_checked(self, item: pytest.Item, why: str) -> None:
        """A limit of @item could not be checked: warn, or in CI, where nobody reads warnings, fail."""
        text = "the limit of GPU memory is not checked: %s" % why
        if _in_ci():
            self.problems[item.nodeid] = _Problem("CI is set, and %s" % text, True)
        else:
            item.warn(GpumemWarning(text))

    def _judge(self, item: pytest.Item, run: _Run, snapshot: Snapshot, memory: List[_Limit], leaks: List[_Limit]) -> None:
        """Check the limits of a test that ran, and note a problem if one is exceeded."""
        try:
            _check_devices(memory + leaks)      # the test may have been the first to use CUDA
        except ValueError as error:
            self.problems[item.nodeid] = _Problem(str(error), True)
            return
        said: List[str] = []
        if memory:
            usages, not_whole = _usages(snapshot, run)
            for limit in memory:
                said += [_say_usage(usage, limit) for usage in usages
                         if usage.peak > limit.bytes and limit.device in (None, usage.device)]
            if not_whole and not said:
                self._not_checked(item, not_whole)
        began, _ = snapshot.range_of(run.prefix) if leaks else (None, None)
        for limit in leaks:
            left = snapshot.leaks(run.began_us if began is None else began, limit.device, limit.filter_fn)
            over = [leak for leak in left if leak.bytes > limit.bytes]
            if over:
                said.append(_say_leaks(over, limit))
        if said:
            self.problems[item.nodeid] = _Problem("\n".join(said), False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Generator[None, Any, None]:
        """Report a test over its limit as if the test itself had failed, so xfail expects that. A marker that cannot be
        read or checked is a failure even with xfail."""
        problem = self.problems.pop(item.nodeid, None)
        if problem and call.excinfo is None:
            try:
                pytest.fail(problem.text, pytrace=False)
            except pytest.fail.Exception:
                call.excinfo = pytest.ExceptionInfo.from_current()
        elif problem and call.when == "call":
            problem = None      # the test has a failure of its own
        outcome = yield
        if problem and problem.marker:
            report = outcome.get_result()
            report.outcome, report.longrepr = "failed", problem.text
            if hasattr(report, "wasxfail"):
                del report.wasxfail

    # ---- the end ----

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Take one snapshot for the table of all tests."""
        if not self.wanted or not self.runs:
            return
        try:
            with _taken() as snapshot:
                for run in self.runs if snapshot else ():
                    usages, not_whole = _usages(snapshot, run)
                    if not_whole:
                        self.unknown.append(run.nodeid)
                    elif any(usage.allocations for usage in usages):
                        self.results.append(_Result(run.nodeid, usages))
        except Exception as error:      # pylint: disable=broad-except      # our error, not a test's
            self.trouble = repr(error)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table of --gpumem, and how many limits were not checked."""
        write = terminalreporter.write_line
        if self.unchecked:
            write("gpumem: %d test%s a limit of GPU memory that was not checked: the library is not loaded "
                  "(gpumem run -- python -m pytest ...)" % (self.unchecked, " has" if self.unchecked == 1 else "s have"))
        if not self.wanted or not self.runs:
            return
        terminalreporter.write_sep("=", "GPU memory by test")
        if self.trouble:
            write("there is no table: %s" % self.trouble)
        if not self.results and not self.trouble and not self.unknown:
            write("no test allocated GPU memory")
        ordered = sorted(self.results, key=lambda result: -max(usage.peak for usage in result.usages))
        for result in ordered[:self.shown or None]:
            write(result.nodeid)
            for usage in result.usages:
                if usage.allocations:
                    write("  device %d: %s held at most, %d allocation%s" % (
                        usage.device, show_size(usage.peak), usage.allocations, "" if usage.allocations == 1 else "s"))
                    for site in usage.sites[:3]:
                        write("    %10s in %d block%s  %s" % (
                            show_size(site.bytes), site.blocks, "" if site.blocks == 1 else "s", site.place))
        if len(ordered) > self.shown > 0:
            more = len(ordered) - self.shown
            write("and %d more test%s that allocated (--gpumem-tests=0 shows all)" % (more, "" if more == 1 else "s"))
        if self.unknown:
            write("of %d test%s the history is not whole (options history, history_enabled and history_actions)"
                  % (len(self.unknown), "" if len(self.unknown) == 1 else "s"))


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def _warm_up(item: pytest.Item, times: int) -> None:
    for _ in range(times):
        try:
            item.runtest()
        except (Exception, pytest.skip.Exception, pytest.fail.Exception):
            return      # the test itself will report it


@contextlib.contextmanager
def _taken() -> Iterator[Optional[Snapshot]]:
    """Take a snapshot of this moment for a with statement; None before the first CUDA call."""
    with tempfile.TemporaryDirectory(prefix="gpumem-pytest-") as directory:
        path = os.path.join(directory, "snapshot.json")
        yield Snapshot(path) if gpumem.snapshot(path) else None


def _usages(snapshot: Snapshot, run: _Run) -> Tuple[List[Usage], Optional[str]]:
    """Return the test's use of each device, and why events may be missing (None: none is)."""
    began, ended = snapshot.range_of(run.prefix)
    since = run.began_us if began is None else began
    not_whole = snapshot.not_whole_since(since, began is not None, run.named)
    return [snapshot.usage(device, since, run.ended_us if ended is None else ended, not not_whole)
            for device in snapshot.devices()], not_whole


def _count_devices() -> Optional[int]:
    """Return the number of devices of the process; None before it uses CUDA, which this does not change."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else None
    except (OSError, AttributeError):
        return None


def _check_devices(limits: List[_Limit]) -> None:
    """Raise ValueError for a limit on a device that does not exist."""
    named = [limit.device for limit in limits if limit.device is not None]
    count = _count_devices() if named else None
    if count is not None and max(named) >= count:
        raise ValueError("a marker names device %d, and this process has %d device%s" % (
            max(named), count, "" if count == 1 else "s"))


def _list(lines: List[str]) -> str:
    more = len(lines) - SITES_SHOWN
    return "\n".join(lines[:SITES_SHOWN] + (["  and %d more" % more] if more > 0 else []))


def _say_usage(usage: Usage, limit: _Limit) -> str:
    lines = ["  %10s in %d block%s  %s" % (show_size(site.bytes), site.blocks, "" if site.blocks == 1 else "s", site.place)
             for site in usage.sites]
    held, most = show_size(usage.peak), show_size(limit.bytes)
    if held == most:
        held, most = "%d B" % usage.peak, "%d B" % limit.bytes
    return "The test held %s%s of GPU memory at once on device %d; its limit is %s. At that moment:\n%s" % (
        "" if usage.complete else "at least ", held, usage.device, most, _list(lines))


def _say_leaks(leaks: List[Leak], limit: _Limit) -> str:
    lines = []
    for leak in leaks:
        text = "  %10s in %d block%s on device %d" % (
            show_size(leak.bytes), leak.blocks, "" if leak.blocks == 1 else "s", leak.device)
        lines.append("\n        ".join([text] + own_lines(leak.stack)))
    return "The test left GPU memory behind, more than %s of one call stack:\n%s" % (show_size(limit.bytes), _list(lines))


# ---- hooks that pytest finds ---------------------------------------------------------------------

def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --gpumem and --gpumem-tests, and the setting gpumem."""
    group = parser.getgroup("gpumem", "GPU memory")
    group.addoption("--gpumem", action="store_true", default=False,
                    help="show how much GPU memory each test took, and its call sites")
    group.addoption("--gpumem-tests", type=int, default=5, metavar="N",
                    help="show the N tests that took most (default 5; 0: all)")
    parser.addini("gpumem", "show how much GPU memory each test took", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, with or without the library, and the plugin."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(Plugin(config), "gpumem_limits")
