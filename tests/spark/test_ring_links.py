"""Links between the tasks of a ring: who may connect, what they carry, and what happens when one breaks."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.errors import StateError
from watersmeet.exchange.ring_task import BrokenLink, RingLinks, hosted_nodes
from watersmeet.spark.run import ring_links
from watersmeet.spark.run.ring_links import Mailbox, Rendezvous, accept_peers, connect_to, read_frame, send_frame

HOST = "127.0.0.1"


def attempt(task: int) -> Any:
    return SimpleNamespace(partition=task)


def linked(meeting: Rendezvous, stack: ExitStack, nodes: int) -> list[RingLinks]:
    """Return the links of all tasks of a ring."""
    tasks = range(meeting.tasks)
    contexts = [meeting.connect(attempt(task), hosted_nodes(nodes, task, meeting.tasks)) for task in tasks]
    with ThreadPoolExecutor() as pool:
        opened = [pool.submit(context.__enter__) for context in contexts]
        links = [future.result(timeout=20) for future in opened]
    for context in contexts:
        stack.push(context)
    return links


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (3, 1), (3, 3), (5, 2)])
def test_frames_go_round_in_order(nodes: int, tasks: int) -> None:
    host = {node: task for task in range(tasks) for node in hosted_nodes(nodes, task, tasks)}
    with Rendezvous(HOST, tasks) as meeting, ExitStack() as stack:
        links = linked(meeting, stack, nodes)
        sent = [f"{number}".encode() * (number + 1) for number in range(50)]
        for node in range(nodes):
            after = (node + 1) % nodes
            for frame in sent:
                links[host[node]].send(after, frame)
            got = [links[host[after]].receive() for _ in sent]
            assert got == [(after, frame) for frame in sent]


def test_strangers_are_refused_and_delay_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_links, "HANDSHAKE_SECONDS", 0.5)
    secret = b"s" * 32
    with socket.create_server((HOST, 0)) as server:
        address = server.getsockname()[:2]
        peers = accept_peers(server, secret, time.monotonic() + 10)
        found: list[socket.socket] = []
        waiting = threading.Thread(target=lambda: found.append(next(peers)))
        waiting.start()
        silent = socket.create_connection(address)  # says nothing
        with pytest.raises(ConnectionError):
            connect_to(address, b"x" * 32)
        loud = socket.create_connection(address)
        loud.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        mine = connect_to(address, secret)
        waiting.join(5)
        send_frame(mine, b"hello")
        assert read_frame(found[0]) == b"hello"
        for link in (silent, loud, mine, *found):
            link.close()


def test_a_proof_cannot_be_sent_back() -> None:
    """A stranger that reflects what it is sent knows no secret: each end signs which end it is."""
    secret = b"s" * 32
    with socket.create_server((HOST, 0)) as server:

        def reflect() -> None:
            link, _ = server.accept()
            with link:
                while data := link.recv(64):
                    link.sendall(data)

        threading.Thread(target=reflect, daemon=True).start()
        with pytest.raises(ConnectionError, match="secret"):
            connect_to(server.getsockname()[:2], secret)


def test_a_frame_that_is_too_long_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other:
        send_frame(one, b"x" * 100)
        with pytest.raises(ConnectionError, match="too long"):
            read_frame(other, 99)


def test_a_neighbour_that_is_gone_is_noticed() -> None:
    with Rendezvous(HOST, 2) as meeting, ExitStack() as stack:
        first, second = linked(meeting, stack, 2)
        first.__exit__(RuntimeError, None, None)  # type: ignore[attr-defined]
        with pytest.raises(BrokenLink):
            second.receive()


def test_a_task_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_links, "MEETING_SECONDS", 0.3)
    with Rendezvous(HOST, 2) as meeting, pytest.raises(StateError, match="did not meet within"):
        meeting.connect(attempt(0), [0]).__enter__()


def test_tasks_of_a_stage_that_runs_again_meet_anew() -> None:
    with Rendezvous(HOST, 2) as meeting, ExitStack() as stack:
        for _ in range(2):
            first, second = linked(meeting, stack, 2)
            first.send(1, b"x")
            assert second.receive() == (1, b"x")


def test_nothing_is_left_of_a_ring() -> None:
    """Python workers live as long as the query: threads and ports of a batch must not stay in them."""
    before = {thread for thread in threading.enumerate() if "watersmeet" in thread.name}
    for fails in (False, True, False):
        with Rendezvous(HOST, 2) as meeting:
            links = [meeting.connect(attempt(task), [task]) for task in range(2)]
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda link: link.__enter__(), links))
            for link in links:
                with suppress(RuntimeError):
                    link.__exit__(*((RuntimeError, RuntimeError(), None) if fails else (None, None, None)))
    for _ in range(100):
        if not (left := {thread for thread in threading.enumerate() if "watersmeet" in thread.name} - before):
            break
        time.sleep(0.05)
    assert not left


@pytest.mark.parametrize("limit", [0, 10, 1 << 20])
def test_a_mailbox_keeps_the_order_whether_frames_wait_on_disk_or_not(limit: int) -> None:
    box = Mailbox(limit)
    for number in range(20):
        box.put(number, b"x" * number)
    got = [box.get() for _ in range(10)]
    for number in range(20, 30):
        box.put(number, b"x" * number)
    got += [box.get() for _ in range(20)]
    assert got == [(number, b"x" * number) for number in range(30)]
    box.fail("the end")
    with pytest.raises(BrokenLink, match="the end"):
        box.get()
    box.close()
