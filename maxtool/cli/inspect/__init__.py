"""How ``maxtool inspect-weights`` shows what was found: as tables, and as JSON."""
