# SPDX-License-Identifier: Apache-2.0
"""Packets from pod to pod: sockets of the test that lie in the networks of pods."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeVar

from localcloud.node.namespaces import enter_network

Answer = TypeVar("Answer")
Protocol = Literal["TCP", "UDP"]
REPLY: Final = b"here"
PATIENCE_SECONDS: Final = 5.0
"""How long an answer may take on a busy machine. The policy engine refuses at once, so refusals do not last it out."""

KINDS: Final = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


def in_network_of(pid: int, call: Callable[[], Answer]) -> Answer:
    """What `call` gives in a thread whose network is that of a process."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            enter_network(pid)
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


@contextmanager
def serving(pid: int, port: int, protocol: Protocol) -> Iterator[None]:
    """A server in the network of a process, which answers whoever connects or sends."""
    server = in_network_of(pid, lambda: _listen(port, protocol))
    thread = threading.Thread(target=_serve, args=(server, protocol), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR) if protocol == "TCP" else server.close()
        server.close()


def reaches(pid: int, address: str, port: int, protocol: Protocol = "TCP", *, source: str = "") -> bool:
    """Whether a client in the network of a process gets the server's answer; `source` is one of its addresses."""
    return in_network_of(pid, lambda: _ask(address, port, protocol, source))


def _listen(port: int, protocol: Protocol) -> socket.socket:
    server = socket.socket(socket.AF_INET, KINDS[protocol])
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("0.0.0.0", port))
    if protocol == "TCP":
        server.listen()
    return server


def _serve(server: socket.socket, protocol: Protocol) -> None:
    try:
        while True:
            if protocol == "TCP":
                connection, _ = server.accept()
                with connection:
                    connection.sendall(REPLY)
            else:
                _, client = server.recvfrom(100)
                server.sendto(REPLY, client)
    except OSError:  # closed
        return


def _ask(address: str, port: int, protocol: Protocol, source: str) -> bool:
    with socket.socket(socket.AF_INET, KINDS[protocol]) as client:
        client.settimeout(PATIENCE_SECONDS)
        try:
            client.bind((source, 0))
            client.connect((address, port))
            if protocol == "UDP":
                client.send(b"are you there")
            return client.recv(100) == REPLY
        except OSError:
            return False
