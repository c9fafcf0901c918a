#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weights brings each version of a model's weights from one host to all others: docs/host.md.

    ROCAST_BOX=10.77.0.254:7472 ./weights.py send --members 4 model.npz     # on one host
    ROCAST_BOX=10.77.0.254:7472 ./weights.py recv --members 4               # on three others

The source says the name, the type and the shape of each array, so receivers make the state dict by
themselves: with arrays of numpy, or, where the source has a file of torch (model.pt), with tensors.
A receiver without torch has arrays of numpy then.

A receiver holds two versions: the one in use, and the one that comes. It swaps them when the source
says that all receivers have the new one, so no two of them use versions that lie further apart than
one.
"""

import argparse
import json
import re
import time

import rocast

MESSAGE_LIMIT = 64 << 20  # bytes of what describes a version


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

    def __init__(self, group, room=None):
        """room(layout) makes the state dict for a layout."""
        self.version, self.layout, self.state = None, None, {}
        self._group, self._room, self._spare = group, room or make_room, (None, {})

    def follow(self, timeout=None):
        """Waits for the next version, and uses it. False: the source has no more."""
        coming = self._message(timeout)
        if coming == END:
            return False
        layout, state = self._spare
        if layout != coming["layout"]:
            layout, state = coming["layout"], self._room(coming["layout"])
        self._group.receive(*map(memory, state.values()), timeout=timeout)
        swap = self._message(timeout)
        if swap != {"swap": coming["version"]}:
            raise ValueError(f"the source has sent {swap} behind version {coming['version']}")
        self._spare = (self.layout, self.state)
        self.version, self.layout, self.state = coming["version"], layout, state
        return True

    def _message(self, timeout):
        return json.loads(self._group.receive(timeout=timeout, limit=MESSAGE_LIMIT))


def read(path):
    """The layout and the buffers of a file: a list of names, types and shapes, and the memory of the
    arrays. Types are those of numpy ("<f4") and of torch ("torch.bfloat16")."""
    if path.endswith(".pt"):
        import torch

        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, tensor in state.items():
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{name} of {path} is no tensor but a {type(tensor).__name__}; save a state dict alone")
        state = {name: tensor.detach().contiguous() for name, tensor in state.items()}
        kinds = [str(tensor.dtype) for tensor in state.values()]
    else:
        import numpy

        state = {name: numpy.asarray(array, order="C") for name, array in numpy.load(path).items()}
        kinds = [array.dtype.str for array in state.values()]
    layout = [[name, kind, list(array.shape)] for (name, array), kind in zip(state.items(), kinds, strict=True)]
    return layout, [memory(array) for array in state.values()]


def make_room(layout):
    """A state dict for a layout: tensors where the source has tensors and torch is here, and arrays
    of numpy elsewhere."""
    return {name: _empty(kind, shape) for name, kind, shape in layout}


def _empty(kind, shape):
    import numpy

    if not kind.startswith("torch."):
        return numpy.empty(shape, kind)
    name = kind.removeprefix("torch.")
    try:
        import torch
    except ImportError:
        return numpy.empty(shape, _numpy_type(name))
    type_ = getattr(torch, name, None)
    if not isinstance(type_, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no type {name}; install the version that the source has")
    return torch.empty(shape, dtype=type_)


def _numpy_type(name):
    """numpy's type for one of torch. Those that numpy lacks, such as bfloat16, are so many bytes."""
    import numpy

    bits = re.fullmatch(r"[a-z]+(\d+)(_\w+)?", name)
    try:
        return numpy.dtype(name)
    except TypeError:
        if not bits or int(bits[1]) % 8:
            raise ValueError(f"numpy has nothing for the type {name} of torch; install torch") from None
        return numpy.dtype(f"V{int(bits[1]) // 8}")


def memory(array):
    """What group.broadcast() and group.receive() take: of a tensor its bytes, because numpy lacks
    types that torch has."""
    if not hasattr(array, "numpy"):
        return array
    import torch

    return array.reshape(-1).view(torch.uint8).numpy()


def nbytes(buffers):
    """The bytes of all of them."""
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="bring each version of a model's weights to all hosts")
    parser.add_argument("what", choices=["send", "recv"])
    parser.add_argument("files", nargs="*", help="send: the versions, one after the other: .npz or .pt")
    parser.add_argument("--group", default="weights")
    parser.add_argument("--members", type=int, required=True, help="hosts, the source included")
    args = parser.parse_intermixed_args(arguments)
    role = "source" if args.what == "send" else "receiver"
    with rocast.join(args.group, role=role, members=args.members) as group:
        if role == "source":
            for version, path in enumerate(args.files, 1):
                layout, buffers = read(path)
                began = time.monotonic()
                publish(group, version, layout, buffers)
                print(f"version {version}: {len(buffers)} arrays, {nbytes(buffers)} bytes in {time.monotonic() - began:.3f} s")
            group.broadcast(json.dumps(END).encode())
            return
        follower = Follower(group)
        while follower.follow():
            print(f"version {follower.version}: {len(follower.state)} arrays, {nbytes(map(memory, follower.state.values()))} bytes")


if __name__ == "__main__":
    main()
