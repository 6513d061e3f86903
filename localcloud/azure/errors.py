# SPDX-License-Identifier: Apache-2.0
"""How Azure refuses something."""


class AzureError(Exception):
    """An answer with an error: HTTP status, Azure's code, and a message for people."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        """As azure-native shows it to a user."""
        return f'Status={self.status} Code="{self.code}" Message="{self.message}"'


class AnswerLost(Exception):
    """The connection ended before an answer was there; the text is the client's."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f'{method} "{path}": unexpected EOF')


def not_found(id: str) -> AzureError:
    """Resource Manager's answer for what is not there."""
    segments = id.strip("/").split("/")
    if len(segments) == 4 and segments[2].lower() == "resourcegroups":
        return AzureError(404, "ResourceGroupNotFound", f"Resource group '{segments[3]}' could not be found.")
    return AzureError(404, "ResourceNotFound", f"The Resource '{id}' was not found.")
