# SPDX-License-Identifier: Apache-2.0
"""What `gpuheap agent` itself takes of a machine, at several rates of allocations: CPU and resident memory.

The real command, with its default interval, with native stacks as by default; the program that allocates has real-time
priority, so that it keeps its rate. Pushes go to a server that takes everything, and its metrics are fetched
once an interval, as a collector would.
"""

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from bench.build import TRACED, Built
from bench.calls import DEPTH
from bench.figures import BadMeasurement, Figure, median
from bench.workers import Worker
from gpuheap.contract import ALLOCATED_OBJECTS, DEFAULT_PUSH_INTERVAL_SECONDS

RATES: Final = {"0": 0, "1k": 1_000, "10k": 10_000}
STACKS: Final = 32

SLOWEST: Final = 1.5
"""Times as long as it should take may it take until the measured rate is no longer the one that is reported."""

START_SECONDS: Final = 60
STOP_SECONDS: Final = 30
TICKS: Final = os.sysconf("SC_CLK_TCK")
ADDRESS: Final = re.compile(r"metrics=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`samples` at each rate, of one interval each: a push falls into every one, wherever it begins.

    Before they are taken, `settle_seconds` pass at the new rate: what is new is over then.
    """

    rates: Mapping[str, int] = field(default_factory=lambda: RATES)
    interval: int = DEFAULT_PUSH_INTERVAL_SECONDS
    samples: int = 3
    settle_seconds: float = 3


DEFAULT: Final = Effort()


def agent_cost(built: Built, interpreter: Path, effort: Effort = DEFAULT) -> Iterator[Figure]:
    """One agent and one program for all rates, in rising order: its memory is that of an agent which has seen load."""
    with (
        _taking_server() as url,
        _agent(built, url, effort.interval) as (pid, metrics),
        Worker(interpreter, built) as worker,
    ):
        worker.load({TRACED: built.drivers[TRACED]})
        worker.go_first()
        for name, rate in effort.rates.items():
            _load(worker, rate, effort.settle_seconds)
            samples = [_sample(worker, pid, metrics, rate, effort.interval) for _ in range(effort.samples)]
            yield median(f"agent_cpu_percent_{name}", [one.cpu_percent for one in samples], "% of a core")
            yield median(f"agent_rss_mib_{name}", [one.resident_mib for one in samples], "MiB")
            yield median(f"agent_own_mib_{name}", [one.own_mib for one in samples], "MiB")
            yield median(f"machine_forks_{name}", [one.forks for one in samples], "1/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`own_mib` is without what is shared with the kernel and other programs.

    `forks`: new processes a second on the machine. The agent looks at each, so others' are in its CPU time.
    """

    cpu_percent: float
    resident_mib: float
    own_mib: float
    forks: float


def _sample(worker: Worker, pid: int, metrics: str, rate: int, seconds: float) -> Sample:
    began, cpu, forks = time.monotonic(), _cpu_seconds(pid), _forks()
    _load(worker, rate, seconds)
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        seen = _allocations_of(worker.pid, answer.read().decode())
    if rate and not seen:
        raise BadMeasurement(f"the agent has not seen pid {worker.pid} allocate: this would not be its cost")
    passed = time.monotonic() - began
    return Sample(
        cpu_percent=100 * (_cpu_seconds(pid) - cpu) / passed,
        resident_mib=_mib(pid, "VmRSS"),
        own_mib=_mib(pid, "RssAnon"),
        forks=(_forks() - forks) / passed,
    )


def _load(worker: Worker, rate: int, seconds: float) -> None:
    """Raises BadMeasurement when the program could not keep up."""
    if not rate:
        time.sleep(seconds)
        return
    request = {
        "do": "pace",
        "driver": TRACED,
        "depth": DEPTH,
        "rate": rate,
        "seconds": seconds,
        "stacks": STACKS,
    }
    took = worker.ask(request)["seconds"]
    if took > SLOWEST * seconds:
        raise BadMeasurement(
            f"{rate} allocations a second for {seconds} s took {took:.1f} s: the machine is too busy"
        )


class _Taking(BaseHTTPRequestHandler):
    """Answers a push as Pyroscope does when it has stored it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _taking_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def _agent(built: Built, url: str, interval: int) -> Iterator[tuple[int, str]]:
    """Its pid, and the address of its metrics. Raises BadMeasurement when it does not start."""
    command = [sys.executable, "-m", "gpuheap", "agent", "--pyroscope-url", url]
    command += ["--interval", str(interval), "--metrics-address", "127.0.0.1:0"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(built.drivers[TRACED].parent)}
    path = built.loop.with_name("agent.log")
    with path.open("w") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as running:
        try:
            yield running.pid, _metrics_address(running, path)
        finally:
            _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    """Raises BadMeasurement when it does not stop by itself: its figures would be those of a hanging agent."""
    running.terminate()
    try:
        running.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired as error:
        running.kill()
        raise BadMeasurement(f"the agent did not stop within {STOP_SECONDS} s of SIGTERM") from error


def _metrics_address(running: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and running.poll() is None:
        found = ADDRESS.search(log.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise BadMeasurement(f"the agent did not start: {log.read_text().strip()}")


def _allocations_of(pid: int, page: str) -> float:
    pattern = rf'^{ALLOCATED_OBJECTS}{{[^}}]*\bpid="{pid}"[^}}]*}} (\S+)'
    return sum(float(value) for value in re.findall(pattern, page, re.MULTILINE))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _forks() -> int:
    found = re.search(r"^processes (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def _mib(pid: int, field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024
