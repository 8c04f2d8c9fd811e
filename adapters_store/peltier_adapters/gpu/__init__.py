"""What computes batches on a GPU, behind `batch/runner.py`: ops and attention in Triton (`backend.py`, `kernels/`),
forward passes with one copy from the host (`frame.py`, `t5_frame.py`), and their CUDA graphs (`graphs.py`).

The other folders import it only where it is chosen, if there is a GPU: in `ops/choice.py` and `batch/choice.py`. Only
`capture.py`, `self_check.py` and `warm_up.py` can be imported without Triton.
"""
