"""Running an artifact: ``run.py`` and ``loader/`` stand alone; each artifact has a copy of both."""
