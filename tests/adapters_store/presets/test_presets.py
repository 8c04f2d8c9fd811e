"""Presets: the counts of the papers, settings by name, clear errors."""

import subprocess
import sys
from itertools import combinations, pairwise

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.presets import find_preset, presets_for
from peltier_adapters.spec.parts import BottleneckSpec, HeadSpec, Parts, count_parameters, tensor_shapes
from peltier_backbone.checkpoint.config import BackboneConfig, parse_config

from tests.support.published_counts import CONFIGS, PUBLISHED, Published

BASE, LARGE, T5_BASE, T5_SMALL = (CONFIGS[name] for name in ("bert-base", "roberta-large", "t5-base", "t5-small"))
_FLAN = {"d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "vocab_size": 32128}
FLAN_SMALL = parse_config({"model_type": "t5", "feed_forward_proj": "gated-gelu", **_FLAN}, "config.json")
GATES = 12 * 769


def _count(preset: str, config: BackboneConfig = BASE, *, head: bool = False, **overrides: str) -> int:
    chosen = find_preset(preset)
    parts = chosen.compose(chosen.settings(overrides, config), config, outputs=2)
    return count_parameters(parts, config, head=head)


@pytest.mark.parametrize(
    ("preset", "overrides", "count"),
    [
        ("houlsby", {}, 1_789_056),
        ("unipelt-ap", {"gated": "false"}, 1_078_848),
        ("unipelt-apl", {"gated": "false"}, 1_373_760),
        ("compacter", {"norms": "false"}, 57_088),
        ("compacter", {}, 95_488),
        ("compacter++", {"norms": "false"}, 28_576),
        ("compacter", {"norms": "false", "map": "lowrank"}, 57_024),
        ("phm", {"n": "12"}, 175_680),
        ("lowrank", {}, 57_024),
        ("adapterdrop", {}, 1_789_056 * 7 // 12),
        ("pfeiffer-attention", {}, 894_528),
        ("pfeiffer-ffn", {}, 894_528),
        ("unipelt-apl-central", {}, 1_373_760 + GATES + 12 * (2 * 768 + 2)),
        ("unipelt-apl", {"central": "true"}, 1_373_760 + GATES + 12 * (2 * 768 + 2)),
        ("adamix-lora", {"rank": "8"}, 294_912),  # an ordinary LoRA, once the experts are merged
    ],
    ids=str,
)
def test_counts_on_bert_base(preset: str, overrides: dict[str, str], count: int):
    """The serving counts of docs/methods.md#counts and of settings that no table has, without the head."""
    assert _count(preset, **overrides) == count


@pytest.mark.parametrize("row", PUBLISHED, ids=str)
def test_published_counts(row: Published):
    """Those of docs/methods.md#counts of a served adapter, norms included; T5's vocabulary is cropped."""
    assert _count(row.preset, CONFIGS[row.backbone], **row.overrides) == row.served


@pytest.mark.parametrize(
    ("preset", "overrides", "count"),
    [
        ("pfeiffer-attention", {}, 951_360),
        ("pfeiffer-ffn", {"bottleneck": "24", "norms": "true"}, 951_360),
        ("lora", {}, 884_736),
        ("prefix", {}, 552_960),
    ],
    ids=str,
)
def test_counts_on_t5(preset: str, overrides: dict[str, str], count: int):
    assert _count(preset, T5_BASE, **overrides) == count


def test_percentages_on_t5_are_over_the_cropped_model():
    assert (T5_BASE.num_parameters, T5_SMALL.num_parameters) == (222_882_048, 60_492_288)


def test_heads_are_counted_on_request():
    """BERT's head is one layer over the pooler, RoBERTa's head has two layers."""
    assert _count("lora", head=True) - _count("lora") == 1_538
    assert _count("lora", LARGE, head=True) - _count("lora", LARGE) == 1024 * 1024 + 1024 + 2 * 1024 + 2


@pytest.mark.parametrize("config", [BASE, LARGE, T5_BASE], ids=lambda config: config.family)
def test_every_preset_fits_its_families(config: BackboneConfig):
    for chosen in presets_for(config):
        parts = chosen.compose(chosen.settings({}, config), config, outputs=5)
        assert [part.kind == "head" for part in parts].count(True) == (0 if config.generates else 1)
        assert config.generates or parts[-1].kind == "head"
        assert len(tensor_shapes(parts, config)) == sum(len(part.shapes(config)) for part in parts)


def test_a_preset_is_refused_where_it_is_not_defined():
    """Prompt tuning is only for T5; `peltier presets` does not list it for other backbones."""
    with pytest.raises(AdapterError, match=r"^preset 'prompt-t' is not defined on a bert backbone$"):
        _count("prompt-t")
    assert {preset.name for preset in presets_for(T5_BASE)} - {preset.name for preset in presets_for(BASE)} == {
        "prompt-r",
        "prompt-t",
    }


def test_settings_that_t5_has_not_are_refused():
    """Pooling and a norm after the residual sum exist only on encoders; each error is one sentence."""
    with pytest.raises(AdapterError, match="preset 'lora' has no setting 'pooling'"):
        _count("lora", T5_BASE, pooling="mean")
    with pytest.raises(AdapterError, match="input 'normed' reads a norm after the residual sum"):
        _count("houlsby", T5_BASE, input="normed")
    with pytest.raises(AdapterError, match="bias: a t5 backbone has no 'pooler'"):
        _count("bitfit", T5_BASE, sites="pooler")
    with pytest.raises(AdapterError, match="skip = 12 leaves no block of 12 with an adapter"):
        _count("adapterdrop", T5_BASE, skip="12")


@pytest.mark.parametrize("config", [BASE, LARGE, T5_BASE], ids=lambda config: config.family)
def test_pfeiffer_has_two_readings_on_each_family(config: BackboneConfig):
    """The bare name is the variant of the family's own paper (docs/methods/pfeiffer.md)."""
    found = {name: _parts(name, config)[0] for name in ("pfeiffer", "pfeiffer-attention", "pfeiffer-ffn")}
    read = {name: (part.sites, part.input) for name, part in found.items() if isinstance(part, BottleneckSpec)}
    assert read["pfeiffer-attention"] == (("attention",), "output")
    assert read["pfeiffer-ffn"] == (("ffn",), "sum" if config.generates else "normed")
    assert found["pfeiffer"] == found["pfeiffer-attention" if config.generates else "pfeiffer-ffn"]


@pytest.mark.parametrize("count", range(1, 5))
def test_lora_takes_any_projections(count: int):
    """The UniPELT paper and its code choose others among q, k, v and o (docs/methods/lora.md)."""
    for targets in combinations(("query", "key", "value", "output"), count):
        assert _count("lora", targets=",".join(targets)) == count * 294_912 // 2


@pytest.mark.parametrize("config", [BASE, LARGE, T5_BASE], ids=lambda config: config.family)
def test_each_block_from_the_first_one_counts_alike(config: BackboneConfig):
    """Each skipped block of a stack removes the same number of parameters; on an encoder the first one also removes the
    norm of the embeddings. Only presets of soft prompts have no first block."""
    for preset in presets_for(config):
        if preset.name.startswith("prompt"):
            with pytest.raises(AdapterError, match="has no setting 'first_block'"):
                _count(preset.name, config, first_block="1")
        elif preset.name != "adapterdrop":
            counts = [_count(preset.name, config, first_block=str(first)) for first in range(6)]
            steps = [more - fewer for more, fewer in pairwise(counts)]
            assert steps[1] > 0
            assert set(steps[1:]) == {steps[1]}
            assert steps[0] - steps[1] in (0, config.hidden_size, 2 * config.hidden_size), preset.name
            assert config.generates <= (steps[0] == steps[1])


def test_adapterdrop_is_houlsby_from_a_later_block():
    """On an encoder the parts are the same. On T5 the paper's AdapterDrop trains the norms of all blocks."""
    assert _parts("adapterdrop", BASE) == _parts("houlsby", BASE, first_block="5")
    assert _parts("adapterdrop", T5_BASE)[0] == _parts("houlsby", T5_BASE, first_block="5")[0]
    assert _count("adapterdrop", T5_BASE) - _count("houlsby", T5_BASE, first_block="5") == 25 * 768


@pytest.mark.parametrize(
    ("config", "attentions", "narrow", "feed_forwards"),
    [
        (BASE, 12 * 4 * 1536, 0, 12 * 2 * 3840),
        (T5_BASE, 36 * 4 * 1536, 0, 24 * 2 * 3840),
        # Flan-T5-small: attention is 384 wide, and the feed-forward layer gated.
        (FLAN_SMALL, 24 * 3 * 896, 24 * 896, 16 * 3 * 1536),
    ],
    ids=["bert-base", "t5-base", "flan-t5-small"],
)
def test_lora_takes_all_linear_maps(config: BackboneConfig, attentions: int, narrow: int, feed_forwards: int):
    """r (in + out) parameters for each map of each attention and block, two for a gated `intermediate`."""
    assert _count("lora", config, targets="all-linear", rank="3") == 3 * (attentions + narrow + feed_forwards)


def test_settings_keep_the_type_of_their_default():
    settings = find_preset("unipelt-apl").settings(
        {"gated": "False", "rank": "4", "alpha": "2", "targets": "key"}, BASE
    )
    assert (settings["gated"], settings["rank"], settings["alpha"], settings["targets"]) == (False, 4, 2.0, "key")


def test_an_unknown_preset_is_answered_with_those_there_are():
    """The message names the nearest preset and lists all presets."""
    rule = r"^preset 'compactor' is unknown, the nearest is 'compacter'; it is one of houlsby, .*, adamix-lora$"
    with pytest.raises(AdapterError, match=rule):
        find_preset("compactor")


@pytest.mark.parametrize(
    ("preset", "overrides", "words"),
    [
        ("lora", {"n": "4"}, "preset 'lora' has no setting 'n'; it has alpha,"),
        ("lora", {"rank": "four"}, "setting 'rank' is 'four'; it must be an integer"),
        ("lora", {"rank": "4.5"}, "setting 'rank' is '4.5'; it must be an integer"),
        ("lora", {"alpha": "big"}, "setting 'alpha' is 'big'; it must be a number"),
        ("lora", {"gated": "maybe"}, "setting 'gated' is 'maybe'; it must be true or false"),
        ("lora", {"rank": "0"}, "rank is 0: input should be greater than or equal to 1"),
        ("lora", {"rank": "5000"}, "rank is 5000: input should be less than or equal to 4096"),
        ("lora", {"alpha": "nan"}, "alpha is nan: input should be a finite number"),
        ("lora", {"alpha": "-1"}, "alpha is -1.0: input should be greater than 0"),
        ("lora", {"targets": ""}, "targets is (): tuple should have at least 1 item"),
        ("lora", {"targets": "query,query"}, "name one target twice"),
        ("lora", {"targets": "ffn"}, "targets.0 is 'ffn': input should be 'query'"),
        ("lora", {"targets": "query,all-linear"}, "targets.1 is 'all-linear': input should be 'query'"),
        ("unipelt-apl-central", {"targets": "query,ffn_output"}, "lora has the target 'ffn_output'"),
        ("lora", {"pooling": "middle"}, "pooling is 'middle': input should be 'pooler'"),
        ("lora", {"first_block": "12"}, "cannot begin at first_block = 12; blocks are numbered from 0 to 11"),
        ("compacter", {"first_block": "-1"}, "cannot begin at first_block = -1; blocks are numbered from 0 to 11"),
        ("prefix", {"length": "0"}, "length is 0: "),
        ("bitfit", {"sites": "embeddings"}, "sites.0 is 'embeddings': "),
        ("houlsby", {"map": "dens"}, "setting 'map' is 'dens'; it must be one of dense, lowrank, phm, lphm"),
        ("houlsby", {"activation": "tanh"}, "activation is 'tanh': input should be 'relu'"),
        ("houlsby", {"sites": "ffn,ffn"}, "name one site twice"),
        ("houlsby", {"bottleneck": "0"}, "size is 0: "),
        ("compacter", {"n": "7"}, "n = 7 must divide the hidden size 768"),
        ("compacter", {"n": "16"}, "n = 16 must divide the bottleneck size 24"),
        ("compacter", {"n": "0"}, "n is 0: "),
        ("pfeiffer", {"n": "8"}, "setting 'n' is 8; a map of kind 'dense' has none"),
        ("phm", {"rank": "2"}, "setting 'rank' is 2; a map of kind 'phm' has none"),
        ("unipelt-apl", {"central": "both"}, "setting 'central' is 'both'; it must be true or false"),
        ("compacter", {"n": "24", "rank": "2"}, "n * n * rank = 1152 must not exceed the hidden size 768"),
    ],
    ids=str,
)
def test_bad_settings_are_named(preset: str, overrides: dict[str, str], words: str):
    with pytest.raises(AdapterError) as caught:
        _count(preset, **overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bitfit_leaves_out_a_pooler_that_nothing_reads():
    """RoBERTa's head does not read the pooler, so a bias of the pooler would have no effect."""
    assert not any("pooler" in name for name in tensor_shapes(_parts("bitfit", LARGE), LARGE))
    assert "bias.pooler" in tensor_shapes(_parts("bitfit", BASE), BASE)


@pytest.mark.parametrize(("config", "hidden"), [(BASE, False), (LARGE, True)])
def test_a_given_head_holds_with_any_pooling(config: BackboneConfig, hidden: bool):
    """ "auto" chooses a dense layer only where nothing was said about it."""
    assert _head("lora", config).hidden == hidden
    for given in ("false", "true"):
        assert _head("lora", config, head_hidden=given).hidden == (given == "true")
        settings = BASELINES["full"].settings({"head_hidden": given}, config)
        assert BASELINES["full"].head(settings, config, outputs=2).hidden == (given == "true")


# Read by trainings alone.
TRAINED = {"experts", "share", "routing", "consistency", "mlp", "start"}
# Other values than the defaults, of settings that are texts.
TEXTS = {
    "pooling": ("first", "mean", "max"), "map": ("dense", "lowrank", "phm", "lphm"), "activation": ("relu", "swish"),
    "input": ("sum", "normed", "output"), "sites": ("attention", "ffn", "query", "key"),
    "targets": ("query", "all-linear"),
}  # fmt: skip


@pytest.mark.parametrize("config", [BASE, LARGE, FLAN_SMALL], ids=["base", "large", "t5"])
def test_every_setting_is_used_or_refused(config: BackboneConfig):
    """None changes nothing: it would be told as a property of the adapter. A later block may begin at a later one."""
    idle = []
    for preset in presets_for(config):
        known = preset.settings({}, config)
        parts = preset.compose(known, config, outputs=2)
        for name in known.keys() - TRAINED - ({"first_block"} if known.get("skip") else set()):
            own = known[name]
            others = (
                (str(not own),) if isinstance(own, bool) else TEXTS.get(name) or (f"{type(own)(int(own) * 2 + 2)}",)
            )
            for other in others:
                try:
                    found = preset.compose(preset.settings({name: other}, config), config, outputs=2)
                except AdapterError:
                    continue
                if other != own and found == parts and (name, other) != ("head_hidden", "True"):
                    idle.append((preset.name, name, other))
    assert idle == []


def _head(preset: str, config: BackboneConfig, **overrides: str) -> HeadSpec:
    head = _parts(preset, config, **overrides)[-1]
    assert isinstance(head, HeadSpec)
    return head


def _parts(preset: str, config: BackboneConfig, **overrides: str) -> Parts:
    chosen = find_preset(preset)
    return chosen.compose(chosen.settings(overrides, config), config, outputs=2)


@pytest.mark.parametrize("module", ["presets.presets", "spec.cost"])
def test_presets_and_costs_need_no_torch(module):
    """`peltier presets` starts fast, and a registry can compute costs."""
    program = (
        f"import sys, peltier_adapters.{module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
