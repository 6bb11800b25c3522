"""The grammar of filters that Google's APIs share (AIP-160), whatever they are about.

    filter      expression or nothing
    expression  sequence {AND sequence}
    sequence    factor {factor}                    all of them, as with AND
    factor      term {OR term}                     OR binds tighter than AND
    term        {NOT | -} ( "(" expression ")" | restriction )

A value is a bare word or text in quotes, in which a backslash takes what follows it as it is.
"""

import re
from typing import Generic, NamedTuple, TypeVar

from turnout.errors import Invalid

T = TypeVar("T")

LONGEST = 20_000
DEEPEST = 50

_SPACE = re.compile(r"\s*")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r"[^\s()\"'=!<>,]+")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Value(NamedTuple):
    text: str
    at: int


class Parser(Generic[T]):
    """Goes through a text once. What it makes of it is its subclass's affair."""

    MOST = 500
    """Conditions in one text."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise Invalid(f"filter is longer than {LONGEST} characters.", field="filter")
        self._text = text
        self._at = 0
        self._depth = 0
        self._conditions = 0

    def every(self, parts: list[T]) -> T:
        """All of them hold; none at all: always."""
        raise NotImplementedError

    def some(self, parts: list[T]) -> T:
        """At least one of them holds."""
        raise NotImplementedError

    def negated(self, part: T) -> T:
        raise NotImplementedError

    def restriction(self) -> T:
        """What stands here is to be compared with something. Goes on to what follows the space behind it."""
        raise NotImplementedError

    def all(self) -> T:
        self._skip()
        if self._done():
            return self.every([])
        query = self._expression()
        if not self._done():
            raise self._wrong(
                "there is a ) without its (" if self._next(")") else "AND, OR or the end must come here"
            )
        return query

    def _expression(self) -> T:
        parts = [self._sequence()]
        while self._keyword("AND"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else self.every(parts)

    def _sequence(self) -> T:
        parts = [self._factor()]
        while not (self._done() or self._next(")") or self._peek("AND") or self._peek("OR")):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else self.every(parts)

    def _factor(self) -> T:
        parts = [self._term()]
        while self._keyword("OR"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else self.some(parts)

    def _term(self) -> T:
        negated = False
        while self._keyword("NOT") or self._take("-"):
            negated = not negated
        query = self._group() if self._take("(") else self._condition()
        return self.negated(query) if negated else query

    def _condition(self) -> T:
        self._conditions += 1
        if self._conditions > self.MOST:
            raise self._wrong(f"there are more than {self.MOST} conditions")
        return self.restriction()

    def _group(self) -> T:
        start = self._at - 1
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"more than {DEEPEST} parentheses are open")
        query = self._expression()
        if not self._take(")"):
            raise wrong(start, "this ( has no )")
        self._depth -= 1
        return query

    def _value(self) -> Value:
        at = self._at
        quoted = self._quoted()
        if quoted is not None:
            return Value(quoted, at)
        bare = self._match(_BARE)
        if bare is None:
            quote = self._text[at : at + 1]
            raise self._wrong(
                f"this {quote} has no second one"
                if quote in ('"', "'") and quote
                else "a value must come here"
            )
        return Value(bare[0], at)

    def _quoted(self) -> str | None:
        match = self._match(_QUOTED)
        if match is None:
            return None
        return _ESCAPE.sub(r"\1", match[1] if match[1] is not None else match[2])

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _skip(self) -> None:
        self._match(_SPACE)

    def _done(self) -> bool:
        return self._at == len(self._text)

    def _next(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _take(self, character: str) -> bool:
        if not self._next(character):
            return False
        self._at += 1
        self._skip()
        return True

    def _peek(self, word: str) -> bool:
        match = WORD.match(self._text, self._at)
        return match is not None and match[0].upper() == word

    def _keyword(self, word: str) -> bool:
        if not self._peek(word):
            return False
        self._at += len(word)
        self._skip()
        return True

    def _wrong(self, text: str) -> Invalid:
        return wrong(self._at, text)


def wrong(at: int, text: str) -> Invalid:
    return Invalid(f"filter, at character {at + 1}: {text}.", field="filter")
