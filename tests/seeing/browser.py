"""Headless Chromium, spoken to over two pipes: pages as a person's browser shows them.

The browser gets a file descriptor to read messages from and one to write to (3 and 4); a message
is JSON that ends with a zero byte. Nothing listens on a port.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
_READS, _WRITES = 3, 4  # what the browser calls its ends
_COMMAND = (
    "exec {program} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage "
    "--no-first-run --disable-background-networking --remote-debugging-pipe "
    "--user-data-dir={home} about:blank 3<&{reads} 4>&{writes}"
)


class Page:
    """One page; `complaints` are errors of its console and whatever it tried to load in vain."""

    def __init__(self, to: int, back: int) -> None:
        self.complaints: list[str] = []
        self._to, self._back = to, back
        self._numbers = itertools.count(1)
        self._kept = b""
        self._session: str | None = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Show a file on a screen of this width."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """What an expression of the page's own language is here."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def photograph(self, path: Path) -> None:
        """The whole page, as long as it is."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._next()
            if heard.get("id") == number:
                assert "error" not in heard, f"{method}: {heard['error']}"
                return dict(heard["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._kept:
            more = os.read(self._back, 1 << 16)
            assert more, "the browser ended"
            self._kept += more
        said, _, self._kept = self._kept.partition(b"\0")
        heard: dict[str, Any] = json.loads(said)
        self._listen(heard.get("method", ""), heard.get("params", {}))
        return heard

    def _listen(self, method: str, told: dict[str, Any]) -> None:
        if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(told["args"]))
        elif method == "Network.requestWillBeSent":
            url = told["request"]["url"]
            if not url.startswith(("file:", "about:", "data:")):
                self.complaints.append(f"asked the network for {url}")


@contextmanager
def browser(home: Path) -> Iterator[Page]:
    """A browser with one page, that ends with everything it started."""
    its_end, to = os.pipe()
    back, its_other = os.pipe()
    command = _COMMAND.format(program=PROGRAM, home=home, reads=its_end, writes=its_other)
    process = subprocess.Popen(
        ["bash", "-c", command],
        pass_fds=(its_end, its_other),
        env={**os.environ, "TMPDIR": str(home)},  # where it leaves what it was killed with
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        os.close(its_end)
        os.close(its_other)
        yield Page(to, back)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        os.close(to)
        os.close(back)
