"""A stand-in for CuPy: what gpumem.cupy uses of it, as CuPy documents it, above a pool of its own on the driver.

As in CuPy, hooks lie in a thread's own list, a hook has its name once there, arguments are passed by
name, sizes are rounded to 512 bytes, and the pool takes 1 MiB at a time and keeps what is freed.
"""
from . import cuda


def get_default_memory_pool():
    """The pool."""
    return cuda.POOL


class ndarray:      # pylint: disable=invalid-name
    """An array of bytes."""

    def __init__(self, size):
        self.data = cuda.alloc(size)
