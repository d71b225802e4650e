"""Assembly language that LLVM writes: its loops, and what they keep on the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from typing import Any

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.kernels.cpu import builder

LABEL = re.compile(r"^(\.L\w+):")
FUNCTION = re.compile(r"^[^\s.#][^:\s]*:")
# A jump of x86 or aarch64, and where it leads; one that is always taken, or a return.
JUMP = re.compile(r"^\t(?:j\w+|b|b\.\w+|cbn?z|tbn?z)\t(?:.*, )?(\.L\w+)$")
END = re.compile(r"^\t(?:jmp|b|br|ret\w?)\b(?!\.)")
# A vector register and memory of the stack, in one instruction.
SPILLS = {
    "x86_64": re.compile(r"(?=.*%[xyz]mm\d)(?=.*\(%rsp)"),
    "aarch64": re.compile(r"\t(?:ld|st)\w+\t[qdv]\d+\b.*\[sp\b"),
}

# Blocks of instructions without a jump, by number, and for each of them those that may follow.
Flow = dict[int, set[int]]


def assembly(target: CpuTarget, function: Any) -> str:
    """Return the code of a kernel for a target."""
    module = builder.build({"kernel": function}, target.tvm)
    # Compilers for AVX alone mark instructions that AVX-512 has, too.
    return str(module.mod.inspect_source("asm")).replace("{vex}\t", "\t")


def inner_loops(code: str) -> Iterator[list[str]]:
    """The instructions of each loop that has no other in it, wherever its blocks lie."""
    blocks = _blocks(code)
    for loop in _loops(_flow(blocks)):
        yield [line for number in sorted(loop) for line in blocks[number]]


def loops_with(code: str, instruction: str) -> list[list[str]]:
    """The inner loops that have an instruction."""
    return [loop for loop in inner_loops(code) if count(loop, instruction)]


def loops_around(code: str, instruction: str) -> list[list[str]]:
    """The loops that have an instruction, inner ones or not, each without those that lie in it."""
    blocks = _blocks(code)
    loops = [
        [line for number in sorted(loop) for line in blocks[number]]
        for loop in _own_blocks(_flow(blocks))
    ]
    return [loop for loop in loops if count(loop, instruction)]


def count(loop: list[str], instruction: str) -> int:
    """Return how often a loop has an instruction."""
    return sum(f"\t{instruction}\t" in line for line in loop)


def functions(code: str, name: str) -> Iterator[str]:
    """The code of each function of a name; LLVM numbers those that have the same."""
    label = re.compile(rf"^{name}(?:\.\d+)?:$")
    for part in re.split(r"^(?=[^\s.#][^:\s]*:)", code, flags=re.MULTILINE):
        if label.match(part.partition("\n")[0]):
            yield part


def spills(loop: list[str], target: CpuTarget) -> list[str]:
    """The instructions of a loop that keep a vector on the stack, or read it there."""
    pattern = SPILLS[target.triple.partition("-")[0]]
    return [line for line in loop if pattern.match(line)]


def _blocks(code: str) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in code.splitlines():
        if LABEL.match(line) and blocks[-1]:
            blocks.append([])
        blocks[-1].append(line)
        if JUMP.match(line) or END.match(line):
            blocks.append([])
    return blocks


def _flow(blocks: list[list[str]]) -> Flow:
    labels = {
        match[1]: number
        for number, block in enumerate(blocks)
        for line in block[:1]
        if (match := LABEL.match(line))
    }
    flow: Flow = {}
    for number, block in enumerate(blocks):
        last = block[-1] if block else ""
        jump = JUMP.match(last)
        flow[number] = {labels[jump[1]]} if jump else set()
        if not END.match(last) and number + 1 < len(blocks):
            flow[number].add(number + 1)
    starts = [number for number, block in enumerate(blocks) if any(map(FUNCTION.match, block))]
    reached = _reached(flow, starts)
    return {at: ways for at, ways in flow.items() if at in reached}


def _reached(flow: Flow, starts: list[int]) -> set[int]:
    """The blocks that some lead to: directives behind a jump are not among them."""
    reached: set[int] = set()
    waiting = list(starts)
    while waiting:
        at = waiting.pop()
        if at not in reached:
            reached.add(at)
            waiting.extend(flow[at])
    return reached


def _loops(flow: Flow) -> Iterator[Set[int]]:
    """The innermost loops: circles of which none is left without the ways to where one enters."""
    for circle in _circles(flow):
        nested = list(_loops(_once_through(flow, circle)))
        yield from nested or [circle]


def _own_blocks(flow: Flow) -> Iterator[Set[int]]:
    """The blocks of each loop that are in none of the loops within it."""
    for circle in _circles(flow):
        once = _once_through(flow, circle)
        yield circle - {at for nested in _circles(once) for at in nested}
        yield from _own_blocks(once)


def _once_through(flow: Flow, circle: Set[int]) -> Flow:
    """The ways within a circle but for those to where one enters it."""
    entries = {to for at, ways in flow.items() if at not in circle for to in ways & circle}
    heads = entries or {min(circle)}
    return {at: (flow[at] & circle) - heads for at in circle}


def _circles(flow: Flow) -> Iterator[Set[int]]:
    """Blocks that lead to each other, by Kosaraju's algorithm."""
    back: Flow = {at: set() for at in flow}
    for at, ways in flow.items():
        for to in ways:
            back[to].add(at)
    done: set[int] = set()
    for start in reversed(_finished(flow)):
        reached: set[int] = set()
        waiting = [start]
        while waiting:
            at = waiting.pop()
            if at not in done | reached:
                reached.add(at)
                waiting.extend(back[at])
        done |= reached
        if len(reached) > 1 or start in flow[start] & reached:
            yield reached


def _finished(flow: Flow) -> list[int]:
    """The blocks in the order in which a search in depth leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for start in flow:
        stack = [] if start in seen else [(start, iter(flow[start]))]
        seen.add(start)
        while stack:
            at, ways = stack[-1]
            following = next((to for to in ways if to not in seen), None)
            if following is None:
                order.append(at)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(flow[following])))
    return order
