"""The contract of every preset on every backbone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.artifact.label_tree import text_tree
from peltier_adapters.batch import choice
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.packed_batch import TorchBatch
from peltier_adapters.batch.row import Row, RowOutput, plan_stages
from peltier_adapters.errors import ArtifactError
from peltier_adapters.generation import Draft, create_draft, generate
from peltier_adapters.golden.golden import check_golden
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.parts import position_offset
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.shape import TEXT_FAMILIES
from peltier_backbone.load import load_backbone
from peltier_backbone.native.library import Library
from torch import Tensor

from tests.support.cover import cover
from tests.support.levels import LEVELS, forced_level, loaded, reloaded

MakeArtifact = Callable[..., bytes]
TEXTS = (
    "a good film",
    "bad",
    "the plot was not very good , and the actor is dull and the film is not good and not very bad",
    "is the actor good ?",
    "dull and bad , bad and dull",
)
# Another size or first block of every kind of part, so that signatures differ within a method.
OTHER = {
    "houlsby": {"bottleneck": "5"},
    "pfeiffer": {"bottleneck": "7", "map": "lowrank", "rank": "2"},
    "pfeiffer-attention": {"bottleneck": "6", "sites": "ffn,attention"},
    "pfeiffer-ffn": {"bottleneck": "6", "gated": "true"},
    "compacter": {"n": "2", "rank": "2", "bottleneck": "6", "first_block": "1"},
    "compacter++": {"bottleneck": "12", "norms": "false"},
    "lora": {"rank": "3", "targets": "all-linear"},
    "prefix": {"length": "3", "first_block": "1"},
    "bitfit": {"sites": "value,output", "first_block": "1"},
    "unipelt-ap": {"length": "4", "bottleneck": "9"},
    "unipelt-apl": {"length": "2", "rank": "5", "targets": "intermediate,query,ffn_output", "first_block": "1"},
    "unipelt-ap-nogate": {"length": "2", "bottleneck": "5"},
    "unipelt-apl-nogate": {"length": "6", "targets": "key,ffn_output"},
    "unipelt-apl-central": {"length": "3", "rank": "2", "targets": "query,key", "first_block": "1"},
    "adamix": {"bottleneck": "11"},
    "adamix-lora": {"rank": "2", "targets": "query,key,value,intermediate", "first_block": "1"},
    "adapterdrop": {"bottleneck": "4"},
    "lowrank": {"rank": "3"},
    "phm": {"n": "2"},
    "prompt-r": {"length": "7"},
    "vera": {"rank": "5", "projection_seed": "1"},
    "ia3": {"sites": "query,intermediate,output,attention_output"},
    "prompt-t": {"length": "5"},
}


# Adapters of encoders with every kind of head, beside the classifications of all presets.
HEADS = {
    "tokens": ("compacter", {"task_type": "token-classification", "labels": ("O", "B-a", "I-a")}),
    "tokens/hidden": ("lora", {
        "task_type": "token-classification", "labels": ("O", "x"), "overrides": {"head_hidden": "true"},
    }),
    "span": ("unipelt-apl", {"task_type": "span", "inputs": "pair"}),
    "embedding": ("prefix", {"task_type": "embedding"}),
    "embedding/max": ("houlsby", {"task_type": "embedding", "overrides": {"pooling": "max"}}),
    "embedding/projected": ("bitfit", {"task_type": "embedding", "overrides": {"head_projection": "true"}}),
    "sparse": ("compacter", {"task_type": "sparse-embedding"}),
    "vectors/hidden": ("lora", {"task_type": "multi-vector-embedding", "overrides": {"head_hidden": "true"}}),
    "vectors": ("pfeiffer", {"task_type": "multi-vector-embedding"}),
    "ranking": ("adamix", {"task_type": "ranking", "inputs": "pair", "overrides": {"pooling": "mean"}}),
}  # fmt: skip


FAMILIES = ("bert", "roberta", "modernbert", "t5", "t5_gated")
# Families that share their forward pass with one of those: what depends on it is tested on them too.
RELATIVES = (
    "xlm_roberta", "camembert", "distilbert", "electra", "mpnet", "deberta", "deberta_v2", "nomic_bert", "gte", "jina",
    "eurobert", "mt5", "umt5",
)  # fmt: skip

PRECISIONS = ("bert", "bert_bfloat16", "bert_int8", "electra_int8", "t5", "t5_bfloat16", "t5_int8", "umt5_int8")
PRECISIONS += ("modernbert", "modernbert_bfloat16", "modernbert_int8", "mpnet", "mpnet_bfloat16", "mpnet_int8")
PRECISIONS += ("deberta", "deberta_bfloat16", "deberta_int8", "deberta_v2", "deberta_v2_bfloat16", "deberta_v2_int8")
PRECISIONS += ("nomic_bert", "nomic_bert_bfloat16", "nomic_bert_int8")
PRECISIONS += ("eurobert", "eurobert_bfloat16", "eurobert_int8")
# NomicBERT has their forward pass.
OTHER_PRECISIONS = ("gte_bfloat16", "gte_int8", "jina_bfloat16", "jina_int8")


def _presets(family: str) -> list[str]:
    """Those that are defined on it."""
    return [preset for preset in PRESETS if _has(family, preset)]


def _has(backbone: str, preset: str) -> bool:
    found = PRESETS[preset]
    return (found.t5 if _generates(backbone) else found.encoder) is not None


def _generates(backbone: str) -> bool:
    return backbone.startswith(TEXT_FAMILIES)


# A method's parts are laid out in three ways: as on BERT, on ModernBERT and on T5.
EVERYWHERE = cover(
    {"backbone": FAMILIES, "preset": list(PRESETS)},
    where=_has,
    pairs=[lambda backbone, preset: ("modernbert" if backbone == "modernbert" else _generates(backbone), preset)],
)
# For what takes longer: one encoder, and one T5.
ON_EACH_KIND = cover(
    {"backbone": FAMILIES + RELATIVES, "preset": list(PRESETS)},
    where=_has,
    pairs=[lambda backbone, preset: (_generates(backbone), preset)],
)
# Each kernel of a precision is compiled for each level.
NATIVE, OTHER_NATIVE, NATIVE_RELATIVES = (
    cover(
        {"name": names, "level": LEVELS},
        pairs=[lambda name, level: (name.rpartition("_")[2] if name.endswith(("int8", "bfloat16")) else "", level)],
    )
    for names in (PRECISIONS, OTHER_PRECISIONS, ("t5_gated", *RELATIVES))
)
OTHER_NATIVE = [pytest.param(*case, marks=pytest.mark.slow) for case in OTHER_NATIVE]


def _is_pair(first: str, second: str, backbone: str = "t5") -> bool:
    """In each order; T5 orders its rows, so there every preset is the first of some pairs and the second of others."""
    if not (_has(backbone, first) and _has(backbone, second)):
        return False
    i, j = (_presets(backbone).index(name) for name in (first, second))
    return not _generates(backbone) or i == j or (i < j) == bool((i + j) % 2)


PAIRS = cover({"backbone": ("bert", "t5"), "first": list(PRESETS), "second": list(PRESETS)}, where=_is_pair)


@pytest.fixture(scope="module")
def zoo(make_artifact: MakeArtifact) -> Callable[[Backbone], dict[str, Resident]]:
    """Residents of every preset: `name`, `name/twin` of the same signature, `name/other` of another."""
    known: dict[tuple[str, str, str], dict[str, Resident]] = {}

    def residents(backbone: Backbone) -> dict[str, Resident]:
        key = (backbone.fingerprint, backbone.precision, backbone.kernels["level"])
        if key not in known:
            banks = Banks(backbone)
            # What was trained in float32 serves in every precision.
            exact = backbone.precision == "float32"
            trained_on = backbone if exact else loaded(backbone.name, "float32", "torch")
            make = partial(make_artifact, trained_on, proved=False)
            known[key] = {
                label: banks.add(read_artifact(make(preset, **options), backbone))
                for label, (preset, options) in ({} if backbone.config.generates else HEADS).items()
            }
            known[key] |= {
                label: banks.add(read_artifact(data, backbone))
                for preset in _presets(backbone.config.family)
                for label, data in (
                    (preset, make(preset)),
                    (f"{preset}/twin", make(preset, seed=1, labels=("a", "b", "c"))),
                    (f"{preset}/other", make(preset, seed=3, overrides=OTHER[preset])),
                )
            }
        return known[key]

    return residents


def _rows(backbone: Backbone, residents: Sequence[Resident | None]) -> list[Row]:
    """One row a resident, each with another text; on T5 a row without an adapter is asked how likely a text is."""
    encoded = [backbone.tokenizer.encode(TEXTS[number % len(TEXTS)]) for number in range(len(residents))]
    tree = text_tree("good film", backbone) if backbone.config.generates else None
    return [
        Row(one, resident, tree=tree if resident is None else None)
        for one, resident in zip(encoded, residents, strict=True)
    ]


_ANSWERS: dict[tuple[str, str, str, int, tuple[int, ...]], tuple[Row, RowOutput]] = {}


def _alone(backbone: Backbone, rows: Sequence[Row]) -> list[RowOutput]:
    """What each row answers in a batch of its own; computed once for each resident and text."""
    own = (backbone.name, backbone.precision, backbone.kernels["level"])
    keys = [(*own, id(row.resident), row.encoded.ids) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        if key not in _ANSWERS:
            _ANSWERS[key] = (row, forward(backbone, [row])[0])  # the row keeps its resident, and so the id its meaning
    return [_ANSWERS[key][1] for key in keys]


def _same(found: Sequence[RowOutput], expected: Sequence[RowOutput], tolerance: float = 1e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = other.logits.abs().clamp(min=1.0)  # a log-likelihood is a sum over tokens, and rounds like one
        assert float(((one.logits - other.logits).abs() / scale).max()) < tolerance
        assert int(one.logits.argmax()) == int(other.logits.argmax())


def _without_terms(rows: Sequence[Row], outputs: Sequence[RowOutput]) -> list[RowOutput]:
    """The outputs without the numbers of terms: rounding may exchange two terms whose logits are nearly equal."""
    sparse = [row.resident is not None and row.resident.task.type == "sparse-embedding" for row in rows]
    pairs = zip(outputs, sparse, strict=True)
    return [replace(one, logits=one.logits[:, 1]) if has_terms else one for one, has_terms in pairs]


def _agree(found: Sequence[RowOutput], expected: Sequence[RowOutput], tolerance: float) -> None:
    """Of ways to compute that round at other places, the mean difference of all logits."""
    pairs = [(one.logits.flatten(), other.logits.flatten()) for one, other in zip(found, expected, strict=True)]
    errors = torch.cat([(one - other).abs() / other.abs().clamp(min=1.0) for one, other in pairs])
    assert float(errors.mean()) < tolerance


@pytest.mark.parametrize(("backbone", "first", "second"), PAIRS, indirect=["backbone"])
def test_a_mixed_batch_equals_each_row_alone(first, second, backbone, zoo):
    """Any two methods, with twins, other sizes, other lengths and a row without an adapter beside them."""
    residents = zoo(backbone)
    rows = _rows(
        backbone,
        [
            residents[first], residents[second], None, residents[f"{first}/other"], residents[f"{second}/twin"],
            residents[first], residents[f"{second}/other"],
        ],
    )  # fmt: skip
    _same(forward(backbone, rows), _alone(backbone, rows))


def test_all_methods_write_together(t5: Backbone, zoo: Callable[[Backbone], dict[str, Resident]]):
    """Three residents of every method and rows without an adapter, in both orders, write what each writes alone."""
    names = [None, *zoo(t5), None]
    _write_as_alone(t5, zoo(t5), names, max_rows=len(names))
    _write_as_alone(t5, zoo(t5), names[::-1], max_rows=16)


def _write_as_alone(backbone, residents, names, max_rows):
    rows = _rows(backbone, [residents[name] if name else None for name in names])
    together = [create_draft(backbone, row, Decoding(max_new_tokens=6)) for row in rows]
    generate(backbone, together, max_rows=max_rows)
    for name, draft in zip(names, together, strict=True):
        alone = _written_alone(backbone, name, draft)
        assert (draft.ids, draft.finish) == (alone.ids, alone.finish)
        assert draft.score == pytest.approx(alone.score, rel=1e-4)


_KNOWN: dict[tuple[str | None, tuple[int, ...]], Draft] = {}


def _written_alone(backbone: Backbone, name: str | None, draft: Draft) -> Draft:
    key = (name, draft.row.encoded.ids)
    if key not in _KNOWN:
        _KNOWN[key] = create_draft(backbone, draft.row, draft.decoding)
        generate(backbone, [_KNOWN[key]], max_rows=1)
    return _KNOWN[key]


@pytest.mark.parametrize("backbone", [*FAMILIES, *RELATIVES], indirect=True)
def test_all_methods_share_one_batch(backbone: Backbone, zoo: Callable[[Backbone], dict[str, Resident]]):
    """Three residents of every method, every kind of head and rows without an adapter, in both orders."""
    rows = _rows(backbone, [None, *zoo(backbone).values(), None])
    expected = _alone(backbone, rows)
    _same(forward(backbone, rows), expected)
    _same(forward(backbone, rows[::-1]), expected[::-1])


@pytest.fixture
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """A level of the native kernels that this processor can run, in use during the test."""
    with forced_level(request.param):
        yield request.param


def _native(name: str, request: pytest.FixtureRequest) -> Backbone:
    """The backbone, computed by the native kernels in use."""
    backbone = reloaded(request.getfixturevalue(name))
    assert "native" in backbone.kernels["linear"]
    return backbone


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("name", "level"), NATIVE + OTHER_NATIVE, indirect=["level"])
def test_batches_change_no_bit(name, zoo, request):
    """In 8 bits a difference in the last place may grow to a step of an activation, so there is none."""
    backbone = _native(name, request)
    rows = _rows(backbone, [None, *zoo(backbone).values(), None])
    expected = _alone(backbone, rows)
    for found in (forward(backbone, rows), forward(backbone, rows[::-1])[::-1]):
        assert all(torch.equal(one.logits, other.logits) for one, other in zip(found, expected, strict=True))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(
    ("name", "level"), [case for case in NATIVE if case[0].startswith(("bert", "modernbert"))], indirect=["level"]
)
def test_rows_of_one_text_answer_as_alone(name, zoo, request):
    """All residents and rows without an adapter on two texts, of two scopes: what rows share changes no bit."""
    backbone = _native(name, request)
    plain = _rows(backbone, [None, *zoo(backbone).values(), None])
    rows = [replace(row, encoded=backbone.tokenizer.encode(text)) for text in TEXTS[1:3] for row in plain]
    expected = _alone(backbone, rows)
    scoped = [replace(row, scope="ab"[number % 3 == 0]) for number, row in enumerate(rows)]
    assert _share(backbone, [row for row in scoped if row.resident is not None]) < 1
    for found in (forward(backbone, scoped), forward(backbone, scoped[::-1])[::-1]):
        assert all(torch.equal(one.logits, other.logits) for one, other in zip(found, expected, strict=True))


def _share(backbone: Backbone, rows: list[Row]) -> float:
    """The part of the work in the frozen blocks that is computed."""
    assert choice.choose_runner(backbone).shares_blocks
    stages = plan_stages(sorted(rows, key=lambda row: row.order), backbone.config.num_layers)
    computed = sum(len(stage.layers) * row.num_inputs for stage in stages for row in stage.rows)
    return computed / (backbone.config.num_layers * sum(row.num_inputs for row in rows))


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_rows_of_one_text_share_without_native_kernels(name, zoo, request):
    """The same by layers that Python calls, to rounding."""
    with forced_level("torch"):
        backbone = reloaded(request.getfixturevalue(name))
        encoded = backbone.tokenizer.encode(TEXTS[2])
        rows = [replace(row, encoded=encoded) for row in _rows(backbone, [None, *zoo(backbone).values()])]
        expected = forward(backbone, rows)
        scoped = [replace(row, scope="a") for row in rows]
        assert _share(backbone, [row for row in scoped if row.resident is not None]) < 1
        _same(forward(backbone, scoped), expected)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("name", "level"), NATIVE + OTHER_NATIVE + NATIVE_RELATIVES, indirect=["level"])
def test_one_call_of_all_layers_agrees_with_torch(name, zoo, request, monkeypatch):
    """Answers of all methods are those of layers in torch, one by one, to rounding, and so are generated texts."""
    backbone = _native(name, request)
    rows = _rows(backbone, [None, *zoo(backbone).values(), None])
    calls = []
    run = Library.run_stack
    monkeypatch.setattr(Library, "run_stack", lambda self, *given: calls.append(given) or run(self, *given))

    def answers() -> tuple[list[RowOutput], list[tuple[list[int], float]]]:
        drafts = []
        if backbone.config.generates:
            drafts = [create_draft(backbone, row, Decoding(max_new_tokens=4)) for row in rows]
            generate(backbone, drafts, max_rows=len(rows) // 2)
        return forward(backbone, rows), [(draft.ids, draft.score) for draft in drafts]

    found = answers()
    called = len(calls)
    monkeypatch.setattr(choice, "choose_runner", TorchBatch)
    expected = answers()
    assert called == len(calls) > 0
    exact = backbone.precision == "float32"
    values = [list(one[0]) if exact else _without_terms(rows, one[0]) for one in (found, expected)]
    _agree(*values, 1e-5 if exact else 0.05)
    # Rounded numbers may choose another token of two that are nearly as likely.
    assert not exact or [ids for ids, _ in found[1]] == [ids for ids, _ in expected[1]]


@pytest.mark.parametrize(("backbone", "preset"), EVERYWHERE, indirect=["backbone"])
def test_long_neighbours_change_nothing(preset, backbone, zoo):
    """A one-token text answers the same beside the longest rows there are, of its own adapter and of others."""
    residents = zoo(backbone)
    longest = backbone.tokenizer.encode("a " * 200, max_tokens=backbone.config.max_tokens)
    short = Row(backbone.tokenizer.encode("bad"), residents[preset])
    crowd = [Row(longest, residents[name]) for name in (preset, "prefix", "compacter", "unipelt-apl")]
    _same(forward(backbone, [*crowd[:2], short, *crowd[2:]])[2:3], forward(backbone, [short]))


@pytest.mark.parametrize("backbone", ["bert", "roberta", "xlm_roberta", "modernbert"], indirect=True)
def test_shifted_positions_stay_a_rows_own(backbone, zoo, make_artifact):
    """A prefix that counts as positions, up to its longest text; it is not the same prefix without them."""
    artifact = read_artifact(make_artifact(backbone, "prefix"), backbone)
    parts = tuple(
        part.model_copy(update={"shifts_positions": True}) if part.kind == "prefix" else part
        for part in artifact.manifest.parts
    )
    banks = Banks(backbone)
    shifted = banks.add(replace(artifact, manifest=artifact.manifest.model_copy(update={"parts": parts})))
    longest = backbone.tokenizer.encode("a " * 200, max_tokens=backbone.config.max_tokens - position_offset(parts))
    rows = _rows(backbone, [None, shifted, *zoo(backbone).values(), shifted])
    rows += [Row(longest, shifted), Row(rows[1].encoded, banks.add(artifact))]
    together = forward(backbone, rows)
    _same(together, _alone(backbone, rows))
    assert (together[1].logits - together[-1].logits).abs().max() > 1e-3


@pytest.mark.parametrize("preset", ["unipelt-ap", "unipelt-apl", "unipelt-apl-central"])
def test_gates_do_not_see_the_batch(preset: str, backbone: Backbone, zoo: Callable[[Backbone], dict[str, Resident]]):
    """Gates average over a row's own tokens, so they are the same in any batch."""
    residents = zoo(backbone)
    rows = _rows(backbone, [residents[preset], residents["lora"], residents[f"{preset}/twin"], residents[preset]])
    together = forward(backbone, rows, record_gates=True)
    assert not together[1].gates
    for number in (0, 2, 3):
        alone = forward(backbone, [rows[number]], record_gates=True)[0].gates
        assert together[number].gates is not None
        assert together[number].gates == {
            part: pytest.approx(layers, abs=1e-6) for part, layers in (alone or {}).items()
        }


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("name", "level"), NATIVE, indirect=["level"])
def test_recording_gates_changes_no_bit(name, zoo, request, monkeypatch):
    """It takes no more native calls: one for each half of a T5, and for each side of a convolution."""
    backbone = _native(name, request)
    gated = [resident for label, resident in zoo(backbone).items() if label.startswith("unipelt")]
    rows = _rows(backbone, [None, *gated, None])
    expected, calls = forward(backbone, rows), []
    run = Library.run_stack
    monkeypatch.setattr(Library, "run_stack", lambda self, *given: calls.append(given) or run(self, *given))
    found = forward(backbone, rows, record_gates=True)
    halves = backbone.config.generates or backbone.bert.convolution is not None
    assert len(calls) == (2 if halves else 1)
    assert all(torch.equal(one.logits, other.logits) for one, other in zip(found, expected, strict=True))
    assert [one.gates for one in found] == [forward(backbone, [row], record_gates=True)[0].gates for row in rows]
    assert sum(one.gates is not None for one in found) > len(gated) // 2


@pytest.mark.parametrize(("backbone", "preset"), EVERYWHERE, indirect=["backbone"])
def test_saving_and_loading_is_bit_equal(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    """The same manifest, tensors and bytes come back, so the digest is an identity."""
    data = make_artifact(backbone, preset)
    artifact = read_artifact(data, backbone)
    assert to_bytes(artifact.manifest, artifact.tensors) == data
    again = read_artifact(to_bytes(artifact.manifest, artifact.tensors), backbone)
    assert again.manifest == artifact.manifest
    assert again.digest == artifact.digest
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in artifact.tensors.items())


@pytest.mark.parametrize(
    ("backbone", "preset"),
    [case for case in EVERYWHERE if not case[1].startswith("prompt")],  # a prompt is one tensor
    indirect=["backbone"],
)
def test_every_wrong_tensor_is_a_reason(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    """A missing, an unknown and a misshapen tensor are all named at once."""
    artifact = read_artifact(make_artifact(backbone, preset), backbone)
    tensors = dict(artifact.tensors)
    missing, misshapen = sorted(tensors)[:2]
    tensors["bottleneck.side"] = torch.ones(3)
    tensors[misshapen] = tensors.pop(missing)[..., None]
    with pytest.raises(ArtifactError) as caught:
        read_artifact(to_bytes(artifact.manifest, tensors), backbone)
    reasons = "\n".join(caught.value.reasons)
    assert len(caught.value.reasons) == 3
    assert f"tensor {missing!r} is missing" in reasons
    assert "tensor 'bottleneck.side' belongs to no part" in reasons
    assert f"tensor {misshapen!r} has shape" in reasons


@pytest.mark.parametrize(("backbone", "preset"), EVERYWHERE, indirect=["backbone"])
def test_values_that_are_not_finite_are_refused(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    """Every tensor with such a value is named, whichever of them it is."""
    artifact = read_artifact(make_artifact(backbone, preset), backbone)
    broken = {name: tensor.clone() for name, tensor in artifact.tensors.items()}
    for tensor, value in zip(broken.values(), cycle((float("nan"), float("inf"), float("-inf"))), strict=False):
        tensor.view(-1)[-1] = value
    with pytest.raises(ArtifactError) as caught:
        read_artifact(to_bytes(artifact.manifest, broken), backbone)
    assert len(caught.value.reasons) == len(broken)
    assert "NaN or infinite" in caught.value.reasons[0]


@pytest.mark.parametrize(("backbone", "preset"), ON_EACH_KIND, indirect=["backbone"])
def test_a_true_artifact_proves_itself(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    assert check_golden(backbone, read_artifact(make_artifact(backbone, preset), backbone)) == []


@pytest.mark.parametrize(("backbone", "preset"), ON_EACH_KIND, indirect=["backbone"])
def test_a_changed_tensor_is_found_out(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    """Whichever tensor of the body or head is another adapter's, the golden examples tell."""
    artifact = read_artifact(make_artifact(backbone, preset), backbone)
    other = read_artifact(make_artifact(backbone, preset, seed=7), backbone)
    for name in _telling(artifact.tensors):
        changed = read_artifact(to_bytes(artifact.manifest, {**artifact.tensors, name: other.tensors[name]}), backbone)
        assert check_golden(backbone, changed), name


def _telling(tensors: dict[str, Tensor]) -> list[str]:
    """All but the key biases: a constant added to all scores of a query leaves the softmax as it is."""
    return [name for name in tensors if name != "bias.key"]


@pytest.mark.parametrize(
    ("backbone", "preset"),
    # A prefix or a prompt of any value takes part in the attention.
    [case for case in EVERYWHERE if not case[1].startswith(("prefix", "unipelt", "prompt"))],
    indirect=["backbone"],
)
def test_an_adapter_without_effect_is_refused(preset: str, backbone: Backbone, make_artifact: MakeArtifact):
    """Up maps of zero, or the backbone's own biases and norms: the answer equals that of the bare backbone."""
    from peltier_adapters.parts import init_tensors

    artifact = read_artifact(make_artifact(backbone, preset), backbone)
    idle = dict(artifact.tensors) | {
        name: torch.zeros_like(tensor) if name.startswith(("bottleneck.up", "lora.up")) else tensor
        for name, tensor in init_tensors(artifact.manifest.parts, backbone, torch.Generator()).items()
        if not name.startswith("head")
    }
    manifest = artifact.manifest
    resident = Banks(backbone).add(read_artifact(to_bytes(manifest, idle), backbone))
    rows = [Row(encode_input(backbone, manifest.task, golden.input), resident) for golden in manifest.golden]
    golden = tuple(
        old.model_copy(update={"output": tuple(new.logits.tolist())})
        for old, new in zip(manifest.golden, forward(backbone, rows), strict=True)
    )
    data = to_bytes(manifest.model_copy(update={"golden": golden}), idle)
    reasons = check_golden(backbone, read_artifact(data, backbone))
    assert reasons == ["the adapter has no effect: a golden output is the same without it"]


def test_the_backbone_is_never_changed(backbone: Backbone, zoo: Callable[[Backbone], dict[str, Resident]]):
    """Its weights hash to the same value before and after many mixed batches of all presets."""
    before = backbone.weights_digest()
    rows = _rows(backbone, [None, *zoo(backbone).values()])
    for shift in range(8):
        forward(backbone, rows[shift:] + rows[:shift], record_gates=bool(shift % 2))
    assert backbone.weights_digest() == before


def test_the_real_minilm_serves_all_methods_at_once(minilm: Backbone, zoo: Callable[[Backbone], dict[str, Resident]]):
    """On the published checkpoint too, and the backbone stays what it was."""
    before = minilm.weights_digest()
    rows = _rows(minilm, [None, *zoo(minilm).values()])
    rows.append(Row(minilm.tokenizer.encode("word " * 300, max_tokens=256), zoo(minilm)["unipelt-apl"]))
    _same(forward(minilm, rows), _alone(minilm, rows))
    assert minilm.weights_digest() == before


# Those with a forward pass of their own; the others round alike.
ROUNDED = [
    pytest.param(name, marks=[] if name in ("t5", "umt5") or f"{name}_bfloat16" in PRECISIONS else [pytest.mark.slow])
    for name in ("bert", "roberta", "modernbert", "t5", *RELATIVES)
]


@pytest.fixture(scope="module", params=ROUNDED)
def half(request: pytest.FixtureRequest) -> tuple[Backbone, Backbone]:
    """A small backbone in bfloat16, and the same in float32."""
    directory = request.getfixturevalue(f"{request.param}_directory")
    return load_backbone(str(directory), dtype="bfloat16"), request.getfixturevalue(request.param)


def test_bfloat16_answers_within_its_rounding(half, zoo):
    """Who shares the batch moves a bfloat16 answer by no more than bfloat16 itself does (the distance to float32), in
    logits and in what golden examples are judged by: probabilities, or relative log-likelihoods on T5."""
    rows, exact_rows = (
        _rows(one, [resident for name, resident in zoo(one).items() if name not in HEADS]) for one in half
    )
    found, alone, exact = (
        torch.stack([output.logits[:2] for output in outputs])
        for outputs in (forward(half[0], rows), _alone(half[0], rows), forward(half[1], exact_rows))
    )
    assert (alone - exact).norm() < 0.05 * exact.norm()
    scale = exact.abs().clamp(min=1.0)
    for one, other, right in (
        (found, alone, exact),
        [t / scale if half[0].config.generates else t.softmax(-1) for t in (found, alone, exact)],
    ):
        assert (one - other).norm() < 1.5 * (other - right).norm()


@pytest.mark.parametrize(
    ("half", "preset"),
    cover(
        {"half": FAMILIES, "preset": list(PRESETS)},
        where=lambda half, preset: _has(half, preset),
        pairs=[lambda half, preset: (_generates(half), preset)],
    ),
    indirect=["half"],
)
def test_a_float32_artifact_proves_itself_in_bfloat16(preset, half, make_artifact):
    """What was trained and recorded in float32 is accepted by a bfloat16 server."""
    artifact = read_artifact(make_artifact(half[1], preset), half[0])
    assert check_golden(half[0], artifact) == []


@pytest.mark.parametrize("half", ["t5", "t5_gated"], indirect=True)
@pytest.mark.parametrize("task_type", ["classification", "regression", "text2text"])
def test_an_adapter_that_carries_rounding_far_proves_itself_in_bfloat16(task_type, half, make_artifact):
    """Whichever draw of a LoRA on every map it is, most of which move these T5s further than any other preset does."""
    labels = {"classification": ("a", "b"), "regression": ("1", "2.5"), "text2text": ()}[task_type]
    for seed in range(3):
        data = make_artifact(half[1], "adamix-lora", labels=labels, task_type=task_type, seed=seed)
        assert check_golden(half[0], read_artifact(data, half[0])) == [], seed


@pytest.mark.parametrize(
    "half",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("roberta", "t5_gated") else []) for name in FAMILIES],
    indirect=True,
)
def test_another_adapters_weights_are_found_out_in_bfloat16(half, make_artifact):
    """What is allowed for rounding hides no other adapter, but for one that happens to score the same texts alike."""
    passed = []
    for preset in _presets(half[1].config.family):
        artifact, other = (read_artifact(make_artifact(half[1], preset, seed=seed), half[0]) for seed in (0, 1))
        if not check_golden(half[0], Artifact(artifact.manifest, other.tensors, artifact.digest)):
            passed.append(preset)
    assert len(passed) <= 1, passed
