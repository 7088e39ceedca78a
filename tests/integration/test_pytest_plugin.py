"""A service's own tests get the real RabbitMQ by two lines in their conftest."""

import os

import pytest

TWO_LINES = """
pytest_plugins = ["redrive.testing.plugin"]
"""
NOTHING_TO_BE_HAD = """
import pytest

@pytest.fixture(autouse=True, scope="session")
def a_bare_machine():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REDRIVE_URL", "REDRIVE_TEST_IMAGE"):
            patch.delenv(name, raising=False)
        patch.setattr("redrive.testing.broker_choice.engine_answers", lambda: False)
        patch.setattr("redrive.testing.broker_choice.server_scripts", lambda: None)
        yield
"""


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")


@pytest.mark.nightly("each run of these tests has them")
def test_each_test_has_a_virtual_host_of_its_own_on_one_broker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(TWO_LINES)
    pytester.makepyfile(
        """
        import pika
        import pytest

        seen = []

        @pytest.mark.parametrize("turn", [1, 2])
        def test_a_queue_is_new(turn, rabbitmq_url, rabbitmq_broker, rabbitmq_management_url):
            with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
                declared = connection.channel().queue_declare("orders", durable=True)
                assert declared.method.message_count == 0
                connection.channel().basic_publish("", "orders", b"")
            assert rabbitmq_management_url == rabbitmq_broker.management_url
            seen.append((rabbitmq_url, rabbitmq_broker))

        def test_the_virtual_hosts_are_gone(rabbitmq_broker):
            (first, broker), (second, same_broker) = seen
            assert first != second
            assert broker is same_broker is rabbitmq_broker
            if rabbitmq_broker.kind != "external":
                assert "test-" not in rabbitmq_broker.control("list_vhosts", "--quiet")
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines([r"RabbitMQ \d+\.\d+\.\d+ \((container|process|external).*\)"])


@pytest.mark.nightly("it starts a broker for one line of the log")
@pytest.mark.skipif("REDRIVE_URL" in os.environ, reason="a broker of somebody else keeps nothing")
def test_a_virtual_host_is_left_where_the_broker_has_failed_at_a_queue(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(TWO_LINES)
    pytester.makepyfile(
        """
        import logging
        from urllib.parse import urlsplit

        import pytest

        hosts = []

        @pytest.mark.parametrize("told", ["again: 541 INTERNAL_ERROR - cluster_not_formed", "on"])
        def test_something(told, rabbitmq_url):
            logging.getLogger("redrive.any").warning("declaring %s", told)
            hosts.append(urlsplit(rabbitmq_url).path[1:])

        def test_the_first_is_left(rabbitmq_broker):
            there = rabbitmq_broker.control("list_vhosts", "--quiet")
            assert [host in there for host in hosts] == [True, False]
            rabbitmq_broker.delete_virtual_host(hosts[0])
        """
    )
    run(pytester).assert_outcomes(passed=3)


@pytest.mark.nightly("the tests that kill brokers do it to each other")
@pytest.mark.skipif("REDRIVE_URL" in os.environ, reason="a broker of somebody else is not killed")
def test_a_test_that_leaves_the_broker_dead_does_no_harm_to_the_next(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(TWO_LINES)
    pytester.makepyfile(
        """
        import pika

        def test_a_power_cut(rabbitmq_url, rabbitmq_broker):
            rabbitmq_broker.kill()

        def test_the_day_after(rabbitmq_url):
            pika.BlockingConnection(pika.URLParameters(rabbitmq_url)).close()
        """
    )
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.nightly("the processes of each run of these tests share one")
@pytest.mark.skipif("REDRIVE_URL" in os.environ, reason="a broker of somebody else is everybody's")
def test_processes_share_a_broker_and_whoever_may_stop_one_has_its_own(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(TWO_LINES)
    pytester.makepyfile(
        """
        import os
        import pathlib
        import time
        from urllib.parse import urlsplit

        met = pathlib.Path(os.environ["MEETING"])

        def met_on(name, url):
            worker = os.environ["PYTEST_XDIST_WORKER"]
            written = met / f".{name}-{worker}"
            written.write_text(str(urlsplit(url).port))
            written.rename(met / f"{name}-{worker}")  # whole, or not there
            deadline = time.monotonic() + 120
            while len(found := list(met.glob(f"{name}-*"))) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return [file.read_text() for file in found]

        def test_together(rabbitmq_url, rabbitmq_management_url):
            one, other = met_on("shared", rabbitmq_url)
            assert one == other

        def test_alone(rabbitmq_url, rabbitmq_broker):
            rabbitmq_broker.restart()
            one, other = met_on("own", rabbitmq_url)
            assert one != other
            (shared,) = {file.read_text() for file in met.glob("shared-*")}
            assert shared not in (one, other)
        """
    )
    meeting = pytester.mkdir("meeting")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEETING", str(meeting))
        result = pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "-n", "2", "--dist", "each"
        )
    result.assert_outcomes(passed=4)
    result.stdout.re_match_lines([r"RabbitMQ \d+\.\d+\.\d+ \((container|process).*\)"])


def test_a_broker_that_can_not_be_had_is_an_error_that_says_what_to_install(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(TWO_LINES + NOTHING_TO_BE_HAD)
    pytester.makepyfile("def test_the_broker(rabbitmq_url): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            (
                "No RabbitMQ can be started here: no container engine answers, and no "
                "rabbitmq-server is installed."
            ),
            (
                "Start Docker or Podman and install redrive?testing?, install rabbitmq-server, or "
                "set REDRIVE_URL to a running broker."
            ),
        ]
    )
    result.stdout.no_fnmatch_line("*choice.py*")


def test_tests_that_need_no_broker_start_none(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(TWO_LINES + NOTHING_TO_BE_HAD)
    pytester.makepyfile("def test_arithmetic(): assert 1 + 1 == 2")
    result = run(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("RabbitMQ *")
