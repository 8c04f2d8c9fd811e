"""How many prepared products oneDNN and torch keep, where they compute products.

Both prepare code for every combination of a weight's shape and a number of tokens, and each keeps 1,024 of them by
default: a process that sees many different numbers of tokens grows by gigabytes. Both read their bounds from the
environment at the first product, so this module imports no torch. The native products (`linear.py`) need no
preparation.
"""

import os

# A product takes about 0.65 MiB and 0.7 ms to prepare.
_MAX_PREPARED = 256
# The cache of torch holds the same products as oneDNN's, once for every thread, and its look-ups are no faster.
_MAX_PER_THREAD = 8


def bound_kernel_caches() -> None:
    """Bound both caches, unless the environment already does. Call it before the first product of the process."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_MAX_PREPARED))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(_MAX_PER_THREAD))
