"""An object store as deltalake speaks to one: as much of S3's protocol as a lake needs, with all objects in memory.

A process of its own, as such a store is: `python object_store.py` says its port and ends with its standard input.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "city"


class ObjectStore:
    """One that runs."""

    def __enter__(self) -> Self:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process finds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "nowhere",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }


# ---- the process


_objects: dict[str, bytes] = {}
_times: dict[str, str] = {}
"""When each was put there last."""
_parts: dict[tuple[str, int], bytes] = {}
"""Of objects that are still being put together, by upload and number."""
_changing = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """An answer goes as a whole."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, _listed(query))
        else:
            self._give(_objects.get(self._key))

    def do_HEAD(self) -> None:
        self._give(_objects.get(self._key))

    def do_PUT(self) -> None:
        body = self._body()
        query = parse_qs(urlsplit(self.path).query)
        if "uploadId" in query:
            _parts[query["uploadId"][0], int(query["partNumber"][0])] = body
            self._answer(200, headers={"ETag": _tag(body)})
            return
        with _changing:
            if self.headers["If-None-Match"] == "*" and self._key in _objects:
                self._answer(412)
                return
            _store(self._key, body)
        self._answer(200, headers={"ETag": _tag(body)})

    def do_DELETE(self) -> None:
        _objects.pop(self._key, None)
        self._answer(204)

    def do_POST(self) -> None:
        """Of what there is only this: several are deleted, and one is put together of parts."""
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "delete" in query:
            self._delete()
        elif "uploads" in query:
            self._answer(200, _upload(uuid.uuid4().hex))
        else:
            self._body()
            id = query["uploadId"][0]
            places = sorted(place for place in _parts if place[0] == id)
            _store(self._key, body := b"".join(_parts.pop(place) for place in places))
            tag = escape(_tag(body))
            self._answer(
                200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode()
            )

    def _delete(self) -> None:
        keys = re.findall("<Key>.*?</Key>", self._body().decode())
        for key in keys:
            _objects.pop(unescape(key[len("<Key>") : -len("</Key>")]), None)
        deleted = "".join(f"<Deleted>{key}</Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def _give(self, body: bytes | None) -> None:
        if body is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": _tag(body), "Last-Modified": formatdate(usegmt=True)}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"] or "")
        if part is None:
            self._answer(200, body, headers)
            return
        begin = int(part[1]) if part[1] else len(body) - int(part[2])
        end = min(int(part[2]) + 1, len(body)) if part[1] and part[2] else len(body)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
        self._answer(206, body[begin:end], headers)

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody asked."""


def _store(key: str, body: bytes) -> None:
    _objects[key] = body
    _times[key] = datetime.now(UTC).isoformat()


def _upload(id: str) -> bytes:
    return f"<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>".encode()


def _listed(query: dict[str, list[str]]) -> bytes:
    prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
    found, folders = [], set[str]()
    for key, body in sorted(_objects.items()):
        if key.startswith(prefix) and key > after:
            folder, slash, _ = key[len(prefix) :].partition("/")
            if "delimiter" in query and slash:
                folders.add(f"{prefix}{folder}/")
            else:
                found.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{_times[key]}</LastModified>"
                    f"<ETag>{_tag(body)}</ETag><Size>{len(body)}</Size></Contents>"
                )
    found += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)]
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>".encode()


def _tag(body: bytes) -> str:
    return f'"{md5(body, usedforsecurity=False).hexdigest()}"'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
