"""Process that runs one artifact: ``python -m maxtool.benchmark.artifact_worker FOLDER``.

Its orders are the methods of :class:`ArtifactWorker`. It imports nothing of the compiler, so that
its memory is that of a program which runs the model; what it needs is imported when the model is
loaded, so that the time of that is counted.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from maxtool.benchmark.serving import Answer, serve

if TYPE_CHECKING:
    from maxtool.benchmark.steps import Step
    from maxtool.runtime.loader.model import Model

STATUS = Path("/proc/self/status")
# Linux's names for memory of the process's own, and for mapped files such as the weights.
MEMORY = {"anonymous": "RssAnon", "mapped": "RssFile"}


class ArtifactWorker:
    """One model, loaded, and the step that is measured."""

    _model: Model
    _step: Step | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> Answer:
        """Load the model as ``run.py`` does: seconds of checking files, and its threads."""
        from maxtool.runtime.loader.host import threads_of
        from maxtool.runtime.loader.manifest import Manifest
        from maxtool.runtime.loader.model import Model

        manifest = Manifest(self._folder)
        began = time.perf_counter()
        manifest.verify(again=True)
        checksums = time.perf_counter() - began
        self._model = Model(manifest, verified=True, device=None, progress=lambda _share: None)
        return {"checksums": checksums, "threads": threads_of(manifest)}

    def first(self, length: int) -> Answer:
        """Seconds to the first result of a model of text, from ``length`` tokens."""
        from maxtool.benchmark.steps import first_result

        return {"seconds": first_result(self._model, length)}

    def begin(self, step: str, sizes: dict[str, int], entry: str) -> Answer:
        """Make a step ready."""
        from maxtool.benchmark.steps import new_step

        self._step = None  # whose caches are memory that the next one may need
        self._step = new_step(self._model, step, sizes, entry)
        return {}

    def _begun(self) -> Step:
        if self._step is None:
            raise RuntimeError("no step was begun")
        return self._step

    def turn(self, seconds: float) -> Answer:
        """Work for so long: units that were done, and the seconds that they took."""
        units, elapsed = self._begun().turn(seconds)
        return {"units": units, "seconds": elapsed}

    def profile(self, seconds: float) -> Answer:
        """Work for so long, and time each kernel; nothing is measured afterwards."""
        from maxtool.benchmark.kernel_times import KernelTimes

        times = KernelTimes(self._model)
        step = self._begun()
        units, _ = step.turn(seconds)
        return {"steps": units // step.units, "kernels": times.listed}

    def memory(self) -> Answer:
        """Bytes in memory, by what they are; nothing where the system does not tell."""
        try:
            lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        except OSError:
            return {}
        return {name: int(lines[key].split()[0]) << 10 for name, key in MEMORY.items()}


if __name__ == "__main__":
    worker = ArtifactWorker(Path(sys.argv[1]))
    measuring = (worker.first, worker.begin, worker.turn, worker.profile, worker.memory)
    serve({order.__name__: order for order in (worker.load, *measuring)})
