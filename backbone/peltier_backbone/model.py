"""The frozen models of all families, and how one is built from its weights."""

from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import build_bert
from peltier_backbone.checkpoint.config import BertConfig, Config, EuroBertConfig, ModernBertConfig, T5Config
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.linear.linear import LinearKernel
from peltier_backbone.linear.table import TableKernel
from peltier_backbone.modernbert.eurobert_weights import build_eurobert
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.modernbert.weights import build_modernbert
from peltier_backbone.t5.t5 import T5
from peltier_backbone.t5.weights import build_t5

Model = Bert | ModernBert | T5


def build_model(config: Config, weights: Weights, kernel: LinearKernel, table: TableKernel) -> Model:
    """Build the model of `config` from canonical `weights`, and consume all of them. `kernel` keeps its maps, `table`
    its token embeddings."""
    match config:
        case T5Config():
            return build_t5(config, weights, kernel, table)
        case EuroBertConfig():
            return build_eurobert(config, weights, kernel, table)
        case ModernBertConfig():
            return build_modernbert(config, weights, kernel, table)
        case BertConfig():
            return build_bert(config, weights, kernel, table)
