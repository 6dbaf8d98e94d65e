"""A server that keeps notes: JSON over HTTP, in memory."""

import argparse
import json
import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NOTES = {}
METHODS = {"/health": ["GET"], "/notes": ["GET", "POST"], "/notes/N": ["GET", "DELETE"], "/search": ["GET"]}


class Problem(Exception):
    """What is wrong with a request: a status, a text and headers."""

    def __init__(self, status, text, **headers):
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


def listed(notes, count=None):
    return {"count": len(notes) if count is None else count, "notes": notes}


def whole_number(query, name, usual):
    text = query.get(name, usual)
    if text is not None and not str(text).isdecimal():
        raise Problem(400, f"{name} is not a whole number")
    return None if text is None else int(text)


def matches(note, query):
    word = query.get("q", "").casefold()
    found = word in note["title"].casefold() or word in note["text"].casefold()
    return found and query.get("tag") in (None, *note["tags"])


class Handler(BaseHTTPRequestHandler):
    last_id = 0

    def do_GET(self):
        self.answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self):
        try:
            status, value, headers = self.route()
        except Problem as problem:
            status, value, headers = problem.status, {"error": problem.text}, problem.headers
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if "X-Request-Id" in self.headers:
            self.send_header("X-Request-Id", self.headers["X-Request-Id"])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def route(self):
        """Status, value and headers of the answer."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        path = re.sub(r"^/notes/\d+$", "/notes/N", url.path)
        if path not in METHODS:
            raise Problem(404, f"no path {url.path}")
        if self.command not in METHODS[path]:
            raise Problem(405, f"no {self.command} here", Allow=", ".join(METHODS[path]))
        if path == "/health":
            return 200, {"ok": True}, {}
        if path == "/search":
            return self.search(query)
        if path == "/notes/N":
            return self.one(int(url.path.rpartition("/")[2]))
        return self.create() if self.command == "POST" else self.all(query)

    def create(self):
        given = self.body()
        if not isinstance(given, dict) or not isinstance(given.get("title"), str):
            raise Problem(400, "title is missing")
        Handler.last_id += 1
        note = {"id": Handler.last_id, "title": given["title"], "text": given.get("text", "")}
        NOTES[note["id"]] = note | {"tags": given.get("tags", []), "created": time.time()}
        return 201, NOTES[note["id"]], {"Location": f"/notes/{note['id']}"}

    def body(self):
        try:
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        except ValueError:
            raise Problem(400, "the body is not JSON") from None

    def all(self, query):
        limit = whole_number(query, "limit", os.environ.get("NOTES_PAGE"))
        offset = whole_number(query, "offset", 0)
        notes = list(NOTES.values())[offset:]
        return 200, listed(notes[:limit], len(NOTES)), {}

    def one(self, number):
        if number not in NOTES:
            raise Problem(404, f"no note {number}")
        if self.command == "DELETE":
            del NOTES[number]
            return 204, None, {}
        return 200, NOTES[number], {}

    def search(self, query):
        if not {"q", "tag"} & set(query):
            raise Problem(400, "q or tag is missing")
        return 200, listed([note for note in NOTES.values() if matches(note, query)]), {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler).serve_forever()
