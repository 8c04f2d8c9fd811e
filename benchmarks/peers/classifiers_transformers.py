"""The rival of `classifiers.py` in its own process: merged classifiers of transformers, one model for each task."""

import itertools
import json
import sys
import time
from pathlib import Path

import torch
from answering import answer
from transformers import ModernBertForSequenceClassification, PreTrainedModel


def load(checkpoint: Path, number: int) -> PreTrainedModel:
    """A model with memory of its own, as the files of merged models have; its classifier is random."""
    torch.manual_seed(number)
    model: PreTrainedModel = ModernBertForSequenceClassification.from_pretrained(checkpoint).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return model


def main() -> None:
    """Takes the folder of the checkpoint, the folder with the work, and the numbers of models and threads."""
    checkpoint, folder = map(Path, sys.argv[1:3])
    torch.set_num_threads(int(sys.argv[4]))
    models = [load(checkpoint, number) for number in range(int(sys.argv[3]))]
    texts = itertools.cycle(json.loads((folder / "texts.json").read_text()))

    def ask_all() -> None:
        """One text."""
        ids = torch.tensor([next(texts)])
        with torch.inference_mode():
            for model in models:
                model(input_ids=ids, attention_mask=torch.ones_like(ids))

    def ask_at_moments() -> None:
        """Texts that arrive at the given moments, one after another; writes the seconds until each was answered."""
        moments, seconds = json.loads((folder / "moments.json").read_text()), []
        start = time.monotonic()
        for moment in moments:
            time.sleep(max(0.0, start + moment - time.monotonic()))
            ask_all()
            seconds.append(time.monotonic() - start - moment)
        (folder / "seconds.json").write_text(json.dumps(seconds))

    answer({"text": ask_all, "moments": ask_at_moments})


if __name__ == "__main__":
    main()
