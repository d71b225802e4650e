"""Servers in threads of this process, over models that are compiled once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from maxtool import artifact
from maxtool.serve.limits import Limits
from maxtool.serve.metrics import Metrics
from maxtool.serve.opened import opened
from maxtool.serve.server import Access, Server, application, listen
from tests.serve.http_client import Client

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 4
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ more }}assistant:"
Serve = Callable[..., Iterator[Client]]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sample model without slots and with some, for conversations, and a small encoder."""
    base = tmp_path_factory.mktemp("served")
    source = shutil.copytree(ROOT / "samples" / "fireside", base / "source")
    config = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    encoder = ROOT / "tests" / "data" / "tiny-bert"
    sources = {"one": (source, 1), "several": (source, SLOTS), "vectors": (encoder, 1)}
    for name, (path, batch) in sources.items():
        artifact.make(artifact.prepare(artifact.Request(path, base / name, batch=batch)))
    return {name: base / name for name in sources}


@contextmanager
def serving(
    folders: dict[str, Path], *names: str, access: Access | None = None, **limits: float
) -> Iterator[Client]:
    """A server of some models, for as long as the block runs."""
    bounds, metrics = Limits(**limits), Metrics()  # type: ignore[arg-type]
    chosen = {name: folders[name] for name in names}
    models = opened(chosen, bounds, metrics, device=None, check=True, progress=lambda _: None)
    access = access or Access()
    server = Server(application(models, access, bounds, metrics), models, bounds)
    with listen(access.host, 0) as listener:
        client = Client(listener.getsockname()[1], {model.name: model for model in models}, server)
        thread = Thread(target=server.serve_on, args=[listener])
        thread.start()
        try:
            yield client
        finally:
            server.stop()
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def client(folders: dict[str, Path]) -> Iterator[Client]:
    """A server of all three models, with the usual limits."""
    with serving(folders, *folders) as client:
        yield client


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition; fails if it does not come to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
