"""Runs with AdapterHub installed: `save_adapterhub.py BACKBONES OUTPUT` saves one case a kind of adapter."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adapters
import torch
from adapters import (
    AutoAdapterModel,
    CompacterConfig,
    CompacterPlusPlusConfig,
    ConfigUnion,
    DoubleSeqBnConfig,
    IA3Config,
    LoRAConfig,
    ParBnConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    SeqBnConfig,
    SeqBnInvConfig,
    UniPELTConfig,
)
from case import save_case, shake
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    T5ForConditionalGeneration,
)

_SMALL = {"reduction_factor": 6}
_PHM = {"reduction_factor": 3, "phm_dim": 4}
_APL = (
    PrefixTuningConfig(prefix_length=4, bottleneck_size=8, use_gating=True),
    SeqBnConfig(use_gating=True, **_SMALL),
    LoRAConfig(r=4, use_gating=True),
)


@dataclass(frozen=True)
class Case:
    """An adapter on a backbone: `flexible` is AdapterHub's own model class with its head of `layers`, else the plain
    transformers class."""

    family: str
    config: Any
    flexible: bool = False
    layers: int = 2
    headless: bool = False
    pooled: bool = False
    multilabel: bool = False
    task: str = "classification"
    safetensors: bool = False


# AdapterHub has no prompt tuning on a T5.
CASES = {
    "bert-seq_bn": Case("bert", SeqBnConfig(**_SMALL)),
    "bert-seq_bn-left-out": Case("bert", SeqBnConfig(leave_out=[1], **_SMALL)),
    "bert-seq_bn-sizes": Case("bert", SeqBnConfig(reduction_factor={"0": 6, "2": 8, "default": 12})),
    "bert-seq_bn-scaled": Case("bert", SeqBnConfig(scaling="channel", **_SMALL)),
    "bert-seq_bn-gated": Case("bert", SeqBnConfig(use_gating=True, **_SMALL)),
    "bert-seq_bn-normed": Case("bert", SeqBnConfig(ln_before=True, **_SMALL)),
    "bert-seq_bn-inv": Case("bert", SeqBnInvConfig(**_SMALL)),
    "bert-seq_bn-flexible": Case("bert", SeqBnConfig(**_SMALL), flexible=True),
    "bert-seq_bn-linear": Case("bert", SeqBnConfig(**_SMALL), flexible=True, layers=1, pooled=True),
    "bert-seq_bn-multilabel": Case("bert", SeqBnConfig(**_SMALL), flexible=True, multilabel=True),
    "bert-seq_bn-headless": Case("bert", SeqBnConfig(**_SMALL), flexible=True, headless=True),
    "bert-seq_bn-safetensors": Case("bert", SeqBnConfig(**_SMALL), flexible=True, safetensors=True),
    "bert-seq_bn-tagging": Case("bert", SeqBnConfig(**_SMALL), flexible=True, task="tagging", layers=1),
    "bert-seq_bn-tagging-deep": Case("bert", SeqBnConfig(**_SMALL), flexible=True, task="tagging"),
    "bert-seq_bn-qa": Case("bert", SeqBnConfig(**_SMALL), flexible=True, task="qa", layers=1),
    "bert-lora-plain-tagging": Case("bert", LoRAConfig(r=4), task="tagging"),
    "roberta-lora-plain-qa": Case("roberta", LoRAConfig(r=4), task="qa"),
    "bert-double_seq_bn": Case("bert", DoubleSeqBnConfig(**_SMALL)),
    "bert-par_bn": Case("bert", ParBnConfig(**_SMALL)),
    "bert-compacter": Case("bert", CompacterConfig(**_PHM)),
    "bert-compacter++": Case("bert", CompacterPlusPlusConfig(**_PHM)),
    "bert-phm": Case("bert", DoubleSeqBnConfig(phm_layer=True, shared_phm_rule=False, factorized_phm_W=False, **_PHM)),
    "bert-lora": Case("bert", LoRAConfig(r=4, alpha=6)),
    "bert-lora-gated": Case("bert", LoRAConfig(r=4, alpha=6, use_gating=True)),
    "bert-lora-ffn": Case("bert", LoRAConfig(r=4, intermediate_lora=True, output_lora=True)),
    "bert-lora-ffn-gated": Case("bert", LoRAConfig(r=4, output_lora=True, use_gating=True)),
    "bert-ia3": Case("bert", IA3Config()),
    "bert-prefix": Case("bert", PrefixTuningConfig(prefix_length=4, bottleneck_size=8)),
    "bert-prefix-flat": Case("bert", PrefixTuningConfig(prefix_length=4, flat=True)),
    "bert-prefix-two-gates": Case(
        "bert", PrefixTuningConfig(prefix_length=4, bottleneck_size=8, use_gating=True, shared_gating=False)
    ),
    "bert-prompt": Case("bert", PromptTuningConfig(prompt_length=4)),
    "bert-unipelt": Case("bert", UniPELTConfig(*_APL)),
    "bert-union": Case("bert", ConfigUnion(LoRAConfig(r=4), SeqBnConfig(**_SMALL))),
    "roberta-seq_bn": Case("roberta", SeqBnConfig(**_SMALL)),
    "roberta-double_seq_bn": Case("roberta", DoubleSeqBnConfig(**_SMALL)),
    "roberta-par_bn": Case("roberta", ParBnConfig(**_SMALL)),
    "roberta-lora": Case("roberta", LoRAConfig(r=4, alpha=6, selfattn_lora=True, attn_matrices=["q", "k", "v"])),
    "roberta-prefix": Case("roberta", PrefixTuningConfig(prefix_length=4, bottleneck_size=8), flexible=True),
    "roberta-prompt": Case("roberta", PromptTuningConfig(prompt_length=4)),
    "roberta-compacter": Case("roberta", CompacterConfig(**_PHM)),
    "roberta-compacter++": Case("roberta", CompacterPlusPlusConfig(**_PHM), flexible=True),
    "roberta-unipelt": Case("roberta", UniPELTConfig(*_APL)),
    "roberta-union": Case("roberta", ConfigUnion(LoRAConfig(r=4), SeqBnConfig(**_SMALL))),
    "t5-seq_bn": Case("t5", SeqBnConfig(**_SMALL)),
    "t5-double_seq_bn": Case("t5", DoubleSeqBnConfig(**_SMALL)),
    "t5-par_bn": Case("t5", ParBnConfig(**_SMALL)),
    "t5-compacter": Case("t5", CompacterConfig(**_PHM)),
    "t5-compacter++": Case("t5", CompacterPlusPlusConfig(**_PHM)),
    "t5-compacter-flexible": Case("t5", CompacterConfig(**_PHM), flexible=True),
    "t5-compacter++-flexible": Case("t5", CompacterPlusPlusConfig(**_PHM), flexible=True),
    "t5-seq_bn-gated": Case("t5", SeqBnConfig(use_gating=True, **_SMALL)),
    "t5-unipelt": Case("t5", UniPELTConfig(*_APL)),
    "t5-union": Case("t5", ConfigUnion(LoRAConfig(r=4), DoubleSeqBnConfig(**_SMALL))),
    "t5-lora": Case("t5", LoRAConfig(r=4, alpha=6)),
    "t5-lora-ffn": Case("t5", LoRAConfig(r=4, alpha=6, intermediate_lora=True, output_lora=True)),
    "t5_gated-lora-ffn": Case("t5_gated", LoRAConfig(r=4, intermediate_lora=True, output_lora=True)),
    "t5-prefix": Case("t5", PrefixTuningConfig(prefix_length=4, bottleneck_size=8)),
}


def _model(case: Case, directory: Path) -> Any:
    if case.flexible:
        model = AutoAdapterModel.from_pretrained(directory)
    elif case.family.startswith("t5"):
        # transformers 5 writes every T5 as tied, and this library's older one reads only that.
        model = T5ForConditionalGeneration.from_pretrained(directory, tie_word_embeddings="gated" not in case.family)
    elif case.task == "qa":
        model = AutoModelForQuestionAnswering.from_pretrained(directory)
    else:
        tagging = case.task == "tagging"
        auto = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
        model = auto.from_pretrained(directory, num_labels=3)
    adapters.init(model)
    model.add_adapter("task", config=case.config)
    if case.flexible and case.family.startswith("t5"):
        model.add_seq2seq_lm_head("task")
    elif case.flexible and case.task == "qa":
        model.add_qa_head("task", layers=case.layers)
    elif case.flexible and case.task == "tagging":
        model.add_tagging_head("task", num_labels=3, layers=case.layers, id2label={0: "O", 1: "B-a", 2: "I-a"})
    elif case.flexible:
        labels = {0: "no", 1: "maybe", 2: "yes"}
        own = {"layers": case.layers, "use_pooler": case.pooled, "multilabel": case.multilabel}
        model.add_classification_head("task", num_labels=3, id2label=labels, **own)
    model.train_adapter("task")
    model.set_active_adapters("task")
    if case.flexible:
        model.active_head = "task"
    return model


def _save(model: Any, case: Case, folder: str) -> None:
    with_head = case.flexible and not case.headless
    model.save_adapter(folder, "task", with_head=with_head, use_safetensors=case.safetensors)
    if not case.flexible and not case.family.startswith("t5"):
        model.save_head(folder)


def main(backbones: Path, output: Path) -> None:
    for number, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(number)
        model = _model(case, backbones / case.family)
        shake(model, number)
        save_case(model, backbones / case.family, output / name, lambda folder, m=model, c=case: _save(m, c, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
