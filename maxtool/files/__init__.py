"""Outputs that appear whole or not at all.

An output is written beside its place in a hidden folder, flushed to the disk and renamed. Whatever
ends the work early, a kill included, leaves the old output as it was; what a kill leaves behind is
removed by the next run, but for finished parts that a journal lists for a run that goes on. Where a
link is in the way, the link is replaced and never what it points at.
"""

from maxtool.files.finished import FinishedPart
from maxtool.files.hashing import sha256
from maxtool.files.journal import Journal
from maxtool.files.leftovers import kept_parts
from maxtool.files.outputs import check_output, check_parts, check_space, present_parts, shortage
from maxtool.files.part_folder import PartFolder
from maxtool.files.shared_parts import SharedPart, SharedParts
from maxtool.files.staging import forget_written, staged, staged_parts, written

__all__ = [
    "FinishedPart",
    "Journal",
    "PartFolder",
    "SharedPart",
    "SharedParts",
    "check_output",
    "check_parts",
    "check_space",
    "forget_written",
    "kept_parts",
    "present_parts",
    "sha256",
    "shortage",
    "staged",
    "staged_parts",
    "written",
]
