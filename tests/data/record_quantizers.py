"""Record what ggml's quantizers make of the numbers of ``tests/quantization/block_samples.py``.

Needs llama-cpp-python 0.3.36, or ``libggml-base`` of llama.cpp built otherwise:

    python tests/data/record_quantizers.py [libggml-base.so]

``quantizers.json`` has, by encoding, by importance and by sample, the first digits of SHA-256 of
the bytes of its blocks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from maxtool.quantization import QuantizationEncoding  # noqa: E402
from maxtool.quantization.codec import ENCODABLE  # noqa: E402
from tests.quantization.block_samples import importances, samples  # noqa: E402
from tests.quantization.ggml import Ggml, installed  # noqa: E402
from tests.quantization.recorded import digest  # noqa: E402


def recorded(ggml: Ggml, encoding: QuantizationEncoding) -> dict[str, dict[str, str]]:
    """The digests of an encoding, by importance and by sample."""
    return {
        importance: {
            name: digest(ggml.quantize(values, encoding, weights))
            for name, values in samples().items()
        }
        for importance, weights in importances().items()
    }


def main(arguments: list[str]) -> None:
    """Write the file."""
    library = Path(arguments[0]) if arguments else installed()
    if library is None:
        raise SystemExit("llama-cpp-python is not installed")
    encodings = sorted(ENCODABLE, key=lambda encoding: encoding.name)
    content = {encoding.name: recorded(Ggml(library), encoding) for encoding in encodings}
    text = json.dumps(content, indent=1) + "\n"
    (HERE / "quantizers.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
