"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Of the measured rates, what the goals ask for: decode of copy bandwidth, prefill of matrix rate.
GOALS = {"llama-1.1b": (0.6, 0.6), "llama-8b": (0.8, 0.6)}


def markdown(results: dict[str, Any]) -> str:
    """Three tables: the card, parity, speed."""
    parts = [_card(results.get("card", {})), _parity(results), _speed(results)]
    return "# On the GPU\n\n" + "\n".join("\n".join(part) + "\n" for part in parts)


def _card(card: dict[str, Any]) -> list[str]:
    rows = {
        "card": card.get("name"),
        "multiprocessors": card.get("multiprocessors"),
        "copy, read and written": _rate(card.get("copy_bytes_per_second"), 1e12, "TB/s"),
        "bfloat16 product of 8192": _rate(card.get("bf16_flops"), 1e12, "TFLOP/s"),
        "PyTorch": card.get("torch"),
        "error": card.get("error"),
    }
    return ["| | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in rows.items() if v)]


def _rate(value: float | None, unit: float, name: str) -> str | None:
    return f"{value / unit:.2f} {name}" if value else None


def _parity(results: dict[str, Any]) -> list[str]:
    head = ["| model | relative error | allowed | |", "| --- | --- | --- | --- |"]
    found = results.get("parity", {}).items()
    rows = [
        f"| {name} | {run.get('relative_error', '')} | {run.get('rtol', '')} | {_said(run)} |"
        for name, run in found
    ]
    text = results.get("text")
    return [*head, *rows, *([f"| greedy text | | identical | {_said(text)} |"] if text else [])]


def _said(result: dict[str, Any]) -> str:
    if "error" in result:
        return str(result["error"]).splitlines()[-1]
    return "passed" if not result.get("exit") else "failed"


def _speed(results: dict[str, Any]) -> list[str]:
    return [
        "| shape | | decode, tokens/s | share of bandwidth | goal | prefill, tokens/s "
        "| share of matrix rate | goal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *_speed_rows(results),
    ]


def _speed_rows(results: dict[str, Any]) -> Iterator[str]:
    card = results.get("card", {})
    for shape, sides in results.get("speed", {}).items():
        work = results.get("shapes", {}).get(shape, {})
        goals = GOALS.get(shape, ("", ""))
        for side, result in sides.items():
            if "decode" not in result:
                yield f"| {shape} | {side} | {_said(result)} | | | | | |"
                continue
            shares = (
                _share(
                    result["decode"], work.get("decode_bytes"), card.get("copy_bytes_per_second")
                ),
                _share(result["prefill"], work.get("prefill_flops"), card.get("bf16_flops")),
            )
            yield (
                f"| {shape} | {side} | {result['decode']:.1f} | {shares[0]} | {goals[0]} "
                f"| {result['prefill']:.0f} | {shares[1]} | {goals[1]} |"
            )


def _share(rate: float, per_token: float | None, most: float | None) -> str:
    """The part of what the card reaches that a rate of tokens takes."""
    return f"{rate * per_token / most:.2f}" if per_token and most else ""
