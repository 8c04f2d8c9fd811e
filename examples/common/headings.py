"""The headings between the parts of an example's output."""


def print_heading(text: str) -> None:
    """A line of its own, which the lines of the part follow."""
    print(f"\n== {text}\n", flush=True)
