"""Imports compared with recorded answers of PEFT and AdapterHub, which need not be installed."""

from pathlib import Path

import pytest
from peltier_adapters.importers.run import Import, import_adapter
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.parity import backbone_of, check_case
from tests.adapters_store.importers.record_parity import RECORDED, unpack


@pytest.mark.parametrize(("origin", "case"), [(origin, case) for origin, cases in RECORDED.items() for case in cases])
def test_an_import_answers_as_recorded_or_is_refused(origin, case, tmp_path, request):
    """An adapter that a library saved gives the library's logits when served, or is refused with a reason."""
    folder = unpack(origin, case, tmp_path)
    check_case(origin, folder, backbone_of(folder, request))


def test_a_heads_kind_of_task_is_kept(bert: Backbone, tmp_path: Path) -> None:
    """The library's type of a head decides whether labels exclude each other."""
    kinds = {}
    for case in ("multilabel", "flexible", "tagging", "qa"):
        path = unpack("adapterhub", f"bert-seq_bn-{case}", tmp_path)
        task = import_adapter(Import("adapterhub", path, "imported"), bert).manifest.task
        kinds[task.type] = task.labels
    assert kinds == {
        "multilabel": ("no", "maybe", "yes"),
        "classification": ("no", "maybe", "yes"),
        "token-classification": ("O", "B-a", "I-a"),
        "span": ("start", "end"),
    }
