# SPDX-License-Identifier: Apache-2.0
"""How a broadcast is cut into messages. The source and its receivers cut alike.

A broadcast is one header and then pieces. A large buffer is cut into pieces that go from its own
memory and into that of the receivers. Small buffers that follow each other are packed into one
piece, which is copied at both ends: a state dict with thousands of small tensors is a few messages.
"""

import struct
import zlib
from typing import NamedTuple

PIECE = 1 << 20  # bytes of a piece, at most
SMALL = 32 << 10  # a buffer of fewer bytes is packed

_HEADER = struct.Struct("<8sQQII")
_MAGIC = b"rocast\x00\x01"
HEADER_BYTES = _HEADER.size


class Part(NamedTuple):
    """Bytes of one buffer."""

    buffer: int
    offset: int
    nbytes: int


def cut(lengths):
    """Yields the pieces of buffers of these lengths, in order: a list of Parts for each. A piece
    with one Part of a buffer that is not small goes without a copy."""
    packed, total = [], 0
    for number, length in enumerate(lengths):
        if length >= SMALL:
            if packed:
                yield packed
                packed, total = [], 0
            for offset in range(0, length, PIECE):
                yield [Part(number, offset, min(PIECE, length - offset))]
            continue
        if total + length > PIECE:
            yield packed
            packed, total = [], 0
        if length:
            packed.append(Part(number, 0, length))
            total += length
    if packed:
        yield packed


class Header(NamedTuple):
    """What the source says before the pieces."""

    nbytes: int  # of all buffers
    pieces: int
    buffers: int
    shape: int  # CRC-32 of the lengths

    @classmethod
    def of(cls, lengths):
        """The header of buffers of these lengths."""
        text = b"".join(length.to_bytes(8, "little") for length in lengths)
        return cls(sum(lengths), sum(1 for _ in cut(lengths)), len(lengths), zlib.crc32(text))

    def encode(self):
        """The bytes on the wire."""
        return _HEADER.pack(_MAGIC, *self)

    @classmethod
    def decode(cls, data):
        """Raises ValueError if this is no header."""
        if len(data) != HEADER_BYTES or data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("the source did not send by broadcast(), or by another version of it")
        return cls(*_HEADER.unpack(data)[1:])
