# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the stack on a local cloud, and the flame graph of a real process's GPU memory.

Real: the engine, the Kubernetes provider and API server, the agent, the eBPF probes, the process. Simulated: Azure,
Grafana, what Pyroscope stores, the kubelet. The agent therefore runs beside the cluster instead of inside a pod.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from lightkube import Client, KubeConfig
from rich.console import Console

from gpuheap.contract import DEFAULT_PUSH_INTERVAL_SECONDS
from localcloud import declared_agent, gpu_driver
from localcloud.azure.store import Store
from localcloud.cloud import CloudFailed, LocalCloud
from localcloud.engine import CHECKOUT, Engine, EngineFailed

WORKLOAD: Final = CHECKOUT / "tests" / "standin" / "programs" / "inference.py"
HIDDEN_OUTPUTS: Final = frozenset({"kubeconfig"})
PYROSCOPE_SERVICE: Final = "gadget/pyroscope"
PROFILE_SECONDS: Final = 4 * DEFAULT_PUSH_INTERVAL_SECONDS
"""How long a profile may take to arrive: the agent's start, one interval to see the process, one to push."""


_UNFINISHED: Final = re.compile(r"^\s*$|^@|creating( \(\d+s\))?\s*$|^Updating|^\[\]")
"""Lines of the engine that only say that it works."""


class DemoFailed(Exception):
    """A part of the demo did not come about; the text says what was seen and where to look."""


def main() -> int:
    """Run the demo; 0 when every check passed and a flame graph was made, or cannot be made on this machine."""
    console = Console(highlight=False)
    folder = CHECKOUT / "build" / "demo"
    # A demo that is told to end shall not leave its cloud behind; one that was killed has, and it goes now.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    LocalCloud(folder / "cloud").stop()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return _demo(console, folder)
    except (
        CloudFailed,
        DemoFailed,
        EngineFailed,
        declared_agent.NotDeclared,
        declared_agent.NotReady,
    ) as error:
        console.print("\n[bold red]error[/]", end=" ")
        console.print(diagnosis(str(error)), markup=False, soft_wrap=True)
        return 1


def diagnosis(error: str) -> str:
    """Of what a failed engine printed, the part that says why; of other errors, all."""
    command, _, printed = error.partition("\n")
    _, found, rest = printed.partition("\nDiagnostics:\n")
    if not found:
        return error
    return f"{command}\n{re.split(r'^(?:Outputs|Resources):$', rest, flags=re.MULTILINE)[0].rstrip()}"


def _demo(console: Console, folder: Path) -> int:
    started = time.monotonic()
    with ExitStack() as stack:
        with _step(console, "Local cloud: real Kubernetes control plane, simulated Azure"):
            cloud = stack.enter_context(LocalCloud(folder / "cloud"))
        engine = Engine(cloud=cloud)
        with _step(console, f"pulumi up --stack {engine.stack}"):
            engine.create()
            replace(engine, on_line=_progress(console)).up()
        outputs = engine.outputs()
        lacking = gpu_driver.lacking()
        page = None if lacking else _flame_graph(console, cloud, outputs, folder)
        with _step(console, "Checks of the published procedure"):
            checks = _verify(cloud, engine.stack)
        _print_outputs(console, outputs)
        console.print("\n[bold]Checks[/]")
        print(checks.stdout.rstrip())  # coloured already, and laid out for its own width
    console.print("\n[bold]Flame graph[/]")
    console.print(f"  {page}" if page else f"  not made: {lacking}", soft_wrap=True)
    console.print(f"\ndone in {time.monotonic() - started:.0f} s; nothing is left running")
    return checks.returncode


def _flame_graph(console: Console, cloud: LocalCloud, outputs: Mapping[str, str], folder: Path) -> Path:
    """The agent's profile of a real process, as it reached Pyroscope, made into a page."""
    kubernetes = Client(KubeConfig.from_file(cloud.endpoints.kubeconfig).get())
    hosts = {PYROSCOPE_SERVICE: cloud.endpoints.pyroscope}
    profile, page = folder / "gpu-memory.pb.gz", folder / "gpu-memory.html"
    log_path = folder / "agent.log"
    with (
        _step(console, "Agent with the DaemonSet's settings, beside a process that allocates GPU memory"),
        log_path.open("wb") as log,
        declared_agent.running(kubernetes, outputs["agentDaemonSet"], hosts, log) as agent,
        _workload(folder) as process,
    ):
        profile.write_bytes(_pushed_profile(cloud, process.pid, agent, log_path))
    command = [str(Path(sys.executable).with_name("gpuheap")), "report", str(profile), "--output", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return page


@contextmanager
def _workload(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An inference server in miniature that has its memory when this yields."""
    environment = {**os.environ, **gpu_driver.environment(folder / "driver")}
    with subprocess.Popen(
        [sys.executable, str(WORKLOAD)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            if process.stdout.readline().strip() != "ready":
                raise DemoFailed(f"{WORKLOAD.name} did not get its memory (exit code {process.poll()})")
            yield process
        finally:
            process.stdin.close()  # its sign to end
            process.terminate()


def _pushed_profile(cloud: LocalCloud, pid: int, agent: subprocess.Popen[bytes], log: Path) -> bytes:
    """The newest profile of the process that arrived in Pyroscope."""
    store = Store(cloud.state / "store.db")
    deadline = time.monotonic() + PROFILE_SECONDS
    while time.monotonic() < deadline:
        for pushed in reversed(store.profiles()):
            if pushed.labels.get("pid") == str(pid):
                return bytes(pushed.pprof)
        if agent.poll() is not None:
            raise DemoFailed(f"the agent ended with {agent.returncode}; its log:\n{log.read_text()[-2000:]}")
        time.sleep(0.2)
    raise DemoFailed(f"no profile of process {pid} arrived in {PROFILE_SECONDS} s; the agent's log is {log}")


def _verify(cloud: LocalCloud, stack: str) -> subprocess.CompletedProcess[str]:
    """As a user runs it: the module as a command, with what the local cloud's environment gives it."""
    command = [sys.executable, "-m", "verify", "--stack", stack]
    environment = {**cloud.environment(), "FORCE_COLOR": "1" if sys.stdout.isatty() else "", "COLUMNS": "150"}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise DemoFailed(f"{' '.join(command)}:\n{done.stderr}")
    return done


def _print_outputs(console: Console, outputs: Mapping[str, str]) -> None:
    console.print("\n[bold]Stack outputs[/]")
    width = max(map(len, outputs))
    for name, value in sorted(outputs.items()):
        console.print(
            f"  {name:<{width}}  {'[secret]' if name in HIDDEN_OUTPUTS else value}",
            markup=False,
            soft_wrap=True,
        )


def _progress(console: Console) -> Callable[[str], None]:
    """Shows a line of the engine when a resource is finished, and whatever it reports beside that."""

    def show(line: str) -> None:
        if not _UNFINISHED.search(line):
            console.print(f"    {line.strip()}", style="dim", markup=False, soft_wrap=True)

    return show


@contextmanager
def _step(console: Console, title: str) -> Iterator[None]:
    started = time.monotonic()
    console.print(f"[bold]›[/] {title}", soft_wrap=True)
    yield
    console.print(f"  [green]done[/] in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
