"""Machines that a model was not compiled for: each is told what it lacks, and no code is loaded."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import pytest

from maxtool.runtime.loader.errors import MachineLacks
from maxtool.runtime.loader.host import check_machine

LINUX = {"triple": "x86_64-linux-gnu"}
CASES = [
    (LINUX, "Darwin", "x86_64", "compiled for Linux, and this machine runs Darwin"),
    (LINUX, "Windows", "AMD64", "compiled for Linux, and this machine runs Windows"),
    (LINUX, "FreeBSD", "amd64", "compiled for Linux, and this machine runs FreeBSD"),
    (LINUX, "Linux", "aarch64", "compiled for x86_64, and this machine is aarch64"),
    (LINUX, "Darwin", "arm64", "compiled for x86_64, and this machine is aarch64"),
    ({"triple": "arm64-apple-darwin23"}, "Linux", "aarch64", "compiled for Darwin"),
    ({"triple": "aarch64-unknown-linux-gnu"}, "Darwin", "arm64", "compiled for Linux"),
]


@pytest.mark.parametrize(("target", "system", "machine", "says"), CASES)
def test_a_model_for_another_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    target: Mapping[str, object],
    system: str,
    machine: str,
    says: str,
) -> None:
    be(monkeypatch, system, machine)
    with pytest.raises(MachineLacks, match=says):
        check_machine(target)


@pytest.mark.parametrize(
    ("triple", "system", "machine"),
    [
        ("x86_64-linux-gnu", "Linux", "x86_64"),
        ("aarch64-unknown-linux-gnu", "Linux", "aarch64"),
        ("arm64-apple-macosx14.0", "Darwin", "arm64"),
        ("", "Linux", "x86_64"),
    ],
)
def test_a_model_for_this_machine_is_taken(
    monkeypatch: pytest.MonkeyPatch, triple: str, system: str, machine: str
) -> None:
    be(monkeypatch, system, machine)
    check_machine({"triple": triple})


def be(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
