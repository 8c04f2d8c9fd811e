"""Replays whole batches of encoders from CUDA graphs. BERT-base with four presets in a batch takes 147 kernel launches,
and small batches wait for the host between them. A graph takes one launch, but its sizes and addresses are fixed at its
capture.

A frame (`batch/frame.py`) computes a batch only from one tensor of integers: tokens, the starts of rows, and for each
row the addresses of its adapter's weights and program. So one graph serves every batch that its shape covers, with any
adapters of its banks, in any order:

1. The numbers of tokens, of rows, and of tokens of the longest row are rounded up (`round_shape`). No row
   has the additional tokens, and additional rows have no tokens. No output depends on either.
2. A graph has all banks that have occurred before its capture. A launch for a site at which no row of the batch has an
   op ends at once.
3. Outputs are copied to separate tensors. So no data in the memory of a graph is needed after its replay, and all
   graphs share one memory pool, in any order of replays.

A shape is captured when it has occurred often enough (`graphs.py`). `benchmarks/gpu/graph_hits.py` simulates how many
batches find a graph. T5, recorded gates and batches of more than 4,096 tokens run without graphs. Only
`CudaCapture` needs a GPU; the rest also works with a plain call instead of a replay.
"""
