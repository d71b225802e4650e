"""A small artifact for tests, put together as ``maxtool compile`` would, but without it."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any
from unittest.mock import patch

import numpy as np
import sentencepiece
import tokenizers

from maxtool import tokenizer as room
from maxtool.artifact.manifest import copy_loader
from maxtool.runtime import loader
from maxtool.runtime.loader.manifest import CHECKSUM
from maxtool.runtime.loader.manifest_parser import SCHEMA

CONTEXT, VOCAB, BOS, EOS = 48, 512, 1, 2
PROMPT, STORY = "Once upon a time", ", there was a café 日🎉."
HERE = Path(__file__).parent
CORPUS = ["Once upon a time there was a little girl named Lily.", "She loved to play outside."]
BLOCKER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tvm", "maxtool", "ml_dtypes"}:
            raise ImportError(f"{name} is blocked in this test")
sys.meta_path.insert(0, Block())
"""


@cache
def train_tokenizer() -> bytes:
    """A SentencePiece model with byte pieces, which text outside its few characters needs."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 20),
        model_writer=out,
        vocab_size=320,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return out.getvalue()


def encode(text: str) -> list[int]:
    """Token ids as the sentencepiece package gives them, behind the beginning-of-text token."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer())
    return [BOS, *processor.encode(text)]


def compile_module(folder: Path) -> Path:
    """Compile ``model.so`` in a process of its own, so that this one never imports tvm."""
    command = [sys.executable, HERE / "build_artifact.py", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "model.so"


@cache
def library() -> tokenizers.Tokenizer:
    """The tokenizer of the artifact."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.model").write_bytes(train_tokenizer())
        tokenizer = room.read(Path(folder))
    assert tokenizer is not None
    return tokenizers.Tokenizer.from_str(room.to_json(tokenizer))


def make(
    folder: Path, module: Path, tokens: list[int], prompt: int, template: str | None = None
) -> dict[str, Any]:
    """Fill ``folder``; behind a prompt of ``prompt`` tokens the model generates ``tokens``."""
    folder.mkdir()
    shutil.copy(module, folder / "model.so")
    copy_loader(folder)
    (folder / "tokenizer.json").write_text(library().to_str(), encoding="utf-8")
    manifest = contents(_weights(folder / "weights.bin", tokens, prompt))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        chat = {"chat_template": "chat_template.jinja", "special_tokens": special}
        manifest["tokenizer"].update(chat)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    manifest["files"] = {str(file.relative_to(folder)): checksum(file) for file in files}
    write(folder, manifest)
    return manifest


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest that lies in a folder."""
    loaded = json.loads((folder / "manifest.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def write(folder: Path, manifest: Any) -> None:
    """Write a manifest, with the checksum of what it says by now."""
    whole = {**manifest, CHECKSUM: loader.checksum(manifest)}
    (folder / "manifest.json").write_text(json.dumps(whole), encoding="utf-8")


def checksum(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def contents(weights: list[dict[str, object]]) -> dict[str, Any]:
    ids = {"name": "input_ids", "dtype": "int64"}
    position = {"name": "position", "dtype": "int32", "shape": [1]}
    logits = {"name": "logits", "dtype": "float32", "shape": ["batch", VOCAB]}
    cache = {"name": "cache", "dtype": "float32", "shape": ["batch", CONTEXT], "positions": 1}
    seq = {**ids, "shape": ["batch", "seq"]}
    one = {**ids, "shape": ["batch", 1]}
    every = {**logits, "shape": ["batch", "seq", VOCAB]}
    return {
        "schema": SCHEMA,
        "maxtool": "0.1.0",
        "tvm": "0.27.0.post1",
        "tvm_ffi": "0.1.14.post1",
        "name": "tiny",
        "recipe": "none",
        "architecture": "none",
        "task": "generate",
        "dtype": "float32",
        "context": CONTEXT,
        "vocab_size": VOCAB,
        "target": {"kind": "cpu", "triple": f"{platform.machine()}-linux-gnu", "features": []},
        "module": "model.so",
        "entries": {
            "forward": entry("forward", [seq], every, state=False),
            "prefill": entry("prefill", [seq, position], logits, state=True),
            "decode": entry("decode", [one, position], logits, state=True),
        },
        "state": [cache],
        "weights": {"file": "weights.bin", "alignment": 64, "tensors": weights},
        "limits": {"seq": CONTEXT, "input_ids": [0, VOCAB - 1]},
        "tables": [{"weight": "plan", "index": "context", "skipped": 0}],
        "files": {},
        "build": {},
        "tokenizer": {
            "file": "tokenizer.json",
            "bos_token_id": BOS,
            "eos_token_ids": [EOS],
            "add_bos": True,
        },
        "check": {"status": "not checked"},
    }


def entry(function: str, inputs: list[Any], output: Any, *, state: bool) -> dict[str, object]:
    return {"function": function, "inputs": inputs, "outputs": [output], "state": state}


def plan(tokens: list[int], prompt: int) -> np.ndarray[Any, Any]:
    """Logits by position: ``tokens`` one after the other from the prompt's last position on."""
    table = np.random.default_rng(3).normal(size=(CONTEXT, VOCAB)).astype(np.float32)
    for i, token in enumerate(tokens):
        if prompt - 1 + i < CONTEXT:
            table[prompt - 1 + i, token] = 30.0
    return table


def _weights(path: Path, tokens: list[int], prompt: int) -> list[dict[str, object]]:
    arrays = {
        "plan": (plan(tokens, prompt), "float32"),
        "half": (np.arange(3, dtype=np.float16), "float16"),
        "brain": (np.arange(3, dtype=np.uint16), "bfloat16"),
    }
    data = b""
    tensors: list[dict[str, object]] = []
    for name, (array, dtype) in arrays.items():
        data += bytes(-len(data) % 64)
        place = {"offset": len(data), "nbytes": array.nbytes}
        tensors.append({"name": name, "dtype": dtype, "shape": list(array.shape), **place})
        data += array.tobytes()
    path.write_bytes(data)
    return tensors


def _compiled(_: object, data: bytes, path: str, **_options: object) -> CodeType:
    """Code of the loader's files: each artifact has its own, which are equal in most."""
    return _code(bytes(data), Path(path).name)


@cache
def _code(data: bytes, name: str) -> CodeType:
    return compile(data, name, "exec", dont_inherit=True)


def fails(folder: Path, code: int, *arguments: object, says: str) -> None:
    """The program, in this process for speed, ends with one error that says so."""
    spec = importlib.util.spec_from_file_location("run", folder / "run.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules["run"] = program
    stdout, stderr = io.StringIO(), io.StringIO()
    try:
        with patch.object(SourceFileLoader, "source_to_code", _compiled):
            spec.loader.exec_module(program)
            with redirect_stdout(stdout), redirect_stderr(stderr):
                ended = program.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        ended = stop.code
    finally:
        del sys.modules["run"]
    said = stderr.getvalue()
    assert ended == code, said
    assert not stdout.getvalue()
    assert said.startswith("error: ")
    assert said.count("error: ") == 1
    assert all(
        line.startswith(("error: ", "  - ", "  at: ", "  help: ")) for line in said.splitlines()
    )
    assert says in said


def run(
    folder: Path, *arguments: object, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the artifact's own program where neither tvm nor maxtool can be imported."""
    blocker = folder.parent / "blocker"
    blocker.mkdir(exist_ok=True)
    (blocker / "sitecustomize.py").write_text(BLOCKER)
    command = [sys.executable, folder / "run.py", *map(str, arguments)]
    full = {**os.environ, "PYTHONPATH": str(blocker), **(env or {})}
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env=full,
        check=False,
        cwd=folder.parent,
    )
