"""The methods that have a page, and the formulas of their counts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A page of docs/methods. The first preset is drawn. `bert` and `t5` are the formulas of each preset's parameters
    without the head, in the letters of `counts.py`; None where the method is not defined."""

    name: str
    presets: tuple[str, ...]
    bert: tuple[str | None, ...]
    t5: tuple[str | None, ...]


_BOTH_BERT, _ONE_BERT = "2*L*(2*H*d + H + d)", "L*(2*H*d + H + d)"
_BOTH_T5, _ONE_T5 = "4*L*(2*H*d + H + d) + N", "2*L*(2*H*d + H + d) + N"
_PREFIX_BERT, _PREFIX_T5 = "2*L*P*H", "6*L*P*H"
_LORA_BERT, _LORA_T5 = "4*L*r*H", "12*L*r*H"
_GATE = "(H + 1)"
_AP_BERT, _AP_T5 = f"{_ONE_BERT} + {_PREFIX_BERT}", f"2*L*(2*H*d + H + d) + {_PREFIX_T5}"
_APL_BERT, _APL_T5 = f"{_AP_BERT} + {_LORA_BERT}", f"{_AP_T5} + {_LORA_T5}"

METHODS = (
    Method("houlsby", ("houlsby",), (_BOTH_BERT,), (_BOTH_T5,)),
    Method(
        "pfeiffer",
        ("pfeiffer", "pfeiffer-ffn", "pfeiffer-attention"),
        (_ONE_BERT, _ONE_BERT, _ONE_BERT),
        (_ONE_T5, "2*L*(2*H*d + H + d)", _ONE_T5),
    ),
    Method("adapterdrop", ("adapterdrop",), ("2*(L - 5)*(2*H*d + H + d)",), ("4*(L - 5)*(2*H*d + H + d) + N",)),
    Method("low-rank", ("lowrank",), ("2*L*(2*r*(H + d) + H + d)",), ("4*L*(2*r*(H + d) + H + d) + N",)),
    Method("phm", ("phm",), ("2*L*(2*(H*d/n + n**3) + H + d)",), ("4*L*(2*(H*d/n + n**3) + H + d) + N",)),
    Method(
        "compacter",
        ("compacter", "compacter++"),
        ("2*L*(2*r*(H + d) + H + d) + n**3 + N", "L*(2*r*(H + d) + H + d) + n**3 + N"),
        ("4*L*(2*r*(H + d) + H + d) + n**3 + N", "2*L*(2*r*(H + d) + H + d) + n**3 + N"),
    ),
    Method("lora", ("lora",), (_LORA_BERT,), (_LORA_T5,)),
    Method("vera", ("vera",), ("2*L*(r + H)",), ("6*L*(r + H)",)),
    Method("prefix", ("prefix",), (_PREFIX_BERT,), (_PREFIX_T5,)),
    Method("prompt", ("prompt-r", "prompt-t"), (None, None), ("P*H", "P*H")),
    Method("bitfit", ("bitfit",), ("L*(7*H + F) + 2*H",), ("L*(7*H + F) + L*(12*H + F) + V",)),
    Method("ia3", ("ia3",), ("L*(2*H + F)",), ("L*(6*H + 2*F)",)),
    Method(
        "unipelt",
        ("unipelt-apl", "unipelt-ap", "unipelt-apl-central", "unipelt-apl-nogate", "unipelt-ap-nogate"),
        (f"{_APL_BERT} + 4*L*{_GATE}", f"{_AP_BERT} + 2*L*{_GATE}", f"{_APL_BERT} + 3*L*{_GATE}", _APL_BERT, _AP_BERT),
        (f"{_APL_T5} + 11*L*{_GATE}", f"{_AP_T5} + 5*L*{_GATE}", f"{_APL_T5} + 8*L*{_GATE}", _APL_T5, _AP_T5),
    ),
    Method("adamix", ("adamix", "adamix-lora"), (_ONE_BERT, _LORA_BERT), ("2*L*(2*H*d + H + d)", _LORA_T5)),
    Method("baselines", ("intrinsic-said", "full"), (None, None), (None, None)),
)
