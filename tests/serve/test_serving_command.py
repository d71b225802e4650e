"""The command itself: what it prints, how it is refused, and how it stops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from starlette.types import Message
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.serve.guard import Guard
from maxtool.serve.metrics import Metrics
from maxtool.serve.server import listen
from tests.serve.http_client import COMPLETIONS, JSON

ROUNDS, FEWER, WARM = 10_000, 5500, 3500  # allocators have what they need after 3000
GROWTH = 2 << 20  # bytes that they may add over so many requests


@contextmanager
def started(
    interruptible: Callable[[], None], *words: object, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process of a server, and its port."""
    command = [sys.executable, "-m", "maxtool", "serve", *map(str, words), "--port=0", "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        preexec_fn=interruptible,
    ) as process:
        try:
            assert process.stdout is not None
            said = b""
            while not said.endswith(b"\n}\n"):
                line = process.stdout.readline()
                assert line, process.communicate()[1].decode()
                said += line
            content = json.loads(said)
            assert content["schema"] == "maxtool.serve/1"
            yield process, int(content["url"].rpartition(":")[2])
        finally:
            process.kill()


def begun(port: int, body: dict[str, object]) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", COMPLETIONS, json.dumps(body), JSON)
    return connection


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is set as Linux does")
def test_fewer_files_than_there_are_clients(
    folders: dict[str, Path], interruptible: Callable[[], None]
) -> None:
    """Clients that are too many are refused, or cut off; the server goes on, and is quiet."""
    import resource

    def limited() -> None:
        interruptible()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with started(limited, folders["one"]) as (process, port), ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        stack.close()
        assert _served_at_last(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        note, end = process.stderr.read().decode().splitlines()
        assert re.fullmatch(r"\d+ connections .* instead of 512, as .*", note)
        assert end == "stopped"


def _served_at_last(port: int) -> bool:
    """Return whether a client is served once the server has seen that others are gone."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with suppress(ConnectionError, HTTPException):  # it cuts off those that are too many
            connection = begun(port, {"prompt": "Once", "max_tokens": 2})
            status = connection.getresponse().status
            connection.close()
            if status == 200:
                return True
            assert status == 503
        time.sleep(0.05)
    return False


def test_the_limit_of_files_is_raised() -> None:
    code = """if True:
        import resource
        from maxtool.serve.open_files import connections_within
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        assert connections_within(500) == 500
        assert 500 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 600
    """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished_when_the_server_is_stopped(
    folders: dict[str, Path], interruptible: Callable[[], None], kind: signal.Signals
) -> None:
    with started(interruptible, folders["several"]) as (process, port):
        asked = {"prompt": "Once", "max_tokens": 400, "n": 4, "temperature": 2.0, "stream": True}
        connection = begun(port, asked)
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        process.send_signal(kind)
        assert answer.read().endswith(b"data: [DONE]\n\n")
        assert process.wait(20) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))
        assert process.stderr is not None
        assert process.stderr.read() == b"stopped\n"
        connection.close()


def test_what_runs_too_long_is_cut_and_what_waits_is_told(
    folders: dict[str, Path], interruptible: Callable[[], None]
) -> None:
    words = folders["one"], "--stop-timeout=1"
    with started(interruptible, *words) as (process, port):
        long = {"prompt": ["Once"] * 8, "n": 8, "max_tokens": 500, "temperature": 2.0, "seed": 1}
        connection = begun(port, {**long, "stream": True})
        answer = connection.getresponse()
        answer.readline()
        began = time.monotonic()
        process.terminate()
        assert b'"stopping"' in answer.read()  # the texts of this request that were waiting
        assert process.wait(20) == 0
        assert time.monotonic() - began < 10
        connection.close()


def test_a_body_that_is_coming_is_told_that_the_server_stops(
    folders: dict[str, Path], interruptible: Callable[[], None]
) -> None:
    with started(interruptible, folders["one"]) as (process, port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            sock.sendall(f"{head}Content-Type: {JSON['Content-Type']}\r\n".encode())
            sock.sendall(b"Content-Length: 100\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 100 ")  # it reads the body from here on
            began = time.monotonic()
            process.terminate()
            said = b"".join(iter(lambda: sock.recv(4096), b""))
            assert time.monotonic() - began < 8, "not at the end of --stop-timeout"
        assert said.startswith(b"HTTP/1.1 503 ")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["code"] == "stopping"
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b"stopped\n"


def test_a_request_that_is_cut_off_is_told_that_the_server_stops() -> None:
    sent = list[Message]()

    async def for_ever(*_: object) -> None:
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    async def cut_off() -> None:
        guard = Guard(for_ever, None, Metrics())
        scope = {"type": "http", "path": "/", "headers": []}
        task = asyncio.ensure_future(guard(scope, for_ever, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(cut_off())
    assert [message.get("status") for message in sent] == [503, None]
    assert json.loads(sent[1]["body"])["error"]["code"] == "stopping"


def test_a_key_from_the_environment_is_never_printed(
    folders: dict[str, Path], interruptible: Callable[[], None]
) -> None:
    env = {"MAXTOOL_API_KEY": "very-secret"}
    with started(interruptible, folders["one"], env=env) as (process, port):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        assert answer.status == 401
        assert b"very-secret" not in answer.read()
        connection.close()
        process.terminate()
        stdout, stderr = process.communicate(timeout=20)
        assert b"very-secret" not in stdout + stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--port", "70000"], 2, "65535"),
        (["--queue", "0"], 2, "--queue"),
        (["--timeout", "nan"], 2, "--timeout"),
        (["--max-body", "much"], 2, "--max-body"),
        (["--api-key", ""], 2, "API key"),
        (["--host", "256.1.1.1"], 6, "cannot listen"),
        (["--host", ""], 2, "not an address"),
        (["--host", "\udcff"], 2, "not an address"),
        ([], 3, "no such folder"),
    ],
)
def test_options_that_do_not_work(words: list[str], code: int, says: str) -> None:
    done = CliRunner().invoke(app, ["serve", "nowhere", "--port", "0", *words])
    assert done.exit_code == code, done.output
    assert says in done.stderr


def test_folders_that_cannot_be_served_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "model").mkdir(parents=True)
    words = ["serve", *(str(tmp_path / name / "model") for name in "ab")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "called 'model'" in done.stderr


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", "nowhere", "--port", port])
    assert done.exit_code == 6
    assert "--port 0" in done.stderr


def test_connections_send_at_once_what_they_have() -> None:
    with listen("127.0.0.1", 0) as listener:
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_the_extra_it_is_named() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from maxtool.cli.app import app; app()"
    command = [sys.executable, "-c", code, "serve", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "pip install 'maxtool[serve]'" in done.stderr


@pytest.mark.slow
def test_memory_is_flat_over_thousands_of_requests(
    folders: dict[str, Path],
    interruptible: Callable[[], None],
    request: pytest.FixtureRequest,
) -> None:
    """Whole answers and streams, some broken off or refused; connections are kept and dropped."""
    rounds = ROUNDS if request.config.getoption("--everything") else FEWER
    with started(interruptible, folders["several"]) as (process, port):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        for number in range(rounds):
            asked: dict[str, object] = {
                "prompt": f"Once {number % 97}",
                "max_tokens": 1 + number % 3,
            }
            if number % 5 == 0:
                asked["stream"] = True
            if number % 7 == 0:
                asked = {"prompt": number}
            connection.request("POST", COMPLETIONS, json.dumps(asked), JSON)
            if number % 11 == 0:
                connection.close()  # a new one is opened for the next
            else:
                connection.getresponse().read()
            if number == WARM:
                before = anonymous(process.pid)
        assert anonymous(process.pid) - before < GROWTH
        connection.close()
        process.terminate()
        assert process.wait(20) == 0


def anonymous(pid: int) -> int:
    """Bytes of memory of a process that no file backs."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10
