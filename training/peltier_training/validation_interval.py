"""How often a training stops to measure itself."""

import math
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

MAX_VALIDATIONS = 20  # of one run


class ValidationInterval(TrainerCallback):
    """Validates and saves after every k-th epoch and after the last, so that a run of many short epochs spends its time
    on training. k is the smallest with which there are at most `MAX_VALIDATIONS`."""

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The Trainer has asked for both after this epoch."""
        epoch, last = round(state.epoch or 0), math.ceil(args.num_train_epochs)
        if epoch % math.ceil(last / MAX_VALIDATIONS) and epoch < last:
            control.should_evaluate = control.should_save = False
