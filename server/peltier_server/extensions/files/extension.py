"""The routes of files as an extension. Trainings and batches keep files without them."""

from peltier_server.extension import Extension
from peltier_server.extensions.files import routes

FILES = Extension("files", routers=(routes.router, routes.uploads))
