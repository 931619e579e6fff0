"""Text of others, so that a terminal takes none of it for a command."""

from __future__ import annotations


def escaped(text: str, keep: str = "") -> str:
    """As it is, but for what is not printable and not in `keep`: `\\x1b`, `\\u202e` and so on."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text
    )


def json_escaped(text: str) -> str:
    """JSON that says the same, in printable characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
