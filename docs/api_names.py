"""Every name in the reference documents, kept in docs/api_names.json.

python -m docs.api_names FOLDER    reads the documents in FOLDER again

The documents are pages of a web site saved as text, so this goes by the shapes of lines: a
signature below its own name, a property below its own name, and what code and prose mention. The
list is kept because the documents are not shipped.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAMES = ROOT / "docs" / "api_names.json"
DOCUMENTS = ("module_graph", "module_v3", "module_experimental", "layer", "weights")

CLASS = re.compile(r"class (max(?:\.\w+)+)(\(.*\))?$")
FUNCTION = re.compile(r"(max(?:\.\w+)+)(\(.*\))(?: → .*)?$")
METHOD = re.compile(r"(\w+)(\(.*\))(?: → .*)?$")
PROPERTY = re.compile(r"property (\w+)\*?: ")
WORD = re.compile(r"([a-z]\w*)$")
ATTRIBUTE_OF_WEIGHT = re.compile(r"• (Weight)\.(\w+)$")

# Paths of where a class is defined, which the documents give instead of where it is found.
DEFINED_IN = {
    "max.pipelines.nn.layer.layer": "max.pipelines.nn.layer",
    "max.driver.tensor": "max.driver",
    "max.graph.weight": "max.graph",
}
# Names that prose, signatures and examples use without a path. Other names of the same spelling
# (Linear, Module, Weights) have entries of their own.
FOUND_IN = {
    "Buffer": "max.driver",
    "CPU": "max.driver",
    "DLPackArray": "max.driver",
    "DType": "max.dtype",
    "Device": "max.driver",
    "DeviceRef": "max.graph",
    "Dim": "max.graph",
    "DimLike": "max.graph",
    "F": "max.experimental.functional",
    "Graph": "max.graph",
    "QuantizationEncoding": "max.graph.quantization",
    "ShapeLike": "max.graph",
    "ShardingStrategy": "max.pipelines.nn.layer",
    "Tensor": "max.experimental.tensor",
    "TensorType": "max.graph",
    "TensorValue": "max.graph",
    "Type": "max.graph",
    "Value": "max.graph",
    "Weight": "max.graph",
    "WeightData": "max.graph.weights",
    "graph": "max.graph.Graph",
    "hidden": "max.graph.TensorValue",
    "ops": "max.graph.ops",
    "param": "max.experimental.tensor.Tensor",
    "value": "max.graph.Value",
    "weight_data": "max.graph.weights.WeightData",
}
# Words that stand for what has the attribute, and are no names themselves.
STAND_INS = {"F", "graph", "hidden", "ops", "param", "value", "weight_data"}
# The same name, reached by another path here: layers are in one place.
MOVED = {"max.pipelines.nn.layer": "maxtool.nn.layer"}
# Given as a class with ``(*args, **kwargs)`` because nobody constructs a protocol.
PROTOCOLS = {"max.graph.weights.Weights"}

KINDS = {
    "posonlyargs": "positional-only",
    "args": "positional or keyword",
    "vararg": "variadic positional",
    "kwonlyargs": "keyword-only",
    "kwarg": "variadic keyword",
}


@dataclass(frozen=True, order=True)
class Name:
    """One name that one document has.

    Attributes:
        document: The document's file without its suffix.
        name: The full dotted name as the document writes it.
        kind: class, function, method, property, attribute, or mention for what is only used.
        parameters: ``[name, kind]`` or ``[name, kind, default as source]`` each, ``None`` where the
            document gives no signature.
    """

    document: str
    name: str
    kind: str
    parameters: tuple[tuple[str, ...], ...] | None = None

    @property
    def here(self) -> str:
        """The name's path in this package."""
        for there, here in MOVED.items():
            if self.name.startswith(there):
                return here + self.name.removeprefix(there)
        return "maxtool" + self.name.removeprefix("max")


def parameters_of(signature: str) -> tuple[tuple[str, ...], ...]:
    """The parameters of ``(self-less, signature)`` with kinds and defaults."""
    source = signature.replace("=cpu:0", "='cpu:0'").replace("…", "...")
    arguments = ast.parse(f"def f{source}: ...").body[0].args  # type: ignore[attr-defined]
    plain = [*arguments.posonlyargs, *arguments.args]
    late = dict(
        zip([arg.arg for arg in plain[::-1]], arguments.defaults[::-1], strict=False)
    ) | dict(zip([arg.arg for arg in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
    parameters = []
    for field, parameter_kind in KINDS.items():
        value = getattr(arguments, field)
        for arg in value if isinstance(value, list) else [value] * bool(value):
            default = late.get(arg.arg)
            parameters.append(
                (arg.arg, parameter_kind, *([ast.unparse(default)] if default else []))
            )
    return tuple(parameters)


def defined(document: str, lines: list[str]) -> Iterator[Name]:
    """Yield the names that a document defines: classes, functions and members."""
    owner = ""
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        if match := CLASS.match(line):
            owner = match[1]
            signature = match[2] if owner not in PROTOCOLS else None
            yield Name(document, owner, "class", parameters_of(signature) if signature else None)
        elif match := FUNCTION.match(line):
            owner = ""
            yield Name(document, match[1], "function", parameters_of(match[2]))
        elif match := ATTRIBUTE_OF_WEIGHT.match(line):
            yield Name(document, f"max.graph.Weight.{match[2]}", "attribute")
        elif owner and (member := member_of(before, line, after)):
            yield Name(document, f"{owner}.{member[0]}", *member[1:])


def member_of(before: str, line: str, after: str) -> tuple[Any, ...] | None:
    """Name, kind and parameters of the member that a line defines, if it does."""
    if match := PROPERTY.match(line):
        return match[1], "property"
    match = METHOD.match(line)
    if match and before.endswith(f"{match[1]}()"):
        return match[1], "method", parameters_of(match[2])
    match = WORD.match(line)
    if match and after.startswith(f"{match[1]}: "):
        return match[1], "attribute"
    if match and re.match(r"[A-Z]\w* ", after) and not PROPERTY.match(after):
        return match[1], "property"
    return None


def mentioned(document: str, text: str) -> Iterator[Name]:
    """Yield the names that examples, signatures and prose use."""
    for package, names in re.findall(r"^ *from (max[\w.]*) import (.+)$", text, flags=re.MULTILINE):
        for name in names.split(", "):
            yield Name(document, f"{package}.{name.split(' as ')[0]}", "mention")
    for path in re.findall(r"(?<!from )\bmax(?:\.\w+)+", text):
        package, _, name = path.rpartition(".")
        yield Name(document, f"{DEFINED_IN.get(package, package)}.{name}", "mention")
    if "input_types()" in text:  # a method that only examples and prose have
        yield Name(document, "max.experimental.nn.module.Module.input_types", "mention")
    for word, attribute in re.findall(r"(?<![\w.])([A-Za-z]\w*)(?:\.(\w+))?", text):
        if word not in FOUND_IN:
            continue
        path = FOUND_IN[word]
        if word not in STAND_INS:
            path = f"{path}.{word}"
            yield Name(document, path, "mention")
        if attribute:
            yield Name(document, f"{path}.{attribute}", "mention")


def extract(folder: Path) -> list[Name]:
    """Every name of every document in ``folder``, sorted."""
    names: dict[tuple[str, str], Name] = {}
    for document in DOCUMENTS:
        text = (folder / f"{document}.txt").read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # A word alone on a line of prose may look like a property: signatures go first.
        members = sorted(defined(document, lines), key=lambda name: name.parameters is None)
        for name in [*members, *mentioned(document, text)]:
            names.setdefault((document, name.name), name)
    return sorted(names.values())


def dump(names: list[Name]) -> str:
    """The list as JSON, a name on each line."""
    lines = ",\n".join(json.dumps(asdict(name)) for name in names)
    return f"[\n{lines}\n]\n"


def load() -> list[Name]:
    """The list as it is kept in the repository."""
    return [
        Name(
            entry["document"],
            entry["name"],
            entry["kind"],
            None
            if entry["parameters"] is None
            else tuple(tuple(parameter) for parameter in entry["parameters"]),
        )
        for entry in json.loads(NAMES.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    NAMES.write_text(dump(extract(Path(sys.argv[1]))), encoding="utf-8")
