"""Runs with PEFT installed: `save_peft.py BACKBONES OUTPUT` saves one case a kind of adapter that it can make."""

import sys
from pathlib import Path
from typing import Any

import torch
from case import save_case, shake
from peft import (
    IA3Config,
    LNTuningConfig,
    LoraConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

_PATTERNS = {"rank_pattern": {"layer.0.attention.self.query": 2}, "alpha_pattern": {r"layer\.[12].*value": 20}}
_MODERN_NORMS = ["mlp_norm", "final_norm"]
_LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]
_DISTILBERT = {"r": 4, "lora_alpha": 6, "target_modules": ["q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"]}
CASES: dict[str, tuple[str, Any]] = {
    "bert-lora": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6)),
    "bert-lora-patterns": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6, **_PATTERNS)),
    "bert-lora-rslora": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6, use_rslora=True)),
    "bert-lora-bias": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, bias="all")),
    "bert-lora-only-bias": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, bias="lora_only")),
    "bert-lora-saved": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, modules_to_save=["pooler", "LayerNorm"])),
    "bert-lora-some": (
        "bert",
        LoraConfig(
            task_type="SEQ_CLS", r=4, target_modules=["key", "attention.output.dense"], layers_to_transform=[0, 2]
        ),
    ),
    "bert-lora-everywhere": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear")),
    "bert-lora-ffn": (
        "bert",
        LoraConfig(
            task_type="SEQ_CLS",
            r=4,
            target_modules=["query", "intermediate.dense", "output.dense"],
            rank_pattern={"intermediate.dense": 2, r"layer\.1\.output\.dense": 6},
            alpha_pattern={"intermediate.dense": 3},
            fan_in_fan_out=True,
            layers_to_transform=[0, 1],
            layers_pattern="layer",
            use_rslora=True,
        ),
    ),
    "bert-dora": ("bert", LoraConfig(task_type="SEQ_CLS", r=4, use_dora=True)),
    "bert-dora-everywhere": (
        "bert",
        LoraConfig(task_type="SEQ_CLS", r=4, use_dora=True, use_rslora=True, bias="all", target_modules="all-linear"),
    ),
    "modernbert-dora": (
        "modernbert",
        LoraConfig(
            task_type="SEQ_CLS", r=4, use_dora=True, target_modules=["Wqkv", "Wi", "Wo"], modules_to_save=["head"]
        ),
    ),
    "t5_gated-dora": (
        "t5_gated",
        LoraConfig(task_type="SEQ_2_SEQ_LM", r=3, use_dora=True, target_modules=["q", "v", "o", "wi_1", "wo"]),
    ),
    "bert-lora-tokens": ("bert", LoraConfig(task_type="TOKEN_CLS", r=4)),
    "bert-lora-tokens-by-class": ("bert-TOKEN_CLS", LoraConfig(r=4, modules_to_save=["classifier"])),
    "bert-lora-span": ("bert", LoraConfig(task_type="QUESTION_ANS", r=4, target_modules=["value", "output.dense"])),
    "bert-lora-features": ("bert", LoraConfig(task_type="FEATURE_EXTRACTION", r=4, target_modules="all-linear")),
    "bert-prefix-tokens": ("bert", PrefixTuningConfig(task_type="TOKEN_CLS", num_virtual_tokens=5)),
    "bert-ln": ("bert", LNTuningConfig(task_type="SEQ_CLS", target_modules=["LayerNorm"])),
    "bert-prefix": ("bert", PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=5)),
    "bert-prefix-projected": (
        "bert",
        PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4, prefix_projection=True, encoder_hidden_size=16),
    ),
    "bert-prompt": ("bert", PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=5)),
    "roberta-lora": ("roberta", LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6)),
    "roberta-lora-everywhere": ("roberta", LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear")),
    "roberta-lora-tokens": ("roberta", LoraConfig(task_type="TOKEN_CLS", r=4)),
    "roberta-lora-span": ("roberta", LoraConfig(task_type="QUESTION_ANS", r=4, target_modules=["query"])),
    "distilbert-lora": ("distilbert", LoraConfig(task_type="SEQ_CLS", **_DISTILBERT)),
    "distilbert-lora-tokens": (
        "distilbert",
        LoraConfig(task_type="TOKEN_CLS", target_modules=["q_lin", "ffn.lin2"], r=4, bias="lora_only"),
    ),
    "electra-lora": ("electra", LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=4)),
    "electra-lora-tokens": ("electra", LoraConfig(task_type="TOKEN_CLS", target_modules=["query", "dense"], r=4)),
    "mpnet-lora-tokens": ("mpnet", LoraConfig(task_type="TOKEN_CLS", target_modules=["q", "v"], r=4)),
    "mpnet-lora-everywhere": ("mpnet", LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear")),
    "eurobert-lora-tokens": (
        "eurobert",
        LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=["q_proj", "o_proj", "gate_proj", "up_proj"]),
    ),
    "eurobert-lora-keys": ("eurobert", LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=[*_LLAMA, "down_proj"])),
    "eurobert-dora-keys": (
        "eurobert",
        LoraConfig(task_type="TOKEN_CLS", r=4, use_dora=True, target_modules=["q_proj", "k_proj", "v_proj"]),
    ),
    "eurobert-vera-keys": ("eurobert", VeraConfig(task_type="TOKEN_CLS", r=6, target_modules=["k_proj", "up_proj"])),
    "eurobert-ia3-keys": (
        "eurobert",
        IA3Config(
            task_type="TOKEN_CLS", target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
    ),
    "eurobert-lora-texts": ("eurobert", LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["q_proj"])),
    "gte-lora-tokens": ("gte", LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=[*_LLAMA, "down_proj"])),
    "jina-lora-tokens": ("jina", LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=["k_proj", "fc1", "fc2"])),
    "nomic_bert-lora-tokens": (
        "nomic_bert",
        LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=["q_proj", "up_proj", "down_proj"]),
    ),
    "nomic_bert-lora-saved": (
        "nomic_bert",
        LoraConfig(
            task_type="SEQ_CLS", r=4, target_modules=["v_proj", "o_proj", "gate_proj"], modules_to_save=["pooler"]
        ),
    ),
    "nomic_bert-lora-everywhere": ("nomic_bert", LoraConfig(task_type="SEQ_CLS", r=4, target_modules="all-linear")),
    "modernbert-lora": ("modernbert", LoraConfig(task_type="FEATURE_EXTRACTION", r=4, target_modules="all-linear")),
    "modernbert-ln": ("modernbert", LNTuningConfig(task_type="FEATURE_EXTRACTION", target_modules=_MODERN_NORMS)),
    "modernbert-lora-tokens": ("modernbert", LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=["Wqkv"])),
    "modernbert-lora-saved": (
        "modernbert",
        LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["Wqkv"], modules_to_save=["head", "classifier"]),
    ),
    "modernbert-lora-saved-tokens": (
        "modernbert",
        LoraConfig(task_type="TOKEN_CLS", r=4, target_modules=["Wi", "Wo"], modules_to_save=["head"]),
    ),
    "bert-vera": ("bert", VeraConfig(task_type="SEQ_CLS", r=6, target_modules=["query", "output.dense"], bias="all")),
    "bert-vera-seeded": ("bert", VeraConfig(task_type="SEQ_CLS", r=6, save_projection=False)),
    "modernbert-vera": (
        "modernbert",
        VeraConfig(task_type="TOKEN_CLS", r=6, target_modules=["Wqkv", "Wi"], modules_to_save=["head"]),
    ),
    "bert-ia3": ("bert", IA3Config(task_type="SEQ_CLS")),
    "bert-ia3-outputs": (
        "bert",
        IA3Config(
            task_type="SEQ_CLS",
            target_modules=["query", "intermediate.dense", "attention.output.dense", "output.dense"],
            feedforward_modules=[],
        ),
    ),
    "bert-ia3-inputs": (
        "bert",
        IA3Config(task_type="SEQ_CLS", target_modules=["query"], feedforward_modules=["query"]),
    ),
    "roberta-ia3": ("roberta", IA3Config(task_type="SEQ_CLS")),
    "mpnet-ia3-tokens": (
        "mpnet",
        IA3Config(task_type="TOKEN_CLS", target_modules=["k", "output.dense"], feedforward_modules=["output.dense"]),
    ),
    "modernbert-ia3": (
        "modernbert",
        IA3Config(task_type="FEATURE_EXTRACTION", target_modules=["Wqkv", "Wo", "Wi"], feedforward_modules=["Wo"]),
    ),
    "t5-ia3": ("t5", IA3Config(task_type="SEQ_2_SEQ_LM")),
    "t5_gated-ia3": ("t5_gated", IA3Config(task_type="SEQ_2_SEQ_LM")),
    "t5_gated-ia3-halves": (
        "t5_gated",
        IA3Config(task_type="SEQ_2_SEQ_LM", target_modules=["wi_0", "wi_1", "q"], feedforward_modules=[]),
    ),
    "roberta-ln": ("roberta", LNTuningConfig(task_type="SEQ_CLS", target_modules=["LayerNorm"])),
    "roberta-prefix": ("roberta", PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)),
    "t5-lora": ("t5", LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, lora_alpha=6)),
    "t5-lora-all": ("t5", LoraConfig(task_type="SEQ_2_SEQ_LM", r=3, target_modules=["q", "k", "v", "o"])),
    "t5-lora-everywhere": ("t5", LoraConfig(task_type="SEQ_2_SEQ_LM", r=3, target_modules="all-linear")),
    "t5_gated-lora-everywhere": ("t5_gated", LoraConfig(task_type="SEQ_2_SEQ_LM", r=3, target_modules="all-linear")),
    "t5-prompt": ("t5", PromptTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=5)),
    "t5-prefix": ("t5", PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=5)),
    "t5-ln": ("t5", LNTuningConfig(task_type="SEQ_2_SEQ_LM", target_modules=["layer_norm", "final_layer_norm"])),
}


def _base(directory: Path, task_type: str) -> Any:
    if task_type in ("SEQ_CLS", "TOKEN_CLS"):
        model = {"SEQ_CLS": AutoModelForSequenceClassification, "TOKEN_CLS": AutoModelForTokenClassification}[task_type]
        return model.from_pretrained(directory, num_labels=3)
    others = {"SEQ_2_SEQ_LM": AutoModelForSeq2SeqLM, "QUESTION_ANS": AutoModelForQuestionAnswering}
    return others.get(task_type, AutoModel).from_pretrained(directory)


def main(backbones: Path, output: Path) -> None:
    for number, (name, (family, config)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        family, _, task_type = family.partition("-")
        directory = backbones / family
        model = get_peft_model(_base(directory, task_type or config.task_type), config)
        shake(model, number)
        save_case(model, directory, output / name, model.save_pretrained)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
