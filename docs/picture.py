"""Draw docs/inspect.svg, the picture in README.md, from what the command prints.

python docs/picture.py
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from rich.console import Console

from maxtool.cli.inspect_weights import inspect_weights
from maxtool.cli.output import Output

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "inspect.svg"
MODEL = "samples/fireside"


def draw() -> str:
    """The picture as SVG."""
    os.chdir(ROOT)
    console = Console(
        record=True,
        width=80,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    out = Output()
    out.__dict__["stdout"] = console  # in place of the cached property
    inspect_weights(out, [MODEL])
    # The name keeps the picture the same from one drawing to the next.
    return console.export_svg(title=f"maxtool inspect-weights {MODEL}", unique_id="inspect")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
