"""Read a snapshot, and find for an interval of time the peak, the memory that is left, and its call sites.

docs/snapshot.md describes the file. Only allocations within the interval count. Where a pool reports its blocks
(PyTorch's, CuPy's), these count, and the pieces that the pool took from the driver do not.
"""
import bisect
import json
import os
import re
import sysconfig
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple


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
    level: int          # of the address: 0, the driver's; else that of a pool of the device, from 1
    address: int
    size: int
    stack: int


CALLERS_SHOWN = 4
FRAMES_SHOWN = 8            # of a stack without a line of the program
_END = float("inf")         # the time of the snapshot
_OF_BLOCKS = ("alloc", "free_requested", "free_completed")

_ROOTS = tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")} |
               {os.path.dirname(os.path.abspath(__file__)) + os.sep})     # this package in a source tree


# Modules that run Python code and call C functions for it.
_INTERPRETER = ("python", "libpython", "libffi.so", "_ctypes.", "libc.so", "ld-linux")

# Files that only run the program; gm_stack_runner() in tools/show/show.c has the same rule.
_RUNNER = re.compile(r"/_pytest/|-packages/(pytest[/_]|pluggy/|xdist/|execnet/)|/gpumem/pytest_plugin\.py|"
                     r"/lib(64)?/python3\.[^/]*/(unittest/|runpy\.py$)|^<frozen |/bin/(pytest|py\.test)$")


def _is_installed(path: str) -> bool:
    """Is it a file of the interpreter or of an installed package, or no file?"""
    return path.startswith(("<",) + _ROOTS) or "/site-packages/" in path or "/dist-packages/" in path


class Snapshot:
    """A snapshot read from a file. Raises OSError or ValueError if it cannot be read."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.data: Dict[str, Any] = json.load(file)
        if not isinstance(self.data, dict) or self.data.get("format") != "gpumem-snapshot":
            raise ValueError("%s is no snapshot of gpumem" % path)
        self._places: Dict[int, str] = {}
        self._of_pools: Dict[int, _Told] = {}
        self._pieces: Dict[int, FrozenSet[int]] = {}
        self.traces: Dict[int, List[Dict[str, Any]]] = {}      # by device: the driver's level, then the pools'
        for device, trace in enumerate(self.data["device_traces"]):
            self.traces[device] = [trace]
        for pool in self.data.get("pools", ()):
            self.traces.setdefault(pool["device"], [{}]).append(pool["trace"])

    def devices(self) -> List[int]:
        """Return the devices with events."""
        return sorted(device for device, traces in self.traces.items() if any(trace.get("action") for trace in traces))

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
        first = [trace["time_us"][0] for traces in self.traces.values() for trace in traces if trace.get("time_us")]
        if named and "annotate" in history["actions"] and not history["annotations_lost"]:
            whole = False       # the start of the range was dropped, and with it earlier events
        else:
            whole = not history["paused"] and (not history["dropped"] or bool(first) and min(first) <= time_us)
        return None if whole else "its events were dropped (option history, or record_memory_history())"

    # ---- stacks ----

    def stack(self, number: int) -> Stack:
        """Return the Python frames; without any, the native ones except the interpreter's; else all."""
        frames = [self.data["frames"][i] for i in self.data["stacks"][number]]
        chosen = [frame for frame in frames if frame.get("python")] or [
            frame for frame in frames if not self._is_interpreter(frame)] or frames
        return Stack(tuple(StackFrame(frame["name"], frame["filename"] or self._module(frame), frame["line"])
                           for frame in chosen))

    def _is_interpreter(self, frame: Dict[str, Any]) -> bool:
        return os.path.basename(self._module(frame)).startswith(_INTERPRETER)

    def _module(self, frame: Dict[str, Any]) -> str:
        return str(self.data["modules"][frame["module"]]["path"])

    def place(self, number: int) -> str:
        """Return the call site: the innermost lines outside installed packages, each called by the next."""
        if number not in self._places:
            frames = self.stack(number).frames
            own = [frame for frame in frames if frame.lineno and not _is_installed(frame.filename)]
            self._places[number] = " < ".join(_say(frame) for frame in own[:CALLERS_SHOWN] or frames[:1]) or "(no stack)"
        return self._places[number]

    # ---- events ----

    def _events(self, device: int, began: int, ended: int) -> Iterator[_Event]:
        """Yield the allocations and frees between two times, of pools and of the driver. The driver's events that
        allocate a pool's piece are left out."""
        for level, trace in enumerate(self.traces.get(device, ())):
            pieces = self._rows_of_pieces(device) if level == 0 else frozenset()
            times = trace.get("time_us", ())
            for i in range(bisect.bisect_left(times, began), bisect.bisect_right(times, ended)):
                action = trace["action"][i]
                if action in _OF_BLOCKS and i not in pieces:
                    yield _Event(times[i], action == "alloc", level, trace["addr"][i], trace["size"][i], trace["stack"][i])

    def _told(self, device: int) -> "_Told":
        if device not in self._of_pools:
            self._of_pools[device] = _Told(self.traces.get(device, [])[1:],
                                           [pool for pool in self.data.get("pools", ()) if pool["device"] == device])
        return self._of_pools[device]

    def _rows_of_pieces(self, device: int) -> FrozenSet[int]:
        """Return the rows of the driver's trace that allocate a pool's piece (tools/read/level.c has the same rule)."""
        if device not in self._pieces:
            told = self._told(device)
            self._pieces[device] = frozenset(_find_pieces(self.traces[device][0], told) if told.addresses else ())
        return self._pieces[device]

    def usage(self, device: int, began: int, ended: int, complete: bool) -> Usage:
        """Return the use of @device between two times, in microseconds since 1970."""
        events = sorted(self._events(device, began, ended), key=lambda event: event.time)
        peak, at_peak = 0, -1
        held: Dict[Tuple[int, int], _Event] = {}
        for i, total in enumerate(_replay(events, held)):
            if total > peak:
                peak, at_peak = total, i
        held = {}
        for _ in _replay(events[:at_peak + 1], held):
            pass
        return Usage(device, peak, sum(event.born for event in events),
                     self._sites([(event.stack, event.size) for event in held.values()]), complete)

    def _sites(self, blocks: List[Tuple[int, int]]) -> List[Site]:
        sums: Dict[str, List[int]] = {}
        for stack, size in blocks:
            both = sums.setdefault(self.place(stack), [0, 0])
            both[0] += size
            both[1] += 1
        return sorted((Site(place, *both) for place, both in sums.items()), key=lambda site: (-site.bytes, site.place))

    # ---- leaks ----

    def leaks(self, began: int, device: Optional[int] = None,
              wanted: Optional[Callable[[Stack], bool]] = None) -> List[Leak]:
        """Return the memory that was allocated since @began and is still held, by stack, largest first."""
        pools = self.data.get("pools", ())
        sums: Dict[Tuple[int, int], List[int]] = {}
        for level, segments in enumerate([self.data["segments"]] + [pool["segments"] for pool in pools]):
            for segment in segments:
                number = segment["device"]
                for block in segment["blocks"]:
                    if (block["state"] != "active_allocated" or block.get("freeing") or
                            (block["time_us"] or 0) < began or device not in (None, number)):
                        continue
                    if level == 0 and self._told(number).is_piece(block["address"], block["size"], block["time_us"] or 0):
                        continue
                    both = sums.setdefault((number, block["stack"]), [0, 0])
                    both[0] += block["requested_size"]
                    both[1] += 1
        found = []
        for (number, stack), both in sums.items():
            if wanted is None or wanted(self.stack(stack)):
                found.append(Leak(number, self.stack(stack), self.place(stack), *both))
        return sorted(found, key=lambda leak: (-leak.bytes, leak.place))


class _Told:
    """The addresses of one device that its pools reported, with the times, and the memory that they hold at the end.

    A block of the driver's is a pool's piece if the pool reported an address in it while the block lived. The same
    memory may first be a pool's and later belong to no pool."""

    def __init__(self, traces: List[Dict[str, Any]], pools: List[Dict[str, Any]]) -> None:
        named: Dict[int, List[float]] = {}
        held = []
        for trace in traces:
            for action, address, time in zip(trace["action"], trace["addr"], trace["time_us"]):
                if action != "oom":
                    named.setdefault(address, []).append(time)
        for pool in pools:
            for segment in pool["segments"]:
                for address in [segment["address"]] + [block["address"] for block in segment["blocks"]]:
                    named.setdefault(address, []).append(_END)
                if not segment.get("outside"):
                    held.append((segment["address"], segment["address"] + segment["total_size"]))
        self.addresses = sorted(named)
        self._times = {address: sorted(times) for address, times in named.items()}
        self._held = sorted(held)

    def is_piece(self, address: int, size: int, began: float, ended: float = _END) -> bool:
        """Is [address, address + size), which lived between these times, a pool's?"""
        at = bisect.bisect_right(self._held, (address, _END)) - 1
        if ended == _END and at >= 0 and self._held[at][1] >= address + size > address:
            return True
        for i in range(bisect.bisect_left(self.addresses, address),
                       bisect.bisect_left(self.addresses, address + max(size, 1))):
            times = self._times[self.addresses[i]]
            at = bisect.bisect_left(times, began)
            if at < len(times) and times[at] <= ended:
                return True
        return False


def _find_pieces(trace: Dict[str, Any], told: _Told) -> Set[int]:
    """Return the rows of @trace, the driver's, that allocate a piece of a pool."""
    ends: Dict[int, float] = {}             # by row: when the block ended
    born: Dict[int, int] = {}               # by address: the row
    moved: Dict[int, int] = {}              # the row of a moved block -> its row at the place before
    times, actions, addresses = trace.get("time_us", ()), trace.get("action", ()), trace.get("addr", ())
    for i, action in enumerate(actions):
        if action == "alloc":
            if i >= 3 and times[i - 3] == times[i] and addresses[i - 1] == addresses[i] and \
                    actions[i - 3:i] == ["free_completed", "segment_unmap", "segment_map"] and addresses[i - 3] in born:
                moved[i] = born[addresses[i - 3]]
            born[addresses[i]] = i
            ends[i] = _END
        elif action in _OF_BLOCKS and addresses[i] in born:
            ends[born[addresses[i]]] = times[i]
    pieces = {i for i, ended in ends.items() if told.is_piece(addresses[i], trace["size"][i], times[i], ended)}
    # A block that is a piece before or after a move is a piece in both places.
    for i, before in moved.items():
        if i in pieces or before in pieces:
            pieces |= {i, before}
    return pieces


def _replay(events: List[_Event], held: Dict[Tuple[int, int], _Event]) -> Iterator[int]:
    """Yield the bytes that are held after each event, counting only blocks whose allocation is among @events."""
    total = 0
    for event in events:
        before = held.pop((event.level, event.address), None)
        if before is not None:
            total -= before.size
        if event.born:
            held[(event.level, event.address)] = event
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
