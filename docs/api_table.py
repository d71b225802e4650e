"""Compare the package with every name in docs/api_names.json, and make the table in docs/api.md.

python -m docs.api_table

``docs/api_proofs.toml`` says which test proves each name.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from docs.api_names import ROOT, Name, load

PROOFS = ROOT / "docs" / "api_proofs.toml"
PAGE = ROOT / "docs" / "api.md"
BEGIN, END = "<!-- names: python -m docs.api_table -->", "<!-- /names -->"
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def resolve(path: str) -> Any:  # noqa: ANN401 - a module, class, function or descriptor
    """Return the object that a dotted path names; properties of classes are not called.

    Raises:
        AttributeError: If there is no such name.
    """
    parts = path.split(".")
    packages = (".".join(parts[:cut]) for cut in range(len(parts), 0, -1))
    package = next(package for package in packages if exists(package))
    value: Any = importlib.import_module(package)
    for part in parts[len(package.split(".")) :]:
        value = declared(value, part) if isinstance(value, type) else getattr(value, part)
    return value


def exists(package: str) -> bool:
    """Return whether a module of this name can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ModuleNotFoundError, AttributeError):
        return False


def declared(owner: type, name: str) -> Any:  # noqa: ANN401
    """The member of a class; for an attribute of its instances, the class that sets it."""
    if hasattr(owner, name):
        return getattr(owner, name)
    for base in owner.__mro__[:-1]:
        if name in inspect.get_annotations(base) or sets(base, name):
            return base
    raise AttributeError(name)


def sets(owner: type, name: str) -> bool:
    """Return whether the constructor of a class sets an attribute."""
    initializer = vars(owner).get("__init__")
    return bool(
        initializer and re.search(rf"\bself\.{name}\b.* = ", inspect.getsource(initializer))
    )


def problems_of(name: Name) -> list[str]:
    """Return the parts of one documented name that the package lacks."""
    try:
        value = resolve(name.here)
    except AttributeError:
        return [f"{name.here} does not exist"]
    if name.kind == "property" and not isinstance(value, property | cached_property):
        return [f"{name.here} is no property"]
    if name.kind in ("class", "function", "method") and not callable(value):
        return [f"{name.here} cannot be called"]
    if name.parameters is None:
        return []
    return [f"{name.here}: {problem}" for problem in misfits(name, value)]


def misfits(name: Name, value: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield differences from the documented signature; extra parameters at its end are fine."""
    signature = [*inspect.signature(value).parameters.values()]
    if name.kind == "method" and signature and signature[0].name == "self":
        signature = signature[1:]
    have = {parameter.name: parameter for parameter in signature}
    for index, (spelling, parameter_kind, *default) in enumerate(name.parameters or ()):
        parameter = have.get(spelling)
        if parameter is None:
            yield f"has no parameter {spelling}"
            continue
        if parameter.kind.description != parameter_kind:
            yield f"{spelling} is {parameter.kind.description}, not {parameter_kind}"
        if parameter_kind.startswith("positional") and signature[index] is not parameter:
            yield f"{spelling} is not at place {index}"
        if not same_default(parameter.default, default):
            yield f"{spelling} has the default {parameter.default!r}, not {default or 'none'}"
    known = {spelling for spelling, *_ in name.parameters or ()}
    for parameter in signature:
        needed = parameter.default is parameter.empty and parameter.kind not in VARIADIC
        if parameter.name not in known and needed:
            yield f"also needs {parameter.name}"


def same_default(value: object, documented: list[str]) -> bool:
    """Return whether a default is the documented one, given as source."""
    if not documented:
        return value is inspect.Parameter.empty
    wanted = ast.literal_eval(documented[0])
    return (
        str(value) == wanted
        if wanted == "cpu:0"
        else type(value) is type(wanted) and value == wanted
    )


def table(names: list[Name]) -> str:
    """The rows of docs/api.md."""
    proofs = tomllib.loads(PROOFS.read_text(encoding="utf-8"))
    documents: dict[str, list[str]] = {}
    for name in names:
        documents.setdefault(name.name, []).append(name.document)
    rows = ["| documented name | documents | here | test |", "| --- | --- | --- | --- |"]
    chosen = {name.name: name for name in names}
    for path in sorted(documents):
        where = location(chosen[path])
        rows.append(f"| `{path}` | {', '.join(documents[path])} | {where} | {proofs[path]} |")
    return "\n".join(rows) + "\n"


def location(name: Name) -> str:
    """The path by which a name is reached, and the file where it is defined."""
    value = resolve(name.here)
    value = getattr(value, "fget", None) or getattr(value, "func", None) or value
    module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    if not module or not module.startswith("maxtool"):
        return f"`{name.here}`"
    file = Path(importlib.import_module(module).__file__ or "").relative_to(ROOT)
    return f"`{name.here}` in [{file.name}](../{file})"


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(load())}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
