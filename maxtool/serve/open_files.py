"""Files that the process may have open: each connection of a client is one of them."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import Any

from maxtool.errors import MachineLacks

# Beside connections: libraries, templates, pipes to processes that try out schemas.
SPARE = 32
MOST_LISTED = 1 << 12
NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)


def connections_within(wanted: int) -> int:
    """Return how many connections there may be, at most ``wanted``; raises the limit of files.

    Raises:
        MachineLacks: If there is no room for any.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    used = sum(map(_is_open, range(MOST_LISTED))) + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= used + wanted:
        return wanted
    most = used + wanted if hard == unlimited else min(hard, used + wanted)
    with suppress(OSError, ValueError):  # macOS has a limit below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft <= used:
        what = f"only {soft} files may be open, and serving needs more than {used}"
        raise MachineLacks(what, hint="raise the limit with ulimit -n")
    return soft - used


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


class Listener(socket.socket):
    """Socket that listens, and closes connections for which no more files may be open.

    asyncio would leave them waiting, be woken for them again and again, and log each time.
    """

    def __init__(self, listening: socket.socket) -> None:
        """Take the place of a socket."""
        super().__init__(fileno=listening.detach())
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: If there is none, or it had to be closed.
        """
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in NO_MORE_FILES:
                raise
        self._give_up_spare()
        with suppress(OSError):  # another thread may have opened a file in its place
            super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)
        raise BlockingIOError(errno.EAGAIN, "no more files may be open")

    def close(self) -> None:
        """Listen no more."""
        self._give_up_spare()
        super().close()

    def _give_up_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)
