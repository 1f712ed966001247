"""A headless Chromium that opens pages, driven by DevTools over two pipes."""
# ruff: noqa: ANN401 - what DevTools takes and answers is JSON

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import IO, Any, Final

PROGRAM: Final = "BERTH_CHROMIUM"
NAMES: Final = ("google-chrome", "google-chrome-stable", "chromium", "chromium-browser")
MISSING: Final = (
    "no Chromium is on the PATH, and pages are opened in it: install it, on Debian with "
    f"'apt-get update && apt-get install -y chromium', or name the program in {PROGRAM}"
)
OPTIONS: Final = (
    *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-sync", "--disable-quic", "--disable-breakpad"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
SECONDS: Final = 120
"""How long one answer may take where the machine has much else to do."""


def find_browser() -> str:
    """Return Chromium's program; raises `AssertionError` with what to install."""
    found = os.environ.get(PROGRAM) or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, MISSING
    return found


@cache
def axe() -> str:
    """Return axe-core, which finds what keeps people from using a page."""
    return (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@dataclass
class Browser:
    """A page of a running browser."""

    commands: IO[bytes]
    messages: Iterator[dict[str, Any]]
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of DevTools and return its result."""
        self.sent += 1
        session = {"sessionId": self.session} if self.session else {}
        message = {"id": self.sent, "method": method, "params": parameters, **session}
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        for answer in self.messages:
            if answer.get("id") == self.sent:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
        raise AssertionError(f"the browser ended, or did not answer {method} within {SECONDS} s")

    def open(self, address: str, *, width: int, scheme: str = "light") -> None:
        """Open a page on a screen of a width, and wait until it is loaded."""
        self.show(width=width, scheme=scheme)
        answer = self.call("Page.navigate", url=address)
        assert "errorText" not in answer, (address, answer)
        loaded = {"loaderId": answer["loaderId"], "name": "load"}
        while not any(loaded.items() <= one.get("params", {}).items() for one in self.events):
            event = next(self.messages, None)
            assert event is not None, f"the browser ended, or did not load {address} within {SECONDS} s"
            self.events.append(event)
        self.events.clear()

    def show(self, *, width: int, scheme: str, media: str = "") -> None:
        """Set the width, the colour scheme and the medium that the page is shown on."""
        screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=preferred)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def find_barriers(self) -> list[str]:
        """Return what axe finds amiss on the page, a line for each element."""
        return self._ask_axe("document", resultTypes=["violations"])

    def find_pale_texts(self, within: str) -> list[str]:
        """Return the texts that stand out too little, in what a selector finds."""
        return self._ask_axe(json.dumps(within), resultTypes=["violations"], runOnly=["color-contrast"])

    def _ask_axe(self, context: str, **options: list[str]) -> list[str]:
        self.evaluate(f"{axe()};undefined")
        asked = f"axe.run({context}, {json.dumps(options)}).then(found => found.violations)"
        found: list[Mapping[str, Any]] = self.evaluate(asked)
        return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]

    def print_on_a4(self) -> bytes:
        """Return the page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])

    def picture(self) -> bytes:
        """Return the whole page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])


@contextmanager
def browsing() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    program = find_browser()
    their_commands, our_commands = os.pipe()
    our_answers, their_answers = os.pipe()
    # Chromium takes commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{their_commands} 4>&{their_answers}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *OPTIONS, f"--user-data-dir={home}", "about:blank"],
            pass_fds=(their_commands, their_answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home},
            start_new_session=True,
        )
        os.close(their_commands)
        os.close(their_answers)
        try:
            with os.fdopen(our_commands, "wb") as commands, os.fdopen(our_answers, "rb") as answers:
                browser = Browser(commands, _read(answers, process))
                page = browser.call("Target.createTarget", url="about:blank")["targetId"]
                browser.session = browser.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
                browser.call("Page.enable")
                browser.call("Page.setLifecycleEventsEnabled", enabled=True)
                yield browser
        finally:
            _end(process)


def _read(stream: IO[bytes], process: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """Yield messages; ends the browser, and so itself, where one takes too long."""
    buffer = b""
    while True:
        while b"\0" not in buffer:
            watchdog = threading.Timer(SECONDS, _end, (process,))
            watchdog.start()
            try:
                read = os.read(stream.fileno(), 1 << 20)
            finally:
                watchdog.cancel()
            if not read:
                return
            buffer += read
        message, _, buffer = buffer.partition(b"\0")
        yield json.loads(message)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a browser with all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(SECONDS)
