"""A stand-in for the package openai, as far as examples/python uses it.

It sends what the package sends: POST to base_url and /chat/completions, the key as a bearer token, default_headers, and over
them extra_headers. An argument that it does not know is an error.
"""

import json
import os
import urllib.request
from types import SimpleNamespace


class OpenAI:
    def __init__(self, *, base_url, default_headers):
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json", **default_headers}
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))

    def _create(self, *, model, messages, extra_headers=None):
        body = json.dumps({"messages": messages, "model": model}).encode()
        request = urllib.request.Request(self._url, body, {**self._headers, **(extra_headers or {})})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer, object_hook=lambda members: SimpleNamespace(**members))
