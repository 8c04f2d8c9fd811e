"""Kernels in plain C for the CPU. They take pointers and strides, and know neither torch nor Python.

They are compiled when the project is installed (`hatch_build.py`), once for each level of processors (`levels.py`).
`interface.py` reads their headers, `library.py` calls those of one level, and `choice.py` chooses the level, or torch.
Where there are no libraries, and in training except for the frozen maps, torch computes the same.
"""
