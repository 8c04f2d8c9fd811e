"""BERT and its relatives."""
