"""Paths of outputs, and that they appear whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool.errors import OutputExists, UsageError
from maxtool.files import check_output, staged


def fill(path: Path, *, folder: bool) -> None:
    with staged(path, folder=folder) as staging:
        (staging / "new" if folder else staging).write_text("new")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# What is in the way, by name; the parameter is where.
OBSTACLES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path,
    "a file": lambda path: path.write_text("old"),
    "an empty folder": Path.mkdir,
    "a link to a folder": lambda path: path.symlink_to(path.parent / "kept"),
    "a link to a file": lambda path: path.symlink_to(path.parent / "kept" / "thesis"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_an_output_replaces_what_is_there(tmp_path: Path, obstacle: str, folder: bool) -> None:
    """Replace the link itself; the file it points at stays."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "thesis").write_text("old")
    out = tmp_path / "out"
    OBSTACLES[obstacle](out)
    fill(out, folder=folder)
    assert (out / "new" if folder else out).read_text() == "new"
    assert not out.is_symlink()
    assert names(tmp_path) == {"kept", "out"}
    assert (tmp_path / "kept" / "thesis").read_text() == "old"


def test_no_name_is_special(tmp_path: Path) -> None:
    for name in ("replaced", "old", ".out", "sp ace é 世界"):
        for _ in range(2):
            fill(tmp_path / name, folder=True)
        assert names(tmp_path / name) == {"new"}


def test_a_failure_leaves_the_old_output(tmp_path: Path) -> None:
    fill(tmp_path / "out", folder=True)
    with pytest.raises(ZeroDivisionError), staged(tmp_path / "out", folder=True) as staging:
        (staging / "half").touch()
        raise ZeroDivisionError
    assert names(tmp_path) == {"out"}
    assert names(tmp_path / "out") == {"new"}


def test_the_folder_one_stands_in_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for output in ("", ".", "..", "below/..", str(tmp_path / "here")):
        with pytest.raises(UsageError, match="runs in"):
            check_output(Path(output), force=True)
    check_output(Path("below"), force=True)


def test_an_output_named_by_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    fill(Path("out/below/.."), folder=True)
    assert names(tmp_path / "out") == {"new"}


@pytest.mark.parametrize("output", ["source", "source/out", "source/link", "link", "."])
def test_sources_are_never_written(tmp_path: Path, output: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "link").symlink_to(source / "out")
    (source / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="source"):
        check_output(tmp_path / output, force=True, sources=(source,))


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OutputExists):
        check_output(tmp_path / "link", force=False)
    with pytest.raises(UsageError, match="does not exist"):
        check_output(tmp_path / "link" / "out", force=True)
