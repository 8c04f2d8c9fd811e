"""How many prepared products oneDNN and torch keep.

Both prepare code for every combination of a weight's shape and a number of tokens, and each keeps 1,024 of them unless
told otherwise: a process that sees ever new numbers of tokens grows by gigabytes. They read their bounds from the
environment at their first product, so no torch is imported here.
"""

import os

# A product takes about 0.5 MiB, 0.7 ms to prepare and two entries: the second is not looked up again and leaves first.
# An encoder has four shapes, so these are 64 to 128 numbers of tokens; batches of up to 2,048 tokens have 128
# (`peltier_adapters.batch.filler`).
_MAX_PREPARED = 512
# What torch keeps in front of oneDNN holds the same products, in every thread again, and finds them no faster.
_MAX_PER_THREAD = 8


def bound_kernel_caches() -> None:
    """Bounds both caches, unless the environment already does; to be called before the process's first product."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_MAX_PREPARED))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(_MAX_PER_THREAD))
