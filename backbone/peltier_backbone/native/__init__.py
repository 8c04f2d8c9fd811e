"""Kernels in plain C for the CPU. They take pointers and strides, and know neither torch nor Python.

They are compiled when the project is installed (`hatch_build.py`); `library.py` loads them. Without a compiler, and in
training, torch computes the same.
"""
