"""Imported before maxtool: lets atheris see where it branches, if a target was started."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

main = Path(getattr(sys.modules["__main__"], "__file__", None) or "").resolve()
if main.parent == HERE and main.name.startswith("fuzz_"):
    sys.path.insert(0, str(ROOT))
    import atheris

    # Entered for good: what functions import is instrumented as well.
    atheris.instrument_imports(include=["maxtool"]).__enter__()
