"""These tests run kernels in Triton's interpreter, which must be chosen before Triton is imported: `test_kernels.py`
starts them in a process of their own, so that nobody else is interpreted. By hand:

    TRITON_INTERPRET=1 python -m pytest tests/adapters_store/gpu/kernels
"""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
if not collect_ignore_glob:
    from benchmarks.gpu.interpreter import repeat_less

    repeat_less()
