"""Where adaptations act in T5: the site, the layer number and the gradient."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation, NoAdaptation, Norm, Prefix
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.text.packing import Encoded
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import T5ForConditionalGeneration

ROWS = [Encoded((5, 6, 7, 1), (0,) * 4), Encoded((8, 9) * 9, (0,) * 18), Encoded((11, 1), (0, 0))]
TEXTS = [(0, 9, 12, 4, 5, 6, 7), (0, 30), (0, 14, 15, 16)]
NAMES = ["t5", "t5_gated"]


def _decode(backbone: Backbone, encoder: Adaptation, decoder: Adaptation) -> Tensor:
    """Logits of all nodes."""
    packed, model = backbone.pack(ROWS), backbone.t5
    memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
    hidden = model.decode(Targets.create(TEXTS, None, backbone.device), memory, decoder)
    return model.logits(hidden, decoder)


class Recorder(NoAdaptation):
    """Records its calls, and refuses invalid ones."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def embed(self, x: Tensor) -> Tensor:
        self.calls.append(("embed",))
        return x

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        self.calls.append(("prefix", attention))
        return None

    def project(self, number: int, site: str, x: Tensor, y: Tensor) -> Tensor:
        self.calls.append((site, number))
        return y

    def sublayer(self, block: int, site: str, y: Tensor, residual: Tensor) -> Tensor:
        self.calls.append((site, block))
        return y

    def norm(self, index: int, x: Tensor, base: Norm) -> Tensor:
        self.calls.append(("norm", index))
        return base(x)


def _attention(number: int, norm: int, projection: str = "query_key_value") -> list[tuple[object, ...]]:
    return [("norm", norm), (projection, number), ("prefix", number), ("attention_output", number)]


def _feed_forward(block: int, norm: int) -> list[tuple[object, ...]]:
    return [("norm", norm), ("intermediate", block), ("activated", block), ("output", block), ("ffn", block)]


@torch.inference_mode()
def test_every_site_is_asked_by_its_number(t5: Backbone):
    """3 + 2 blocks: attentions 0-2 encoder, 3-4 decoder, 5-6 cross; no bottleneck after cross-attention."""
    encoder, decoder = Recorder(), Recorder()
    _decode(t5, encoder, decoder)
    expected: list[tuple[object, ...]] = [("embed",)]
    for block in range(3):
        expected += [*_attention(block, 2 * block), ("attention", block), *_feed_forward(block, 2 * block + 1)]
    assert encoder.calls == [*expected, ("norm", 6), ("key_value", 5), ("key_value", 6)]
    expected = []
    for block, norm in ((3, 7), (4, 10)):
        expected += [*_attention(block, norm), ("attention", block)]
        expected += [*_attention(block + 2, norm + 1, "query"), *_feed_forward(block, norm + 2)]
    assert decoder.calls == [*expected, ("norm", 13), ("lm_head", 0)]


class Everywhere(NoAdaptation):
    """Changes every output in place, norms with other weights, and gives the rows of the first span a prefix that
    depends on their tokens. `parameter` takes part everywhere, so that everything needs a gradient if it does."""

    def __init__(self, backbone: Backbone, parameter: Tensor, first_rows: int) -> None:
        self._config, self._parameter, self._first = backbone.t5.config, parameter, first_rows

    def _draw(self, seed: int, *shape: int) -> Tensor:
        return self._parameter * torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    def spans(self, num_rows: int) -> list[tuple[int, int]]:
        return [(0, self._first), (self._first, num_rows)]

    def embed(self, x: Tensor) -> Tensor:
        x[1] = self._draw(99, x.shape[1])
        return x

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        if span == 1:
            return None
        config = self._config
        keys, values = self._draw(attention, 2, self._first, config.num_heads, 3, config.head_size)
        scale = x.mean() if attention < config.num_layers else x.view(self._first, -1).mean(-1)[:, None, None, None]
        return Prefix(keys * scale, values * scale)

    def project(self, number: int, site: str, x: Tensor, y: Tensor) -> Tensor:
        return y.add_(0.3 * self._draw(number + len(site), y.shape[1]))

    def sublayer(self, block: int, site: str, y: Tensor, residual: Tensor) -> Tensor:
        return y.add_(self._draw(block, y.shape[1]) * residual.tanh())

    def norm(self, index: int, x: Tensor, base: Norm) -> Tensor:
        return base.with_weights(x, 1.0 + 0.3 * self._draw(index, x.shape[1]), 0.3 * self._draw(index + 1, x.shape[1]))


@pytest.mark.parametrize("name", NAMES)
def test_training_equals_serving(name: str, request: pytest.FixtureRequest):
    """The forward that keeps gradients gives what the one without them gives, however an adaptation changes it."""
    backbone, tokens = request.getfixturevalue(name), len(TEXTS[0])
    found = []
    for training in (False, True):
        parameter = torch.ones((), requires_grad=training)
        adaptations = (Everywhere(backbone, parameter, 1), Everywhere(backbone, parameter, tokens))
        with torch.inference_mode(not training):
            found.append(_decode(backbone, *adaptations))
    assert found[1].requires_grad
    torch.testing.assert_close(found[1].detach(), found[0].clone(), atol=1e-4, rtol=1e-4)
    assert (found[0] - _decode(backbone, NO_ADAPTATION, NO_ADAPTATION)).abs().max() > 0.1


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_steps_are_adapted_as_teacher_forcing_is(name: str, request: pytest.FixtureRequest):
    """The first row, the only one with a prefix, and its neighbour: token by token as at once."""
    backbone, one = request.getfixturevalue(name), torch.ones(())
    packed, model = backbone.pack(ROWS[:2]), backbone.t5
    encoder = Everywhere(backbone, one, 1)
    memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
    texts = torch.tensor([TEXTS[0], TEXTS[0]])
    forced = Targets.create(texts.tolist(), None, backbone.device)
    expected = model.decode(forced, memory, Everywhere(backbone, one, len(TEXTS[0])))
    cache = Cache(model.config, backbone.device, backbone.dtype)
    cache.join(memory)
    # A step's prefix is drawn for one token, teacher forcing's for seven: only the neighbour's is the same.
    steps = [model.step(column, model.arrange([0, 1], cache), Everywhere(backbone, one, 1)) for column in texts.t()]
    torch.testing.assert_close(torch.stack(steps)[:, 1], expected[len(TEXTS[0]) :], atol=1e-4, rtol=1e-4)


class FixedPrefix(NoAdaptation):
    """One prefix for every row and token, in attention number `attention`."""

    def __init__(self, backbone: Backbone, attention: int) -> None:
        self._config, self._attention = backbone.t5.config, attention

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        if attention != self._attention:
            return None
        config, rows = self._config, len(ROWS) if attention < self._config.num_layers else len(x)
        drawn = torch.randn(2, config.num_heads, 4, config.head_size, generator=torch.Generator().manual_seed(0))
        return Prefix(*drawn[:, None].expand(-1, rows, -1, -1, -1).unbind())


@pytest.mark.parametrize("attention", [3, 5])
@torch.inference_mode()
def test_a_decoder_prefix_acts_on_steps_as_on_texts(attention: int, t5: Backbone):
    """In self- and in cross-attention, and it does act."""
    packed, model, adaptation = t5.pack(ROWS), t5.t5, FixedPrefix(t5, attention)
    memory = model.project_kv(packed, model.encode(packed))
    texts = torch.tensor([[0, 9, 12, 4], [0, 9, 12, 4], [0, 5, 6, 7]])
    targets = Targets.create(texts.tolist(), None, t5.device)
    cache = Cache(model.config, t5.device, t5.dtype)
    cache.join(memory)
    steps = [model.step(column, model.arrange([0, 1, 2], cache), adaptation) for column in texts.t()]
    expected = model.decode(targets, memory, adaptation)
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1), expected, atol=1e-5, rtol=1e-5)
    assert (expected - model.decode(targets, memory)).abs().max() > 0.1


class Deltas(NoAdaptation):
    """Adds `x delta^T` to every projection, delta being 0: its gradient is that of the frozen weight."""

    def __init__(self) -> None:
        self.deltas: dict[tuple[str, int], Tensor] = {}

    def _of(self, key: tuple[str, int], create: Callable[[], Tensor]) -> Tensor:
        if key not in self.deltas:
            self.deltas[key] = create().requires_grad_()
        return self.deltas[key]

    def project(self, number: int, site: str, x: Tensor, y: Tensor) -> Tensor:
        if site == "activated":
            return y  # no projection
        return y.add_(x @ self._of((site, number), lambda: torch.zeros(y.shape[1], x.shape[1])).t())

    def norm(self, index: int, x: Tensor, base: Norm) -> Tensor:
        return base.with_weights(x, self._of(("norm", index), base.weight.clone))


def _their_gradients(model: T5ForConditionalGeneration) -> dict[tuple[str, int], Tensor]:
    """By our sites and numbers."""
    found: dict[tuple[str, int], Tensor] = {}
    blocks = [*model.encoder.block, *model.decoder.block]
    crosses = [block.layer[1].EncDecAttention for block in model.decoder.block]

    def put(site: str, number: int, *parts: nn.Module) -> None:
        found[site, number] = torch.cat([part.weight.grad for part in parts])

    for number, attention in enumerate([block.layer[0].SelfAttention for block in blocks] + crosses):
        put("attention_output", number, attention.o)
        if number < len(blocks):
            put("query_key_value", number, attention.q, attention.k, attention.v)
        else:
            put("query", number, attention.q)
            put("key_value", number, attention.k, attention.v)
    for number, block in enumerate(blocks):
        dense = block.layer[-1].DenseReluDense
        put("intermediate", number, *((dense.wi_0, dense.wi_1) if hasattr(dense, "wi_0") else (dense.wi,)))
        put("output", number, dense.wo)
    stacks = [
        [*(layer.layer_norm for block in s.block for layer in block.layer), s.final_layer_norm]
        for s in (model.encoder, model.decoder)
    ]
    for index, norm in enumerate(stacks[0] + stacks[1]):
        put("norm", index, norm)
    put("lm_head", 0, model.lm_head)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_transformers(name: str, request: pytest.FixtureRequest):
    """Of every projection and every norm: the loss's gradient reaches each site with the right inputs."""
    backbone: Backbone = request.getfixturevalue(name)
    directory: Path = request.getfixturevalue(f"{name}_directory")
    adaptation = Deltas()
    labels = [torch.tensor([*text[1:], 1]) for text in TEXTS]
    F.cross_entropy(_decode(backbone, adaptation, adaptation), torch.cat(labels)).backward()

    model = T5ForConditionalGeneration.from_pretrained(directory).eval()
    inputs = nn.utils.rnn.pad_sequence([torch.tensor(row.ids) for row in ROWS], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in ROWS], batch_first=True)
    padded = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    model(input_ids=inputs, attention_mask=mask, labels=padded).loss.backward()
    expected = _their_gradients(model)
    if model.lm_head.weight is model.shared.weight:
        del expected["lm_head", 0], adaptation.deltas["lm_head", 0]  # theirs is the embedding's too
    assert adaptation.deltas.keys() == expected.keys()
    for key, delta in adaptation.deltas.items():
        assert delta.grad is not None, key
        assert (delta.grad - expected[key]).norm() < 1e-4 * expected[key].norm(), key


class SoftPrompt(NoAdaptation):
    """Takes the place of the first two tokens of the second row."""

    def __init__(self, prompt: Tensor) -> None:
        self.prompt = prompt

    def embed(self, x: Tensor) -> Tensor:
        x[4:6] = self.prompt
        return x


def test_a_soft_prompt_is_read_like_embedded_tokens(t5: Backbone):
    """A prompt of two tokens' own embeddings changes nothing, and gets a gradient."""
    prompt = t5.t5.embedding(torch.tensor([8, 9])).requires_grad_()
    found = _decode(t5, SoftPrompt(prompt), NO_ADAPTATION)
    torch.testing.assert_close(found.detach(), _decode(t5, NO_ADAPTATION, NO_ADAPTATION), atol=1e-5, rtol=1e-5)
    found.logsumexp(-1).sum().backward()
    assert prompt.grad is not None
    assert prompt.grad.abs().min() > 0
