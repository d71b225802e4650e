"""Record of the backend suite, and the table of operators in docs/onnx.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "data" / "onnx_backend.json"
PAGE = ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"


def recorded() -> dict:
    """Versions, and by case its operator, our outcome, and whether onnxruntime passes it."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def table(record: dict) -> str:
    """The part of the page that is generated."""
    return "".join(f"{line}\n" for line in _lines(record))


def _lines(record: dict) -> Iterator[str]:
    cases = record["cases"].values()
    passed = sum(ours == "passed" for _, ours, _ in cases)
    both = sum(ours == "passed" and peer for _, ours, peer in cases)
    peers = sum(peer for _, _, peer in cases)
    yield ""
    yield (
        f"Of {len(cases)} cases of onnx {record['onnx']}, {passed} pass and"
        f" {len(cases) - passed} are refused by name; none is wrong. onnxruntime"
        f" {record['onnxruntime']} passes {peers}, of which {both} pass here."
    )
    yield ""
    yield "| operator | cases | pass | of those that onnxruntime passes |"
    yield "| --- | --- | --- | --- |"
    counts = {
        "all": Counter(operator for operator, _, _ in cases),
        "ours": Counter(operator for operator, ours, _ in cases if ours == "passed"),
        "peer": Counter(operator for operator, _, peer in cases if peer),
        "both": Counter(o for o, ours, peer in cases if peer and ours == "passed"),
    }
    for operator in sorted(counts["all"]):
        every, ours, peer, both = (counts[key][operator] for key in counts)
        yield f"| {operator} | {every} | {ours} | {both} of {peer} |"
    yield ""


def with_table(page: str, record: dict) -> str:
    """The page with its table made anew."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(record) + END + rest.split(END)[1]
