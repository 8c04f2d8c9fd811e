"""BERT and RoBERTa with the UniPELT and AdaMix authors' modules, stated anew from docs/methods.md: plain
products over a checkpoint's own names, one padded row at a time, sharing nothing with what is tested."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class AuthorsBert:
    """A checkpoint by its own names; `gated` says whether its gates are on, `scale` is LoRA's where they are not."""

    state: dict[str, Tensor]
    family: str
    num_layers: int
    num_heads: int
    eps: float
    gated: bool = True
    scale: float = 2.0

    def __call__(self, ids: list[int], pads: int, pad_id: int = 0) -> Tensor:
        """Logits of one row with `pads` behind it, which no token sees."""
        mask = torch.zeros(len(ids) + pads)
        mask[len(ids) :] = float("-inf")
        x = self.embed(torch.tensor(ids + [pad_id] * pads))
        for i in range(self.num_layers):
            x = self.layer(i, x, mask)
        if self.family == "roberta":
            hidden = torch.tanh(self.linear("classifier.dense", x[0]))
            return self.linear("classifier.out_proj", hidden)
        return self.linear("classifier", torch.tanh(self.linear("bert.pooler.dense", x[0])))

    def get(self, name: str) -> Any:
        return self.state.get(name)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], self.eps)

    def embed(self, ids: Tensor) -> Tensor:
        name, first = f"{self.family}.embeddings", 2 if self.family == "roberta" else 0
        tables = {kind: self.state[f"{name}.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
        x = tables["word"][ids] + tables["position"][first : first + len(ids)] + tables["token_type"][0]
        return self.norm(f"{name}.LayerNorm", x)

    def layer(self, i: int, x: Tensor, mask: Tensor) -> Tensor:
        name = f"{self.family}.encoder.layer.{i}"
        context = self.attend(i, f"{name}.attention.self", x, mask)
        a = self.norm(f"{name}.attention.output.LayerNorm", self.linear(f"{name}.attention.output.dense", context) + x)
        f = self.linear(f"{name}.output.dense", F.gelu(self.linear(f"{name}.intermediate.dense", a)))
        return self.norm(f"{name}.output.LayerNorm", self.adapt(f"{name}.output", f, a) + a)

    def attend(self, i: int, name: str, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (self.project(f"{name}.{part}", x) for part in ("query", "key", "value"))
        table = self.get("bert.encoder.prefix_enc_embed.weight")
        if table is not None:
            inner = torch.tanh(self.linear("bert.encoder.prefix_embed_MLP.0", table))
            flat = self.linear("bert.encoder.prefix_embed_MLP.2", inner).view(len(table), 2 * self.num_layers, -1)
            gate = self.gate(f"{name}.prefix_gate", x, 1.0)
            key, value = torch.cat((gate * flat[:, 2 * i], key)), torch.cat((gate * flat[:, 2 * i + 1], value))
            mask = torch.cat((torch.zeros(len(table)), mask))
        heads = [one.view(len(one), self.num_heads, -1).transpose(0, 1) for one in (query, key, value)]
        scores = heads[0] @ heads[1].transpose(1, 2) * heads[0].shape[-1] ** -0.5 + mask
        return (scores.softmax(-1) @ heads[2]).transpose(0, 1).reshape(len(x), -1)

    def project(self, name: str, x: Tensor) -> Tensor:
        y, a = self.linear(name, x), self.get(f"{name}.lora_A")
        if a is None:
            return y
        return y + self.gate(f"{name}.lora_gate", x, self.scale) * (x @ a.T @ self.state[f"{name}.lora_B"].T)

    def gate(self, name: str, x: Tensor, otherwise: float) -> Tensor | float:
        """One value a row: the mean over all positions, pads included."""
        if not self.gated:
            return otherwise
        return torch.sigmoid(self.linear(name, x)).mean()

    def adapt(self, name: str, f: Tensor, a: Tensor) -> Tensor:
        """What goes into the residual sum in place of the feed-forward output f."""
        if f"{name}.adapters.mrpc.adapter_up.weight" in self.state:
            x = self.norm(f"{name}.LayerNorm", f + a)
            inner = torch.relu(self.linear(f"{name}.adapters.mrpc.adapter_down.0", x))
            y = self.linear(f"{name}.adapters.mrpc.adapter_up", inner)
            return self.gate(f"{name}.adapters.mrpc.gate", x, 1.0) * y + f
        if f"{name}.ExpertSoup.MoA_A.expert_score_weight" in self.state:
            inner = F.gelu(
                f @ self.merged(f"{name}.ExpertSoup.MoA_A", "weight").T
                + self.merged(f"{name}.ExpertSoup.MoA_A", "bias")
            )
            up = f"{name}.ExpertSoup.MoA_B"
            return inner @ self.merged(up, "weight").T + self.merged(up, "bias") + f
        return f

    def merged(self, name: str, kind: str) -> Tensor:
        shares = self.state[f"{name}.expert_score_weight"].softmax(0)
        return sum(s * self.state[f"{name}.deepspeed_experts.{j}.{kind}"] for j, s in enumerate(shares))
