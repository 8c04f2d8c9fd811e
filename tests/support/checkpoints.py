"""Fixtures of small checkpoints in transformers' format: random weights, one folder for each family."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    EuroBertConfig,
    EuroBertModel,
    GteConfig,
    GteModel,
    JinaEmbeddingsV3Config,
    JinaEmbeddingsV3Model,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    NomicBertConfig,
    NomicBertModel,
    PretrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from tests.support.small_tokenizers import (
    byte_level,
    deberta_unigram,
    fairseq_unigram,
    mpnet_word_piece,
    unigram,
    word_piece,
)

_SIZES = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 88}
_FAIRSEQ = {"vocab_size": 70, "max_position_embeddings": 98, "layer_norm_eps": 1e-5, "pad_token_id": 1, **_SIZES}


@pytest.fixture(scope="session")
def bert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 BERT with a WordPiece tokenizer."""
    tokenizer = word_piece()
    config: PretrainedConfig = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **_SIZES)
    return _save(tmp_path_factory.mktemp("bert"), BertModel(config), tokenizer, seed=1)


@pytest.fixture(scope="session")
def roberta_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 RoBERTa without a pooler, with a byte-level tokenizer."""
    tokenizer = byte_level()
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=98, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **_SIZES,
    )  # fmt: skip
    return _save(tmp_path_factory.mktemp("roberta"), RobertaModel(config, add_pooling_layer=False), tokenizer, seed=2)


@pytest.fixture(scope="session")
def xlm_roberta_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 XLM-RoBERTa without a pooler, with a Unigram tokenizer."""
    config = XLMRobertaConfig(type_vocab_size=1, **_FAIRSEQ)
    model = XLMRobertaModel(config, add_pooling_layer=False)
    return _save(tmp_path_factory.mktemp("xlm-roberta"), model, fairseq_unigram(), seed=8)


@pytest.fixture(scope="session")
def camembert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 CamemBERT with an untrained pooler, with a Unigram tokenizer."""
    config = CamembertConfig(type_vocab_size=1, **_FAIRSEQ)
    return _save(tmp_path_factory.mktemp("camembert"), CamembertModel(config), fairseq_unigram(), seed=9)


@pytest.fixture(scope="session")
def distilbert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 DistilBERT with a WordPiece tokenizer."""
    tokenizer = word_piece()
    sizes = {"n_layers": 3, "dim": 48, "n_heads": 4, "hidden_dim": 88}
    config = DistilBertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **sizes)
    return _save(tmp_path_factory.mktemp("distilbert"), DistilBertModel(config), tokenizer, seed=10)


@pytest.fixture(scope="session")
def electra_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 ELECTRA whose embeddings have a width of 20, with a WordPiece tokenizer."""
    tokenizer = word_piece()
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 96, "embedding_size": 20, **_SIZES}
    return _save(tmp_path_factory.mktemp("electra"), ElectraModel(ElectraConfig(**sizes)), tokenizer, seed=11)


@pytest.fixture(scope="session")
def mpnet_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 MPNet with a WordPiece tokenizer."""
    tokenizer = mpnet_word_piece()
    config = MPNetConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=98, layer_norm_eps=1e-5, **_SIZES
    )
    return _save(tmp_path_factory.mktemp("mpnet"), MPNetModel(config), tokenizer, seed=14)


@pytest.fixture(scope="session")
def deberta_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 DeBERTa-v3 whose distances share buckets from five on, with a Unigram
    tokenizer."""
    return _deberta(tmp_path_factory.mktemp("deberta-v3"))


@pytest.fixture(scope="session")
def deberta_v2_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a convolution, as the large DeBERTa-v2."""
    return _deberta(tmp_path_factory.mktemp("deberta-v2"), conv_kernel_size=3, conv_act="gelu")


def _deberta(directory: Path, **more: object) -> Path:
    tokenizer = deberta_unigram()
    config = DebertaV2Config(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, type_vocab_size=0, relative_attention=True,
        position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
        position_biased_input=False, **_SIZES, **more,
    )  # fmt: skip
    return _save(directory, DebertaV2Model(config), tokenizer, seed=15)


@pytest.fixture(scope="session")
def nomic_bert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 NomicBERT with a WordPiece tokenizer."""
    tokenizer = word_piece()
    config = NomicBertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **_SIZES)
    return _save(tmp_path_factory.mktemp("nomic-bert"), NomicBertModel(config), tokenizer, seed=16)


@pytest.fixture(scope="session")
def gte_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 GTE with a Unigram tokenizer."""
    config = GteConfig(type_vocab_size=2, **_FAIRSEQ)
    return _save(tmp_path_factory.mktemp("gte"), GteModel(config), fairseq_unigram(), seed=17)


@pytest.fixture(scope="session")
def jina_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 jina-embeddings-v3 with an untrained pooler, with a Unigram tokenizer."""
    config = JinaEmbeddingsV3Config(**_FAIRSEQ)
    return _save(tmp_path_factory.mktemp("jina"), JinaEmbeddingsV3Model(config), fairseq_unigram(), seed=18)


@pytest.fixture(scope="session")
def eurobert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 x 48 EuroBERT whose heads share keys and values by twos, with a byte-level
    tokenizer."""
    tokenizer = byte_level()
    config = EuroBertConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, num_key_value_heads=2, pad_token_id=1,
        bos_token_id=0, eos_token_id=2, mask_token_id=3, **_SIZES,
    )  # fmt: skip
    return _save(tmp_path_factory.mktemp("eurobert"), EuroBertModel(config), tokenizer, seed=19)


@pytest.fixture(scope="session")
def modernbert_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 4 x 48 ModernBERT whose local layers see four tokens to each side, with a WordPiece
    tokenizer."""
    tokenizer = word_piece()
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, local_attention=8, pad_token_id=0,
        bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3, **_SIZES | {"num_hidden_layers": 4},
    )  # fmt: skip
    return _save(tmp_path_factory.mktemp("modernbert"), ModernBertModel(config), tokenizer, seed=3)


@pytest.fixture(scope="session")
def t5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 + 2 x 48 T5 v1.0 (ReLU, tied) with a Unigram tokenizer."""
    return _save_t5(tmp_path_factory.mktemp("t5"), 6, tied=True, num_layers=3, num_decoder_layers=2, d_kv=12)


@pytest.fixture(scope="session")
def t5_gated_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 2 + 2 x 48 T5 v1.1 (gated GELU, untied) whose attention is narrower than its states."""
    return _save_t5(
        tmp_path_factory.mktemp("t5-gated"), 4, tied=False, num_layers=2, num_decoder_layers=2, d_kv=8,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip


@pytest.fixture(scope="session")
def mt5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 2 + 2 x 48 mT5 (gated GELU, untied) with a Unigram tokenizer."""
    sizes = {"num_layers": 2, "num_decoder_layers": 2, "d_kv": 12}
    return _save_t5(tmp_path_factory.mktemp("mt5"), 12, kind="mt5", tied=False, **sizes)


@pytest.fixture(scope="session")
def umt5_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a random 3 + 2 x 48 umT5 (a relative bias for each block, untied) with a Unigram tokenizer."""
    sizes = {"num_layers": 3, "num_decoder_layers": 2, "d_kv": 12}
    return _save_t5(tmp_path_factory.mktemp("umt5"), 13, kind="umt5", tied=False, **sizes)


def _randomise(model: PreTrainedModel, seed: int) -> None:
    """Weights large enough that every map, norm and bias matters to the output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.empty_like(weight).normal_(generator=generator)
            if weight.dim() == 2:
                table = "embed" in name or "relative" in name
                weight.copy_(noise * (0.5 if table else 1.2 * weight.shape[1] ** -0.5))
            else:
                weight.copy_(0.2 * noise + (1.0 if name.lower().endswith("norm.weight") else 0.0))


def _randomise_t5(model: PreTrainedModel, seed: int) -> None:
    """Weights large enough that every map, norm and bias matters. A final norm of random signs keeps a tied embedding
    from writing its last token again and again."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.empty_like(weight).normal_(generator=generator)
            if name == "decoder.final_layer_norm.weight" or "shared" in name or "relative" in name:
                weight.copy_(noise)
            else:
                weight.copy_(1.0 + 0.2 * noise if weight.dim() == 1 else 1.2 * weight.shape[1] ** -0.5 * noise)


def _save_t5(directory: Path, seed: int, *, tied: bool, kind: str = "t5", **config: object) -> Path:
    tokenizer = unigram()
    sizes = {"d_model": 48, "d_ff": 88, "num_heads": 4, "decoder_start_token_id": 0}
    file = AutoConfig.for_model(
        kind, vocab_size=tokenizer.get_vocab_size(), tie_word_embeddings=tied, **sizes, **config
    )
    model = AutoModelForSeq2SeqLM.from_config(file)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    _randomise_t5(model, seed)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def _save(directory: Path, model: PreTrainedModel, tokenizer: Tokenizer, seed: int) -> Path:
    _randomise(model, seed)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
