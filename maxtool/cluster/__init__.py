"""Work on the machines of a Ray cluster that exists, with a file system in common.

Ray is imported by whoever connects, and by nobody else.
"""

from maxtool.cluster.connection import connected
from maxtool.cluster.tasks import Task, Tasks

__all__ = ["Task", "Tasks", "connected"]
