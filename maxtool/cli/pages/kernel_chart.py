"""Picture of a profile: for each case a bar for each kernel, as long as its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from maxtool.cli.pages.markup import Markup, element, joined
from maxtool.cli.pages.shapes import label, rect

if TYPE_CHECKING:
    from maxtool.benchmark.results import Benchmark, Profile

WIDTH, LABEL, VALUE = 960, 430, 130
ROW, BAR, HEAD, MARGIN = 22, 14, 44, 16
MOST_BARS = 16
SVG = "http://www.w3.org/2000/svg"
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .name { text-anchor: end }
  .value, .facts { fill: #59636e }
  .kernel { fill: #4c78a8 }
  .between { fill: #bab0ac }
"""
# What a bar is called, its seconds, and its class.
Bar = tuple[str, float, str]


def draw(benchmark: Benchmark) -> str:
    """Return the picture as SVG."""
    parts: list[Markup] = []
    top = MARGIN
    for artifact in benchmark.artifacts:
        facts = f"{artifact.target.get('cpu')} {_features(artifact.target.get('features'))}"
        for measured in artifact.cases:
            if measured.profile is not None:
                title = f"{artifact.folder.name}: {measured.case.label}"
                parts += _case(title, facts, measured.profile, top)
                top += HEAD + ROW * len(_bars(measured.profile)) + MARGIN
    style = element("style", Markup(STYLE))
    ground = rect(0, 0, WIDTH, top, fill="#fff")
    drawn = joined(style, ground, *parts, between="\n")
    return f"{element('svg', drawn, xmlns=SVG, viewBox=f'0 0 {WIDTH} {top}')}\n"


def _features(names: object) -> str:
    return f"({' '.join(map(str, names))})" if isinstance(names, list) else ""


def _case(title: str, facts: str, profile: Profile, top: int) -> Iterator[Markup]:
    """The bars of a case, below its title."""
    yield label(MARGIN, top + 14, title, class_="title")
    yield label(MARGIN, top + 32, facts, class_="facts")
    bars = _bars(profile)
    longest = max(seconds for _, seconds, _ in bars)
    room = WIDTH - LABEL - VALUE - MARGIN
    for number, (name, seconds, style) in enumerate(bars):
        y = top + HEAD + ROW * number
        width = room * seconds / longest
        share = f"{1e3 * seconds:,.3f} ms, {100 * seconds / profile.seconds:.1f}%"
        yield label(LABEL - 8, y + BAR - 2, name, class_="name")
        yield rect(LABEL, y, width, BAR, class_=style)
        yield label(LABEL + width + 6, y + BAR - 2, share, class_="value")


def _bars(profile: Profile) -> list[Bar]:
    """The kernels that take most time, all others together, and what no kernel takes."""
    first, rest = profile.kernels[:MOST_BARS], profile.kernels[MOST_BARS:]
    bars = [(f"{one.kernel}  {one.weights}".rstrip(), one.seconds, "kernel") for one in first]
    if rest:
        bars.append((f"{len(rest)} others", sum(one.seconds for one in rest), "kernel"))
    return [*bars, ("between kernels", profile.between, "between")]
