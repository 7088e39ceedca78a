"""What the pytest plugin shows, without a broker."""

import pytest

from redrive.testing import plugin

CONFTEST = f"""
import pytest

pytest_plugins = ["{plugin.__name__}"]

class FakeBroker:
    def log(self):
        return "\\n".join("line " + str(number) for number in range(100))

    def __str__(self):
        return "RabbitMQ 4.3.6"

@pytest.fixture
def rabbitmq_broker():
    return FakeBroker()
"""
TESTS = """
def test_that_fails(rabbitmq_broker):
    assert not rabbitmq_broker

def test_that_passes(rabbitmq_broker):
    pass

def test_that_fails_without_a_broker():
    assert False
"""


def test_the_end_of_the_brokers_log_is_shown_with_a_test_that_fails(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2, passed=1)
    shown = [line for line in result.outlines if line.startswith("line ")]
    assert shown == [f"line {number}" for number in range(60, 100)]
    result.stdout.fnmatch_lines(["*end of the log of RabbitMQ 4.3.6*"])


def test_a_broker_in_memory_is_each_tests_own(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(f'pytest_plugins = ["{plugin.__name__}"]')
    pytester.makepyfile(
        """
        import pytest

        seen = set()

        @pytest.mark.parametrize("turn", [1, 2])
        def test_a_broker(turn, memory_broker):
            memory_broker.turn("1h")
            seen.add(memory_broker.url)
            assert len(seen) == turn
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
