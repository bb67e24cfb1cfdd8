"""What the tests of the Python package share: their interpreters, and a program's way to the driver.

As a module of a host program (`from host import alloc, free`) it makes CUDA calls with ctypes.
"""
import ctypes
import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.normpath(os.path.join(HERE, "../../tools/python"))
_state = {}


def start():
    """A context on device 0."""
    if not _state:
        cuda = _state["cuda"] = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        assert not cuda.cuInit(0)
        assert not cuda.cuDeviceGet(ctypes.byref(device), 0)
        assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        _state["context"] = context
    _state["cuda"].cuCtxSetCurrent(_state["context"])
    return _state["cuda"]


def try_alloc(size):
    """(result, address) of the driver's call."""
    pointer = ctypes.c_uint64()
    result = start().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    return result, pointer.value


def alloc(size):
    """The address of @size bytes of device memory."""
    result, address = try_alloc(size)
    assert result == 0, result
    return address


def free(address):
    """Give it back."""
    assert not start().cuMemFree_v2(ctypes.c_uint64(address))


def interpreters(test="import ctypes"):
    """Every Python 3.8 and newer here that can do @test, as (path, version); this one first."""
    found = {}
    names = [sys.executable, "/usr/bin/python3"] + glob.glob(os.path.expanduser("~/.pyenv/versions/3*/bin/python3"))
    for path in names:
        told = subprocess.run([path, "-c", test + "\nimport sys; print(sys.executable, *sys.version_info[:2])"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        if told.returncode == 0:
            real, *version = told.stdout.split()
            found.setdefault(os.path.realpath(real), tuple(int(part) for part in version))
    return [(path, version) for path, version in found.items() if version >= (3, 8)]
