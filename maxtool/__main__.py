"""``python -m maxtool`` is the ``maxtool`` command."""

from maxtool.cli.app import run

run()
