"""AdapterHub's Compacter, with the norms trained as Peltier's preset does."""

from functools import partial

from adapters import BertAdapterModel, CompacterConfig
from plain_loop import CHECKPOINT, answer_epochs, autocast_logits

model = BertAdapterModel.from_pretrained(CHECKPOINT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model.add_adapter("compacter", CompacterConfig(reduction_factor=16, phm_dim=4))
model.add_classification_head("compacter", num_labels=2)
model.train_adapter("compacter")
for name, parameter in model.named_parameters():
    if "LayerNorm" in name:
        parameter.requires_grad_(True)
model.train()
answer_epochs(model, partial(autocast_logits, model), 3e-3)
