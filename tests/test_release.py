"""A release: its version, what changed in it, and what the package says."""

from __future__ import annotations

import re
from importlib.metadata import metadata, requires, version
from pathlib import Path

from maxtool import __version__

CHANGES = Path(__file__).parents[1] / "docs" / "CHANGELOG.md"
# https://semver.org, "Is there a suggested regular expression", without build metadata.
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?")
HEADING = re.compile(r"^## (\d\S*) - (\d{4}-\d\d-\d\d|unreleased)$", re.MULTILINE)


def test_the_version_is_semantic_and_the_package_has_it() -> None:
    assert SEMVER.fullmatch(__version__)
    assert version("maxtool") == __version__


def test_the_newest_changes_are_those_of_this_version() -> None:
    told = HEADING.findall(CHANGES.read_text(encoding="utf-8"))
    assert told[0][0] == __version__
    numbers = [tuple(map(int, name.partition("-")[0].split("."))) for name, _ in told]
    assert numbers == sorted(set(numbers), reverse=True)
    assert all(when != "unreleased" for _, when in told[1:])


def test_the_package_says_what_it_needs() -> None:
    told = metadata("maxtool")
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Description-Content-Type"] == "text/markdown"
    needed = [text for text in requires("maxtool") or () if "extra ==" not in text]
    assert any(text.startswith("apache-tvm==") for text in needed)
