"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from maxtool.cluster.silence import silenced
from maxtool.errors import MachineLacks, UsageError

ADDRESS = "RAY_ADDRESS"
AUTO = "auto"
# Of the head, as ``ray start`` prints it, or of Ray's client. Ray itself tries for minutes to reach
HEAD = re.compile(r"(?:ray://)?(?P<host>[\w.-]+|\[[\da-fA-F:]+\]):(?P<port>\d{1,5})", re.ASCII)
PATIENCE = 5.0


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Connect to a cluster while the block runs.

    Args:
        address: ``HOST:PORT`` of its head, ``auto`` for the one that this machine is part of,
            ``ray://HOST:PORT`` for Ray's client, or ``local`` for a cluster of this machine alone,
            which ends with the block; what RAY_ADDRESS says if it is None, or else ``auto``.

    Raises:
        MachineLacks: If Ray is not installed, or there is no cluster at the address.
        UsageError: If that is not an address.
    """
    try:
        import ray
    except ImportError:
        hint = "install it here and on all nodes: pip install 'maxtool[ray]'"
        raise MachineLacks("--executor ray needs the package ray", hint=hint) from None
    wanted = address or os.environ.get(ADDRESS) or AUTO
    _check_reachable(wanted)
    kinds = (signal.SIGINT, signal.SIGTERM)
    handlers = {kind: signal.getsignal(kind) for kind in kinds}
    try:
        ray.init(address=wanted, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        hint = "start one with ray start --head, or name one: --ray-address HOST:PORT, RAY_ADDRESS"
        raise MachineLacks(f"there is no Ray cluster at {wanted!r:.80}", hint=hint) from None
    except (ValueError, ImportError) as error:
        raise UsageError(f"Ray takes no address {wanted!r:.80}: {error}") from None
    except RuntimeError as error:  # other versions of Ray or Python there, among others
        what = str(error).strip().splitlines()[0]
        raise MachineLacks(f"Ray does not connect to {wanted!r:.80}: {what}") from None
    with silenced() as stdout:
        try:
            for kind, handler in handlers.items():  # Ray takes SIGTERM
                signal.signal(kind, handler)
            yield
        finally:
            stdout.shut = True  # it says what it has held back
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens."""
    match = HEAD.fullmatch(address)
    if match is None:
        return
    try:
        place = (match["host"].strip("[]"), int(match["port"]))
        socket.create_connection(place, PATIENCE).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        what = f"there is no Ray cluster at {address!r:.80}: {reason}"
        hint = "give the address that ray start printed, --ray-address HOST:PORT"
        raise MachineLacks(what, hint=hint) from None
