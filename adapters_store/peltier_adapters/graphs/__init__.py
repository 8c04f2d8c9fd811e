"""Whole batches replayed from CUDA graphs: BERT-base with four presets in a batch is hundreds of launches, and small
batches wait for the host between them. A graph is one launch, but its shapes and addresses are those of its capture.
So one graph serves every batch of a `Shape`:

1. Nothing inside the captured region asks how long a row is. Where rows and groups begin are int32 inputs
   (`indices.py`), copied to the device in one go; what follows from them, such as each token's row, is computed there.
2. Tokens are rounded up to a bucket. The tokens behind the last row belong to no row and no group: they are computed
   like any other one and read by nobody, so it does not matter what they become.
3. A bank's adapters may stand anywhere in the batch. Its `ProgramTokens` covers all tokens: the kernels get its groups
   as runs between one run of the tokens before them and one of those behind, both of slot -1, which reads no weight and
   changes nothing. The number of groups is rounded up, and the runs of those too many are empty.
4. Weights are not read where adapters lie, as that changes: they are copied before a replay, as in any batch on a GPU,
   but into stacks that stay where they are. Graphs with as many groups of one bank share its stack. What ops make of
   their weights, such as norms in the backbone's dtype, is part of the graph.
5. Attention (`attention.py`) is one call for all rows without a prefix, and one more for each bank whose rows have one,
   over as many rows as the shape allows.
6. Outputs are copied to tensors of their own. So nothing in the graphs' memory outlives a replay, and all of them share
   one pool, whatever the order of their replays.

A shape is captured when it has come often enough (`graphs.py`); rare ones, T5, recorded gates, rows with pads of their
own and batches so large that the card, not the host, is the limit run as they do without graphs. Only `capture.py`
needs a card: everywhere else a replay may be the call itself.
"""
