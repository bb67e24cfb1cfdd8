"""Find in a snapshot, for an interval of time, the peak, the memory that is left, and its call sites.

The command gpumem reads the snapshot: ``gpumem events`` lists what happened in the interval, and ``gpumem leaks`` what is
left of it. Where a pool reports its blocks (PyTorch's, CuPy's), the command lists these, and not the pieces that the pool
took from the driver. Only allocations within the interval count. docs/snapshot.md describes the file.
"""
import bisect
import json
import os
import re
import subprocess
import sysconfig
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from gpumem import __main__ as _command


class StackFrame(NamedTuple):
    """A frame; its parts have pytest-memray's names."""

    function: str
    filename: str
    lineno: int


class Stack(NamedTuple):
    """The frames of an allocation, innermost first."""

    frames: Tuple[StackFrame, ...]


class Site(NamedTuple):
    """A call site, and the memory that it holds."""

    place: str
    bytes: int
    blocks: int


class Usage(NamedTuple):
    """The use of one device in one interval."""

    device: int
    peak: int                   # bytes: the most that was held at once
    allocations: int
    sites: List[Site]           # who held the peak, largest first
    complete: bool              # False: events of the interval are missing, and the true values may be larger


class Leak(NamedTuple):
    """The memory that allocations of one stack have left."""

    device: int
    stack: Stack
    place: str
    bytes: int
    blocks: int


class _Event(NamedTuple):
    time: int
    born: bool
    address: int
    size: int
    stack: int


CALLERS_SHOWN = 4
FRAMES_SHOWN = 8            # of a stack without a line of the program
LIMIT_S = 300               # the longest time that the command may take

_ROOTS = tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")} |
               {os.path.dirname(os.path.abspath(__file__)) + os.sep})     # this package in a source tree


# Modules that run Python code and call C functions for it.
_INTERPRETER = ("python", "libpython", "libffi.so", "_ctypes.", "libc.so", "ld-linux")

# Files that only run the program; gm_frame_is_runner() in tools/show/show.c has the same rule.
_RUNNER = re.compile(r"/_pytest/|-packages/(pytest[/_]|pluggy/|xdist/|execnet/)|/gpumem/pytest_plugin\.py|"
                     r"/lib(64)?/python3\.[^/]*/(unittest/|runpy\.py$)|^<frozen |/bin/(pytest|py\.test)$")


def _is_installed(path: str) -> bool:
    """Is it a file of the interpreter or of an installed package, or no file?"""
    return path.startswith(("<",) + _ROOTS) or "/site-packages/" in path or "/dist-packages/" in path


class Snapshot:
    """A snapshot read from a file, which must stay. Raises OSError or ValueError if it cannot be read."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.data: Dict[str, Any] = json.load(file)
        if not isinstance(self.data, dict) or self.data.get("format") != "gpumem-snapshot":
            raise ValueError("%s is no snapshot of gpumem" % path)
        self._path = path
        self._places: Dict[int, str] = {}
        self._events: Dict[int, List[_Event]] = {}
        self._since: Optional[int] = None       # @_events has the events from this time on

    def devices(self) -> List[int]:
        """Return the devices that the process has used."""
        return [device["device"] for device in self.data["devices"] if device["present"]]

    def _ask(self, verb: str, *options: str) -> str:
        """Return what the command gpumem prints about the snapshot. Raises OSError or ValueError."""
        command = _command.find()
        if not command:
            raise OSError("the command gpumem is not installed")
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        told = subprocess.run([command, verb, "--no-lines", *options, self._path], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=LIMIT_S, check=False)
        if told.returncode:
            raise ValueError(told.stderr.decode("utf-8", "replace").strip() or "gpumem %s: exit %d" % (verb, told.returncode))
        return told.stdout.decode("utf-8", "replace")

    def range_of(self, prefix: str) -> Tuple[Optional[int], Optional[int]]:
        """Return when the range whose name begins with @prefix began and ended, in microseconds since 1970; None:
        not in the history."""
        began = ended = None
        for one in self.data["annotations"]:
            if one["name"].startswith(prefix):
                if one["stage"] == "START" and began is None:
                    began = one["time_us"]
                elif one["stage"] == "END":
                    ended = one["time_us"]
        return began, ended

    def not_whole_since(self, time_us: int, began: bool, named: bool) -> Optional[str]:
        """Return in words why events since @time_us may be missing; None: none is missing. @began: the start of a
        range at that time is in the history. @named: the library recorded that range."""
        history = self.data["history"]
        if not history["max_events"]:
            return "the library keeps no events (option history:0)"
        if history["enabled"] != "all":
            return "the recording of events is off (option history_enabled, or record_memory_history())"
        if "alloc" not in history["actions"]:
            return "the option history_actions leaves allocations out"
        if began:
            return None
        traces = self.data["device_traces"] + [pool["trace"] for pool in self.data.get("pools", ())]
        first = [trace["time_us"][0] for trace in traces if trace["time_us"]]
        if named and "annotate" in history["actions"] and not history["annotations_lost"]:
            whole = False       # the start of the range was dropped, and with it earlier events
        else:
            whole = not history["paused"] and (not history["dropped"] or bool(first) and min(first) <= time_us)
        return None if whole else "its events were dropped (option history, or record_memory_history())"

    # ---- stacks ----

    def _stack(self, number: int) -> Stack:
        return _choose((StackFrame(frame["name"], frame["filename"] or self._module(frame), frame["line"]),
                        frame.get("python"), self._module(frame))
                       for frame in (self.data["frames"][i] for i in self.data["stacks"][number]))

    def _module(self, frame: Dict[str, Any]) -> str:
        return str(self.data["modules"][frame["module"]]["path"])

    # ---- events ----

    def _between(self, device: int, began: int, ended: int) -> List[_Event]:
        """Return the allocations and frees on @device between two times."""
        if self._since is None or began < self._since:
            self._since, self._events = began, {}
            for line in self._ask("events", "--jsonl", "--action", "alloc,free", "--since", str(began)).splitlines():
                row = json.loads(line)
                self._events.setdefault(row["device"], []).append(_Event(
                    row["time_us"], row["action"] == "alloc", row["addr"], row["size"], row["stack"]))
        events: List[Any] = self._events.get(device, [])
        return events[bisect.bisect_left(events, (began,)):bisect.bisect_left(events, (ended + 1,))]

    def usage(self, device: int, began: int, ended: int, complete: bool) -> Usage:
        """Return the use of @device between two times, in microseconds since 1970."""
        events = self._between(device, began, ended)
        peak, at_peak = 0, -1
        held: Dict[int, _Event] = {}
        for i, total in enumerate(_replay(events, held)):
            if total > peak:
                peak, at_peak = total, i
        held = {}
        for _ in _replay(events[:at_peak + 1], held):
            pass
        return Usage(device, peak, sum(event.born for event in events), self._sites(held.values()), complete)

    def _sites(self, blocks: Iterable[_Event]) -> List[Site]:
        sums: Dict[str, List[int]] = {}
        for block in blocks:
            if block.stack not in self._places:
                self._places[block.stack] = _place(self._stack(block.stack))
            both = sums.setdefault(self._places[block.stack], [0, 0])
            both[0] += block.size
            both[1] += 1
        return sorted((Site(place, *both) for place, both in sums.items()), key=lambda site: (-site.bytes, site.place))

    # ---- leaks ----

    def leaks(self, began: int, device: Optional[int] = None,
              wanted: Optional[Callable[[Stack], bool]] = None) -> List[Leak]:
        """Return the memory that was allocated since @began and is still held, by stack, largest first."""
        found = []
        for number in self.devices() if device is None else {device}.intersection(self.devices()):
            for row in json.loads(self._ask("leaks", "--json", "--since", str(began), "--device", str(number)))["leaks"]:
                stack = _choose((StackFrame(frame["name"], frame["file"], frame["line"]), not frame["module"], frame["module"])
                                for frame in row["stack"])
                if wanted is None or wanted(stack):
                    found.append(Leak(number, stack, _place(stack), row["bytes"], row["blocks"]))
        return sorted(found, key=lambda leak: (-leak.bytes, leak.place))


def _choose(frames: Iterable[Tuple[StackFrame, Any, str]]) -> Stack:
    """Return a stack for people of frames, each with the answer whether it is Python's, and its module: the Python
    frames; without any, the native ones except the interpreter's; else all."""
    every = list(frames)
    chosen = [frame for frame, python, _ in every if python] or [
        frame for frame, _, module in every if not os.path.basename(module).startswith(_INTERPRETER)]
    return Stack(tuple(chosen or (frame for frame, _, _ in every)))


def _place(stack: Stack) -> str:
    """Return the call site: the innermost lines outside installed packages, each called by the next."""
    own = [frame for frame in stack.frames if frame.lineno and not _is_installed(frame.filename)]
    return " < ".join(_say(frame) for frame in own[:CALLERS_SHOWN] or stack.frames[:1]) or "(no stack)"


def _replay(events: List[_Event], held: Dict[int, _Event]) -> Iterator[int]:
    """Yield the bytes that are held after each event, counting only blocks whose allocation is among @events."""
    total = 0
    for event in events:
        before = held.pop(event.address, None)
        if before is not None:
            total -= before.size
        if event.born:
            held[event.address] = event
            total += event.size
        yield total


def _say(frame: StackFrame) -> str:
    path = frame.filename
    own = os.getcwd() + os.sep
    path = path[len(own):] if path.startswith(own) else path
    return "%s:%d in %s" % (path, frame.lineno, frame.function) if frame.lineno else "%s in %s" % (frame.function, path)


def _package(path: str) -> str:
    """Return the installed package, or the module of the interpreter's library, to which a file belongs."""
    for root in ("/site-packages/", "/dist-packages/") + tuple(sorted(_ROOTS, key=len, reverse=True)):
        _, found, rest = path.partition(root)
        if found:
            return os.path.splitext(rest.split(os.sep)[0])[0]
    return "python"


def own_lines(stack: Stack) -> List[str]:
    """Return the stack for people, innermost first: the lines of the program, and between them one line for each run of
    installed packages. Other frames, such as pytest's, which run the program, are left out. For a stack without a
    line of the program, return the first frames."""
    frames = [frame for frame in stack.frames if not _RUNNER.search(frame.filename)]
    own = [i for i, frame in enumerate(frames) if frame.lineno and not _is_installed(frame.filename)]
    if not own:
        more = len(frames) - FRAMES_SHOWN
        return [_say(frame) for frame in frames[:FRAMES_SHOWN] or stack.frames[:1]] + (
            ["... and %d more frame%s" % (more, "" if more == 1 else "s")] if more > 0 else []) or ["(no stack)"]
    lines = [_say(frames[own[0]])]
    for before, i in zip(own, own[1:]):
        between = [_package(frame.filename) for frame in frames[before + 1:i]]
        lines += ["(%s: %d frame%s)" % (", ".join(dict.fromkeys(between)), len(between), "" if len(between) == 1 else "s")
                  ] if between else []
        lines.append(_say(frames[i]))
    return lines + (["(allocated in %s)" % _say(frames[0])] if own[0] else [])


# ---- sizes ---------------------------------------------------------------------------------------

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_of(text: Any) -> int:
    """Return the bytes of "2 GiB", "1.5GB", "24 MB", "512K" or a number. KB, MB and GB are powers of 1024, as in
    pytest-memray and PyTorch. Raises ValueError."""
    if isinstance(text, int) and not isinstance(text, bool):
        if text >= 0:
            return text
    elif isinstance(text, str):
        word = text.strip().upper()
        for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K"), (0, "")):
            for unit in (letter + "IB", letter + "B", letter):
                number = word[:len(word) - len(unit)].strip() if word.endswith(unit) else ""
                if number.replace(".", "", 1).isdigit() and (letter or unit != "IB"):
                    return int(float(number) * 1024 ** power)
    raise ValueError("not a size, as \"2 GiB\": %r" % (text,))


def show_size(size: int) -> str:
    """Return a size with a unit: "24.0 MiB"."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return "%d B" % size if not unit else "%.1f %s" % (value, _UNITS[unit])
