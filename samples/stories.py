"""A grammar of small stories: the text that the sample model is trained on.

Every sentence here was written for this project, so the text is the project's own (Apache-2.0).
A story takes a hero and a friend, each with a name, a kind and a pronoun, and one of ten plots. A
plot is a list of paragraphs, a paragraph a list of beats, and a beat a list of ways to say it.

    python stories.py --seed 7 --count 3
"""

# ruff: noqa: SIM905 - lists of words read better as text

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

from plots import ENDINGS, FRIENDS, OPENINGS, PLOTS

NAMES = {
    "she": "Lily Mia Anna Rosa Tilly Nora Wren Hazel Poppy Ivy Clara Bella Luna Maya Ruby Daisy "
    "Olive Fern Holly Juno",
    "he": "Tom Ben Max Pip Otto Finn Leo Sam Jack Theo Hugo Milo Oscar Felix Toby Rufus Ned Gus "
    "Barney Alfie",
}
KINDS = (
    "fox rabbit bear mouse frog duck cat dog turtle hedgehog squirrel goat mole badger lamb pony "
    "otter beaver pig donkey"
).split()
ADJECTIVES = "little brave small kind shy clever happy curious gentle quiet young cheerful".split()
PLACES = (
    "a green forest|a small village|a house by the sea|a cosy den under a tree|a farm on a hill|"
    "a valley full of flowers|a cottage near a lake|a meadow beside a river|an old mill|"
    "a burrow at the edge of the wood"
).split("|")
TREASURES = (
    "red ball|blue hat|silver bell|golden key|warm scarf|toy boat|yellow kite|little drum|"
    "shiny stone|striped sock|wooden spoon|green umbrella"
).split("|")
HIDING = (
    "under a bush|behind a big rock|in a pile of leaves|on top of the fence|next to the well|"
    "between two roots|inside a hollow log|under the old bridge"
).split("|")
SKILLS = "swim sing dance paint whistle climb skate juggle cook read".split()
FEARS = (
    "the dark|thunder|deep water|high places|loud noises|the big owl|the cold wind|shadows"
).split("|")
FOODS = (
    "a basket of berries|a big red apple|a warm loaf of bread|a pot of honey|a bag of nuts|"
    "a sweet carrot cake|a bowl of soup|a round cheese"
).split("|")
TRAPS = (
    "stuck in the mud|caught in a bush|at the bottom of a hole|up in a tall tree|"
    "tangled in a net|trapped under a branch"
).split("|")
TOOLS = "a long rope|a strong stick|a ladder|a wooden plank|an old blanket|a vine".split("|")
BUILDS = "a boat|a kite|a tree house|a swing|a bridge|a sled|a wagon|a raft".split("|")
GIFTS = (
    "a crown of daisies|a song|a picture of the two of them|a honey cake|a bracelet of shells|"
    "a little wooden star|a soft pillow|a lantern"
).split("|")
SEEDS = "sunflower|pumpkin|bean|apple|strawberry|rose|carrot|melon".split("|")
SIGNS = (
    "the light of the moon|the sound of a bell|the smell of soup|a bright star|"
    "a trail of white stones|the song of a bird"
).split("|")
WEATHER = (
    "sunny morning|rainy afternoon|windy day|cold winter day|warm spring morning|quiet evening|"
    "foggy morning|bright summer day"
).split("|")

TIMES = "morning evening spring summer Sunday autumn".split()

PRONOUNS = {"she": ("she", "her", "her"), "he": ("he", "him", "his")}
FIELDS = {
    "place": PLACES, "treasure": TREASURES, "hiding": HIDING, "skill": SKILLS, "fear": FEARS,
    "food": FOODS, "trap": TRAPS, "tool": TOOLS, "build": BUILDS, "gift": GIFTS, "seed": SEEDS,
    "sign": SIGNS, "weather": WEATHER, "time": TIMES,
}  # fmt: skip


def story(rng: random.Random) -> str:
    """One story of three paragraphs."""
    fields = characters(rng) | {name: rng.choice(words) for name, words in FIELDS.items()}
    trouble, resolution = PLOTS[rng.choice(sorted(PLOTS))]
    paragraphs = ((OPENINGS, FRIENDS), trouble, (*resolution, ENDINGS))
    return "\n".join(
        " ".join(rng.choice(beat).format_map(fields) for beat in beats) for beats in paragraphs
    )


def characters(rng: random.Random) -> dict[str, str]:
    """The fields of a hero and a friend who differ in name and kind."""
    kinds, adjectives = rng.sample(KINDS, 2), rng.sample(ADJECTIVES, 2)
    genders = [rng.choice(sorted(PRONOUNS)) for _ in kinds]
    names = [rng.choice(NAMES[gender].split()) for gender in genders]
    if names[0] == names[1]:
        return characters(rng)
    fields = {"hero": names[0], "friend": names[1]}
    for prefix, animal, adjective, gender in zip(
        ("", "f"), kinds, adjectives, genders, strict=True
    ):
        subject, object_, possessive = PRONOUNS[gender]
        words = {"kind": animal, "adj": adjective, "he": subject, "him": object_, "his": possessive}
        fields |= {f"{prefix}{key}": word for key, word in words.items()}
    for key in ("he", "his", "fhe"):
        fields[key.capitalize()] = fields[key].capitalize()
    return fields


def stories(seed: int, count: int) -> Iterator[str]:
    """``count`` stories, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - stories, not secrets
    return (story(rng) for _ in range(count))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=3)
    arguments = parser.parse_args()
    print("\n\n".join(stories(arguments.seed, arguments.count)))
