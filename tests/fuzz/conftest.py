"""The targets are programs of their own: they import the harness by its bare name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
