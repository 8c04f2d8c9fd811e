"""The operations that adapters consist of, and the backends that run them.

A part (`parts/`) lowers to ops: frozen values (`op.py`) that describe an operation at a site of a layer, with weights
in the layout of the kernels. `Bank` lowers parts once for all adapters of a signature, on a template, when it loads the
first of them. An adapter is then its flat weights, and a batch builds only tables of which rows belong to which
adapter. Training builds the same ops in each pass, from tensors with gradients.

A backend (`backend.py`) runs the ops of all rows of a batch. It is chosen once for a device: `native.py` in C, one call
for all layers (`batch/packed_batch.py`) and one for each other site; `gpu/backend.py` on a GPU, one call for each site;
`torch.py` on any device, and always when gradients are recorded. `batch/choice.py` chooses what runs a batch by it.
"""
