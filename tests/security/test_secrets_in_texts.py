"""Attempts to have a secret shown through the text of an error, a log line or a traceback."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus import ORDINARY, SECRET, SECRETS, Secret
from effort import effort
from redrive import ConfigurationError, redaction
from redrive.failures.message.cause import Cause, masked
from redrive.redaction import add_pattern, redact, redact_kinds, redact_kinds_named

WORDS_OF_RULES = [
    *(
        "password",
        "pwd",
        "_pass",
        "secret",
        "token",
        "signature",
        "api_key",
        "key",
        "Authorization",
        "Cookie",
        "Bearer ",
        "Basic ",
    ),
    *(
        "=",
        ":",
        ": ",
        "=>",
        "'",
        '"',
        "\\",
        '\\"',
        "://",
        "http://",
        "@",
        "/",
        "?",
        "&",
        "#",
        "--",
        "<",
        ">",
        "</",
        ";",
        ",",
        ")",
        "***",
    ),
    *(
        "a",
        "A1b2C3d4",
        "eyJa.",
        "x-oauth",
        "ghp_",
        " ",
        "\n",
        "u",
        "None",
        "b'",
        "-----BEGIN PRIVATE KEY-----",
        "digest ",
        "(",
        "]",
        "pass",
        "'pass'",
        "pin",
        "csrf",
        "sig=",
        "credential",
        "session_id",
        "jsessionid",
        "auth",
        "auth=('u', '",
        "curl",
        "mysql",
        "login",
        " -u ",
        " -p",
        "jdbc:oracle:thin:",
        "{",
        "}",
        "response=",
        "SG.",
        "4111 1111 1111 1111",
    ),
]


@pytest.fixture
def patterns_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_own", ())
    monkeypatch.setattr(redaction, "_kinds", frozenset())


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_a_secret_is_taken_out(secret: Secret) -> None:
    assert secret.secret not in redact(secret.text)


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_what_stands_before_and_after_a_secret_stays(secret: Secret) -> None:
    redacted = redact(f"the charge of order 17 failed: {secret.text}\nsee the log of host-3")
    assert redacted.startswith("the charge of order 17 failed: ")
    assert redacted.endswith("\nsee the log of host-3")
    assert secret.secret not in redacted


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.shape)
def test_taking_a_secret_out_again_changes_nothing(secret: Secret) -> None:
    assert redact(redact(secret.text)) == redact(secret.text)


@pytest.mark.parametrize("text", ORDINARY)
def test_an_error_of_every_day_stays_as_it_is_and_in_its_group(text: str) -> None:
    assert redact(text) == text
    assert (
        Cause("ValueError", masked(redact(text)), "").group_id
        == Cause("ValueError", masked(text), "").group_id
    )


@given(st.lists(st.sampled_from(WORDS_OF_RULES), max_size=16).map("".join))
def test_no_text_makes_redacting_raise_or_differ_the_second_time(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "piece",
    [
        *(word for word in WORDS_OF_RULES if word.strip()),
        *(
            "password",
            "password=",
            "password='",
            'password="',
            "password: ",
            "'password': '",
            "token: ab1 ",
            '"token":"',
            "token=)",
        ),
        *(
            "a://b:",
            "a://b:c/",
            "://:@",
            "https://x@",
            "x@y:z/",
            "?token=",
            "&a.token",
            "&aaaa-",
            "--a-",
            "--password ",
            "<token>",
            "<token ",
        ),
        *(
            "authorization: ",
            "authorization: bearer ",
            "authorization: digest ",
            "cookie: a=b;",
            "cookie=a;",
            "eyJa",
            "sk-proj-",
            "SG.a",
        ),
        *(
            "password=,,",
            "password=a,",
            "password\\\\\\",
            "hooks.slack.com/services/",
            "-----BEGIN ",
            "password    ",
            "İpassword=",
        ),
        *(
            "://a:b\n",
            "://a:b ",
            "jdbc:oracle:thin:a/",
            "userid=a/",
            "sqlplus -a ",
            "digest a=",
            "digest a=\n ",
            "jsessionid=",
            "session_id: ",
            "_session=a1b2c3d4e5f6g7h8",
            "password={a1",
            "secret_key_fallbacks=['a',",
            "token 'a1b2c3d4",
            "identified by '",
            "'pass': '",
            "pass=a1b2",
            "csrf=a1",
            "credentials: ",
            "otp=1",
            "pin: 1234 ",
            "cvv=12",
            "auth=('a','",
            "auth=(a,",
            "'auth': \"a1+/",
            "sig=a1b2c3d4&",
            ".login(a,'",
            "curl -u ",
            "curl -u a:",
            "-u a:1",
            "mysql -",
            "mysql -p",
            "login -p ",
            "mongo -p a",
            "add_user a ",
            "-pA1b",
            "-passin pass:",
            "SG.a1",
            "4111 ",
            "4111-1111-1111-1112 ",
            "DE89 3704 ",
            "DE89",
        ),
    ],
)
def test_a_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    # What takes time by the square of the length takes hours here: each of so many characters is
    # looked at as many times.
    text = (
        piece * (effort(30_000, nightly=200_000) // len(piece))
        + f"\n amqp://guest:{SECRET}@localhost/"
    )
    assert SECRET not in redact(text)


def test_a_letter_that_is_longer_in_lower_case_does_not_move_what_is_taken_out() -> None:
    assert redact(f"İİİ password={SECRET} İ") == "İİİ password=*** İ"


@pytest.mark.usefixtures("patterns_of_its_own")
class TestPatternsOfAProgram:
    def test_what_it_matches_is_taken_out(self) -> None:
        add_pattern(r"\b\d{4}(-\d{4}){3}\b")
        assert redact("the card 4111-1111-1111-1111 was refused") == "the card *** was refused"

    def test_with_a_group_named_secret_only_that_is_taken_out(self) -> None:
        add_pattern(re.compile(r"card (?P<secret>\d+)(?P<rest>;?)"))
        assert redact("card 4111; card 5500;") == "card ***; card ***;"

    def test_a_group_named_secret_that_took_no_part_leaves_the_text(self) -> None:
        add_pattern(r"card|pin (?P<secret>\d+)")
        assert redact("card, pin 17") == "card, pin ***"

    def test_it_holds_for_errors(self) -> None:
        add_pattern(r"tenant-\w+")
        assert "acme" not in str(ConfigurationError("no plan for tenant-acme"))

    @pytest.mark.parametrize("pattern", ["(", "a*", "", "(?=x)|"])
    def test_one_that_can_not_work_is_refused(self, pattern: str) -> None:
        with pytest.raises(ValueError, match="the pattern '"):
            add_pattern(pattern)
        assert redact("a text") == "a text"


CARDS = (
    "4111111111111111",
    "4111 1111 1111 1111",
    "5500-0055-5555-5559",
    "3782 822463 10005",
    "30569309025904",
    "6304000000000000",
    "4222222222222",
    "6212345678900000003",
)
IBANS = (
    "DE89370400440532013000",
    "DE89 3704 0044 0532 0130 00",
    "GB29 NWBK 6016 1331 9268 19",
    "NO93 8601 1117 947",
    "MT84MALT011000012345MTLCAST001S",
    "de89370400440532013000",
)
NO_NUMBERS = (
    "4111111111111112",
    "4111 1111 1111 1112",
    "1718035200000, 1718035200003",
    "0.4111111111111111",
    "4111111111111111.5",
    "id4111111111111111",
    "4111111111111111abc",
    "2 4 6 8 1 3 5 7 9 2 4 6 8 0, 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    "2026-10-01 12:30:00 order 17 of 4711 failed at 10.0.0.1:5672",
    "550e8400-e29b-41d4-a716-446655440000",
    "DE89370400440532013001",
    "DE89 is not valid, nor is AB12 CDEF",
    "XDE89370400440532013000",
)


@pytest.mark.usefixtures("patterns_of_its_own")
class TestKinds:
    @pytest.mark.parametrize("card", CARDS)
    def test_a_card_number_is_taken_out(self, card: str) -> None:
        redact_kinds("card")
        assert redact(f"order 17: card {card}, refused") == "order 17: card ***, refused"

    def test_a_card_number_among_other_numbers_is_taken_out(self) -> None:
        redact_kinds("card")
        assert redact("17 4111 1111 1111 1111 1230") == "17 *** 1230"

    @pytest.mark.parametrize("iban", IBANS)
    def test_an_iban_is_taken_out(self, iban: str) -> None:
        redact_kinds("iban")
        assert redact(f"IBAN {iban} is unknown") == "IBAN *** is unknown"

    def test_an_iban_before_words_in_capitals_is_taken_out_alone(self) -> None:
        redact_kinds("iban")
        assert redact("DE89 3704 0044 0532 0130 00 IS UNKNOWN") == "*** IS UNKNOWN"

    @pytest.mark.parametrize("text", NO_NUMBERS)
    def test_a_number_whose_check_fails_stays(self, text: str) -> None:
        redact_kinds("card", "iban")
        assert redact(text) == text

    @pytest.mark.parametrize("number", [*CARDS, *IBANS])
    def test_a_number_of_a_kind_that_nobody_asked_for_stays(self, number: str) -> None:
        assert redact(number) == number

    @pytest.mark.parametrize("text", ORDINARY[:-1])
    def test_an_error_of_every_day_stays_as_it_is(self, text: str) -> None:
        redact_kinds("card", "iban", "jwt")
        assert redact(text) == text

    @given(st.text("4 1-D8E9.\u00a0", max_size=60))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_taking_numbers_out_again_changes_nothing(self, text: str) -> None:
        redact_kinds("card", "iban")
        assert redact(redact(text)) == redact(text)

    @pytest.mark.timeout(180)
    @pytest.mark.parametrize(
        "piece", ["4", "4 ", "4111 ", "4111-", "4-", "DE89", "DE89 ", "D", "a4"]
    )
    def test_a_hostile_text_takes_time_in_proportion_to_its_length(self, piece: str) -> None:
        redact_kinds("card", "iban")
        text = piece * (effort(30_000, nightly=200_000) // len(piece))
        assert redact(f"{text}\n{CARDS[0]}").endswith("\n***")

    def test_naming_kinds_again_changes_nothing(self) -> None:
        redact_kinds("card")
        redact_kinds("card")
        redact_kinds()
        assert redact(f"{CARDS[0]} {IBANS[0]}") == f"*** {IBANS[0]}"

    def test_a_jwt_is_taken_out_whether_or_not_it_is_named(self) -> None:
        jwt = next(secret.text for secret in SECRETS if secret.shape == "JWT")
        before = redact(jwt)
        redact_kinds("jwt")
        assert redact(jwt) == before

    def test_a_kind_that_there_is_not_is_refused_and_none_is_taken(self) -> None:
        with pytest.raises(
            ValueError, match="'cards' is not a kind of secret; use one of card, iban, jwt"
        ):
            redact_kinds("iban", "cards")  # type: ignore[arg-type]
        assert redact(IBANS[0]) == IBANS[0]

    def test_a_text_names_kinds_with_commas_between_them(self) -> None:
        redact_kinds_named(" card, iban,")
        assert redact(f"{CARDS[0]} {IBANS[0]}") == "*** ***"

    def test_an_empty_text_names_none(self) -> None:
        redact_kinds_named("")
        assert redact(CARDS[0]) == CARDS[0]


@pytest.fixture(autouse=True)
def _no_pattern_stays() -> Iterator[None]:
    before = redaction._own, redaction._kinds
    yield
    assert before == (redaction._own, redaction._kinds)
