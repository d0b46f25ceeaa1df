"""Links between the tasks of a ring: TCP connections that begin with a proof that both ends know the ring's secret.

Tasks meet at a rendezvous on the driver: each tells where it listens, and learns where the others do. The secret
travels with the tasks, and is in no configuration, property or log. What comes over a link is never unpickled.

A task always receives: a thread puts what comes in a mailbox, which goes to disk where it grows large, and another
thread sends, so no task waits for its neighbour to take something while that neighbour waits for it.
"""

import hmac
import json
import os
import secrets
import socket
import struct
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Thread
from time import monotonic
from typing import IO, Any, Self

from watersmeet.errors import StateError
from watersmeet.exchange.message import Attempt
from watersmeet.exchange.ring_task import BrokenLink, Connect, RingLinks

NONCE = 32
HANDSHAKE_SECONDS = 10.0
"""How long a peer may take to prove who it is."""
MEETING_SECONDS = 120.0
"""How long tasks wait for each other: until all are scheduled."""
LONGEST = 1 << 20
"""The largest message of a rendezvous, in bytes."""
MAILBOX_BYTES = 64 << 20
"""How many bytes of frames a mailbox holds in memory; those beyond go to disk."""


# -- frames and proofs


def send_frame(link: socket.socket, frame: bytes) -> None:
    """Send a frame: its length, then the bytes."""
    link.sendall(struct.pack(">Q", len(frame)))
    link.sendall(frame)


def read_frame(link: socket.socket, longest: int | None = None) -> bytes:
    """Return the next frame of a link, for which it waits; `longest` is the most bytes it may have.

    Raises:
        ConnectionError: If the link ends, or the frame is longer than allowed.
    """
    (size,) = struct.unpack(">Q", _read(link, 8))
    if longest is not None and size > longest:
        raise ConnectionError("a frame is too long")
    return _read(link, size)


def _read(link: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes of a link; raises ConnectionError if it ends before."""
    body = bytearray(size)
    view, at = memoryview(body), 0
    while at < size:
        count = link.recv_into(view[at:])
        if not count:
            raise ConnectionError("the link has ended")
        at += count
    return bytes(body)


def prove(link: socket.socket, secret: bytes, role: bytes) -> None:
    """Exchange proofs with a peer: each end signs the other's random number, and which end it is.

    Args:
        link: The connection.
        secret: The ring's secret.
        role: This end: `connects` or `accepts`.

    Raises:
        ConnectionError: If the peer doesn't know the secret, or takes too long.
    """
    link.settimeout(HANDSHAKE_SECONDS)
    mine, peer = secrets.token_bytes(NONCE), b"accepts" if role == b"connects" else b"connects"
    try:
        link.sendall(mine)
        theirs = _read(link, NONCE)
        link.sendall(hmac.digest(secret, role + theirs + mine, "sha256"))
        if not hmac.compare_digest(_read(link, 32), hmac.digest(secret, peer + mine + theirs, "sha256")):
            raise ConnectionError("the peer doesn't know the secret")
    except OSError as error:
        raise ConnectionError(str(error)) from None
    link.settimeout(None)


def connect_to(address: tuple[str, int], secret: bytes) -> socket.socket:
    """Return a connection to a peer that knows the secret; raises OSError if nobody answers, or the proof fails."""
    link = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    prove(link, secret, b"connects")
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def _shut_down(link: socket.socket) -> None:
    with suppress(OSError):  # it was never connected, or is closed already
        link.shutdown(socket.SHUT_RDWR)


@contextmanager
def listening(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Listen at an address within the context; afterwards nobody waits for connections there any more."""
    with socket.create_server(address) as server:
        try:
            yield server
        finally:
            _shut_down(server)  # [!] closing alone would leave a thread in accept(), and the port taken


def accept_peers(server: socket.socket, secret: bytes, until: float) -> Iterator[socket.socket]:
    """Yield connections from peers that know the secret; strangers are refused, and delay nobody. Starts threads.

    Args:
        server: Where peers connect; if it is closed, nobody else is awaited.
        secret: The ring's secret.
        until: When to stop waiting, by this process's monotonic clock.
    """
    proven: SimpleQueue[socket.socket | None] = SimpleQueue()

    def check(link: socket.socket) -> None:
        """Hand a connection on if its peer knows the secret; close it otherwise."""
        try:
            prove(link, secret, b"accepts")
            proven.put(link)
        except ConnectionError:
            link.close()

    def listen() -> None:
        """Accept connections, and check each in a thread of its own, until the server is closed."""
        with suppress(OSError):  # closed: nobody else is awaited
            while True:
                link, _ = server.accept()
                Thread(target=check, args=(link,), daemon=True).start()
        proven.put(None)

    Thread(target=listen, name="watersmeet-ring-accept", daemon=True).start()
    while (left := until - monotonic()) > 0:
        with suppress(Exception):
            link = proven.get(timeout=left)
            if link is None:
                return
            yield link


# -- the rendezvous, on the driver


@dataclass
class Rendezvous:
    """Where the tasks of one ring meet.

    Attributes:
        host: The address to listen at.
        tasks: How many tasks there are.
    """

    host: str
    tasks: int
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _there: dict[int, tuple[socket.socket, Any]] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(listening((self.host, 0)))
        Thread(target=self._meet, name="watersmeet-rendezvous", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        for link, _ in self._there.values():
            link.close()

    @property
    def connect(self) -> Connect:
        """What a task calls to be linked to its neighbours; it may be pickled, and carries the ring's secret."""
        address, secret, tasks = (self.host, self._server.getsockname()[1]), self._secret, self.tasks

        @contextmanager
        def connect(attempt: Attempt, nodes: Sequence[int]) -> Iterator[RingLinks]:
            with TaskLinks(nodes) as links:
                links.open(address, secret, attempt.partition, tasks)
                yield links

        return connect

    def _meet(self) -> None:
        """Tell the tasks where all of them listen, once all have come; runs in a thread until the server is closed.

        A stage that failed is run again as a whole: its tasks come anew, and take the places of those before.
        """
        for link in accept_peers(self._server, self._secret, monotonic() + 24 * 3600):
            with suppress(ConnectionError, OSError, ValueError, KeyError, TypeError):
                note = json.loads(read_frame(link, LONGEST))
                self._there[int(note["task"])] = link, note["address"]
                if len(self._there) == self.tasks:
                    addresses = json.dumps([self._there[task][1] for task in range(self.tasks)]).encode()
                    for waiting, _ in self._there.values():
                        send_frame(waiting, addresses)
                        waiting.close()
                    self._there = {}


# -- a task's links


class Mailbox:
    """Frames in the order in which they came; those beyond a limit wait in a file without a name.

    Args:
        limit: How many bytes are held in memory.
    """

    def __init__(self, limit: int = MAILBOX_BYTES) -> None:
        self._limit, self._size = limit, 0
        self._frames: deque[tuple[int, bytes | tuple[int, int]]] = deque()
        self._file: IO[bytes] | None = None
        self._change = Condition()
        self._error: str | None = None

    def put(self, node: int, frame: bytes) -> None:
        """Add a frame, beyond the limit to a temporary file; never waits for it to be taken."""
        with self._change:
            if self._size + len(frame) > self._limit and self._frames:
                self._frames.append((node, self._set_aside(frame)))
            else:
                self._size += len(frame)
                self._frames.append((node, frame))
            self._change.notify()

    def _set_aside(self, frame: bytes) -> tuple[int, int]:
        """Append a frame to the temporary file, which is created for the first one; return its offset and size."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with the mailbox
        at = self._file.seek(0, os.SEEK_END)
        self._file.write(frame)
        return at, len(frame)

    def fail(self, reason: str) -> None:
        """Say that no more frames come; whoever waits for one gets an error."""
        with self._change:
            self._error = reason
            self._change.notify_all()

    def get(self) -> tuple[int, bytes]:
        """Return the next frame, and the node that it is for; waits for it.

        Raises:
            BrokenLink: If none can come.
        """
        with self._change:
            while not self._frames:
                if self._error is not None:
                    raise BrokenLink(self._error)
                self._change.wait()
            node, frame = self._frames.popleft()
            if isinstance(frame, bytes):
                self._size -= len(frame)
                return node, frame
            assert self._file is not None
            self._file.seek(frame[0])
            body = self._file.read(frame[1])
            if not self._frames:
                self._file.truncate(0)
            return node, body

    def close(self) -> None:
        """Drop what is left."""
        if self._file is not None:
            self._file.close()


class TaskLinks:
    """The links of a task that hosts some nodes: to the task behind its last node, and from that before its first.

    Args:
        nodes: The nodes, neighbours in order.
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes
        self._mailbox = Mailbox()
        self._outbox = Mailbox()
        self._stack = ExitStack()
        self._sender: Thread | None = None

    def __enter__(self) -> Self:
        self._stack.callback(self._mailbox.close)
        self._stack.callback(self._outbox.close)
        return self

    def __exit__(self, *error: object) -> None:
        """Send what is left to be sent, unless there was an error, and close the links."""
        self._outbox.fail("the task has ended")
        if self._sender is not None and error[0] is None:
            self._sender.join()
        self._stack.close()

    def open(self, rendezvous: tuple[str, int], secret: bytes, task: int, tasks: int) -> None:
        """Meet the other tasks, and link to the neighbours; a task that hosts all nodes needs no links.

        Raises:
            StateError: If they don't come.
        """
        if tasks == 1:
            return
        try:
            self._open(rendezvous, secret, task, tasks)
        except OSError as error:
            raise StateError(
                f"The tasks of a ring did not meet within {MEETING_SECONDS:.0f} seconds ({error}): each needs a free "
                "slot, and a way to connect to the others; see docs/cluster.md."
            ) from None

    def _open(self, rendezvous: tuple[str, int], secret: bytes, task: int, tasks: int) -> None:
        """Connect to both neighbours, which the rendezvous names, and start threads that receive and send.

        Raises:
            OSError: If the rendezvous or a neighbour can't be reached in time.
        """
        meeting = self._stack.enter_context(connect_to(rendezvous, secret))
        server = self._stack.enter_context(listening((meeting.getsockname()[0], 0)))
        note = {"task": task, "address": server.getsockname()[:2]}
        send_frame(meeting, json.dumps(note).encode())
        meeting.settimeout(MEETING_SECONDS)
        host, port = json.loads(read_frame(meeting, LONGEST))[(task + 1) % tasks]
        incoming = accept_peers(server, secret, monotonic() + MEETING_SECONDS)
        onward: list[socket.socket] = []
        connecting = Thread(target=lambda: onward.append(connect_to((host, port), secret)), daemon=True)
        connecting.start()
        before = next(incoming, None)
        connecting.join(MEETING_SECONDS)
        if before is None or not onward:
            raise ConnectionError("a neighbour is missing")
        for link in (before, onward[0]):
            self._stack.enter_context(link)
            self._stack.callback(_shut_down, link)  # or a thread would go on waiting for it
        Thread(target=self._receive, args=(before,), name="watersmeet-ring-receive", daemon=True).start()
        self._sender = Thread(target=self._send, args=(onward[0],), name="watersmeet-ring-send", daemon=True)
        self._sender.start()

    def _receive(self, link: socket.socket) -> None:
        """Put the frames of a link into the mailbox until the link ends, which makes the mailbox fail."""
        try:
            while True:
                self._mailbox.put(self._nodes[0], read_frame(link))
        except (OSError, ValueError) as error:
            self._mailbox.fail(str(error))

    def _send(self, link: socket.socket) -> None:
        """Send the frames of the outbox until the task has ended and none is left; an error makes the mailbox fail."""
        try:
            while True:
                send_frame(link, self._outbox.get()[1])
        except BrokenLink:
            return
        except (OSError, ValueError) as error:
            self._mailbox.fail(str(error))

    def send(self, node: int, frame: bytes) -> None:
        """Send a frame to a node, of the next task or of this one; doesn't wait for it to arrive."""
        if self._sender is None or (node in self._nodes and node != self._nodes[0]):
            self._mailbox.put(node, frame)
        else:
            self._outbox.put(node, frame)

    def receive(self) -> tuple[int, bytes]:
        """Return the next frame for a node of this task, and that node; waits. Raises BrokenLink if none can come."""
        return self._mailbox.get()
