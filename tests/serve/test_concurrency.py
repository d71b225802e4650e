"""Many clients at once, also such as vanish, do not read, or send what is broken."""

from __future__ import annotations

import json
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maxtool.runtime import loader
from maxtool.runtime.loader.embedder import Embedder
from maxtool.runtime.loader.memory import Array
from tests.serve.conftest import SLOTS, serving, wait_until
from tests.serve.http_client import CHAT, COMPLETIONS, Client

CLIENTS = 200
ENDLESS = {"prompt": "Once", "max_tokens": 500, "n": 4, "temperature": 2.0, "stream": True}


def test_two_hundred_clients_and_each_gets_its_own_text(
    folders: dict[str, Path], client: Client
) -> None:
    model = loader.load(folders["one"])
    ids = model.encode("The")
    prompts = [loader.Prompt(ids, 3 + i % 5, loader.Sampling(1.0, seed=i)) for i in range(50)]
    expected = [one.text for one in loader.generate_many(model, prompts)]

    def ask(number: int) -> bool:
        index = number % 50
        asked: dict[str, object] = {
            "model": ("several", "one")[number % 2],
            "prompt": ids,
            "max_tokens": 3 + index % 5,
            "seed": index,
        }
        if number % 3:
            return bool(client.good(COMPLETIONS, asked)["choices"][0]["text"] == expected[index])
        pieces = client.events(COMPLETIONS, asked)
        return "".join(piece["choices"][0]["text"] for piece in pieces) == expected[index]

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert all(pool.map(ask, range(CLIENTS)))
    wait_until(client.idle)
    assert client.ask("/health")[0] == 200


def test_requests_share_steps(client: Client) -> None:
    with client.asking("/metrics") as answer:
        before = rows_of(answer.read().decode())
    asked = {"model": "several", "prompt": "The", "n": SLOTS, "max_tokens": 20, "seed": 5}
    client.good(COMPLETIONS, asked)
    with client.asking("/metrics") as answer:
        steps, texts = (b - a for a, b in zip(before, rows_of(answer.read().decode()), strict=True))
    assert texts > 2 * steps


def rows_of(metrics: str) -> tuple[float, float]:
    """The number of steps, and of the texts in all of them."""
    lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if "several" in line)
    name = 'maxtool_step_texts_{}{{model="several"}}'
    return float(lines[name.format("count")]), float(lines[name.format("sum")])


@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_goes_away_frees_its_places(client: Client, name: str, streams: bool) -> None:
    wait_until(client.idle)
    worker = client.models[name].worker
    assert worker is not None
    asked = {**ENDLESS, "model": name, "stream": streams, "prompt": ["Once"] * 8}
    sock = client.opened(COMPLETIONS, asked)
    wait_until(lambda: bool(worker.running and worker.waiting))
    if streams:
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    sock.close()
    wait_until(client.idle, 2)
    assert client.good(COMPLETIONS, {"model": name, "prompt": "Once"})


def test_vectors_that_nobody_waits_for_are_not_made(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, batches = Embedder._run, list[int]()

    def slowly(self: Embedder, ids: list[list[int]]) -> Array:
        batches.append(len(ids))
        time.sleep(0.05)
        return made(self, ids)

    monkeypatch.setattr(Embedder, "_run", slowly)
    sock = client.opened("/v1/embeddings", {"model": "vectors", "input": ["a"] * 2048})
    wait_until(lambda: bool(batches))
    sock.close()
    client.good("/v1/embeddings", {"model": "vectors", "input": "a"})
    assert len(batches) < 2048 // max(batches)


def test_whoever_does_not_read_holds_up_nobody(client: Client) -> None:
    socks = [client.opened(COMPLETIONS, {**ENDLESS, "model": "several"}) for _ in range(3)]
    asked = {"model": "several", "prompt": "Once", "max_tokens": 3}
    assert client.good(COMPLETIONS, asked)["usage"]["completion_tokens"] == 3
    for sock in socks:
        sock.close()
    wait_until(client.idle)


def test_what_is_broken_off_anywhere_leaves_nothing_behind(client: Client) -> None:
    """Requests cut at random places, and answers that nobody reads to their end."""
    draw = random.Random(4)
    body = json.dumps({**ENDLESS, "model": "several"}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for number in range(60):
        with socket.create_connection(("127.0.0.1", client.port), timeout=60) as sock:
            sock.sendall(whole[: draw.randrange(len(whole) + 1)])
            if number % 3 == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1] + [0] * 7))
    wait_until(client.idle)
    garbage = [b"\x16\x03\x01" + bytes(200), b"GET / HTTP/9\r\n\r\n", b"x" * 100_000]
    for data in garbage:
        with socket.create_connection(("127.0.0.1", client.port), timeout=60) as sock:
            sock.sendall(data)
    assert client.good("/health") == {"status": "ok"}


def test_only_so_many_requests_are_read_at_once(folders: dict[str, Path]) -> None:
    """Two clients send only the beginning of a body: they hold both places until they go."""
    with serving(folders, "one", queue=2) as client:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        slow = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(2)]
        for sock in slow:
            sock.sendall(head + b"Content-Type: application/json\r\n\r\n{")
        asked = {"prompt": "Once", "max_tokens": 1}
        wait_until(lambda: client.ask(COMPLETIONS, asked)[0] == 429)
        for sock in slow:
            sock.close()
        wait_until(lambda: client.ask(COMPLETIONS, asked)[0] == 200)


def test_a_reader_too_slow_is_left(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that is not read to its end within its time is cut off."""
    monkeypatch.setattr("maxtool.serve.endpoints.SLOW_READER", 0.2)
    with serving(folders, "one", seconds=0.3) as client:
        sock = client.opened(COMPLETIONS, {**ENDLESS, "model": "one", "logprobs": 20, "n": 16})
        wait_until(lambda: not client.idle())
        wait_until(client.idle, 5)
        wait_until(lambda: not client.server.server_state.tasks, 5)
        sock.close()


def test_a_model_that_fails_is_told_and_goes_on(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The machine's lack ends what is running; a fault of the program ends the model."""
    with serving(folders, "several") as client:
        asked = {"prompt": "Once", "max_tokens": 2}

        def failing(error: Exception) -> None:
            def fail(*_: object) -> None:
                raise error

            monkeypatch.setattr("maxtool.runtime.loader.side_by_side.SideBySide.step", fail)

        with monkeypatch.context():
            failing(loader.MachineLacks("no memory"))
            assert client.refused(500, COMPLETIONS, asked)["message"] == "no memory"
        monkeypatch.undo()
        assert client.good(COMPLETIONS, asked)
        failing(ZeroDivisionError("a fault"))
        assert "fails" in client.refused(500, COMPLETIONS, asked)["message"]
        assert client.refused(503, COMPLETIONS, asked)
        assert client.ask("/health")[0] == 503
    assert "a fault" in capsys.readouterr().err


@pytest.mark.parametrize(
    "where",
    [
        "maxtool.runtime.loader.side_by_side.SideBySide.begin",
        "maxtool.runtime.loader.side_by_side.SideBySide.end",
        "maxtool.serve.worker.places_of",
    ],
)
def test_whatever_fails_nobody_is_left_waiting(
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: str,
) -> None:
    """Also where it is no step that fails, or what begins anew after one."""
    with serving(folders, "several", seconds=20) as client:

        def fail(*_: object) -> None:
            raise MemoryError(where)

        def lack(*_: object) -> None:
            raise loader.MachineLacks("no memory")

        if where.endswith("places_of"):
            monkeypatch.setattr("maxtool.runtime.loader.side_by_side.SideBySide.step", lack)
        monkeypatch.setattr(where, fail)
        asked = {"prompt": ["Once"] * (SLOTS + 2), "max_tokens": 2, "n": 2}
        status, answer = client.ask(COMPLETIONS, asked)
        assert status in (500, 503), answer
        assert client.refused(503, COMPLETIONS, asked)
        assert client.ask("/health")[0] == 503
    assert where in capsys.readouterr().err


def test_conversations_are_read_beside_each_other(client: Client) -> None:
    """Templates are rendered in processes of their own, of which only a few run at once."""
    asked = {"model": "several", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda seed: client.good(CHAT, {**asked, "seed": seed}), range(8)))
    assert all(answer["usage"]["completion_tokens"] <= 2 for answer in answers)
