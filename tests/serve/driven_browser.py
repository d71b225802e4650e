"""A headless browser that does what it is told, through the pipe of Chrome's debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cli.browser import decoded, needed

ASKED, TOLD = 3, 4  # the file descriptors that the browser reads from and writes to


class Page:
    """A page of the browser."""

    def __init__(self, asked: int, told: int, url: str) -> None:
        self._asked, self._told, self._rest = asked, told, b""
        self._number, self._session = 0, {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: dict[str, str] = {"sessionId": session["sessionId"]}
        self._call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, once it is there if it is promised."""
        how = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = self._call("Runtime.evaluate", expression=script, **how)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        self.run(
            f"""new Promise((done, failed) => {{
                const until = Date.now() + 30000;
                const look = () => ({condition}) ? done(true) : Date.now() > until
                    ? failed(document.body.innerText) : setTimeout(look, 20);
                look();
            }})"""
        )

    def pixels(self) -> NDArray[np.uint8]:
        """The pixels that are seen, ``[height, width, 3]``."""
        return decoded(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._asked, json.dumps(asked).encode() + b"\0")
        while (said := json.loads(self._next())).get("id") != self._number:
            pass
        assert "error" not in said, said
        return dict(said["result"])

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            part = os.read(self._told, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return message


@contextmanager
def opened(url: str, profile: Path, width: int, height: int) -> Iterator[Page]:
    """A page in a browser that knows this machine and no other."""
    (reads, asked), (told, writes) = os.pipe(), os.pipe()

    def connect() -> None:
        copies = [os.dup(end) for end in (reads, writes)]  # which may be 3 and 4 themselves
        for copy, place in zip(copies, (ASKED, TOLD), strict=True):
            os.dup2(copy, place)

    command = [
        *(needed(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        *(f"--user-data-dir={profile}", f"--window-size={width},{height}"),
        "--blink-settings=preferredColorScheme=1",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, close_fds=False, preexec_fn=connect, **quiet) as process:  # type: ignore[call-overload]
        for end in (reads, writes):
            os.close(end)
        try:
            yield Page(asked, told, url)
        finally:
            process.kill()
            for end in (asked, told):
                os.close(end)
