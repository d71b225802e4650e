"""The picture in README.md shows what the command prints now."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree  # of our own file
from pathlib import Path

from typer.testing import CliRunner

from maxtool.cli.app import app

ROOT = Path(__file__).resolve().parents[1]


def test_the_picture_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "picture.py"))
    picture = script["PICTURE"]
    assert f"(docs/{picture.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    tree = ElementTree.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314
    drawn = re.sub(r"\s", "", "".join(tree.itertext()))
    printed = CliRunner().invoke(app, ["inspect-weights", str(ROOT / script["MODEL"])]).stdout
    for line in printed.splitlines():
        assert re.sub(r"\s", "", line) in drawn, "run python docs/picture.py"
