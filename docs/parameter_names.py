"""Extension of the API reference: every parameter gets its own type and default."""

import re
from typing import Any

import griffe

# A line of names, "alpha, beta", and the lines below it that are indented deeper.
NAMES = re.compile(r"^( *)(\w+(?:, \*{0,2}\w+)+)( :[^\n]*)?\n((?:\1 +\S[^\n]*\n|\n(?=\1 +\S))*)", re.MULTILINE)


class ParameterNames(griffe.Extension):
    """Split entries of docstrings that describe several parameters: griffe would show the first one's type for all."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is None or not (obj.is_class or obj.is_function):
            return
        before, heading, after = obj.docstring.value.partition("Parameters\n----------\n")
        section, *others = re.split(r"(?=\n\n\w[\w ]*\n---)", after, maxsplit=1)
        obj.docstring.value = "".join([before, heading, NAMES.sub(_split, f"{section}\n").rstrip("\n"), *others])


def _split(match: re.Match[str]) -> str:
    indent, names, given, description = match.groups()
    return "".join(f"{indent}{name.strip()}{given or ''}\n{description}" for name in names.split(","))
