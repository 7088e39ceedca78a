"""The query page: SQL over failed messages."""

import json

from starlette.responses import Response

from redrive.errors import RedriveError
from redrive.failures.message.columns import COLUMNS
from redrive.failures.store.answer_file import parquet_of
from redrive.failures.store.look import Look, QueryResult
from redrive.redaction import printable_json
from redrive.web.command_lines import query_command
from redrive.web.context import ConsoleContext
from redrive.web.download import download, download_csv
from redrive.web.look_questions import AnswerOf
from redrive.web.page_request import PageRequest

_MOST_ROWS = 500
EXAMPLE = "select error_type, count(*) as n from failed group by all order by n desc"


def show(context: ConsoleContext, request: PageRequest) -> Response:
    """Run a query, and show its answer as a page, CSV, JSON or Parquet."""
    sql, form = request.text("sql"), request.text("format")
    answer: QueryResult | None = None
    look: Look | None = None
    problem = ""
    if sql:
        try:
            answer, look = _answer(context, request, sql)
        except RedriveError as error:
            if form:
                raise
            problem = str(error)
    if answer is not None and form == "csv":
        return download_csv(answer.columns, answer.rows, "answer.csv")
    if answer is not None and form == "json":
        return download(
            json.dumps(answer.rows, ensure_ascii=True), "application/json", "answer.json"
        )
    if answer is not None and form == "parquet":
        return download(parquet_of(answer), "application/vnd.apache.parquet", "answer.parquet")
    lines = _choice(context, request)
    return context.page(
        "query",
        request,
        "Query",
        {
            "places": lines,
            "sql": sql or EXAMPLE,
            "problem": problem,
            "answer": answer,
            "rows": [] if answer is None else _cells(answer),
            "most": _MOST_ROWS,
            "standing": None if look is None else context.queue_states.state(request.place, look),
            "command": "" if answer is None else query_command(request.place, sql),
            "columns": COLUMNS,
        },
        200 if not problem else 400,
    )


def _choice(context: ConsoleContext, request: PageRequest) -> list[str]:
    """Return the names of the queues."""
    try:
        return [line.place.name for line in context.queue_states.counts()]
    except RedriveError:
        return [request.text("queue")] if request.text("queue") else []


def _answer(context: ConsoleContext, request: PageRequest, sql: str) -> tuple[QueryResult, Look]:
    return context.looks.answer(
        request.place, AnswerOf(sql, bodies=not context.settings.hide_bodies)
    )


def _cells(answer: QueryResult) -> list[list[tuple[str, bool]]]:
    """Return the cells of the first rows, each with whether it is a number."""
    return [
        [_cell(row.get(column)) for column in answer.columns] for row in answer.rows[:_MOST_ROWS]
    ]


def _cell(value: object) -> tuple[str, bool]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (
            ("–" if value is None else value, False)
            if isinstance(value, str | None)
            else (printable_json(value), False)
        )
    return (f"{value:,}" if isinstance(value, int) else str(value), True)
