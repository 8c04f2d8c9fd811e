"""`python -m peltier_client` is the `peltier` command."""

from peltier_client.cli import main

main()
