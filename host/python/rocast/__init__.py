# SPDX-License-Identifier: Apache-2.0
"""rocast: reliable multicast for programs on RoCEv2 hosts.

What the source of a group broadcasts goes once to the box (rocastd), and from there to all
receivers. A source:

    with rocast.join("weights", role="source", members=9) as group:
        group.broadcast(array)

and eight receivers:

    with rocast.join("weights", role="receiver", members=9) as group:
        group.receive(array)

array is anything with the buffer protocol: bytes, a bytearray, an array of numpy, a CPU tensor of
torch. The box is $ROCAST_BOX. The library librocast does the work; see man 3 rocast.
"""

from ._group import About, Completion, Group, Piece, Progress
from ._host import Host, Memory
from ._library import (
    ArgumentError,
    BoxError,
    Broken,
    DeviceError,
    Error,
    Forked,
    QueueFull,
    Refused,
    Timeout,
    library,
)

__all__ = [
    "About", "ArgumentError", "BoxError", "Broken", "Completion", "DeviceError", "Error", "Forked", "Group", "Host", "Memory",
    "Piece", "Progress", "QueueFull", "Refused", "Timeout", "join", "library_version",
]  # fmt: skip


def library_version():
    """ "version commit" of librocast."""
    return library().rocast_version().decode()


class _Alone(Group):
    """A group with a host of its own, which is closed with it."""

    def leave(self):
        try:
            super().leave()
        finally:
            self.host.close()

    def end(self):
        try:
            super().end()
        finally:
            if self._handle is None:
                self.host.close()


def join(name, *, role, members, box=None, address=None, device=None, secret=None, policy=None, traffic_class=None, patience=30.0, **more):
    """Opens the host's device and joins a group. The arguments are those of Host and of Group.
    Programs with several groups make a Host, and join by Host.join()."""
    host = Host(box, address=address, device=device, patience=patience, secret=secret, policy=policy, traffic_class=traffic_class)
    try:
        return _Alone(host, name, role=role, members=members, **more)
    except BaseException:
        host.close()
        raise
