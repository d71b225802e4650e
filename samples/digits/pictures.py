"""Pictures of digits, 8 by 8: drawn from a font, moved, blurred and covered with noise.

As a program it draws some into a file, and shows the first::

    python samples/digits/pictures.py 7 --seed 3 --output x.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZE = 8
# Rows of five marks each, of which a digit has seven.
FONT = """
.###. #...# #..## #.#.# ##..# #...# .###.
..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.
.###. #...# ....# ...#. ..#.. .#... #####
.###. #...# ....# ..##. ....# #...# .###.
...#. ..##. .#.#. #..#. ##### ...#. ...#.
##### #.... ####. ....# ....# #...# .###.
.###. #.... #.... ####. #...# #...# .###.
##### ....# ...#. ..#.. ..#.. .#... .#...
.###. #...# #...# .###. #...# #...# .###.
.###. #...# #...# .#### ....# ....# .###.
"""
SHADES = " .:-=+*#%@"


def glyphs() -> Array:
    """The font: float32 ``[10, 7, 5]``, 1 where there is a mark."""
    lines = FONT.strip().splitlines()
    marks = [[[mark == "#" for mark in row] for row in line.split()] for line in lines]
    return np.array(marks, np.float32)


def draw(digits: Array, random: np.random.Generator) -> Array:
    """Pictures of digits ``[n]``, from 0 to 9: float32 ``[n, 8, 8]`` from 0 to 1."""
    font = glyphs()
    pictures = np.zeros((len(digits), SIZE, SIZE), np.float32)
    _, height, width = font.shape
    for picture, digit in zip(pictures, digits, strict=True):
        top, left = random.integers(0, SIZE - height + 1), random.integers(0, SIZE - width + 1)
        picture[top : top + height, left : left + width] = font[digit]
    blur = random.uniform(0, 0.25, (len(digits), 1, 1))
    beside = np.roll(pictures, 1, 2) + np.roll(pictures, -1, 2) + np.roll(pictures, 1, 1)
    pictures = pictures * random.uniform(0.7, 1, (len(digits), 1, 1)) + blur * beside
    noise = random.normal(0, 0.2, pictures.shape)
    return np.clip(pictures + noise, 0, 1).astype(np.float32)


def shown(picture: Array) -> str:
    """A picture as text, two characters for each of its squares."""
    shades = (picture * (len(SHADES) - 1)).round().astype(int)
    return "\n".join("".join(SHADES[shade] * 2 for shade in row).rstrip() for row in shades)


def main() -> None:
    """Draw one digit several times, into a file."""
    parser = argparse.ArgumentParser(description="Draw pictures of a digit.")
    parser.add_argument("digit", type=int, choices=range(10))
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("x.npz"))
    given = parser.parse_args()
    pictures = draw(np.full(given.count, given.digit), np.random.default_rng(given.seed))
    np.savez(given.output, picture=pictures)
    print(shown(pictures[0]))


if __name__ == "__main__":
    main()
