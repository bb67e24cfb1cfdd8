"""cupy.cuda, as far as gpumem.cupy uses it."""
import threading

from host import alloc as take_from_driver

_local = threading.local()


def _hooks():
    if not hasattr(_local, "hooks"):
        _local.hooks = {}
    return _local.hooks


class MemoryHook:
    """As documented: `with` sets it in this thread."""

    name = "MemoryHook"

    def __enter__(self):
        if self.name in _hooks():
            raise KeyError("memory hook %s already exists" % self.name)
        _hooks()[self.name] = self
        return self

    def __exit__(self, *_):
        del _hooks()[self.name]

    def malloc_preprocess(self, **kwargs):
        """Before."""

    def malloc_postprocess(self, **kwargs):
        """After."""

    def free_preprocess(self, **kwargs):
        """Before."""

    def free_postprocess(self, **kwargs):
        """After."""


class Stream:
    """The default stream."""

    ptr = 0


def get_current_stream():
    """The stream of this thread."""
    return Stream


class Memory:
    """What the pool handed out; given back when nobody has it any more."""

    def __init__(self, pool, address, size):
        self.pool, self.ptr, self.size = pool, address, size

    def __del__(self):
        self.pool.free(self.ptr, self.size, id(self))


class MemoryPool:
    """Free pieces by size, above pieces of 1 MiB."""

    def __init__(self):
        self.idle, self.used, self.total, self.at, self.end, self.lock = {}, 0, 0, 0, 0, threading.Lock()

    def used_bytes(self):
        """Bytes that are handed out."""
        return self.used

    def malloc(self, size):
        """A Memory of @size bytes; MemoryError over 1 GiB."""
        rounded = (size + 511) // 512 * 512
        told = {"device_id": 0, "size": size, "mem_size": rounded}
        for hook in list(_hooks().values()):
            hook.malloc_preprocess(**told)
        address = memory = None
        try:
            if size > 1 << 30:
                raise MemoryError(size)
            with self.lock:
                self.used += rounded
                if self.idle.get(rounded):
                    address = self.idle[rounded].pop()
                elif rounded > 1 << 20:
                    address = take_from_driver(rounded)
                else:
                    if self.end - self.at < rounded:
                        self.at = take_from_driver(1 << 20)
                        self.end = self.at + (1 << 20)
                    address, self.at = self.at, self.at + rounded
            memory = Memory(self, address, rounded)
        finally:
            for hook in list(_hooks().values()):
                hook.malloc_postprocess(mem_ptr=address or 0, pmem_id=id(memory) if memory else 0, **told)
        return memory

    def free(self, address, size, number):
        """Take it back."""
        told = {"device_id": 0, "mem_size": size, "mem_ptr": address, "pmem_id": number}
        for hook in list(_hooks().values()):
            hook.free_preprocess(**told)
        with self.lock:
            self.idle.setdefault(size, []).append(address)
            self.used -= size
        for hook in list(_hooks().values()):
            hook.free_postprocess(**told)


POOL = MemoryPool()
_allocator = POOL.malloc        # pylint: disable=invalid-name


def get_allocator():
    """What alloc() calls."""
    return _allocator


def set_allocator(allocator):
    """Have alloc() call it, in all threads."""
    global _allocator       # pylint: disable=global-statement,invalid-name
    _allocator = allocator


def alloc(size):
    """Memory of the current allocator."""
    return _allocator(size)
