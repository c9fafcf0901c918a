# SPDX-License-Identifier: Apache-2.0
"""The address of what has the buffer protocol, without a copy."""

import ctypes
import re


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C API (Include/cpython/object.h, Include/pybuffer.h)"""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_SIMPLE = 0  # PyBUF_SIMPLE

_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_PyBuffer)]
_release.restype = None


class Pinned:
    """Memory of an object, whose place and size do not change before release().

    bytes, bytearray, memoryview, array and numpy arrays have the buffer protocol. A CPU tensor of
    torch is taken by its method numpy(), which shares the memory. The memory has to be contiguous.
    """

    def __init__(self, thing, writable=False):
        """Raises BufferError if the memory is not contiguous, is read-only and must not be, or has
        references to objects, which are nothing to others."""
        try:
            with memoryview(thing) as view:
                objects = "O" in re.sub(":[^:]*:", "", view.format)  # without the names of fields
            if objects:
                raise BufferError("the memory has references to Python objects, which mean nothing at other hosts")
        except TypeError:
            if not hasattr(thing, "numpy"):
                raise TypeError(f"{type(thing).__name__} has no buffer: give bytes, a bytearray, an array or a tensor of the CPU") from None
            thing = thing.numpy()
        self._view = _PyBuffer()
        try:
            _get(thing, self._view, _SIMPLE)
        except ValueError as error:  # numpy raises it where others raise BufferError
            raise BufferError(str(error)) from error
        self.address, self.nbytes = self._view.buf or 0, self._view.len
        self._held = True
        if writable and self._view.readonly:
            self.release()
            raise BufferError(f"the memory of {type(thing).__name__} is read-only, and what arrives is written into it: give a bytearray or a copy")

    def release(self):
        """Lets the object change again."""
        if self._held:
            self._held = False
            _release(self._view)

    def __del__(self):
        if getattr(self, "_held", False):
            self.release()
