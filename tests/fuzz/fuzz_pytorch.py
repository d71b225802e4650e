"""PyTorch: an archive, a pickle with its storages, or an index with its shards."""

from __future__ import annotations

import json

from harness import NEXT, Target, put, read_checkpoint, run

from tests.weights.pickles import ORDERED, archive, dictionary, number, numbers, pickle, tensor

SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
INDEX = json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode()


def seeds() -> list[bytes]:
    wide = tensor(size=numbers(3, 2), stride=numbers(0, 1))
    plain = pickle(dictionary({"a": tensor()}))
    rich = pickle(dictionary({"a": wide, "n": number(7), "o": ORDERED, "t": numbers(1, -2)}))
    other = pickle(dictionary({"b": tensor()}))
    return [
        archive(plain),
        NEXT.join([rich, bytes(8)]),
        NEXT.join([INDEX, archive(plain), archive(other)]),
    ]


def read(data: bytes) -> None:
    if data[:1] == b"{":
        read_checkpoint(put(("pytorch_model.bin.index.json", *SHARDS), data))
        return
    if data[:1] != b"P":
        content, *storages = data.split(NEXT)
        data = archive(content, {str(n): storage for n, storage in enumerate(storages)})
    read_checkpoint(put(("x.pt",), data))


WORDS = [b"ctorch\nBFloat16Storage\n", b"ccollections\nOrderedDict\n", b"storage", b"PK\1\2"]
TARGET = Target(seeds, read, [*WORDS, b"ctorch._utils\n_rebuild_parameter\n", b"\x85", b"\x86"])

if __name__ == "__main__":
    run(TARGET)
