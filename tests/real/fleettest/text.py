"""Seeded prose: the same seed gives the same words, different seeds share no long run of them."""

import random

WORDS = (
    "river stone light paper window garden number method return import class value string list "
    "error result table index branch commit deploy module server client message header stream"
).split()


def words(seed, count):
    choice = random.Random(seed).choice
    return " ".join(choice(WORDS) for _ in range(count))


def digits(seed, count):
    """The same of hexadecimal numbers: dense, two bytes a token."""
    bits = random.Random(seed).getrandbits
    return " ".join(f"{bits(24):06x}" for _ in range(count))
