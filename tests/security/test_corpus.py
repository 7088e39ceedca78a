"""The corpus itself: what it says of its texts holds."""

import pytest

from corpus import MARKUP, ORDINARY, SECRETS, STEERING, Secret, steering_in


@pytest.mark.parametrize(
    "payload", [text for name, text in STEERING.items() if name != "markup of rich"], ids=ascii
)
def test_what_steers_is_seen(payload: str) -> None:
    assert steering_in(payload, keep="")


@pytest.mark.parametrize("text", [*ORDINARY, "grün, 日本, 🙂"], ids=ascii)
def test_what_steers_nothing_is_seen_as_such(text: str) -> None:
    assert steering_in(text) == set()


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_a_text_with_a_secret_has_it(secret: Secret) -> None:
    assert secret.secret in secret.text


def test_no_text_is_there_twice() -> None:
    for texts in (
        list(STEERING.values()),
        list(MARKUP),
        list(ORDINARY),
        [secret.text for secret in SECRETS],
    ):
        assert len(set(texts)) == len(texts)
