"""Renames that exchange two names, or that replace nothing, where the system has them."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

# linux/fs.h and fcntl.h.
NOREPLACE, EXCHANGE = 1, 2
AT_FDCWD = -100
# What kernels, file systems (NFS, FUSE) and sandboxes say that do not know them.
UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


def exchange(path: Path, other: Path) -> bool:
    """Exchange two names at one moment; False, and nothing done, where that cannot be."""
    return _rename(path, other, EXCHANGE)


def claim(source: Path, target: Path) -> None:
    """Rename to a name that nothing has; ``FileExistsError`` if something has it.

    An empty folder may be replaced by another folder.
    """
    if _rename(source, target, NOREPLACE):
        return
    if not source.is_dir():
        try:
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # FAT has no links
            _need_free(target)
        else:
            source.unlink()
            return
    _need_free(target)
    source.rename(target)  # of a folder, this fails where anything but an empty one is


def _need_free(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


def _rename(source: Path, target: Path, flags: int) -> bool:
    """Call ``renameat2``; False where it, or what the flags ask for, is not known."""
    function = _renameat2()
    if function is None:
        return False
    result = function(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags)
    if result == 0:
        return True
    error = ctypes.get_errno()
    if error in UNKNOWN:
        return False
    raise OSError(error, os.strerror(error), str(source), None, str(target))


@cache
def _renameat2() -> Callable[..., int] | None:
    """The function of the C library; None on systems that have none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no CDLL(None)
        return None
    text = ctypes.c_char_p
    function.argtypes = [ctypes.c_int, text, ctypes.c_int, text, ctypes.c_uint]
    return function
