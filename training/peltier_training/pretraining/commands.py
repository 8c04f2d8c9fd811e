"""`peltier pretrain`. torch and transformers are imported when it runs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options

from peltier_training.pretraining.run import Optimization, Pretraining, PretrainingBudget, T5Shape
from peltier_training.processes import ThreadsOption, choose_threads, use_threads


@with_field_options
def pretrain(  # noqa: PLR0913 - one parameter a flag or group of flags
    *,
    architecture: Annotated[Literal["t5"], typer.Argument(metavar="t5", help="Family of the model: t5.")],
    files: Annotated[OptionValues, FieldOptions(Pretraining, ("texts", "output"))],
    budget: Annotated[OptionValues, FieldOptions(PretrainingBudget)],
    shape: Annotated[OptionValues, FieldOptions(T5Shape)],
    optimization: Annotated[OptionValues, FieldOptions(Optimization)],
    directory: Annotated[
        Path | None, typer.Option(help="Tokens, checkpoints and TensorBoard. Default: runs/NAME of the output.")
    ] = None,
    execution: Annotated[OptionValues, FieldOptions(Pretraining, ("resume", "device", "dtype"))],
    threads: ThreadsOption = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Pretrain a small T5 on plain text by span corruption."""
    num_threads = choose_threads(threads)
    run = Pretraining(
        **files,
        **execution,
        directory=directory or Path("runs") / files["output"].name,
        budget=PretrainingBudget(**budget),
        shape=T5Shape(**shape),
        optimization=Optimization(**optimization),
    )
    from peltier_training.pretraining.pretrain import pretrain as run_pretraining

    use_threads(num_threads)
    outcome = run_pretraining(run)
    if json_output:
        print(json.dumps(asdict(outcome)))
    elif outcome.finished:
        print(f"{run.output}: {outcome.steps} steps, held-out loss {outcome.held_out_loss:.3f}")
    else:
        print(f"stopped after {outcome.steps} steps; continue with --resume")
