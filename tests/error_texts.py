# ruff: noqa: ISC004 - texts over several lines, in tuples
"""Texts of errors as drivers and frameworks write them, by cause; `python tests/error_texts.py`
prints how well these are told apart.

Each is written after the source of what raises it. The texts of a cause differ in what differs from
one message to the next; two causes differ in what somebody has to mend.
"""

from itertools import combinations
from typing import NamedTuple

from redrive.failures.message.cause import masked

# Each cause is a text with places, and for each place what stands there.
_TEXTS: tuple[tuple[str, tuple[tuple[object, ...], ...]], ...] = (
    # --- databases ------------------------------------------------------------------------------
    (
        'duplicate key value violates unique constraint "users_email_key"\n'
        "DETAIL:  Key (email)=({}) already exists.",
        (("anna.smith@shop.example",), ("bob@other.example",), ("o'neil+x@mail.example.org",)),
    ),
    (
        'duplicate key value violates unique constraint "orders_pkey"\n'
        "DETAIL:  Key (tenant, id)=({}, {}) already exists.",
        (("acme", 17), ("initech", 993), ("o-neil", 5)),
    ),
    (
        'insert or update on table "invoices" violates foreign key constraint '
        '"invoices_order_id_fkey"\nDETAIL:  Key (order_id)=({}) is not present in table "orders".',
        ((4711,), (12,), ("b7f0c1",)),
    ),
    (
        "could not serialize access due to concurrent update (pid {}, transaction {})",
        ((3312, 99812), (12, 1), (771, 8812)),
    ),
    (
        "deadlock detected\nDETAIL:  Process {} waits for ShareLock on transaction {}; blocked by "
        "process {}.",
        ((3312, 991, 17), (4, 99812, 3313), (777, 1, 2)),
    ),
    (
        'connection to server at "{}" ({}), port {} failed: Connection refused',
        (
            ("db-1.eu.example", "10.0.0.17", 5432),
            ("db-2", "192.168.12.9", 6432),
            ("db-1.eu.example", "fe80::1ff:fe23:4567:890a", 5432),
        ),
    ),
    (
        'connection to server at "{}", port {} failed: FATAL:  password authentication failed for '
        'user "{}"',
        (("10.0.0.17", 5432, "shop"), ("db-2", 6432, "billing"), ("10.1.0.9", 5432, "anna")),
    ),
    (
        "canceling statement due to statement timeout after {}",
        (("30s",), ("1m30s",), ("45.123s",)),
    ),
    (
        "(1062, \"Duplicate entry '{}' for key 'orders.PRIMARY'\")",
        (("a8f1c2-77",), ("b03d19-12",), ("17",)),
    ),
    (
        "(1213, 'Deadlock found when trying to get lock; try restarting transaction') [thread {}]",
        ((17,), (99812,), (4,)),
    ),
    (
        "ERROR 1205 (HY000): Lock wait timeout exceeded after {} (thread {})",
        (("50.123s", "0x7f9a3c001700"), ("51.9s", "0x7f9a3c0ffe10"), ("2m1s", "0x1")),
    ),
    (
        "E11000 duplicate key error collection: shop.orders index: _id_ dup key: "
        "{{ _id: ObjectId('{}') }}",
        (
            ("65f0c1a2b3c4d5e6f7a8b9c0",),
            ("0123456789abcdef01234567",),
            ("65f0c1a2b3c4d5e6f7a8b9ff",),
        ),
    ),
    ("ORA-00001: unique constraint (SHOP.ORDERS_PK) violated, session {}", ((17,), (993,), (4,))),
    (
        "ORA-12541: TNS:no listener at {}:{}",
        (("10.0.0.17", 1521), ("10.0.9.1", 1526), ("10.2.2.2", 1)),
    ),
    (
        "MISCONF Redis is configured to save RDB snapshots, but is unable to persist to disk "
        "(server {})",
        (("10.0.0.17:6379",), ("10.1.9.4:6380",), ("172.16.0.2:6379",)),
    ),
    (
        "Error {} connecting to redis-{}:{}. Name or service not known.".replace(
            "Error {}", "Error -2"
        ),
        ((0, 6379), (17, 6380), (4, 6379)),
    ),
    (
        "could not execute statement; SQL [n/a]; constraint [uk_4fk2j]; nested exception for id={}",
        (
            ("5f0c5f0e4a354ad28b7b0c1f5a5d9a10",),
            ("0a1b5f0e4a354ad28b7b0c1f5a5d9a99",),
            ("99aabbccddeeff00112233445566778f",),
        ),
    ),
    (
        "Row was updated or deleted by another transaction (or unsaved-value mapping was incorrect)"
        " : [com.acme.Order#{}]",
        ((17,), (4711,), ("993",)),
    ),
    # --- services over HTTP ----------------------------------------------------------------------
    (
        "Connect to payments-{}-{}:8080 failed: Connection refused",
        (("7d9c6b5f4", "x2x9k"), ("7d9c6b5f4", "q8l2m"), ("6b8d7c99f5", "bcdfg")),
    ),
    (
        "Connect to invoices-{}-{}:8080 failed: Read timed out",
        (("7d9c6b5f4", "x2x9k"), ("7d9c6b5f4", "q8l2m"), ("6b8d7c99f5", "zzzzz")),
    ),
    (
        'I/O error on POST request for "https://api.bank.example/v1/customers/{}/charge": Read '
        "timed out",
        (("c_9Kq2",), ("c_1Zx7",), ("c_000",)),
    ),
    (
        "Client error '404 Not Found' for url 'https://shop.example/orders/{}'",
        ((17,), ("x9",), ("b",)),
    ),
    ("Server responded with status code 503 after {} ms", ((17,), (4711,), (993,))),
    ("Server responded with status code 404 after {} ms", ((17,), (4711,), (993,))),
    ("Server responded with status code 429 after {} ms", ((12,), (1,), (30000,))),
    (
        "HTTPSConnectionPool(host='{}', port=443): Max retries exceeded with url: {} (Caused by "
        "NewConnectionError('<urllib3.connection.HTTPSConnection object at {}>: Failed to establish"
        " a new connection: [Errno 111] Connection refused'))",
        (
            ("api.example", "/v1/orders/17", "0x7f3a1c2d3e40"),
            ("api.example", "/v1/orders/99", "0x7f3a1c2d0010"),
            ("api2.example", "/v1/orders/4", "0x10"),
        ),
    ),
    (
        "[Errno 111] Connection refused to {}",
        (("10.0.0.17:80",), ("10.9.9.9:443",), ("[fe80::1:2]:80",)),
    ),
    (
        "[Errno 104] Connection reset by peer {}",
        (("10.0.0.17:80",), ("10.9.9.9:443",), ("10.1.1.1:1",)),
    ),
    ("[Errno 28] No space left on device: '{}'", (("/data/a",), ("/data/b-17",), ("/srv/x",))),
    (
        'rpc error: code = Unavailable desc = connection error: desc = "transport: Error while '
        'dialing: dial tcp {}: connect: connection refused"',
        (("10.0.0.17:50051",), ("10.9.9.9:50051",), ("10.1.1.1:9000",)),
    ),
    (
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded after {}",
        (("1m30s",), ("29.999s",), ("5s",)),
    ),
    (
        'Get "https://api.example/v2/{}": net/http: request canceled (Client.Timeout exceeded '
        "while awaiting headers)",
        (("orders/17",), ("orders/993",), ("carts/x",)),
    ),
    ("getaddrinfo ENOTFOUND {}", (("'a.example'",), ("'b.example'",), ("'c'",))),
    ("connect ETIMEDOUT {}:{}", (("10.0.0.17", 443), ("172.16.9.1", 8443), ("10.2.2.2", 80))),
    (
        "Request failed with status code 401 (request {})",
        (
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV",),
            ("01BX5ZZKBKACTAV9WEVGEMMVRZ",),
            ("01BX5ZZKBKACTAV9WEVGEMMVS0",),
        ),
    ),
    (
        "Request failed with status code 500 (request {})",
        (
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV",),
            ("01BX5ZZKBKACTAV9WEVGEMMVRZ",),
            ("01BX5ZZKBKACTAV9WEVGEMMVS0",),
        ),
    ),
    # --- clouds ----------------------------------------------------------------------------------
    (
        'User: {} is not authorized to perform: s3:PutObject on resource: "{}"',
        (
            ("arn:aws:sts::123456789012:assumed-role/shop/i-0abc", "arn:aws:s3:::shop/a"),
            ("arn:aws:sts::123456789012:assumed-role/shop/i-0def99", "arn:aws:s3:::shop/b/c"),
            ("arn:aws:iam::998877665544:user/anna", "arn:aws:s3:::shop/d"),
        ),
    ),
    (
        "An error occurred (NoSuchKey) when calling the GetObject operation: The specified key "
        "does not exist. (request {})",
        (("4442587FB7D0A2F9",), ("0A49CE4060975EAC",), ("B1C2D3E4F5061728",)),
    ),
    (
        "An error occurred (ThrottlingException) when calling the PutItem operation (reached max "
        "retries: {}): Rate exceeded",
        ((4,), (9,), (12,)),
    ),
    (
        "Access token {} has expired",
        (
            ("eyJhbGciOiJSUzI1NiIsImtpZCI6Im91cnMifQ",),
            ("eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9",),
            ("ya29-A0ARrdaM8Xy7z_k1QwErTy",),
        ),
    ),
    # --- files and hosts -------------------------------------------------------------------------
    ("No such file: /tmp/upload-{}/in.csv", (("x8Jk2p",), ("Qm31zz",), ("aB9cD0",))),
    (
        "[Errno 2] No such file or directory: {}",
        (("'/tmp/tmpa8x2k1qz/out.pdf'",), ("'/tmp/tmp0000zzzz/out.pdf'",), ("'/x'",)),
    ),
    (
        "/tmp/{}/invoice.pdf could not be written",
        (("tmpa8x2k1qz",), ("tmpzzzzzzzz",), ("tmp_0aa9bbc",)),
    ),
    ("/home/{}/.config/shop.toml is not readable", (("anna",), ("bob",), ("svc-17",))),
    ("host {} went away", (("00:1A:2B:3C:4D:5E",), ("ff:ff:ff:00:00:01",), ("0a:0b:0c:0d:0e:0f",))),
    ("worker {} was killed by signal 9", (("mailer-x2x9k",), ("mailer-b4c7d",), ("mailer-9z8x7",))),
    (
        "worker {} exited with exit code 137",
        (("mailer-x2x9k",), ("mailer-b4c7d",), ("mailer-9z8x7",)),
    ),
    (
        "worker {} exited with exit code 1",
        (("mailer-x2x9k",), ("mailer-b4c7d",), ("mailer-9z8x7",)),
    ),
    # --- bodies ----------------------------------------------------------------------------------
    (
        "user {} not found",
        (("anna.smith@shop.example",), ("bob@other.example",), ("x_y.z@mail.example.org",)),
    ),
    (
        'Cannot deserialize value of type `java.time.Instant` from String "{}"',
        (("2026-11-26T20:00:01Z",), ("2026-11-25T03:11:59Z",), ("yesterday",)),
    ),
    (
        'Cannot deserialize value of type `java.math.BigDecimal` from String "{}"',
        (("12,5",), ("a lot",), ("1.2.3",)),
    ),
    (
        "invalid date: {}",
        (
            ("Thu, 26 Nov 2026 20:00:01 GMT",),
            ("Fri, 27 Nov 2026 03:11:59 GMT",),
            ("Sat, 5 Dec 2026 03:11:59 GMT",),
        ),
    ),
    ("KeyError: '{}'", (("plan",), ("tenant",), ("total",))),
    ("Expecting value: line {} column {} (char {})", ((1, 1, 0), (12, 4, 331), (1, 99, 98))),
    (
        "Unknown column 'plan' in 'field list' at {}",
        (
            ("26/Nov/2026:10:00:01 +0000",),
            ("27/Nov/2026:23:59:59 +0000",),
            ("1/Dec/2026:00:00:00 +0000",),
        ),
    ),
    ("No enum constant com.acme.Status.{}", (("'NEW'",), ("'OLD'",), ("'lost'",))),
    ("Schema {} is not registered", (("f3a9c2d17b4e",), ("01d2e3f4a5b6",), ("99aabbccdde1",))),
    (
        "Broker: Topic authorization failed (partition {}, offset {})",
        ((0, 991), (12, 17), (3, 4711)),
    ),
    (
        "Missing translation for template mail-{} in locale 'de_DE'",
        (("x8Jk2p",), ("Qm31zz",), ("aB9cD0",)),
    ),
    (
        "SSL: CERTIFICATE_VERIFY_FAILED certificate verify failed: certificate has expired "
        "(_ssl.c:{})",
        ((1006,), (997,), (1129,)),
    ),
    # --- code ------------------------------------------------------------------------------------
    ("maximum recursion depth exceeded while calling a Python object", ((), ())),
    ("Java heap space at thread pool-{}-thread-{}", ((1, 17), (3, 4), (12, 9))),
    ("[http-nio-8080-exec-{}] Task rejected, queue size {}", ((1, 100), (17, 4711), (9, 12))),
    (
        "cannot pickle '_thread.lock' object of <Worker {}>",
        (("0x7f3a10",), ("0x7f3a99",), ("0x1",)),
    ),
    (
        "insufficient stock: {} of {} left for order {}",
        ((0, 17, "A8f1c2"), (3, 4, "B03d19"), (1, 9, "C9z8x7")),
    ),
    (
        "insufficient funds: account {} has {} of {}",
        (
            ("DE89370400440532013000", "3.50", "17"),
            ("GB29NWBK60161331926819", "1,000.00", "2,000"),
            ("FR1420041010050500013M02606", "0", "1"),
        ),
    ),
    (
        "order {} was cancelled at {}",
        ((17, "2026-11-26 20:00:01"), (4711, "2026-11-25T03:11:59.123Z"), (5, "2026-01-01")),
    ),
)


class ErrorText(NamedTuple):
    """A text, and the number of its cause."""

    cause: int
    text: str


TEXTS = [
    ErrorText(number, template.format(*values))
    for number, (template, many) in enumerate(_TEXTS)
    for values in many
]


class Rates(NamedTuple):
    """Of all pairs of texts: of those that are put together, how many are of one cause; and of
    those of one cause, how many are put together."""

    precision: float
    recall: float


def measure() -> tuple[Rates, list[tuple[str, str]]]:
    """How well causes are told apart, and each pair that is put together or apart wrongly."""
    found = [(one, masked(one.text)) for one in TEXTS]
    together = right = of_one = 0
    wrong = []
    for (one, group), (other, other_group) in combinations(found, 2):
        is_one, is_together = one.cause == other.cause, group == other_group
        of_one += is_one
        together += is_together
        right += is_one and is_together
        if is_one != is_together:
            wrong.append((one.text, other.text))
    return Rates(right / together, right / of_one), wrong


if __name__ == "__main__":
    rates, pairs = measure()
    for one, other in pairs:
        print(f"{masked(one)!r}\n{masked(other)!r}\n")
    print(
        f"{len(TEXTS)} texts of {len(_TEXTS)} causes: precision {rates.precision:.3f}, recall "
        f"{rates.recall:.3f}"
    )
