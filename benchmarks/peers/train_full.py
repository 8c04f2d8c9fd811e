"""Full fine-tuning with transformers."""

from functools import partial

from plain_loop import CHECKPOINT, answer_epochs, autocast_logits
from transformers import BertForSequenceClassification

model = BertForSequenceClassification.from_pretrained(
    CHECKPOINT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
).train()
answer_epochs(model, partial(autocast_logits, model), 1e-4)
