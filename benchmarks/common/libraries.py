"""Other libraries from PyPI, each in its own folder, which only the interpreter of that contender can import.

AdapterHub pins an older transformers than Peltier's. torch and the other dependencies come from the environment, so
nothing large is downloaded. A folder is filled once and kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PACKAGES = {
    "peft": ("peft==0.21.2",),
    "adapterhub": ("adapters==1.3.0", "transformers==4.57.6", "huggingface-hub==0.36.2", "tokenizers==0.22.2"),
}
_ONNX = ("onnx==1.23.2", "flatbuffers==25.12.19", "ml_dtypes==0.6.0", "protobuf==7.36.2")
# Engines for models without adapters.
ENGINES = {
    "sentence-transformers": ("sentence-transformers==6.2.0",),
    "ctranslate2": ("ctranslate2==4.8.5",),
    "onnxruntime": ("onnxruntime==1.32.0", *_ONNX),
    "openvino": (
        "openvino==2026.4.1", "openvino-telemetry==2025.2.0", "nncf==3.4.0", "ninja==1.13.2", "pydot==4.0.1",
        "tabulate==0.10.0", "psutil==7.2.2",
    ),
    "onnxruntime-openvino": ("onnxruntime-openvino==1.24.1", *_ONNX),
    "torchao": ("torchao==0.18.0",),
    # It must have the version of the environment's torch.
    "zentorch": ("zentorch==2.13.0.2",),
}  # fmt: skip
# KServe's client needs an older protobuf than ours. The frames are examples of a training.
EXTRAS = {
    "frames": (
        "pandas==3.1.1",
        "polars==2.1.0",
        "polars-runtime-32==2.1.0",
        "datasets==5.2.0",
        "pyarrow==26.0.1",
        "dill==0.4.1",
        "multiprocess==0.70.19",
        "xxhash==4.1.0",
    ),
    "kserve": (
        "kserve==0.21.0", "protobuf==6.33.6", "cloudevents==1.13.0", "deprecation==2.1.0", "durationpy==0.11",
        "grpc-interceptor==0.15.4", "httpx==0.28.1", "kubernetes==37.0.2", "oauthlib==4.0.1", "orjson==3.13.0",
        "httpcore==1.0.9", "pandas==3.1.1", "requests-oauthlib==2.0.0", "timing-asgi==0.3.2", "websocket-client==1.9.2",
    ),
}  # fmt: skip


def installed(origin: str) -> Path:
    """The library's folder inside the environment, filled from PyPI the first time."""
    requirements = (PACKAGES | ENGINES | EXTRAS)[origin]

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
        run([*pip, str(folder), *requirements], {})

    return kept(origin, " ".join(requirements).encode(), install)


def kept(name: str, contents: bytes, fill: Callable[[Path], None]) -> Path:
    """A folder inside the environment for `contents`, filled the first time. It appears whole; the first of several
    processes that fill it at a time wins."""
    folder = Path(sys.prefix) / "foreign" / f"{name}-{hashlib.sha256(contents).hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            fill(partial)
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def run(command: list[str], environment: dict[str, str]) -> None:
    """A command that must succeed, with these variables beside the environment's own. The error has its last line."""
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {last_line(done.stderr)}")


def last_line(text: str) -> str:
    """The last line that is not empty: the error of a program that has failed."""
    return next(filter(None, map(str.strip, reversed(text.splitlines()))), "no message")
