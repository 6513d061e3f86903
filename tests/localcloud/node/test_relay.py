# SPDX-License-Identifier: Apache-2.0
"""A port of another network, reached on this machine's loopback."""

import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from localcloud.node.relay import Relay
from tests.localcloud.node.pod_network import in_network_of

pytestmark = pytest.mark.node


@pytest.fixture
def elsewhere() -> Iterator[int]:
    """A process in a network of its own."""
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        yield process.pid
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def relay(elsewhere: int, port: int) -> Iterator[Relay]:
    relay = Relay(port, elsewhere)
    yield relay
    relay.close()


def test_both_sides_say_all_they_have_to_say(elsewhere: int, relay: Relay) -> None:
    server = in_network_of(elsewhere, lambda: socket.create_server(("127.0.0.1", relay.port)))
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as file:
            heard.append(file.read())  # until the client has ended its half
            connection.sendall(b"answer " * 100_000)

    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection(("127.0.0.1", relay.port), timeout=30) as client:
        client.sendall(b"question " * 100_000)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as file:
            assert file.read() == b"answer " * 100_000
    thread.join()
    server.close()
    assert heard == [b"question " * 100_000]


def test_a_port_where_nobody_listens_ends_the_connection(relay: Relay) -> None:
    with socket.create_connection(("127.0.0.1", relay.port), timeout=30) as client:
        try:
            answer = client.recv(1)
        except ConnectionResetError:
            answer = b""
        assert answer == b""


def test_a_port_that_is_taken_here_is_refused(elsewhere: int, relay: Relay) -> None:
    with pytest.raises(OSError, match="in use"):
        Relay(relay.port, elsewhere)


def test_a_closed_relay_gives_the_port_back(elsewhere: int, port: int) -> None:
    Relay(port, elsewhere).close()
    socket.create_server(("127.0.0.1", port)).close()
