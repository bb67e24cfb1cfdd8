"""CuPy's memory pool, seen: each array by the Python line that made it.

::

    import gpumem.cupy
    gpumem.cupy.install()       # before the first array

CuPy takes memory from the driver in large pieces and keeps it; without this the record shows the pieces.
The hook (cupy.cuda.MemoryHook) tells the library what the pool hands out and takes back, with sizes as the
pool rounds them: the live bytes of the pool "cupy" are ``cupy.get_default_memory_pool().used_bytes()``.

CuPy keeps hooks by thread. So that threads which come later are seen, too, the current allocator is replaced
by one that sets the hook in each thread at its first allocation and then calls the former. A thread that
only frees arrays and never makes one is not seen: its arrays are shown as held until their memory is handed
out again.
"""
import itertools
import threading
from typing import Any, Callable, Dict, Optional

from . import Pool, available

__all__ = ["install", "uninstall"]


class _Threads(threading.local):
    """Which hook this thread has."""

    hook: Optional[Any] = None


_threads = _Threads()
_lock = threading.Lock()
_numbers = itertools.count(1)
_installed: Optional["_Installed"] = None


def _make_hook(cupy: Any) -> Any:
    """An instance of a subclass of CuPy's class, which is there only now."""
    current_stream: Callable[[], Any] = cupy.cuda.get_current_stream
    pools: Dict[int, Pool] = {}

    class Hook(cupy.cuda.MemoryHook):       # type: ignore[misc, name-defined]
        """Tells the library. Called by CuPy with its arguments by name, in the thread that allocates."""

        # CuPy has one hook of a name in a thread; that of an earlier install() may be there still.
        name = "gpumem %d" % next(_numbers)
        active = True

        def malloc_postprocess(self, **kwargs: Any) -> None:
            """@mem_ptr is 0 when there was no memory."""
            address, device = kwargs["mem_ptr"], kwargs["device_id"]
            if not address or not self.active:
                return
            pool = pools.get(device)
            if pool is None:
                pool = pools.setdefault(device, Pool("cupy", device))
            pool.allocated(address, kwargs["mem_size"], current_stream().ptr)

        def free_preprocess(self, **kwargs: Any) -> None:
            """Before the pool has it back: after, another thread may be given it at once."""
            pool = pools.get(kwargs["device_id"])
            if pool is not None and self.active:
                pool.freed(kwargs["mem_ptr"])

    return Hook()


class _Installed:
    """What install() has changed."""

    def __init__(self, cupy: Any, threads: bool) -> None:
        self.cupy, self.hook = cupy, _make_hook(cupy)
        self.former: Optional[Callable[[int], Any]] = None
        self.ours: Optional[Callable[[int], Any]] = None
        self.enter()
        if threads:
            former = self.former = cupy.cuda.get_allocator()

            def allocate(size: int) -> Any:
                if _threads.hook is not self.hook:
                    self.enter()
                return former(size)

            self.ours = allocate
            cupy.cuda.set_allocator(allocate)

    def enter(self) -> None:
        """Set the hook in this thread."""
        _threads.hook = self.hook
        self.hook.__enter__()

    def leave(self) -> None:
        """Undo it; the hooks of other threads do nothing any more."""
        self.hook.active = False
        if self.former is not None and self.cupy.cuda.get_allocator() is self.ours:
            self.cupy.cuda.set_allocator(self.former)
        if _threads.hook is self.hook:
            self.hook.__exit__()
            _threads.hook = None


def install(threads: bool = True) -> bool:
    """Tell the library what CuPy's memory pool hands out, from now on.

    ``threads``: in all threads that make arrays; False: in this thread alone, and the allocator stays as it
    is. Returns False, and does nothing, without the library. Raises ImportError without CuPy. Calling it
    again changes nothing. Arrays from before are not seen. A few microseconds for each array, most of it the stack.
    """
    global _installed
    if not available():
        return False
    import cupy     # noqa: PLC0415     (this module's own name is gpumem.cupy)
    with _lock:
        if _installed is None:
            _installed = _Installed(cupy, threads)
    return True


def uninstall() -> None:
    """Stop it, in all threads. What is handed out then stays in the record as it is."""
    global _installed
    with _lock:
        if _installed is not None:
            _installed.leave()
        _installed = None
