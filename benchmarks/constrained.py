"""Serving answers that follow a JSON schema, beside answers that follow none: tokens a second.

One server, one artifact, and the same clients in turns: once each asks for text, once for JSON by a
schema that is too long to end. Both make as many tokens, so that what differs is the masks.

    python benchmarks/constrained.py FOLDER --clients 1,4

FOLDER is what ``maxtool compile --batch N`` wrote; figures are medians over the rounds. With
``--requests 10000``, so many short answers by a schema follow, each tenth with the memory that
the server has then. ``large_vocabulary.py`` makes a model with 128k tokens.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

TOKENS = 200
ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 4}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 1000}
FORMATS: dict[str, dict[str, object]] = {
    "text": {"type": "text"},
    "JSON": {"type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA}},
}


def main() -> None:
    """Measure, and print a row for each number of clients."""
    options = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--clients", default="1,4")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--requests", type=int, default=0)
    given = options.parse_args()
    print("| clients | text, tokens/s | JSON, tokens/s | JSON / text |")
    print("| ---: | ---: | ---: | ---: |")
    with served(given.folder) as (url, process):
        for clients in map(int, given.clients.split(",")):
            speeds: dict[str, list[float]] = {name: [] for name in FORMATS}
            for number in range(given.rounds + 1):  # the first warms up
                for name, form in FORMATS.items():
                    speed = measured(url, clients, form)
                    speeds[name] += [speed] if number else []
            text, constrained = (statistics.median(speeds[name]) for name in FORMATS)
            row = f"| {clients} | {text:.0f} | {constrained:.0f} | {constrained / text:.2f} |"
            print(row, flush=True)
        if given.requests:
            print_memory(url, process, given.requests)


def print_memory(url: str, process: int, count: int) -> None:
    """Ask for so many short answers by a schema, four at a time; print the server's memory."""
    print("\n| requests | resident, MiB |\n| ---: | ---: |", flush=True)
    with ThreadPoolExecutor(4) as pool:
        for done in range(0, count + 1, max(1, count // 10)):
            print(f"| {done} | {resident(process) / 2**20:.1f} |", flush=True)
            seeds = range(done, min(count, done + max(1, count // 10)))
            list(pool.map(lambda seed: asked(url, seed, FORMATS["JSON"], tokens=4), seeds))


def resident(process: int) -> int:
    """The bytes of memory that a process has (Linux)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """A server of the artifact, for as long as the block runs; gives its address and process."""
    command = [sys.executable, "-m", "maxtool", "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        told = ""
        while not told.endswith("\n}\n"):
            line = server.stdout.readline()
            if not line:
                sys.exit("the server does not start")
            told += line
        try:
            yield str(json.loads(told)["url"]), server.pid
        finally:
            server.terminate()


def measured(url: str, clients: int, form: dict[str, object]) -> float:
    """Tokens a second of all clients together."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        made = sum(pool.map(lambda seed: asked(url, seed, form), range(clients)))
    return made / (time.perf_counter() - began)


def asked(url: str, seed: int, form: dict[str, object], tokens: int = TOKENS) -> int:
    """The number of tokens that an answer has."""
    content = {
        "prompt": "Once upon a time",
        "max_tokens": tokens,
        "temperature": 1.0,
        "seed": seed,
        "response_format": form,
    }
    headers = {"Content-Type": "application/json"}
    data = json.dumps(content).encode()
    request = urllib.request.Request(f"{url}/v1/completions", data, headers)
    with urllib.request.urlopen(request) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


if __name__ == "__main__":
    main()
