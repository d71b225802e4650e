"""S3 as moto's server speaks it, in a thread of this process, and connections to it that break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

BUCKET = "bucket"


@contextmanager
def serving() -> Iterator[Any]:
    """Yield a client of a server with a bucket, which the environment names."""
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()  # of another server
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    # All servers of a process have one state: what others left is not this one's.
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "sesame")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import boto3

        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client
    server.stop()


class Cutter:
    """A server in front of another, which breaks connections once so many bytes came by them.

    Args:
        url: The other server.
        most: The bytes that a connection lets pass towards it.
        times: How many connections it breaks; then it lets all pass.
    """

    def __init__(self, url: str, most: int, times: int) -> None:
        parts = urlsplit(url)
        self._behind = (str(parts.hostname), int(parts.port or 80))
        self._most, self._left = most, times
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._behind) as server:
            back = threading.Thread(target=self._pass, args=(server, client, None), daemon=True)
            back.start()
            self._pass(client, server, self._most)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                passed += len(data)
                if most is not None and passed > most and self._left > 0:
                    self._left -= 1
                    self.cut += 1
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
