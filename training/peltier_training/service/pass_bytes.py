"""The most memory that a pass of a training needs on its device, by estimate."""

from peltier_backbone.machine.memory import total_bytes

_GIB = 2**30
_LEAST_GIB = 4
# Of a machine's memory, which its server and other workers use too.
_SHARE = 4
# Of a GPU's free memory: the rest is for the backbone, and for the adapter with its gradients and moments.
_GPU_SHARE = 2


def pass_bytes(device: str) -> int:
    """On a CPU the same on all machines of a kind, because the division of a step decides its last bits."""
    import torch
    from peltier_backbone.load import resolve_device

    if resolve_device(device).type == "cpu":
        return max(_LEAST_GIB, (total_bytes() or 0) // (_SHARE * _GIB)) * _GIB
    # What torch keeps of former trainings of this process is free for this one.
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return (torch.cuda.mem_get_info()[0] + kept) // _GPU_SHARE
