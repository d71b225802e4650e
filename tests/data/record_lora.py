"""Records LoRA adapters of seeded random values, and the weights that peft merges them into.

Run with torch, transformers and peft installed: ``python tests/data/record_lora.py``. Writes
``lora/NAME`` with an adapter as peft saves it, and ``expected.safetensors`` with what its merge
makes of the weights that it changes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = Path(__file__).resolve().parent
CASES = {
    "patterns": (
        torch.float32,
        {
            "r": 2,
            "lora_alpha": 6,
            "target_modules": ["q_proj", "down_proj", "embed_tokens"],
            "rank_pattern": {"down_proj": 3},
            "alpha_pattern": {"layers.1.self_attn.q_proj": 5},
        },
    ),
    "rank-stabilized": (
        torch.bfloat16,
        {"r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": ["v_proj", "up_proj"]},
    ),
}


def main() -> None:
    """Record every case."""
    for name, (dtype, options) in CASES.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(DATA / "tiny-llama", dtype=dtype)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        adapted = get_peft_model(model, LoraConfig(**options))
        for key, value in adapted.named_parameters():
            if "lora_" in key:
                torch.nn.init.normal_(value, std=0.3)
        folder = DATA / "lora" / name
        adapted.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = folder / "adapter_config.json"
        config.write_text(config.read_text().replace(str(DATA / "tiny-llama"), "tiny-llama"))
        after = adapted.merge_and_unload().state_dict()
        changed = {k: v.contiguous() for k, v in after.items() if not torch.equal(v, before[k])}
        save_file(changed, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
