"""Running an artifact: ``loader.py`` stands alone; a copy of it is each artifact's ``run.py``."""
