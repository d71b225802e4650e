"""Cost of opening a file: three bytes of it must not become megabytes or minutes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool.errors import MalformedFile
from maxtool.weights import locate, open_checkpoint

MEGABYTES = 100
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 2

OPEN = """
import sys
from pathlib import Path
from maxtool.errors import InputError
from maxtool.weights import open_checkpoint
from tests.machine import Stopwatch
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
with Stopwatch() as watch:
    try:
        said = f"{len(open_checkpoint(Path(sys.argv[1])).tensors)} tensors"
    except InputError as error:
        said = str(error)
print(watch.seconds)
print(said)
"""


def safetensors(header: bytes, payload: int = 0) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(payload)


def many_tensors(count: int) -> bytes:
    entries = {
        f"t{n}": {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n in range(count)
    }
    return safetensors(json.dumps(entries, separators=(",", ":")).encode(), count)


def gguf_tensors(count: int) -> bytes:
    one = b"".join(
        struct.pack("<Q", 7) + b"t%06d" % n + struct.pack("<IQIQ", 1, 8, 0, 32 * n)
        for n in range(count)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, count, 0) + one
    return head + bytes(-len(head) % 32 + 32 * count)


def gguf_strings(count: int, text: bytes) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    head += struct.pack("<IIQ", 9, 8, count)
    head += b"".join(struct.pack("<Q", len(item)) + item for item in [text] * count)
    return head + bytes(-len(head) % 32)


def repeated(body: bytes, size: int) -> bytes:
    return safetensors(b'{"a":[' + body * (size // len(body)) + b"0]}")


REFUSED: dict[str, Callable[[], bytes]] = {
    "nested braces": lambda: safetensors(b"{" * 20_000_000),
    "empty objects": lambda: repeated(b"{},", 20_000_000),
    "empty lists": lambda: repeated(b"[],", 20_000_000),
    "small objects": lambda: repeated(b'{"":0},', 20_000_000),
    "numbers": lambda: repeated(b"0,", 20_000_000),
    "one wide text": lambda: safetensors(b'{"a":"\xf0\x9f\x98\x80' + b"x" * 50_000_000 + b'"}'),
    "200000 tensors": lambda: many_tensors(200_000),
    "200000 GGUF tensors": lambda: gguf_tensors(200_000),
    "2 million strings": lambda: gguf_strings(2_000_000, b"ab"),
    "one string of 40 MB": lambda: gguf_strings(1, b"\xf0\x9f\x98\x80" + b"x" * 40_000_000),
}
ACCEPTED: dict[str, Callable[[], bytes]] = {
    "100000 tensors": lambda: many_tensors(100_000),
    "100000 GGUF tensors": lambda: gguf_tensors(100_000),
    "a vocabulary of 780000 strings": lambda: gguf_strings(780_000, b"abcdefg"),
}


# Those of which others show the same.
ALIKE = {
    *("empty lists", "empty objects", "small objects", "numbers", "one string of 40 MB"),
    *("200000 tensors", "200000 GGUF tensors", "100000 tensors"),
}


def anonymous_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next((line for line in status.splitlines() if line.startswith("RssAnon")), "x 0")
    return int(line.split()[1]) / 1024


def opened(path: Path) -> tuple[str, float, float]:
    """Return the message of opening, its seconds on the nominal machine, and its peak memory."""
    command = [sys.executable, "-c", OPEN, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        peak = anonymous_megabytes(process.pid)
        while process.poll() is None:
            peak = max(peak, anonymous_megabytes(process.pid))
            time.sleep(0.001)
        seconds, said = process.stdout.read().split("\n", 1)
    return said, float(seconds), peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else [])
        for name in (*REFUSED, *ACCEPTED)
    ],
)
def test_opening_is_bounded(tmp_path: Path, name: str) -> None:
    result = (REFUSED | ACCEPTED)[name]()
    path = tmp_path / ("x.gguf" if result[:4] == b"GGUF" else "x.safetensors")
    path.write_bytes(result)
    said, seconds, peak = opened(path)
    assert seconds < SECONDS
    assert peak < MEGABYTES
    assert ("accepted" in said) == (name in REFUSED), said


def test_shards_may_not_hold_too_much_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "MAX_TENSORS", 10)
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(many_tensors(6))
    index = {"weight_map": {"t0": "a.safetensors", "t1": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(MalformedFile, match="more than 10 tensors in all files") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.file == str(tmp_path / "b.safetensors")
