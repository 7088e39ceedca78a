"""Errors that a broker sends to clients: a reply code and its text."""

NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED, ACCESS_REFUSED = 404, 405, 406, 403
FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, NOT_ALLOWED, NOT_IMPLEMENTED = 501, 502, 503, 530, 540

_NAMES = {
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
}


class RefusedByModel(Exception):
    """Raised when a client's request is refused."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(code, words)
        self.code = code
        self.text = f"{_NAMES[code]} - {words}"

    @property
    def ends_connection(self) -> bool:
        """Whether the error closes the connection rather than just the channel. Source: AMQP 0-9-1,
        1.2 (reply codes)."""
        return self.code >= FRAME_ERROR
