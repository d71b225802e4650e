"""Records which cases of ONNX's backend suite pass, here and in onnxruntime, and writes the table.

Run from the root: ``python tests/data/record_onnx_backend.py`` (needs the extra ``test-all``).
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.importers.backend_suite import Case, cases, close, outcome
from tests.importers.backend_table import PAGE, RECORDED, with_table

SEVERAL = "several operators"


def operator_of(case: Case) -> str:
    nodes = case.model.graph.node
    if case.name.endswith("_expanded") or len({node.op_type for node in nodes}) != 1:
        return SEVERAL
    domain = f"{nodes[0].domain}." if nodes[0].domain else ""
    return domain + nodes[0].op_type


def passes_in_peer(case: Case) -> bool:
    """Whether onnxruntime passes all data sets."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        content = case.model.SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        return all(
            _agree(case, session.run(None, dict(zip(names, inputs, strict=False))), expected)
            for inputs, expected in case.data_sets()
        )
    except Exception:  # of many classes, for what it does not support
        return False


def _agree(case: Case, results: Sequence[object], expected: Sequence[object]) -> bool:
    pairs = [*zip(results, expected, strict=True)]
    return all(_same(case, actual, wanted) for actual, wanted in pairs)


def _same(case: Case, actual: object, wanted: object) -> bool:
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(_same, [case] * len(actual), actual, wanted))
    if actual is None or wanted is None:
        return actual is wanted
    actual, wanted = np.asarray(actual), np.asarray(wanted)
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        return False
    if wanted.dtype.kind in "biuOSU":
        return bool(np.array_equal(actual, wanted))
    return bool(close(case, actual, wanted).all())


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        record = {
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
            "cases": {
                name: [operator_of(case), outcome(case, Path(folder)).state, passes_in_peer(case)]
                for name, case in cases().items()
            },
        }
    text = json.dumps(record, indent=0)
    RECORDED.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(f"{RECORDED} and {PAGE} written")


if __name__ == "__main__":
    main()
