"""Errors as clients see them, in the form of OpenAI's API."""

from __future__ import annotations

from maxtool.runtime.loader import MachineLacks, RunError
from maxtool.runtime.loader.errors import NotVerified, TooLong

REQUEST, SERVER, KEY = "invalid_request_error", "server_error", "authentication_error"
RATE = "rate_limit_error"


class Refusal(Exception):
    """An answer that says what is wrong.

    Attributes:
        status: Of HTTP.
        headers: Of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = REQUEST,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        named = None if param is None else _encodable(param)
        said = {"message": _encodable(message), "type": kind, "param": named, "code": code}
        self._fields = said

    def content(self) -> dict[str, object]:
        """The JSON that a client gets."""
        return {"error": self._fields}


def _encodable(text: str) -> str:
    """Text that repeats what a client sent, which may hold half of a character."""
    return text.encode("utf-8", "backslashreplace").decode()


def wrong(param: str, message: str) -> Refusal:
    """The refusal of a request for one of its fields."""
    return Refusal(400, f"{param!r:.80} {message}", param=param[:80])


def refusal_of(error: RunError) -> Refusal:
    """The refusal that an error of the loader becomes: whoever asked, or the machine, is at fault.

    No path is told: where the files of a model lie is nobody's business.
    """
    if isinstance(error, MachineLacks | NotVerified):
        return Refusal(500, error.what, SERVER)
    said = "; ".join([error.what, *error.problems])
    code = "context_length_exceeded" if isinstance(error, TooLong) else None
    return Refusal(400, said, code=code)


def stopping() -> Refusal:
    """The refusal of what arrives, or still waits, when the server has been told to stop."""
    return Refusal(503, "the server is stopping", SERVER, code="stopping")


def busy(waiting: int, most: int) -> Refusal:
    """The refusal of what comes while so much waits, of what may at ``most``."""
    what = f"{waiting} of at most {most} are waiting already, and this is more; try again later"
    return Refusal(429, what, RATE, code="queue_full", headers={"Retry-After": "1"})


def too_slow() -> Refusal:
    """The refusal of what is not answered in the time that requests have."""
    return Refusal(504, "the answer takes too long", SERVER, code="timeout")
