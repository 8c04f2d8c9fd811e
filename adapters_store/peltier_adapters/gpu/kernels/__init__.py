"""Kernels in Triton for adapters on a GPU: one launch for all rows of a batch, which reads weights where they lie.

`gpu/backend.py` calls them; a process without Triton does not import this package.
"""
