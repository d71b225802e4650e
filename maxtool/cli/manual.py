"""Texts of ``--help`` for each command besides its options: examples, and how it may end."""

from __future__ import annotations

from collections.abc import Mapping

# Each is a command line of at most 76 characters, or what it is for.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "inspect-weights": (
        "maxtool inspect-weights model.gguf",
        "maxtool inspect-weights Llama-3.2-1B --filter '*.layers.0.*' --stats",
        "maxtool inspect-weights model.safetensors --values 'lm_head.weight[0, :8]'",
        "maxtool inspect-weights before.gguf --diff after.gguf --json",
        "maxtool inspect-weights model.gguf --stats --html model.html",
        "maxtool inspect-weights s3://bucket/llama",
    ),
    "convert": (
        "maxtool convert Llama-3.2-1B -o llama.gguf --quantize Q4_K_M",
        "maxtool convert llama.gguf -o llama-folder --dtype bfloat16",
        "maxtool convert Llama-3.2-1B -o llama.gguf --split-max-size 2G --dry-run",
        "maxtool convert Llama-3.1-70B -o llama --shard-size 5GB --resume",
        "maxtool convert Llama-3.1-70B -o llama --shard-size 5GB --shards 3/16",
        "maxtool convert Llama-3.1-70B -o llama --shard-size 5GB --shards finish",
        "maxtool convert Llama-3.2-1B -o merged --merge-lora my-adapter --verify",
        "maxtool convert my-adapter -o my-adapter.gguf --base Llama-3.2-1B",
        "maxtool convert a.gguf -o b.gguf --no-recipe --set general.name=Mine",
        "maxtool convert https://example.org/llama -o llama.gguf --dry-run",
    ),
    "compile": (
        "maxtool compile Llama-3.2-1B -o llama --context 4096 --check",
        "maxtool compile llama.gguf -o llama --target cpu:x86-64-v3",
        "maxtool compile hf://ORG/MODEL -o model",
        "maxtool compile Llama-3.2-1B -o llama --target cuda:sm_80,sm_90",
        "maxtool compile net.onnx -o net --shape input=batch,3,224,224 --check",
        "maxtool compile f.py:MLP --weights f.npz --input 'x=int8[n,4]' -o mlp",
    ),
    "build": (
        "maxtool build models.toml",
        "maxtool build models.toml llama-q8 --dry-run",
        "maxtool build models.toml --executor ray --ray-address head:6379",
        "maxtool build models.toml --set type=Q4_K_M --jobs 4 --json",
    ),
    "run": (
        'maxtool run llama --prompt "Once upon a time" --max-tokens 50',
        "maxtool run llama --chat --temperature 0.7",
        "maxtool run llama --file question.txt --json",
        "maxtool run llama --prompts questions.txt > answers.ndjson",
        'maxtool run llama --prompt "Once upon a time" --json-stream > tokens.ndjson',
        'maxtool run llama --prompt "A person in JSON:" --json-schema person.json',
        "maxtool run llama --inputs arrays.npz --output results.npz",
        "maxtool run whisper --audio talk.wav --timestamps",
    ),
    "embed": (
        'maxtool embed minilm --text "a red house" --text "a blue house"',
        "maxtool embed minilm --file lines.txt -o vectors.npy",
    ),
    "serve": (
        "maxtool serve llama",
        "maxtool serve llama minilm --port 8080 --max-tokens 512",
        "maxtool serve llama --host 0.0.0.0 --cors https://example.org",
    ),
    "compare": (
        "maxtool compare Llama-3.2-1B llama-q4_k_m.gguf --sort error",
        "maxtool compare Llama-3.2-1B q8_0.gguf q4_0.gguf --html loss.html",
        "maxtool compare llama llama-q8 llama-q4 --text wiki.test.raw",
        "maxtool compare llama llama-q4 --text book.txt --context 2048 --json",
    ),
    "imatrix": (
        "maxtool imatrix llama calibration.txt -o imatrix.gguf",
        "maxtool imatrix llama book.txt -o llama.dat --windows 100 --json",
    ),
    "verify": ("maxtool verify llama", "maxtool verify llama --json"),
    "bench": (
        "maxtool bench llama",
        "maxtool bench llama-float32 llama-bfloat16 --prompt 128 --prompt 2048",
        "maxtool bench llama --profile kernels.svg",
        "maxtool bench minilm --batch 32 --markdown",
        "maxtool bench mlp --size n=64 --threads 1 --rounds 9 --json",
    ),
    "recipes list": ("maxtool recipes list", "maxtool recipes list --json"),
    "recipes show": ("maxtool recipes show llama", "maxtool recipes show my-model.toml"),
    "recipes check": ("maxtool recipes check my-model.toml My-Model-7B",),
    "recipes new": (
        "maxtool recipes new My-Model-7B",
        "maxtool recipes new My-Model-7B -o my-model.toml",
    ),
}

MEANINGS: Mapping[int, str] = {
    0: "ok",
    1: "a negative answer: no tensor matches, two differ, a check failed",
    2: "usage: a wrong option, or an output that exists (see --force)",
    3: "an input is missing, unreadable or malformed",
    4: "the model does not fit: unknown, unsupported, tensors missing or extra",
    5: "compilation failed",
    6: "the machine lacks something: a package, a linker, disk space",
    130: "interrupted",
    141: "the reader of stdout went away",
}
ALWAYS = (0, 2, 3, 6, 130, 141)
# What a command may answer beside those.
ENDINGS: Mapping[str, tuple[int, ...]] = {
    "inspect-weights": (1,),
    "convert": (1, 4),
    "compile": (1, 4, 5),
    "build": (1, 4, 5),
    "run": (1, 4),
    "embed": (1, 4),
    "serve": (1, 4),
    "compare": (1, 4),
    "imatrix": (1, 4),
    "verify": (1,),
    "bench": (1, 4),
    "recipes list": (4,),
    "recipes show": (4,),
    "recipes check": (4,),
    "recipes new": (4,),
}
# The first line keeps click from filling the paragraph.
VERBATIM = "\b"


def epilog(command: str) -> str:
    """The last paragraphs of a command's help."""
    codes = sorted({*ALWAYS, *ENDINGS[command]})
    endings = [f"{code:>3}  {MEANINGS[code]}" for code in codes]
    return "\n\n".join([_listed("Examples:", EXAMPLES[command]), _listed("Exit codes:", endings)])


def _listed(title: str, lines: tuple[str, ...] | list[str]) -> str:
    return "\n".join([VERBATIM, title, *(f"  {line}" for line in lines)])
