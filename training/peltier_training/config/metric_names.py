"""The metrics of each task type. Imports neither torch nor scikit-learn."""

from peltier_adapters.spec.tasks import TaskType

BEST: dict[TaskType, str] = {
    "classification": "accuracy",
    "multilabel": "f1_micro",
    "regression": "pearson",
    "text2text": "bleu",
    "ranking": "ndcg@10",
    "embedding": "spearman",
    "span": "f1",
    "token-classification": "f1",
}
NAMES: dict[TaskType, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "f1_macro", "matthews"),
    "multilabel": ("f1_micro", "f1_macro", "exact_match"),
    "regression": ("pearson", "spearman", "mse"),
    "text2text": ("bleu", "rouge_l", "exact_match", "loss"),
    "ranking": ("mrr", "ndcg@10"),
    "embedding": ("spearman", "pearson", "mrr", "accuracy"),
    "span": ("exact_match", "f1"),
    "token-classification": ("f1", "precision", "recall"),
}
LOWER_IS_BETTER = frozenset({"mse", "loss"})
# The metrics of an embedding on pairs with scores, and on pairs that belong together; the first is the default.
PAIR_METRICS = {True: ("spearman", "pearson"), False: ("mrr", "accuracy")}
