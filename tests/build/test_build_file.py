"""Build files: what they mean, and all that is wrong with one, each with its line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.build.lines import lines_of
from maxtool.build.step import OptionForm, Step
from maxtool.build.steps import read_steps, selected
from maxtool.errors import MalformedFile, MissingFile, UsageError
from tests.build.pretended import KINDS
from tests.effort import examples


def read(tmp_path: Path, text: str, **given: str) -> list[Step]:
    file = tmp_path / "x.toml"
    file.write_text(text)
    return read_steps(file, KINDS, given)


def target(name: str, rest: str = "", kind: str = "join") -> str:
    return f'[targets."{name}"]\nkind = "{kind}"\nsource = "s"\noutput = "{name}.o"\n{rest}\n'


def test_variables_and_matrices(tmp_path: Path) -> None:
    text = '[variables]\na = "x"\nb = "{a}/y"\nbits = 4\n' + target(
        "{k}-{n}", 'matrix = {k = ["p", "q"], n = [1, 2]}\nwith = ["{b}{{z}}", "{bits}"]'
    )
    steps = read(tmp_path, text)
    assert [step.name for step in steps] == ["p-1", "p-2", "q-1", "q-2"]
    assert steps[0].argv == ("join", "s", "--with=x/y{z}", "--with=4")
    assert read(tmp_path, text, a="other")[0].argv[2] == "--with=other/y{z}"


def test_dependencies_by_what_lies_in_an_output_or_around_it(tmp_path: Path) -> None:
    text = target("all").replace('"s"', '"o"') + target("part", 'with = ["o", "./o/a/f"]')
    steps = read(tmp_path, text + target("a").replace("a.o", "o/a") + target("b"))
    assert {step.name: step.after for step in steps if step.after} == {
        "all": ("a",),
        "part": ("a",),
    }


@pytest.mark.parametrize(
    ("text", "filled"), [("{{{a}}}", "{1}"), ("{a}}}", "1}"), ("{{a}}", "{a}"), ("{{{{", "{{")]
)
def test_braces(tmp_path: Path, text: str, filled: str) -> None:
    steps = read(tmp_path, "[variables]\na = 1\n" + target("x", f'with = "{text}"'))
    assert steps[0].argv[2] == f"--with={filled}"


def test_a_matrix_of_more_than_memory_holds(tmp_path: Path) -> None:
    values = list(range(900))
    keys = "\n".join(f"matrix.{key} = {values}" for key in "abcdef")
    with pytest.raises(MalformedFile) as raised:
        read(tmp_path, target("{a}-{b}-{c}-{d}-{e}-{f}", keys))
    assert list(raised.value.problems) == ["targets: there are more than 4096 targets"]


def test_dependencies_by_name_by_path_and_by_order(tmp_path: Path) -> None:
    text = target("c", 'with = ["@b/part", "./a.o"]\nafter = ["d"]') + target("b", 'with = "@a"')
    steps = read(tmp_path, text + target("a") + target("d"))
    after = {step.name: set(step.after) for step in steps}
    assert after == {"a": set(), "b": {"a"}, "c": {"a", "b", "d"}, "d": set()}
    assert steps[-1].name == "c"
    assert steps[-1].argv == ("join", "s", "--with=b.o/part", "--with=./a.o")
    with pytest.raises(UsageError, match="there is no target 'bb'"):
        selected(steps, ["bb"], only=False)


WRONG = {
    "variable = 1\n": ["line 1: variable: there is no key 'variable'; did you mean 'variables'?"],
    "": ["targets: there is no target; [targets.NAME] begins one"],
    "targets = 1": ["line 1: targets: has to be a table"],
    "[targets]\nx = 1": ["line 2: targets.x: has to be a table"],
    target("x", "wiht = 1"): [
        "line 5: targets.x.wiht: there is no key 'wiht'; did you mean 'with'?"
    ],
    target("x", kind="jion"): [
        "line 2: targets.x.kind: there is no kind 'jion'; did you mean 'join'?"
    ],
    '[targets.x]\nkid = "join"\nsource = "s"': [
        "line 1: targets.x.kind: is missing; one of join, test, measure",
        "line 2: targets.x.kid: there is no key 'kid'; did you mean 'kind'?",
    ],
    target("x", "with = true"): [
        "line 5: targets.x.with: has to be a text or a number, or a list of these"
    ],
    target("x", 'with = "{y}"'): [
        "line 5: targets.x.with: {y}: there is no variable 'y'; known: none"
    ],
    target("x", 'with = "@y"'): ["line 5: targets.x.with: there is no target 'y'"],
    target("x", 'after = ["x"]'): ["line 1: targets.x: depends on itself: x <- x"],
    target("x", "matrix = 1"): ["line 5: targets.x.matrix: has to be a table of lists"],
    target("x", "matrix.a = []"): [
        "line 5: targets.x.matrix.a: has to be a list of texts or numbers"
    ],
    target("x", "matrix.a = [true]"): [
        "line 5: targets.x.matrix.a: has to be a list of texts or numbers"
    ],
    target("x-{a}", 'matrix.a = [1.5, 2.5]\nwith = "{y}"'): [
        "line 6: targets.x-{a}.with: {y}: there is no variable 'y'; known: a"
    ],
    target("x", 'with = "{y"'): ["line 5: targets.x.with: { stands alone; {{ is a brace"],
    target("x-{a}", 'matrix.a = [""]').replace("x-{a}.o", "{a}").replace("x-{a}", "x{a}"): [
        "line 4: targets.x{a}.output: is empty once it is filled in"
    ],
    target("x", "after = 1"): ["line 5: targets.x.after: has to be a list of names of targets"],
    target("x", "matrix.a = [1, 2]"): ["line 1: targets.x: a second target has the name 'x'"],
    target("x-{a}", 'matrix.a = ["/"]'): [
        "line 1: targets.x-{a}: 'x-/' is no name: letters, digits and . _ + - behind the first"
    ],
    target("x") + target("y").replace("y.o", "./x.o"): [
        "line 9: targets.y.output: ./x.o is, holds or lies in the output of x"
    ],
    target("x") + target("y").replace("y.o", "x.o/y"): [
        "line 9: targets.y.output: x.o/y is, holds or lies in the output of x"
    ],
    target("x").replace("x.o", "a/b/x") + target("y").replace("y.o", "./a"): [
        "line 9: targets.y.output: ./a is, holds or lies in the output of x"
    ],
    '[targets.x]\nkind = "join"\nsource = 3': [
        "line 1: targets.x.output: is missing",
        "line 3: targets.x.source: has to be a path",
    ],
    '[targets.x]\nkind = "test"\nsource = "s"\noutput = "o"': [
        "line 4: targets.x.output: there is no key 'output'; known: kind, source, after, matrix"
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong(tmp_path: Path, text: str) -> None:
    with pytest.raises(MalformedFile) as raised:
        read(tmp_path, text)
    assert list(raised.value.problems) == WRONG[text]


def test_all_problems_at_once(tmp_path: Path) -> None:
    parts = [target("x", "wiht = 1"), target("y", "wiht = 1"), target("z", 'with = "@w"')]
    with pytest.raises(MalformedFile) as raised:
        read(tmp_path, "\n".join(parts), none="1")
    assert len(raised.value.problems) == 4


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_steps(tmp_path / "none.toml", KINDS, {})
    with pytest.raises(MalformedFile, match="is not TOML"):
        read(tmp_path, "x = [")
    with pytest.raises(MalformedFile, match="at most"):
        read(tmp_path, "#" * (1 << 20) + "#")


def test_lines_of_keys_behind_texts_of_several_lines() -> None:
    text = 'a = """\nb = 1\n"""\n[ c."d e" ]\n# f = 1\n"g.h" = 2\nc.i=3\n[[j]]\n'
    tomllib.loads(text)
    assert lines_of(text) == {
        ("a",): 1,
        ("c", "d e"): 4,
        ("c", "d e", "g.h"): 6,
        ("c", "d e", "c", "i"): 7,
    }


def test_words_of_options() -> None:
    flag = OptionForm("--yes", "--no", is_flag=True)
    assert (flag.words(True), flag.words(False), flag.words("x")) == (["--yes"], ["--no"], None)
    bare = OptionForm("--check", may_be_bare=True)
    assert (bare.words(True), bare.words(False), bare.words("a")) == (
        ["--check"],
        [],
        ["--check=a"],
    )
    assert OptionForm("--x").words([1]) is None
    assert OptionForm("--x", is_repeated=True).words([1, True]) is None


TEXTS = st.text("ab{}@/=[]\"'\n. #", max_size=20)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["kind", "source", "output", "after", "matrix", "with"]) | TEXTS


@settings(max_examples=examples(30, 300))
@given(st.dictionaries(TEXTS, st.dictionaries(KEYS, VALUES | st.just("join")), max_size=3))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, targets: dict[str, dict[str, object]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    tables = [f"[targets.{quoted(name)}]\n{pairs(keys)}" for name, keys in targets.items()]
    file.write_text("\n".join(tables))
    try:
        for step in read_steps(file, KINDS, {}):
            assert all(isinstance(word, str) for word in step.argv)
    except MalformedFile as error:
        assert error.problems  # it is TOML


def quoted(value: object) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(max(-(2**63), min(value, 2**63 - 1)))
    if isinstance(value, list):
        return f"[{', '.join(map(quoted, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quoted(k)} = {quoted(v)}' for k, v in value.items())}}}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def pairs(table: dict[str, object]) -> str:
    return "".join(f"{quoted(key)} = {quoted(value)}\n" for key, value in table.items())


def test_sources_that_are_no_paths(tmp_path: Path) -> None:
    text = target("x").replace('"s"', '"https://user:sesame@host/x"')
    with pytest.raises(MalformedFile, match="this is read from a path here") as caught:
        read(tmp_path, text)
    assert "sesame" not in str(caught.value)


def test_outputs_that_are_no_paths(tmp_path: Path) -> None:
    text = target("x").replace('output = "', 'output = "s3://user:sesame@bucket/')
    assert "s3://" in text
    with pytest.raises(MalformedFile, match="write to a path, and copy it from there") as caught:
        read(tmp_path, text)
    assert "sesame" not in str(caught.value)
