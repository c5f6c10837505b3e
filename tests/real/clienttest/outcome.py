"""What the user of a client library saw, and what the user was meant to see."""

from dataclasses import dataclass

from .fleet import REPLY_TOKENS, TOKEN_BYTES


@dataclass
class Outcome:
    """One call as its caller saw it."""

    # The text that was handed over, whatever happened then.
    text: str = ""
    # Whether the library said that the reply is complete.
    finished: bool = False
    # The exception's class, or `response.failed` where the dialect has an event for it.
    error: str = ""
    status: int | None = None
    message: str = ""
    # HTTP requests the library sent for this one call; none: nobody counted.
    requests: int | None = 0
    seconds: float = 0.0
    # Bytes of white space at its ends that the client may have taken off the text.
    slack: int = 0

    def whole(self):
        """Complete by the library's word and by its length."""
        missing = REPLY_TOKENS * TOKEN_BYTES - len(self.text.encode())
        return self.finished and 0 <= missing <= self.slack

    def shown(self):
        status = f" {self.status}" if self.status else ""
        what = f"{self.error}{status} '{self.message[:60]}'" if self.error else "whole" if self.whole() else "NOT whole"
        sent = "" if self.requests is None else f", {self.requests} requests"
        return f"{what}{sent}, {self.seconds:.1f} s"


@dataclass
class Expect:
    """What must hold. `error` empty: a whole reply."""

    error: str = ""
    status: int | None = None
    # Must be in the message.
    says: str = ""
    requests: tuple = (1,)
    seconds: tuple = (0.0, 60.0)
    # Text is to have come before the error.
    some_text: bool = False

    def complaints(self, seen):
        """Why the outcome is not what was expected; empty: it is."""
        low, high = self.seconds
        text_ok = bool(seen.text) == self.some_text if self.error else seen.whole()
        checks = {
            f"error {seen.error or 'none'}, not {self.error or 'none'}": seen.error == self.error,
            f"status {seen.status}, not {self.status}": seen.status == self.status,
            f"message {seen.message!r} lacks {self.says!r}": self.says in seen.message,
            f"{seen.requests} requests, not {self.requests}": seen.requests in (None, *self.requests),
            f"{seen.seconds:.1f} s, not {low} to {high}": low <= seen.seconds <= high,
            f"text of {len(seen.text)} characters, finished {seen.finished}": text_ok,
            "finished although it failed": not (self.error and seen.finished),
        }
        return [complaint for complaint, holds in checks.items() if not holds]
