"""Closing report of a test run: the seconds of each folder, and the reasons of skips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from itertools import chain

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Report after pytest's own summary: the skips, and each folder's seconds if asked for."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker of several
        return
    if session.config.getoption("--by-folder"):
        reports = [one for one in chain(*reporter.stats.values()) if hasattr(one, "duration")]
        reporter.section("seconds by folder")
        for folder, seconds in by_folder(reports).most_common():
            reporter.write_line(f"{seconds:9.1f}  {folder}")
    if skips := reporter.stats.get("skipped"):
        reporter.write_line(skipped(skips))


def by_folder(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    """Seconds of the tests of each folder, fixtures included; a file beside them counts itself."""
    seconds: Counter[str] = Counter()
    for report in reports:
        path = report.nodeid.partition("::")[0]
        seconds["/".join(path.split("/")[:2])] += report.duration
    return seconds


def skipped(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> str:
    """One line: how many tests were skipped for each reason, the most frequent first."""
    reasons = Counter(reason(report) for report in reports)
    listed = "; ".join(f"{count} {why}" for why, count in reasons.most_common())
    return f"{reasons.total()} skipped: {listed}"


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped: the reason up to the first colon, or a package's name."""
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    why = why.removeprefix("Skipped: ")
    if why.startswith("could not import "):  # how pytest.importorskip begins
        return "no package " + why.split("'")[1]
    return why.partition(":")[0]
