"""Shapes of hybrids: decoders of which most layers keep a state of fixed size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Sizes = dict[str, tuple[int, ...]]


def of_layers(layers: Iterable[Sizes]) -> Sizes:
    """The tensors of layers under the names that they have in the model."""
    return {
        f"model.layers.{index}.{name}": size
        for index, layer in enumerate(layers)
        for name, size in layer.items()
    }


@dataclass(frozen=True)
class Lfm2Shape:
    """The shape of LFM2-1.2B: short convolutions, attention in six of sixteen layers."""

    vocabulary: int = 65536
    hidden: int = 2048
    inner: int = 8192
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    taps: int = 3
    attention: tuple[int, ...] = (2, 5, 8, 10, 12, 14)

    @property
    def config(self) -> dict[str, object]:
        """config.json in the words of Hugging Face."""
        kinds = ["full_attention" if i in self.attention else "conv" for i in range(self.layers)]
        return {
            "architectures": ["Lfm2ForCausalLM"],
            "model_type": "lfm2",
            "dtype": "float32",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "block_auto_adjust_ff_dim": False,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "layer_types": kinds,
            "conv_L_cache": self.taps,
            "conv_bias": False,
            "norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": None,
        }

    @property
    def tensors(self) -> Sizes:
        """Name and shape of every tensor, as Hugging Face names them."""
        names: Sizes = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.embedding_norm.weight": (self.hidden,),
        }
        return names | of_layers(map(self._layer, range(self.layers)))

    def _layer(self, index: int) -> Sizes:
        names = {
            **(self._attention() if index in self.attention else self._convolution()),
            "operator_norm": (self.hidden,),
            "ffn_norm": (self.hidden,),
            "feed_forward.w1": (self.inner, self.hidden),
            "feed_forward.w2": (self.hidden, self.inner),
            "feed_forward.w3": (self.inner, self.hidden),
        }
        return {f"{name}.weight": size for name, size in names.items()}

    def _attention(self) -> Sizes:
        size = self.hidden // self.heads
        keys = self.kv_heads * size
        return {
            "self_attn.q_proj": (self.hidden, self.hidden),
            "self_attn.k_proj": (keys, self.hidden),
            "self_attn.v_proj": (keys, self.hidden),
            "self_attn.out_proj": (self.hidden, self.hidden),
            "self_attn.q_layernorm": (size,),
            "self_attn.k_layernorm": (size,),
        }

    def _convolution(self) -> Sizes:
        return {
            "conv.in_proj": (3 * self.hidden, self.hidden),
            "conv.conv": (self.hidden, 1, self.taps),
            "conv.out_proj": (self.hidden, self.hidden),
        }


@dataclass(frozen=True)
class Qwen3NextShape:
    """Qwen 3 Next at a billion weights: gated delta nets in three of four layers, experts."""

    vocabulary: int = 32000
    hidden: int = 1024
    layers: int = 16
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 256
    state_key_heads: int = 8
    state_heads: int = 16
    state_dim: int = 128
    taps: int = 4
    experts: int = 32
    experts_used: int = 4
    inner: int = 512

    @property
    def config(self) -> dict[str, object]:
        """config.json in the words of Hugging Face."""
        return {
            "architectures": ["Qwen3NextForCausalLM"],
            "model_type": "qwen3_next",
            "dtype": "float32",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "layer_types": [
                "full_attention" if self._attends(index) else "linear_attention"
                for index in range(self.layers)
            ],
            "linear_conv_kernel_dim": self.taps,
            "linear_key_head_dim": self.state_dim,
            "linear_value_head_dim": self.state_dim,
            "linear_num_key_heads": self.state_key_heads,
            "linear_num_value_heads": self.state_heads,
            "num_experts": self.experts,
            "num_experts_per_tok": self.experts_used,
            "moe_intermediate_size": self.inner,
            "shared_expert_intermediate_size": self.inner,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000000.0,
                "partial_rotary_factor": 0.25,
            },
            "max_position_embeddings": 8192,
            "attention_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": None,
        }

    @property
    def tensors(self) -> Sizes:
        """Name and shape of every tensor, as Hugging Face names them."""
        names: Sizes = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.norm.weight": (self.hidden,),
            "lm_head.weight": (self.vocabulary, self.hidden),
        }
        return names | of_layers(map(self._layer, range(self.layers)))

    def _layer(self, index: int) -> Sizes:
        return {
            **(self._attention() if self._attends(index) else self._delta_net()),
            **self._experts(),
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
        }

    def _attends(self, index: int) -> bool:
        return index % 4 == 3

    def _attention(self) -> Sizes:
        width, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "self_attn.q_proj.weight": (2 * width, self.hidden),  # with a gate for each
            "self_attn.k_proj.weight": (keys, self.hidden),
            "self_attn.v_proj.weight": (keys, self.hidden),
            "self_attn.o_proj.weight": (self.hidden, width),
            "self_attn.q_norm.weight": (self.head_dim,),
            "self_attn.k_norm.weight": (self.head_dim,),
        }

    def _delta_net(self) -> Sizes:
        keys, values = self.state_key_heads * self.state_dim, self.state_heads * self.state_dim
        return {
            "linear_attn.in_proj_qkvz.weight": (2 * keys + 2 * values, self.hidden),
            "linear_attn.in_proj_ba.weight": (2 * self.state_heads, self.hidden),
            "linear_attn.conv1d.weight": (2 * keys + values, 1, self.taps),
            "linear_attn.A_log": (self.state_heads,),
            "linear_attn.dt_bias": (self.state_heads,),
            "linear_attn.norm.weight": (self.state_dim,),
            "linear_attn.out_proj.weight": (self.hidden, values),
        }

    def _experts(self) -> Sizes:
        up, down = (self.inner, self.hidden), (self.hidden, self.inner)
        places = [f"experts.{index}" for index in range(self.experts)] + ["shared_expert"]
        return {
            "mlp.gate.weight": (self.experts, self.hidden),
            "mlp.shared_expert_gate.weight": (1, self.hidden),
            **{
                f"mlp.{place}.{name}_proj.weight": size
                for place in places
                for name, size in (("gate", up), ("up", up), ("down", down))
            },
        }
