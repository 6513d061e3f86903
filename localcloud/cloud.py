# SPDX-License-Identifier: Apache-2.0
"""A local cloud as the rest of the checkout uses it: started, stopped, asked where its parts are.

Everything runs in one supervisor process (`supervisor.py`); what is known of it is in the state folder.
A cloud's content lives from `start` to `stop`: each start begins with an empty Kubernetes, an empty Azure, and no
Pulumi stacks.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from localcloud.azure.surroundings import SUBSCRIPTION
from localcloud.kube.leftovers import clear
from localcloud.toolchain import pulumi_home, resolve

CHECKOUT: Final = Path(__file__).resolve().parent.parent
START_SECONDS: Final = 240.0
STOP_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05
LOG_TAIL_CHARACTERS: Final = 4000
LOCK: Final = "supervisor.lock"
_FLOCK: Final = "hhqqi"
"""`struct flock` of 64-bit Linux, see fcntl(2): type, whence, start, length, pid."""

PROGRESS: Final = "progress: "
"""How a line of the supervisor's log begins that is meant for who waits for the start."""

FOREIGN_VARIABLES: Final = ("ARM_", "AZURE_", "IDENTITY_", "MSI_", "PULUMI_")
"""Variables of the caller that are about real clouds and real stacks: nothing may take the local one for them."""


class CloudFailed(Exception):
    """The local cloud did not start or is not running; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the parts of a running cloud are, as in its `cloud.json`."""

    kubeconfig: Path
    ca: Path
    arm: str
    identity: str
    identity_header: str
    pyroscope: str
    supervisor_pid: int

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises FileNotFoundError."""
        found = json.loads(path.read_text())
        return cls(**{**found, "kubeconfig": Path(found["kubeconfig"]), "ca": Path(found["ca"])})

    def write(self, path: Path) -> None:
        """Write the file as a whole: who sees it sees all of it."""
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_text(json.dumps(asdict(self), indent=2, default=str) + "\n")
        unfinished.chmod(0o600)
        unfinished.replace(path)


def default_state() -> Path:
    """`$GPUHEAP_LOCALCLOUD`, or `.localcloud` in the checkout."""
    named = os.environ.get("GPUHEAP_LOCALCLOUD")
    return Path(named) if named else CHECKOUT / ".localcloud"


class LocalCloud:
    """The cloud whose state folder is `state`, running or not; as a context manager, one that runs."""

    def __init__(self, state: Path) -> None:
        self.state = state.absolute()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it is completely started and its supervisor lives."""
        return self._cloud_file.exists() and supervisor_pid(self.state) is not None

    @property
    def endpoints(self) -> Endpoints:
        """Raises CloudFailed if it does not run."""
        if self.running:
            try:
                return Endpoints.read(self._cloud_file)
            except FileNotFoundError:
                pass  # it stops at this moment
        raise CloudFailed(f"no local cloud runs in {self.state}: start it with `python -m localcloud up`")

    def start(self, progress: Callable[[str], object] = str) -> None:
        """Start it, unless it runs, and return when all of it can be used. `progress` is told what is being started.

        Raises CloudFailed; then nothing is left running.
        """
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.state / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds it running
            if self.running:
                return
            self._cloud_file.unlink(missing_ok=True)  # of a supervisor that was killed
            try:
                self._spawn()
                self._wait_until_ready(progress)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End it and remove what must not outlive it. Does nothing when it is stopped."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            pid = supervisor_pid(self.state)
            if pid is None:
                break
            with suppress(ProcessLookupError):  # it ends at this moment
                os.kill(pid, sign)
            self._wait_until_gone()
        self._reap()
        if self.state.exists():
            self._cloud_file.unlink(missing_ok=True)
            clear(self.state)

    def environment(self) -> dict[str, str]:
        """The whole environment of a command that is to use it. Raises CloudFailed if it does not run."""
        settings = self.settings()
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_VARIABLES)}
        return {**own, **settings}

    def settings(self) -> dict[str, str]:
        """What `environment` sets."""
        endpoints = self.endpoints
        tools = resolve()
        stacks = self.state / "pulumi-state"
        stacks.mkdir(exist_ok=True)
        path = [
            str(tools.pulumi.parent),
            str(Path(sys.executable).parent),
            os.environ.get("PATH", os.defpath),
        ]
        no_proxy = ",".join(
            filter(None, ["127.0.0.1", "localhost", urlsplit(endpoints.pyroscope).hostname, _no_proxy()])
        )
        return {
            "PATH": os.pathsep.join(path),
            "GPUHEAP_LOCALCLOUD": str(self.state),
            "GPUHEAP_ARM_ENDPOINT": endpoints.arm,
            "IDENTITY_ENDPOINT": endpoints.identity,
            "IDENTITY_HEADER": endpoints.identity_header,
            "REQUESTS_CA_BUNDLE": str(endpoints.ca),
            "SSL_CERT_FILE": str(endpoints.ca),
            "NO_PROXY": no_proxy,
            "no_proxy": no_proxy,
            "ARM_SUBSCRIPTION_ID": SUBSCRIPTION,
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "KUBECONFIG": str(endpoints.kubeconfig),
            "PULUMI_HOME": str(pulumi_home(self.state, tools)),
            "PULUMI_BACKEND_URL": stacks.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
            # As the stack's own setting says; the provider that is built here is older than the setting.
            "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
        }

    @property
    def _cloud_file(self) -> Path:
        return self.state / "cloud.json"

    @property
    def _log(self) -> Path:
        return self.state / "logs" / "supervisor.log"

    def _spawn(self) -> None:
        self._reap()
        self._log.parent.mkdir(exist_ok=True)
        search_path = [str(CHECKOUT), str(CHECKOUT / "agent"), os.environ.get("PYTHONPATH", "")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "localcloud", "serve", "--state", str(self.state)],
                cwd=self.state,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _reap(self) -> None:
        if self._process:
            self._process.kill()  # one that does not hold the lock yet; no harm to one that has ended
            self._process.wait()
            self._process = None

    def _wait_until_ready(self, progress: Callable[[str], object]) -> None:
        assert self._process
        deadline = time.monotonic() + START_SECONDS
        with self._log.open() as log:
            while not self.running:
                for line in log:
                    if line.startswith(PROGRESS):
                        progress(line.removeprefix(PROGRESS).strip())
                code = self._process.poll()
                if code is not None or time.monotonic() > deadline:
                    what = f"not ready after {START_SECONDS:.0f} s" if code is None else f"ended with {code}"
                    tail = self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
                    raise CloudFailed(f"the local cloud's supervisor {what}; the end of {self._log}:\n{tail}")
                time.sleep(POLL_SECONDS)

    def _wait_until_gone(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while supervisor_pid(self.state) is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def supervisor_pid(state: Path) -> int | None:
    """The process that holds the supervisor's lock of a state folder, None if nobody does.

    Unlike a number in a file it is true at any time: the kernel takes the lock away with the process.
    """
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with (state / LOCK).open("rb") as lock:
            found = fcntl.fcntl(lock, fcntl.F_GETLK, wanted)
    except FileNotFoundError:
        return None
    kind, _, _, _, pid = struct.unpack(_FLOCK, found)
    return None if kind == fcntl.F_UNLCK else pid


@contextmanager
def supervisor_lock(state: Path) -> Iterator[None]:
    """Be the supervisor of a state folder. Raises CloudFailed if there is one.

    Within, this process must not open the lock file: closing it would end the lock.
    """
    with (state / LOCK).open("ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CloudFailed(f"a local cloud runs in {state} already") from error
        yield


def _no_proxy() -> str:
    return os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
