"""Kernels in Triton for adapters on a GPU: one launch for all groups of a batch, weights read where they lie.

`ops/triton.py` calls them; nothing here is imported where Triton is absent.
"""
