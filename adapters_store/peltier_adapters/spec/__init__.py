"""What an adapter is made of, as data: parts, maps, tasks. Imports no torch."""
