"""What a snapshot says of a stretch of time: the most that was held at once, what is left of it, and whose it is.

docs/snapshot.md describes the file. Counted is what was allocated within the stretch. Where a pool tells what it
hands out (PyTorch's, CuPy's), that counts, and the pieces that the pool took from the driver for it do not.
"""
import bisect
import json
import os
import sysconfig
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple


class StackFrame(NamedTuple):
    """A frame, as pytest-memray calls its parts."""

    function: str
    filename: str
    lineno: int


class Stack(NamedTuple):
    """The frames of an allocation, innermost first."""

    frames: Tuple[StackFrame, ...]


class Site(NamedTuple):
    """A line of the program, and what it holds."""

    place: str
    bytes: int
    blocks: int


class Usage(NamedTuple):
    """Of one device and one stretch of time. Bytes."""

    device: int
    peak: int                   # the most that was held at once
    allocations: int
    sites: List[Site]           # who held that, largest first
    complete: bool              # False: the history of the stretch is not whole, and all this is the least it was


class Leak(NamedTuple):
    """What is left of one stack's allocations."""

    device: int
    stack: Stack
    place: str
    bytes: int
    blocks: int


class _Event(NamedTuple):
    time: int
    born: bool
    level: int          # whose address space: 0 the driver's, else the pool's place + 1
    address: int
    size: int
    stack: int


CALLERS_SHOWN = 4

_ROOTS = tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")} |
               {os.path.dirname(os.path.abspath(__file__)) + os.sep})     # this package in a source tree


def _is_installed(path: str) -> bool:
    """Is it a file of the interpreter's or of an installed package, or no file at all?"""
    return path.startswith(("<",) + _ROOTS) or "/site-packages/" in path or "/dist-packages/" in path


class Snapshot:
    """A snapshot that was read; raises OSError or ValueError for what is none."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.data: Dict[str, Any] = json.load(file)
        if not isinstance(self.data, dict) or self.data.get("format") != "gpumem-snapshot":
            raise ValueError("%s is no snapshot of gpumem" % path)
        self._places: Dict[int, str] = {}
        self.traces: Dict[int, List[Dict[str, Any]]] = {}      # by device: the driver's level, then the pools'
        for device, trace in enumerate(self.data["device_traces"]):
            self.traces[device] = [trace]
        for pool in self.data.get("pools", ()):
            self.traces.setdefault(pool["device"], [{}]).append(pool["trace"])

    def devices(self) -> List[int]:
        """Those that something happened on."""
        return sorted(device for device, traces in self.traces.items() if any(trace.get("action") for trace in traces))

    def range_of(self, prefix: str) -> Tuple[Optional[int], Optional[int]]:
        """When the range whose name begins with @prefix began and ended, in microseconds since 1970."""
        began = ended = None
        for one in self.data["annotations"]:
            if one["name"].startswith(prefix):
                if one["stage"] == "START" and began is None:
                    began = one["time_us"]
                elif one["stage"] == "END":
                    ended = one["time_us"]
        return began, ended

    def whole_since(self, time_us: int) -> bool:
        """Does the history reach back to that moment?"""
        if self.data["history"]["enabled"] != "all" or not self.data["history"]["max_events"]:
            return False
        if not self.data["history"]["dropped"]:
            return True
        first = [trace["time_us"][0] for traces in self.traces.values() for trace in traces if trace.get("time_us")]
        return bool(first) and min(first) <= time_us

    # ---- stacks ----

    def stack(self, number: int) -> Stack:
        """The Python frames; where there are none, the native ones."""
        frames = [self.data["frames"][i] for i in self.data["stacks"][number]]
        chosen = [frame for frame in frames if frame.get("python")] or frames
        return Stack(tuple(StackFrame(frame["name"], frame["filename"] or self._module(frame), frame["line"])
                           for frame in chosen))

    def _module(self, frame: Dict[str, Any]) -> str:
        return str(self.data["modules"][frame["module"]]["path"])

    def place(self, number: int) -> str:
        """The call site: the innermost lines that belong to no installed package, each called by the next."""
        if number not in self._places:
            frames = self.stack(number).frames
            own = [frame for frame in frames if frame.lineno and not _is_installed(frame.filename)]
            self._places[number] = " < ".join(_say(frame) for frame in own[:CALLERS_SHOWN] or frames[:1]) or "(no stack)"
        return self._places[number]

    # ---- events ----

    def _events(self, device: int, began: int, ended: int) -> Iterator[_Event]:
        for level, trace in enumerate(self.traces.get(device, ())):
            times = trace.get("time_us", ())
            for i in range(bisect.bisect_left(times, began), bisect.bisect_right(times, ended)):
                action = trace["action"][i]
                if action in ("alloc", "free_requested", "free_completed"):
                    yield _Event(times[i], action == "alloc", level, trace["addr"][i], trace["size"][i], trace["stack"][i])

    def _handed_out(self, device: int, events: List[_Event]) -> List[int]:
        """Addresses in the pieces that pools have from the driver, sorted."""
        found = {event.address for event in events if event.level}
        for trace in self.traces.get(device, [])[1:]:
            found.update(address for address, action in zip(trace["addr"], trace["action"]) if action == "segment_alloc")
        for pool in self.data.get("pools", ()):
            if pool["device"] == device:
                found.update(block["address"] for segment in pool["segments"] for block in segment["blocks"])
        return sorted(found)

    def usage(self, device: int, began: int, ended: int, complete: bool) -> Usage:
        """What was allocated on @device between two moments, which are microseconds since 1970."""
        events = sorted(self._events(device, began, ended), key=lambda event: event.time)
        handed_out = self._handed_out(device, events)

        def counts(event: _Event) -> bool:
            at = bisect.bisect_left(handed_out, event.address)
            return event.level > 0 or at == len(handed_out) or handed_out[at] >= event.address + event.size

        events = [event for event in events if not event.born or counts(event)]
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

    # ---- what is left ----

    def leaks(self, began: int, device: Optional[int] = None,
              wanted: Optional[Callable[[Stack], bool]] = None) -> List[Leak]:
        """What was allocated since @began and is held still, by stack, largest first."""
        pools = self.data.get("pools", ())
        handed_out = {number: self._handed_out(number, []) for number in self.traces}
        sums: Dict[Tuple[int, int], List[int]] = {}
        for level, segments in enumerate([self.data["segments"]] + [pool["segments"] for pool in pools]):
            for segment in segments:
                number = segment["device"]
                for block in segment["blocks"]:
                    if (block["state"] != "active_allocated" or block.get("freeing") or
                            (block["time_us"] or 0) < began or device not in (None, number)):
                        continue
                    addresses = handed_out.get(number, [])
                    at = bisect.bisect_left(addresses, block["address"])
                    if level == 0 and at < len(addresses) and addresses[at] < block["address"] + block["size"]:
                        continue
                    both = sums.setdefault((number, block["stack"]), [0, 0])
                    both[0] += block["requested_size"]
                    both[1] += 1
        found = []
        for (number, stack), both in sums.items():
            if wanted is None or wanted(self.stack(stack)):
                found.append(Leak(number, self.stack(stack), self.place(stack), *both))
        return sorted(found, key=lambda leak: (-leak.bytes, leak.place))


def _replay(events: List[_Event], held: Dict[Tuple[int, int], _Event]) -> Iterator[int]:
    """The bytes that are held after each event, of what the events show the birth of."""
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


# ---- sizes ---------------------------------------------------------------------------------------

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_of(text: Any) -> int:
    """The bytes that "2 GiB", "1.5GB", "24 MB", "512K" or a number mean. KB, MB and GB are powers of 1024, as
    pytest-memray and PyTorch take them. Raises ValueError."""
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
    """As the command prints it: "24.0 MiB"."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return "%d B" % size if not unit else "%.1f %s" % (value, _UNITS[unit])
