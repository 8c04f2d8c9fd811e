import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.adapterhub.adapterhub import read_adapterhub
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import SaveAdapterHub

QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"


@pytest.mark.parametrize("length", [7, 600])
def test_a_prefix_of_another_length_is_refused(length: int, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """The settings' length must be the tensor's."""
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans": torch.randn(10 * 6 * 48),
    }
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": length}
    with pytest.raises(AdapterError, match=rf"has shape \[2880\]; on this backbone it must be \[{length * 288}\]"):
        read_adapterhub(save_adapterhub(tensors, config=config), bert)
