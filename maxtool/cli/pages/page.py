"""The page around pictures: its head, its colours for light and dark, sections and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from maxtool.cli.pages.markup import Markup, element, joined

# Nothing may be fetched, and no script run, whatever got into the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# Colours of types, by rank: told apart with any colour vision, on either ground.
TYPES = ("t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7")
STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --panel: #f6f8fa; --ink: #1f2328;
  --soft: #59636e; --rule: #d1d9e0; --accent: #2f6fb3; --second: #b3541e; --on: #ffffff;
  --cold: #edf3f9; --hot: #7a1f3d;
  --t0: #2f6fb3; --t1: #b3541e; --t2: #2e7d5b; --t3: #8a4fa3; --t4: #8a6d00; --t5: #a8325e;
  --t6: #3d7f8c; --t7: #5f6670 }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --panel: #161b22; --ink: #e6edf3;
  --soft: #9198a1; --rule: #3d444d; --accent: #6cb0f5; --second: #f0a36b; --on: #ffffff;
  --cold: #1b2530; --hot: #ffd0a8;
  --t0: #2f6fb3; --t1: #a3501f; --t2: #2b7657; --t3: #85509c; --t4: #7d650a; --t5: #9c3259;
  --t6: #397682; --t7: #596069 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1120px; padding: 24px 20px 48px; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere }
.part { margin-top: 56px; padding-top: 12px; border-top: 1px solid var(--rule) }
h2 { font-size: 17px; margin: 36px 0 4px; overflow-wrap: anywhere }
p { margin: 2px 0 10px; color: var(--soft); max-width: 76ch; overflow-wrap: anywhere }
.drawing { overflow-x: auto } svg { display: block; width: 100%; height: auto }
text { font: 11px system-ui, sans-serif; fill: var(--ink) }
.soft { fill: var(--soft) } .on { fill: var(--on) } .high { fill: var(--ground) }
.strong { font-weight: 600 }
.frame { fill: none; stroke: var(--rule) } .axis { stroke: var(--rule) }
.group { fill: var(--panel); stroke: var(--rule) }
.bars { fill: var(--accent) } .curve { fill: none; stroke: var(--accent); stroke-width: 1.8 }
.ideal { stroke: var(--soft); stroke-width: 1.2 }
.point { fill: var(--accent); fill-opacity: .55 } .far { fill: var(--second) }
.tile { stroke: var(--ground); stroke-width: 1 }
.none { fill: transparent; stroke: var(--rule) }
.t0 { fill: var(--t0) } .t1 { fill: var(--t1) } .t2 { fill: var(--t2) } .t3 { fill: var(--t3) }
.t4 { fill: var(--t4) } .t5 { fill: var(--t5) } .t6 { fill: var(--t6) } .t7 { fill: var(--t7) }
rect:hover, circle:hover { stroke: var(--ink); stroke-width: 1.5 }
.grid { display: grid; gap: 14px; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)) }
figure { margin: 0; padding: 8px 10px; background: var(--panel); border-radius: 6px; min-width: 0;
  display: flex; flex-direction: column; justify-content: space-between }
figcaption { font-size: 12px; overflow-wrap: anywhere } figcaption span { color: var(--soft) }
figure .drawing svg { min-width: 0 !important; max-width: none !important }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 6px 0; padding: 0;
  list-style: none; font-size: 13px }
.legend svg { display: inline-block; width: 12px; height: 12px; margin-right: 6px;
  vertical-align: -1px }
.legend span { color: var(--soft) }
.table { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; width: 100% }
th { text-align: left; font-weight: 600; color: var(--soft) } th, td { padding: 3px 14px 3px 0 }
tr { border-bottom: 1px solid var(--rule) } td { white-space: nowrap }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
"""


def document(title: str, facts: Sequence[str], sections: Iterable[Markup]) -> str:
    """A page: what it is of, what is to be known of that, and its sections."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    lines = [element("p", fact) for fact in facts]
    body = element("body", element("h1", title), *lines, *sections)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, explanation: str, *parts: Markup) -> Markup:
    """A picture with its title, and a sentence on how it is read."""
    return joined(element("h2", title), element("p", explanation), *parts, between="\n")


def legend(entries: Iterable[tuple[str, str, str]]) -> Markup:
    """The meaning of colours: a class of the style, a name, and what it adds up to."""
    items = [
        element("li", _swatch(class_), name, " ", element("span", amount))
        for class_, name, amount in entries
    ]
    return element("ul", *items, class_="legend")


def _swatch(class_: str) -> Markup:
    square = element("rect", width=12, height=12, rx=2, class_=class_)
    return element("svg", square, viewBox="0 0 12 12", aria_hidden="true")


def figures(parts: Iterable[Markup]) -> Markup:
    """Small pictures side by side."""
    return element("div", *parts, class_="grid")


def figure(name: str, facts: str, picture: Markup) -> Markup:
    """A small picture, its name and its facts."""
    caption = element("figcaption", name, element("br"), element("span", facts))
    return element("figure", caption, picture)


def table(headers: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> Markup:
    """A table; a header says whether its column is justified ``left`` or ``right``."""
    classes = ["number" if side == "right" else None for _, side in headers]
    top = [element("th", name, class_=c) for (name, _), c in zip(headers, classes, strict=True)]
    body = [
        element("tr", *(element("td", x, class_=c) for x, c in zip(row, classes, strict=True)))
        for row in rows
    ]
    content = element("table", element("thead", element("tr", *top)), element("tbody", *body))
    return element("div", content, class_="table")
