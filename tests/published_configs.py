"""The config.json files of published checkpoints, without what no forward pass reads, such as dropout."""

from collections.abc import Mapping

_BASE = {
    "hidden_act": "gelu",
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}
CONFIG_FILES: Mapping[str, Mapping[str, object]] = {
    "xlm-roberta-base": {
        **_BASE,
        "architectures": ["XLMRobertaForMaskedLM"],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "model_type": "xlm-roberta",
        "output_past": True,
        "position_embedding_type": "absolute",
        "use_cache": True,
        "vocab_size": 250002,
    },
    "camembert-base": {
        **_BASE,
        "architectures": ["CamembertForMaskedLM"],
        "bos_token_id": 5,
        "eos_token_id": 6,
        "model_type": "camembert",
        "output_past": True,
        "vocab_size": 32005,
    },
    "distilbert-base-uncased": {
        "activation": "gelu",
        "architectures": ["DistilBertForMaskedLM"],
        "dim": 768,
        "hidden_dim": 3072,
        "initializer_range": 0.02,
        "max_position_embeddings": 512,
        "model_type": "distilbert",
        "n_heads": 12,
        "n_layers": 6,
        "pad_token_id": 0,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
        "vocab_size": 30522,
    },
}
