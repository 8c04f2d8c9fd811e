import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_adapters.importers.shared.imported import ImportedAdapter
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import SaveAdapterHub, SavePeft

QUERY = "bert.encoder.layer.0.attention.self.query.loras.intents"


def test_a_part_beyond_what_is_served_is_one_sentence(save_adapterhub: SaveAdapterHub, bert: Backbone) -> None:
    tensors = {
        f"{QUERY}.lora_A": None,
        f"{QUERY}.lora_B": None,
        "bert.prefix_tuning.prefix_tunings.intents.self_prefix.control_trans": torch.zeros(600 * 6 * 48),
    }
    config = {"architecture": "prefix_tuning", "flat": True, "prefix_length": 600}
    wanted = Import("adapterhub", save_adapterhub(tensors, config=config), "imported")
    with pytest.raises(AdapterError, match=r"cannot be served: prefix length is 600: .* less than or equal to 512"):
        import_adapter(wanted, bert)


def test_a_regression_has_one_output(save_peft: SavePeft, bert: Backbone) -> None:
    wanted = Import("peft", save_peft(), "imported", options=TaskOptions(task_type="regression"))
    with pytest.raises(AdapterError, match="a regression has one output; the checkpoint's head has 2"):
        import_adapter(wanted, bert)


BARE = ImportedAdapter("lora", ())


def test_a_task_on_t5_writes_as_it_is_told(t5: Backbone) -> None:
    decoding = TaskOptions(max_new_tokens=7, completion_temperature=0.0).task(BARE, t5).decoding
    assert decoding is not None
    assert (decoding.answer, decoding.max_new_tokens, decoding.completion_temperature) == ("generate", 7, 0.0)
    assert TaskOptions().task(BARE, t5).decoding.completion_temperature == 1.0


def test_a_temperature_out_of_bounds_is_one_sentence(t5: Backbone) -> None:
    with pytest.raises(AdapterError, match=r"completion_temperature is 3\.0: .* less than or equal to 2"):
        TaskOptions(completion_temperature=3.0).task(BARE, t5)
