"""Prints the OpenAPI document of the server as JSON, without starting it."""

import json
import sys

from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings

json.dump(create_app(Settings()).openapi(), sys.stdout)
