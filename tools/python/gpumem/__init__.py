"""See and explain the GPU memory of a program, from within: the Python side of libgpumem.

Run the program under the library (``gpumem run -- python train.py`` or ``python -m gpumem run -- ...``),
and these functions ask the recorder of this process. Without the library, and before the process's first
CUDA call, they do nothing: a number is 0, a table is empty, and an action returns False. So they may stay
in a program for good::

    import gpumem

    with gpumem.annotate("load"):
        model = load()
    gpumem.reset_peak_memory_stats()
    train(model)
    print(gpumem.max_memory_allocated())
    gpumem.snapshot("after.json")

Sizes are in bytes; a device is a CUDA ordinal, or a ``torch.device`` with an index. "Allocated" memory is
held by the program at the driver's level; "reserved" memory was taken from the driver for that. An argument
that the library refuses raises ValueError; other errors raise OSError.

Every function may be called from any thread and at any time, except in a signal handler that interrupted
one of these functions. In a child of fork() whose parent has used CUDA, nothing is recorded.
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
    """Return the number of a device: a number, or the index of a torch.device or a cupy Device."""
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
    """Return whether the call took effect: False where nothing is recorded. Raises for an error."""
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
    """Is the library in this process? Recording begins with the first CUDA call."""
    return version() is not None


def version() -> Optional[str]:
    """The version of the library in this process, as "0.1.0"; None without it."""
    said = _library.call("gpumem_version")
    return said.decode("ascii", "replace") if said else None


def snapshot(path: Union[None, str, "os.PathLike[str]"] = None) -> bool:
    """Write a snapshot of this moment, as JSON, and wait until it is written.

    Without ``path`` the option ``output`` names the file. A relative path begins at the current directory;
    %c %p %h %k %r %t stand for command, pid, host, rank, reason and time. An existing file is never
    replaced: the new name gets -2, -3 ... before the suffix. This takes milliseconds for small programs, and
    half a second for a million events; other Python threads run meanwhile.

    Returns True, or False where nothing is recorded. If the file cannot be written there, it is written beside
    the journal, and a line on stderr says so. Raises OSError if it cannot be written there either.
    """
    name = None if path is None else os.fsencode(path)
    if name is not None and (not name or b"\0" in name):
        raise ValueError("no name of a file: %r" % (path,))
    return _done(_library.call("gpumem_snapshot", name), "snapshot to %s" % (path,))


def memory_stats(device: Device = 0) -> Dict[str, int]:
    """All statistics of a device, by the names of torch.cuda.memory_stats(); {} where nothing is recorded."""
    return dict(_library.stats("gpumem_memory_stats", _ordinal(device)))


def memory_summary(device: Device = 0) -> str:
    """The table of torch.cuda.memory_summary() for a device; "" where nothing is recorded."""
    number = _ordinal(device)
    return _library.summary(number) if available() else ""


def memory_allocated(device: Device = 0) -> int:
    """Bytes that the program holds now; 0 for a device that was not used."""
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
    """Set the sums of allocated and freed memory, and the counters of calls, to 0."""
    return _done(_library.call("gpumem_reset_accumulated_memory_stats", _ordinal(device)), "reset of sums")


def empty_cache() -> int:
    """Give unused memory of the library's cache back to the driver, on all devices.

    Returns the number of bytes; 0 with the option ``allocator:native``, which caches nothing. Memory in a
    framework's own cache counts as used here.
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
    """The fraction in force: the one that was set last, else that of the options; 1.0 is all of the device.

    Also 1.0 where nothing is recorded. Raises OSError (ENOTSUP) with ``allocator:native``.
    """
    value = float(_library.call("gpumem_get_per_process_memory_fraction", _ordinal(device)))
    return value if _done(int(value), "fraction of the device") else 1.0


def record_memory_history(enabled: Optional[str] = "all", context: Optional[str] = "all",
                          stacks: Optional[str] = "all", max_entries: int = sys.maxsize) -> bool:
    """Choose what is recorded from now on, with the words of torch.cuda.memory._record_memory_history().

    ``enabled``: "all", events and the stacks of live blocks; "state", those stacks and no events; None or
    "none", neither. ``context``: what gets a stack: "all", every event its own; "alloc"; "state"; None.
    ``stacks``: "all", "python", "native" or None. ``max_entries``: how many events, the newest ones, are
    kept; sys.maxsize: as many as the option ``history`` has room for. Switching events on or off drops the
    events so far.

    Raises ValueError for another word. Raises OSError, but switches everything else, with ENOSPC for more
    entries than there is room for, and ENOTSUP for events if ``history`` is 0.
    """
    max_entries = operator.index(max_entries)
    if max_entries < 1:
        raise ValueError("max_entries is at least 1")
    most = 2 * sys.maxsize + 1 if max_entries >= sys.maxsize else max_entries       # SIZE_MAX: no limit
    return _done(_library.call("gpumem_record_memory_history", _library.text(enabled), _library.text(context),
                               _library.text(stacks), most), "record_memory_history(%r, %r, %r)" % (enabled, context, stacks))


def mark(text: str) -> bool:
    """Put a text into the history, with the present time and thread.

    At most 16,384 bytes of UTF-8 are kept. Returns False where nothing is recorded, and if annotations have
    used up their share of the history; the snapshot counts the lost ones.
    """
    return int(_library.call("gpumem_annotate", _library.text(text))) == 0


class annotate(contextlib.ContextDecorator):
    """A range of the history with a name: allocations of its thread meanwhile count to it.

    ::

        with gpumem.annotate("forward"):
            loss = model(batch)

        @gpumem.annotate("optimizer")
        def step(): ...

    One object is for one thread at a time. As a decorator it covers each call of a function, a whole
    coroutine, and a generator, also an asynchronous one, from its first to its last item.
    ``gpumem summary --by annotation`` shows what each range holds, and the peak in it. Ranges nest, and may
    overlap in coroutines and threads. A range that begins before the first CUDA call begins with the record.
    Never raises; costs about two microseconds.
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
                        while True:         # as "yield from", which asynchronous generators lack
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
    """Report what a memory pool of the program hands out.

    The driver sees the large pieces that a pool takes, but not the blocks that the pool hands out. PyTorch's
    pool is recorded without a call, CuPy's after gpumem.cupy.install(); this class is for all other pools::

        pool = gpumem.Pool("frames", device=0)
        pool.allocated(address, size)       # after the pool has chosen the block
        pool.freed(address)                 # before the pool can hand the block out again

    The same name and device are the same pool. Nothing is recorded before the first CUDA call. No method
    calls CUDA, so a pool may hold its locks.
    """

    def __init__(self, name: str, device: Device = 0) -> None:
        self.name, self.device = name, _ordinal(device)
        self._text = _library.text(name)
        self._number = 0

    @property
    def number(self) -> int:
        """The library's number of the pool; 0 while nothing is recorded."""
        if not self._number:
            self._number = max(0, int(_library.call("gpumem_pool_create", self._text, self.device)))
        return self._number

    def allocated(self, address: int, size: int, stream: int = 0) -> bool:
        """Report that the pool has handed out @size bytes at @address, in the order of @stream (a cudaStream_t
        as a number; 0: unknown). Returns whether the block was recorded. Raises only if an argument is no
        integer."""
        number = self._number or self.number
        try:
            return int(_library.call("gpumem_pool_allocated", number, address, size, stream)) == 0
        except ctypes.ArgumentError:    # an integer of numpy's, or no integer
            return int(_library.call("gpumem_pool_allocated", number, *map(operator.index, (address, size, stream)))) == 0

    def freed(self, address: int) -> bool:
        """Report that the pool is about to take back the block at @address. Returns whether that was recorded:
        False for an address that was not handed out; the library counts these."""
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
    """The statistics of a pool, by the names of torch.cuda.memory_stats(), as far as the pool's reports tell
    them; {} for a pool without reports. PyTorch's pool is "pytorch", CuPy's "cupy"."""
    number = int(_library.call("gpumem_pool_find", _library.text(name), _ordinal(device)))
    return dict(_library.stats("gpumem_pool_memory_stats", number)) if number > 0 else {}


def reset_pool_peak_memory_stats(name: str = "pytorch", device: Device = 0) -> bool:
    """Set every peak of a pool to its current value. Returns False if there is no such pool."""
    number = int(_library.call("gpumem_pool_find", _library.text(name), _ordinal(device)))
    return number > 0 and _done(_library.call("gpumem_pool_reset_peak_memory_stats", number), "reset of peaks")


# ---- when memory runs out ------------------------------------------------------------------------

_observers: Dict[Callable[..., Any], Any] = {}


def register_oom_observer(observer: Callable[[int, int, int, int], Any]) -> bool:
    """Call ``observer(device, requested_bytes, total_bytes, free_bytes)`` whenever an allocation fails.

    The observer runs in the failing thread, before the failing call returns; total and free are 0 if the
    driver did not tell them. It may make CUDA calls. An exception in it is printed and goes no further. At
    most 8 observers; the same one counts once. They are removed when the interpreter ends. May be called
    before the first CUDA call. Returns False without the library; raises OSError (ENOSPC) for a ninth.
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
    """Remove an observer. Returns False if it is not registered."""
    function = _observers.pop(observer, None)
    if function is None:
        return False
    _gone.append(function)
    return _done(_library.call("gpumem_unregister_oom_observer", function, None), "unregister_oom_observer")


_gone: List[Any] = []       # kept, because another thread may still be in a call


def _forget_observers() -> None:
    for observer in list(_observers):
        unregister_oom_observer(observer)
