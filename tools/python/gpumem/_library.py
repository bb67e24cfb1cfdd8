"""The functions of libgpumem.so in this process, found with ctypes.

The library is there if it was preloaded (``gpumem run``, ``LD_PRELOAD``). It is never loaded from here,
because earlier allocations would be missing. Without the library every function returns -ENOSYS, as the C
header's functions do.
"""
import ctypes
import errno
import os
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

ABSENT = -errno.ENOSYS
NO_DATA = -errno.ENODATA


class Stat(ctypes.Structure):
    """struct gpumem_stat."""

    _fields_ = [("name", ctypes.c_char * 56), ("value", ctypes.c_int64)]


OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)

_TEXT, _INT, _I64, _U64 = ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64

# name: result, arguments. They follow preload/api/gpumem.h; test/python compares the two.
PROTOTYPES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "gpumem_version": (_TEXT, ()),
    "gpumem_snapshot": (_INT, (_TEXT,)),
    "gpumem_memory_stats": (_INT, (_INT, ctypes.POINTER(Stat), _INT)),
    "gpumem_memory_summary": (_INT, (_INT, ctypes.c_void_p)),
    "gpumem_memory_allocated": (_I64, (_INT,)),
    "gpumem_memory_reserved": (_I64, (_INT,)),
    "gpumem_max_memory_allocated": (_I64, (_INT,)),
    "gpumem_max_memory_reserved": (_I64, (_INT,)),
    "gpumem_reset_peak_memory_stats": (_INT, (_INT,)),
    "gpumem_reset_accumulated_memory_stats": (_INT, (_INT,)),
    "gpumem_empty_cache": (_I64, ()),
    "gpumem_set_per_process_memory_fraction": (_INT, (ctypes.c_double, _INT)),
    "gpumem_get_per_process_memory_fraction": (ctypes.c_double, (_INT,)),
    "gpumem_record_memory_history": (_INT, (_TEXT, _TEXT, _TEXT, ctypes.c_size_t)),
    "gpumem_annotate": (_INT, (_TEXT,)),
    "gpumem_range_start": (_I64, (_TEXT,)),
    "gpumem_range_end": (_INT, (_I64,)),
    "gpumem_register_oom_observer": (_INT, (OBSERVER, ctypes.c_void_p)),
    "gpumem_unregister_oom_observer": (_INT, (OBSERVER, ctypes.c_void_p)),
    "gpumem_pool_create": (_INT, (_TEXT, _INT)),
    "gpumem_pool_find": (_INT, (_TEXT, _INT)),
    "gpumem_pool_allocated": (_INT, (_INT, _U64, _U64, ctypes.c_void_p)),
    "gpumem_pool_freed": (_INT, (_INT, _U64)),
    "gpumem_pool_label": (_INT, (_INT, ctypes.POINTER(_U64), _INT, _TEXT)),
    "gpumem_pool_memory_stats": (_INT, (_INT, ctypes.POINTER(Stat), _INT)),
    "gpumem_pool_reset_peak_memory_stats": (_INT, (_INT,)),
}

# These only note something and return. They keep the interpreter's lock, because releasing and taking it
# again takes longer than the call, in a busy program much longer.
SHORT = {"gpumem_annotate", "gpumem_range_start", "gpumem_range_end", "gpumem_pool_create", "gpumem_pool_find",
         "gpumem_pool_allocated", "gpumem_pool_freed", "gpumem_pool_label"}


def _absent(*_: Any) -> int:
    return ABSENT


def _no_version() -> None:
    return None


def _load() -> Dict[str, Callable[..., Any]]:
    """Return every function by name. A function that the library lacks returns ABSENT."""
    found: Dict[str, Callable[..., Any]] = {}
    releasing: Optional[ctypes.CDLL] = None
    keeping: Optional[ctypes.PyDLL] = None
    if sys.platform.startswith("linux"):
        try:
            releasing, keeping = ctypes.CDLL(None), ctypes.PyDLL(None)
        except OSError:         # a Python without a dynamic loader
            pass
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(keeping if name in SHORT else releasing, name, None)
        if function is None:
            found[name] = _no_version if name == "gpumem_version" else _absent
            continue
        function.restype = result
        function.argtypes = arguments
        found[name] = function
    return found


FUNCTIONS = _load()


def call(name: str, *arguments: Any) -> Any:
    """Call the C function @name. Returns its result; below 0 it is an error."""
    return FUNCTIONS[name](*arguments)


def fail(result: int, doing: str) -> NoReturn:
    """Raise the OSError of a negative result."""
    number = -int(result)
    raise OSError(number, "%s (%s)" % (os.strerror(number), doing))


def quiet(result: int) -> bool:
    """Is it one of the two results of a process in which nothing is recorded?"""
    return result in (ABSENT, NO_DATA)


def text(value: Optional[str]) -> Optional[bytes]:
    """Return a C string; NULL for None. Characters without UTF-8 become '?', and a NUL ends the text. Raises
    TypeError."""
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text: %r" % (value,))
    return None if value is None else value.encode("utf-8", "replace")


def stats(name: str, number: int) -> List[Tuple[str, int]]:
    """Return all statistics of a device or a pool, from the function @name; none where nothing is recorded."""
    room = 0
    while True:
        items = (Stat * room)()
        count = call(name, number, items if room else None, room)
        if quiet(count):
            return []
        if count == -errno.EINVAL:
            raise ValueError("no such device or pool: %d" % number)
        if count < 0:
            fail(count, "%s of %d" % (name, number))
        if count <= room:
            return [(item.name.decode("utf-8", "replace"), item.value) for item in items[:count]]
        room = count


def summary(device: int) -> str:
    """Return the text that gpumem_memory_summary() prints; "" where nothing is recorded."""
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    libc.open_memstream.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t))
    libc.fclose.argtypes = (ctypes.c_void_p,)
    libc.free.argtypes = (ctypes.c_void_p,)
    buffer, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = libc.open_memstream(ctypes.byref(buffer), ctypes.byref(size))
    if not stream:
        raise MemoryError("memory_summary")
    try:
        result = call("gpumem_memory_summary", device, stream)
    finally:
        libc.fclose(stream)
    try:
        if quiet(result):
            return ""
        if result == -errno.EINVAL:
            raise ValueError("no such device: %d" % device)
        if result:
            fail(result, "memory_summary of device %d" % device)
        return ctypes.string_at(buffer, size.value).decode("utf-8", "replace") if buffer else ""
    finally:
        libc.free(buffer)
