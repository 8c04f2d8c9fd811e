"""Answers OpenAI's completion requests with predictions."""

from dataclasses import dataclass

from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Parameters, TextPrediction

from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.items import Items
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.inference.predictor import Predictor
from peltier_server.inference.text_stream import StopSequenceStream
from peltier_server.protocols.openai.messages import Choice, CompletionRequest, CompletionUsage


@dataclass(frozen=True)
class Completed:
    """The answers to all prompts, and their numbers of tokens."""

    choices: list[Choice]
    usage: CompletionUsage


async def complete(
    preparation: Preparation, predictor: Predictor, target: ResolvedTask, asked: CompletionRequest
) -> Completed:
    """One answer per prompt, in order."""
    predictor.check_count(len(asked.prompts), "prompts")
    parameters = completion_parameters(predictor, target, asked)
    if asked.stops:
        return await _StoppedAnswer(predictor, target, asked, parameters).complete(preparation)
    prediction = await predictor.predict(target, asked.prompts, parameters)
    texts = [one for one in prediction.predictions if isinstance(one, TextPrediction)]
    choices = [Choice(index=number, text=one.text, finish_reason=one.finish_reason) for number, one in enumerate(texts)]
    return Completed(choices, CompletionUsage.of(prediction.opening.num_tokens, prediction.num_new_tokens or 0))


def completion_parameters(predictor: Predictor, target: ResolvedTask, asked: CompletionRequest) -> Parameters:
    """The parameters of a prediction for the request `asked`. Prompts are never truncated, because OpenAI's answers
    have no field to report it. Greedy texts are generated without beams, so that a stream gives the same text."""
    limit = predictor.max_new_tokens(target)
    if asked.max_tokens is not None and asked.max_tokens > limit:
        raise InvalidInput(f"max_tokens is {asked.max_tokens}: {asked.model} allows at most {limit}")
    decoding = target.entry.task.decoding
    assert decoding is not None, "a task that generates no texts has no limit of their tokens"
    temperature = decoding.completion_temperature if asked.temperature is None else asked.temperature
    return Parameters(
        answer="generate",
        truncate=False,
        priority=asked.priority,
        max_new_tokens=asked.max_tokens,
        num_beams=1,
        temperature=temperature,
        top_p=asked.top_p if temperature else None,
        seed=asked.seed if temperature else None,
    )


def stream_completion(predictor: Predictor, target: ResolvedTask, asked: CompletionRequest) -> StopSequenceStream:
    """The streamed answer to a request with one prompt. Raises `InvalidInput` for several prompts."""
    if len(asked.prompts) != 1:
        raise InvalidInput(f"prompt has {len(asked.prompts)} texts; stream is for one")
    parameters = completion_parameters(predictor, target, asked)
    return StopSequenceStream(predictor.stream(target, asked.prompts[0], parameters), asked.stops)


class _StoppedAnswer:
    """The answers to prompts with stops. Each answer is generated as a stream, so that generation ends at its stop."""

    def __init__(
        self, predictor: Predictor, target: ResolvedTask, asked: CompletionRequest, parameters: Parameters
    ) -> None:
        self._predictor = predictor
        self._target = target
        self._asked = asked
        self._parameters = parameters
        self._budget = predictor.open_answer(target.context)
        self._choices: dict[int, Choice] = {}
        self._num_prompt_tokens = self._num_completion_tokens = 0

    async def complete(self, preparation: Preparation) -> Completed:
        """One answer per prompt, in order."""
        await Items(preparation, self._target.context.tenant, self._asked.prompts).answer(self._write)
        choices = [self._choices[number] for number in range(len(self._asked.prompts))]
        return Completed(choices, CompletionUsage.of(self._num_prompt_tokens, self._num_completion_tokens))

    async def _write(self, number: int) -> None:
        prompt = self._asked.prompts[number]
        stream = self._predictor.stream(self._target, prompt, self._parameters, self._budget, row=number)
        text = StopSequenceStream(stream, self._asked.stops)
        try:
            whole = await text.whole()
        except InvalidInput as error:
            if len(self._asked.prompts) == 1:
                raise
            # Each prompt is a separate prediction that does not know its number, so the message gets it here.
            raise InvalidInput(f"input {number}: {error.message}") from error
        finally:
            text.close()
        self._choices[number] = Choice(index=number, text=whole, finish_reason=text.finish_reason)
        num_prompt_tokens, num_completion_tokens = text.num_tokens
        self._num_prompt_tokens += num_prompt_tokens
        self._num_completion_tokens += num_completion_tokens
