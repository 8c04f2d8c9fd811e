"""What adapters do, in a few operations, and the backends that run them.

A part (`parts/`) lowers to ops: frozen values (`op.py`) that say what happens at which site of which layer, with
weights as kernels read them. That happens once for all adapters of a signature, on a template, when the first of them
is loaded (`Bank`); an adapter is its flat weights, and a batch makes nothing but tables of which rows are whose. In
training the same ops are made in each pass, of tensors with gradients.

A backend (`backend.py`) runs all ops that act at a site of a layer, for all rows of a batch. It is chosen once for a
device: `native.py` in C, one call a site whatever the shapes of its ops; `triton.py` on a GPU, one launch for each
signature; `torch.py` anywhere, and wherever gradients are recorded. Nothing else asks what computes.
"""
