"""A conversion on a cluster: a task for each file of the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from maxtool.cluster.tasks import Task, Tasks
from maxtool.conversion import Conversion, Report, Request, prepare
from maxtool.conversion.memory import needed_memory
from maxtool.conversion.object_output import standing_in
from maxtool.conversion.part_places import folder_of
from maxtool.conversion.shares import Share, write_share
from maxtool.errors import MachineLacks
from maxtool.files import SharedParts


def write_on(
    tasks: Tasks, conversion: Conversion, folder: SharedParts, progress: Callable[[int], None]
) -> list[Report]:
    """Write all files of an output on a cluster; those that are there already are kept.

    Args:
        tasks: The cluster.
        conversion: What to write.
        folder: Where the files go, which all nodes have to see.
        progress: What is told the bytes of each file when it is there.

    Returns:
        What there was to say about each file.

    Raises:
        MaxtoolError: What a worker raised; ``MachineLacks`` if what it wrote is not seen here.
    """
    folder.begin()
    request = replace(conversion.request, jobs=conversion.request.jobs or 1)  # a task has a core
    conversion = replace(conversion, request=request)
    files = conversion.layout.files
    for number in range(1, len(files) + 1):
        share = Share(number, len(files))
        memory = needed_memory(share.part_of(conversion))
        name = files[number - 1].name
        tasks.begin(Task(name, write_file, (request, share), memory))
    reports = []
    while len(tasks):
        task, ended = tasks.next()
        if ended.error is not None:
            raise ended.error
        if folder.part(task.name) is None:
            what = f"node {ended.node} wrote {task.name}, and it is not there on this machine"
            hint = "the folder of the output has to be on storage that all nodes share"
            raise MachineLacks(what, file=folder.shown, hint=hint)
        progress(ended.value.nbytes)
        reports.append(ended.value)
    return reports


def write_file(request: Request, share: Share) -> Report:
    """Write the file of a share, on the node that this runs on."""
    with standing_in(request) as own:
        conversion = prepare(own)
        return write_share(conversion, share, folder_of(conversion))
