"""Errors of jobs in the format of OpenAI's API."""

from peltier_server.extensions.trainings.fine_tuning_messages import FineTuningRequest
from peltier_server.protocols.openai.errors import OpenAIErrors

FINE_TUNING_ERRORS = OpenAIErrors(folders=("/v1/fine_tuning/",), bodies=(FineTuningRequest,))
