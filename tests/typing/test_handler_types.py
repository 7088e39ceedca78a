"""A type checker sees the mistakes that can be made with apps, subscribers and handlers, and the
types of what works: as it does in a program of somebody who uses redrive."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from mypy import api

from page_code import blocks_of, for_asyncio, programs_of

# mypy reads redrive and all that it imports: once, for whichever test is the first.
pytestmark = pytest.mark.timeout(900)

IMPORTS = """\
from collections.abc import AsyncIterator, Iterator

from pydantic import BaseModel

from redrive import App, AsyncApp, AsyncRouter, AsyncSubscriber, Attempt, Message
from redrive import Router, Subscriber

app = App("amqp://localhost/")
async_app = AsyncApp("amqp://localhost/")
subscriber = Subscriber("amqp://localhost/", "shop@orders")
async_subscriber = AsyncSubscriber("amqp://localhost/", "shop@orders")


class Order(BaseModel):
    id: int


"""
COROUTINE = 'cannot be "Callable[[Order], Coroutine[Any, Any, None]]"'
NOT_AWAITABLE = 'cannot be "Callable[[Order], None]"'
ASYNC_DEF = "async def wrong(order: Order) -> None: ..."
DEF = "def wrong(order: Order) -> None: ..."

MISTAKES = {
    "an async handler of an app": (f'@app.subscriber("a")  # wrong\n{ASYNC_DEF}', COROUTINE),
    "an async handler of a router": (f'@Router().subscriber("a")  # wrong\n{ASYNC_DEF}', COROUTINE),
    "an async handler": (f"@subscriber.handler  # wrong\n{ASYNC_DEF}", COROUTINE),
    "an async handler for a key": (f'@subscriber.handler("a.*")  # wrong\n{ASYNC_DEF}', COROUTINE),
    "an async method as handler": (
        (
            "class Shop:\n    async def on_order(self, order: Order) -> None: ...\n"
            "subscriber.handler(Shop().on_order)  # wrong"
        ),
        COROUTINE,
    ),
    "an async object as handler": (
        (
            "class Shop:\n    async def __call__(self, order: Order) -> None: ...\n"
            "subscriber.handler(Shop())  # wrong"
        ),
        'cannot be "Shop"',
    ),
    "a plain handler of an async app": (
        f'@async_app.subscriber("a")  # wrong\n{DEF}',
        NOT_AWAITABLE,
    ),
    "a plain handler of an async router": (
        f'@AsyncRouter().subscriber("a")  # wrong\n{DEF}',
        NOT_AWAITABLE,
    ),
    "a plain handler on a loop": (f"@async_subscriber.handler  # wrong\n{DEF}", NOT_AWAITABLE),
    "a plain handler for a key on a loop": (
        f'@async_subscriber.handler("a.*")  # wrong\n{DEF}',
        NOT_AWAITABLE,
    ),
    "an async generator as handler on a loop": (
        (
            "@async_subscriber.handler  # wrong\n"
            "async def wrong(order: Order) -> AsyncIterator[None]:\n    yield"
        ),
        'cannot be "Callable[[Order], AsyncIterator[None]]"',
    ),
    "a generator as handler": (
        "@subscriber.handler  # wrong\ndef wrong(order: Order) -> Iterator[None]:\n    yield",
        'cannot be "Callable[[Order], Iterator[None]]"',
    ),
    "a handler whose value nobody gets": (
        "@subscriber.handler  # wrong\ndef wrong(order: Order) -> int:\n    return order.id",
        'cannot be "Callable[[Order], int]"',
    ),
    "a key that is no text": ("subscriber.handler(7)  # wrong", 'argument type "int"'),
    "a middleware without yield": (
        "@app.middleware  # wrong\ndef wrong(attempt: Attempt) -> None: ...",
        'cannot be "Callable[[Attempt], None]"',
    ),
    "a middleware of nothing": (
        "@app.middleware  # wrong\ndef wrong() -> Iterator[None]:\n    yield",
        'cannot be "Callable[[], Iterator[None]]"',
    ),
    "an async middleware": (
        (
            "@app.middleware  # wrong\n"
            "async def wrong(attempt: Attempt) -> AsyncIterator[None]:\n    yield"
        ),
        'cannot be "Callable[[Attempt], AsyncIterator[None]]"',
    ),
    "a plain middleware on a loop": (
        (
            "@async_subscriber.middleware  # wrong\n"
            "def wrong(attempt: Attempt) -> Iterator[None]:\n    yield"
        ),
        'cannot be "Callable[[Attempt], Iterator[None]]"',
    ),
    "an async middleware without yield": (
        "@async_app.middleware  # wrong\nasync def wrong(attempt: Attempt) -> None: ...",
        'cannot be "Callable[[Attempt], Coroutine[Any, Any, None]]"',
    ),
    "an async hook on threads": (
        "@app.on_give_up  # wrong\nasync def wrong(attempt: Attempt) -> None: ...",
        'cannot be "Callable[[Attempt], Coroutine[Any, Any, None]]"',
    ),
    "an async hook of a subscriber on threads": (
        "@subscriber.on_give_up  # wrong\nasync def wrong(attempt: Attempt) -> None: ...",
        'cannot be "Callable[[Attempt], Coroutine[Any, Any, None]]"',
    ),
    "a hook of a message": (
        "@async_app.on_give_up  # wrong\nasync def wrong(message: Message) -> None: ...",
        'cannot be "Callable[[Message], Coroutine[Any, Any, None]]"',
    ),
    "an async lifespan": (
        "@app.lifespan  # wrong\nasync def wrong(app: App) -> AsyncIterator[None]:\n    yield",
        'cannot be "AsyncIterator[None]"',
    ),
    "a plain lifespan on a loop": (
        "@async_app.lifespan  # wrong\ndef wrong(app: AsyncApp) -> Iterator[None]:\n    yield",
        'cannot be "Iterator[None]"',
    ),
    "a lifespan without yield": (
        "@app.lifespan  # wrong\ndef wrong(app: App) -> None: ...",
        'cannot be "None"',
    ),
    "a lifespan of the other shell's app": (
        "@app.lifespan  # wrong\ndef wrong(app: AsyncApp) -> Iterator[None]:\n    yield",
        'expected "Callable[[App], Iterator[None]]"',
    ),
    "a router of the other shell": (
        "app.include(AsyncRouter())  # wrong",
        'incompatible type "AsyncRouter"; expected "RouterBase[Subscriber]"',
    ),
    "a router of the other shell on a loop": (
        "async_app.include(Router())  # wrong",
        'incompatible type "Router"; expected "RouterBase[AsyncSubscriber]"',
    ),
    "an app's unknown option": (
        'App("amqp://localhost/", retries=3)  # wrong',
        'Unexpected keyword argument "retries"',
    ),
    "a router's unknown option": (
        "AsyncRouter(retries=3)  # wrong",
        'Unexpected keyword argument "retries"',
    ),
    "a subscriber's unknown option": (
        'app.subscriber("a", retries=3)  # wrong',
        'Unexpected keyword argument "retries"',
    ),
    "an app's option of a wrong type": (
        'AsyncApp("amqp://localhost/", prefetch="many")  # wrong',
        'Argument "prefetch" to "AsyncApp" has incompatible type "str"',
    ),
    "a router's option of a wrong type": (
        'Router(queue_type="stream")  # wrong',
        'Argument "queue_type" to "Router" has incompatible type',
    ),
    "a subscriber's option of a wrong type": (
        'async_app.subscriber("a", retry=3)  # wrong',
        'Argument "retry" to "subscriber" of "RouterBase" has incompatible type "int"',
    ),
    "a predicate that is async": (
        (
            "async def where(message: Message) -> bool:\n    return True\n"
            'app.subscriber("a", where=where)  # wrong'
        ),
        'Argument "where" to "subscriber" of "RouterBase" has incompatible type',
    ),
    "a routing key that is no text": (
        'app.subscriber("a", 7)  # wrong',
        'incompatible type "int"; expected "str"',
    ),
    "the publisher of a loop without await": (
        '(lambda: async_app.publisher.publish({"id": 1}, "a").retries)()  # wrong',
        "has no attribute",
    ),
    "what is parsed as something else": (
        "def on_order(message: Message) -> int:\n    return message.parse(Order)  # wrong",
        'got "Order", expected "int"',
    ),
}
"""Programs, with the mistake in the line that says `wrong`, and a piece of what mypy says of it."""

GOOD = """\
# mypy: disallow-any-expr, disallow-any-decorated
from collections.abc import Iterator
from dataclasses import dataclass
from typing import reveal_type

from redrive import App, Attempt, Message, RetryPolicy, Router, Settings, Subscriber


class ShopSettings(Settings):
    currency: str = "EUR"


App(ShopSettings())
app = App("amqp://localhost/", concurrency=4, retry=RetryPolicy(max_retries=3))
router = Router("master", prefetch=30)
subscriber = Subscriber("amqp://localhost/", "shop@orders")


@dataclass
class Order:
    id: int


@app.subscriber("shop@orders", "order.*", grace="10s", queue_type="classic", log_tracebacks=True)
def on_order(order: Order, message: Message, *, note: str = "") -> None:
    reveal_type(message.parse(Order))  # -> Order
    app.publisher.publish({"id": order.id}, "order.seen")


reveal_type(on_order)  # -> def (order: Order, message: Message, *, note: str =)


made = router.subscriber("shop@returns")
reveal_type(made)  # -> Subscriber


@made.handler("return.*")
def on_return(order: Order) -> None: ...


reveal_type(on_return)  # -> def (order: Order)


@made.handler
@subscriber.handler
def on_the_rest(body: bytes) -> None: ...


reveal_type(on_the_rest)  # -> def (body: bytes)
subscriber.handler(list[bytes]().append)


@app.middleware
@made.middleware
@router.middleware
def around(attempt: Attempt) -> Iterator[None]:
    yield


reveal_type(around)  # -> def (attempt: Attempt) -> Iterator[None]


@app.on_give_up
@made.on_give_up
def given_up(attempt: Attempt) -> None: ...


reveal_type(given_up)  # -> def (attempt: Attempt)


@app.lifespan
def life(app: App) -> Iterator[None]:
    yield


reveal_type(life)  # -> def (App) -> Iterator[None]


class Service(App):
    pass


service = Service()


@service.lifespan
def of_service(app: Service) -> Iterator[None]:
    yield


service.lifespan(life)
reveal_type(app.publisher)  # -> Publisher
reveal_type(app.subscribers)  # -> tuple[Subscriber, ...]
reveal_type(app.include(router))  # -> App
reveal_type(service.include(Router()))  # -> Service
with app as same:
    reveal_type(same)  # -> App
with service.override("amqp://localhost/", retry_delay="50ms") as overridden:
    reveal_type(overridden)  # -> Service
"""
ASYNC_GOOD = """\
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import reveal_type

from redrive import AsyncApp, AsyncRouter, AsyncSubscriber, Attempt, Message

app = AsyncApp("amqp://localhost/", concurrency=4)
router = AsyncRouter()
subscriber = AsyncSubscriber("amqp://localhost/", "shop@orders")


@dataclass
class Order:
    id: int


@app.subscriber("shop@orders", "order.*")
async def on_order(order: Order, message: Message) -> int:
    reveal_type(message.parse(Order))  # -> Order
    await app.publisher.publish({"id": order.id}, "order.seen")
    return order.id


reveal_type(on_order)  # -> def (order: Order, message: Message) -> Coroutine[Any, Any, int]


made = router.subscriber("shop@returns")
reveal_type(made)  # -> AsyncSubscriber


@made.handler("return.*")
@subscriber.handler
async def on_return(order: Order) -> None: ...


reveal_type(on_return)  # -> def (order: Order) -> Coroutine[Any, Any, None]


@made.handler
def on_the_rest(body: bytes) -> Awaitable[int]:
    return on_order(Order(1), app_message)


reveal_type(on_the_rest)  # -> def (body: bytes) -> Awaitable[int]
app_message: Message


@app.middleware
@made.middleware
@router.middleware
async def around(attempt: Attempt) -> AsyncIterator[None]:
    yield


reveal_type(around)  # -> def (attempt: Attempt) -> AsyncIterator[None]


@app.on_give_up
async def given_up(attempt: Attempt) -> None: ...


@made.on_give_up
def given_up_plainly(attempt: Attempt) -> int:
    return 1


reveal_type(given_up_plainly)  # -> def (attempt: Attempt) -> int


@app.lifespan
async def life(app: AsyncApp) -> AsyncIterator[None]:
    yield


reveal_type(life)  # -> def (AsyncApp) -> AsyncIterator[None]
reveal_type(app.publisher)  # -> AsyncPublisher
reveal_type(app.include(router))  # -> AsyncApp
"""
PROGRAMS = {"threads": GOOD, "a loop": ASYNC_GOOD}
RECIPES = programs_of("docs/recipes.md")
OF_PAGES = {
    "README.md": blocks_of("README.md")[0],
    "docs/apps.md": blocks_of("docs/apps.md")[0],
    "docs/asyncio.md": blocks_of("docs/asyncio.md")[0],
    "docs/asyncio.md, the app": blocks_of("docs/asyncio.md")[1],
    **RECIPES,
    **{
        f"{name}, for asyncio": for_asyncio(program)
        for name, program in RECIPES.items()
        if "SQLAlchemy" not in name  # which has a recipe of its own for asyncio
    },
}
"""The programs that the pages have to copy from."""


class Remark(NamedTuple):
    """What mypy says of a line."""

    line: int
    kind: str  # error or note
    text: str


Remarks = dict[str, list[Remark]]


def remarks_on(programs: Mapping[str, str], folder: Path) -> Remarks:
    """What mypy says in its strict mode of each program, by the program's name."""
    files: dict[str, str] = {}
    for number, (name, program) in enumerate(programs.items()):
        file = folder / f"program_{number}.py"
        file.write_text(program)
        files[str(file)] = name
    options = [
        "--strict",
        "--config-file=",
        f"--cache-dir={folder / 'mypy'}",
        f"--python-executable={sys.executable}",
        "--no-error-summary",
        "--no-sqlite-cache",  # mypy leaves it open, of which Python 3.13 warns
    ]
    told = api.run([*options, *files])
    found: Remarks = {name: [] for name in programs}
    for line in told[0].splitlines():
        remark = re.fullmatch(r"(.+?):(\d+): (error|note): (.*)", line)
        assert remark is not None, told
        found[files[remark[1]]].append(Remark(int(remark[2]), remark[3], remark[4]))
    return found


def test_each_mistake_is_an_error_in_its_line_and_what_works_has_its_own_type(
    tmp_path: Path,
) -> None:
    """One test: mypy reads redrive and all that it imports for each process that asks it."""
    mistakes = {name: IMPORTS + mistake for name, (mistake, _) in MISTAKES.items()}
    remarks = remarks_on(PROGRAMS | OF_PAGES | mistakes, tmp_path)
    errors = {
        name: [remark for remark in told if remark.kind == "error"]
        for name, told in remarks.items()
    }

    assert {name: [error.line for error in errors[name]] for name in mistakes} == {
        name: [number for number, line in _lines(program) if line.endswith("# wrong")]
        for name, program in mistakes.items()
    }
    first = {name: errors[name][0].text for name in mistakes}
    assert {name: text for name, text in first.items() if MISTAKES[name][1] not in text} == {}
    assert {name: errors[name] for name in OF_PAGES if errors[name]} == {}
    for name, program in PROGRAMS.items():
        assert errors[name] == []
        assert {remark.line: _without_modules(remark.text) for remark in remarks[name]} == {
            number: f'Revealed type is "{type_}"'
            for number, line in _lines(program)
            if (type_ := line.partition("  # -> ")[2])
        }


def _lines(program: str) -> Iterator[tuple[int, str]]:
    return enumerate(program.splitlines(), 1)


def _without_modules(text: str) -> str:
    """A type in words, without the modules of its names."""
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)
