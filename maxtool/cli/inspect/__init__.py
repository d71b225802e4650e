"""Output of ``maxtool inspect-weights``: tables, and JSON."""
