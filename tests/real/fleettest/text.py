"""Seeded prose: the same seed gives the same words, different seeds share no long run of them."""

import random

WORDS = (
    "river stone light paper window garden number method return import class value string list "
    "error result table index branch commit deploy module server client message header stream"
).split()


def words(seed, count):
    choice = random.Random(seed).choice
    return " ".join(choice(WORDS) for _ in range(count))


def settings(seed, count):
    """Names with numbers: dense, 2.2 bytes a token where the words alone have 4.4."""
    chosen = random.Random(seed)
    return " ".join(f"{chosen.choice(WORDS)}={chosen.randrange(100)}" for _ in range(count))


def hashes(seed, count):
    """Numbers in hexadecimal, as dense as text gets: 1.1 bytes a token."""
    chosen = random.Random(seed)
    return " ".join(f"{chosen.getrandbits(64):016x}" for _ in range(count))
