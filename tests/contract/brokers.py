"""Which broker a test of the contract runs on: the one in memory, RabbitMQ, or both.

Each runs in memory if the model has what it needs. On RabbitMQ run the tests that the model can't
run, those whose result depends on the version of RabbitMQ, and the representatives below, which
keep the model true. REDRIVE_TEST_BROKER=rabbitmq or =memory runs all that can run there, and
nothing on the other one.
"""

import os
from collections.abc import Collection
from typing import Literal

_VARIABLE = "REDRIVE_TEST_BROKER"
Kind = Literal["memory", "rabbitmq"]

NEEDS_MORE = {
    "rabbitmq_management_url": "asks the management API",
    "rabbitmq_broker": "controls the broker itself: users, rights, alarms, its end",
}
"""Fixtures that the broker in memory has nothing for, and what a test wants of them."""

REPRESENTATIVES = {
    "test_a_filter_as_text_is_asked_by_the_broker_where_it_can_be_and_by_the_subscriber": (
        "a headers exchange that compares types and values"
    ),
    "test_a_rule_has_a_failed_queue_of_its_own_which_is_looked_at_and_requeued_like_any_other": (
        "a failed queue whose messages are judged by its name"
    ),
    "test_a_job_is_found_and_resumed_by_the_teams_journal_from_another_machine": "a stream",
    "test_each_subscriber_handles_its_own": "several consumers on one connection",
    "test_what_fails_is_retried_and_set_aside_by_its_own_subscriber": "retries within an app",
    "test_a_channel_that_the_broker_closes_hurts_its_subscriber_alone": "a closed channel",
    "test_a_queue_that_is_deleted_is_there_again_and_the_others_do_not_notice": "basic.cancel",
    "test_looking_at_the_first_few_keeps_the_order": "the place that a returned message takes",
    "test_a_message_that_is_looked_at_is_not_handled": "a single active consumer",
    "test_purging_deletes_all_and_says_how_many": "queue.purge",
    "test_a_queue_bound_with_hash_gets_one_copy_of_what_another_retries_sets_aside_and_requeues": (
        "topic routing"
    ),
    "test_what_failed_nowhere_goes_to_a_queue_that_is_named": "the default exchange",
    "test_by_the_first_exchange_every_queue_that_is_bound_there_gets_a_copy": "a fanout",
    "test_what_subscribers_tell_of_a_requeue_is_watched": "an exclusive queue",
    "test_an_expiration_ends_when_the_message_is_set_aside": "the TTL of a message",
    "test_what_a_full_failed_queue_refuses_stays_until_there_is_room": "reject-publish",
    "test_middleware_hears_what_comes_next_and_the_hook_of_the_end": "a handler of an app",
    "test_a_message_whose_headers_leave_no_room_is_set_aside_without_ours": "the size of a frame",
    "test_two_who_look_at_once_both_see_all": "consumers that take turns",
    "test_sending_waits_for_a_look": "a consumer that is refused",
    "test_nothing_overtakes_a_message_that_is_tried_again": "prefetch and order",
    "test_one_instance_handles_and_the_others_wait": "a single active consumer",
    "test_a_retry_is_told_once_for_each_message_however_it_is_retried": "outcomes",
    "test_a_watch_counts_each_message_that_fails_once": "a binding beside the failed queue",
    "test_without_a_consumer_as_many_are_sent_as_there_is_room_for": "the depth of a queue",
    "test_a_message_that_the_broker_closes_the_channel_over_costs_no_other": "confirms that end",
    "test_what_nobody_is_bound_for_is_reported_where_it_is_mandatory": "basic.return",
    "test_eight_threads_share_a_publisher": "confirms by the hundred",
    "test_a_publisher_goes_on_after_an_exchange_was_deleted_and_declared_again": "a 404",
    "test_what_one_queue_does_not_take_is_an_error_and_another_queue_gets_it_once": "basic.nack",
    "test_all_are_requeued_and_handled": "a requeue",
    "test_what_was_said_of_the_failure_is_taken_off_and_the_rest_is_kept": "properties",
    "test_a_message_waits_for_its_delay_before_each_retry": "the TTL of a queue",
    "test_a_message_that_recovers_is_handled_and_not_set_aside": "dead-lettering and back",
    "test_a_subscription_gets_exactly_what_has_its_tags": "headers exchanges",
    "test_a_changed_expression_leaves_nothing_of_the_old_one": "unbinding",
    "test_in_broadcast_each_instance_gets_every_message": "queues that expire",
    "test_as_many_handlers_run_at_the_same_time_as_asked_for": "prefetch",
    "test_a_subscriber_that_stops_finishes_what_runs_and_gives_the_rest_back": "basic.cancel",
    "test_a_message_is_not_lost_when_the_place_for_failed_ones_was_deleted": "alternate exchanges",
    "test_causes_are_told_the_most_frequent_first_and_nothing_moves": "a look",
    "test_a_canary_that_fails_stops_the_job_which_goes_on_when_it_is_resumed": "a job",
    "test_a_body_that_is_no_model_of_the_handlers_is_set_aside_at_once_with_the_reason": (
        "publishing to the failed exchange"
    ),
    "test_a_body_travels_as_it_came_through_retries_the_failed_queue_and_a_requeue": (
        "content types and encodings"
    ),
    "test_each_retry_waits_for_its_own_delay": "the delay ladder",
    "test_a_scheduled_message_comes_after_its_delay_to_each_of_its_subscribers_once": (
        "the delay ladder, and from there to bindings"
    ),
    "test_messages_for_a_queue_that_is_gone_are_parked_and_the_others_flow": (
        "the alternate exchange of the ladder"
    ),
}
"""Tests that run on RabbitMQ as well as in memory, by function, and what of it each shows."""


def is_memory_alone() -> bool:
    """Whether nothing is to run on RabbitMQ."""
    return os.environ.get(_VARIABLE) == "memory"


def why_not_in_memory(fixtures: Collection[str]) -> str | None:
    """Why a test can't run on the broker in memory; None if it can."""
    return next((NEEDS_MORE[name] for name in NEEDS_MORE if name in fixtures), None)


def brokers_of(fixtures: Collection[str], function: str, *, depends_on_version: bool) -> list[Kind]:
    """The brokers that a test runs on."""
    in_memory = why_not_in_memory(fixtures) is None
    if is_memory_alone():
        return ["memory"] if in_memory else []
    if not in_memory or os.environ.get(_VARIABLE) == "rabbitmq":
        return ["rabbitmq"]
    if depends_on_version or function in REPRESENTATIVES:
        return ["memory", "rabbitmq"]
    return ["memory"]
