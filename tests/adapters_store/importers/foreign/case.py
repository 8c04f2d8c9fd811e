"""Runs beside a foreign library: saves what it says of an adapter, for Peltier's import to be compared with.

A case is a folder: what the library saved, and `expected.json` with the texts and the library's own answers to them.
"""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

TEXTS = ("a good film", "the plot was not very good , and the actor is dull", "bad")
TARGETS = ("good", "film", "bad actor")


def shake(model: torch.nn.Module, seed: int = 0) -> None:
    """Give every trainable parameter values that matter, whatever it started from. They are multiples of 1/64, which
    makes recorded files small."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                spread = 0.5 * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.2
                parameter.add_(torch.empty_like(parameter).normal_(generator=generator) * spread)
                parameter.copy_((parameter * 64).round() / 64)


@torch.no_grad()
def answers(model: Any, backbone: Path) -> list[list[float]]:
    """The output of each text alone, without padding: its logits, those of each token in turn, or the mean of its
    states; of a T5 the log-likelihood of each target."""
    model.eval()
    tokenizer = Tokenizer.from_file(str(backbone / "tokenizer.json"))
    found = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids])
        row = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "t5" in backbone.name:
            found.append([_likelihood(model, row, tokenizer.encode(target).ids) for target in TARGETS])
        else:
            found.append(_output(model(**row)).flatten().tolist())
    return found


def _output(output: Any) -> torch.Tensor:
    if "start_logits" in output:
        return torch.stack((output.start_logits[0], output.end_logits[0]), -1)
    return output.logits[0] if "logits" in output else output.last_hidden_state[0].mean(0)


def _likelihood(model: Any, row: dict[str, torch.Tensor], ids: list[int]) -> float:
    labels = torch.tensor([ids])
    steps = model(**row, labels=labels).logits.log_softmax(-1)
    return float(steps[0].gather(1, labels[0][:, None]).sum())


def save_case(model: Any, backbone: Path, folder: Path, save: Any) -> None:
    """`save(folder)` writes the adapter as its library does."""
    folder.mkdir(parents=True)
    save(str(folder))
    expected = {"backbone": backbone.name, "texts": TEXTS, "targets": TARGETS, "answers": answers(model, backbone)}
    (folder / "expected.json").write_text(json.dumps(expected))
