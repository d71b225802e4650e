"""Artifacts: checkpoints compiled, by a recipe or a module, into folders that run on their own."""

from maxtool.artifact.build import Build, prepare
from maxtool.artifact.contents import NamedGraph
from maxtool.artifact.input_types import EntrySpec, parse_entries
from maxtool.artifact.module_build import ModuleBuild, prepare_module
from maxtool.artifact.request import ModuleRequest, Request
from maxtool.artifact.user_module import ModuleReference, parse_reference
from maxtool.artifact.writing import Report, make

__all__ = [
    "Build",
    "EntrySpec",
    "ModuleBuild",
    "ModuleReference",
    "ModuleRequest",
    "NamedGraph",
    "Report",
    "Request",
    "make",
    "parse_entries",
    "parse_reference",
    "prepare",
    "prepare_module",
]
