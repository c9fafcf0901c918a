# SPDX-License-Identifier: Apache-2.0
"""The functions of librocast (host/rocast.h), by ctypes, and its errors as exceptions."""

import ctypes
import operator
import os


class Error(Exception):
    """librocast has refused something. The text is the library's sentence."""


class ArgumentError(Error, ValueError):
    """The arguments do not fit. Nothing has happened."""


class DeviceError(Error):
    """There is no RDMA device for the address, or libibverbs has failed."""


class BoxError(Error, ConnectionError):
    """The box does not answer."""


class Refused(Error):
    """The box refuses; the text has its sentence."""


class Timeout(Error, TimeoutError):
    """The time bound has passed. The text says whom the group waits for."""


class QueueFull(Error):
    """The queue is full: take completions first."""


class Broken(Error, ConnectionError):
    """Neither the group nor single connections work. The group can only be left."""


class Forked(Error):
    """The process is a child of the one that opened the device."""


# enum rocast_error
_ERRORS = {
    -1: ArgumentError,
    -2: MemoryError,
    -3: DeviceError,
    -4: BoxError,
    -5: Refused,
    -6: Timeout,
    -7: QueueFull,
    -8: Broken,
    -9: Forked,
}

# enum rocast_role, and the names that Python programs use
ROLES = {"receiver": 0, "source": 1, "both": 2}

# enum rocast_kind
DONE, RECEIVED, IMMEDIATE, FAILED = range(4)

# enum rocast_way
WAYS = ("multicast", "unicast")

MAX_REGIONS = 4


class Settings(ctypes.Structure):
    """struct rocast_settings"""

    _fields_ = [
        ("box", ctypes.c_char_p),
        ("address", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("patience_ms", ctypes.c_uint),
    ]


class Membership(ctypes.Structure):
    """struct rocast_membership"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("role", ctypes.c_int),
        ("members", ctypes.c_uint),
        ("regions", ctypes.POINTER(ctypes.c_void_p)),
        ("region_count", ctypes.c_uint),
        ("mtu", ctypes.c_uint),
        ("send_depth", ctypes.c_uint),
        ("receive_depth", ctypes.c_uint),
        ("patience_ms", ctypes.c_uint),
        ("give_up_ms", ctypes.c_uint),
        ("without_fallback", ctypes.c_int),
    ]


class CompletionStruct(ctypes.Structure):
    """struct rocast_completion"""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("id", ctypes.c_uint64),
        ("bytes", ctypes.c_size_t),
        ("immediate", ctypes.c_uint32),
    ]


class AboutStruct(ctypes.Structure):
    """struct rocast_about"""

    _fields_ = [
        ("group_ip", ctypes.c_char_p),
        ("group_qpn", ctypes.c_uint32),
        ("qpn", ctypes.c_uint32),
        ("members", ctypes.c_uint),
        ("mtu", ctypes.c_uint),
        ("region_bytes", ctypes.c_uint64 * MAX_REGIONS),
        ("fallbacks", ctypes.c_uint),
        ("returns", ctypes.c_uint),
    ]


class ProgressStruct(ctypes.Structure):
    """struct rocast_progress"""

    _fields_ = [
        ("posted_bytes", ctypes.c_uint64),
        ("completed_bytes", ctypes.c_uint64),
        ("received_bytes", ctypes.c_uint64),
        ("slowest", ctypes.c_char * 64),
        ("slowest_lacks", ctypes.c_uint64),
    ]


class PieceStruct(ctypes.Structure):
    """struct rocast_piece"""

    _fields_ = [
        ("at", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("offset", ctypes.c_uint64),
        ("last", ctypes.c_int),
    ]


def number(value, ctype=ctypes.c_uint):
    """value as a C number that is not negative. ctypes would cut one that does not fit."""
    most = (1 << 8 * ctypes.sizeof(ctype)) - 1
    if not 0 <= operator.index(value) <= most:
        raise ValueError(f"{value} is not a number from 0 to {most}")
    return ctype(value)


class _Number:
    """The type of an argument that number() checks."""

    def __init__(self, ctype):
        self.ctype = ctype

    def from_param(self, value):
        """What ctypes calls for an argument."""
        return number(value, self.ctype)


_pointer, _int = ctypes.c_void_p, ctypes.c_int
_unsigned, _size, _id, _word = _Number(ctypes.c_uint), _Number(ctypes.c_size_t), _Number(ctypes.c_uint64), _Number(ctypes.c_uint32)

# name: (result, arguments). Functions with the result _int return an error or a count.
_FUNCTIONS = {
    "rocast_message": (ctypes.c_char_p, []),
    "rocast_version": (ctypes.c_char_p, []),
    "rocast_open": (_int, [ctypes.POINTER(Settings), ctypes.POINTER(_pointer)]),
    "rocast_set_secret": (_int, [_pointer, ctypes.c_char_p]),
    "rocast_set_policy": (_int, [_pointer, ctypes.c_char_p]),
    "rocast_set_traffic_class": (_int, [_pointer, _unsigned]),
    "rocast_close": (None, [_pointer]),
    "rocast_register": (_int, [_pointer, _pointer, _size, ctypes.POINTER(_pointer)]),
    "rocast_register_to_send": (_int, [_pointer, _pointer, _size, ctypes.POINTER(_pointer)]),
    "rocast_register_dmabuf": (_int, [_pointer, _int, _id, _size, ctypes.POINTER(_pointer)]),
    "rocast_unregister": (_int, [_pointer]),
    "rocast_join": (_int, [_pointer, ctypes.POINTER(Membership), ctypes.POINTER(_pointer)]),
    "rocast_leave": (_int, [_pointer]),
    "rocast_end": (_int, [_pointer]),
    "rocast_write": (_int, [_pointer, _pointer, _pointer, _size, _unsigned, _id, _id]),
    "rocast_write_immediate": (_int, [_pointer, _pointer, _pointer, _size, _unsigned, _id, _word, _id]),
    "rocast_send": (_int, [_pointer, _pointer, _pointer, _size, _id]),
    "rocast_receive": (_int, [_pointer, _pointer, _pointer, _size, _id]),
    "rocast_poll": (_int, [_pointer, ctypes.POINTER(CompletionStruct), _unsigned]),
    "rocast_descriptor": (_int, [_pointer]),
    "rocast_set_rate": (_int, [_pointer, _id]),
    "rocast_use_streams": (_int, [_pointer, _size]),
    "rocast_stream_write": (ctypes.c_int64, [_pointer, _pointer, _size, _unsigned]),
    "rocast_stream_end": (_int, [_pointer, _unsigned]),
    "rocast_stream_read": (_int, [_pointer, ctypes.POINTER(PieceStruct), _unsigned]),
    "rocast_become_source": (_int, [_pointer, _unsigned]),
    "rocast_way": (_int, [_pointer]),
    "rocast_acknowledged_by": (ctypes.c_uint, [_pointer]),
    "rocast_progress": (_int, [_pointer, ctypes.POINTER(ProgressStruct)]),
    "rocast_describe": (None, [_pointer, ctypes.POINTER(AboutStruct)]),
}

_loaded = None


def library():
    """The library, loaded once: $ROCAST_LIBRARY, or librocast.so.0 of the system.

    ctypes.CDLL releases the interpreter's lock while a function runs.
    """
    global _loaded
    if _loaded is None:
        name = os.environ.get("ROCAST_LIBRARY", "librocast.so.0")
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            raise ImportError(f"{error}; install the package librocast, or set ROCAST_LIBRARY to librocast.so.0") from error
        for function, (result, arguments) in _FUNCTIONS.items():
            try:
                known = getattr(loaded, function)
            except AttributeError as error:
                raise ImportError(f"{name} has no {function}; install librocast of this version") from error
            known.restype, known.argtypes = result, arguments
        _loaded = loaded
    return _loaded


def message():
    """The library's sentence about the last failure in this thread."""
    return library().rocast_message().decode(errors="replace")


def check(result):
    """Returns a result that is no error, and raises the exception of one that is."""
    if result < 0:
        raise _ERRORS.get(result, Error)(message())
    return result
