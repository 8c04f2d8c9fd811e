"""FastAPI with one route that has a prediction's body and answer and computes nothing: the minimal cost of HTTP.

.venv/bin/python benchmarks/bare.py --port 8321
"""

import sys

import uvicorn
from fastapi import FastAPI
from peltier_client.protocol.predict import (
    AdapterRef,
    BatchInfo,
    ClassificationPrediction,
    PredictRequest,
    PredictResponse,
    Timings,
    Usage,
)

app = FastAPI()
_ANSWER = PredictResponse(
    task="task-00000",
    adapter=AdapterRef(tenant="default", name="task-00000", version=1, digest=f"sha256:{0:064}", preset="compacter"),
    predictions=[ClassificationPrediction(label="positive", score=0.75, scores={"negative": 0.25, "positive": 0.75})],
    usage=Usage(tokens=24),
    timings_ms=Timings(queue=0.123, load=0.0, compute=0.123, total=1.234),
    batch=BatchInfo(rows=16, adapters=16),
)


@app.get("/ready")
async def ready() -> None:
    """Answers at once."""


@app.post("/v1/tasks/{task}/predict")
async def predict(task: str, body: PredictRequest) -> PredictResponse:
    """The same answer to every request."""
    return _ANSWER


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[sys.argv.index("--port") + 1]), log_config=None, access_log=False)
