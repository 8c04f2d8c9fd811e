"""Bodies of requests and answers of OpenAI's API: completions and models."""

from typing import Annotated, Any, Literal, Self

from peltier_client.protocol.predict import FinishReason, Priority, Seed, Temperature, TopP
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

_MAX_STOPS = 4
# The parameters of OpenAI's API that this server does not support, with the value that equals leaving them out.
_NEUTRAL: dict[str, Any] = {
    "n": 1, "best_of": 1, "echo": False, "logprobs": None, "suffix": "", "presence_penalty": 0, "frequency_penalty": 0,
    "logit_bias": {},
}  # fmt: skip

Prompt = Annotated[str, Field(min_length=0)]
Stop = Annotated[str, StringConstraints(min_length=1)]


class StreamOptions(RequestModel):
    """`include_usage` adds a last chunk with the usage. Obfuscation is for clients of models behind a network."""

    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


class CompletionRequest(RequestModel):
    """`model` is a task reference, the prompt its input. Without `max_tokens` the task's own limit holds.

    Without `temperature` the task's own holds: 1, OpenAI's default, unless its artifact says another; 0 is greedy.
    `user` is taken and not used. `priority` is a prediction's
    and not OpenAI's.
    """

    model: str
    prompt: Prompt | Annotated[list[Prompt], Field(min_length=1)]
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=_MAX_STOPS)] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: Priority = 0
    n: StrictInt | None = None
    best_of: StrictInt | None = None
    echo: StrictBool | None = None
    logprobs: StrictInt | None = None
    suffix: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @field_validator(*_NEUTRAL, mode="after")
    @classmethod
    def _only_neutral(cls, value: Any, info: ValidationInfo) -> Any:
        neutral = _NEUTRAL[str(info.field_name)]
        if value is not None and value != neutral:
            raise ValueError(f"only {neutral!r} is served" if neutral is not None else "it is not served")
        return value

    @field_validator("stop", mode="wrap")
    @classmethod
    def _few_stops(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        # One sentence in place of a complaint for each form that it might have had.
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(f"it must be a text or a list of at most {_MAX_STOPS} texts, none of them empty") from None

    @field_validator("stream_options", mode="after")
    @classmethod
    def _only_for_streams(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream"):
            raise ValueError("it is for streams; set stream to true")
        return value

    @property
    def prompts(self) -> list[str]:
        """One or many."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def stops(self) -> list[str]:
        """Texts that end the answer and are no part of it."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionUsage(ResponseModel):
    """Tokens of the prompts, of the answers, and of both."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, prompt: int, completion: int) -> Self:
        """Both counts with their sum."""
        return cls(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


class Choice(ResponseModel):
    """One answer, or in a stream what it gains; `finish_reason` is null until it has ended."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None


class Completion(ResponseModel):
    """The answers in the order of the prompts; in a stream one chunk of an answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage | None = None


class Model(ResponseModel):
    """An adapter as a model; `created` is in seconds since 1970."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(ResponseModel):
    """Adapters in order of name; with `has_more` the last `id` asks, as `after`, for those that follow."""

    object: Literal["list"] = "list"
    data: list[Model]
    has_more: bool = False
