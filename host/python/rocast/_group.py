# SPDX-License-Identifier: Apache-2.0
"""A membership in a group."""

import asyncio
import ctypes
import itertools
import select
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

from . import _library, _pieces
from ._buffer import Pinned
from ._host import _milliseconds, _text

_SLICE = 0.1  # seconds after which a wait looks whether something is due
_IN_FLIGHT = 32  # pieces
_STAGED = 4  # packed pieces
_LIMIT = 1 << 30  # bytes for which receive() makes room


class Completion(NamedTuple):
    """What poll() and wait() return. kind is "done", "received", "immediate" or "failed", and
    number is what the call has returned that posted it."""

    kind: str
    number: int
    nbytes: int
    immediate: int


class About(NamedTuple):
    """What describe() returns."""

    group_ip: str
    group_qpn: int
    qpn: int
    members: int
    mtu: int
    region_bytes: tuple
    fallbacks: int
    returns: int


class Piece(NamedTuple):
    """What pieces() yields: bytes of a stream, of which the first one is at the offset. The stream
    ends with the last piece, which may have no bytes."""

    data: bytes
    offset: int
    last: bool


class Progress(NamedTuple):
    """What progress() returns: bytes since the group was joined. slowest is the IP of the receiver
    that holds the others up, and slowest_lacks the posted bytes that it has not acknowledged. slowest
    is None where all are as far, and where nobody can know: by the group the box makes one
    acknowledgement of those of all receivers."""

    posted: int
    completed: int
    received: int
    slowest: str | None
    slowest_lacks: int


_KINDS = {_library.DONE: "done", _library.RECEIVED: "received", _library.IMMEDIATE: "immediate", _library.FAILED: "failed"}


class Group:
    """A membership in a group. It is joined when the object exists, and left at the end of `with`.

    role is "source", "receiver" or "both". The group begins when so many members have come, this
    one included. regions are Memories that a source may write() to. patience is how many seconds
    the others may take to come. Without a completion for give_up seconds the group counts as
    broken, and the source goes on by single connections, unless fallback is False.

    Use either broadcast() and receive(), or stream() and pieces(), or the calls that post operations.
    """

    def __init__(self, host, name, *, role, members, regions=(), mtu=0, depth=128, patience=None, give_up=None, fallback=True):
        if role not in _library.ROLES:
            raise ValueError(f'role is {role!r}; it is one of "source", "receiver" and "both"')
        if depth < 2:
            raise ValueError(f"depth is {depth}; a group has at least 2, because a broadcast needs a receive besides those of its pieces")
        if len(regions) > _library.MAX_REGIONS:
            raise ValueError(f"there are {len(regions)} regions; a group has {_library.MAX_REGIONS} at most")
        wanted = _library.Membership(
            name=_text(name), role=_library.ROLES[role], members=_library.number(members),
            regions=(ctypes.c_void_p * max(1, len(regions)))(*[r.handle for r in regions]), region_count=len(regions),
            mtu=_library.number(mtu), send_depth=_library.number(depth), receive_depth=_library.number(depth),
            patience_ms=_milliseconds(patience), give_up_ms=_milliseconds(give_up), without_fallback=not fallback,
        )  # fmt: skip
        self.host, self.name, self.role = host, name, role
        self._regions, self._depth = tuple(regions), depth
        self._handle = None
        handle = ctypes.c_void_p()
        with host.lock:
            try:
                _library.check(_library.library().rocast_join(host._use(), wanted, handle))
                self._handle = handle
                host._groups.add(self)
            except BaseException:  # Ctrl-C may come when it is joined
                if handle:
                    host._groups.discard(self)
                    _library.library().rocast_leave(handle)
                raise
        self._next = 0
        self._inner = {}  # completions of broadcasts, by number; None: not complete yet
        self._ready = []  # completions for poll() and wait()
        self._stages = []  # rooms for packed pieces
        self._headers = None  # where headers arrive, and the number of the receive
        self._busy = None  # what is under way: a broadcast, a stream
        self._streams = False  # the group carries streams
        self._torn = None  # why broadcasts can go on no more
        self._left = []  # the buffers of a broadcast that was not finished

    # Operations

    def send(self, memory, offset=0, nbytes=None):
        """Posts a message that fills the oldest receive of each receiver. Returns its number."""
        return self._post("rocast_send", memory, offset, nbytes)

    def write(self, memory, offset=0, nbytes=None, *, region=0, at=0):
        """Posts a write into a region of each receiver, from its byte `at` on."""
        return self._post("rocast_write", memory, offset, nbytes, region, at)

    def write_immediate(self, memory, offset=0, nbytes=None, *, immediate, region=0, at=0):
        """As write(), and completes a receive of each receiver with the number `immediate`."""
        return self._post("rocast_write_immediate", memory, offset, nbytes, region, at, immediate)

    def post_receive(self, memory=None, offset=0, nbytes=None):
        """Posts a receive. Without memory it is for write_immediate()."""
        return self._post("rocast_receive", memory, offset, nbytes)

    def _post(self, function, memory, offset, nbytes, *rest, number=None):
        if nbytes is None:
            nbytes = memory.nbytes - offset if memory else 0
        if memory and not 0 <= offset <= offset + nbytes <= memory.nbytes:
            raise ValueError(f"{nbytes} bytes from {offset} on are not in a memory of {memory.nbytes} bytes")
        with self.host.lock:
            if number is None:
                number = self._number()
            handle, address = (memory.handle, memory.address + offset) if memory else (None, None)
            _library.check(getattr(_library.library(), function)(self._use(), handle, address, nbytes, *rest, number))
        return number

    def _number(self):
        self._next += 1
        return self._next

    def _use(self):
        if self._handle is None:
            raise ValueError(f"group {self.name} has been left")
        return self._handle

    # Completions

    def poll(self):
        """The completions that are there. It also does what is due, so call it about once a second
        where nothing else of this group is called."""
        return self._taken(0.0)

    def wait(self, timeout=None):
        """As poll(), but waits until there is one, or for so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
            taken = self._taken(max(0.0, left))
            if taken or left <= 0:
                return taken

    def _taken(self, timeout):
        self._pump(0.0 if self._ready else timeout)
        with self.host.lock:
            ready, self._ready = self._ready, []
            return ready

    def _pump(self, timeout):
        """Takes completions, and waits for one so many seconds. Returns their number. Other threads
        may use the host during the wait."""
        count = 0 if self._streams else self._take_completions()
        if count == 0 and timeout > 0:
            readable = select.poll()
            readable.register(self.fileno(), select.POLLIN)
            readable.poll(_milliseconds(timeout))
            count = 0 if self._streams else self._take_completions()
        return count

    def _take_completions(self):
        taken = (_library.CompletionStruct * 64)()
        with self.host.lock:
            count = _library.library().rocast_poll(self._use(), taken, len(taken))
            for one in taken[: _library.check(count)]:
                completion = Completion(_KINDS[one.kind], one.id, one.bytes, one.immediate)
                if one.id in self._inner:
                    self._inner[one.id] = completion
                else:
                    self._ready.append(completion)
                if one.kind == _library.FAILED:
                    self._torn = self._torn or _library.message()
        return count

    def fileno(self):
        """A descriptor for select and asyncio: call poll() when it is readable."""
        with self.host.lock:
            return _library.library().rocast_descriptor(self._use())

    # Broadcasts

    def broadcast(self, *buffers, timeout=None):
        """Sends buffers to all receivers, and returns when all of them have everything. The memory
        goes from where it lies. With role "both" whoever calls it becomes the source."""
        self._run(self._sending(buffers), timeout)

    def receive(self, *buffers, timeout=None, limit=_LIMIT):
        """Receives a broadcast into buffers of the same number and sizes. Without buffers it
        returns a bytearray with a broadcast of one buffer, which has `limit` bytes at most.
        ValueError: what the source has sent does not fit, or is more than the limit; that is left
        out, and the next call gets the next broadcast. MemoryError and DeviceError: there is no
        room for it, or too little may be pinned; then it is left out too.

        After any other exception in the middle of a broadcast, such as Timeout, the group is of no
        more use, and the buffers may still be written to until leave()."""
        return self._run(self._receiving(buffers, limit), timeout)

    async def abroadcast(self, *buffers):
        """broadcast() for asyncio. The task may not be cancelled and the group used afterwards."""
        await self._arun(self._sending(buffers))

    async def areceive(self, *buffers, limit=_LIMIT):
        """receive() for asyncio."""
        return await self._arun(self._receiving(buffers, limit))

    def _run(self, steps, timeout):
        end = None if timeout is None else time.monotonic() + timeout
        try:
            for result in steps:
                if result is not None:
                    return result[0]
                left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
                if left <= 0:
                    self._torn = f"{self._busy} of group {self.name} was given up after {timeout:g} s"
                    raise _library.Timeout(self._torn)
                self._pump(left)
        finally:
            steps.close()
        return None

    async def _arun(self, steps):
        """As _run(). All calls of the library are in threads, because each may take long: to pin
        memory, to fall back, or to wait for another thread that uses the host."""
        try:
            while True:
                result, descriptor = await _in_thread(lambda: self._advance(steps))
                if result is not None:
                    return result[0]
                if descriptor is not None:
                    await _readable(descriptor)
        except GeneratorExit:  # nobody runs the task any more; who drops the steps closes them
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._torn = f"{self._busy or 'a broadcast'} of group {self.name} was cancelled"
            try:
                await _in_thread(steps.close)
            finally:
                steps.close()  # a loop that ends has no threads any more
            raise

    def _advance(self, steps):
        """Steps for a while. Returns the result, if there is one, and the descriptor that says when
        there is more to do, unless there is now."""
        end = time.monotonic() + _SLICE
        while (result := next(steps)) is None:
            if self._pump(0.0) == 0:
                return None, self.fileno()
            if time.monotonic() > end:
                break
        return result, None

    # The steps of a broadcast are generators. They yield None when completions are needed to go on.

    def _complete(self, number):
        """Whether a message of a broadcast is complete. Raises Broken if it has failed."""
        completion = self._inner[number]
        if completion is None:
            return None
        del self._inner[number]
        if completion.kind == "failed":
            self._torn = self._torn or "a message did not get through"
            raise _library.Broken(self._torn)
        return completion

    def _begin(self, function, memory, offset, nbytes):
        """Posts a message of a broadcast, and returns its number."""
        with self.host.lock:
            number = self._number()
            self._inner[number] = None
            try:
                self._post(function, memory, offset, nbytes, number=number)
            except BaseException as error:
                del self._inner[number]
                if not isinstance(error, Exception):  # Ctrl-C may come when it is posted
                    self._torn = self._torn or f"a broadcast of group {self.name} was interrupted"
                raise
        return number

    def _finished(self, numbers, down_to):
        """Steps until so few messages are left. What is left is in numbers."""
        while len(numbers) > down_to:
            if self._complete(numbers[0]) is None:
                yield
            else:
                numbers.pop(0)

    def _sending(self, buffers):
        with _Turn(self, "a broadcast") as turn:
            memories = turn.uses(_Registered(self.host, buffers, writable=False))
            lengths = memories.lengths
            header = memories.add(bytearray(_pieces.Header.of(lengths).encode()))
            numbers, packed = [], 0
            turn.begun = True
            numbers.append(self._begin("rocast_send", header, 0, header.nbytes))
            for piece in _pieces.cut(lengths):
                yield from self._finished(numbers, min(_IN_FLIGHT, self._depth) - 1)
                if len(piece) == 1 and lengths[piece[0].buffer] >= _pieces.SMALL:
                    part = piece[0]
                    numbers.append(self._begin("rocast_send", memories[part.buffer], part.offset, part.nbytes))
                    continue
                stage = self._stage(packed)
                packed += 1
                if stage.number in numbers:
                    yield from self._finished(numbers, len(numbers) - 1 - numbers.index(stage.number))
                nbytes = stage.pack(memories, piece)
                stage.number = self._begin("rocast_send", stage.memory, 0, nbytes)
                numbers.append(stage.number)
            yield from self._finished(numbers, 0)
            turn.begun = False
        yield (None,)

    def _receiving(self, buffers, limit):
        with _Turn(self, "a broadcast") as turn:
            into = list(buffers)
            # Before the header is taken, so that a buffer that is refused costs no broadcast.
            memories = turn.uses(_Registered(self.host, into, writable=True))
            self._await_header()
            turn.begun = True
            header = yield from self._header()
            makes_room, refusal = not buffers and header.buffers == 1, None
            if makes_room:
                try:
                    into = [self._room(header, limit)]
                    memories = turn.uses(_Registered(self.host, into, writable=True, keep=False))
                except (ValueError, MemoryError, _library.Error) as error:
                    refusal = error
            fits = _pieces.Header.of(memories.lengths) == header
            yield from self._take(memories if fits else None, header)
            turn.begun = False
            if refusal:
                try:
                    raise refusal
                finally:
                    refusal = None  # the exception has this frame, which has the buffers
            if not fits:
                raise ValueError(
                    f"the source has sent {header.buffers} buffers with {header.nbytes} bytes, and here are "
                    f"{len(buffers)} with {sum(memories.lengths)}, or they have other sizes; it is left out"
                )
        yield (into[0] if makes_room else sum(memories.lengths),)

    def _room(self, header, limit):
        """A buffer for what comes, whose size the source has chosen."""
        if header.nbytes > limit:
            raise ValueError(f"the source has sent {header.nbytes} bytes, and limit= allows {limit}; it is left out")
        return bytearray(header.nbytes)

    def _header(self):
        memory, number = self._headers
        while (completion := self._complete(number)) is None:
            yield
        self._headers = (memory, None)
        data = ctypes.string_at(memory.address, min(completion.nbytes, memory.nbytes))
        try:
            return _pieces.Header.decode(data)
        except ValueError as error:
            self._torn = str(error)
            raise

    def _await_header(self):
        """Posts a receive for the next header, unless one is posted. There is room for a piece: a
        receiver that joins in the middle of a broadcast gets one, and a message without room would
        end the group for all."""
        if self._headers is None:
            self._headers = (self.host.register(bytearray(_pieces.PIECE)), None)
        memory, number = self._headers
        if number is None:
            self._headers = (memory, self._begin("rocast_receive", memory, 0, memory.nbytes))

    def _take(self, memories, header):
        """Receives the pieces, into memories or, if they do not fit, into nothing that is kept. The
        next header follows behind the last piece, so its receive is posted then."""
        pieces = _pieces.cut(memories.lengths) if memories else itertools.repeat(None, header.pieces)
        numbers, waiting, packed = [], {}, 0
        limit = min(_IN_FLIGHT, self._depth - 1)  # one more for the header
        for piece in pieces:
            yield from self._unpacked(memories, numbers, waiting, limit - 1)
            if piece and len(piece) == 1 and memories.lengths[piece[0].buffer] >= _pieces.SMALL:
                part = piece[0]
                number = self._begin("rocast_receive", memories[part.buffer], part.offset, part.nbytes)
                waiting[number] = (None, piece)
                numbers.append(number)
                continue
            stage = self._stage(packed)
            packed += 1
            if stage.number in numbers:
                yield from self._unpacked(memories, numbers, waiting, len(numbers) - 1 - numbers.index(stage.number))
            stage.number = self._begin("rocast_receive", stage.memory, 0, stage.memory.nbytes)
            waiting[stage.number] = (stage, piece)
            numbers.append(stage.number)
        self._await_header()
        yield from self._unpacked(memories, numbers, waiting, 0)

    def _stage(self, at):
        """The room for the next packed piece. Rooms are made when they are needed, and kept."""
        if at < _STAGED and at == len(self._stages):
            self._stages.append(_Stage(self.host.register(bytearray(_pieces.PIECE))))
        return self._stages[at % len(self._stages)]

    def _unpacked(self, memories, numbers, waiting, down_to):
        while len(numbers) > down_to:
            completion = self._complete(numbers[0])
            if completion is None:
                yield
                continue
            stage, piece = waiting.pop(numbers.pop(0))
            if not piece:
                continue
            wanted = sum(part.nbytes for part in piece)
            if completion.nbytes != wanted:
                self._torn = f"the source of group {self.name} has sent {completion.nbytes} bytes where a broadcast has {wanted}"
                raise ValueError(self._torn)
            if stage:
                stage.unpack(memories, piece)

    def set_rate(self, bytes_per_second: int) -> None:
        """How fast this member sends from now on; 0: as fast as it goes. A message begins when those
        before have had their time, so a large one of send() or write() is a burst."""
        with self.host.lock:
            _library.check(_library.library().rocast_set_rate(self._use(), bytes_per_second))

    # Streams

    def use_streams(self, window: int = 0) -> None:
        """From now on the group carries streams and nothing else. window is how many bytes are on
        their way at most, in pieces of 256 KiB, and so much memory is pinned; 0: 4 MiB. Without this
        call the first stream() or pieces() does it."""
        with self.host.lock:
            _library.check(_library.library().rocast_use_streams(self._use(), window))
            self._streams = True

    def stream(self, chunks: Iterable, *, timeout: float | None = None) -> None:
        """Sends one message of any size, and returns when all receivers have it. chunks yields its
        bytes in buffers of any sizes, which are copied: a file, or a generator. An exception of the
        iterator ends it, and the group with it, as does a timeout; receivers get no last piece."""
        self._run(self._streaming(chunks), timeout)

    def pieces(self, *, timeout: float | None = None) -> Iterator[Piece]:
        """Yields the pieces of the next stream. timeout is for each of them. A piece with offset 0
        behind another one begins a new stream: that of a source that has ended in the middle.
        Broken: the group has ended; without its last piece a stream was cut."""
        last = False
        while not last:
            piece = self._run(self._next_piece(), timeout)
            last = piece.last
            yield piece

    async def astream(self, chunks: Iterable) -> None:
        """stream() for asyncio; the iterator runs in threads."""
        await self._arun(self._streaming(chunks))

    async def apieces(self) -> AsyncIterator[Piece]:
        """pieces() for asyncio."""
        last = False
        while not last:
            piece = await self._arun(self._next_piece())
            last = piece.last
            yield piece

    def _streaming(self, chunks):
        with _Turn(self, "a stream") as turn:
            self._need_streams()
            for chunk in chunks:
                turn.begun = True
                yield from self._write(Pinned(chunk))
            turn.begun = True
            while not self._stream_has_ended():
                yield
            turn.begun = False
        yield (None,)

    def _write(self, pinned):
        try:
            at = 0
            while at < pinned.nbytes:
                with self.host.lock:
                    at += _library.check(_library.library().rocast_stream_write(self._use(), pinned.address + at, pinned.nbytes - at, 0))
                if at < pinned.nbytes:
                    yield
        finally:
            pinned.release()

    def _stream_has_ended(self):
        with self.host.lock:
            try:
                _library.check(_library.library().rocast_stream_end(self._use(), 0))
            except _library.Timeout:
                return False
        return True

    def _next_piece(self):
        with _Turn(self, "a stream"):
            self._need_streams()
            piece, found = _library.PieceStruct(), 0
            while not found:
                with self.host.lock:
                    found = _library.check(_library.library().rocast_stream_read(self._use(), piece, 0))
                    data = ctypes.string_at(piece.at, piece.bytes) if found else b""
                if not found:
                    yield
        yield (Piece(data, piece.offset, bool(piece.last)),)

    def _need_streams(self):
        if not self._streams:
            self.use_streams()

    # The group

    def become_source(self, timeout=30.0):
        """With role "both": waits until everything of the source before has arrived everywhere."""
        with self.host.lock:
            _library.check(_library.library().rocast_become_source(self._use(), _milliseconds(timeout)))

    @property
    def way(self):
        """How operations go: "multicast", by the group, or "unicast", by single connections."""
        with self.host.lock:
            return _library.WAYS[_library.library().rocast_way(self._use())]

    @property
    def acknowledged_by(self):
        """How many receivers have an operation that is done; 0: all."""
        with self.host.lock:
            return _library.library().rocast_acknowledged_by(self._use())

    def progress(self) -> Progress:
        """How far the group has come, for a bar; other threads may be in broadcast() or receive(). A
        message counts when all receivers have it as a whole. Headers and messages of send() count
        too, so for one broadcast take the difference to what was there before it."""
        seen = _library.ProgressStruct()
        with self.host.lock:
            _library.check(_library.library().rocast_progress(self._use(), seen))
        return Progress(seen.posted_bytes, seen.completed_bytes, seen.received_bytes, seen.slowest.decode() or None, seen.slowest_lacks)

    def describe(self):
        """The group's addresses and sizes, and how often its way has changed."""
        about = _library.AboutStruct()
        with self.host.lock:
            _library.library().rocast_describe(self._use(), about)
            group_ip = about.group_ip.decode()  # which leave() frees
        return About(
            group_ip, about.group_qpn, about.qpn, about.members, about.mtu,
            tuple(about.region_bytes[: len(self._regions) or _library.MAX_REGIONS]), about.fallbacks, about.returns,
        )  # fmt: skip

    def leave(self):
        """Ends this membership. What is posted and not complete may or may not arrive."""
        self._part("rocast_leave")

    def end(self):
        """Ends the group for all members."""
        self._part("rocast_end")

    def _part(self, function):
        with self.host.lock:
            if self._handle is None:
                return
            handle, self._handle = self._handle, None  # before: Ctrl-C may come when it is freed
            result = getattr(_library.library(), function)(handle)
            if result == -1 or result == -9:  # then it is not
                self._handle = handle
            else:
                self._gone()
            _library.check(result)

    def _gone(self):
        self._handle = None
        self.host._groups.discard(self)
        if self.host.handle is not None:  # else the host unregisters everything
            for memories in self._left:
                memories.close()
            for memory in [stage.memory for stage in self._stages] + ([self._headers[0]] if self._headers else []):
                memory.unregister()
        self._headers, self._stages, self._left = None, [], []

    def _abandon(self, memories):
        """Keeps buffers that the device may still write into, until the group is left."""
        with self.host.lock:
            if self._handle is not None:
                self._left.append(memories)
            elif self.host.handle is not None:
                memories.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        try:
            self.leave()
        except _library.Forked:
            pass  # it is the parent's


async def _in_thread(function):
    """What the function returns, which runs in a thread. A task that is cancelled goes on only when
    the function has returned: nothing else may use the steps meanwhile."""
    running = asyncio.get_running_loop().run_in_executor(None, function)
    cancelled = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        running.exception()  # it is seen
        raise cancelled
    return running.result()


async def _readable(descriptor):
    """Waits until a descriptor is readable, or until it is time to see whether something is due."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await asyncio.wait_for(readable.wait(), _SLICE)
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)


class _Turn:
    """A broadcast or a stream of a group, of which there is one at a time. One that ends when it has begun and
    is not finished is the last: what follows would be taken for a part of it."""

    def __init__(self, group, what):
        self.group, self.what, self.memories, self.begun = group, what, [], False

    def uses(self, memories):
        self.memories.append(memories)
        return memories

    def __enter__(self):
        group = self.group
        with group.host.lock:
            if group._torn:
                raise _library.Broken(group._torn)
            if group._streams and self.what != "a stream":
                raise ValueError(f"group {group.name} carries streams; call stream() and pieces()")
            if group._busy:
                raise ValueError(f"{group._busy} of group {group.name} is under way already")
            group._busy = self.what
            group.host._broadcast_begins()
        return self

    def __exit__(self, *exception):
        group = self.group
        if self.begun:
            group._torn = group._torn or f"{self.what} of group {group.name} was not finished"
        group._busy = None
        for memories in self.memories:
            if self.begun:
                group._abandon(memories)
            else:
                memories.close()


class _Stage:
    """Memory through which packed pieces go."""

    def __init__(self, memory):
        self.memory, self.number = memory, None

    def pack(self, memories, piece):
        at = 0
        for part in piece:
            ctypes.memmove(self.memory.address + at, memories.address(part.buffer) + part.offset, part.nbytes)
            at += part.nbytes
        return at

    def unpack(self, memories, piece):
        at = 0
        for part in piece:
            ctypes.memmove(memories.address(part.buffer) + part.offset, self.memory.address + at, part.nbytes)
            at += part.nbytes


class _Registered:
    """The buffers of a broadcast. Small ones are pinned alone, because their bytes are copied."""

    def __init__(self, host, buffers, writable, keep=True):
        self.host, self.lengths, self._things, self._own = host, [], [], []
        try:
            for buffer in buffers:
                pinned = Pinned(buffer, writable)
                self.lengths.append(pinned.nbytes)
                if pinned.nbytes < _pieces.SMALL:
                    self._things.append(pinned)
                    continue
                pinned.release()
                self._things.append(host._acquire(buffer, writable) if keep else self.add(buffer))
        except BaseException:
            self.close()
            raise

    def __getitem__(self, number):
        return self._things[number]

    def address(self, number):
        return self._things[number].address

    def add(self, buffer):
        """Registers memory for this broadcast alone."""
        memory = self.host.register(buffer)
        self._own.append(memory)
        return memory

    def close(self):
        for thing in self._things:
            if isinstance(thing, Pinned):
                thing.release()
            elif thing not in self._own:
                self.host._release(thing)
        for memory in self._own:
            memory.unregister()
        self._own, self._things = [], []
