"""The page of a server, in a real browser."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from maxtool.runtime.loader import Conversation, load
from maxtool.serve.server import Access
from tests.artifact.illustrated import picture, written
from tests.artifact.making import made
from tests.cli import browser
from tests.serve.conftest import serving, wait_until
from tests.serve.driven_browser import opened
from tests.serve.http_client import COMPLETIONS, Client

pytestmark = [pytest.mark.slow, pytest.mark.peers]
MINE = (0x2F, 0x6F, 0xB3)
SAID = "[...document.querySelectorAll('#said > .model')].map(box => box.textContent)"
SEND = "document.getElementById('form').requestSubmit()"
IS_IDLE = "!document.getElementById('go').disabled"


@pytest.fixture(autouse=True)
def _browser() -> None:
    browser.needed()


def fill(**values: object) -> str:
    return ";".join(f"document.getElementById('{key}').value = '{v}'" for key, v in values.items())


@pytest.mark.parametrize("width", [400, 1200])
def test_texts_and_replies_are_shown(client: Client, tmp_path: Path, width: int) -> None:
    asked = {"model": "several", "prompt": "Once", "max_tokens": 20, "seed": 3, "temperature": 0.7}
    expected = client.good(COMPLETIONS, asked)["choices"][0]["text"]
    with opened(f"http://127.0.0.1:{client.port}/", tmp_path, width, 800) as page:
        page.wait("document.readyState == 'complete' && document.getElementById('model').length")
        options = page.run("[...document.getElementById('model').options].map(one => one.value)")
        assert options == ["one", "several"]
        page.run(fill(model="several", task="text", prompt="Once", tokens=20, seed=3))
        page.run(SEND)
        page.wait(f"{IS_IDLE} && document.getElementById('note').textContent")
        assert page.run(SAID) == [expected]
        assert "20 made" in page.run("document.getElementById('note').textContent")
        page.run(fill(task="chat", prompt="Hello <b>there</b>"))
        page.run(SEND)
        page.wait(f"{IS_IDLE} && document.querySelectorAll('#said > .model').length == 2")
        assert page.run("document.querySelectorAll('#said b').length") == 0
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        pixels = page.pixels()
    mine = (np.abs(pixels.astype(int) - MINE) <= 2).all(axis=-1)
    assert mine.sum() > 500  # the button, and the lines beside what the user said
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_a_text_can_be_stopped_and_a_key_is_asked_for(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(serving(folders, "one", access=Access(key="secret")))
        url = f"http://127.0.0.1:{client.port}/"
        page = stack.enter_context(opened(url, tmp_path, 900, 800))
        page.wait("document.getElementById('note')?.textContent.includes('API key')")
        page.run(fill(key="secret", task="text", prompt="Once", tokens=500, temperature=2))
        page.run(SEND)
        page.wait(f"({SAID})[0]")
        page.run("document.getElementById('stop').click()")
        page.wait("document.getElementById('note').textContent == 'Stopped.'")
        wait_until(client.idle, 5)


def test_an_image_is_shown_and_sent(tmp_path: Path) -> None:
    source = written(tmp_path / "model", "whole", whole=True)
    file = picture(tmp_path / "x.png", 1)
    folders = {"words": made(source, tmp_path / "words", recipe="gemma3_vision")}
    folders["images"] = made(source, tmp_path / "images")
    expected = "".join(Conversation(load(folders["images"])).ask("what?", 5, [file]))
    content = base64.b64encode(file.read_bytes()).decode()
    attach = (
        f"const bytes = Uint8Array.from(atob('{content}'), one => one.charCodeAt(0));"
        "const held = new DataTransfer(); held.items.add(new File([bytes], 'x.png', "
        "{type: 'image/png'})); document.getElementById('image').files = held.files"
    )
    changed = "document.getElementById('model').dispatchEvent(new Event('change'))"
    is_hidden = "document.getElementById('pictures').hidden"
    with ExitStack() as stack:
        client = stack.enter_context(serving(folders, *folders))
        page = stack.enter_context(opened(f"http://127.0.0.1:{client.port}/", tmp_path, 900, 800))
        page.wait("document.getElementById('model')?.length == 2")
        assert page.run(is_hidden)
        page.run(f"{fill(model='images', prompt='what?', tokens=5, temperature=0)};{changed}")
        assert not page.run(is_hidden)
        page.run(f"(() => {{ {attach} }})()")
        page.run(SEND)
        page.wait(f"{IS_IDLE} && document.querySelectorAll('#said > .model').length == 1")
        assert page.run(SAID) == [expected]
        page.wait("document.querySelector('#said > .user img').naturalWidth == 17")
