"""A server that keeps notes, and skips what is easily skipped.

Its mistakes, each of them on purpose: no Location, 200 for a deletion, no 405, a search that minds the case and knows
no tags, and no pages.
"""

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NOTES = []
DELETED = set()


class Handler(BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if "X-Request-Id" in self.headers:
            self.send_header("X-Request-Id", self.headers["X-Request-Id"])
        self.end_headers()
        self.wfile.write(body)

    def note(self):
        """The note that the path names, or none."""
        number = self.path.removeprefix("/notes/")
        known = number.isdecimal() and 0 < int(number) <= len(NOTES) and int(number) not in DELETED
        return NOTES[int(number) - 1] if known else None

    def do_GET(self):
        there = [note for note in NOTES if note["id"] not in DELETED]
        url = urlsplit(self.path)
        if url.path == "/health":
            self.reply(200, {"ok": True})
        elif url.path == "/notes":
            self.reply(200, {"count": len(there), "notes": there})
        elif url.path == "/search":
            word = parse_qs(url.query).get("q", [""])[0]
            found = [note for note in there if word in note["title"] or word in note["text"]]
            self.reply(200, {"count": len(found), "notes": found})
        elif note := self.note():
            self.reply(200, note)
        else:
            self.reply(404, {"error": "not found"})

    def do_POST(self):
        try:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            note = {"id": len(NOTES) + 1, "title": given["title"], "text": given.get("text", "")}
        except (ValueError, KeyError):
            self.reply(400, {"error": "bad request"})
            return
        NOTES.append(note | {"tags": given.get("tags", []), "created": time.time()})
        self.reply(201, NOTES[-1])

    def do_DELETE(self):
        if note := self.note():
            DELETED.add(note["id"])
            self.reply(200, None)
        else:
            self.reply(404, {"error": "not found"})


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
