"""A page in headless Chromium, driven over its DevTools protocol: mouse, script, pictures."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["CHROMIUM", "Page", "visit"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Seconds that anything may take on a busy machine.
PATIENCE_S = 300.0


class Page:
    """An open page.

    Attributes:
        errors: uncaught errors and console errors.
    """

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection, self._count = connection, 0
        self.errors: list[str] = []

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol; what it answers."""
        self._count += 1
        await self._connection.write_message(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            answer = await asyncio.wait_for(self._connection.read_message(), PATIENCE_S)  # type: ignore[arg-type]
            assert answer is not None, "the browser is gone"
            message = json.loads(answer)
            if message.get("id") == self._count:
                assert "error" not in message, message
                return message["result"]  # type: ignore[no-any-return]
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])

    async def close(self) -> None:
        """Say goodbye, and wait for the answer: nothing is left to be tidied up at some later moment."""
        self._connection.close()
        while await asyncio.wait_for(self._connection.read_message(), PATIENCE_S) is not None:  # type: ignore[arg-type]
            pass

    async def run(self, script: str) -> Any:
        """The value of an expression."""
        found = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression, as soon as it is true."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if value := await self.run(script):
                return value
            await asyncio.sleep(0.05)
        raise AssertionError(f"never true: {script}; {self.errors}")

    async def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of the mouse: ``Moved``, ``Pressed``, ``Released`` or ``Wheel``."""
        button = {"button": "left", "clickCount": 1} if kind in ("Pressed", "Released") else {}
        await self.send("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button, **more)

    async def picture(self, path: Path) -> None:
        """Save what is seen."""
        found = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))


def visit(page: Path, do: Callable[[Page], Awaitable[None]], folder: Path, size: str = "1250,2000") -> None:
    """Open a page and interact with it.

    Args:
        page: the file.
        do: called with the page as soon as it is connected, perhaps before it is loaded.
        folder: folder for files of the browser.
        size: size of the window.
    """
    profile = folder / "chromium"
    port = profile / "DevToolsActivePort"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    command = [
        str(CHROMIUM), *options, "--remote-debugging-port=0", f"--user-data-dir={profile}",
        f"--window-size={size}", "about:blank",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            asyncio.run(asyncio.wait_for(_visit(page, do, port), 3 * PATIENCE_S))
        finally:
            browser.terminate()


async def _visit(page: Path, do: Callable[[Page], Awaitable[None]], port: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not (port.exists() and port.read_text().count("\n")):
        assert time.monotonic() < end, "the browser does not start"
        await asyncio.sleep(0.05)
    number, path = port.read_text().split()[:2]
    most = 2**26
    connection = await websocket_connect(f"ws://127.0.0.1:{number}{path}", max_message_size=most)
    targets = Page(connection)
    target = await targets.send("Target.getTargets")
    [tab] = [each["targetId"] for each in target["targetInfos"] if each["type"] == "page"]
    await targets.close()
    opened = Page(await websocket_connect(f"ws://127.0.0.1:{number}/devtools/page/{tab}", max_message_size=most))
    for domain in ("Runtime", "Log", "Page"):
        await opened.send(f"{domain}.enable")
    await opened.send("Performance.enable", timeDomain="threadTicks")
    await opened.send("Page.navigate", url=page.resolve().as_uri())
    try:
        await do(opened)
    finally:
        await opened.close()
