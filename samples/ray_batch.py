"""Embed or complete a file of texts with Ray Data: a line each, an artifact in each worker.

    python samples/ray_batch.py minilm texts.txt -o vectors.jsonl --workers 4
    python samples/ray_batch.py llama texts.txt -o stories --max-tokens 50 --workers 1,2,4

ARTIFACT is what `maxtool compile` wrote, under a path that all nodes see; they need no maxtool, but
NumPy, apache-tvm-ffi, TVM's runtime and tokenizers. The results are in the order of the lines:
OUTPUT.jsonl is one file, any other name a folder of Parquet files, which the workers write. With
several numbers of workers the texts are done for each, and the last run's results are written.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings are on Ray Data's own calls
import numpy as np
import ray

TIMES = ("began", "ended")


class Artifact:
    """An artifact, loaded once in each worker.

    Args:
        folder: The artifact.
        cores: The threads that it may use.
        max_tokens: How many tokens to make of a text, at most.
    """

    def __init__(self, folder: str, cores: int, max_tokens: int) -> None:
        os.environ["TVM_NUM_THREADS"] = str(cores)  # the pool is made when the model is loaded
        sys.path.insert(0, folder)
        self.run: Any = importlib.import_module("run")  # the artifact's own run.py
        self.model = self.run.load()
        self.max_tokens = max_tokens

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Return the texts with what the model makes of each, and when it did."""
        began, texts = time.time(), [str(text) for text in rows["text"]]
        made = self._embedded(texts) if self.embeds else self._completed(texts)
        times = {"began": [began] * len(texts), "ended": [time.time()] * len(texts)}
        return {"text": rows["text"], **made, **times}

    @property
    def embeds(self) -> bool:
        """Return whether the model makes vectors of texts."""
        return bool(self.model.manifest.task == "embed")

    def _embedded(self, texts: list[str]) -> dict[str, Any]:
        return {"embedding": self.model.embed(texts, batch=len(texts))}

    def _completed(self, texts: list[str]) -> dict[str, Any]:
        """Return the continuations; of a text that cannot be continued, why."""
        made: list[Any] = [None] * len(texts)
        for completion in self.run.generate_many(self.model, texts, self.max_tokens):
            made[completion.index] = completion
        errors = [str(one.error) if one.error else "" for one in made]
        return {"completion": [one.text for one in made], "error": errors}


def main() -> None:
    """Run the program."""
    asked = arguments()
    ray.init(address=asked.ray_address, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    slowest = 0.0
    print("workers   texts/s   against the first   with starting the workers")
    for workers in asked.workers:
        begun = time.monotonic()
        done = results(asked, workers).materialize()
        seconds = time.monotonic() - begun
        count, working = measured(done)
        speed, whole = count / working, count / seconds
        slowest = slowest or speed
        print(f"{workers:7} {speed:9.1f} {speed / slowest:13.2f} times {whole:15.1f} texts/s")
    write(done, asked.output)
    print(f"wrote {count} results to {asked.output}")


def arguments() -> argparse.Namespace:
    """The arguments of the program, checked as far as this machine can."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("artifact", type=Path, help="a folder that maxtool compile wrote")
    parser.add_argument("texts", type=Path, help="a text in each line")
    parser.add_argument("-o", "--output", type=Path, required=True, help="NAME.jsonl, or a folder")
    parser.add_argument(
        "--workers", type=numbers, default=[1], help="how many, such as 4, or 1,2,4"
    )
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--rows", type=int, default=32, help="texts in a call")
    parser.add_argument("--max-tokens", type=int, default=100, help="of a completion")
    parser.add_argument("--ray-address", help="HOST:PORT of the cluster; as ray.init if absent")
    asked = parser.parse_args()
    if not (asked.artifact / "run.py").is_file():
        parser.error(f"{asked.artifact} is not an artifact: it has no run.py")
    if not asked.texts.is_file():
        parser.error(f"{asked.texts} is not a file")
    if asked.output.exists():
        parser.error(f"{asked.output} exists")
    if not asked.output.resolve().parent.is_dir():
        parser.error(f"the folder of {asked.output} does not exist")
    if min(asked.cores, asked.rows, asked.max_tokens) < 1:
        parser.error("--cores, --rows and --max-tokens are 1 or more")
    asked.lines = lines_of(asked.texts)
    if not asked.lines:
        parser.error(f"{asked.texts} has no lines")
    return asked


def lines_of(file: Path) -> list[str]:
    """Lines of a file as other programs count them: only a line feed ends one."""
    with file.open(encoding="utf-8", newline="\n") as stream:
        return [line.removesuffix("\n").removesuffix("\r") for line in stream]


def numbers(text: str) -> list[int]:
    """Numbers of workers, such as ``1,2,4``."""
    found = [int(one) for one in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def results(asked: argparse.Namespace, workers: int) -> Any:  # noqa: ANN401 - Ray has no types
    """Results of so many workers for the texts, a row for each."""
    # Blocks are made here: a task that reads waits for a core, and workers may take all of them.
    blocks = -(-len(asked.lines) // asked.rows)
    items = [{"text": line} for line in asked.lines]
    texts = ray.data.from_items(items, override_num_blocks=blocks)
    return texts.map_batches(
        Artifact,
        fn_constructor_args=(str(asked.artifact.resolve()), asked.cores, asked.max_tokens),
        batch_size=asked.rows,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=asked.cores,
    )


def measured(rows: Any) -> tuple[int, float]:  # noqa: ANN401 - Ray has no types
    """The number of results, and the seconds from the first call of a model to the last's end."""
    times = [(batch["began"], batch["ended"]) for batch in rows.iter_batches(batch_size=None)]
    began, ended = (np.concatenate(column) for column in zip(*times, strict=True))
    return len(began), float(ended.max() - began.min())


def write(rows: Any, output: Path) -> None:  # noqa: ANN401 - Ray has no types
    """Write the results: lines of JSON here, or Parquet files where the workers are."""
    if output.suffix != ".jsonl":
        rows.drop_columns([*TIMES]).write_parquet(str(output.resolve()))
        return
    part = output.with_name(f"{output.name}.part")
    with part.open("w", encoding="utf-8") as stream:
        for row in rows.iter_rows():
            for name in TIMES:
                del row[name]
            stream.write(json.dumps(row, default=listed, ensure_ascii=False) + "\n")
    part.rename(output)  # it appears when it is whole


def listed(array: np.ndarray[Any, Any]) -> list[Any]:
    """An array as JSON has it."""
    return list(array.tolist())


if __name__ == "__main__":
    main()
