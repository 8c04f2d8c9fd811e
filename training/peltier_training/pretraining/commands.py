"""`peltier pretrain`. torch and transformers are imported when it runs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from peltier_training.threads import Threads, choose_threads, use_threads


def pretrain(  # noqa: PLR0913 - one parameter a flag
    architecture: Annotated[Literal["t5"], typer.Argument(metavar="t5", help="Family of the model: t5.")],
    text: Annotated[list[Path], typer.Option(help="Plain text, .txt (.gz, .xz); blank lines separate documents.")],
    output: Annotated[Path, typer.Option(help="The checkpoint directory to write.")],
    steps: Annotated[int | None, typer.Option(help="The budget in steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="The budget in minutes of training, over all calls.")] = None,
    call_minutes: Annotated[
        float | None, typer.Option(help="Stop with a checkpoint after this time; continue with --resume.")
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="Tokens, with 100 sentinels and 256 bytes.")] = 8192,
    d_model: Annotated[int, typer.Option(help="Width.")] = 256,
    layers: Annotated[int, typer.Option(help="In the encoder, and as many in the decoder.")] = 4,
    heads: Annotated[int, typer.Option(help="Attention heads.")] = 4,
    d_ff: Annotated[int, typer.Option(help="Width inside the feed-forward.")] = 1024,
    d_kv: Annotated[int, typer.Option(help="Width of a head.")] = 64,
    gated: Annotated[bool, typer.Option("--gated", help="The gated GELU feed-forward of T5 1.1.")] = False,
    learning_rate: Annotated[
        float, typer.Option(help="The highest, relative to each parameter's size; warm-up, then cosine to zero.")
    ] = 2e-2,
    batch_size: Annotated[int, typer.Option(help="Texts a step.")] = 32,
    input_length: Annotated[int, typer.Option(help="Tokens of an input.")] = 128,
    warmup: Annotated[float, typer.Option(help="Fraction of the budget with a rising learning rate.")] = 0.02,
    weight_decay: Annotated[float, typer.Option(help="AdamW weight decay.")] = 0.0,
    word_vectors: Annotated[
        bool, typer.Option("--word-vectors", help="Begin the embeddings as word vectors of the text.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seeds initialisation, order and spans.")] = 0,
    directory: Annotated[
        Path | None, typer.Option(help="Tokens, checkpoints and TensorBoard; default runs/NAME of the output.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue from the newest checkpoint; without it, earlier ones are removed."),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="Precision of matrix products in training: float32 or bfloat16.")
    ] = "float32",
    threads: Threads = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make a small T5 from plain text by span corruption."""
    num_threads = choose_threads(threads)
    from peltier_training.pretraining.pretrain import pretrain as run_pretraining
    from peltier_training.pretraining.run import Budget, Optimization, Pretraining, Shape

    use_threads(num_threads)
    outcome = run_pretraining(
        Pretraining(
            texts=tuple(text),
            output=output,
            directory=directory or Path("runs") / output.name,
            budget=Budget(steps, minutes, call_minutes),
            shape=Shape(vocab_size, d_model, layers, heads, d_ff, d_kv, gated),
            optimization=Optimization(
                learning_rate, batch_size, input_length, warmup, weight_decay, word_vectors, seed
            ),
            device=device,
            dtype=dtype,
            resume=resume,
        )
    )
    if json_output:
        print(json.dumps(asdict(outcome)))
    elif outcome.finished:
        print(f"{output}: {outcome.steps} steps, held-out loss {outcome.held_out_loss:.3f}")
    else:
        print(f"stopped after {outcome.steps} steps; go on with --resume")
