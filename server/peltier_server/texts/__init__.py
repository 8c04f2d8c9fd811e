"""Texts that a T5 writes: how they are asked for, cut, streamed, and said in the words of other APIs."""
