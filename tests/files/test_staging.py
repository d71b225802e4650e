"""Outputs and those who write them at the same time, on systems that cannot do everything."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import OutputExists
from maxtool.files import check_output, forget_written, renames, scratch, staged, written

HOLD = """
import sys
from pathlib import Path
from maxtool.files import staged
with staged(Path(sys.argv[1])) as path:
    path.write_text("half")
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))  # noqa: PTH208


def fill(path: Path, text: str, *, folder: bool = False, replace: bool = True) -> None:
    with staged(path, folder=folder, replace=replace) as staging:
        (staging / "a" if folder else staging).write_text(text)


def text(path: Path) -> str:
    return (path / "a" if path.is_dir() else path).read_text()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A living process that is writing the output."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture(params=["exchange", "renames", "no links"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide this system; one without the newer renames, like NFS; one without links, like FAT."""

    def refused(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if request.param != "exchange":
        monkeypatch.setattr(renames, "_renameat2", lambda: None)
    if request.param == "no links":
        monkeypatch.setattr(os, "link", refused)


def killed(holder: subprocess.Popen[str], folder: Path, change: dict[str, Any]) -> str:
    """The hidden folder that a killed process leaves, its lock saying something else."""
    holder.kill()
    holder.wait()
    (hidden,) = names(folder)
    lock = folder / hidden / "lock"
    lock.write_text(json.dumps(json.loads(lock.read_text()) | change))
    return hidden


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("folder", [False, True])
class TestTwoWriters:
    def test_the_second_fails(self, tmp_path: Path, folder: bool) -> None:
        out = tmp_path / "out"
        with staged(out, folder=folder, replace=False) as staging:
            (staging / "a" if folder else staging).write_text("second")
            fill(out, "first", folder=folder, replace=False)
            with pytest.raises(OutputExists, match="another process"):
                fill(out, "third", folder=folder, replace=False)
            with pytest.raises(OutputExists):
                check_output(out, force=False)
            out.rename(tmp_path / "kept")
        assert (text(out), text(tmp_path / "kept")) == ("second", "first")
        assert names(tmp_path) == {"out", "kept"}

    def test_with_force_the_last_stays(self, tmp_path: Path, folder: bool) -> None:
        out = tmp_path / "out"
        fill(out, "old", folder=not folder)
        with staged(out, folder=folder) as staging:
            (staging / "a" if folder else staging).write_text("second")
            fill(out, "first", folder=not folder)
        assert text(out) == "second"
        assert names(tmp_path) == {"out"}


def test_a_folder_of_another_process_is_never_replaced_unasked(tmp_path: Path) -> None:
    with pytest.raises(OutputExists), staged(tmp_path / "out", replace=False) as staging:
        staging.write_text("new")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis").touch()
    assert names(tmp_path / "out") == {"thesis"}
    assert names(tmp_path) == {"out"}


class TestLeftovers:
    def test_what_a_living_process_writes_stays(
        self, tmp_path: Path, holder: subprocess.Popen[str]
    ) -> None:
        (hidden,) = names(tmp_path)
        for other in ("out", "other"):
            fill(tmp_path / other, "mine")
        assert names(tmp_path) == {hidden, "out", "other"}
        holder.communicate("")
        assert holder.returncode == 0
        assert names(tmp_path) == {"out", "other"}
        assert text(tmp_path / "out") == "half"

    def test_what_a_killed_one_wrote_goes(
        self, tmp_path: Path, holder: subprocess.Popen[str]
    ) -> None:
        """Remove leftovers whatever is written next in the folder."""
        holder.kill()
        holder.wait()
        assert len(names(tmp_path)) == 1
        check_output(tmp_path / "other", force=False)
        assert names(tmp_path) == set()

    @pytest.mark.parametrize(
        "change",
        [
            {"host": "elsewhere", "boot": "another"},
            {"locked": False},
            {"name": "../out"},
            {"name": 1},
            {"locked": "true"},
        ],
    )
    def test_what_may_be_alive_elsewhere_stays(
        self, tmp_path: Path, holder: subprocess.Popen[str], change: dict[str, Any]
    ) -> None:
        """Keep files of other machines, of file systems with private locks, or without locks."""
        hidden = killed(holder, tmp_path, change)
        fill(tmp_path / "out", "mine")
        assert names(tmp_path) == {hidden, "out"}
        assert (tmp_path / hidden / "new" / "out").read_text() == "half"

    @pytest.mark.parametrize("change", [{"host": "renamed"}, {"boot": "before"}])
    def test_a_machine_is_known_by_its_name_or_boot(
        self, tmp_path: Path, holder: subprocess.Popen[str], change: dict[str, Any]
    ) -> None:
        killed(holder, tmp_path, change)
        fill(tmp_path / "out", "mine")
        assert names(tmp_path) == {"out"}

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"{"])
    def test_what_is_not_understood_stays(self, tmp_path: Path, content: bytes) -> None:
        hidden = tmp_path / ".out.maxtool-0123abcd"
        (hidden / "new").mkdir(parents=True)
        (hidden / "lock").write_bytes(content)
        (tmp_path / ".out.maxtool-0123abce").mkdir()
        (tmp_path / ".out.maxtool-0123abce" / "thesis").touch()
        (tmp_path / ".out.maxtool-0123abcf").write_text("thesis")
        (tmp_path / ".out.maxtool-0123abc0").symlink_to(tmp_path)
        before = names(tmp_path)
        fill(tmp_path / "out", "mine")
        assert names(tmp_path) == before | {"out"}

    def test_without_locks_nothing_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_arguments: object) -> None:
            raise OSError(errno.ENOLCK, "no locks here")

        monkeypatch.setattr(scratch.fcntl, "flock", refused)
        with staged(tmp_path / "out") as staging:
            staging.write_text("new")
            (hidden,) = names(tmp_path)
            monkeypatch.undo()
            check_output(tmp_path / "other", force=True)
            assert names(tmp_path) == {hidden}
        assert text(tmp_path / "out") == "new"
        assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "." + "y" * 254])
@pytest.mark.parametrize("folder", [False, True])
def test_any_name_that_a_file_may_have(tmp_path: Path, name: str, folder: bool) -> None:
    for content in ("old", "new"):
        fill(tmp_path / name, content, folder=folder)
        assert text(tmp_path / name) == content
    assert names(tmp_path) == {name}


def test_a_full_disk_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fill(tmp_path / "out", "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        fill(tmp_path / "out", "new")
    assert text(tmp_path / "out") == "old"
    assert names(tmp_path) == {"out"}


def test_what_was_written_is_known(tmp_path: Path) -> None:
    forget_written()
    assert written() == []
    fill(tmp_path / "a", "new")
    with pytest.raises(ZeroDivisionError), staged(tmp_path / "b") as staging:
        staging.touch()
        raise ZeroDivisionError
    assert written() == [tmp_path / "a"]
    (tmp_path / "a").unlink()
    assert written() == []
