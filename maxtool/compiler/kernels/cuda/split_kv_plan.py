"""Partition of one token's keys, and of the queries of its heads, over blocks and threads."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

THREADS = 128
WARPS = THREADS // b.WARP
# Numbers of the queries, and as many of the results, that one thread holds in registers.
HELD = 64
# Of 128 registers, those that are left for what is named in ``min_blocks_per_sm``: none spill up to
# here.
FITTING = 120
# Keys that a stream has in flight, and how many numbers of queries leave registers for so many.
DEPTH, ROOMY = 4, 32
# Blocks that a launch should have for one sequence: two for each multiprocessor of an H100. It is
# a choice of speed alone, and one artifact runs on several GPUs.
BLOCKS = 264


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Partition of the queries of one token and their keys."""

    group: int  # heads of queries that share a head of keys
    head_dim: int  # elements of a head
    dtype: str  # the type of keys and values

    @property
    def width(self) -> int:
        """Elements in one load."""
        return ln.widest(self.dtype, self.head_dim)

    @property
    def vectors(self) -> int:
        """Loads that make a key."""
        return self.head_dim // self.width

    @property
    def stream(self) -> int:
        """Threads that hold a key together, a power of two."""
        return min(b.WARP, 1 << (self.vectors - 1).bit_length())

    @property
    def pieces(self) -> int:
        """Loads of each thread that make its part of a key."""
        return -(-self.vectors // self.stream)

    @property
    def held(self) -> int:
        """Elements of a key in one thread."""
        return self.pieces * self.width

    @property
    def chunks(self) -> int:
        """Blocks that share the queries of a group, where their numbers are too many for one."""
        return -(-self.group // max(1, HELD // self.held))

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return -(-self.group // self.chunks)

    @property
    def depth(self) -> int:
        """Keys that a stream has in flight."""
        return DEPTH if self.queries * self.held <= ROOMY else DEPTH // 2

    @property
    def min_blocks_per_sm(self) -> int:
        """Blocks of a multiprocessor: four, whose threads have 128 registers, or two with 255.

        Registers hold queries, results, the keys and values in flight, scores, maxima and sums.
        """
        numbers = 2 * self.queries * (self.held + 1) + self.depth * self.queries
        words = 2 * self.depth * self.pieces * self.width * ln.BITS[self.dtype] // 32
        return 4 if numbers + words <= FITTING else 2

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory: for the queries, and for what the warps of a block have."""
        return 4 * self.queries * (self.head_dim + WARPS * (self.head_dim + 2))

    @property
    def streams(self) -> int:
        """Keys that a block holds at once, one in each stream."""
        return THREADS // self.stream

    @property
    def step(self) -> int:
        """Keys of a round."""
        return self.streams * self.depth


def splits_for(split: SplitPlan, kv_heads: int, keys: int | None) -> int:
    """Return the most splits: enough for all multiprocessors, none idle from the start.

    Heads of keys have blocks of their own anyhow; ``keys`` is None if their number is not known.
    """
    wanted = -(-BLOCKS // (kv_heads * split.chunks))
    return wanted if keys is None else min(wanted, -(-keys // split.step))
