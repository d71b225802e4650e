"""Errors of a compilation."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from maxtool.compiler import pipeline
from maxtool.compiler.targets import parse_target
from maxtool.errors import CompilationFailed


def stopped_by(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile with a pass of ours, which TVM calls back, that raises an error."""

    @tvm.transform.module_pass(opt_level=0)
    def broken(_module: Any, _context: Any) -> Any:
        raise error

    monkeypatch.setattr(pipeline, "PASSES", (lambda: broken,))
    pipeline.compile_module(tvm.IRModule({}), parse_target("cpu"))


def test_an_interrupt_is_none_of_tvms_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        stopped_by(KeyboardInterrupt(), monkeypatch)


def test_the_last_words_of_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompilationFailed, match="could not compile the model: no such thing"):
        stopped_by(ValueError("first\nno such thing"), monkeypatch)
