# SPDX-License-Identifier: Apache-2.0
"""Members of groups by the package rocast: member.py BOX ROLE NAME MEMBERS.

The source waits for a line of its standard input before each step. Every member prints a line of
JSON after each step, with the SHA-256 of what it has sent or received. The last step is in a
second group, which carries a stream.
"""

import asyncio
import hashlib
import json
import random
import sys

import rocast

MIB = 1 << 20
SIZES = [[3 * MIB + 5], [100] * 300 + [MIB, 7], [2 * MIB + 1]]  # of the buffers of each broadcast
STREAM = 5 * MIB + 3  # more than the library keeps of a stream
CHUNK = 100_003


def say(event, buffers):
    """Prints what has happened."""
    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    print(json.dumps({"event": event, "hash": digest.hexdigest()}), flush=True)


def go(source):
    """Waits until the next step may begin."""
    if source and not sys.stdin.readline():
        sys.exit("the input has ended")


def broadcasts(group, source):
    """Broadcasts into bytearrays: one, many small ones, and one that asyncio sends and receives."""
    for step, sizes in enumerate(SIZES):
        fill = random.Random(step).randbytes if source else bytes
        buffers = [bytearray(fill(size)) for size in sizes]
        go(source)
        if step < len(SIZES) - 1:
            (group.broadcast if source else group.receive)(*buffers)
        elif source:
            asyncio.run(group.abroadcast(*buffers))
        else:
            buffers = [asyncio.run(group.areceive())]
        say("broadcast", buffers)


def stream(group, source):
    """A stream that no member holds as a whole."""
    if source:
        data = random.Random(9).randbytes(STREAM)
        go(source)
        group.stream(data[at : at + CHUNK] for at in range(0, STREAM, CHUNK))
        say("stream", [data])
    else:
        say("stream", [bytes(piece.data) for piece in group.pieces()])


def main():
    """Joins both groups, one after the other."""
    box, role, name, members = sys.argv[1:]
    for suffix, steps in ("", broadcasts), ("-stream", stream):
        with rocast.join(name + suffix, role=role, members=int(members), box=box, patience=60) as group:
            say("joined", [])
            steps(group, role == "source")
            about = group.describe()
        say(f"left after {about.fallbacks} fallbacks", [])


main()
