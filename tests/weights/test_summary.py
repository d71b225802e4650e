"""The tree of names, its collapsed layers, and the totals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.weights import TensorInfo, summary
from maxtool.weights.names import natural_key
from maxtool.weights.summary import Total, TreeNode, build_tree, ranges


def info(name: str, shape: tuple[int, ...] = (4, 2), dtype: DType = DType.float32) -> TensorInfo:
    return TensorInfo(name, dtype, shape)


def lines(nodes: tuple[TreeNode, ...], indent: int = 0) -> list[str]:
    result = []
    for node in nodes:
        result.append("  " * indent + node.label)
        result += lines(node.children, indent + 1)
    return result


def test_layers_alike_are_one_line() -> None:
    names = [f"model.layers.{i}.{part}.weight" for i in range(22) for part in ("a", "b")]
    tree = build_tree(map(info, [*names, "model.norm.weight"]))
    assert lines(tree) == [
        "model",
        "  layers.{0..21}",
        "    a.weight",
        "    b.weight",
        "  norm.weight",
    ]
    layers = tree[0].children[0]
    assert layers.repeats == 22
    assert layers.total == Total(44, 44 * 8, 44 * 32)
    assert layers.children[0].total == Total(22, 22 * 8, 22 * 32)
    assert layers.children[0].shape == (4, 2)


def test_layers_that_differ_stay_apart() -> None:
    wide = {1, 3, 4, 5}
    tree = build_tree(
        info(f"blk.{i}.w", dtype=DType.float32 if i in wide else DType.float16) for i in range(8)
    )
    assert lines(tree) == ["blk", "  {0,2,6..7}.w", "  {1,3..5}.w"]
    assert [node.repeats for node in tree[0].children] == [4, 4]
    assert tree[0].types == (("F32", 128), ("F16", 64))


def test_ranges_nest() -> None:
    names = [f"l.{i}.e.{j}.{part}" for i in range(3) for j in range(4) for part in "ab"]
    tree = build_tree(map(info, names))
    assert lines(tree) == ["l.{0..2}.e.{0..3}", "  a", "  b"]
    assert tree[0].repeats == 12
    assert tree[0].total.tensors == 24


def test_a_single_layer_is_no_range() -> None:
    assert lines(build_tree([info("l.0.a"), info("l.0.b")])) == ["l.0", "  a", "  b"]


def test_a_tensor_may_be_the_beginning_of_others() -> None:
    tree = build_tree([info("a"), info("a.b"), info("a.c")])
    assert lines(tree) == ["a", "  (itself)", "  b", "  c"]


def test_odd_names_make_a_tree() -> None:
    for name in ("", ".", "a..b", "²", "1" * 5000, ".".join("x" * 5000)):
        assert sum(node.total.tensors for node in build_tree([info(name)])) == 1


RUNS = [(["0"], "0"), (["0", "1", "2"], "0..2"), (["0", "2", "3", "7"], "0,2..3,7")]


@pytest.mark.parametrize(("numbers", "text"), RUNS)
def test_ranges(numbers: list[str], text: str) -> None:
    assert ranges(numbers) == text


SEGMENTS = st.sampled_from(["a", "b", "0", "1", "2", "11", "x1"])
TREES = st.sets(st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join), max_size=30)


@given(names=TREES, wide=st.sets(st.integers(0, 29)))
def test_no_tensor_is_lost(names: set[str], wide: set[int]) -> None:
    tensors = [
        info(name, dtype=DType.float64 if number in wide else DType.float32)
        for number, name in enumerate(sorted(names, key=natural_key))
    ]
    tree = build_tree(tensors)
    assert sum((node.total for node in tree), Total()) == Total.of(tensors)
    for node in tree:
        check_sums(node)


def check_sums(node: TreeNode) -> None:
    assert sum(nbytes for _, nbytes in node.types) == node.total.nbytes
    if node.children:
        assert sum((child.total for child in node.children), Total()) == node.total
        for child in node.children:
            check_sums(child)


def test_natural_order() -> None:
    names = ["l.10.a", "l.2.a", "b", "l.2", "a10", "a9"]
    assert sorted(names, key=natural_key) == ["a9", "a10", "b", "l.2", "l.2.a", "l.10.a"]


def test_a_file_does_not_decide_how_large_the_tree_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MAX_BRANCHES", 4)
    tree = build_tree(info(f"n{n}.{part}.w") for n in range(2) for part in "ab")
    assert lines(tree) == ["n0", "  a.w", "  b.w", "n1.a.w", "n1.b.w"]
    assert sum((node.total for node in tree), Total()).tensors == 4


def test_keys_stay_short() -> None:
    assert len(natural_key("1a" * 1000)) < 2200
