"""Kernels in Triton for adapters on a GPU: one launch for all groups of a batch, which reads weights without a copy.

`ops/triton.py` calls them; a process without Triton does not import this package.
"""
