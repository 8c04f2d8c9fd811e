"""OpenAI's completions, in terms of predictions."""

import asyncio
from dataclasses import dataclass

from peltier_client.errors import InvalidInput
from peltier_client.protocol import Parameters, TextPrediction

from peltier_server.predictor import Predictor
from peltier_server.target import Target
from peltier_server.texts.cut_text import CutText
from peltier_server.texts.openai_protocol import Choice, CompletionRequest, CompletionUsage


@dataclass(frozen=True)
class Completed:
    """The answers to all prompts, and what they are accounted for."""

    choices: list[Choice]
    usage: CompletionUsage


async def complete(predictor: Predictor, target: Target, asked: CompletionRequest) -> Completed:
    """An answer for each prompt, in order."""
    predictor.check_count(len(asked.prompts), "prompts")
    parameters = completion_parameters(predictor, target, asked)
    if asked.stops:
        return await _complete_with_stops(predictor, target, asked, parameters)
    response = (await predictor.predict(target, asked.prompts, parameters)).response
    texts = [one for one in response.predictions if isinstance(one, TextPrediction)]
    choices = [Choice(index=number, text=one.text, finish_reason=one.finish_reason) for number, one in enumerate(texts)]
    return Completed(choices, CompletionUsage.of(response.usage.tokens, response.usage.completion_tokens or 0))


def completion_parameters(predictor: Predictor, target: Target, asked: CompletionRequest) -> Parameters:
    """What is asked in a prediction's words. Prompts are never truncated, because OpenAI's answers have no place that
    says so, and greedy texts are written without beams, so that they come out the same in a stream."""
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


def stream_completion(predictor: Predictor, target: Target, asked: CompletionRequest) -> CutText:
    """The answer to the one prompt of a request that streams."""
    if len(asked.prompts) != 1:
        raise InvalidInput(f"prompt has {len(asked.prompts)} texts; stream is for one")
    parameters = completion_parameters(predictor, target, asked)
    return CutText(predictor.stream(target, asked.prompts[0], parameters), asked.stops)


async def _complete_with_stops(
    predictor: Predictor, target: Target, asked: CompletionRequest, parameters: Parameters
) -> Completed:
    # Each is followed token by token, because what comes after its stop shall not be written.
    budget = predictor.open_answer(target.origin)
    texts = [CutText(predictor.stream(target, prompt, parameters, budget), asked.stops) for prompt in asked.prompts]
    try:
        if len(texts) == 1:
            whole = [await texts[0].whole()]
        else:
            whole = await asyncio.gather(*(_whole(text, number) for number, text in enumerate(texts)))
    finally:
        for text in texts:
            text.close()
    choices = [
        Choice(index=number, text=text, finish_reason=cut.finish_reason)
        for number, (text, cut) in enumerate(zip(whole, texts, strict=True))
    ]
    prompt, completion = (sum(column) for column in zip(*(text.num_tokens for text in texts), strict=True))
    return Completed(choices, CompletionUsage.of(prompt, completion))


async def _whole(text: CutText, number: int) -> str:
    try:
        return await text.whole()
    except InvalidInput as error:
        # Each prompt is a prediction of its own, which does not know its number.
        raise InvalidInput(f"input {number}: {error.message}") from error
