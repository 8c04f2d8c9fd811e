"""The parts of saved adapters of AdapterHub: bottlenecks with scales and prefixes."""

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.adapterhub.adapterhub import read_adapterhub
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import SaveAdapterHub

QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"


@pytest.mark.parametrize("hidden", [96, 24])
def test_a_bottleneck_of_another_width_is_refused(hidden: int, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """It is neither cut nor padded, even if the settings do not contain the width."""
    own = "bert.encoder.layer.0.output.adapters.intents"
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        f"{own}.adapter_down.0.weight": torch.randn(8, hidden),
        f"{own}.adapter_down.0.bias": torch.randn(8),
        f"{own}.adapter_up.weight": torch.randn(hidden, 8),
        f"{own}.adapter_up.bias": torch.randn(hidden),
    }
    settings = {"non_linearity": "relu", "original_ln_before": True, "reduction_factor": 16}
    directory = save_adapterhub(tensors, hidden_size=None, config=settings)
    with pytest.raises(AdapterError, match=rf"has shape \[8, {hidden}\]; on this backbone it must be \[any, 48\]"):
        read_adapterhub(directory, bert)


def test_scales_are_one_or_one_a_value(save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """Any other number of scales is refused."""
    own = "bert.encoder.layer.0.output.adapters.intents"
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        f"{own}.adapter_down.0.weight": torch.randn(8, 48),
        f"{own}.adapter_down.0.bias": torch.randn(8),
        f"{own}.adapter_up.weight": torch.randn(48, 8),
        f"{own}.adapter_up.bias": torch.randn(48),
        f"{own}.scaling": torch.ones(5),
    }
    config = {"non_linearity": "relu", "original_ln_before": True, "reduction_factor": 16}
    with pytest.raises(AdapterError, match="an adapter has 5 scales; it must have 1 or 48"):
        read_adapterhub(save_adapterhub(tensors, config=config), bert)


@pytest.mark.parametrize("length", [7, 600])
def test_a_prefix_of_another_length_is_refused(length: int, save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    """The length in the settings must be that of the tensor."""
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans": torch.randn(10 * 6 * 48),
    }
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": length}
    with pytest.raises(AdapterError, match=rf"has shape \[2880\]; on this backbone it must be \[{length * 288}\]"):
        read_adapterhub(save_adapterhub(tensors, config=config), bert)
