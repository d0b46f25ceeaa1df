"""The errors: each message says where, what was expected, what came instead and what to do."""

AFRESH = "start a new checkpoint, with a new output folder if results must not be there twice"
"""The way out where a run can't continue from its state: everything that the sources still have is joined again."""


class WatersmeetError(Exception):
    """The base of all errors that Watersmeet raises."""


class DefinitionError(WatersmeetError, ValueError):
    """An invalid join: an unknown column, a bad duration, a checkpoint that belongs to another query."""


class SqlError(DefinitionError):
    """SQL text that can't be translated; the message underlines the span.

    Args:
        problem: One sentence.
        text: The whole SQL text the user wrote.
        start: Index of the span's first character.
        end: Index after its last character.
    """

    def __init__(self, problem: str, text: str, start: int, end: int) -> None:
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line = text[line_start : line_end if line_end >= 0 else len(text)]
        width = max(1, min(end, line_start + len(line)) - start)
        super().__init__(f"{problem}\n  {line}\n  {' ' * (start - line_start)}{'^' * width}")
        self.problem, self.span = problem, (start, end)


class DefinitionWarning(UserWarning):
    """A valid join that may not do what was meant; issued when it is defined."""


class PredicateError(WatersmeetError, RuntimeError):
    """A predicate raised while a batch ran; the batch was not written."""


class StateError(WatersmeetError, RuntimeError):
    """The state is missing, damaged, in use by another run, or closed for good."""
