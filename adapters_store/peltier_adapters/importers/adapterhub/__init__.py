"""AdapterHub's files."""
