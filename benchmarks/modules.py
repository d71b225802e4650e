"""Compiling and running modules, beside the ``max`` package on the same machine in the same run.

The models of ``stack.py``, written once in names that both packages share: an MLP of 1024, 4096
and 1024, and stacks of 2, 8 and 32 decoder layers (hidden 512, 8 heads, gated MLP of 1536, causal
mask) as calls of one subgraph or in line. Every figure is taken in a process of its own, and the
packages take turns. Cold is an empty cache for ``max`` (maxtool has none), warm is the cache that
the cold run left.

    python -m venv build/max && build/max/bin/pip install max==26.7.0
    python benchmarks/modules.py --max build/max/bin/python

Predicted before the first run: cold compiling 50 to 70 times faster; code generation of 32 layers
at most 1.1 times that of 2 with a subgraph; one row or token as fast (both read the weights once),
64 rows or 128 tokens up to a third slower: the products are the same, and little is fused here.
What was seen is in README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from checkpoints import machine

STACK = Path(__file__).with_name("stack.py")
DEPTHS = (2, 8, 32)
Figures = dict[str, Any]


def models(depths: Iterable[int]) -> dict[str, list[str]]:
    """The arguments of ``stack.py`` for each model, by name."""
    depths_by_name = {"mlp": ["mlp"]}
    for depth in depths:
        depths_by_name[f"{depth} layers, subgraph"] = [
            "stack",
            "--layers",
            str(depth),
            "--subgraph",
        ]
        depths_by_name[f"{depth} layers, in line"] = ["stack", "--layers", str(depth)]
    return depths_by_name


class Package:
    """One of the two packages: its interpreter and its cache."""

    def __init__(self, name: str, python: str, cache: Path) -> None:
        self.name, self.python, self.cache = name, python, cache

    def figures(self, arguments: Sequence[str], cache: str) -> Figures:
        """Run a model in a process of its own, with the cache of that name."""
        home = self.cache / cache
        home.mkdir(exist_ok=True)
        places = {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
        done = subprocess.run(
            [self.python, str(STACK), self.name, *arguments],
            env={**os.environ, **places},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
        return figures


def measure(
    packages: Sequence[Package], model: str, arguments: Sequence[str], rounds: int, cold: int
) -> dict[str, dict[str, list[float]]]:
    """Every figure of each package, in the order taken."""
    found: dict[str, dict[str, list[float]]] = {one.name: defaultdict(list) for one in packages}
    sums: dict[str, float] = {}
    for turn in range(cold + rounds):
        for package in packages:
            first = turn < cold
            # Each cold turn begins with an empty cache; the warm ones use the last of these.
            figures = package.figures(arguments, f"{model}-{min(turn, cold - 1)}")
            kept = found[package.name]
            kept["cold" if first else "warm"].append(figures["compile"])
            kept["cold cpu" if first else "warm cpu"].append(figures["cpu"])
            for size, seconds in figures["run"].items():
                kept[size].append(seconds)
            _agree(model, sums, figures["sums"])
    return found


def _agree(model: str, sums: dict[str, float], results: dict[str, float]) -> None:
    """Require that both packages compute the same."""
    for size, value in results.items():
        first = sums.setdefault(size, value)
        if abs(value - first) > 1e-4 * abs(first):
            raise SystemExit(f"{model}, {size}: sums {first} and {value} differ")


def table(model: str, results: dict[str, dict[str, list[float]]]) -> None:
    """Medians, and how many times faster maxtool is."""
    ours, theirs = results["maxtool"], results.get("max")
    print(f"{model}, load {os.getloadavg()[0]:.1f}")
    for what, values in ours.items():
        own = statistics.median(values)
        line = f"  {what:10} maxtool {own:9.4f} s"
        if theirs is not None:
            other = statistics.median(theirs[what])
            line += f"   max {other:9.4f} s   ratio {other / own:7.2f}"
        print(line, flush=True)


def code_generation(ours: Package, depths: Sequence[int], rounds: int) -> None:
    """CPU time of lowering and compiling without weights, of the deepest and shallowest stack."""
    results: dict[str, list[float]] = defaultdict(list)
    named = {name: layers for name, layers in models(depths).items() if layers[0] == "stack"}
    for _ in range(rounds):
        for name, arguments in named.items():
            figures = ours.figures([*arguments, "--codegen"], "codegen")
            results[name].append(figures["codegen"])
    print("code generation, CPU seconds")
    for name, values in results.items():
        listed = ", ".join(f"{value:.2f}" for value in values)
        print(f"  {name:20} {statistics.median(values):.2f}, median of {listed}")
    few, many = (statistics.median(results[f"{depth} layers, subgraph"]) for depth in depths)
    print(f"  {depths[1]} layers beside {depths[0]}, with a subgraph: {many / few:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max", help="a Python that has max 26.7.0; without it maxtool alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold-rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of the runs; with 1 they are CPU time")
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    given = parser.parse_args()
    print(f"machine     {machine()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as folder:
        caches = Path(folder)
        ours = Package("maxtool", sys.executable, caches)
        packages = [ours, *([Package("max", given.max, caches)] if given.max else [])]
        code_generation(ours, (min(given.depths), max(given.depths)), given.rounds)
        threads = ["--threads", str(given.threads)] if given.threads else []
        for model, arguments in models(given.depths).items():
            arguments += threads
            table(model, measure(packages, model, arguments, given.rounds, given.cold_rounds))


if __name__ == "__main__":
    main()
