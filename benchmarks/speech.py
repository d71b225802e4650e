"""Speech with the shape of whisper-tiny in float32: maxtool beside transformers in eager mode.

Weights are random and made on the spot. A window of 30 seconds becomes a spectrogram, is encoded,
and tokens are written behind it, with a cache; both sides have to write the same ones. Sides run in
processes of their own that alternate. What is printed is the time of each part, and the real-time
factor: the time that a window with ``--tokens`` tokens takes, divided by 30 seconds.

    python benchmarks/speech.py                     # needs the peers extra in this environment
    python benchmarks/speech.py --threads 1 --cpu-time
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from checkpoints import machine, usable_cores
from decode import environment
from embed import checked, milliseconds

RATE, SECONDS = 16_000, 30
HIDDEN, INNER, LAYERS, HEADS, VOCABULARY, BANDS = 384, 1536, 4, 6, 51865, 80
POSITIONS, CONTEXT = 1500, 448
PROMPT = [50258, 50259, 50359, 50363]
CONFIG = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "vocab_size": VOCABULARY,
    "d_model": HIDDEN,
    "num_mel_bins": BANDS,
    "max_source_positions": POSITIONS,
    "max_target_positions": CONTEXT,
    **{f"{part}_layers": LAYERS for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": HEADS for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": INNER for part in ("encoder", "decoder")},
}
EXTRACTOR = {"feature_extractor_type": "WhisperFeatureExtractor"}
# A side: from samples to features, from these to the source, and from the source to tokens.
Side: TypeAlias = "tuple[Callable[..., Any], Callable[..., Any], Callable[..., list[int]]]"
PARTS = ("features", "encode", "token")


def shapes() -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor."""
    encoder, decoder = "model.encoder.", "model.decoder."
    known: dict[str, tuple[int, ...]] = {
        f"{encoder}conv1.weight": (HIDDEN, BANDS, 3),
        f"{encoder}conv2.weight": (HIDDEN, HIDDEN, 3),
        f"{encoder}embed_positions.weight": (POSITIONS, HIDDEN),
        f"{decoder}embed_positions.weight": (CONTEXT, HIDDEN),
        f"{decoder}embed_tokens.weight": (VOCABULARY, HIDDEN),
    }
    known |= {f"{encoder}conv{number}.bias": (HIDDEN,) for number in (1, 2)}
    for part, attentions in ((encoder, ("self",)), (decoder, ("self", "encoder"))):
        known |= {f"{part}layer_norm.{kind}": (HIDDEN,) for kind in ("weight", "bias")}
        for layer in range(LAYERS):
            known |= layer_shapes(f"{part}layers.{layer}.", attentions)
    return known


def layer_shapes(prefix: str, attentions: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    linear = {"fc1": (INNER, HIDDEN), "fc2": (HIDDEN, INNER)}
    for attention in attentions:
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        linear |= {f"{attention}_attn.{name}": (HIDDEN, HIDDEN) for name in names}
    known: dict[str, tuple[int, ...]] = {}
    for name, shape in linear.items():
        known[f"{prefix}{name}.weight"] = shape
        if not name.endswith("k_proj"):
            known[f"{prefix}{name}.bias"] = shape[:1]
    for norm in ("final", *(f"{attention}_attn" for attention in attentions)):
        known |= {f"{prefix}{norm}_layer_norm.{kind}": (HIDDEN,) for kind in ("weight", "bias")}
    return known


def make(folder: Path) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    random = np.random.default_rng(0)
    tensors = {
        name: (random.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32)
        for name, shape in shapes().items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))


def load_transformers(folder: Path, threads: int) -> Side:
    """PyTorch in eager mode."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    torch.set_num_threads(threads)
    extractor = WhisperFeatureExtractor()
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def encode(features: object) -> object:
        return model.model.encoder(features)

    @torch.inference_mode()
    def write(source: object, count: int) -> list[int]:
        ids, cache, written = torch.tensor([PROMPT]), None, []
        for _ in range(count):
            found = model(
                encoder_outputs=source, decoder_input_ids=ids, past_key_values=cache, use_cache=True
            )
            ids, cache = found.logits[:, -1:].argmax(-1), found.past_key_values
            written.append(int(ids))
        return written

    def features(samples: np.ndarray) -> object:
        return extractor(samples, sampling_rate=RATE, return_tensors="pt").input_features

    return features, encode, write


def load_maxtool(folder: Path, threads: int) -> Side:  # noqa: ARG001 - by variable
    sys.path.insert(0, str(folder))
    import run

    model = run.load(folder)
    state = model.new_state(batch=1)
    from maxtool.runtime.loader.audio_spec import audio_spec
    from maxtool.runtime.loader.log_mel import log_mel

    spec = audio_spec(model.manifest.audio)

    def encode(features: np.ndarray) -> None:
        model.run("encode", {"input_features": features[None]}, state)

    def write(_source: None, count: int) -> list[int]:
        ids, position, entry, written = [PROMPT], 0, "prefill", []
        for _ in range(count):
            inputs = {"input_ids": ids, "position": np.array([position], np.int32)}
            written.append(int(model.run(entry, inputs, state)["logits"][0].argmax()))
            position, ids, entry = position + len(ids[0]), [written[-1:]], "decode"
        return written

    return partial(log_mel, spec=spec), encode, write


LOADERS = {"maxtool": load_maxtool, "transformers": load_transformers}


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each part, and the tokens."""
    features, encode, write = LOADERS[arguments.worker](arguments.folder, arguments.threads)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    samples = np.random.default_rng(1).standard_normal(RATE * SECONDS).astype(np.float32) / 10
    spectrogram = features(samples)
    source, count = encode(spectrogram), arguments.tokens
    return {
        "features": milliseconds(partial(features, samples), clock),
        "encode": milliseconds(partial(encode, spectrogram), clock),
        "token": milliseconds(partial(write, source, count), clock) / count,
        "ids": write(source, count),
    }


def benchmark(arguments: argparse.Namespace, scratch: Path) -> dict[str, list[dict[str, Any]]]:
    """The figures of each side, round by round."""
    checkpoint, artifact = scratch / "checkpoint", scratch / "artifact"
    make(checkpoint)
    command = [sys.executable, "-m", "maxtool", "compile", str(checkpoint), "-o", str(artifact)]
    subprocess.run(command, env=environment(arguments.threads), check=True, stdout=sys.stderr)
    figures: dict[str, list[dict[str, Any]]] = {side: [] for side in LOADERS}
    options = ["--threads", arguments.threads, "--tokens", arguments.tokens]
    options += ["--cpu-time"] * arguments.cpu_time
    for _ in range(arguments.rounds):
        for side, rounds in figures.items():
            folder = artifact if side == "maxtool" else checkpoint
            words = [sys.executable, __file__, "--worker", side, "--folder", folder, *options]
            done = subprocess.run(
                list(map(str, words)),
                env=environment(arguments.threads),
                check=False,
                capture_output=True,
                text=True,
            )
            rounds.append(json.loads(checked(done).stdout.splitlines()[-1]))
            print(side, {part: round(rounds[-1][part], 2) for part in PARTS}, file=sys.stderr)
    return figures


def report(figures: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> None:
    """Print medians, real-time factors, and how many times as fast maxtool is."""
    print(f"machine         {machine()}")
    clock = "processor time" if arguments.cpu_time else "time that passes"
    print(f"threads         {arguments.threads} on each side; milliseconds of {clock}")
    written = [each["ids"] for rounds in figures.values() for each in rounds]
    if any(ids != written[0] for ids in written):
        raise SystemExit(f"sides do not agree: {written}")
    totals = {}
    for side, rounds in figures.items():
        parts = {part: statistics.median(each[part] for each in rounds) for part in PARTS}
        whole = parts["features"] + parts["encode"] + arguments.tokens * parts["token"]
        totals[side] = whole
        listed = ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
        print(f"{side:>14}  {listed}; real-time factor {whole / 1000 / SECONDS:.4f}")
    print(f"ratio           {totals['transformers'] / totals['maxtool']:.2f} times as fast")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--tokens", type=int, default=100, help="written behind a window")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time")
    parser.add_argument("--worker", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.worker:
        print(json.dumps(measured(arguments)))
        return
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        report(benchmark(arguments, Path(scratch)), arguments)


if __name__ == "__main__":
    main()
