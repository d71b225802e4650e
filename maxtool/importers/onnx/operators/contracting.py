"""``Einsum``: sums of products over named dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maxtool.graph import Dim, Tensor, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.refusals import require


@dataclass(frozen=True, slots=True)
class Labelled:
    """A tensor whose dimensions have different labels."""

    tensor: Tensor
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        """The size of a dimension."""
        return self.tensor.shape[self.labels.index(label)]

    def ordered(self, labels: Sequence[str]) -> Tensor:
        """The tensor with its dimensions in another order."""
        return ops.permute(self.tensor, [self.labels.index(label) for label in labels])

    def summed(self, kept: set[str]) -> Labelled:
        """The sums over all dimensions but some."""
        gone = [at for at, label in enumerate(self.labels) if label not in kept]
        if not gone:
            return self
        labels = tuple(label for label in self.labels if label in kept)
        total = ops.sum(self.tensor, gone)
        left = [dim for at, dim in enumerate(total.shape) if at not in gone]
        return Labelled(ops.reshape(total, left), labels)


@operator("Einsum")
def einsum(call: OperatorCall) -> Tensor:
    """The sum that an equation such as ``bij,bjk->bik`` describes."""
    tensors = call.tensors()
    terms, output = _parsed(call.text("equation"), tensors)
    operands = [_without_repetition(x, term) for x, term in zip(tensors, terms, strict=True)]
    result = operands[0]
    for at, other in enumerate(operands[1:], 1):
        later = {label for one in operands[at + 1 :] for label in one.labels} | {*output}
        result = _product(result, other, later)
    return result.summed({*output}).ordered(output)


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; those of an ellipsis are numbers."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    require(len(terms) == len(tensors), f"{equation!r} is for {len(terms)} operands")
    labels = [_labels(term, x.rank) for term, x in zip(terms, tensors, strict=True)]
    dots = max((term for one in labels for term in [[x for x in one if x.isdigit()]]), key=len)
    if not arrow:
        names = sorted({name for term in terms for name in term.replace("...", "")})
        once = [name for name in names if sum(term.count(name) for term in terms) == 1]
        return labels, [*dots, *once]
    before, ellipsis, after = right.partition("...")
    return labels, [*before, *(dots if ellipsis else []), *after]


def _labels(term: str, rank: int) -> list[str]:
    before, ellipsis, after = term.partition("...")
    require((before + after).isalpha() or not before + after, f"{term!r} are not letters")
    count = rank - len(before) - len(after)
    require(
        count == 0 or (bool(ellipsis) and count > 0), f"{term!r} is for another rank than {rank}"
    )
    # Counted from the last, as dimensions broadcast.
    return [*before, *(str(number) for number in reversed(range(count))), *after]


def _without_repetition(x: Tensor, labels: Sequence[str]) -> Labelled:
    """The diagonal of dimensions that have the same label."""
    own = [*labels]
    while repeated := next((label for label in own if own.count(label) > 1), None):
        first = own.index(repeated)
        second = own.index(repeated, first + 1)
        rest = [at for at in range(x.rank) if at not in (first, second)]
        moved = ops.permute(x, [first, second, *rest])
        numbers = ops.range(0, moved.shape[0])
        x = ops.gather_nd(moved, ops.stack([numbers, numbers], -1))
        own = [repeated, *(own[at] for at in rest)]
    return Labelled(x, tuple(own))


def _product(left: Labelled, right: Labelled, later: set[str]) -> Labelled:
    """The product of two tensors, summed over what they share and nothing needs later."""
    left = left.summed({*right.labels} | later)
    right = right.summed({*left.labels} | later)
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in later]
    inner = [label for label in shared if label not in later]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    sizes = {label: left.size(label) for label in (*shared, *rows)}
    wide = {label: right.size(label) for label in (*shared, *columns)}
    a = _matrices(left, (batch, rows, inner), sizes)
    b = _matrices(right, (batch, inner, columns), wide)
    whole = {**wide, **sizes} | {x: wide[x] for x in batch if sizes[x] == 1}
    product = ops.matmul(a, b) if inner else a * b
    labels = (*batch, *rows, *columns)
    return Labelled(ops.reshape(product, [whole[label] for label in labels]), labels)


def _matrices(one: Labelled, groups: tuple[Sequence[str], ...], sizes: dict[str, Dim]) -> Tensor:
    """Batch dimensions, and two that each stand for several."""
    batch, first, second = groups
    joined = [_volume([sizes[label] for label in group]) for group in (first, second)]
    ordered = one.ordered([*batch, *first, *second])
    return ops.reshape(ordered, [*(sizes[label] for label in batch), *joined])


def _volume(sizes: Sequence[Dim]) -> Dim:
    total = Dim(1)
    for size in sizes:
        total = total * size
    return total
