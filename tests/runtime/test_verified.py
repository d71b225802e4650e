"""Large files are hashed once: only what cannot have changed since is taken for verified."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool.runtime.loader import Manifest, NotVerified, verified

Hashed = Callable[[Path], set[str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, which notes small files too, however new they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "LARGE", 1)
    monkeypatch.setattr(verified, "SETTLED_NS", -(1 << 62))
    return tmp_path / "cache" / "maxtool" / "verified"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Hashed:
    """Verify an artifact, and return the names of the files that were hashed."""
    from maxtool.runtime.loader import manifest as room

    names: set[str] = set()
    whole = room._digest

    def counted(path: Path, progress: room.CountBytes) -> str:
        names.add(path.name)
        return whole(path, progress)

    def verify(folder: Path) -> set[str]:
        names.clear()
        Manifest(folder).verify()
        return set(names)

    monkeypatch.setattr(room, "_digest", counted)
    return verify


def test_files_are_hashed_once(artifact: Path, hashed: Hashed) -> None:
    assert {"weights.bin", "model.so", "run.py"} <= hashed(artifact)
    assert hashed(artifact) == set()


def test_a_full_comparison_hashes_all(artifact: Path, hashed: Hashed) -> None:
    hashed(artifact)
    read: list[int] = []
    assert not list(Manifest(artifact).differences(read.append, again=True))
    assert sum(read) == sum(Manifest(artifact).sizes.values())


def test_small_files_are_always_hashed(
    artifact: Path, hashed: Hashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "LARGE", (artifact / "weights.bin").stat().st_size)
    hashed(artifact)
    again = hashed(artifact)
    assert "weights.bin" not in again
    assert "run.py" in again


@pytest.mark.parametrize("how", ["written", "replaced"])
def test_a_change_is_seen_whatever_time_is_set(artifact: Path, hashed: Hashed, how: str) -> None:
    hashed(artifact)
    weights = artifact / "weights.bin"
    status, data = weights.stat(), bytearray(weights.read_bytes())
    data[7] ^= 1
    if how == "replaced":
        weights.unlink()
    weights.write_bytes(data)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(NotVerified, match=r"weights\.bin is not the file that was compiled"):
        hashed(artifact)


def test_new_files_are_not_noted(
    artifact: Path, hashed: Hashed, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Clocks of file systems are coarse: a later change could leave the same stamp."""
    monkeypatch.setattr(verified, "SETTLED_NS", 3600 * 10**9)
    assert hashed(artifact) == hashed(artifact)
    assert not cache.exists()


def test_a_copy_is_hashed(artifact: Path, hashed: Hashed) -> None:
    hashed(artifact)
    copy = shutil.copytree(artifact, artifact.with_name("copy"))
    assert "weights.bin" in hashed(copy)


def test_another_digest_is_not_known(artifact: Path, hashed: Hashed) -> None:
    hashed(artifact)
    weights = artifact / "weights.bin"
    assert verified.is_known(weights, Manifest(artifact).files[weights.resolve()])
    assert not verified.is_known(weights, "0" * 64)


@pytest.mark.parametrize("damage", ["", "[", "[" * 100_000, "{}", "null", '["0"]'])
def test_damaged_notes_say_nothing(
    artifact: Path, hashed: Hashed, cache: Path, damage: str
) -> None:
    every = hashed(artifact)
    for note in cache.iterdir():
        note.write_text(damage)
    assert hashed(artifact) == every


def test_notes_that_others_may_write_say_nothing(
    artifact: Path, hashed: Hashed, cache: Path
) -> None:
    every = hashed(artifact)
    assert {note.stat().st_mode & 0o777 for note in cache.iterdir()} == {0o600}
    for note in cache.iterdir():
        note.chmod(0o602)
    assert hashed(artifact) == every


def test_no_cache_is_needed(
    artifact: Path, hashed: Hashed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for base in (str(tmp_path / "file"), "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        every = hashed(artifact)
        assert hashed(artifact) == every


def test_a_full_disk_leaves_nothing_behind(
    artifact: Path, hashed: Hashed, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        path.write_bytes(text[:1].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        every = hashed(artifact)
        assert hashed(artifact) == every
    assert not list(cache.iterdir())


def test_a_file_that_is_removed_while_it_is_hashed_is_not_noted(
    artifact: Path, cache: Path
) -> None:
    weights = artifact / "weights.bin"
    before = weights.stat()
    weights.unlink()
    verified.remember(weights, "0" * 64, before, before.st_ctime_ns)
    assert not cache.exists()


def test_notes_hold_nothing_but_stamps(artifact: Path, hashed: Hashed, cache: Path) -> None:
    hashed(artifact)
    notes = [json.loads(note.read_text()) for note in cache.iterdir()]
    assert len(notes) == len(Manifest(artifact).files)
    assert {digest for digest, *_ in notes} == set(Manifest(artifact).files.values())
    assert all(len(stamp) == 5 and {type(x) for x in stamp} == {int} for _, *stamp in notes)
