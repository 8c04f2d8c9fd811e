"""Replays whole batches from CUDA graphs. BERT-base with four presets in a batch takes hundreds of kernel launches, and
small batches wait for the host between them. A graph takes one launch, but its shapes and addresses are fixed at its
capture. So one graph serves every batch of a `Shape`:

1. The captured code does not depend on the lengths of rows on the host. The starts of rows and groups are int32 inputs
   (`indices.py`), which one copy brings to the device. Values that follow from them, such as the row of each token, are
   computed on the device.
2. The number of tokens is rounded up to a bucket. The tokens after the last row belong to no row and no group. They are
   computed like other tokens, but no output depends on them.
3. The adapters of a bank may be anywhere in the batch. The `ProgramTokens` of the bank covers all tokens: the kernels
   get its groups as runs, with one run of the tokens before them and one run of the tokens after them. These two runs
   have slot -1, which reads no weight and changes nothing. The number of groups is rounded up; the additional runs are
   empty.
4. The addresses of adapters change, so a graph does not read their weights there. The weights are copied before each
   replay, as in any batch on a GPU, but into stacks with fixed addresses. Graphs with the same number of groups of a
   bank share its stack. Values that ops compute from weights, such as norms in the backbone's dtype, are part of the
   graph.
5. Attention (`attention.py`) is one call for all rows without a prefix, and one more call for each bank with prefixes,
   over as many rows as the shape allows.
6. Outputs are copied to separate tensors. So no data in the memory of a graph is needed after its replay, and all
   graphs share one memory pool, in any order of replays.

A shape is captured when it has occurred often enough (`graphs.py`). These batches run without graphs: rare shapes, T5,
recorded gates, inputs that contain padding, and batches so large that the GPU, not the host, is the limit. Only
`capture.py` needs a GPU; the other modules also work with a plain call instead of a replay.
"""
