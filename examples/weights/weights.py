#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weights brings each version of a model's weights from one host to all others: docs/host.md.

    ROCAST_BOX=10.77.0.254:7472 ./weights.py send --members 4 model.npz     # on one host
    ROCAST_BOX=10.77.0.254:7472 ./weights.py recv --members 4               # on three others

A receiver holds two versions: the one in use, and the one that comes. It swaps them when the source
says that all receivers have the new one, so no two of them use versions that lie further apart than
one. It needs numpy; a file of torch (model.pt) needs torch too.
"""

import argparse
import json
import time

import rocast


def publish(group, version, layout, buffers):
    """Sends a version to all receivers. layout is what they need to make room for the buffers, as
    JSON; buffers are sent from where they lie."""
    group.broadcast(json.dumps({"version": version, "layout": layout}).encode())
    group.broadcast(*buffers)
    # A broadcast that is done is at all receivers.
    group.broadcast(json.dumps({"swap": version}).encode())


# What the source sends behind the last version. A source that has died does not.
END = {"end": True}


class Follower:
    """The newest version at a receiver."""

    def __init__(self, group, room):
        """room(layout) makes the buffers for a layout."""
        self.version, self.layout, self.buffers = None, None, []
        self._group, self._room, self._spare = group, room, (None, [])

    def follow(self, timeout=None):
        """Waits for the next version, and uses it. False: the source has no more."""
        coming = json.loads(self._group.receive(timeout=timeout))
        if coming == END:
            return False
        layout, buffers = self._spare
        if layout != coming["layout"]:
            layout, buffers = coming["layout"], self._room(coming["layout"])
        self._group.receive(*buffers, timeout=timeout)
        swap = json.loads(self._group.receive(timeout=timeout))
        if swap != {"swap": coming["version"]}:
            raise ValueError(f"the source has sent {swap} behind version {coming['version']}")
        self._spare = (self.layout, self.buffers)
        self.version, self.layout, self.buffers = coming["version"], layout, buffers
        return True


def read(path):
    """The layout and the arrays of a file: a list of names, types and shapes, and the arrays."""
    if path.endswith(".pt"):
        import torch

        # As bytes, because numpy lacks types that torch has.
        state = torch.load(path, map_location="cpu", weights_only=True)
        arrays = {name: tensor.contiguous().reshape(-1).view(torch.uint8).numpy() for name, tensor in state.items()}
    else:
        import numpy

        arrays = {name: numpy.asarray(array, order="C") for name, array in numpy.load(path).items()}
    return [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()], list(arrays.values())


def room(layout):
    """Arrays for a layout."""
    import numpy

    return [numpy.empty(shape, type_) for _, type_, shape in layout]


def main():
    parser = argparse.ArgumentParser(description="bring each version of a model's weights to all hosts")
    parser.add_argument("what", choices=["send", "recv"])
    parser.add_argument("files", nargs="*", help="send: the versions, one after the other: .npz or .pt")
    parser.add_argument("--group", default="weights")
    parser.add_argument("--members", type=int, required=True, help="hosts, the source included")
    args = parser.parse_args()
    role = "source" if args.what == "send" else "receiver"
    with rocast.join(args.group, role=role, members=args.members) as group:
        if role == "source":
            for version, path in enumerate(args.files, 1):
                layout, arrays = read(path)
                began = time.monotonic()
                publish(group, version, layout, arrays)
                took, nbytes = time.monotonic() - began, sum(array.nbytes for array in arrays)
                print(f"version {version}: {len(arrays)} arrays, {nbytes} bytes in {took:.3f} s")
            group.broadcast(json.dumps(END).encode())
            return
        follower = Follower(group, room)
        while follower.follow():
            print(f"version {follower.version}: {len(follower.buffers)} arrays, {sum(array.nbytes for array in follower.buffers)} bytes")


if __name__ == "__main__":
    main()
