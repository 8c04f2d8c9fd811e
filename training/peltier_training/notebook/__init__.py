"""Training and prediction in this process, as a notebook does them."""

from peltier_training.notebook.adapter import Adapter, load
from peltier_training.notebook.training import train

__all__ = ["Adapter", "load", "train"]
