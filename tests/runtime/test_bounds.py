"""Checks of a model's inputs before memory is spent on them."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from maxtool.runtime import loader
from maxtool.runtime.loader import archive, bounded, chat, tokens
from maxtool.runtime.loader.errors import TooLong
from tests.effort import thinned

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, PROMPT, STORY, VOCAB, fails

ONCE = "Once upon a time "
BYTES = CONTEXT * tokens.MOST_BYTES


class Counting:
    """A tokenizer that remembers how much it was given at most."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.most = tokenizer, 0

    def encode(self, text: str, **options: Any) -> Any:
        self.most = max(self.most, len(text))
        return self.tokenizer.encode(text, **options)

    def encode_batch(self, texts: list[str]) -> Any:
        self.most = max(self.most, *map(len, texts))
        return self.tokenizer.encode_batch(texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


@pytest.fixture
def counting(artifact: Path) -> tuple[loader.Model, Counting]:
    model = loader.load(artifact)
    model._tokenizer = Counting(model.open_tokenizer())
    return model, model._tokenizer


@pytest.mark.parametrize(
    "length", thinned([CONTEXT * 20, BYTES, BYTES + 1, 50_000_000], CONTEXT * 20, BYTES, BYTES + 1)
)
def test_a_prompt_that_cannot_fit_is_not_tokenized(
    counting: tuple[loader.Model, Counting], length: int
) -> None:
    model, tokenizer = counting
    with pytest.raises(TooLong, match=f"holds {CONTEXT}.*shorten it, or compile") as caught:
        model.encode((ONCE * (length // len(ONCE) + 1))[:length])
    assert tokenizer.most <= CONTEXT * tokens.USUAL_BYTES
    assert caught.value.exit_code == 4


def test_a_long_text_of_few_tokens_is_read_whole() -> None:
    """A word that is not in the vocabulary is one token, however long it is."""
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1}, "[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    text = f"{'x' * 3000} {' ' * 3000} a"
    assert tokens.encode(library, text, CONTEXT, "the prompt") == [0, 1]


@pytest.mark.parametrize("way", ["--prompt", "--file"])
def test_a_prompt_of_any_length(artifact: Path, tmp_path: Path, way: str) -> None:
    text = "She loved " * 5000
    (tmp_path / "long.txt").write_text(text)
    inputs = text if way == "--prompt" else tmp_path / "long.txt"
    fails(artifact, 4, way, inputs, says="help: shorten it, or compile the model with a larger")


def test_stdin_without_an_end(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr("sys.stdin", endless)
        fails(artifact, 4, "--file", "-", says=f"more than {BYTES} bytes")


def template(text: str) -> chat.ChatTemplate:
    return chat.ChatTemplate(text, Path("t.jinja"))


HUNDRED_MEGABYTES = "{% for i in range(10000) %}{{ 'abcdefghij' * 1000 }}{% endfor %}"


def test_a_template_that_writes_without_an_end() -> None:
    with pytest.raises(TooLong, match="has 100000000 characters"):
        template(HUNDRED_MEGABYTES).render([], context=CONTEXT)
    assert (
        len(template("{{ 'a' * n }}".replace("n", str(BYTES))).render([], context=CONTEXT)) == BYTES
    )


def test_a_conversation_that_cannot_fit_is_not_tokenized() -> None:
    counting = Counting(tiny_artifact.library())
    encoder = chat.ChatEncoder(template("{{ 'She ' * 3000 }}"), counting, CONTEXT)
    with pytest.raises(TooLong, match="the conversation has more than"):
        encoder.encode([])
    assert counting.most <= CONTEXT * tokens.USUAL_BYTES
    with pytest.raises(TooLong, match="the message has"):
        encoder.encode([{"role": "user", "content": "x" * (BYTES + 1)}])


def test_a_program_that_answers_without_an_end() -> None:
    """Limit the output of a process, and end it."""
    endless = [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 65536)"]
    assert bounded.output_of(endless, b"", 1 << 20) is None
    silent = [sys.executable, "-c", "import sys; sys.stdin.close()"]
    assert bounded.output_of(silent, b"x" * (1 << 20), 1 << 20) == b""
    assert bounded.output_of([sys.executable, "-c", "raise SystemExit(1)"], b"", 9) is None


def npz(path: Path, arrays: dict[str, Any], *, header: bytes | None = None) -> Path:
    """An npz file, compressed; of ``header`` alone where that is given, then zeros."""
    if header is None:
        np.savez_compressed(path, **arrays)
        return path
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as result,
        result.open("x.npy", "w") as entry,
    ):
        entry.write(header)
        for _ in range(100):
            entry.write(bytes(1 << 20))
    return path


def test_arrays_that_do_not_fit_are_not_unpacked(artifact: Path, tmp_path: Path) -> None:
    def unpacked(*_: object) -> None:
        raise AssertionError("it was unpacked")

    long = npz(tmp_path / "long.npz", {"input_ids": np.zeros((1, 10**6), np.int64)})
    flat = npz(tmp_path / "flat.npz", {"input_ids": np.zeros(10**6, np.int64)})
    many = npz(tmp_path / "many.npz", {"input_ids": np.zeros((10**6, 9), np.int64)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "_array", unpacked)
        model = loader.load(artifact)
        entry = model.entry("forward")

        def look(shapes: Any) -> None:
            from maxtool.runtime.loader.inputs import check_shapes

            check_shapes(model.manifest, entry, shapes)

        with pytest.raises(loader.DoesNotFit, match="seq is 1000000"):
            archive.read_arrays(long, ["input_ids"], look)
        with pytest.raises(loader.BadInput, match="tensor input_ids"):
            archive.read_arrays(flat, ["input_ids"], look)
        with pytest.raises(loader.BadInput, match="more than 100 times as many"):
            archive.read_arrays(many, ["input_ids"], look)
    fails(
        artifact, 4, "--inputs", long, says=f"the model takes at most {CONTEXT}\n  at: file {long}"
    )
    fails(artifact, 3, "--inputs", many, says="help: save the array without compression")


def header(shape: tuple[int, ...], descr: str = "<i8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (header((1 << 40,)), "bytes"),
        (header((1 << 20, 1 << 20, 1 << 20)), "bytes"),
        (header((3,), "|O"), "Python objects"),
        (b"\x93NUMPY\x03\x00" + header((3,))[8:], "version"),
        (b"no array at all", "no npz file"),
        (header((3,))[:20], "no npz file"),
    ],
)
def test_headers_that_lie(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as result:
        result.writestr("x.npy", raw + bytes(48))
    with pytest.raises(loader.BadInput, match=says) as caught:
        archive.read_arrays(path)
    assert caught.value.file == str(path)


def test_an_archive_of_zeros(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", {}, header=header(((100 << 20) // 8,)))
    with pytest.raises(loader.BadInput, match="that unpack to") as caught:
        archive.read_arrays(path)
    assert caught.value.tensor == "x"


def test_a_name_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as result, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            result.writestr("x.npy", header((3,)) + bytes(24))
    with pytest.raises(loader.BadInput, match="2 arrays of 1 names"):
        archive.read_arrays(path)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    arrays = {
        "a": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "b": np.float32(3),
        "c": np.array(["é"]),
        "d": np.arange(4, dtype=">i2"),
    }
    result, others = archive.read_arrays(npz(tmp_path / "x.npz", arrays), ["a", "b", "c", "d"])
    assert others == []
    for name, array in arrays.items():
        np.testing.assert_array_equal(result[name], array)


def test_the_story_is_still_told(artifact: Path) -> None:
    assert VOCAB == 512
    assert tiny_artifact.run(artifact, "--prompt", PROMPT).stdout == f"{PROMPT}{STORY}\n"
