"""The trainable form of a T5's adapter. As in serving, each decoder token is a separate row."""

from peltier_backbone.decoding.targets import Targets
from peltier_backbone.text.packing import Packed
from torch import Tensor
from torch.nn import functional as F

from peltier_training.models.model import TrainableAdapter


class TextAdapter(TrainableAdapter):
    """An adapter of a T5: packed rows, with placeholders of soft prompts in front, and decoder inputs to next-token
    logits [nodes, vocabulary]. Dropout is applied before the output layer, where T5 has its last one."""

    def forward(self, packed: Packed, targets: Targets) -> Tensor:
        samples, model = range(len(packed.lengths)), self.backbone.t5
        programs = self._lower(self._drawn(len(samples)))
        encoder = self._adapt(programs, packed.lengths, samples)
        memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
        writers = [sample for sample, length in zip(samples, targets.lengths, strict=True) for _ in range(length)]
        decoder = self._adapt(programs, [1] * len(writers), writers)
        hidden = model.decode(targets, memory, decoder)
        return model.logits(F.dropout(hidden, self._dropout.output, self.training), decoder)
