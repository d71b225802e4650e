"""Recurrent layers: a state that goes from one element of a sequence to the next.

Layouts and formulas: ONNX's documentation of RNN, GRU and LSTM. The steps of a short sequence of
known length are imported one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.importers.onnx.initializers import ModelWeight
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import operator
from maxtool.importers.onnx.operators.constants import full
from maxtool.importers.onnx.operators.dense import product
from maxtool.importers.onnx.operators.loop_state import steady_state
from maxtool.importers.onnx.operators.turns import take_turns
from maxtool.importers.onnx.refusals import RefusedNode, require
from maxtool.importers.onnx.values import known

Function: TypeAlias = Callable[[Tensor], Tensor]
State: TypeAlias = tuple[Tensor, ...]
# From an element of the sequence and the state before to the state after it.
Step: TypeAlias = Callable[[Tensor, State], State]

FUNCTIONS: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "affine": lambda x, a, b: x * a + b,
    "elu": lambda x, a, _: ops.where(ops.less(x, 0.0), (ops.exp(x) - 1.0) * a, x),
    "hardsigmoid": lambda x, a, b: ops.clamp(x * a + b, 0.0, 1.0),
    "leakyrelu": lambda x, a, _: ops.where(ops.less(x, 0.0), x * a, x),
    "relu": lambda x, _a, _b: ops.relu(x),
    "scaledtanh": lambda x, a, b: ops.tanh(x * b) * a,
    "sigmoid": lambda x, _a, _b: ops.sigmoid(x),
    "softplus": lambda x, _a, _b: ops.softplus(x),
    "softsign": lambda x, _a, _b: x / (ops.abs(x) + 1.0),
    "tanh": lambda x, _a, _b: ops.tanh(x),
    "thresholdedrelu": lambda x, a, _: ops.where(ops.greater(x, a), x, 0.0),
}
"""Activations by their names in lower case, with the numbers alpha and beta."""
DEFAULTS: Mapping[str, tuple[float, float]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, 0.0),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, 0.0),
}


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its matrices, biases, functions, and what its options say.

    Attributes:
        w: ``[gates * hidden, input]``.
        r: ``[gates * hidden, hidden]``.
        biases: Of the products with ``w`` and with ``r``; None for zeros.
        peepholes: Of LSTM, ``[3 * hidden]``; None for zeros.
        functions: The activations in order.
        call: The node.
        rounded: What is done to the operands of products with ``w`` and ``r`` first.
    """

    w: Tensor
    r: Tensor
    biases: tuple[Tensor, Tensor] | None
    peepholes: Tensor | None
    functions: Sequence[Function]
    call: OperatorCall
    rounded: Function

    def inputs(self, x: Tensor) -> Tensor:
        """The parts of all gates that come from the input, of all elements, with biases."""
        part = product(self.rounded(x), self.w, transposed=True)
        return part if self.biases is None else part + self.biases[0]

    def products(self, part: Tensor, h: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The parts of each gate that come from the input and from the state, with biases."""
        own = product(self.rounded(h), self.r, transposed=True)
        own = own if self.biases is None else own + self.biases[1]
        gates = int(self.r.shape[0]) // int(self.r.shape[1])
        return ops.chunk(part, gates, 1), ops.chunk(own, gates, 1)

    def clipped(self, x: Tensor) -> Tensor:
        """The operand of an activation, cut to ``-clip`` to ``clip`` if there is one."""
        clip = self.call.attributes.get("clip")
        return x if clip is None else ops.clamp(x, -float(clip), float(clip))


def _rnn(one: Direction, x: Tensor, state: State) -> State:
    (ours,), (theirs,) = one.products(x, state[0])
    return (one.functions[0](one.clipped(ours + theirs)),)


def _gru(one: Direction, x: Tensor, state: State) -> State:
    """Gates z, r and h; ``linear_before_reset`` says where r is applied."""
    (h,) = state
    ours, theirs = one.products(x, h)
    f, g = one.functions[:2]
    z, r = (f(one.clipped(ours[at] + theirs[at])) for at in range(2))
    if one.call.flag("linear_before_reset"):
        inner = ours[2] + r * theirs[2]
    else:
        hidden = int(one.r.shape[1])
        matrix = ops.slice_tensor(one.r, (slice(2 * hidden, None),))
        inner = ours[2] + ops.matmul(r * h, ops.transpose(matrix, 0, 1))
        if one.biases is not None:
            inner = inner + ops.slice_tensor(one.biases[1], (slice(2 * hidden, None),))
    candidate = g(one.clipped(inner))
    return ((1.0 - z) * candidate + z * h,)


def _lstm(one: Direction, x: Tensor, state: State) -> State:
    """Gates i, o, f and c, with peepholes if there are any."""
    h, c = state
    ours, theirs = one.products(x, h)
    i, o, f, g = (a + b for a, b in zip(ours, theirs, strict=True))
    peeps = None if one.peepholes is None else ops.chunk(one.peepholes, 3, 0)
    if peeps is not None:
        i, f = i + peeps[0] * c, f + peeps[2] * c
    gate, cell, output = one.functions[:3]
    i = gate(one.clipped(i))
    f = 1.0 - i if one.call.flag("input_forget") else gate(one.clipped(f))
    c = f * c + i * cell(one.clipped(g))
    if peeps is not None:
        o = o + peeps[1] * c
    return gate(one.clipped(o)) * output(c), c


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of a recurrent layer: its step, the number of states, and its usual activations."""

    step: Callable[[Direction, Tensor, State], State]
    states: int
    functions: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "GRU": Kind(_gru, 1, ("Sigmoid", "Tanh")),
    "LSTM": Kind(_lstm, 2, ("Sigmoid", "Tanh", "Tanh")),
    "RNN": Kind(_rnn, 1, ("Tanh",)),
}
MOST_STEPS = 16
"""Elements of a sequence that are imported one by one."""
STATES = (5, 6)
"""The inputs that are the states at the beginning."""


@operator(*KINDS)
def recurrent(call: OperatorCall) -> list[Tensor]:
    """One of ``KINDS``: all outputs ``[seq, directions, batch, hidden]``, and the last states."""
    return layers(call, KINDS[call.op_type], (call.x(1), call.x(2)))


def layers(
    call: OperatorCall,
    kind: Kind,
    matrices: tuple[Tensor, Tensor],
    rounded: Function = lambda x: x,
) -> list[Tensor]:
    """A layer of a kind with its matrices, ``w`` and ``r`` of each direction."""
    batch_first = call.flag("layout")
    x = ops.transpose(call.x(0), 0, 1) if batch_first else call.x(0)
    directions = _directions(call, kind, matrices, rounded)
    outputs, ends = [], []
    for at, (one, is_backward) in enumerate(directions):
        state = [_start(call, x, one, number, at) for number in range(kind.states)]
        layer = Layer(partial(kind.step, one), one.inputs(x), call.maybe(4), is_backward)
        output, end = layer.run(state)
        outputs.append(output)
        ends.append(end)
    all_of = ops.stack(outputs, 1)
    last = [ops.stack([end[number] for end in ends], 0) for number in range(kind.states)]
    if batch_first:
        return [ops.permute(all_of, (2, 0, 1, 3)), *(ops.transpose(one, 0, 1) for one in last)]
    return [all_of, *last]


def _start(call: OperatorCall, x: Tensor, one: Direction, number: int, at: int) -> Tensor:
    """A state before the first element; zeros if it is not given."""
    if (given := call.maybe(STATES[number])) is None:
        zero = known(np.zeros((), x.dtype.to_numpy()))
        return full(zero, [x.shape[1], one.r.shape[1]])
    first = ops.transpose(given, 0, 1) if call.flag("layout") else given
    return _part(first, at)


def _part(tensor: Tensor, at: int) -> Tensor:
    if isinstance(tensor, ModelWeight):
        return tensor.part(at)
    return ops.slice_tensor(tensor, (at,))


@dataclass(frozen=True)
class Layer:
    """One direction, and what it runs over.

    Attributes:
        step: From the part of an element and a state to the next state.
        parts: Of all elements, ``[seq, batch, gates * hidden]``.
        lengths: How many elements each sequence of the batch has; None if all are as long.
        is_backward: Whether the last element comes first.
    """

    step: Step
    parts: Tensor
    lengths: Tensor | None
    is_backward: bool

    def run(self, state: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """The outputs in the order of the sequence, and the last state."""
        length = self.parts.shape[0]
        if length.is_static and int(length) <= MOST_STEPS:
            return self._unrolled(int(length), state)
        last = ops.reshape(ops.shape_to_tensor([length]), []) - 1

        def turn(number: Tensor, before: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            place = last - number if self.is_backward else number
            after, output = self._step(ops.gather(self.parts, place, 0), place, before)
            return after, [output]

        end, (outputs,) = take_turns(length, steady_state(state), turn)
        if self.is_backward:
            outputs = ops.gather(outputs, last - ops.range(0, length), 0)
        return outputs, end

    def _unrolled(self, length: int, state: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        outputs: dict[int, Tensor] = {}
        for place in reversed(range(length)) if self.is_backward else range(length):
            number = known(np.array(place, np.int64))
            state, outputs[place] = self._step(_part(self.parts, place), number, state)
        return ops.stack([outputs[place] for place in range(length)], 0), state

    def _step(
        self, part: Tensor, place: Tensor, state: Sequence[Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        """The next state, and the output; of a sequence that is over the state stays as it is."""
        after = self.step(part, tuple(state))
        if self.lengths is None:
            return [*after], after[0]
        inside = ops.unsqueeze(ops.greater(ops.cast(self.lengths, DType.int64), place), 1)
        kept = [ops.where(inside, new, old) for new, old in zip(after, state, strict=True)]
        return kept, ops.where(inside, after[0], 0.0)


def _directions(
    call: OperatorCall, kind: Kind, matrices: tuple[Tensor, Tensor], rounded: Function
) -> list[tuple[Direction, bool]]:
    """The directions of a layer, and whether each goes backward."""
    name = call.text("direction", "forward")
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    require(name in backward, f"there is no direction {name!r}")
    functions = _functions(call, kind, len(backward[name]))
    return [
        (_direction(call, at, matrices, functions[at], rounded), is_backward)
        for at, is_backward in enumerate(backward[name])
    ]


def _direction(
    call: OperatorCall,
    at: int,
    matrices: tuple[Tensor, Tensor],
    functions: Sequence[Function],
    rounded: Function,
) -> Direction:
    (w, r), b, p = matrices, call.maybe(3), call.maybe(7)
    halves = None if b is None else ops.chunk(_part(b, at), 2, 0)
    return Direction(
        _part(w, at),
        _part(r, at),
        None if halves is None else (halves[0], halves[1]),
        None if p is None else _part(p, at),
        functions,
        call,
        rounded,
    )


def _functions(call: OperatorCall, kind: Kind, directions: int) -> list[list[Function]]:
    """The activations of each direction; those that take numbers take them in order."""
    count = len(kind.functions)
    names = [str(one) for one in call.attributes.get("activations") or kind.functions * directions]
    require(len(names) == count * directions, f"{len(names)} activations")
    alphas = iter(call.attributes.get("activation_alpha") or [])
    betas = iter(call.attributes.get("activation_beta") or [])
    functions: list[Function] = []
    for name in map(str.lower, names):
        if name not in FUNCTIONS:
            raise RefusedNode(f"there is no activation {name!r}")
        alpha, beta = DEFAULTS.get(name, (0.0, 0.0))
        if name in DEFAULTS:
            alpha, beta = next(alphas, alpha), next(betas, beta)
        functions.append(partial(_applied, FUNCTIONS[name], float(alpha), float(beta)))
    return [functions[at * count : (at + 1) * count] for at in range(directions)]


def _applied(
    function: Callable[[Tensor, float, float], Tensor], alpha: float, beta: float, x: Tensor
) -> Tensor:
    return function(x, alpha, beta)
