"""The console as an extension."""

from peltier_server.extension import Extension
from peltier_server.extensions.console import compare, page

CONSOLE = Extension("console", routers=(compare.router, page.router), page=page.PATH)
