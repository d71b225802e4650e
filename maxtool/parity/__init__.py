"""Independent references in float64, and the comparison behind ``maxtool compile --check``.

Nothing here looks at a recipe, a module or a graph: a mistake in one of those must not be repeated
by what checks it. The reference of an architecture reads the raw configuration and the raw tensor
names itself.
"""
