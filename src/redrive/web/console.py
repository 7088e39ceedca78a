"""The console: an ASGI application for a broker's failed queues."""

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
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
from redrive.failures.store.filter import Filter
from redrive.failures.store.look import NothingFound, NothingKept
from redrive.web import (
    cause_page,
    causes_page,
    discard_page,
    edit_page,
    expire_page,
    job_messages,
    job_page,
    journal_page,
    live_page,
    me_page,
    message_page,
    overview_page,
    pause_page,
    plan_page,
    proof,
    query_page,
    remark_page,
    store_page,
)
from redrive.web.auth.access_config import AccessConfig, Login
from redrive.web.auth.login_link import LoginLink
from redrive.web.auth.login_page import LoginForm, set_session
from redrive.web.auth.middleware import (
    ENTRY,
    LOGIN,
    LOGOUT,
    SESSION_USER,
    AuthConfig,
    AuthMiddleware,
    Refusal,
)
from redrive.web.auth.session_users import SessionUser, SessionUsers
from redrive.web.auth.sessions import Sessions
from redrive.web.command_lines import groups_command
from redrive.web.console_settings import ConsoleSettings
from redrive.web.context import ConsoleContext
from redrive.web.html import page
from redrive.web.page_request import PageRequest
from redrive.web.questions import READER_IS_GONE, TooManyQuestions

Page = Callable[[ConsoleContext, PageRequest], Response]
_Endpoint = Callable[[Request], Awaitable[Response]]

_FORGOTTEN_EVERY = 30.0
_MOST_OF_A_FORM = 256 * 1024
_GLANCE_SECONDS = 0.2
_LONGEST_FORM = 30.0
"""Seconds that a browser has to send a form."""
_READING: dict[str, Page] = {
    "/": overview_page.show,
    "/causes": causes_page.show,
    "/cause": cause_page.show,
    "/message": message_page.show,
    "/body": message_page.download,
    "/edit": edit_page.show,
    "/query": query_page.show,
    "/plan": plan_page.show,
    "/discard": discard_page.show,
    "/expire": expire_page.show,
    "/job": job_page.show,
    "/job/messages": job_messages.show,
    "/journal": journal_page.show,
    "/store": store_page.show,
    "/progress/store": store_page.progress,
    "/me": me_page.show,
    "/live": live_page.show,
    "/proof": proof.show,
    "/progress/look": causes_page.look_progress,
    "/progress/job": job_page.progress,
}
_ACTING: dict[str, Page] = {
    "/look": causes_page.look,
    "/look-at-all": overview_page.look,
    "/begin": plan_page.begin,
    "/rehearsed": plan_page.take_report,
    "/remark": remark_page.say,
    "/store/copy": store_page.copy,
    "/store/restore": store_page.restore,
    "/edit/compare": edit_page.compare,
    "/edit/send": edit_page.send,
    "/discard/begin": discard_page.begin,
    "/expire/begin": expire_page.begin,
    "/ask": plan_page.ask,
    "/approve": job_page.approve,
    "/decline": job_page.decline,
    "/pause": pause_page.pause,
    "/unpause": pause_page.resume,
    "/stop": job_page.stop,
    "/resume": job_page.resume,
    "/outcome": job_page.ask_outcome,
}


class Console:
    """The console of a broker, an ASGI application."""

    def __init__(
        self, settings: ConsoleSettings, hosts: frozenset[str], *, is_local: bool = False
    ) -> None:
        self.context = ConsoleContext.of(settings)
        access = settings.access
        # The link is for the person who started the console; their session ends with it.
        has_link = access.login is Login.LINK
        self.sessions: Sessions[SessionUser] = Sessions(None if has_link else access.idle_time)
        self.session_users = SessionUsers(settings, self.context)
        self.login_link = LoginLink(self.sessions, self.session_users.own)
        # Cookies ignore ports: two consoles on one host must not overwrite each other's sessions.
        # With TLS, the prefix stops other hosts and unencrypted pages from planting one. Source:
        # https://developer.mozilla.org/docs/Web/HTTP/Headers/Set-Cookie#cookie_prefixes
        prefix = "__Host-" if access.is_encrypted else ""
        self.cookie = f"{prefix}redrive-{secrets.token_hex(4)}"
        self.auth = AuthConfig(
            access,
            frozenset(host.lower() for host in hosts),
            self.sessions,
            self.session_users,
            self.cookie,
        )
        self._login = LoginForm(self.auth, is_local=is_local and not access.trusted_proxies)
        self._is_closed = False
        self._ending = threading.Event()
        if access.login is Login.BROKER:
            threading.Thread(
                target=self._forget_users_without_session, name="redrive-users", daemon=True
            ).start()
        router = Starlette(
            routes=[
                *self._ways_in(access),
                *(Route(path, self._answering(one)) for path, one in _READING.items()),
                *(
                    Route(path, self._answering(one), methods=["POST"])
                    for path, one in _ACTING.items()
                ),
                Mount("/static", StaticFiles(directory=Path(__file__).with_name("static"))),
            ],
            exception_handlers={404: self._nothing_there, 405: self._nothing_there},
        )
        self.routes = [route for route in router.routes if isinstance(route, Route)]
        """The routes of the router, without the static files, which are public."""
        self._app = AuthMiddleware(
            router,
            auth=self.auth,
            refused=lambda refusal: _refused(refusal),
            is_ready=lambda: not self._is_closed,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def new_link(self) -> str:
        """Return the path of a link that lets one browser in, once."""
        return f"{ENTRY}?token={self.login_link.new_link()}"

    def close(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Stop everything that is running, cleanly."""
        self._is_closed = True
        self._ending.set()
        for context in self.session_users.contexts():
            context.close(on_wait)
        self.context.looks.questions.close()

    def _forget_users_without_session(self) -> None:
        """Drop users without live sessions, and their passwords, every 30 s."""
        while not self._ending.wait(_FORGOTTEN_EVERY):
            self.session_users.forget_all_but(self.sessions.session_users())

    def _ways_in(self, access: AccessConfig) -> list[Route]:
        match access.login:
            case Login.LINK:
                return [Route(ENTRY, self._enter, methods=["GET"])]
            case Login.BROKER:
                return [
                    Route(LOGIN, self._log_in, methods=["GET", "POST"]),
                    Route(LOGOUT, self._log_out, methods=["POST"]),
                ]
            case Login.PROXY:
                return []

    async def _enter(self, request: Request) -> Response:
        session = self.login_link.exchange(request.query_params.get("token", ""))
        if session is None:
            return _refused(
                Refusal(
                    403,
                    "this link is wrong or was already used",
                    "Restart redrive web for a new one.",
                )
            )
        answer = RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)
        set_session(request, answer, self.cookie, session)
        return answer

    async def _log_in(self, request: Request) -> Response:
        root = str(request.scope.get("root_path", ""))
        if request.method != "POST":
            return self._login.show(PageRequest(dict(request.query_params), root))
        try:
            page_request = PageRequest(await _form(request), root)
        except ConfigurationError as error:
            return _refused(Refusal(400, error.problem, error.remedy))
        return await run_in_threadpool(self._login.log_in, request, page_request)

    async def _log_out(self, request: Request) -> Response:
        return self._login.log_out(request)

    def _answering(self, show: Page) -> _Endpoint:
        async def answer(request: Request) -> Response:
            session_user: SessionUser = request.scope[SESSION_USER]
            root = str(request.scope.get("root_path", ""))
            page_request = PageRequest(_values(request.query_params.multi_items()), root)
            if request.method == "POST":
                try:
                    page_request = PageRequest(await _form(request), root)
                except ConfigurationError as error:
                    return self._failed(session_user.context, page_request, error)
            # Pages block on the broker or a database, so they run in a thread.
            gone = threading.Event()
            READER_IS_GONE.set(gone)
            waiting = asyncio.create_task(_heed_hang_up(request, gone))
            try:
                return await run_in_threadpool(self._answer, show, session_user, page_request)
            finally:
                waiting.cancel()

        return answer

    def _answer(self, show: Page, session_user: SessionUser, page_request: PageRequest) -> Response:
        with self.session_users.as_active(session_user) as as_active:
            return self._answer_at(as_active.context, show, session_user, page_request)

    def _answer_at(
        self,
        context: ConsoleContext,
        show: Page,
        session_user: SessionUser,
        page_request: PageRequest,
    ) -> Response:
        try:
            if page_request.values.get("queue"):
                context.permissions.check_look(page_request.place)
            return show(context, page_request)
        except NothingKept:
            return self._unseen(context, page_request)
        except RedriveError as error:
            permissions = context.permissions
            if permissions.rights.is_refused and permissions.has_login:
                # The user was deleted, or the password was changed.
                self.sessions.end_all(session_user)
                self.session_users.forget(session_user)
                return RedirectResponse(page_request.link(LOGIN), 303)
            return self._failed(context, page_request, error)

    def _unseen(self, context: ConsoleContext, page_request: PageRequest) -> Response:
        """Return the page for a queue without a kept look that can answer."""
        place, group = page_request.place, page_request.text("group")
        return context.page(
            "unseen",
            page_request,
            place.name,
            {
                "place": place,
                "group": group,
                "what": cause_page.told_of(context, group) if group else "",
                "standing": context.queue_states.state(place, None),
                "command": groups_command(place, Filter()),
            },
            409,
        )

    def _failed(
        self, context: ConsoleContext, page_request: PageRequest, error: RedriveError
    ) -> Response:
        problem, _, remedy = str(error).partition("\n")
        values: dict[str, object] = {"problem": problem, "remedy": remedy}
        return context.page("problem", page_request, "Problem", values, _status_of(error))

    async def _nothing_there(self, request: Request, _: Exception) -> Response:
        page_request = PageRequest({}, str(request.scope.get("root_path", "")))
        problem, remedy = (
            "there is no such page",
            "Start from the overview.",
        )
        error = NothingFound(f"{problem}\n{remedy}")
        session_user: SessionUser | None = request.scope.get(SESSION_USER)
        if session_user is None:  # a static file that does not exist
            return _refused(Refusal(404, "there is no such page", "Log in first."))
        return await run_in_threadpool(self._failed, session_user.context, page_request, error)


def _status_of(error: RedriveError) -> int:
    match error:
        case NothingFound():
            return 404
        case BrokerUnavailable() | TooManyQuestions():
            return 503
        case PermissionDenied():
            return 403
        case _:
            return 400


def _refused(refusal: Refusal) -> Response:
    return page("refused", {"refusal": refusal}, refusal.status)


async def _heed_hang_up(request: Request, gone: threading.Event) -> None:
    """Set the event once the client hangs up; its request must have been read to the end."""
    while not await request.is_disconnected():
        await asyncio.sleep(_GLANCE_SECONDS)
    gone.set()


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a submitted form."""
    body = b""
    try:
        async with asyncio.timeout(_LONGEST_FORM):
            async for some in request.stream():
                body += some
                if len(body) > _MOST_OF_A_FORM:
                    raise ConfigurationError(
                        "the form is too large", "Use the command line for this."
                    )
    except ClientDisconnect as error:
        raise ConfigurationError(
            "the connection ended before the form was complete", "Send it again."
        ) from error
    except TimeoutError as error:
        raise ConfigurationError("the form took too long to arrive", "Send it again.") from error
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if body and kind != "application/x-www-form-urlencoded":
        raise ConfigurationError(f"expected a form, not {kind!r}", "Use the console's pages.")
    return _values(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _values(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return values by name; groups are joined with commas, picked messages with newlines."""
    found: dict[str, str] = {}
    for name, value in pairs:
        between = {"group": ",", "pick": "\n"}.get(name)
        found[name] = f"{found[name]}{between}{value}" if between and name in found else value
    return found
