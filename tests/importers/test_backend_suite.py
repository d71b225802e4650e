"""ONNX's own backend suite: what is recorded passes, the rest is refused by name, nothing is wrong.

Every case is evaluated by the definitions of the operations; a few are compiled.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.effort import sampled
from tests.importers.backend_suite import by_compiler, cases, outcome
from tests.importers.backend_table import BEGIN, END, PAGE, recorded, table

PARTS = 8
RECORD = recorded()
same_suite = pytest.mark.skipif(
    RECORD["onnx"] != onnx.__version__, reason=f"recorded with onnx {RECORD['onnx']}"
)


@pytest.mark.long
@same_suite
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_recorded_passes_and_the_rest_is_refused(part: int, tmp_path: Path) -> None:
    wrong = {}
    for name in sorted(cases())[part::PARTS]:
        _, wanted, _ = RECORD["cases"][name]
        judged = outcome(cases()[name], tmp_path)
        if judged.state != wanted:
            wrong[name] = (judged.state, judged.why, f"recorded: {wanted}")
    assert not wrong, "tests/data/record_onnx_backend.py records what passes"


def test_nothing_is_recorded_as_wrong() -> None:
    assert {ours for _, ours, _ in RECORD["cases"].values()} == {"passed", "refused"}


def test_nearly_all_that_onnxruntime_passes_pass_here() -> None:
    theirs = [ours for _, ours, passed in RECORD["cases"].values() if passed]
    assert theirs.count("passed") >= 0.97 * len(theirs)


def test_the_page_has_the_counts_of_the_record() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == table(RECORD)


COMPILED = (
    "add", "argmax_keepdims_example", "attention_4d_gqa", "averagepool_2d_ceil",
    "batchnorm_example", "bitshift_left_uint16", "cast_FLOAT_to_FLOAT8E4M3FN", "concat_3d_axis_1",
    "convtranspose_pads", "cumprod_1d", "dynamicquantizelinear", "einsum_batch_matmul",
    "gather_elements_1", "gridsample_bicubic", "group_normalization_epsilon", "gru_defaults",
    "if", "layer_normalization_3d_axis1_epsilon", "lstm_with_peepholes", "matmulinteger",
    "maxpool_with_argmax_2d_precomputed_strides", "nonmaxsuppression_two_classes",
    "nonzero_example", "onehot_with_axis", "qlinearconv", "reduce_l2_keep_dims_example",
    "resize_downsample_scales_cubic", "scatter_elements_with_axis", "slice_neg_steps",
    "softmax_axis_1", "top_k_smallest", "where_example",
)  # fmt: skip


@same_suite
@pytest.mark.parametrize("name", COMPILED)
def test_what_is_compiled_computes_the_same(name: str, tmp_path: Path) -> None:
    judged = outcome(cases()[f"node/test_{name}"], tmp_path, by_compiler)
    assert judged.state == "passed", judged.why


@same_suite
@pytest.mark.slow
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("part", sampled(range(PARTS), share=8))
def test_all_cases_that_pass_are_compiled_alike(part: int, tmp_path: Path) -> None:
    """Bodies of functions are left out: the operators in them are compiled by themselves."""
    passing = [name for name, (_, ours, _) in RECORD["cases"].items() if ours == "passed"]
    names = sorted(name for name in passing if "_expanded" not in name)
    judged = {name: outcome(cases()[name], tmp_path, by_compiler) for name in names[part::PARTS]}
    wrong = {name: one.why for name, one in judged.items() if one.state != "passed"}
    assert not wrong
