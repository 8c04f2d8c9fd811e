"""The commands about memory: pin and unpin."""

from peltier_client.commands.arguments import ApiKey, Json, OwnAdapter, Url, connect, print_result
from peltier_client.exchange.connection import DEFAULT_URL


def pin(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Keep an adapter on the device of every replica."""
    with connect(url, api_key) as client:
        made = client.pin(task)
    print_result(
        made, f"{task} is pinned by {made.pinned_by} at {made.pinned_at.astimezone():%Y-%m-%d %H:%M:%S}", json=json
    )


def unpin(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Release the pin of an adapter; it stays in memory until it is evicted."""
    with connect(url, api_key) as client:
        client.unpin(task)
    print_result({"unpinned": task}, f"unpinned {task}", json=json)
