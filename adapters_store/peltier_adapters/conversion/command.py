"""`peltier convert`. It imports torch only when it runs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def convert(
    checkpoint: Annotated[
        Path, typer.Argument(help="A directory, or a hub cache: models--OWNER--NAME or one of its snapshots.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The directory to write, which must not exist.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Write a checkpoint, pickled ones too, as safetensors that a server reads, and print its fingerprint."""
    from peltier_adapters.conversion.convert import convert_checkpoint

    found = convert_checkpoint(checkpoint, output)
    if json_output:
        print(json.dumps({"checkpoint": str(checkpoint), "output": str(output), **asdict(found)}))
        return
    dtypes = " and ".join(found.dtypes)
    print(f"{output}: {found.family}, {found.num_parameters:,} parameters in {dtypes}, {found.num_bytes:,} bytes")
    print(f"fingerprint: {found.fingerprint}")
