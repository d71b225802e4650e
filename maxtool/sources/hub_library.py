"""The package huggingface_hub: imported where it is needed, its errors in words of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maxtool.errors import InputError, MachineLacks, MaxtoolError, MissingFile, TransferFailed
from maxtool.urls import redacted
from maxtool.weights.hub import DEFAULT_REVISION, HubName
from maxtool.weights.remote.answers import TRY_LATER, seconds_to_wait

TOKEN = "set HF_TOKEN, or run: hf auth login"  # noqa: S105 - advice


def is_installed() -> bool:
    """Return whether there is such a package."""
    return find_spec("huggingface_hub") is not None


def is_imported() -> bool:
    """Return whether this process has imported it."""
    return "huggingface_hub" in sys.modules


def cache() -> Path:
    """The folder of its cache."""
    return Path(library().constants.HF_HUB_CACHE).expanduser()


def library() -> Any:  # noqa: ANN401 - the package, which has no types here
    """Import the package; ``MachineLacks`` if it is not here."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        from huggingface_hub.utils import logging
    except ImportError:
        what, hint = "hf:// needs a package that is not installed", "pip install huggingface_hub"
        raise MachineLacks(what, hint=hint) from None
    logging.set_verbosity_error()  # of what it would warn is told by our errors
    return huggingface_hub


def is_offline() -> bool:
    """Return whether the user forbids the network, by ``HF_HUB_OFFLINE``."""
    return bool(library().constants.HF_HUB_OFFLINE)


@contextmanager
def explained(name: HubName) -> Iterator[None]:
    """Raise the package's errors as ours, without their texts, which may hold signed URLs."""
    from huggingface_hub import errors

    try:
        yield
    except MaxtoolError:
        raise
    except errors.HfHubHTTPError as error:
        raise _refused(error, name) from None
    except errors.HFValidationError:
        raise MissingFile("not the name of a repository", file=name.url) from None
    except (errors.HTTPError, OSError) as error:
        what = f"{_endpoint()} cannot be reached: {type(error).__name__}"
        hint = "check the network, a proxy (HTTPS_PROXY) and HF_ENDPOINT"
        raise TransferFailed(what, file=name.url, hint=hint) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        what = f"what {_endpoint()} answers is not what the Hub would"
        raise InputError(what, file=name.url, hint="check HF_ENDPOINT") from None


def _endpoint() -> str:
    return redacted(str(library().constants.ENDPOINT))


def _refused(error: Any, name: HubName) -> MaxtoolError:  # noqa: ANN401 - an HfHubHTTPError
    """Return what an answer of the Hub means."""
    from huggingface_hub import errors, get_token

    status = error.response.status_code
    page = f"{_endpoint()}/{name.repository}"
    what, hint = f"the Hub answers HTTP {status}", None
    if isinstance(error, errors.GatedRepoError):
        what = "the repository is gated, and its owner has not granted access"
        hint = f"ask for it at {page}" + ("" if get_token() else f", then {TOKEN}")
    elif isinstance(error, errors.RevisionNotFoundError):
        what = f"the repository has no revision {name.revision or DEFAULT_REVISION}"
        hint = f"give a branch, a tag or a commit of {page}/commits"
    elif isinstance(error, errors.EntryNotFoundError):
        what = "the repository has no such file"
    elif isinstance(error, errors.RepositoryNotFoundError):
        what = "the Hub has no such repository, or it is private"
        hint = (
            "check the name, and that the token in use may read it"
            if get_token()
            else (f"check the name; for a private repository {TOKEN}")
        )
    elif status == 401:
        what, hint = "the Hub does not accept the token", f"it may have expired: {TOKEN}"
    elif status == 403:
        what, hint = "the Hub refuses access", "check what the token in use may read"
    elif status in TRY_LATER:
        failed = TransferFailed(what, file=name.url, hint="run this again later")
        failed.wait = seconds_to_wait(error.response.headers)
        return failed
    return MissingFile(what, file=name.url, hint=hint)
