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
        return await _complete_stopped(preparation, predictor, target, asked, parameters)
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


async def _complete_stopped(
    preparation: Preparation, predictor: Predictor, target: ResolvedTask, asked: CompletionRequest,
    parameters: Parameters,
) -> Completed:  # fmt: skip
    """The answers to prompts with stops. Each is generated as a stream, so that generation ends at its stop."""
    budget, prompts = predictor.open_answer(target.context), asked.prompts
    choices = dict[int, Choice]()
    counts = list[tuple[int, int]]()

    async def write(number: int) -> None:
        stream = predictor.stream(target, prompts[number], parameters, budget, row=number)
        text = StopSequenceStream(stream, asked.stops)
        try:
            whole = await text.whole()
        except InvalidInput as error:
            if len(prompts) == 1:
                raise
            # Each prompt is a separate prediction that does not know its number, so the message gets it here.
            raise InvalidInput(f"input {number}: {error.message}") from error
        finally:
            text.close()
        choices[number] = Choice(index=number, text=whole, finish_reason=text.finish_reason)
        counts.append(text.num_tokens)

    await Items(preparation, target.context.tenant, prompts).answer(write)
    usage = CompletionUsage.of(sum(read for read, _ in counts), sum(written for _, written in counts))
    return Completed([choices[number] for number in range(len(prompts))], usage)
