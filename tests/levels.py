"""Lesser CPUs that this machine can be taken for, and the tests that are run once more on them.

A test for each kernel and each recipe: CPUs differ in the tile of products, the width of vectors
and the instructions for numbers of 16 bits, and each of these tests depends on some of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maxtool.compiler.cpu_target import HOST_CPU, TILES, CpuTarget

DATA = Path(__file__).resolve().parent / "data"
DECODERS = "artifact/test_families.py::test_a_folder_computes_what_was_recorded"
OF_NO_TEXT = {
    "convnext": "artifact/test_convnets.py::test_check_passes",
    "image_encoder": "artifact/test_image_encoders.py::test_check_passes",
    "resnet": "artifact/test_convnets.py::test_check_passes",
    "dual_encoder": "artifact/test_dual_encoder.py::test_check_passes",
    "seq2seq": "artifact/test_seq2seq.py::test_check_passes",
    "speech": "artifact/test_speech.py::test_check_passes",
}
ENCODERS = "artifact/test_encoders.py::test_check_passes"

# Each kernel of a CPU, and the test that is run for it.
KERNELS = {
    "AddPositions": "graph/test_positions.py::test_learned_positions[21-float32]",
    "CachedAttention": "compiler/kernels/test_attention.py::test_attention[4-2-80-None]",
    "BlockAttention": "compiler/kernels/test_block_attention.py"
    "::test_what_numpy_computes[padding-True-True]",
    "CacheWrite": "compiler/test_caches.py"
    "::test_attention_over_a_cache_of_any_form[False-None-None-False-DType.float16]",
    "CausalConvolution": "graph/test_recurrence.py::test_a_text_in_pieces[lengths2-3-37]",
    "Convolution": "graph/test_convolution.py::test_convolution[float32]",
    "CumsumRows": "graph/test_reduction.py::test_running_sums_in_each_direction",
    "DepthwiseConvolution": "compiler/test_convolutions.py::test_depthwise[taps0-window0-37]",
    "DirectConvolution": "compiler/test_convolutions.py::test_direct[size4-5-7-taps4-window4]",
    "DotAttention": "graph/test_dot_attention.py::test_what_numpy_computes[float64]",
    "CutRows": "compiler/kernels/test_rowwise.py::test_parts_of_rows_are_cut[7-2-3-float32]",
    "JoinRows": "compiler/kernels/test_rowwise.py::test_rows_are_joined[widths1-float32]",
    "PackedEmbedding": "compiler/kernels/test_rowwise.py::test_embedding[1-37-20-float16]",
    "PackedExpertLinear": "compiler/kernels/test_experts.py::test_expert_linear[37-21-float32]",
    "GatherRows": "graph/test_indexing.py::test_gathering[int64]",
    "GroupNormRows": "graph/test_normalization.py::test_what_numpy_computes[float16]",
    "IndexRows": "graph/test_reduction.py::test_nan_and_ties",
    "IntegerConvolution": "compiler/test_integer_convolutions.py"
    "::test_direct[uint8-131-size4-8-70-taps4-window4]",
    "IntegerPower": "graph/test_elementwise.py::test_powers_of_whole_numbers[int32]",
    "L2NormRows": "graph/test_normalization.py::test_l2_norms[float32]",
    "LayerNormRows": "graph/test_normalization.py::test_what_numpy_computes[float32]",
    "LinearAttention": "graph/test_recurrence.py"
    "::test_a_scan_in_pieces[False-True-lengths2-1-4-7-20]",
    "PackedLinears": "compiler/kernels/test_epilogues.py::test_what_numpy_computes[three]",
    "PackedLinear": "compiler/kernels/test_linear.py"
    "::test_short_weights_are_used_exactly[172-64-bfloat16]",
    "NonzeroPlaces": "graph/test_nonzero.py::test_the_places_of_what_is_not_zero[int8]",
    "PackColumns": "compiler/kernels/test_columns.py::test_batches[sizes2]",
    "Permute": "graph/test_layout.py::test_orders_of_dimensions[DType.int16]",
    "Pointwise": "compiler/kernels/test_special.py::test_a_function[gelu]",
    "Pool": "graph/test_convolution.py::test_pooling[float32]",
    "PoolIndices": "graph/test_image_operations.py::test_where_the_largest_are",
    "QuantizedAttention": "compiler/kernels/test_quantized_cache.py::test_attention_by_slot",
    "QuantizedEmbedding": "compiler/kernels/test_quantized.py::test_rows_of_a_table[Q4_K]",
    "QuantizedExpertLinear": "compiler/kernels/test_quantized.py::test_experts[1-2-Q4_K]",
    "QuantizedLinears": "compiler/kernels/test_epilogues.py::test_what_numpy_computes[Q4_K_M]",
    "QuantizedLinear": "compiler/kernels/test_quantized.py::test_products_of_integers[Q4_K]",
    "ReduceRows": "graph/test_reduction.py::test_what_numpy_computes[float32]",
    "RmsNorm": "compiler/kernels/test_rowwise.py::test_rms_norm[64]",
    "RmsNormRows": "graph/test_normalization.py::test_rounding_before_the_product_and_after_it",
    "Rope": "compiler/kernels/test_rowwise.py::test_rope[2-80-80]",
    "QuantizeQ8": "compiler/kernels/test_quantized_cache.py::test_blocks_are_those_of_ggml[3-64]",
    "RopeAngles": "graph/test_positions.py::test_angles_of_any_length",
    "Sample": "compiler/test_sampling_kernels.py::test_rows_tokens_and_positions[cpu]",
    "ScatterBlocks": "graph/test_indexing.py::test_scattering_blocks",
    "ScatterRows": "graph/test_indexing.py::test_scattering[0-DType.float32]",
    "SlotAttention": "compiler/kernels/test_slots.py::test_attention_by_slot[4-2-80-7-float16]",
    "SelectiveScan": "graph/test_selective_scan.py::test_a_text_in_pieces[lengths2-7-37]",
    "SoftmaxRows": "graph/test_normalization.py::test_large_and_hidden_scores",
    "SortedPlaces": "graph/test_ranking.py::test_the_order_of_all[float32]",
    "TopRows": "graph/test_ranking.py::test_what_numpy_sorts[float32]",
    "WeightedSum": "compiler/kernels/test_experts.py::test_weighted_sum[8-64]",
    "StackDepth": "compiler/test_convolutions.py::test_volumes[taps0-window0]",
    "WinogradConvolution": "compiler/kernels/test_winograd.py"
    "::test_what_numpy_computes[size2-24-37-around2-4]",
}

# What depends on the tile and is neither a kernel nor a recipe.
BESIDES = (
    "compiler/kernels/test_attention.py"
    "::test_short_keys_and_values_are_used_exactly[9-3-64-None-None-float16]",
    "compiler/kernels/test_rowwise.py::test_cache_writes_only_what_fits[10-5]",
    "artifact/test_devices.py::test_each_file_has_its_part_of_every_weight",
    "compiler/test_storage.py::test_however_a_weight_is_stored_the_numbers_are_those_of_numpy",
)


@dataclass(frozen=True, slots=True)
class Level:
    """A CPU, and what makes libraries that choose by the CPU choose as they do there.

    Attributes:
        cpu: LLVM's name of it.
        numpy: How names of NumPy's dispatched instruction sets begin that it has not.
        openblas: The CPU that NumPy's OpenBLAS is told of.
        glibc: Instruction sets that the C library's functions must not use.
    """

    cpu: str
    numpy: tuple[str, ...]
    openblas: str
    glibc: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that is to find itself on such a CPU."""
        result: list[str] = np.show_config("dicts")["SIMD Extensions"].get("found", [])
        return {
            HOST_CPU: self.cpu,
            "NPY_DISABLE_CPU_FEATURES": " ".join(n for n in result if n.startswith(self.numpy)),
            "OPENBLAS_CORETYPE": self.openblas,
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in self.glibc),
        }


AVX512 = ("AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ", "AVX512CD")
V3 = Level("x86-64-v3", ("AVX512", "X86_V4"), "Haswell", AVX512)
V2 = Level(
    "x86-64-v2",
    ("AVX", "F16C", "FMA", "X86_V3", "X86_V4"),
    "Nehalem",
    (*AVX512, "AVX2", "AVX", "FMA", "BMI1", "BMI2"),
)

# Values in a vector register of this machine -> the next CPU below it, with shorter ones.
BELOW = {TILES["avx512f"].width: V3, TILES["avx2"].width: V2}


def below(target: CpuTarget) -> Level | None:
    """The CPU that a machine is taken for besides itself; None if there is no lesser one."""
    return BELOW.get(target.tile.width)


# Recipes of models that cannot be recorded so.
OTHERWISE = {
    "gpt_oss_mxfp4": "recipe/test_gpt_oss.py::test_blocks_mean_the_plain_numbers",
    "gte_new": "parity/test_gte.py::test_ntk_scaling",
}


def test_of(recipe: str, architecture: str) -> str:
    """Return the test of a recipe: of the tiny model that has its name, or of its recordings."""
    if recipe in OTHERWISE:
        return OTHERWISE[recipe]
    if architecture in OF_NO_TEXT:
        return f"{OF_NO_TEXT[architecture]}[{recipe}]"
    tiny = f"tiny-{recipe.replace('_', '-')}"
    if not (DATA / tiny).is_dir():
        return f"variants/test_random.py::test_a_family[{recipe}]"
    tests = {"decoder": DECODERS, "encoder": ENCODERS}
    return f"{tests[architecture]}[{tiny}]"
