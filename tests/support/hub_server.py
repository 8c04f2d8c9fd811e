"""A Hugging Face hub on loopback: the routes of its HTTP API that huggingface_hub calls, over repositories in memory.

Large files are served by a second address, as the hub's are, and every request is recorded with its token.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

_PAGE = 2
_LARGE = (".safetensors", ".bin")
TOKEN = "hf_test"


def blob_id(data: bytes) -> str:
    """Git's name of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass
class Repository:
    """Branches by name, and the files of every commit."""

    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    is_private: bool = False

    def commit(self, files: Mapping[str, bytes], branch: str = "main") -> str:
        """A new commit of the branch with these files added; returns its hash."""
        whole = {**self.commits.get(self.branches.get(branch, ""), {}), **files}
        seed = repr((len(self.commits), sorted((path, blob_id(data)) for path, data in whole.items())))
        self.branches[branch] = commit = blob_id(seed.encode())
        self.commits[commit] = whole
        return commit

    def find(self, revision: str) -> str | None:
        """The commit of a branch, or the commit itself."""
        return self.branches.get(revision) or (revision if revision in self.commits else None)


@dataclass
class Hub:
    """What the stub knows, and what was asked of it: (method, path, token) of each request."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    # What a hub that lies sends in place of a file, and lists as its size.
    sent: dict[str, bytes] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    # If set, the last byte of a large file is sent once this is.
    last_byte: threading.Event | None = None
    endpoint: str = ""
    cdn: str = ""

    def add(self, name: str, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Commits files to a repository, which is made if it is missing; returns the commit."""
        self.large |= {hashlib.sha256(data).hexdigest(): data for data in files.values()}
        return self.repositories.setdefault(name, Repository()).commit(files, branch)

    def downloads(self) -> list[str]:
        """The paths of the files that were asked for."""
        return [path for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]


@contextmanager
def run_hub() -> Iterator[Hub]:
    """A hub that listens until the block ends."""
    hub = Hub()
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub})) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    hub.endpoint, hub.cdn = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


_REPO = r"(?P<repo>[^/]+/[^/]+)"
Route = Callable[["_Handler", dict[str, str]], None]


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        """Calls the first route that fits."""
        token = self.headers.get("authorization")
        self.hub.requests.append((self.command, self.path, token))
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length) if length else self._chunks()
        for method, pattern, route in _ROUTES:
            found = re.fullmatch(pattern, urlsplit(self.path).path)
            if found and self.command in method:
                given = {name: unquote(value) for name, value in found.groupdict().items() if value}
                if "repo" in given and self._is_hidden(given["repo"], token):
                    return self.fail(401, "RepoNotFound")
                return route(self, given)
        return self.fail(404, "EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815 - the names of http.server

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""

    def _chunks(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return b""
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _is_hidden(self, repo: str, token: str | None) -> bool:
        known = self.hub.repositories.get(repo)
        return known is None or (known.is_private and token != f"Bearer {TOKEN}")

    def send(self, body: bytes, status: int = 200, **headers: str) -> None:
        """An answer with these headers; an underscore of a name is a hyphen."""
        self.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, document: object, **headers: str) -> None:
        """An answer in JSON."""
        self.send(json.dumps(document).encode(), content_type="application/json", **headers)

    def fail(self, status: int, code: str) -> None:
        """An error in the hub's shape."""
        self.send(b"{}", status, x_error_code=code, x_error_message=code)

    def json(self) -> dict[str, Any]:
        """The body."""
        return cast("dict[str, Any]", json.loads(self.body))


def _create(handler: _Handler, given: dict[str, str]) -> None:
    asked = handler.json()
    name = f"{asked['organization']}/{asked['name']}"
    if name in handler.hub.repositories:
        body = json.dumps({"url": f"{handler.hub.endpoint}/{name}"}).encode()
        return handler.send(body, 409, x_error_message="the repository exists")
    repository = Repository(is_private=asked.get("private", False) or asked.get("visibility") == "private")
    handler.hub.repositories[name] = repository
    repository.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
    return handler.send_json({"url": f"{handler.hub.endpoint}/{name}"})


def _branch(handler: _Handler, given: dict[str, str]) -> None:
    branches = handler.hub.repositories[given["repo"]].branches
    if given["branch"] in branches:
        return handler.fail(409, "BranchExists")
    branches[given["branch"]] = branches["main"]
    return handler.send_json({})


def _validate(handler: _Handler, given: dict[str, str]) -> None:
    assert handler.json()["content"].startswith("---\n")
    handler.send_json({"errors": [], "warnings": []})


def _preupload(handler: _Handler, given: dict[str, str]) -> None:
    def mode(path: str) -> str:
        return "lfs" if path.endswith(_LARGE) else "regular"

    files = handler.json()["files"]
    shown = [{"path": one["path"], "uploadMode": mode(one["path"]), "shouldIgnore": False} for one in files]
    handler.send_json({"files": shown})


def _batch(handler: _Handler, given: dict[str, str]) -> None:
    objects = [
        {**one, "actions": {"upload": {"href": f"{handler.hub.cdn}/lfs/{one['oid']}"}}}
        for one in handler.json()["objects"]
    ]
    handler.send_json({"transfer": "basic", "objects": objects})


def _put(handler: _Handler, given: dict[str, str]) -> None:
    assert hashlib.sha256(handler.body).hexdigest() == given["oid"]
    handler.hub.large[given["oid"]] = handler.body
    handler.send(b"")


def _commit(handler: _Handler, given: dict[str, str]) -> None:
    files = {}
    for line in map(json.loads, handler.body.splitlines()):
        value = line["value"]
        if line["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif line["key"] == "lfsFile":
            files[value["path"]] = handler.hub.large[value["oid"]]
    commit = handler.hub.add(given["repo"], files, given["revision"])
    handler.send_json({"commitUrl": f"{handler.hub.endpoint}/{given['repo']}/commit/{commit}", "commitOid": commit})


def _info(handler: _Handler, given: dict[str, str]) -> None:
    commit = handler.hub.repositories[given["repo"]].find(given.get("revision", "main"))
    if commit is None:
        return handler.fail(404, "RevisionNotFound")
    return handler.send_json({"_id": "0", "id": given["repo"], "modelId": given["repo"], "sha": commit, "tags": []})


def _tree(handler: _Handler, given: dict[str, str]) -> None:
    """Some entries a page, with a link to the next one."""
    hub, repository = handler.hub, handler.hub.repositories[given["repo"]]
    commit = repository.find(given["revision"])
    if commit is None:
        return handler.fail(404, "RevisionNotFound")
    start = int(parse_qs(urlsplit(handler.path).query).get("cursor", ["0"])[0])
    listed = [_entry(hub, path, data) for path, data in sorted(repository.commits[commit].items())]
    link = f'<{hub.endpoint}{urlsplit(handler.path).path}?cursor={start + _PAGE}>; rel="next"'
    more = {"link": link} if start + _PAGE < len(listed) else {}
    return handler.send_json(listed[start : start + _PAGE], **more)


def _entry(hub: Hub, path: str, data: bytes) -> dict[str, Any]:
    size = hub.listed.get(path, len(data))
    entry = {"type": "file", "path": path, "size": size, "oid": blob_id(data)}
    if path.endswith(_LARGE):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 130}
    return entry


def _resolve(handler: _Handler, given: dict[str, str]) -> None:
    """A small file itself, and for a large one the address of its bytes."""
    hub, repository = handler.hub, handler.hub.repositories[given["repo"]]
    commit = repository.find(given["revision"])
    data = repository.commits.get(commit or "", {}).get(given["path"])
    if data is None:
        return handler.fail(404, "EntryNotFound")
    if not given["path"].endswith(_LARGE):
        return handler.send(hub.sent.get(given["path"], data), etag=f'"{blob_id(data)}"', x_repo_commit=str(commit))
    digest = hashlib.sha256(data).hexdigest()
    headers = {"x_linked_etag": f'"{digest}"', "x_linked_size": str(len(data)), "x_repo_commit": str(commit)}
    if given["path"] in hub.sent:
        hub.large["sent"] = hub.sent[given["path"]]
        digest = "sent"
    return handler.send(b"", 302, location=f"{hub.cdn}/lfs/{digest}?signature=secret", **headers)


def _large(handler: _Handler, given: dict[str, str]) -> None:
    if given["oid"] not in handler.hub.large:
        return handler.fail(404, "EntryNotFound")
    data, last_byte = handler.hub.large[given["oid"]], handler.hub.last_byte
    if last_byte is None or handler.command == "HEAD":
        return handler.send(data, etag=f'"{given["oid"]}"')
    handler.send(data[:-1], etag=f'"{given["oid"]}"', content_length=str(len(data)))
    last_byte.wait(10)
    with suppress(OSError):
        handler.wfile.write(data[-1:])
    return None


_ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("POST", "/api/repos/create", _create),
    ("POST", "/api/validate-yaml", _validate),
    ("POST", f"/api/models/{_REPO}/branch/(?P<branch>[^/]+)", _branch),
    ("POST", f"/api/models/{_REPO}/preupload/(?P<revision>[^/]+)", _preupload),
    ("POST", rf"/{_REPO}\.git/info/lfs/objects/batch", _batch),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", _put),
    ("POST", f"/api/models/{_REPO}/commit/(?P<revision>[^/]+)", _commit),
    ("GET", f"/api/models/{_REPO}/tree/(?P<revision>[^/]+)", _tree),
    ("GET", f"/api/models/{_REPO}(/revision/(?P<revision>[^/]+))?", _info),
    ("GET HEAD", f"/{_REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _resolve),
    ("GET HEAD", "/lfs/(?P<oid>[0-9a-z]+)", _large),
)
