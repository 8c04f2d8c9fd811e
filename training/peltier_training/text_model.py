"""The trainable form of a T5's adapter. As when it is served, each decoder token is a row of its own."""

from peltier_adapters.mixture import Mixture
from peltier_adapters.scoring import SingleTokens
from peltier_backbone.packing import Packed
from peltier_backbone.targets import Targets
from torch import Tensor
from torch.nn import functional as F

from peltier_training.model import TrainableAdapter


class TextAdapter(TrainableAdapter):
    """An adapter of a T5: packed rows (soft prompts' placeholders in front) and decoder inputs to next-token logits
    [nodes, vocabulary]. Dropout stands where T5 has its last one, before the output layer."""

    def forward(self, packed: Packed, targets: Targets) -> Tensor:
        tensors, model = self._grouped(), self.backbone.t5
        encoder = Mixture(self.backbone, [self._slice(packed, tensors)])
        memory = model.remember(packed, model.encode(packed, encoder), encoder)
        decoder = Mixture(self.backbone, [self._slice(SingleTokens(len(targets.ids)), tensors)])
        hidden = model.decode(targets, memory, decoder)
        return model.logits(F.dropout(hidden, self._dropout, self.training), decoder)
