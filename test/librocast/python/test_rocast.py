"""Tests of the package rocast, with librocast over a device that exists only in this process.

test/librocast/python_test.go makes that library, plays the box and runs this file.
"""

import array
import asyncio
import concurrent.futures
import contextlib
import ctypes
import errno
import gc
import importlib.util
import io
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest
import warnings
import weakref
from unittest import mock

import rocast
from rocast import _host, _library, _pieces
from rocast._buffer import Pinned

_new_host = _library.library().new_host
_new_host.restype, _new_host.argtypes = ctypes.c_void_p, [ctypes.c_char_p]

# groups/device.h
_registrations = _library.library().registrations
_registrations.restype, _registrations.argtypes = ctypes.c_uint, []
_refuse_registrations = _library.library().refuse_registrations
_refuse_registrations.restype, _refuse_registrations.argtypes = None, [ctypes.c_int]

TIME = 20.0  # seconds that nothing here takes


class Own(bytearray):
    """Memory of which a test can see that it is gone."""


def host(number):
    return rocast.Host._of(ctypes.c_void_p(_new_host(f"127.0.0.{number}".encode())))


def pattern(nbytes, seed=1):
    return bytearray(random.Random(seed).randbytes(nbytes))


def noting(events, name, function):
    """The function, which notes its calls too."""

    def noted(*arguments):
        events.append(name)
        return function(*arguments)

    return noted


@contextlib.contextmanager
def refused_registrations(error):
    _refuse_registrations(error)
    try:
        yield
    finally:
        _refuse_registrations(0)


@contextlib.contextmanager
def read_only_file(data):
    """A file that is mapped to be read."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Members:
    """Members of one group, each in a thread of its own while something runs."""

    def __init__(self, name, count=2, **more):
        self.hosts = [host(number + 1) for number in range(count)]
        self.groups = self.each(lambda n: self.hosts[n].join(name, role="both", members=count, fallback=False, **more))

    def each(self, run):
        """Runs run(number) for all members side by side, and returns what each has returned, or the
        exception."""
        results = [None] * len(self.hosts)

        def one(number):
            try:
                results[number] = run(number)
            except Exception as error:  # the test asks for it
                results[number] = error

        threads = [threading.Thread(target=one, args=(n,)) for n in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def broadcast(self, sent, received):
        """The first one sends, the others receive into received(number)."""
        return self.each(lambda n: self.groups[n].receive(*received(n), timeout=TIME) if n else self.groups[0].broadcast(*sent, timeout=TIME))

    def __enter__(self):
        for group in self.groups:
            if isinstance(group, Exception):
                raise group
        return self

    def __exit__(self, *exception):
        for one in self.hosts:
            one.close()


class Broadcasts(unittest.TestCase):
    def test_sizes(self):
        sizes = [0, 1, _pieces.SMALL - 1, _pieces.SMALL, _pieces.PIECE - 1, _pieces.PIECE, _pieces.PIECE + 1, 40 * _pieces.PIECE + 7]
        with Members("g6", 3) as members:
            for size in sizes:
                sent = pattern(size, size)
                received = [None, bytearray(size), bytearray(size)]
                self.assertEqual(members.broadcast([sent], lambda n, r=received: [r[n]]), [None, size, size])
                self.assertEqual(received[1:], [sent, sent], size)

    def test_buffers_of_all_kinds(self):
        sizes = [3, _pieces.PIECE + 5, 0, 17, _pieces.SMALL, 1] + [100] * 30_000 + [2 * _pieces.PIECE]
        sent = [pattern(size, number) for number, size in enumerate(sizes)]
        received = [bytearray(size) for size in sizes]
        with Members("g1") as members:
            self.assertEqual(members.broadcast(sent, lambda n: received), [None, sum(sizes)])
            self.assertEqual(received, sent)
            sent = [b"read only", array.array("d", range(10_000)), memoryview(pattern(50_000))[10_000:]]
            received = [bytearray(9), array.array("d", bytes(80_000)), memoryview(bytearray(40_000))]
            members.broadcast(sent, lambda n: received)
            self.assertEqual(received, [bytearray(b"read only"), sent[1], sent[2]])

    def test_more_packed_pieces_than_rooms_for_them(self):
        sizes = [_pieces.SMALL - 1] * (12 * _pieces.PIECE // _pieces.SMALL)
        sent = [pattern(size, number) for number, size in enumerate(sizes)]
        received = [bytearray(size) for size in sizes]

        def late():
            time.sleep(0.3)  # meanwhile the source packs as much as it may
            return members.groups[1].receive(*received, timeout=TIME)

        with Members("g1") as members:
            self.assertEqual(members.each(lambda n: late() if n else members.groups[0].broadcast(*sent, timeout=TIME)), [None, sum(sizes)])
        self.assertEqual(received, sent)

    def test_a_room_is_packed_again_when_its_piece_has_arrived(self):
        sent = [bytearray(_pieces.SMALL - 1)] * (10 * _pieces.PIECE // _pieces.SMALL)
        with Members("g1") as members:
            source, receiver = members.groups
            into = members.hosts[1].register(bytearray(_pieces.PIECE))
            steps = source._sending(sent)
            for arrived in range(6):  # the header, and then pieces
                for _ in range(5):
                    self.assertIsNone(next(steps))
                    source._pump(0.0)
                self.assertEqual(source._next, max(5, 4 + arrived))
                receiver.post_receive(into)
            steps.close()

    def test_a_broadcast_that_does_not_get_through(self):
        let_groups_work = _library.library().let_groups_work
        let_groups_work.argtypes = [ctypes.c_bool]
        with Members("g1", give_up=0.2) as members:
            let_groups_work(False)
            try:
                for _ in range(2):
                    with self.assertRaises(rocast.Broken):
                        members.groups[0].broadcast(bytearray(5), timeout=TIME)
            finally:
                let_groups_work(True)

    def test_a_receiver_without_a_buffer(self):
        with Members("g1") as members:
            for size in (0, 5, _pieces.PIECE * 3):
                sent = pattern(size)
                self.assertEqual(members.broadcast([sent], lambda n: []), [None, sent])

    def test_a_limit(self):
        with Members("g1") as members:
            source, receiver = members.groups
            for size, limit, into in ((5, 4, []), (5, 5, []), (2 * _pieces.PIECE, 9, []), (5, 0, [bytearray(5)])):
                sent = pattern(size)
                got = members.each(lambda n, i=into, m=limit: receiver.receive(*i, timeout=TIME, limit=m) if n else source.broadcast(sent, timeout=TIME))[1]
                if size > limit and not into:
                    self.assertIsInstance(got, ValueError)
                    self.assertEqual(str(got), f"the source has sent {size} bytes, and limit= allows {limit}; it is left out")
                else:
                    self.assertEqual(into or [got], [sent] if not into else into)
            # What the header says is not believed.
            header = members.hosts[0].register(_pieces.Header(1 << 62, 1, 1, 0).encode(), writable=False)

            def send():
                for memory in (header, members.hosts[0].register(bytearray(1))):
                    source.send(memory)

            got = members.each(lambda n: receiver.receive(timeout=TIME) if n else send())[1]
            self.assertRegex(str(got), "^the source has sent 4611686018427387904 bytes, and limit= allows 1073741824; it is left out$")
            self.assertEqual(members.broadcast([b"more"], lambda n: [])[1], b"more")

    def test_no_room_for_what_comes(self):
        size = 2 * _pieces.PIECE
        with Members("g1") as members:
            one = members.hosts[1]
            register = one.register

            def refuse(buffer, *more):
                if len(buffer) == size:
                    raise rocast.DeviceError("too little may be pinned")
                return register(buffer, *more)

            with mock.patch.object(one, "register", refuse):
                self.assertIsInstance(members.broadcast([bytearray(size)], lambda n: [])[1], rocast.DeviceError)
            with mock.patch.object(members.groups[1], "_room", side_effect=MemoryError):
                self.assertIsInstance(members.broadcast([bytearray(size)], lambda n: [])[1], MemoryError)
            self.assertEqual(members.broadcast([b"more"], lambda n: [])[1], b"more")

    def test_other_sizes_are_left_out(self):
        with Members("g1") as members:
            for wrong in ([bytearray(4)], [bytearray(3), bytearray(2 * _pieces.PIECE)], [], [bytearray(2 * _pieces.PIECE + 3)] * 2):
                sent = [pattern(3), pattern(2 * _pieces.PIECE + 1)]
                got = members.broadcast(sent, lambda n, w=wrong: w)[1]
                self.assertIsInstance(got, ValueError, wrong)
                self.assertIn("the source has sent 2 buffers with 2097156 bytes", str(got))
                received = [bytearray(3), bytearray(2 * _pieces.PIECE + 1)]
                members.broadcast(sent, lambda n, r=received: r)
                self.assertEqual(received, sent)

    def test_swapped_sizes_are_left_out(self):
        with Members("g1") as members:
            sent, into = [pattern(3), pattern(5)], [bytearray(5), bytearray(3)]
            self.assertIsInstance(members.broadcast(sent, lambda n: into)[1], ValueError)
            self.assertEqual(into, [bytearray(5), bytearray(3)])

    def test_the_source_changes(self):
        with Members("g6", 3) as members:
            for turn in range(6):
                source, sent = turn % 3, pattern(3 * _pieces.PIECE, turn)
                got = members.each(lambda n: members.groups[n].broadcast(sent, timeout=TIME) if n == source else members.groups[n].receive(timeout=TIME))
                self.assertEqual([bytearray() if n == source else sent for n in range(3)], [g or bytearray() for g in got])

    def test_a_time_bound(self):
        with Members("g1") as members:
            with self.assertRaisesRegex(rocast.Timeout, "was given up after 0.1 s"):
                members.groups[1].receive(bytearray(5), timeout=0.1)
            with self.assertRaisesRegex(rocast.Broken, "was given up"):
                members.groups[1].receive(bytearray(5))

    def test_something_else_than_a_broadcast(self):
        """The piece is what a receiver gets that joins in the middle of a broadcast."""
        for nbytes in (_pieces.HEADER_BYTES, _pieces.PIECE):
            with Members("g1") as members:
                memory = members.hosts[0].register(pattern(nbytes))
                got = members.each(lambda n: members.groups[1].receive(timeout=TIME) if n else members.groups[0].send(memory))
                self.assertIsInstance(got[1], ValueError)
                self.assertIn("did not send by broadcast()", str(got[1]))
                with self.assertRaisesRegex(rocast.Broken, "did not send by broadcast()"):
                    members.groups[1].receive()

    def test_pieces_of_other_sizes(self):
        """What has not arrived is not taken for the source's."""
        for nbytes, sizes in ((2 * _pieces.SMALL, [2 * _pieces.SMALL]), (100, [60, 40])):
            with Members("g1") as members:

                def send(nbytes=nbytes, sizes=sizes, members=members):
                    for data in (_pieces.Header.of(sizes).encode(), bytes(nbytes - 1)):
                        members.groups[0].send(members.hosts[0].register(data, writable=False))

                into = [bytearray(size) for size in sizes]
                got = members.each(lambda n, i=into: members.groups[1].receive(*i, timeout=TIME) if n else send())
                self.assertIsInstance(got[1], ValueError)
                self.assertIn(f"has sent {nbytes - 1} bytes where a broadcast has {nbytes}", str(got[1]))
                with self.assertRaises(rocast.Broken):
                    members.groups[1].receive(*into)

    def test_a_number_of_pieces_that_no_memory_has_room_for(self):
        with Members("g1") as members:
            memory = members.hosts[0].register(_pieces.Header(1, 0xFFFFFFFF, 2, 0).encode(), writable=False)
            got = members.each(lambda n: members.groups[1].receive(timeout=0.5) if n else members.groups[0].send(memory))
            self.assertIsInstance(got[1], rocast.Timeout)

    def test_a_buffer_that_is_refused_costs_no_broadcast(self):
        sent, received = pattern(5), bytearray(5)
        with Members("g1") as members:

            def receive():
                for refused, error in ((b"read only", BufferError), (5, TypeError)):
                    with self.assertRaises(error):
                        members.groups[1].receive(refused, timeout=TIME)
                return members.groups[1].receive(received, timeout=TIME)

            self.assertEqual(members.each(lambda n: receive() if n else members.groups[0].broadcast(sent, timeout=TIME)), [None, 5])
            self.assertEqual(received, sent)
            with self.assertRaises(TypeError):
                members.groups[0].broadcast(sent, 5)
            members.broadcast([sent], lambda n: [received])

    def test_one_broadcast_at_a_time(self):
        async def twice(group):
            first = asyncio.ensure_future(group.areceive())
            await asyncio.sleep(0)
            try:
                with self.assertRaisesRegex(ValueError, "a broadcast of group g1 is under way already"):
                    await group.areceive()
            finally:
                first.cancel()

        with Members("g1") as members:
            asyncio.run(twice(members.groups[1]))

    def test_a_broadcast_that_is_interrupted_is_the_last(self):
        for n, start in ((0, lambda group: group.broadcast(bytearray(9))), (1, lambda group: group.receive())):
            with Members("g1") as members:
                group = members.groups[n]
                with mock.patch.object(group, "_pump", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                    start(group)
                with self.assertRaisesRegex(rocast.Broken, "a broadcast of group g1 was not finished"):
                    start(group)

    def test_a_depth_of_two(self):
        with Members("g1", depth=2) as members:
            sent, received = pattern(5 * _pieces.PIECE), bytearray(5 * _pieces.PIECE)
            self.assertEqual(members.broadcast([sent], lambda n: [received]), [None, len(sent)])
            self.assertEqual(received, sent)
            for depth in (0, 1):
                with self.assertRaisesRegex(ValueError, "at least 2"):
                    members.hosts[0].join("g2", role="both", members=2, depth=depth)



class Streams(unittest.TestCase):
    STEP = 1 << 18  # ROCAST_PIECE_BYTES

    def joined(self, pieces):
        """The bytes of a stream, whose pieces follow each other."""
        data = bytearray()
        for piece in pieces:
            self.assertEqual(piece.offset, len(data))
            self.assertLessEqual(len(piece.data), self.STEP)
            self.assertFalse(last := piece.last and piece is not pieces[-1], last)
            data += piece.data
        self.assertTrue(pieces[-1].last)
        return data

    def test_sizes(self):
        with Members("g6", 3) as members:
            members.each(lambda n: members.groups[n].use_streams(2 * self.STEP))
            for size in (0, 1, self.STEP - 1, self.STEP, self.STEP + 1, 2 * self.STEP, 9 * self.STEP + 7):
                sent = pattern(size, size)
                chunks = [sent[: size // 3], b"", memoryview(sent)[size // 3 :]]
                before = members.groups[0].progress().completed
                got = members.each(lambda n, c=chunks: list(members.groups[n].pieces(timeout=TIME)) if n else members.groups[0].stream(c, timeout=TIME))
                self.assertIsNone(got[0])
                self.assertEqual([self.joined(one) for one in got[1:]], [sent, sent], size)
                self.assertEqual(members.groups[0].progress().completed - before, size)

    def test_buffers_of_all_kinds(self):
        with Members("g1") as members:
            source, receiver = members.groups
            chunks = (chunk for chunk in (b"read only", array.array("d", [1.5]), bytearray(3)))
            got = members.each(lambda n: list(receiver.pieces(timeout=TIME)) if n else source.stream(chunks, timeout=TIME))
            self.assertEqual(got, [None, [rocast.Piece(b"read only" + struct.pack("d", 1.5) + bytes(3), 0, True)]])
            self.assertRaises(TypeError, source.stream, b"ab")  # its elements are numbers

    def test_asyncio(self):
        async def read(group):
            return [piece async for piece in group.apieces()]

        async def both(members):
            return await asyncio.gather(read(members.groups[1]), members.groups[0].astream([sent]))

        sent = pattern(20 * self.STEP + 1)
        with Members("g1") as members:
            for _ in range(2):
                got = asyncio.run(asyncio.wait_for(both(members), TIME))
                self.assertEqual(self.joined(got[0]), sent)

    def test_a_source_that_fails_in_the_middle(self):
        read = threading.Event()

        def chunks():
            yield bytes(self.STEP + 1)
            self.assertTrue(read.wait(TIME))
            raise OSError("the disk is gone")

        def receive(group):
            pieces = []
            try:
                for piece in group.pieces(timeout=TIME):
                    pieces.append((len(piece.data), piece.last))
                    read.set()
            except rocast.Broken as error:
                return pieces, str(error)

        def send(group):
            try:
                group.stream(chunks())
            except OSError:
                with self.assertRaisesRegex(rocast.Broken, "a stream of group g7 was not finished"):
                    group.stream([b"more"])
                group.end()

        with Members("g7") as members:
            got = members.each(lambda n: receive(members.groups[1]) if n else send(members.groups[0]))
            self.assertEqual(got, [None, ([(self.STEP, False)], "127.0.0.1 has ended group g7")])

    def test_an_iterator_that_fails_before_its_first_buffer(self):
        def none():
            raise OSError("no such file")
            yield

        with Members("g1") as members:
            self.assertRaises(OSError, members.groups[0].stream, none())
            got = members.each(lambda n: list(members.groups[1].pieces(timeout=TIME)) if n else members.groups[0].stream([b"more"], timeout=TIME))
            self.assertEqual(got, [None, [(b"more", 0, True)]])

    def test_a_time_bound(self):
        with Members("g1") as members:
            source, receiver = members.groups
            with self.assertRaisesRegex(rocast.Timeout, "a stream of group g1 was given up after 0.1 s"):
                next(receiver.pieces(timeout=0.1))
            with self.assertRaisesRegex(rocast.Timeout, "a stream of group g1 was given up after 0.1 s"):
                source.stream([bytes(40 * self.STEP)], timeout=0.1)

    def test_streams_and_nothing_else(self):
        with Members("g1", depth=4) as members:
            source, receiver = members.groups
            for wrong in (self.STEP - 1, -1):
                with self.assertRaises((rocast.ArgumentError, ctypes.ArgumentError)):
                    source.use_streams(wrong)
            source.use_streams()
            receiver.use_streams()
            with self.assertRaisesRegex(rocast.ArgumentError, "carries streams already"):
                source.use_streams()
            for call in (source.broadcast, receiver.receive):
                with self.assertRaisesRegex(ValueError, r"group g1 carries streams; call stream\(\) and pieces\(\)"):
                    call(bytearray(1))
            with self.assertRaisesRegex(rocast.ArgumentError, "carries streams; call rocast_stream_write"):
                source.send(members.hosts[0].register(bytearray(1)))
            self.assertEqual(source.poll(), [])
            with self.assertRaisesRegex(ValueError, "a stream of group g1 is under way already"):
                source.stream(source.stream([b""]) or b"" for _ in range(1))
            source.leave()
            with self.assertRaisesRegex(ValueError, "has been left"):
                source.use_streams()


class Asyncio(unittest.TestCase):
    def run_both(self, members, sent, received, executor=None):
        async def both():
            if executor:
                asyncio.get_running_loop().set_default_executor(executor)
            steps = members.groups[1].areceive(*received), members.groups[0].abroadcast(sent)
            return await asyncio.gather(*steps, return_exceptions=True)  # one may fail, and the other goes on

        got = asyncio.run(asyncio.wait_for(both(), TIME))
        for one in got:
            if isinstance(one, Exception):
                raise one
        return got

    def test_a_broadcast(self):
        sent, received = pattern(5 * _pieces.PIECE), bytearray(5 * _pieces.PIECE)
        with Members("g1") as members:
            self.assertEqual(self.run_both(members, sent, [received]), [len(sent), None])
            self.assertEqual(received, sent)
            self.assertEqual(self.run_both(members, sent, []), [sent, None])

    def test_one_thread_is_enough(self):
        """A receiver that waits for its source has none."""
        with Members("g1") as members:
            self.assertEqual(self.run_both(members, b"sent", [], concurrent.futures.ThreadPoolExecutor(1)), [b"sent", None])

    def test_the_library_is_called_in_threads(self):
        library, events = _library.library(), []
        names = [name for name in _library._FUNCTIONS if name not in ("rocast_message", "rocast_version")]

        def noting_thread(name):
            function = getattr(library, name)

            def noted(*arguments):
                events.append((name, threading.current_thread() is threading.main_thread()))
                return function(*arguments)

            return noted

        with Members("g1") as members:
            with mock.patch.multiple(library, **{name: noting_thread(name) for name in names}):
                for size in (5, 2 * _pieces.PIECE):
                    self.run_both(members, pattern(size), [])
                with self.assertRaises(ValueError):
                    self.run_both(members, b"other", [bytearray(6)])
                for one in members.hosts:
                    self.run_both(members, b"last", [bytearray(4)])
            self.assertEqual([name for name, by_loop in events if by_loop], [])
            seen = {name for name, _ in events}
            self.assertLessEqual({"rocast_register", "rocast_unregister", "rocast_send", "rocast_receive", "rocast_poll", "rocast_descriptor"}, seen)

    def test_the_loop_runs_while_memory_is_pinned(self):
        library, began, ran = _library.library(), threading.Event(), threading.Event()
        register = library.rocast_register

        def slow(*arguments):
            began.set()
            self.assertTrue(ran.wait(TIME))
            return register(*arguments)

        async def other():
            while not began.is_set():
                await asyncio.sleep(0.001)
            ran.set()

        async def both(members):
            return await asyncio.gather(members.groups[1].areceive(), members.groups[0].abroadcast(b"sent"), other())

        with Members("g1") as members, mock.patch.object(library, "rocast_register", slow):
            self.assertEqual(asyncio.run(asyncio.wait_for(both(members), TIME))[0], b"sent")

    def cancel(self, group, start, when, more=0):
        """Cancels a task when `when` says so, and so many times more."""

        async def run():
            task = asyncio.ensure_future(start())
            while not when():
                await asyncio.sleep(0.001)
            task.cancel()
            for _ in range(more):
                await asyncio.sleep(0.001)
                task.cancel()
            await task

        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(run())
        self.assertFalse(group._busy)
        with self.assertRaisesRegex(rocast.Broken, "a broadcast of group g1 was cancelled"):
            group.broadcast(b"")

    def test_a_cancelled_task(self):
        """The device may still write into its buffer, until the group is left."""
        buffer = bytearray(_pieces.PIECE)
        with Members("g1") as members:
            group = members.groups[1]
            self.cancel(group, lambda: group.areceive(buffer), lambda: group._headers and group._headers[1])
            self.assertEqual(len(group._left), 1)
            members.hosts[1].forget()
            with self.assertRaises(BufferError):
                buffer.append(1)
            group.leave()
            members.hosts[1].forget()
            buffer.append(1)

    def test_a_task_that_is_cancelled_while_a_thread_works(self):
        """Its steps end before anything else uses them."""
        library, began, go_on = _library.library(), threading.Event(), threading.Event()
        receive = library.rocast_receive

        def slow(*arguments):
            began.set()
            self.assertTrue(go_on.wait(TIME))
            return receive(*arguments)

        for more in (0, 2):
            began.clear()
            go_on.clear()
            with Members("g1") as members, mock.patch.object(library, "rocast_receive", slow):
                group = members.groups[1]
                later = threading.Timer(0.05, go_on.set)  # the task has been cancelled, or will be: both are right
                later.start()
                self.cancel(group, lambda g=group: g.areceive(bytearray(_pieces.PIECE)), began.is_set, more)
                self.assertEqual(len(group._left), 1)
                later.join()

    def test_a_task_that_nobody_runs_any_more(self):
        with Members("g1") as members:
            group = members.groups[1]
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)  # of what was awaited
            coroutine = group.areceive(bytearray(_pieces.PIECE))
            task = loop.create_task(coroutine)
            while not (group._headers and group._headers[1]):
                loop.run_until_complete(asyncio.sleep(0.001))
            loop.run_until_complete(loop.shutdown_default_executor())
            task._log_destroy_pending = False
            coroutine.close()
            self.assertFalse(group._busy)
            self.assertEqual(len(group._left), 1)
            del task
            loop.close()

    def test_a_task_whose_loop_has_no_threads_any_more(self):
        with Members("g1") as members:
            group = members.groups[1]
            loop = asyncio.new_event_loop()
            task = loop.create_task(group.areceive(bytearray(_pieces.PIECE)))
            while not (group._headers and group._headers[1]):
                loop.run_until_complete(asyncio.sleep(0.001))
            loop.run_until_complete(loop.shutdown_default_executor())
            with self.assertRaisesRegex(RuntimeError, "shutdown"):
                loop.run_until_complete(task)
            self.assertFalse(group._busy)
            self.assertEqual(len(group._left), 1)
            loop.close()

    def test_a_failure(self):
        with Members("g1") as members:
            with mock.patch.object(members.groups[1], "_pump", side_effect=rocast.Broken("cut")), self.assertRaisesRegex(rocast.Broken, "cut"):
                asyncio.run(members.groups[1].areceive(bytearray(_pieces.PIECE)))
            self.assertFalse(members.groups[1]._busy)
            self.assertEqual(len(members.groups[1]._left), 1)


class Registrations(unittest.TestCase):
    def test_a_buffer_is_registered_once(self):
        sent, received = pattern(_pieces.PIECE), bytearray(_pieces.PIECE)
        with Members("g1") as members:
            for _ in range(3):
                members.broadcast([sent], lambda n: [received])
            self.assertEqual([len(one._kept) for one in members.hosts], [1, 1])
            with self.assertRaises(BufferError):
                sent.append(1)  # it is pinned
            for one in members.hosts:
                one.forget()
            sent.append(1)

    def test_buffers_that_are_used_no_more_are_given_back(self):
        with Members("g1") as members:
            first = Own(_pieces.PIECE)
            seen = weakref.ref(first)
            members.broadcast([first], lambda n: [])
            del first
            gc.collect()
            self.assertIsNotNone(seen())
            for _ in range(_host.KEPT + 1):
                members.broadcast([bytearray(_pieces.PIECE)], lambda n: [])
            gc.collect()
            self.assertIsNone(seen())
            self.assertLessEqual(len(members.hosts[0]._kept), _host.KEPT + 1)
            self.assertEqual(len(members.hosts[1]._kept), 0)  # what receive() makes is the program's

    def test_what_a_broadcast_uses_stays(self):
        one, two = host(1), host(2)
        memory = one._acquire(bytearray(9), True)
        for _ in range(2 * _host.KEPT):
            one._broadcast_begins()
        self.assertIsNotNone(memory.handle)
        one._release(memory)
        one._broadcast_begins()
        self.assertIsNone(memory.handle)
        one.close()
        two.close()

    def test_memory_stays_while_it_is_registered(self):
        one = host(1)
        memory = Own(9)
        seen = weakref.ref(memory)
        one.register(memory)
        del memory, one  # a program that forgets both
        gc.collect()
        self.assertIsNotNone(seen())
        _host._close_all()
        self.assertEqual(_host._open, set())
        gc.collect()
        self.assertIsNone(seen())

    def test_memory_of_a_closed_host(self):
        one = host(1)
        memory = one.register(bytearray(9))
        weak = weakref.ref(gone := one.register(bytearray(9)))
        gone.unregister()
        del gone
        self.assertIsNone(weak())
        one.close()
        memory.unregister()
        self.assertIsNone(memory.handle)
        with Members("g1") as members:
            members.hosts[0].close()
            with self.assertRaisesRegex(ValueError, "group g1 has been left"):
                members.groups[0].poll()
        for run in (lambda: one.register(bytearray(9)), lambda: one.join("g1", role="both", members=2)):
            with self.assertRaisesRegex(ValueError, "the host has been closed"):
                run()

    def test_memory_is_given_back_after_the_group_is_left(self):
        """Before that the device may write into it."""

        def stop(members, n):
            group, buffers = members.groups[n], [bytearray(_pieces.PIECE)]
            if n == 1:  # the receiver gets the header, and posts receives for the pieces
                header = members.hosts[0].register(_pieces.Header.of([_pieces.PIECE]).encode(), writable=False)
                members.groups[0].send(header)
            try:
                (group.receive if n else group.broadcast)(*buffers, timeout=0.3)
            except rocast.Timeout as raised:
                return buffers, raised  # which keeps what its frames have
            self.fail("it is complete")

        for n in (0, 1):
            for end in ("rocast_leave", "rocast_close"):
                with Members("g1") as members:
                    events = []
                    library = _library.library()
                    with mock.patch.multiple(library, **{name: noting(events, name, getattr(library, name)) for name in (end, "rocast_unregister")}):
                        with mock.patch.object(Pinned, "release", noting(events, "release", Pinned.release)):
                            buffers, _raised = stop(members, n)
                            before = len(events)
                            members.hosts[n].forget()
                            with self.assertRaises(BufferError):
                                buffers[0].append(1)
                            self.assertEqual(len(events), before)
                            members.hosts[n].close() if end == "rocast_close" else members.groups[n].leave()
                        self.assertEqual(events[before], end, events)
                        self.assertIn("release", events[before:])
                        members.hosts[n].forget()
                        for buffer in buffers:
                            buffer.append(1)

    def test_read_only_memory_is_sent_from(self):
        data = bytes(pattern(_pieces.PIECE + 9))
        with Members("g1") as members, read_only_file(data) as mapped:
            for sent in (mapped, data, memoryview(data), memoryview(bytearray(data)).toreadonly()):
                received = bytearray(len(data))
                self.assertEqual(members.broadcast([sent, b"small"], lambda n, r=received: [r, bytearray(5)]), [None, len(data) + 5])
                self.assertEqual(received, data)
            memory = members.hosts[0].register(mapped, writable=False)
            with self.assertRaisesRegex(rocast.ArgumentError, "registered only to send from; receive into other memory"):
                members.groups[0].post_receive(memory)
            # Where the device or its kernel does not take it, the sentence says what to do.
            fresh = bytes(pattern(_pieces.PIECE))
            with refused_registrations(errno.EFAULT), self.assertRaisesRegex(rocast.DeviceError, "read-only; send from a copy"):
                members.groups[0].broadcast(fresh)
            self.assertEqual(members.broadcast([fresh], lambda n: [])[1], fresh)
            for one in members.hosts:
                one.close()

    def test_read_only_memory_is_not_received_into(self):
        library, events = _library.library(), []
        data = bytes(pattern(_pieces.PIECE))
        with Members("g1") as members, read_only_file(data) as mapped:
            names = ("rocast_receive", "rocast_register", "rocast_register_to_send")
            with mock.patch.multiple(library, **{name: noting(events, name, getattr(library, name)) for name in names}):
                for into, kind in ((mapped, "mmap"), (data, "bytes"), (b"", "bytes"), (memoryview(bytearray(data)).toreadonly(), "memoryview")):
                    for run in (lambda i: members.groups[1].receive(i, timeout=TIME), members.hosts[1].register):
                        with self.assertRaisesRegex(BufferError, f"the memory of {kind} is read-only, and what arrives is written into it: give a bytearray or a copy"):
                            run(into)
            self.assertEqual(events, [])
            self.assertEqual(members.broadcast([data], lambda n: [])[1], data)

    def test_a_buffer_of_both_directions_is_registered_once(self):
        buffer, other = pattern(_pieces.PIECE), bytearray(_pieces.PIECE)
        with Members("g1") as members:
            for source in (0, 1, 0):
                got = members.each(lambda n: members.groups[n].broadcast(buffer, timeout=TIME) if n == source else members.groups[n].receive(other, timeout=TIME))
                self.assertEqual(sorted(map(str, got)), [str(len(buffer)), "None"])
                self.assertEqual(other, buffer)
                self.assertEqual([len(one._kept) for one in members.hosts], [1, 1] if source == 0 and len(members.hosts[0]._kept) == 1 else [2, 2])
            one = members.hosts[0]
            one.forget()
            to_send = one._acquire(buffer, False)
            writable = one._acquire(buffer, True)  # the other one is in use
            self.assertIsNot(to_send, writable)
            self.assertIs(one._acquire(buffer, False), writable)
            for memory in (to_send, writable, writable):
                one._release(memory)
            one.forget()
            one._release(one._acquire(buffer, False))
            self.assertIsNot(memory := one._acquire(buffer, True), to_send)
            self.assertEqual(list(one._kept.values()), [memory])
            one._release(memory)

    def test_more_than_may_be_pinned(self):
        """The program hears the number that it needs."""

        def without_capability(number):
            header, data = struct.pack("Ii", 0x20080522, 0), (ctypes.c_uint32 * 6)()
            libc = ctypes.CDLL(None)
            self.assertEqual(libc.capget(header, data), 0)
            data[0] &= ~(1 << 14)  # CAP_IPC_LOCK, of this thread
            self.assertEqual(libc.capset(header, data), 0)
            members.groups[0].broadcast(buffer)

        soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        with Members("g1") as members, mmap.mmap(-1, 3 << 20) as buffer, refused_registrations(errno.ENOMEM):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, hard))
            try:
                with mock.patch.object(members, "hosts", members.hosts[:1]):
                    error = members.each(without_capability)[0]
            finally:
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
            self.assertIsInstance(error, rocast.DeviceError)
            self.assertEqual(
                str(error),
                "3145728 bytes cannot be registered: this program would have 3072 KiB pinned, and may have 1024; "
                "write ulimit -l 3072 before it, or LimitMEMLOCK=3072K into its unit",
            )

    def test_memory_of_another_device(self):
        with Members("g1") as members:
            source, receiver = members.groups
            fd = os.memfd_create("gpu")
            os.pwrite(fd, b"hello, world", mmap.PAGESIZE)
            gpu = rocast.Memory.from_dmabuf(members.hosts[0], fd, mmap.PAGESIZE, 12)
            self.assertEqual((gpu.address, gpu.nbytes), (mmap.PAGESIZE, 12))
            into = members.hosts[1].register(bytearray(5))
            number = receiver.post_receive(into)
            source.send(gpu, 7)
            self.assertEqual(receiver.wait(TIME), [("received", number, 5, 0)])
            self.assertEqual(ctypes.string_at(into.address, 5), b"world")
            gpu.unregister()
            for error in (errno.EOPNOTSUPP, errno.ENOSYS):
                with refused_registrations(error), self.assertRaisesRegex(rocast.DeviceError, "this device takes no memory of other devices"):
                    rocast.Memory.from_dmabuf(members.hosts[0], fd, 0, 12)
            os.close(fd)

    def test_an_array_with_gaps(self):
        with self.assertRaises(BufferError):
            Pinned(memoryview(bytearray(10))[::2])
        with self.assertRaises(BufferError):
            Pinned(b"read only", writable=True)
        with self.assertRaisesRegex(TypeError, "int has no buffer"):
            Pinned(5)
        with self.assertRaisesRegex(BufferError, "references to Python objects"):
            Pinned((ctypes.py_object * 2)())

        class Record(ctypes.Structure):
            _fields_ = [("O", ctypes.c_int)]

        Pinned((Record * 2)()).release()

    def test_a_tensor(self):
        class Tensor:
            def __init__(self):
                self.memory = bytearray(b"tensor")

            def numpy(self):
                return self.memory

        tensor = Tensor()
        pinned = Pinned(tensor, writable=True)
        ctypes.memmove(pinned.address, b"TENSOR", 6)
        pinned.release()
        self.assertEqual(tensor.memory, b"TENSOR")

    def test_memory_is_let_go_once(self):
        memory = bytearray(5)
        first, second = Pinned(memory), Pinned(memory)
        for _ in range(3):
            first.release()
        del first
        with self.assertRaises(BufferError):
            memory.append(1)  # the other one has it
        second.release()
        memory.append(1)
        del second
        gone = Pinned(memory)
        del gone
        memory.append(1)

    def test_a_broadcast_that_outlives_its_group(self):
        """Its buffers are given back at once, because the device writes no more."""
        for end in (lambda members: members.groups[1].leave(), lambda members: members.hosts[1].close()):
            buffer = bytearray(_pieces.PIECE)
            with Members("g1") as members:
                group = members.groups[1]
                steps = group._receiving([buffer], 0)
                self.assertIsNone(next(steps))
                end(members)
                steps.close()
                self.assertEqual(group._left, [])
                members.hosts[1].forget()
                buffer.append(1)


class CtrlC(unittest.TestCase):
    def test_while_it_waits(self):
        """When the group and the host are left, no memory is registered that the device may write
        to, and none was let go before."""
        before = _registrations()
        for n, start in ((1, lambda group, buffer: group.receive(buffer)), (0, lambda group, buffer: group.broadcast(buffer)), (1, lambda group, buffer: group.wait())):
            events, library, buffer = [], _library.library(), Own(2 * _pieces.PIECE)
            weak = weakref.ref(buffer)
            with Members("g1") as members:
                group = members.groups[n]
                if n:
                    into = members.hosts[n].register(bytearray(8))
                    group.post_receive(into)

                def sleep(*_):
                    signal.raise_signal(signal.SIGINT)

                names = {name: noting(events, name, getattr(library, name)) for name in ("rocast_leave", "rocast_unregister")}
                with mock.patch.multiple(library, **names), mock.patch.object(Pinned, "release", noting(events, "release", Pinned.release)):
                    with mock.patch.object(select, "poll", sleep), self.assertRaises(KeyboardInterrupt), group:
                        start(group, buffer)
                self.assertEqual([name for name in events[: events.index("rocast_leave")] if name == "rocast_unregister"], [], events)
                self.assertIsNone(group._handle)
                members.hosts[n].close()
                del buffer
                gc.collect()
                self.assertIsNone(weak())
            self.assertEqual(_registrations(), before)

    def test_behind_a_call(self):
        """What the call has done is not done twice, and is not left undone."""
        library, before = _library.library(), _registrations()

        def interrupted(name):
            function = getattr(library, name)

            def then_interrupted(*arguments):
                function(*arguments)
                raise KeyboardInterrupt

            return mock.patch.object(library, name, then_interrupted)

        one = host(1)
        buffer = bytearray(9)
        with interrupted("rocast_register"), self.assertRaises(KeyboardInterrupt):
            one.register(buffer)
        buffer.append(1)
        self.assertEqual(_registrations(), before)
        memory = one.register(buffer)
        with interrupted("rocast_unregister"), self.assertRaises(KeyboardInterrupt):
            memory.unregister()
        memory.unregister()
        self.assertEqual(_registrations(), before)
        one.close()
        buffer.append(1)

        for name, run in (("rocast_send", lambda group: group.broadcast(b"")), ("rocast_receive", lambda group: group.receive())):
            with Members("g1") as members, interrupted(name), self.assertRaises(KeyboardInterrupt):
                run(members.groups[0])
            self.assertIn("a broadcast of group g1 was", members.groups[0]._torn)
        with Members("g1") as members:
            group = members.groups[0]
            with interrupted("rocast_leave"), self.assertRaises(KeyboardInterrupt):
                group.leave()
            group.leave()
            with interrupted("rocast_join"), self.assertRaises(KeyboardInterrupt):
                members.hosts[0].join("g2", role="both", members=2)
            members.hosts[0].join("g2", role="both", members=2).leave()
        self.assertEqual(_registrations(), before)

    def test_an_event_loop(self):
        before, buffer = _registrations(), bytearray(_pieces.PIECE)
        with Members("g1") as members:
            group = members.groups[1]

            async def receive():
                task = asyncio.ensure_future(group.areceive(buffer))
                while not (group._headers and group._headers[1]):
                    await asyncio.sleep(0.001)
                signal.raise_signal(signal.SIGINT)
                await task

            with self.assertRaises(KeyboardInterrupt), group:
                asyncio.run(receive())
            members.hosts[1].forget()
            buffer.append(1)
        self.assertEqual(_registrations(), before)


class Alone(unittest.TestCase):
    """rocast.join()"""

    def pair(self, name, roles):
        hosts = [host(1), host(2)]

        def join(n):
            with mock.patch.object(rocast, "Host", lambda *_, **__: hosts[n]):
                return rocast.join(name, role=roles[n], members=2, fallback=False)

        return hosts, [join(n) for n in range(2)]

    def test_a_group_is_left_with_its_host(self):
        hosts, (first, second) = self.pair("g1", ("both", "both"))
        with first:
            pass
        self.assertIsNone(hosts[0].handle)
        first.leave()
        with mock.patch.object(rocast.Group, "leave", side_effect=rocast.Error("no")), self.assertRaisesRegex(rocast.Error, "no"):
            second.leave()
        self.assertIsNone(hosts[1].handle)

    def test_a_group_is_ended_with_its_host(self):
        hosts, (source, receiver) = self.pair("g1", ("source", "receiver"))
        with self.assertRaisesRegex(rocast.ArgumentError, "receive"):
            receiver.end()
        self.assertIsNotNone(hosts[1].handle)  # it may go on
        self.assertEqual(receiver.poll(), [])
        with mock.patch.object(_library.library(), "rocast_end", lambda handle: _library.library().rocast_leave(handle) or -5), self.assertRaises(rocast.Refused):
            source.end()  # the box refuses, and the group is left
        self.assertIsNone(hosts[0].handle)
        receiver.leave()
        self.assertIsNone(hosts[1].handle)
        hosts, (source, receiver) = self.pair(f"ended{os.getpid()}", ("source", "receiver"))
        source.end()
        self.assertIsNone(hosts[0].handle)
        source.end()
        receiver.leave()

    def test_a_group_that_is_refused(self):
        one = host(1)
        with mock.patch.object(rocast, "Host", lambda *_, **__: one), self.assertRaises(rocast.Refused):
            rocast.join("secret", role="receiver", members=2)
        self.assertIsNone(one.handle)


class Calls(unittest.TestCase):
    def test_messages(self):
        with Members("g1") as members:
            source, receiver = members.groups
            into = members.hosts[1].register(bytearray(8))
            first = receiver.post_receive(into, 2, 5)
            number = source.send(members.hosts[0].register(b"hello, world", writable=False), 7)
            self.assertEqual(source.wait(TIME), [("done", number, 0, 0)])
            self.assertEqual(receiver.wait(TIME), [("received", first, 5, 0)])
            self.assertEqual(bytes(ctypes.string_at(into.address, 8)), b"\0\0world\0")
            self.assertEqual(receiver.poll(), [])
            self.assertEqual(receiver.wait(0.01), [])
            self.assertEqual((source.way, source.acknowledged_by), ("multicast", 0))
            self.assertEqual(source.describe()[:4], ("127.0.0.100", source.describe().group_qpn, source.describe().qpn, 2))
            self.assertGreater(receiver.fileno(), 2)

    def test_progress(self):
        with Members("g1") as members:
            source, receiver = members.groups
            self.assertEqual(source.progress(), rocast.Progress(posted=0, completed=0, received=0, slowest=None, slowest_lacks=0))
            sent = pattern(3 * _pieces.PIECE)
            members.broadcast([sent], lambda n: [])
            everything = len(sent) + _pieces.HEADER_BYTES
            self.assertEqual(source.progress(), (everything, everything, 0, None, 0))
            self.assertEqual(receiver.progress(), (0, 0, everything, None, 0))
            source.send(members.hosts[0].register(bytearray(5)))
            self.assertEqual(source.progress()[:2], (everything + 5, everything))
            receiver.leave()
            with self.assertRaisesRegex(ValueError, "has been left"):
                receiver.progress()

    def test_progress_where_a_receiver_lags(self):
        def lag(_, seen):
            seen.slowest, seen.slowest_lacks = b"127.0.0.2", 7
            return 0

        with Members("g1") as members, mock.patch.object(_library.library(), "rocast_progress", lag):
            self.assertEqual(members.groups[0].progress()[3:], ("127.0.0.2", 7))

    def test_a_rate(self):
        """Neither a lock nor the interpreter is held meanwhile."""

        def run(send, receive):
            with Members("g1") as members:
                source, receiver = members.groups
                source.set_rate(1)
                sending = threading.Thread(target=members.each, args=(lambda n: receive(receiver) if n else send(source),))
                sending.start()
                while source.progress().completed == 0:  # the header goes at once
                    time.sleep(0.001)
                self.assertEqual(source.progress().completed, _pieces.HEADER_BYTES)
                source.set_rate(0)
                sending.join()
                self.assertEqual(source.progress().completed, len(sent) + _pieces.HEADER_BYTES)

        sent = bytes(3 * _pieces.PIECE)
        run(lambda group: group.broadcast(sent, timeout=TIME), lambda group: group.receive(timeout=TIME))
        run(lambda group: asyncio.run(group.abroadcast(sent)), lambda group: asyncio.run(group.areceive()))

    def test_what_is_no_rate(self):
        with Members("g1") as members:
            for wrong in (-1, 1 << 64, 1.5):
                with self.assertRaises(ctypes.ArgumentError):
                    members.groups[0].set_rate(wrong)

    def test_the_descriptor_tells_when_it_is_time(self):
        with Members("g1") as members:
            source, receiver = members.groups
            into, sent = (one.register(bytearray(5)) for one in reversed(members.hosts))
            source.set_rate(100)
            for _ in range(2):
                receiver.post_receive(into)
            numbers = [source.send(sent) for _ in range(2)]
            while numbers:
                for done in source.wait(TIME):
                    self.assertEqual((done.kind, done.number), ("done", numbers.pop(0)))

    def test_completions_that_are_there_are_not_waited_for(self):
        with Members("g1") as members:
            source, receiver = members.groups
            first = receiver.post_receive(members.hosts[1].register(bytearray(5)))
            source.send(members.hosts[0].register(b"hello", writable=False))
            while receiver._pump(TIME) == 0:  # as a broadcast does
                pass
            with mock.patch.object(select, "poll", side_effect=AssertionError("it waits")):
                self.assertEqual(receiver.wait(TIME), [("received", first, 5, 0)])
            self.assertEqual(receiver.poll(), [])

    def test_a_thread_that_waits_holds_no_others_up(self):
        with Members("g1") as members:
            receiver = members.groups[1]
            into = members.hosts[1].register(bytearray(8))
            receiver.post_receive(into)
            waiting = threading.Thread(target=receiver.wait, args=(TIME,))
            waiting.start()
            began = time.monotonic()
            for _ in range(300):
                time.sleep(0.001)  # the thread comes to its wait
                self.assertEqual(receiver.way, "multicast")
            self.assertLess(time.monotonic() - began, 15)
            members.groups[0].send(members.hosts[0].register(bytearray(8)))
            waiting.join()

    def test_a_child_of_the_process(self):
        with Members("g1") as members:
            group = members.groups[0]
            held = threading.Event()
            done = threading.Event()

            def hold():
                with group.host.lock:
                    held.set()
                    done.wait(TIME)

            thread = threading.Thread(target=hold)
            thread.start()
            held.wait(TIME)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                signal.alarm(10)
                code = 1
                try:
                    for _ in range(2):
                        with group, self.assertRaises(rocast.Forked):
                            group.poll()
                    _host._close_all()
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            done.set()
            thread.join()
            members.groups[0].poll()

    def test_errors_have_the_sentence_of_the_library(self):
        with Members("g1", depth=4) as members:
            memory = members.hosts[0].register(bytearray(8))
            for _ in range(4):
                members.groups[0].send(memory)
            with self.assertRaisesRegex(rocast.QueueFull, "4 operations of group g1 are not complete"):
                members.groups[0].send(memory)
            with self.assertRaisesRegex(rocast.ArgumentError, "this program is in group g1 already"):
                members.hosts[0].join("g1", role="both", members=2, fallback=False)
            with self.assertRaisesRegex(ValueError, "5 bytes from 4 on are not in a memory of 8 bytes"):
                members.groups[0].send(memory, 4, 5)
            with self.assertRaisesRegex(ValueError, "2 bytes from -1 on are not in a memory of 8 bytes"):
                members.groups[0].send(memory, -1, 2)
            with self.assertRaisesRegex(ValueError, "role is 'sender'"):
                members.hosts[0].join("g2", role="sender", members=2)
            members.groups[0].leave()
            members.groups[0].leave()
            with self.assertRaisesRegex(ValueError, "group g1 has been left"):
                members.groups[0].poll()
        with self.assertRaises(rocast.Refused), host(1) as one:
            one.join("secret", role="receiver", members=2)

    def test_a_receiver_cannot_end_a_group(self):
        hosts, groups = [host(1), host(2)], [None, None]

        def join(n):
            groups[n] = hosts[n].join("g1", role=("source", "receiver")[n], members=2, fallback=False)

        other = threading.Thread(target=join, args=(0,))
        other.start()
        join(1)
        other.join()
        with self.assertRaisesRegex(rocast.ArgumentError, "receive"):
            groups[1].end()
        self.assertEqual(groups[1].poll(), [])
        for one in hosts:
            one.close()

    def test_what_does_not_fit_into_c(self):
        with Members("g1") as members:
            memory = members.hosts[0].register(bytearray(8))
            for wrong in ({"immediate": 1 << 32}, {"immediate": -1}, {"immediate": 1, "at": -1}, {"immediate": 1, "region": 1 << 32}):
                with self.assertRaisesRegex(ctypes.ArgumentError, "is not a number from 0 to"):
                    members.groups[0].write_immediate(memory, **wrong)
            for wrong in ({"members": -1}, {"members": 1 << 32}, {"members": 2, "mtu": -1}):
                with self.assertRaisesRegex(ValueError, "is not a number from 0 to"):
                    members.hosts[0].join("g2", role="both", **wrong)
            with self.assertRaisesRegex(ValueError, "has a NUL"):
                members.hosts[0].join("g2\0x", role="both", members=2)

    def test_no_box(self):
        with self.assertRaisesRegex(rocast.Error, "nonsense"):
            rocast.join("g1", role="source", members=2, box="nonsense")

    def test_what_a_host_is_told(self):
        library, heard = _library.library(), []

        def hear(_, value):
            heard.append(value)
            return 0

        names = ("rocast_set_secret", "rocast_set_policy", "rocast_set_traffic_class")
        opened = mock.patch.object(library, "rocast_open", lambda settings, handle: heard.append((settings.box, settings.patience_ms)) or 0)
        with opened, mock.patch.multiple(library, rocast_close=lambda handle: None, **dict.fromkeys(names, hear)):
            rocast.Host("box", patience=1e9, secret="s", policy="p", traffic_class=8).close()
        self.assertEqual(heard, [(b"box", 0xFFFFFFFF), b"s", b"p", 8])

    def test_the_version(self):
        self.assertEqual(rocast.library_version(), "unknown")


class Weights(unittest.TestCase):
    """examples/weights"""

    @classmethod
    def setUpClass(cls):
        path = os.path.join(os.path.dirname(__file__), "../../../examples/weights/weights.py")
        spec = importlib.util.spec_from_file_location("weights", path)
        cls.weights = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.weights)

    def needs(self, *modules):
        for module in modules:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # those are the module's
                    importlib.import_module(module)
            except ImportError as error:
                self.skipTest(f"{error}; apt install python3-{module}")

    def test_receivers_swap_when_all_have_a_version(self):
        layouts = [[3, 2 * _pieces.PIECE], [3, 2 * _pieces.PIECE], [3, 2 * _pieces.PIECE], [7]]

        def room(layout):
            return {str(number): bytearray(size) for number, size in enumerate(layout)}

        with Members("g6", 3) as members:
            followers = [self.weights.Follower(group, room) for group in members.groups]
            used = []
            for version, layout in enumerate(layouts, 1):
                sent = [pattern(size, version) for size in layout]
                got = members.each(
                    lambda n: followers[n].follow(TIME) if n else self.weights.publish(members.groups[0], version, layout, sent)
                )
                self.assertEqual(got, [None, True, True])
                for follower in followers[1:]:
                    self.assertEqual((follower.version, follower.layout, list(follower.state.values())), (version, layout, sent))
                used.append(id(followers[1].state["0"]))
            end = json.dumps(self.weights.END).encode()
            self.assertEqual(members.each(lambda n: followers[n].follow(TIME) if n else members.groups[0].broadcast(end)), [None, False, False])
            self.assertEqual(used[0], used[2])  # two rooms, in turn
            self.assertEqual(len(set(used)), 3)

    def bring(self, path):
        """The source brings a file to a receiver. Returns the receiver's state dict."""
        with Members("g1") as members:
            follower = self.weights.Follower(members.groups[1])
            layout, buffers = self.weights.read(path)
            got = members.each(lambda n: follower.follow(TIME) if n else self.weights.publish(members.groups[0], 1, layout, buffers))
            self.assertEqual(got, [None, True])
            return follower.state

    def test_files_of_numpy(self):
        self.needs("numpy")
        import numpy

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "model.npz")
            arrays = {"a": numpy.arange(12.0).reshape(3, 4).T, "b": numpy.array(5, dtype="int8"), "c": numpy.zeros((0, 3)), "d": numpy.array([1, 2], dtype=">u2")}
            numpy.savez(path, **arrays)
            state = self.bring(path)
            self.assertEqual(list(state), list(arrays))
            for name, want in arrays.items():
                numpy.testing.assert_array_equal(state[name], want, strict=True)
            numpy.savez(path, a=numpy.array([1, None]))
            with self.assertRaises(ValueError):
                self.weights.read(path)
            with self.assertRaisesRegex(BufferError, "references to Python objects"):
                Pinned(self.weights.make_room([["a", "|O", [2]]])["a"], writable=True)

    def test_tensors_at_a_receiver_with_numpy_alone(self):
        self.needs("numpy")
        import numpy

        kinds = {"float32": "<f4", "float16": "<f2", "int64": "<i8", "uint8": "|u1", "bool": "|b1", "complex64": "<c8", "bfloat16": "|V2", "float8_e4m3fn": "|V1"}
        layout = [[kind, f"torch.{kind}", [3, 2]] for kind in kinds] + [["single", "torch.float64", []], ["none", "torch.int8", [0, 3]]]
        sent = [pattern(6 * numpy.dtype(kind).itemsize) for kind in kinds.values()] + [struct.pack("<d", 2.5), b""]
        with Members("g1") as members, mock.patch.dict(sys.modules, {"torch": None}):
            follower = self.weights.Follower(members.groups[1])
            got = members.each(lambda n: follower.follow(TIME) if n else self.weights.publish(members.groups[0], 1, layout, sent))
            self.assertEqual(got, [None, True])
            for kind, wanted in kinds.items():
                self.assertEqual((follower.state[kind].dtype.str, follower.state[kind].shape), (wanted, (3, 2)))
            self.assertEqual([array.tobytes() for array in follower.state.values()], list(map(bytes, sent)))
            self.assertEqual((follower.state["single"].shape, follower.state["single"][()], follower.state["none"].shape), ((), 2.5, (0, 3)))
            for name in ("float33", "os", "int4", "_C"):
                with self.assertRaisesRegex(ValueError, f"numpy has nothing for the type {name} of torch; install torch"):
                    self.weights.make_room([["a", f"torch.{name}", [1]]])

    def test_files_of_torch(self):
        self.needs("numpy", "torch")
        import torch

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "model.pt")
            tensors = {
                "a": torch.arange(12.0).reshape(3, 4).T, "b": torch.tensor(5, dtype=torch.int8), "c": torch.zeros((0, 3)),
                "d": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "e": torch.tensor([True, False]), "f": torch.randn(300, 300),
            }  # fmt: skip
            torch.save(tensors, path)
            state = self.bring(path)
            self.assertEqual(list(state), list(tensors))
            for name, want in tensors.items():
                self.assertEqual((state[name].dtype, state[name].shape), (want.dtype, want.shape))
                self.assertTrue(torch.equal(state[name], want), name)
            model = torch.nn.Linear(3, 2)
            torch.save(model.state_dict(), path)
            other = torch.nn.Linear(3, 2)
            other.load_state_dict(self.bring(path))
            self.assertTrue(torch.equal(other.weight, model.weight))
            torch.save({"step": 5}, path)
            with self.assertRaisesRegex(ValueError, "step of .*model.pt is no tensor but a int; save a state dict alone"):
                self.weights.read(path)
            for name in ("float33", "os", "nn"):
                with self.assertRaisesRegex(ValueError, f"has no type {name}"):
                    self.weights.make_room([["a", f"torch.{name}", [1]]])

    def test_the_program(self):
        self.needs("numpy")
        import numpy

        with tempfile.TemporaryDirectory() as directory, Members("g1") as members:
            path = os.path.join(directory, "model.npz")
            numpy.savez(path, a=numpy.zeros(5), b=numpy.zeros((2, 3), dtype="int8"))
            said = io.StringIO()
            group_of = {"source": members.groups[0], "receiver": members.groups[1]}
            with mock.patch.object(rocast, "join", lambda name, role, members: group_of[role]), contextlib.redirect_stdout(said):
                got = members.each(lambda n: self.weights.main(["recv", "--members=2"] if n else ["send", "--members", "2", path, path]))
            self.assertEqual(got, [None, None])
            lines = sorted(line.split(" in ")[0] for line in said.getvalue().splitlines())
            self.assertEqual(lines, [f"version {version}: 2 arrays, 46 bytes" for version in (1, 1, 2, 2)])


class Cuts(unittest.TestCase):
    def test_every_byte_is_in_one_piece(self):
        draw = random.Random(7)
        for _ in range(300):
            sizes = [draw.choice([0, 1, 100, _pieces.SMALL - 1, _pieces.SMALL, _pieces.PIECE, _pieces.PIECE + 1, draw.randrange(1 << 22)]) for _ in range(draw.randrange(60))]
            pieces = list(_pieces.cut(sizes))
            at = [0] * len(sizes)
            for piece in pieces:
                self.assertTrue(0 < sum(part.nbytes for part in piece) <= _pieces.PIECE)
                for part in piece:
                    self.assertEqual(part.offset, at[part.buffer])
                    at[part.buffer] += part.nbytes
            self.assertEqual(at, sizes)
            header = _pieces.Header.of(sizes)
            self.assertEqual(header[:3], (sum(sizes), len(pieces), len(sizes)))
            self.assertEqual(_pieces.Header.decode(header.encode()), header)

    def test_what_is_no_header(self):
        data = _pieces.Header.of([5, 7]).encode()
        for wrong in (data + b"\0", data * 2, data[:-1], b"", b"x" + data[1:], data[:7] + b"\2" + data[8:]):
            with self.assertRaisesRegex(ValueError, "did not send by broadcast"):
                _pieces.Header.decode(wrong)


if __name__ == "__main__":
    unittest.main()
