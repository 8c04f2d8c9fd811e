"""Kernels in Triton for adapters on a GPU: one launch for all groups of a batch, weights read where they lie.

Nothing here is imported where Triton is absent; `choice.py` says where it is used and imports none of it.
"""
