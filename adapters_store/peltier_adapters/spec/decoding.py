"""How one text is decoded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """How a text is decoded. Temperature 0 is greedy. Beam search does not sample.

    Sampling keeps the likeliest tokens that together have probability `top_p`. `seed` makes it repeatable.
    """

    max_new_tokens: int
    num_beams: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
