# SPDX-License-Identifier: Apache-2.0
"""A host's RDMA device and its memory."""

import atexit
import ctypes
import os
import threading
from typing import NamedTuple

from . import _library
from ._buffer import Pinned

# The registration of a buffer is kept until so many more broadcasts have gone without the buffer.
# Meanwhile its memory stays pinned, also where the program needs it no more.
KEPT = 4

# Hosts that are not closed. They stay when a program drops them, because the device may still write
# into their memory.
_open = set()
_inherited = []  # a child of the process that opened them: those of the parent


@atexit.register
def _close_all():
    for host in list(_open):
        host.close()


def _forked():
    """A child of the process frees nothing, and no thread of it has the locks."""
    _inherited.extend(_open)
    _open.clear()
    for host in _inherited:
        host.lock = threading.RLock()


os.register_at_fork(after_in_child=_forked)


class _Elsewhere(NamedTuple):
    """Memory of another device, in which the address is the offset."""

    address: int
    nbytes: int

    def release(self):
        """It is the other device's."""


class Memory:
    """Registered memory: to send from, to receive into, or as a region of groups. It stays until
    unregister() or the host's close(), also when the program drops the object."""

    def __init__(self, host, pinned, function, *arguments):
        self.host, self.pinned = host, pinned
        self.users, self.last = 0, 0  # broadcasts that use it now; the newest that has used it
        self.handle = ctypes.c_void_p()
        with host.lock:
            try:
                _library.check(getattr(_library.library(), function)(host._use(), *arguments, self.handle))
                host._memories.add(self)
            except BaseException:  # Ctrl-C may come when it is registered
                if self.handle:
                    host._memories.discard(self)
                    _library.library().rocast_unregister(self.handle)
                raise

    @classmethod
    def from_dmabuf(cls, host, fd, offset, nbytes):
        """Memory of another device, such as a GPU: nbytes from offset on of the dmabuf that has the
        descriptor fd, for the calls of a Group that name a Memory. DeviceError: the RDMA device
        takes no such memory."""
        return cls(host, _Elsewhere(offset, nbytes), "rocast_register_dmabuf", fd, offset, nbytes)

    @property
    def nbytes(self):
        """Its size in bytes."""
        return self.pinned.nbytes

    @property
    def address(self):
        """Where it lies."""
        return self.pinned.address

    def unregister(self):
        """Gives the memory back. Operations and receives that use it have to be complete.
        ArgumentError: a group has it as a region."""
        with self.host.lock:
            if self.handle is None:
                return
            handle, self.handle = self.handle, None  # before: Ctrl-C may come when it is freed
            result = _library.library().rocast_unregister(handle)
            if result == -1 or result == -9:  # then it is not
                self.handle = handle
            _library.check(result)
            self.host._memories.discard(self)
        self.pinned.release()


class Host:
    """A host's RDMA device, and its way to the box.

    box is ADDRESS:PORT of hosts: in the box's config, by default $ROCAST_BOX. address is one of
    this host, by default $ROCAST_ADDRESS or the one by which it reaches the box. device is the RDMA
    device, by default the first one that has the address. patience bounds every call, in seconds.
    secret, policy ("repair=off,nak=lower") and traffic_class are those of the groups that are
    joined; see man 3 rocast.

    Several threads may use a host and its groups: one call waits for the other, but none for a
    thread that waits for completions. A host is open until close(), or until the program ends.
    """

    def __init__(self, box=None, *, address=None, device=None, patience=30.0, secret=None, policy=None, traffic_class=None):
        settings = _library.Settings(_text(box), _text(address), _text(device), _milliseconds(patience))
        handle = ctypes.c_void_p()
        _library.check(_library.library().rocast_open(settings, handle))
        self._begin(handle, patience)
        try:
            if secret is not None:
                _library.check(_library.library().rocast_set_secret(self.handle, _text(secret)))
            if policy is not None:
                _library.check(_library.library().rocast_set_policy(self.handle, _text(policy)))
            if traffic_class is not None:
                _library.check(_library.library().rocast_set_traffic_class(self.handle, traffic_class))
        except BaseException:
            self.close()
            raise

    def _begin(self, handle, patience):
        self.handle, self.patience = handle, patience
        self.lock = threading.RLock()
        self._memories = set()
        self._kept = {}  # Memory by address, size, and whether it is writable
        self._broadcasts = 0
        self._groups = set()
        _open.add(self)

    def _use(self):
        if self.handle is None:
            raise ValueError("the host has been closed")
        return self.handle

    @classmethod
    def _of(cls, handle, patience=30.0):
        """A host that something else has opened."""
        host = cls.__new__(cls)
        host._begin(handle, patience)
        return host

    def register(self, buffer, writable=True):
        """Registers the memory of a buffer, for regions and for the calls of a Group that name a
        Memory. It is pinned, and neither moves nor changes its size before unregister(). What is
        not writable is only sent from: it may be read-only, if the kernel pins it so."""
        pinned = Pinned(buffer, writable)
        function = "rocast_register" if writable else "rocast_register_to_send"
        try:
            return Memory(self, pinned, function, pinned.address, pinned.nbytes)
        except BaseException:
            pinned.release()
            raise

    def _acquire(self, buffer, writable):
        """The registration of a buffer, for one broadcast. It is kept for the next ones. One that
        is writable serves for sending too."""
        pinned = Pinned(buffer, writable)
        key = (pinned.address, pinned.nbytes)
        pinned.release()  # the caller has the buffer
        with self.lock:
            memory = self._kept.get((*key, True)) or self._kept.get((*key, writable))
            if memory is None:
                if writable:  # it is not pinned twice
                    self._forget(lambda other: (other.address, other.nbytes) == key)
                memory = self._kept[*key, writable] = self.register(buffer, writable)
            memory.users, memory.last = memory.users + 1, self._broadcasts
            return memory

    def _release(self, memory):
        """Ends the use of what _acquire() has returned."""
        with self.lock:
            memory.users -= 1

    def _broadcast_begins(self):
        """Notes that a broadcast begins."""
        with self.lock:
            self._broadcasts += 1
            self._forget(lambda memory: self._broadcasts - memory.last > KEPT)

    def _forget(self, which):
        for key, memory in list(self._kept.items()):
            if memory.users == 0 and which(memory):
                del self._kept[key]
                memory.unregister()

    def forget(self):
        """Unregisters the buffers of earlier broadcasts, so that they may be freed and resized."""
        with self.lock:
            self._forget(lambda memory: True)

    def join(self, name, **membership):
        """Joins a group; the arguments are those of Group."""
        from ._group import Group

        return Group(self, name, **membership)

    def close(self):
        """Leaves all groups that are left, each within 5 s, and frees everything."""
        with self.lock:
            if self.handle is None:
                return
            handle, self.handle = self.handle, None
            for group in list(self._groups):
                group._gone()
            _library.library().rocast_close(handle)
            # Only now the device writes no more.
            for memory in self._memories:
                memory.handle = None
                memory.pinned.release()
            self._memories.clear()
            self._kept.clear()
            _open.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def _text(value):
    if value is None:
        return None
    text = str(value).encode()
    if b"\0" in text:
        raise ValueError(f"{value!r} has a NUL, where C ends it")
    return text


def _milliseconds(seconds):
    return 0 if not seconds else max(1, round(min(seconds * 1000, 0xFFFFFFFF)))
