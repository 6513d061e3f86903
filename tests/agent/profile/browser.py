# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven over its debugging pipe (DevTools Protocol) as a user does, by mouse and keys."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import DEADLINE_SECONDS, wait_for

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
    "--remote-debugging-pipe",
)
# The browser reads commands from descriptor 3 and writes answers to descriptor 4.
START: Final = """
import os, sys
read, write = (os.dup2(int(fd), 50 + n) for n, fd in enumerate(sys.argv[1:3]))
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
COMMAND: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page. `folder` is for the browser's own files."""

    def __init__(self, folder: Path) -> None:
        assert COMMAND is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                str(to_read),
                str(to_write),
                COMMAND,
                *FLAGS,
                f"--user-data-dir={folder}",
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._numbers = itertools.count(1)
        self._pending = b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_SECONDS)
        os.close(self._read)
        os.close(self._write)

    def open(self, path: Path) -> None:
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait(f"location.href === {json.dumps(path.as_uri())} && document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """Of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until the expression is true."""
        wait_for(expression, lambda: self.value(expression))

    def text(self, selector: str) -> str:
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, expression: str) -> None:
        """In the middle of an element, given as a JavaScript expression."""
        x, y = self.value(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name: str, text: str | None = None) -> None:
        """Press a key by its name, such as `ArrowDown`; `text` is what it types."""
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its result; events that come meanwhile are noted."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(event["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                self.errors.append(event["params"]["entry"]["text"])

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while b"\0" not in self._pending:
            readable, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if readable else b""
            assert data, "the browser ended or does not answer"
            self._pending += data
        message, _, self._pending = self._pending.partition(b"\0")
        result: dict[str, Any] = json.loads(message)
        return result
