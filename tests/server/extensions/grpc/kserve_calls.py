"""Calls of KServe's own client over HTTP and gRPC, in a process that can import it. Prints what it found as JSON.

python kserve_calls.py URL GRPC_ADDRESS KEY
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

TEXTS = ["a good film", "bad", "ein schöner Film"]


def request(*, binary: bool) -> InferRequest:
    """The texts as one tensor."""
    tensor = InferInput("text", [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(np.array(TEXTS, dtype=object), binary_data=binary)
    return InferRequest(model_name="film", infer_inputs=[tensor], request_id="7")


def read(answer: Any) -> dict[str, Any]:
    """The labels and scores of an answer, whatever it came as."""
    outputs = {one.name: one.as_numpy() for one in answer.outputs}
    labels = [one.decode() if isinstance(one, bytes) else str(one) for one in outputs["label"].flatten()]
    return {"labels": labels, "scores": outputs["scores"].tolist(), "model": answer.model_name}


async def over_http(url: str, key: str) -> dict[str, Any]:
    """By the REST client, with tensors as JSON and as bytes."""
    headers = {"authorization": f"Bearer {key}"}
    async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=60)) as client:
        found = {
            "live": await client.is_server_live(url, headers=headers),
            "ready": await client.is_server_ready(url, headers=headers),
            "has_model": await client.is_model_ready(url, "film", headers=headers),
        }
        for name, binary in (("json", False), ("binary", True)):
            answer = await client.infer(url, request(binary=binary), headers=headers, model_name="film")
            found[name] = read(answer)
    return found


async def over_grpc(address: str, key: str) -> dict[str, Any]:
    """By the gRPC client."""
    headers = [("authorization", f"Bearer {key}")]
    async with InferenceGRPCClient(address, timeout=60) as client:
        return {
            "live": await client.is_server_live(headers=headers),
            "ready": await client.is_server_ready(headers=headers),
            "has_model": await client.is_model_ready("film", headers=headers),
            "infer": read(await client.infer(request(binary=True), headers=headers)),
        }


async def main(url: str, address: str, key: str) -> None:
    """Both, one after the other."""
    print(json.dumps({"http": await over_http(url, key), "grpc": await over_grpc(address, key)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
