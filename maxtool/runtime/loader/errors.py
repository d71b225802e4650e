"""Failures with one clear message, each with its exit code."""

from __future__ import annotations


class RunError(Exception):
    """A failure with one clear message; each class has its exit code."""

    exit_code = 1


class NotVerified(RunError):
    """A file does not match its recorded checksum."""


class Disagrees(RunError):
    """The model computes something else than was recorded of it."""


class BadUsage(RunError):
    """The options ask for something impossible."""

    exit_code = 2


class BadInput(RunError):
    """An input, or the manifest, is missing or malformed."""

    exit_code = 3


class DoesNotFit(RunError):
    """What was asked does not fit the model."""

    exit_code = 4


class MachineLacks(RunError):
    """The machine has not what the model needs."""

    exit_code = 6


def last_line(error: object) -> str:
    """What an error says in its last line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
