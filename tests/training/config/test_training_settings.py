"""What shapes the training alone, checked without torch."""

import pytest
from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import check_settings, routed_sides
from peltier_training.errors import TrainingError


@pytest.mark.parametrize(("share", "sides"), [("up", ("down",)), ("down", ("up",)), ("none", ("down", "up"))])
def test_the_shared_projection_has_no_copies(share: str, sides: tuple[str, ...]):
    """`share` names the projection that is not routed."""
    assert routed_sides({"experts": 4, "share": share}) == sides


def test_without_experts_nothing_is_routed():
    """Every other preset."""
    assert routed_sides({"rank": 8}) == ()


WRONG = {
    "experts": ("500", "setting 'experts' is 500; it must be from 1 to 64"),
    "consistency": ("nan", "setting 'consistency' is nan; it must be from 0 to 1000"),
    "share": ("both", "setting 'share' is 'both'; it must be one of up, down, none"),
    "routing": ("token", "setting 'routing' is 'token'; it must be one of batch, sample"),
    "map": ("phm", "setting 'map' is 'phm'; merging experts needs 'dense'"),
}


@pytest.mark.parametrize(("name", "value", "message"), [(name, *case) for name, case in WRONG.items()], ids=WRONG)
def test_a_wrong_setting_is_named(bert: Backbone, name: str, value: str, message: str):
    """With its value and the rule; a single expert, which is no mixture, is right."""
    mixture = PRESETS["adamix"]
    check_settings(mixture.settings({"experts": "1"}, bert.config), bert.config)
    with pytest.raises(TrainingError, match=message):
        check_settings(mixture.settings({name: value}, bert.config), bert.config)
