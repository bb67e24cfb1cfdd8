"""See and explain the GPU memory of a program, from within: the Python side of libgpumem.

Run the program under the library (``gpumem run -- python train.py`` or ``python -m gpumem run -- ...``)
and these functions ask the recorder of this process. Without the library, and in a process that has
made no CUDA call yet, they do nothing: a figure is 0, a table is empty, and what does something
returns False. So they may stay in a program for good::

    import gpumem

    with gpumem.annotate("load"):
        model = load()
    gpumem.reset_peak_memory_stats()
    train(model)
    print(gpumem.max_memory_allocated())
    gpumem.snapshot("after.json")

Sizes are bytes, devices are CUDA ordinals (a ``torch.device`` with an index will do). "Allocated" is
what the program holds at the driver's level, "reserved" what was taken from the driver for it. An
argument that the library refuses raises ValueError, anything else that goes wrong OSError.

Every function may be called from any thread, at any time but in a signal handler that interrupted
another of them. In a child of fork() whose parent has used CUDA nothing is recorded.
"""
import atexit
import contextlib
import ctypes
import errno
import functools
import inspect
import operator
import os
import sys
from typing import Any, Callable, Dict, List, Optional, TypeVar, Union

from . import _library

__all__ = [
    "annotate", "available", "empty_cache", "get_per_process_memory_fraction", "mark", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "Pool",
    "pool_memory_stats", "record_memory_history", "register_oom_observer", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "reset_pool_peak_memory_stats", "set_per_process_memory_fraction", "snapshot",
    "unregister_oom_observer", "version",
]

Device = Union[int, Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def _ordinal(device: Device) -> int:
    """The number of a device: itself, or the index of a torch.device or a cupy Device."""
    for name in ("index", "id"):
        number = getattr(device, name, None)
        if isinstance(number, int):
            return number
    try:
        number = operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 31:       # ctypes would cut it to an int
        raise ValueError("not a CUDA device with a number: %r" % (device,))
    return number


def _figure(name: str, device: Device) -> int:
    number = _ordinal(device)
    value = int(_library.call(name, number))
    if _library.quiet(value):
        return 0
    if value < 0:
        _refused(value, "device %d" % number)
    return value


def _done(result: int, doing: str) -> bool:
    """Whether it was done: False where nothing is recorded."""
    if _library.quiet(result):
        return False
    if result < 0:
        _refused(result, doing)
    return True


def _refused(result: int, doing: str) -> None:
    if result == -errno.EINVAL:
        raise ValueError("libgpumem refuses it: %s" % doing)
    _library.fail(result, doing)


def available() -> bool:
    """Is the library in this process? Something is recorded from the first CUDA call on."""
    return version() is not None


def version() -> Optional[str]:
    """The version of the library in this process, as "0.1.0"; None without it."""
    said = _library.call("gpumem_version")
    return said.decode("ascii", "replace") if said else None


def snapshot(path: Union[None, str, "os.PathLike[str]"] = None) -> bool:
    """Write a snapshot of now, as JSON, and wait until it is written.

    Without ``path`` it goes where the option ``output`` says. A relative path is taken from the current
    directory; %c %p %h %k %r %t stand for command, pid, host, rank, reason and time. An existing file is
    never replaced: -2, -3 ... are put before the suffix. It takes milliseconds for small programs, half a
    second for a million events; other Python threads go on meanwhile.

    Returns True, or False where nothing is recorded. A file that cannot be written there is written beside the
    journal, and a line on stderr says so. Raises OSError when it could be written nowhere.
    """
    name = None if path is None else os.fsencode(path)
    if name is not None and (not name or b"\0" in name):
        raise ValueError("no name of a file: %r" % (path,))
    return _done(_library.call("gpumem_snapshot", name), "snapshot to %s" % (path,))


def memory_stats(device: Device = 0) -> Dict[str, int]:
    """Every statistic of a device, by the names of torch.cuda.memory_stats(); {} where nothing is recorded."""
    return dict(_library.stats("gpumem_memory_stats", _ordinal(device)))


def memory_summary(device: Device = 0) -> str:
    """The table of torch.cuda.memory_summary() for a device; "" where nothing is recorded."""
    number = _ordinal(device)
    return _library.summary(number) if available() else ""


def memory_allocated(device: Device = 0) -> int:
    """Bytes that the program holds now. 0 for a device that was not used."""
    return _figure("gpumem_memory_allocated", device)


def memory_reserved(device: Device = 0) -> int:
    """Bytes that are taken from the driver now."""
    return _figure("gpumem_memory_reserved", device)


def max_memory_allocated(device: Device = 0) -> int:
    """The most bytes that the program held at once, since the start or reset_peak_memory_stats()."""
    return _figure("gpumem_max_memory_allocated", device)


def max_memory_reserved(device: Device = 0) -> int:
    """The most bytes that were taken from the driver at once, since the start or reset_peak_memory_stats()."""
    return _figure("gpumem_max_memory_reserved", device)


def reset_peak_memory_stats(device: Device = 0) -> bool:
    """Set every peak of a device to its current value."""
    return _done(_library.call("gpumem_reset_peak_memory_stats", _ordinal(device)), "reset of peaks")


def reset_accumulated_memory_stats(device: Device = 0) -> bool:
    """Set what was allocated and freed in all, and the counters of calls, to 0."""
    return _done(_library.call("gpumem_reset_accumulated_memory_stats", _ordinal(device)), "reset of sums")


def empty_cache() -> int:
    """Give memory that the library caches and nobody uses back to the driver, on all devices.

    Returns how many bytes that was; 0 with the option ``allocator:native``, which caches nothing. What a
    framework's own cache keeps is in use, as seen from here.
    """
    freed = int(_library.call("gpumem_empty_cache"))
    return freed if _done(freed, "empty_cache") else 0


def set_per_process_memory_fraction(fraction: float, device: Device = 0) -> bool:
    """Let the library's cache take at most this part (0 to 1) of a device's memory.

    Raises OSError (ENOTSUP) with the option ``allocator:native``, where every call goes to the driver.
    """
    return _done(_library.call("gpumem_set_per_process_memory_fraction", float(fraction), _ordinal(device)),
                 "fraction %r" % (fraction,))


def get_per_process_memory_fraction(device: Device = 0) -> float:
    """The fraction that is in force: as set last, else by the options; 1.0 is all of the device.

    1.0 also where nothing is recorded. Raises OSError (ENOTSUP) with ``allocator:native``.
    """
    value = float(_library.call("gpumem_get_per_process_memory_fraction", _ordinal(device)))
    return value if _done(int(value), "fraction of the device") else 1.0


def record_memory_history(enabled: Optional[str] = "all", context: Optional[str] = "all",
                          stacks: Optional[str] = "all", max_entries: int = sys.maxsize) -> bool:
    """Say what is recorded from now on, with the words of torch.cuda.memory._record_memory_history().

    ``enabled``: "all", events and the stacks of what is live; "state", those stacks and no events; None
    or "none", neither. ``context``: what gets a stack: "all", every event its own; "alloc"; "state";
    None. ``stacks``: "all", "python", "native" or None. ``max_entries``: how many events are kept, the
    newest; sys.maxsize: as many as the option ``history`` has room for. Events so far are dropped when
    events are switched on or off.

    Raises ValueError for another word; OSError with everything else switched: ENOSPC for more
    entries than there is room for, ENOTSUP for events where ``history`` is 0.
    """
    max_entries = operator.index(max_entries)
    if max_entries < 1:
        raise ValueError("max_entries is at least 1")
    most = 2 * sys.maxsize + 1 if max_entries >= sys.maxsize else max_entries       # SIZE_MAX: no limit
    return _done(_library.call("gpumem_record_memory_history", _library.text(enabled), _library.text(context),
                               _library.text(stacks), most), "record_memory_history(%r, %r, %r)" % (enabled, context, stacks))


def mark(text: str) -> bool:
    """Put a text into the history at this moment, of this thread.

    At most 16,384 bytes of UTF-8 are kept. Returns False where nothing is recorded, and where
    annotations have had their share of the history for now, which the snapshot counts.
    """
    return int(_library.call("gpumem_annotate", _library.text(text))) == 0


class annotate(contextlib.ContextDecorator):
    """A range of the history with a name: what its thread allocates meanwhile counts to it.

    ::

        with gpumem.annotate("forward"):
            loss = model(batch)

        @gpumem.annotate("optimizer")
        def step(): ...

    One object is for one thread at a time. As a decorator it covers each call of a function, all of a coroutine and each generator, an
    asynchronous one, too, from its first to its last item. ``gpumem summary --by annotation`` shows what each range holds, and the
    peak in it. Ranges nest, and may overlap in coroutines and threads. One that begins before
    the first CUDA call begins with the record. Never raises; costs about two microseconds.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._name = str(text).encode("utf-8", "replace")
        self._open: List[int] = []

    def __enter__(self) -> "annotate":
        self._open.append(int(_library.call("gpumem_range_start", self._name)))
        return self

    def __exit__(self, *_: Any) -> None:
        number = self._open.pop()
        if number > 0:
            _library.call("gpumem_range_end", number)

    def _recreate_cm(self) -> "annotate":
        return annotate(self.text)

    def __call__(self, func: _F) -> _F:
        made: Any
        if inspect.iscoroutinefunction(func):
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    return await func(*args, **kwargs)
            made = functools.wraps(func)(coroutine)
        elif inspect.isgeneratorfunction(func):
            def generator(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    return (yield from func(*args, **kwargs))
            made = functools.wraps(func)(generator)
        elif inspect.isasyncgenfunction(func):
            async def async_generator(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    inner = func(*args, **kwargs)
                    try:
                        item = await inner.__anext__()
                        while True:         # what "yield from" does, which these have not
                            try:
                                sent = yield item
                            except GeneratorExit:
                                await inner.aclose()
                                raise
                            except BaseException as error:      # pylint: disable=broad-except
                                item = await inner.athrow(error)
                            else:
                                item = await inner.asend(sent)
                    except StopAsyncIteration:
                        return
            made = functools.wraps(func)(async_generator)
        else:
            made = super().__call__(func)
        return made


# ---- pools ---------------------------------------------------------------------------------------

class Pool:
    """Memory that is handed out a second time: what a pool of the program's own gives to whom.

    The driver sees the large pieces that a pool takes, and not the small ones that it hands out. PyTorch's
    pool is recorded with nothing called, CuPy's by gpumem.cupy.install(); this is for all others::

        pool = gpumem.Pool("frames", device=0)
        pool.allocated(address, size)       # after the pool has taken it for itself
        pool.freed(address)                 # before anybody else can be given it

    The same name and device are the same pool. Nothing is recorded before the first CUDA call. Nothing here
    calls CUDA, so that a pool may hold its locks.
    """

    def __init__(self, name: str, device: Device = 0) -> None:
        self.name, self.device = name, _ordinal(device)
        self._text = _library.text(name)
        self._number = 0

    @property
    def number(self) -> int:
        """The library's number for it; 0 while nothing is recorded."""
        if not self._number:
            self._number = max(0, int(_library.call("gpumem_pool_create", self._text, self.device)))
        return self._number

    def allocated(self, address: int, size: int, stream: int = 0) -> bool:
        """The pool has handed out @size bytes at @address, in the order of @stream (a cudaStream_t as a
        number; 0 where it is not known). Returns whether it was recorded; raises for nothing but what is no
        integer."""
        number = self._number or self.number
        try:
            return int(_library.call("gpumem_pool_allocated", number, address, size, stream)) == 0
        except ctypes.ArgumentError:    # an integer of numpy's, or none
            return int(_library.call("gpumem_pool_allocated", number, *map(operator.index, (address, size, stream)))) == 0

    def freed(self, address: int) -> bool:
        """The pool is about to take back what it handed out at @address. Returns whether that was
        recorded: False for an address that was not handed out, which the library counts."""
        try:
            return self._number > 0 and int(_library.call("gpumem_pool_freed", self._number, address)) == 0
        except ctypes.ArgumentError:
            return int(_library.call("gpumem_pool_freed", self._number, operator.index(address))) == 0

    def memory_stats(self) -> Dict[str, int]:
        """As pool_memory_stats()."""
        return dict(_library.stats("gpumem_pool_memory_stats", self.number)) if self.number else {}

    def reset_peak_memory_stats(self) -> bool:
        """Set every peak of the pool to its current value."""
        return self.number > 0 and _done(_library.call("gpumem_pool_reset_peak_memory_stats", self.number), self.name)


def pool_memory_stats(name: str = "pytorch", device: Device = 0) -> Dict[str, int]:
    """The statistics of a pool, by the names of torch.cuda.memory_stats(), as far as they can be known from
    what the pool tells; {} for one that has told nothing. PyTorch's pool is "pytorch", CuPy's "cupy"."""
    number = int(_library.call("gpumem_pool_find", _library.text(name), _ordinal(device)))
    return dict(_library.stats("gpumem_pool_memory_stats", number)) if number > 0 else {}


def reset_pool_peak_memory_stats(name: str = "pytorch", device: Device = 0) -> bool:
    """Set every peak of a pool to its current value. False where there is no such pool."""
    number = int(_library.call("gpumem_pool_find", _library.text(name), _ordinal(device)))
    return number > 0 and _done(_library.call("gpumem_pool_reset_peak_memory_stats", number), "reset of peaks")


# ---- when memory runs out ------------------------------------------------------------------------

_observers: Dict[Callable[..., Any], Any] = {}


def register_oom_observer(observer: Callable[[int, int, int, int], Any]) -> bool:
    """Have ``observer(device, requested_bytes, total_bytes, free_bytes)`` called when an allocation fails.

    It is called in the failing thread, before the failing call returns; total and free are 0 where the
    driver did not say. It may make CUDA calls. What it raises is printed and goes no further. At most 8
    observers; the same one counts once. They are gone when the interpreter ends. Also before the
    first CUDA call. Returns False without the library; raises OSError (ENOSPC) for a ninth.
    """
    if not callable(observer):
        raise TypeError("not a function: %r" % (observer,))
    if observer in _observers:
        return True

    def called(_: Any, device: int, requested: int, total: int, free: int) -> None:
        observer(device, requested, total, free)

    function = _library.OBSERVER(called)
    if not _done(_library.call("gpumem_register_oom_observer", function, None), "register_oom_observer"):
        return False
    if not _observers:
        atexit.register(_forget_observers)
    _observers[observer] = function
    return True


def unregister_oom_observer(observer: Callable[[int, int, int, int], Any]) -> bool:
    """Have it called no more. Returns False for one that is not registered."""
    function = _observers.pop(observer, None)
    if function is None:
        return False
    _gone.append(function)
    return _done(_library.call("gpumem_unregister_oom_observer", function, None), "unregister_oom_observer")


_gone: List[Any] = []       # another thread may be in a call of one


def _forget_observers() -> None:
    for observer in list(_observers):
        unregister_oom_observer(observer)
