"""Which inputs become golden examples."""

import torch
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import Candidate, choose_inputs
from peltier_adapters.inputs import encode_input
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone

TASK = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=16)
TEXTS = ["film " * count for count in range(1, 13)]


def _candidate(bert: Backbone, preset: str) -> Candidate:
    chosen, generator = find_preset(preset), torch.Generator().manual_seed(0)
    parts = chosen.compose(chosen.settings({}, bert.config), bert.config, outputs=2)
    tensors = {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in init_tensors(parts, bert, generator).items()
    }
    return Candidate("toy", preset, parts, tensors, TASK)


def _num_tokens(bert: Backbone, texts: list[str]) -> int:
    return sum(len(encode_input(bert, TASK, text)) for text in texts)


def test_chosen_inputs_are_distinct_and_no_longer_than_evenly_spaced_ones(bert: Backbone):
    """So an upload computes no more than before. They are in the order of their lengths."""
    chosen = choose_inputs(bert, _candidate(bert, "houlsby"), TEXTS * 2, 4)
    assert len(set(chosen)) == len(chosen) == 4
    assert chosen == sorted(chosen, key=len)
    assert _num_tokens(bert, chosen) <= _num_tokens(bert, [TEXTS[place] for place in (0, 4, 7, 11)])


def test_a_few_inputs_are_all_golden(bert: Backbone):
    assert choose_inputs(bert, _candidate(bert, "lora"), ["good", "good"], 4) == ["good"]


def test_an_adapter_that_changes_nothing_has_golden_inputs_too(bert: Backbone):
    """A fresh LoRA reacts to no tensor."""
    candidate = _candidate(bert, "lora")
    idle = {name: torch.zeros_like(tensor) for name, tensor in candidate.tensors.items()}
    chosen = choose_inputs(bert, Candidate("toy", "lora", candidate.parts, idle, TASK), TEXTS, 4)
    assert len(set(chosen)) == 4


def test_the_first_choice_reacts_more_than_a_typical_input(bert: Backbone):
    """To the head, whose answer for each text is known: the larger the logits, the larger the reaction."""
    candidate = _candidate(bert, "houlsby")
    chosen = choose_inputs(bert, candidate, TEXTS, 4)

    def reaction(name: str, text: str) -> float:
        artifact = candidate.unproved(bert, TEXTS[:1])
        generator = torch.Generator().manual_seed(1)
        tensor = artifact.tensors[name]
        moved = tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].view(tensor.shape)
        wrong = Artifact(artifact.manifest, {**artifact.tensors, name: moved}, name)
        rows = [Row(encode_input(bert, TASK, text), Banks(bert).add(one)) for one in (artifact, wrong)]
        own, other = (output.logits.softmax(-1) for output in forward(bert, rows))
        return float((own - other).abs().max())

    for name in candidate.tensors:
        best = max(reaction(name, text) for text in chosen)
        assert best >= sorted(reaction(name, text) for text in TEXTS)[len(TEXTS) // 2]
