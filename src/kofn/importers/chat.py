"""Chat messages as text: their content, their reasoning, and a prompt of several messages as one text."""

from __future__ import annotations

from typing import Any

from kofn.importers import scalars


def content_text(content: Any) -> str | None:
    """The text of a message's content: a string, or the text parts of a list, one per line.

    >>> content_text([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "4"}])
    '4'
    """
    if not isinstance(content, list):
        return scalars.as_text(content)
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type", "text") == "text"]
    return "\n".join(part for part in parts if isinstance(part, str))


def content_reasoning(content: Any) -> str | None:
    """The reasoning among a message's content parts; of a redacted one its summary.

    >>> content_reasoning([{"type": "reasoning", "reasoning": "x9Q=", "redacted": True, "summary": "I added."}])
    'I added.'
    """
    if not isinstance(content, list):
        return None
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "reasoning"]
    # a provider that redacts gives ciphertext as the reasoning
    texts = [part.get("summary") if part.get("redacted") else part.get("reasoning") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def dialogue(messages: Any) -> str | None:
    """A prompt as one text: a single message is its text, several are each led by their role.

    >>> dialogue([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}])
    'system: Be brief.\\n\\nuser: 2+2?'
    """
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "content" in one for one in messages):
        return scalars.as_text(messages)
    texts = [(one.get("role", "user"), content_text(one["content"]) or "") for one in messages]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts)
