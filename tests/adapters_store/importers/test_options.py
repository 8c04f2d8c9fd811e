"""Options that give an importer what the checkpoint does not contain."""

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.options import TaskOptions
from peltier_adapters.importers.shared.imported import ImportedAdapter
from peltier_backbone.backbone import Backbone

BARE = ImportedAdapter("lora", ())


def test_a_task_on_t5_writes_as_it_is_told(t5: Backbone) -> None:
    """The task has the given length of texts and temperature of completions."""
    decoding = TaskOptions(max_new_tokens=7, completion_temperature=0.0).task(BARE, t5).decoding
    assert decoding is not None
    assert (decoding.answer, decoding.max_new_tokens, decoding.completion_temperature) == ("generate", 7, 0.0)
    assert TaskOptions().task(BARE, t5).decoding.completion_temperature == 1.0


def test_a_temperature_out_of_bounds_is_one_sentence(t5: Backbone) -> None:
    """The sentence contains the bound."""
    with pytest.raises(AdapterError, match=r"completion_temperature is 3\.0: .* less than or equal to 2"):
        TaskOptions(completion_temperature=3.0).task(BARE, t5)
