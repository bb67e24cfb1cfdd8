"""Record CuPy's memory pool: each array, with the Python line that made it.

::

    import gpumem.cupy
    gpumem.cupy.install()       # before the first array

CuPy takes memory from the driver in large pieces and keeps it; without install() the record has only the
pieces. A hook (cupy.cuda.MemoryHook) reports to the library the blocks that the pool hands out and takes
back, with the pool's rounded sizes: the live bytes of the pool "cupy" are
``cupy.get_default_memory_pool().used_bytes()``.

CuPy has hooks for each thread. To record later threads, too, install() replaces the current allocator by one
that sets the hook at the first allocation of each thread and then calls the former allocator. Frees of a
thread that never makes an array are not recorded: these arrays are shown as held until their memory is
handed out again.
"""
import itertools
import threading
from typing import Any, Callable, Dict, Optional

from . import Pool, available

__all__ = ["install", "uninstall"]


class _Threads(threading.local):
    """The hook of this thread."""

    hook: Optional[Any] = None


_threads = _Threads()
_lock = threading.Lock()
_numbers = itertools.count(1)
_installed: Optional["_Installed"] = None


def _make_hook(cupy: Any) -> Any:
    """Return an instance of a subclass of CuPy's class; the subclass is made here, because CuPy is imported late."""
    current_stream: Callable[[], Any] = cupy.cuda.get_current_stream
    pools: Dict[int, Pool] = {}

    class Hook(cupy.cuda.MemoryHook):       # type: ignore[misc, name-defined]
        """Reports to the library. CuPy calls it in the thread that allocates or frees, with keyword arguments."""

        # A thread can have only one hook of a name, and the hook of an earlier install() may still be there.
        name = "gpumem %d" % next(_numbers)
        active = True

        def malloc_postprocess(self, **kwargs: Any) -> None:
            """A block was handed out; mem_ptr is 0 if there was no memory."""
            address, device = kwargs["mem_ptr"], kwargs["device_id"]
            if not address or not self.active:
                return
            pool = pools.get(device)
            if pool is None:
                pool = pools.setdefault(device, Pool("cupy", device))
            pool.allocated(address, kwargs["mem_size"], current_stream().ptr)

        def free_preprocess(self, **kwargs: Any) -> None:
            """A block is about to go back to the pool. Afterwards another thread could get it at once."""
            pool = pools.get(kwargs["device_id"])
            if pool is not None and self.active:
                pool.freed(kwargs["mem_ptr"])

    return Hook()


class _Installed:
    """The changes that install() has made."""

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
        """Undo the changes. The hooks of other threads stay, but do nothing."""
        self.hook.active = False
        if self.former is not None and self.cupy.cuda.get_allocator() is self.ours:
            self.cupy.cuda.set_allocator(self.former)
        if _threads.hook is self.hook:
            self.hook.__exit__()
            _threads.hook = None


def install(threads: bool = True) -> bool:
    """Report the blocks of CuPy's memory pool to the library from now on.

    ``threads``: True, in all threads that make arrays; False, only in this thread, and the allocator is not
    replaced. Without the library it returns False and does nothing. Raises ImportError without CuPy. Another
    call changes nothing. Earlier arrays are not recorded. Costs a few microseconds for each array, most of
    them for the stack.
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
    """Stop the reports, in all threads. Blocks that are handed out now stay in the record as live."""
    global _installed
    with _lock:
        if _installed is not None:
            _installed.leave()
        _installed = None
