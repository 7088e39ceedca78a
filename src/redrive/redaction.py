"""Make text safe to show: remove secrets and control characters.

Errors, log lines, traces and failure headers all pass through `redact`. A password in a URL is
always removed. Beyond URLs it is a best effort: values that are named as secrets (`password=…`,
`"api_key": "…"`, `Authorization: …`) or have the shape of one (a JWT, a private key). A program
adds secrets of other shapes with `add_pattern`, and has card and bank account numbers removed with
`redact_kinds`. Messages may contain anything: `printable`, `in_one_line` and `printable_json`
escape characters that would steer a terminal or forge a log line.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple, cast, get_args

HIDDEN = "***"
"""Replaces a secret."""

_PASSES = 4
"""Maximum number of passes over a text: removing one secret may reveal another."""


class _Rule:
    """One kind of secret.

    A pattern is tried only where one of its words occurs, and how far it reads from there is
    bounded or ends where the next match begins. So the time is proportional to the text's length,
    however hostile the text is. Groups are atomic, `(?>(?:…)?)`, and not possessive, `(?:…)?+`,
    which Python before 3.11.5 gets wrong: it goes on after what the group matched in vain. Source:
    https://github.com/python/cpython/issues/106052, and measured on the 3.11.2 of Debian 12. A
    pattern is compiled when one of its words is first found: compiling all
    patterns would take a fifth of the time of a short command.
    """

    def __init__(self, words: str, pattern: str) -> None:
        self.words = frozenset(words.split())
        self._in_order = words.split()
        self._pattern = pattern

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self._pattern, re.IGNORECASE)

    @cached_property
    def any_word(self) -> re.Pattern[str]:
        """A pattern that finds any of the words."""
        return re.compile("|".join(map(re.escape, self._in_order)))


# --- names and shapes of secrets --------------------------------------------------------------

_KEY_KINDS = [
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "account",
    "auth",
    "master",
    "shared",
    "subscription",
]
"""A key is secret if one of these precedes it: `api_key` is, `routing_key` is not."""
_KEYS = "|".join(f"{kind}{between}key" for kind in _KEY_KINDS for between in ("", "-", "_", " "))
_STRONG = (
    "(?:(?:password|passwd|passphrase|passcode|(?<![a-z])pwd(?!=/)|(?<=[_-])pass|secret|"
    rf"(?<![a-z])app[_-]?key|{_KEYS})(?>(?:\d{{1,2}}+|[_-](?:base|salt|old|new|previous|current|value|"
    r"confirm(?:ation)?|\d{1,2}+)(?![a-z\d_-]))?))"
)
"""Names of values that are always secret, with the endings such names can have."""
_WEAK = r"(?:token|signature)"
"""Names of values that are secret in settings, but mean other things in sentences: `unexpected
token: '}'`."""
_NAME = rf"(?:{_STRONG}|{_WEAK})"
_STRONG_WORDS = " ".join(
    ("password passwd passphrase passcode pwd pass secret app_key app-key appkey", *_KEY_KINDS)
)
_WEAK_WORDS = "token signature"
_WORDS = f"{_STRONG_WORDS} {_WEAK_WORDS}"
_ENDS_AS_NAME = "|".join(
    f"(?<={end})"
    for end in f"password passwd passphrase passcode pwd _pass -pass secret {_WEAK_WORDS}".split()
)
_ENDS_AS_NAME = rf"(?:{_ENDS_AS_NAME}|{'|'.join(f'(?<={key})' for key in _KEYS.split('|'))})"

_NOTHING = r"(?!\*\*\*|(?:None|null|nil|true|false|undefined)(?:[\s,;&)}\]]|$))"
_BARE = r"""(?>(?:[^\s'"&,;<>(){}\[\]\\]|,(?![\s,]|\w{1,40}=|$)|[)}\]](?=[\w!@#$%^*]))+)"""
"""A value without quotes; it may contain brackets and commas only in its middle."""
_QUOTE = r"""[bruf]{0,2}\\{0,8}["']"""
_IN_QUOTES = (
    r"""(?:(?<=\\["'])[^"'\\\n]++|(?<=")(?>(?:[^"\\\n]|\\.)+)|(?<=')(?>(?:[^'\\\n]|\\.)+))"""
)
"""A value after its opening quote, up to the closing quote or the end of the line."""
_VALUE = rf"""(?:{_IN_QUOTES}|(?<!["'])(?!{_QUOTE}){_NOTHING}{_BARE})"""
_SECRET_LOOKS = r"""(?=[^\s'",;<>()]{4})(?=[^\s'",;<>()]{0,64}[\d!@#$%^*+=~]|[^\s'",;<>()]{20})"""
"""A value that is not a word of a sentence."""
_RANDOM_LOOKS = r"""(?=[^\s'",;<>()]{8})(?=[^\s'",;<>()]{0,64}\d)(?=[^\s'",;<>()]{0,64}[a-z])"""
_CODE = r"(?=\d{4,12}(?![\w.:/-]))"
"""Digits of a code that somebody types, not a version or a time."""
_SAYS = r"""(?>(?:\\{0,8}["']\]?)?)[ \t]*+(?:=>|=(?!=)|:)[ \t]*+"""
"""Separator between a name and its value in settings of all kinds."""

_TELLS = r"""\\{0,8}["']?[ \t]*+(?:=>|[:=,])[ \t]*+b?\\{0,8}["']?"""
"""Separator between a header and its value, in plain text, JSON, dicts and lists of pairs."""
_ONE_PART = "bearer|basic|token|api-?key|negotiate|ntlm"
_MANY_PARTS = r"digest|oauth|hawk|signature|aws4-[\w-]{1,40}"
_COOKIE = r"""[\w.!#$%&*+^`|~-]{1,100}+=[^;\s"',\\]*+"""
_STRING = r"""b?\\{0,8}["'][^"'\\\n]{0,200}+\\{0,8}["']"""
_IN_COMMAND = r"""\b[^\n|;]{0,400}?[\s"']"""
"""From a command to one of its options."""
_NEXT = r"""(?:["'],[ \t]*+|[ \t]++|=)(?>(?P<quote>["'])?)"""
"""Separator between an option and its argument, in a shell line or in a list."""
_ARGUMENT = r"""(?!\*\*\*)(?(quote)[^"'\n]++|[^\s"',\]]++)"""
_PORT = r"""(?!\d{1,5}(?::\d|[\s"',;)]|$))"""

_RULES = (
    _Rule(
        "-----begin",
        r"(?P<kept>-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----)[\s\S]+?"
        r"(?:(?=-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----)|\Z)",
    ),
    # A password may contain anything but white space and a slash, even an @, and so may a user
    # name.
    _Rule("://", r"(?P<kept>://[^\s:/]*+:)[^\s/]*(?=@)"),
    # It may contain a slash if the part before the slash is not a port.
    _Rule(
        "://",
        r"(?P<kept>://[^\s:/@\[\]]{0,64}+:)(?!\d{1,5}/|\*\*\*)[^\s/@]{1,64}+/[^\s@]{0,128}+(?=@)",
    ),
    # A URL has no white space, but one read from a file may contain a line break, or a space.
    _Rule(
        "://",
        r"""(?P<kept>://[^\s:/@\[\]]{0,64}+:)(?!\d{1,5}[,;.)\]'"]{0,3}\s|\*\*\*)"""
        r"(?:[^\s/@]{0,64}+(?>(?:[\r\n\t]{1,4}+[^\s/@]{0,64}+){1,4})|[^\s/@]{1,64}+ [^\s/@]{0,64}+)"
        r"(?=@)",
    ),
    _Rule(
        "jdbc:oracle: sqlplus sqlldr impdp expdp userid=",
        r"""(?P<kept>(?:jdbc:oracle:\w{1,10}+:|userid=["']?|\b(?:sqlplus|sqlldr|impdp|expdp)\b"""
        r"""["']?(?>(?:,?[ \t]++["']?-\w{1,20}+["']?){0,4}),?[ \t]++["']?)[^\s:/@"']{1,64}+/)"""
        r"""(?:"[^"\n]{1,128}+"|[^\s"']{1,256})(?=@)""",
    ),
    # A user without a password in an HTTP URL is usually a token.
    _Rule("://", r"(?P<kept>(?:(?<=http)|(?<=https))://)[^\s:/@?#]++(?=@)"),
    _Rule(
        "hooks.slack.com/ discord.com/api discordapp.com/api api.telegram.org/bot "
        ".office.com/webhook",
        r"(?P<kept>hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|"
        r"api\.telegram\.org/bot|\.office\.com/webhook(?:b2)?/)(?!/)[^\s\"'<>]++",
    ),
    _Rule(
        "? & #",
        rf"(?P<kept>[?&#][\w.-]{{1,80}}+(?:{_ENDS_AS_NAME}|(?<=credential)|(?<=[?&#]sig)|(?<=[?&#]key)|(?<=[?&#]auth))=)[^&\s'\"]++",
    ),
    # --- named as a header
    _Rule(
        "authorization",
        rf"(?P<kept>authorization{_TELLS}(?:{_MANY_PARTS})[ \t]++)"
        r"(?>(?:,[ \t]{0,8}+\r?\n[ \t]|[^\n'}])+)",
    ),
    _Rule(
        "authorization", rf"""(?P<kept>authorization{_TELLS}(?:{_ONE_PART})[ \t]++)[^\s"'\\,;]++"""
    ),
    _Rule(
        "authorization",
        rf"""(?P<kept>authorization{_TELLS})(?!{_MANY_PARTS}|{_ONE_PART}){_NOTHING}{_SECRET_LOOKS}[^\s"'\\,;]++""",
    ),
    _Rule(
        "bearer",
        r"(?P<kept>\bbearer[ \t]++)(?=[\w.~+/=-]{8})"
        r"(?=[\w.~+/=-]{0,64}\d|[\w.~+/=-]{20})[\w.~+/=-]++",
    ),
    _Rule(
        "basic",
        r"(?P<kept>\bbasic[ \t]++)(?:[a-z0-9+/]{6,}+={1,2}|(?=[a-z+/]{0,64}\d)[a-z0-9+/]{20,}+)",
    ),
    _Rule(
        "digest",
        r"(?P<kept>\bdigest[ \t]++(?=[a-z]{1,20}=)(?:[^\n]|\n[ \t]){0,1000}?\bresponse="
        rf"""(?:\\{{0,8}}["'])?)(?:(?<=["'])|{_RANDOM_LOOKS})(?!\*\*\*)[^\s"',\\]++""",
    ),
    _Rule("cookie", rf"(?P<kept>cookie{_TELLS}){_COOKIE}(?>(?:;[ \t]*+{_COOKIE})*)"),
    _Rule(
        "jsessionid phpsessid aspsessionid net_sessionid connect.sid sessid",
        r"(?P<kept>(?:(?:j|php)sess(?:ion)?id|aspsessionid[a-z]{0,20}+|net_sessionid|connect\.sid|"
        rf"sessid){_SAYS}(?:{_QUOTE})?){_VALUE}",
    ),
    _Rule(
        "sessionid session_id session-id _session=",
        rf"(?P<kept>(?:session[_-]?id{_SAYS}|_session=(?=[^\s'\",;<>()]{{16}}))(?:{_QUOTE})?)"
        rf"{_RANDOM_LOOKS}{_VALUE}",
    ),
    # --- named as a secret
    _Rule(
        _WORDS,
        rf"""(?P<kept>{_NAME}(?:\\{{0,8}}["']\]?[ \t]*+(?:=>|[:=])|[ \t]*+=(?!=)>?)[ \t]*+"""
        rf"(?:{_QUOTE})?){_VALUE}",
    ),
    _Rule(
        _STRONG_WORDS,
        rf"(?P<kept>{_STRONG}[ \t]*+:[ \t]*+(?:{_QUOTE})?)"
        rf"""(?:{_IN_QUOTES}|(?<!["']){_SECRET_LOOKS}{_VALUE})""",
    ),
    # SQL Server puts braces around a password; a template puts braces around a variable's name.
    _Rule(
        "password pwd",
        r"(?P<kept>(?:password|pwd)[ \t]*+=[ \t]*+\{)(?=[^\s{}\[('\"]{0,64}[\d!@#$%^*+=~;])"
        r"[^{}\n]{1,200}+(?=\})",
    ),
    _Rule(
        "secret_key_fallbacks",
        rf"(?P<kept>secret_key_fallbacks{_SAYS}[\[(]\s{{0,8}}+)(?!['\"]\*\*\*)"
        rf"{_STRING}(?>(?:,\s{{0,8}}+{_STRING}){{0,16}})",
    ),
    _Rule(
        "password passwd passphrase passcode pwd identified",
        r"(?P<kept>(?:password|passwd|passphrase|passcode|(?<![a-z])pwd|identified[ \t]++by)[ \t]++"
        rf"{_QUOTE}){_SECRET_LOOKS}{_IN_QUOTES}",
    ),
    # Parsers report other kinds of expected tokens, and a quoted key may be the name of a key file.
    _Rule(
        f"token {' '.join(_KEY_KINDS)}",
        rf"(?P<kept>(?:(?<!expected )token|{_KEYS})[ \t]++{_QUOTE})(?![\w-]{{1,64}}\.[a-z])"
        rf"{_RANDOM_LOOKS}{_IN_QUOTES}",
    ),
    _Rule(_WEAK_WORDS, rf"(?P<kept>{_WEAK}[ \t]*+:[ \t]*+(?:{_QUOTE})?){_RANDOM_LOOKS}{_VALUE}"),
    # --- secret by name and shape together
    _Rule(
        "pass",
        rf"""(?P<kept>(?<=["'])pass{_SAYS}{_QUOTE})"""
        rf"""(?![\d.%/]{{1,9}}["']|(?:yes|no|ok|true|false)["']){_IN_QUOTES}""",
    ),
    _Rule(
        "pass",
        rf"(?P<kept>(?<![a-z])pass[ \t]*+(?:=>?(?!=)[ \t]*+(?:{_QUOTE})?|:[ \t]*+{_QUOTE}))"
        rf"(?=[^\s'\",;<>()]{{0,64}}[a-z]){_SECRET_LOOKS}{_VALUE}",
    ),
    _Rule(
        "csrf xsrf",
        rf"(?P<kept>[cx]srf{_SAYS}(?:{_QUOTE})?)"
        rf"(?:{_RANDOM_LOOKS}|(?=[^\s'\",;<>()]{{20}})){_VALUE}",
    ),
    _Rule(
        "credential",
        rf"(?P<kept>credentials?+{_SAYS}(?:{_QUOTE})?)(?![/.~]){_RANDOM_LOOKS}{_VALUE}",
    ),
    _Rule(
        "totp hotp otp pin mfa 2fa",
        rf"(?P<kept>(?<![a-z])(?:[th]?otp|pin|mfa|2fa)(?>(?:[_ -]?code)?){_SAYS}(?:{_QUOTE})?)"
        rf"(?!\d{{1,9}}+[.-]|otp-)(?:{_RANDOM_LOOKS}|{_CODE}){_VALUE}",
    ),
    _Rule(
        "cvv cvc",
        rf"(?P<kept>(?<![a-z])cv[vc]2?+{_SAYS}(?:{_QUOTE})?)\d{{3,4}}+(?![\w.:/-])",
    ),
    _Rule(
        "auth",
        rf"(?P<kept>(?<![a-z])auth{_SAYS}(?:{_QUOTE})?)"
        r"(?:[a-z\d+/]{8,}+={1,2}+|(?=[a-z+/]{0,64}\d)[a-z\d+/]{20,}+)(?![\w(.-])",
    ),
    _Rule(
        "sig=",
        rf"(?P<kept>(?<![\w-])sig=)(?:(?=[^\s&]{{8,200}}+&[a-z]{{2,3}}=)|(?=[^\s&]{{20}}){_RANDOM_LOOKS})"
        r"[^&\s'\"]++",
    ),
    # --- a user and a password in Python code
    _Rule(
        "auth credentials( .login(",
        rf"(?P<kept>(?:(?:(?<![a-z_])|(?<=basic_)|(?<=http_)|(?<=proxy_)|(?<=digest_))auth{_SAYS}(?:\(|\[(?=[^,\n]{{1,100}}+,\s{{0,8}}+{_QUOTE}{_SECRET_LOOKS}))|"
        r"(?:(?<=basic)|(?<=digest)|(?<=proxy)|(?<=ntlm))auth\(|(?<=plain)credentials\(|\.login\()"
        rf"\s{{0,8}}+(?>(?:\w{{1,20}}+[ \t]*+=[ \t]*+)?)(?:{_STRING}|[\w.]{{1,80}}+),\s{{0,8}}+"
        rf"""{_QUOTE})(?=[^"'\n]{{1,200}}["'],?\s{{0,8}}+[)\],]){_IN_QUOTES}""",
    ),
    # --- arguments of commands
    _Rule(
        "curl",
        rf"(?P<kept>\bcurl{_IN_COMMAND}(?:-[a-z]{{0,6}}u|--(?:proxy-)?user)"
        rf"(?:{_NEXT}|)(?!-)[^\s:\"']{{0,64}}+:){_ARGUMENT}",
    ),
    _Rule(
        "-u -a --user --auth --proxy-user --proxy-auth --basic-auth",
        r"(?P<kept>(?<![\w-])-(?:[ua]|-user|-auth|-proxy-user|-proxy-auth|-basic-auth)"
        rf"{_NEXT}[\w.@+%-]{{1,64}}+:)(?!\d{{1,12}}+(?:[\s\"',\]]|$)|[/\\]){_SECRET_LOOKS}{_ARGUMENT}",
    ),
    _Rule(
        "mysql mariadb sshpass",
        rf"(?P<kept>\b(?:mysql|mariadb|sshpass)[\w-]{{0,12}}+{_IN_COMMAND}(?-i:-p)(?>(?P<quote>[\"'])?))"
        rf"(?!(?:ort|assword|rotocol|ipe|lugin[\w-]*+)\b|-)(?!\d{{1,5}}:\d){_ARGUMENT}",
    ),
    _Rule(
        "sshpass rabbitmqadmin mongo redis-cli ldap sqlcmd login",
        rf"(?P<kept>\b(?:(?:sshpass|rabbitmqadmin|mongo\w{{0,12}}+|login){_IN_COMMAND}(?-i:-p)|"
        rf"redis-cli{_IN_COMMAND}(?-i:-a)|ldap\w{{1,12}}+{_IN_COMMAND}(?-i:-w)|"
        rf"sqlcmd{_IN_COMMAND}(?-i:-P)){_NEXT}){_PORT}(?!-){_SECRET_LOOKS}{_ARGUMENT}",
    ),
    _Rule(
        "add_user change_password authenticate_user",
        rf"(?P<kept>\b(?:add_user|change_password|authenticate_user)(?:[\"'],[ \t]*+|[ \t]++)[\"']?"
        rf"[\w.@-]{{1,64}}+{_NEXT}){_SECRET_LOOKS}{_ARGUMENT}",
    ),
    _Rule(
        "-p",
        rf"(?P<kept>(?<![\w-])(?-i:-p)(?>(?P<quote>[\"'])?)){_PORT}{_RANDOM_LOOKS}"
        r"(?-i:(?=[^\s'\",;<>()]{0,64}[A-Z])(?=[^\s'\",;<>()]{0,64}[a-z]))"
        rf"{_ARGUMENT}",
    ),
    _Rule(
        "-pass -storepass -keypass -srcstorepass -deststorepass",
        r"(?P<kept>(?<![\w-])-(?:pass(?:in|out)?|password|(?:src|dest)?storepass|keypass)"
        rf"{_NEXT}(?>(?:pass:)?))(?!-|(?:file|env|fd):){_SECRET_LOOKS}{_ARGUMENT}",
    ),
    _Rule(
        "--",
        rf"(?P<kept>(?<![\w-])--[\w-]{{1,80}}+{_ENDS_AS_NAME}[ \t]++)"
        rf"{_NOTHING}(?!-){_SECRET_LOOKS}[^\s\"',\]]++",
    ),
    _Rule(
        "--",
        rf"""(?P<kept>(?<![\w-])--[\w-]{{1,80}}+{_ENDS_AS_NAME}["'],[ \t]*+["'])(?!-)[^"'\n]++""",
    ),
    _Rule(
        "<",
        rf"(?P<kept><[\w:.-]{{1,80}}+{_ENDS_AS_NAME}(?:[ \t][^<>\n]{{0,100}}+)?>)"
        r"[^<\n]{1,1000}+(?=</)",
    ),
    # --- secret by shape alone
    _Rule("eyj", r"(?<![\w-])eyJ[\w-]++\.[\w-]++(?:\.[\w-]*+){1,3}"),
    _Rule(
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox sk_ rk_ aiza npm_ hvs. sg. sk-",
        r"(?<![a-z0-9])(?:gh[pousr]_[a-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|[sr]k_(?:live|test)_\w{10,}|"
        r"AIza[\w-]{35}|npm_[a-z0-9]{36}|hvs\.[\w-]{20,}|(?-i:SG)\.(?=[\w.-]{0,100}\d)[\w-]{8,}\.[\w-]{8,}|sk-(?:proj|ant)-[\w-]{20,})",
    ),
)
"""Applied in this order."""

_ALL_WORDS = tuple(frozenset[str]().union(*(rule.words for rule in _RULES)))

_own: tuple[re.Pattern[str], ...] = ()
"""Patterns registered with `add_pattern`."""

# --- numbers with check digits -------------------------------------------------------------------

Kind = Literal["card", "iban", "jwt"]
"""The kinds of numbers that `redact_kinds` accepts."""

KINDS_VARIABLE = "REDRIVE_REDACT"
"""Environment variable that lists kinds, separated by commas."""

_BETWEEN = r"[ \-\u00a0]"


class _Number(NamedTuple):
    """A number with check digits.

    Args:
        pattern: finds the longest text that may be such a number, from a given beginning.
        least: the minimum number of letters and digits.
        is_one: checks whether a text of that shape is such a number.
    """

    pattern: str
    least: int
    is_one: Callable[[str], bool]


def _is_card(text: str) -> bool:
    """Return whether Luhn's check holds, and only the last group has fewer than three digits."""
    groups = re.split(_BETWEEN, text)
    doubled = "".join(groups)[-2::-2]
    total = sum(map(int, "".join(groups)[::-2])) + sum(sum(divmod(int(d) * 2, 10)) for d in doubled)
    return total % 10 == 0 and all(len(group) > 2 for group in groups[:-1])


def _is_iban(text: str) -> bool:
    """Return whether the remainder modulo 97 is 1."""
    account = re.sub(_BETWEEN, "", text)
    return int("".join(str(int(one, 36)) for one in account[4:] + account[:4])) % 97 == 1


_NUMBERS: dict[Kind, _Number] = {
    "iban": _Number(
        r"(?<![^\W_])(?:[A-Z]{2}[0-9]{2}(?:[ \u00a0]?[A-Z0-9]){11,30}|"
        r"[A-Za-z]{2}[0-9]{2}[A-Za-z0-9]{11,30})",
        15,
        _is_iban,
    ),
    # No card number begins with 0, and those with 1 belong to airlines only: most 13-digit numbers
    # that begin with 1 are times in milliseconds.
    "card": _Number(rf"(?<![^\W_])(?<![0-9]\.)[2-9](?:{_BETWEEN}?[0-9]){{12,18}}", 13, _is_card),
}
"""Applied in this order: an IBAN may contain digits that look like a card number."""

_kinds: frozenset[str] = frozenset()
"""Kinds enabled with `redact_kinds`."""


def redact(text: str) -> str:
    """Return `text` with each secret replaced by `***`: always for passwords in URLs, elsewhere for
    values known to be secret by their name or shape."""
    for _ in range(_PASSES):
        redacted = _redacted_once(text)
        if redacted == text:
            break
        text = redacted
    return text


def add_pattern(pattern: str | re.Pattern[str]) -> None:
    """Make `redact` also remove what your own pattern matches, in this process from now on.

    The match becomes `***`; if the pattern has a group named `secret`, only that group does. Each
    error, log line and traceback is searched with it, after redrive's own rules, so a slow pattern
    slows down the handling of failures.

        redrive.redaction.add_pattern(r"card (?P<secret>\\d{16})")

    Args:
        pattern: a regular expression, as text or compiled.

    Raises:
        ValueError: it is not a valid regular expression, or it matches the empty text, and so
            everywhere.
    """
    global _own
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
    if compiled.search("") is not None:
        raise ValueError(
            f"the pattern {compiled.pattern!r} matches the empty text: use one that needs at "
            "least one character"
        )
    if compiled not in _own:
        _own = (*_own, compiled)


def redact_kinds(*kinds: Kind) -> None:
    """Make `redact` also remove numbers of these kinds, in this process from now on.

    `"card"` is a card number: 13 to 19 digits, optionally in groups, that pass Luhn's check.
    `"iban"` is a bank account number with correct check digits. A `"jwt"` is always removed.

        redrive.redaction.redact_kinds("card", "iban")

    Args:
        kinds: the kinds to remove.

    Raises:
        ValueError: there is no such kind.
    """
    global _kinds
    for kind in kinds:
        if kind not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise ValueError(f"{kind!r:.40} is not a kind of secret; use one of {known}")
    _kinds |= frozenset(kinds)


def redact_kinds_named(names: str) -> None:
    """Call `redact_kinds` with names from one text, as in `REDRIVE_REDACT`."""
    redact_kinds(*cast("list[Kind]", names.replace(",", " ").split()))


def printable(text: str) -> str:
    """Return `text` with characters escaped that would steer a terminal or hide something; line
    feeds and tabs stay."""
    return _UNUSUAL.sub(_escape_with(_as_python), text)


def text_of(text: str) -> str:
    """Return a message's short string as text that UTF-8 can encode; other bytes become `\\xff`."""
    return (
        text
        if text.isascii()
        else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    )


def in_one_line(text: str) -> str:
    """Return `text` as one line of printable characters."""
    return printable(" ".join(text.split()))


def printable_json(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON in which characters that would steer a terminal are escaped, and no
    others."""
    return _UNUSUAL.sub(
        _escape_with(json.dumps), json.dumps(value, indent=indent, ensure_ascii=False)
    )


_UNUSUAL = re.compile(r"[^ -~\n\t]")
"""Characters to check: most texts have few of them."""


def _escape_with(escape: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
    return lambda found: escape(found[0]).strip('"') if _steers(found[0]) else found[0]


def _as_python(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _steers(character: str) -> bool:
    """Return whether a character is not a letter, digit, sign or space, but a control, an invisible
    format, a line separator, a surrogate or a private one."""
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")


def _redacted_once(text: str) -> str:
    lowered = _lowered(text)
    there = {word for word in _ALL_WORDS if word in lowered}  # usually empty, and fast to check
    for rule in _RULES if there else ():
        if not there.isdisjoint(rule.words):
            redacted = _follow(rule, text, lowered)
            if redacted is not text:
                text, lowered = redacted, _lowered(redacted)
    for pattern in _own:
        text = pattern.sub(_secret_hidden, text)
    for kind, number in _NUMBERS.items() if _kinds else ():
        if kind in _kinds:
            text = _without(number, text)
    return text


def _without(number: _Number, text: str) -> str:
    """Remove each number of a kind that ends at the end of a group; from each start, the longest
    one."""
    pattern = re.compile(number.pattern)
    pieces: list[str] = []
    end = at = 0
    while (found := pattern.search(text, at)) is not None:
        at = found.start() + 1
        for stop in range(found.end(), found.start() + number.least - 1, -1):
            if _ends_at(stop, text) and number.is_one(text[found.start() : stop]):
                pieces += (text[end : found.start()], HIDDEN)
                end = at = stop
                break
    return "".join((*pieces, text[end:]))


def _ends_at(place: int, text: str) -> bool:
    """Return whether a group of letters and digits ends at `place` and isn't part of a decimal."""
    return text[place - 1].isalnum() and not re.match(r"[^\W_]|\.[0-9]", text[place : place + 2])


def _follow(rule: _Rule, text: str, lowered: str) -> str:
    """Remove what one rule finds; return the same `text` object if it finds nothing."""
    pieces: list[str] = []
    end = 0
    for word in rule.any_word.finditer(lowered):
        found = rule.pattern.match(text, word.start()) if word.start() >= end else None
        if found is not None:
            kept = found.end("kept") if "kept" in rule.pattern.groupindex else found.start()
            pieces += (text[end:kept], HIDDEN)
            end = found.end()
    return "".join((*pieces, text[end:])) if pieces else text


def _lowered(text: str) -> str:
    """Lowercase `text` with each letter at its place: `İ` would become two characters."""
    return text.replace("İ", "i").lower()


def _secret_hidden(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex:
        return HIDDEN
    begin, end = (place - found.start() for place in found.span("secret"))
    return found[0] if begin < 0 else f"{found[0][:begin]}{HIDDEN}{found[0][end:]}"
