"""What pages share."""

import pytest

from redrive.web.context import local_path


@pytest.mark.parametrize("path", ["/", "/causes?queue=a%26b", "/message?id=1&view=hex"])
def test_a_path_of_the_console_is_gone_back_to(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "causes",
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nset-cookie: x",
        "\t//evil.example",
    ],
)
def test_any_other_address_is_not(path: str) -> None:
    assert local_path(path) == "/"
