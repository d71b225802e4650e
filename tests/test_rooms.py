"""The picture in docs/architecture.md shows what imports what now, and its table every room."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_picture_is_up_to_date() -> None:
    assert f"({SCRIPT['PICTURE'].name})" in MAP
    drawn = SCRIPT["PICTURE"].read_text(encoding="utf-8")
    assert drawn == SCRIPT["draw"](), "run python docs/rooms.py"


def test_the_table_lists_every_room() -> None:
    rows = re.findall(r"^\| (`.+?`) \| ", MAP, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", row)}
    assert listed == set(SCRIPT["imports"]())


def test_the_reduction_leaves_out_what_a_longer_way_reaches() -> None:
    below = {"top": {"middle", "ground"}, "middle": {"ground"}, "ground": set[str]()}
    assert SCRIPT["reduced"](below) == {**below, "top": {"middle"}}
