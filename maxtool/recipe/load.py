"""Recipes found by name, by path, and by what a checkpoint says of itself."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from maxtool.errors import ConfigurationError, UnknownArchitecture, UnknownRecipe
from maxtool.recipe import text_part, validate
from maxtool.recipe.brackets import written_out
from maxtool.recipe.extend import EXTENDS, bases, extended
from maxtool.recipe.keys import Keys
from maxtool.recipe.name_patterns import is_among, renamed
from maxtool.recipe.parse import matches, parse
from maxtool.recipe.problems import Problems, Table
from maxtool.recipe.recipe_files import RECIPE_SUFFIX, is_shipped, recipe_file, recipe_names
from maxtool.recipe.schema import KINDS, Dialect, Match, Recipe, Source
from maxtool.recipe.unsupported_kinds import lacking
from maxtool.weights import Checkpoint, TensorInfo
from maxtool.weights.formats import Format
from maxtool.weights.source_file import open_source

MAX_BYTES = 1 << 17
MAX_LINE = 1000


def load_recipe(name_or_path: str) -> Recipe:
    """Read a recipe: one of ``recipe_names()``, or a ``.toml`` file by its path.

    What is wrong with the file is one error, a ConfigurationError that lists all its problems.
    """
    if name_or_path.endswith(RECIPE_SUFFIX) or "/" in name_or_path:
        path = Path(name_or_path)
        return _read(path, _parse_toml(path))
    file = recipe_file(name_or_path)
    if file is None:
        names = recipe_names()
        close = difflib.get_close_matches(name_or_path, names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownRecipe(
            f"there is no recipe {name_or_path!r}", hint=f"{hint}Known: {', '.join(names)}"
        )
    return _kept(file)


def files_of(recipe: Recipe) -> tuple[Path, ...]:
    """The file of a recipe, then those that it extends, the nearest first, each once."""
    files = [recipe.file]
    for file in files:
        tables = _toml(file) if is_shipped(file) else _parse_toml(file)
        named = [_file(name) for name in bases(tables)]
        files += [base for base in named if base not in files]
    return tuple(files)


def whole_tables(name: str) -> Table:
    """The tables of a recipe of ``recipe_names()`` with all that it inherits, choices written out.

    They are shared, and not to be changed.
    """
    return extended(_tables(name), _tables)


def recipe_of(tables: Table, file: Path) -> Recipe:
    """The recipe that tables describe, as if they were a file's; errors as of load_recipe."""
    return _read(file, tables)


# The formats whose tensors have the names of a published architecture.
RECIPES_READ: tuple[Format, ...] = ("safetensors", "pytorch", "gguf")
# What GGUF files hold besides models, by ``general.type``, and what it is used for.
NO_MODELS = {
    "adapter": (
        "this is a LoRA adapter, not a model",
        "merge the folder that it was made of into its base model by convert --merge-lora",
    ),
    "imatrix": ("this is an importance matrix, not a model", "give it to --imatrix"),
}


def find_recipe(checkpoint: Checkpoint) -> Recipe:
    """The recipe that recognises a checkpoint; of several, the one that asks for more.

    UnknownArchitecture if none does, or the format has none; it lists those that are known.
    """
    check_model(checkpoint)
    keys, own = Keys.of(checkpoint), dialect(checkpoint)
    names = recipe_names()
    known = {name: _matches(_file(name))[own] for name in names}
    tensors = checkpoint.tensors
    matching = {name: match for name, match in known.items() if _recognises(match, keys, tensors)}
    if matching:
        return load_recipe(_asking_most(matching))
    inside = _inside(known, keys, checkpoint) if own == "hf" else None
    if inside is None:
        raise _unknown(checkpoint, keys, names)
    return inside


def _asking_most(matching: Mapping[str, Match]) -> str:
    asked = {name: len(match.values) + len(match.requires) for name, match in matching.items()}
    return max(asked, key=asked.__getitem__)


def _inside(known: Mapping[str, Match], keys: Keys, checkpoint: Checkpoint) -> Recipe | None:
    """A recipe for the language model of a checkpoint of several parts, None if none has it.

    Raises:
        UnknownArchitecture: If one has it, and its tensors are not found or it is not read alone.
    """
    section = text_part.section_of(keys)
    if section is None:
        return None
    inside = text_part.keys_inside(keys, section)
    fitting = {name: match for name, match in known.items() if text_part.has_values(match, inside)}
    recipes = [load_recipe(name) for name in fitting]
    read = {
        recipe.name: text_part.alone(recipe, keys, section, checkpoint.tensors)
        for recipe in recipes
        if text_part.is_language_model(recipe)
    }
    text_part.check_alone(checkpoint, keys, section, [*read.values()])
    found = [name for name, each in read.items() if _has_part(fitting[name], each, checkpoint)]
    return read[_asking_most({name: fitting[name] for name in found})] if found else None


def _has_part(match: Match, recipe: Recipe, checkpoint: Checkpoint) -> bool:
    """Return whether the part that a recipe reads of a checkpoint is what it recognises."""
    tensors = text_part.tensors_of(recipe, checkpoint.tensors)
    keys = text_part.values_of(recipe, Keys.of(checkpoint))
    return _recognises(match, keys, renamed(recipe.rules["hf"].rename, tensors))


def written_by(recipe: Recipe, dialect: Dialect) -> Recipe:
    """The recipe by which a model is written: that of its language model in some dialects."""
    is_part = recipe.language_model and not recipe.knows(dialect)
    return load_recipe(recipe.language_model) if is_part else recipe


def check_model(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that is none of a model with a configuration.

    Raises:
        UnknownArchitecture: If it is something else, or recipes read no such files.
        ConfigurationError: If its configuration is missing.
    """
    if checkpoint.format == "artifact":
        raise UnknownArchitecture(
            "this is a compiled model, not a checkpoint",
            file=checkpoint.path,
            hint=f"maxtool run {checkpoint.path} runs it; give what it was compiled from",
        )
    if checkpoint.format not in RECIPES_READ:
        raise UnknownArchitecture(
            f"no recipe reads {checkpoint.format} files",
            file=checkpoint.path,
            hint=f"recipes read {', '.join(RECIPES_READ)}; convert --no-recipe copies tensors as "
            "they are",
        )
    if dialect(checkpoint) == "hf" and checkpoint.config is None:
        raise ConfigurationError(
            "there is no config.json beside the tensors",
            file=checkpoint.path,
            hint="give the folder that holds config.json and the tensors",
        )
    kind = checkpoint.metadata.get("general.type") if dialect(checkpoint) == "gguf" else None
    if isinstance(kind, str) and kind in NO_MODELS:
        what, hint = NO_MODELS[kind]
        raise UnknownArchitecture(what, file=checkpoint.path, hint=hint)


def dialect(checkpoint: Checkpoint) -> Dialect:
    """Name the dialect of a checkpoint: Hugging Face's, or GGUF's."""
    return "gguf" if checkpoint.format == "gguf" else "hf"


def _recognises(match: Match, keys: Keys, tensors: Mapping[str, TensorInfo]) -> bool:
    required = (_holds(source, keys, tensors) for source in match.requires)
    return text_part.has_values(match, keys) and all(required)


def _holds(required: Source, keys: Keys, tensors: Mapping[str, TensorInfo]) -> bool:
    if required.kind == "key":
        return keys.get(required.text) not in (None, 0)
    if required.kind == "blocks":
        return required.text in tensors and tensors[required.text].encoding is not None
    is_there = is_among(required.text, tensors) or keys.get(required.text) is not None
    return is_there == (required.kind == "present")


def _unknown(checkpoint: Checkpoint, keys: Keys, recipes: list[str]) -> UnknownArchitecture:
    key = KINDS[dialect(checkpoint)]
    found = keys.get(key)
    says = "does not name its architecture" if found is None else f"is a {found!r}"
    what = f"the model {says} ({key}), which no recipe recognises"
    section = text_part.section_of(keys) if dialect(checkpoint) == "hf" else None
    if section is not None:
        inner = keys.get(f"{section}.{key}")
        what += f", nor the {inner!r} of its {section}, of which a language model would be read"
    if why := lacking(found):
        what += f": {why}"
    return UnknownArchitecture(
        what,
        file=checkpoint.config_file or checkpoint.path,
        hint=f"known recipes: {', '.join(recipes)}; --recipe takes one of them, or a .toml file",
    )


@cache
def _matches(file: Path) -> Mapping[Dialect, Match]:
    """Rules that recognise a recipe's models, by dialect; the rest of it is not looked at."""
    problems = Problems()
    with _section(EXTENDS, file):
        data = extended(_toml(file), lambda base: _toml(_file(base)))
    found = matches(data, problems)
    if problems.found:
        raise ConfigurationError("the recipe is wrong", file=file, problems=problems.found)
    return found


@cache
def _kept(file: Path) -> Recipe:
    return _read(file, _toml(file))


def _read(file: Path, tables: Table) -> Recipe:
    tables = _written(tables, file)
    with _section(EXTENDS, file):
        data = extended(tables, _tables)
    problems = Problems()
    recipe = parse(data, file, problems)
    if recipe is not None and not problems.found:
        problems.found += validate.problems(recipe)
    if recipe is None or problems.found:
        raise ConfigurationError("the recipe is wrong", file=file, problems=problems.found)
    return recipe


def _tables(name: str) -> Table:
    file = _file(name)
    return _written(_toml(file), file)


def _written(tables: Table, file: Path) -> Table:
    with _section("weights", file):
        return written_out(tables)


@contextmanager
def _section(name: str, file: Path) -> Iterator[None]:
    """Errors of a section, told with its name and its file."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}", file=file) from None


def _file(name: str) -> Path:
    file = recipe_file(name)
    if file is None:
        raise ValueError(f"there is no recipe {name!r} (known: {', '.join(recipe_names())})")
    return file


@cache
def _toml(file: Path) -> Table:
    return _parse_toml(file)


def _parse_toml(file: Path) -> dict[str, Any]:
    """Parse what is small enough that its parser takes little time: long keys square theirs."""
    with open_source(file) as source:
        if source.size > MAX_BYTES:
            what = f"a recipe of {source.size} bytes; {MAX_BYTES} at most"
            raise ConfigurationError(what, file=file)
        raw = source.read(0, source.size)
    longest = max(map(len, raw.splitlines()), default=0)
    if longest > MAX_LINE:
        what = f"the recipe has a line of {longest} characters; {MAX_LINE} at most"
        raise ConfigurationError(what, file=file)
    try:
        return tomllib.loads(raw.decode())
    except RecursionError:
        raise ConfigurationError("the recipe is nested too deeply", file=file) from None
    except ValueError as error:  # no UTF-8, no TOML, a number of too many digits
        raise ConfigurationError(f"the recipe is not TOML: {error}", file=file) from error
