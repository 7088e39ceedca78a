"""The console: an ASGI application over a broker's failed queues."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from redrive.errors import (
    BrokerUnavailable,
    ConfigurationError,
    PermissionDenied,
    RedriveError,
)
from redrive.failures.look import NothingKept
from redrive.failures.message_lookup import NothingFound
from redrive.web import (
    cause_page,
    causes_page,
    job_page,
    journal_page,
    message_page,
    overview_page,
    plan_page,
    proof,
    query_page,
)
from redrive.web.asked import Asked
from redrive.web.console_settings import ConsoleSettings
from redrive.web.desk import Desk, Freshness
from redrive.web.entrance import Entrance
from redrive.web.gate import ENTRY, Gate, Refusal
from redrive.web.html import page

Page = Callable[[Desk, Asked], Response]
_Endpoint = Callable[[Request], Awaitable[Response]]

_MOST_OF_A_FORM = 256 * 1024
_READING: dict[str, Page] = {
    "/": overview_page.show,
    "/causes": causes_page.show,
    "/cause": cause_page.show,
    "/message": message_page.show,
    "/body": message_page.download,
    "/query": query_page.show,
    "/plan": plan_page.show,
    "/job": job_page.show,
    "/journal": journal_page.show,
    "/proof": proof.show,
    "/progress/look": causes_page.look_progress,
    "/progress/job": job_page.progress,
}
_ACTING: dict[str, Page] = {
    "/look": causes_page.look,
    "/look-at-all": overview_page.look,
    "/begin": plan_page.begin,
    "/ask": plan_page.ask,
    "/approve": job_page.approve,
    "/decline": job_page.decline,
    "/stop": job_page.stop,
    "/resume": job_page.resume,
    "/outcome": job_page.ask_outcome,
}


class Console:
    """The console of a broker: an ASGI application.

    Args:
        settings: which broker, and what may be done.
        hosts: what a `Host` header may say, with the port.
    """

    def __init__(self, settings: ConsoleSettings, hosts: frozenset[str]) -> None:
        self.desk = Desk.of(settings)
        self.entrance = Entrance()
        self._app = Gate(
            Starlette(
                routes=[
                    Route(ENTRY, self._enter, methods=["GET"]),
                    *(Route(path, self._answering(one)) for path, one in _READING.items()),
                    *(
                        Route(path, self._answering(one), methods=["POST"])
                        for path, one in _ACTING.items()
                    ),
                    Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
                ],
                exception_handlers={404: self._nothing_there, 405: self._nothing_there},
            ),
            entrance=self.entrance,
            hosts=hosts,
            refused=lambda refusal: _refused(refusal),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def new_link(self) -> str:
        """The path of a link that lets in one browser, once."""
        return f"{ENTRY}?token={self.entrance.new_link()}"

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Ends what runs, cleanly.

        Args:
            on_wait: called where there is something to wait for.
        """
        self.desk.worker.close(on_wait)

    async def _enter(self, request: Request) -> Response:
        session = self.entrance.exchange(request.query_params.get("token", ""))
        if session is None:
            return _refused(
                Refusal(
                    403,
                    "this link was used before, or is none",
                    "Start redrive web again for a new one.",
                )
            )
        root = str(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{root}/", 303)
        answer.set_cookie(
            self.entrance.cookie,
            session,
            path=f"{root}/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def _answering(self, show: Page) -> _Endpoint:
        async def answer(request: Request) -> Response:
            root = str(request.scope.get("root_path", ""))
            asked = Asked(dict(request.query_params), root)
            if request.method == "POST":
                try:
                    asked = Asked(await _form(request), root)
                except ConfigurationError as error:
                    return self._failed(asked, error)
            # What asks a broker or a database waits: the event loop does not.
            return await run_in_threadpool(self._answer, show, asked)

        return answer

    def _answer(self, show: Page, asked: Asked) -> Response:
        try:
            return show(self.desk, asked)
        except NothingKept:
            return self._unseen(asked)
        except RedriveError as error:
            return self._failed(asked, error)

    def _unseen(self, asked: Asked) -> Response:
        """What is shown where no look is kept that would answer."""
        place = asked.place
        return self.desk.page(
            "unseen",
            asked,
            place.name,
            {"place": place, "standing": Freshness.of(self.desk, place, None)},
            409,
        )

    def _failed(self, asked: Asked, error: RedriveError) -> Response:
        problem, _, remedy = str(error).partition("\n")
        values: dict[str, object] = {"problem": problem, "remedy": remedy}
        return self.desk.page("problem", asked, "A problem", values, _status_of(error))

    async def _nothing_there(self, request: Request, _: Exception) -> Response:
        asked = Asked({}, str(request.scope.get("root_path", "")))
        error = NothingFound("there is no such page\nThe overview has links to all.")
        return await run_in_threadpool(self._failed, asked, error)


def _status_of(error: RedriveError) -> int:
    match error:
        case NothingFound():
            return 404
        case BrokerUnavailable():
            return 503
        case PermissionDenied():
            return 403
        case _:
            return 400


def _refused(refusal: Refusal) -> Response:
    return page("refused", {"refusal": refusal}, refusal.status)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form.

    Raises:
        ConfigurationError: it is too large, or no form.
    """
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > _MOST_OF_A_FORM:
            raise ConfigurationError("the form is too large", "Use the command line for this.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if body and kind != "application/x-www-form-urlencoded":
        raise ConfigurationError(f"a form was expected, not {kind!r}", "Use the pages.")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
