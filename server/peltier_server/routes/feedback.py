"""Feedback: what the right answer to an earlier request was."""

from peltier_client.errors import (
    AdapterNotFound,
    AnswerNotFound,
    Conflict,
    Draining,
    Forbidden,
    InvalidInput,
    NotReady,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
)
from peltier_client.protocol import Feedback, FeedbackRequest

from peltier_server.errors import describe_errors
from peltier_server.http.application import Changing, Context
from peltier_server.http.scoped_route import scoped_router

_ERRORS = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining, Unavailable)
_OF_FEEDBACK = (*_ERRORS, AnswerNotFound, AdapterNotFound, Conflict)

# Who asks for predictions learns what would have been right.
router = scoped_router("predict", "feedback", "/v1/feedback")


@router.post("", responses=describe_errors(*_OF_FEEDBACK))
async def give_feedback(body: FeedbackRequest, context: Context, service: Changing) -> Feedback:
    """Tell the right answer to a row of a request that an alias with a guarded change has answered. Any replica takes
    it, once for each row."""
    return await service.rollouts.judge(context.tenant, body)
