"""Artifacts: a checkpoint and its recipe, compiled into a folder that runs on its own."""

from maxtool.artifact.build import Build, Report, make, prepare
from maxtool.artifact.request import Request

__all__ = ["Build", "Report", "Request", "make", "prepare"]
