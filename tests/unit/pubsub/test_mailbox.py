"""What is handed to the connection's thread, and how often that is woken."""

from redrive.pubsub.mailbox import Mailbox
from unit.pubsub.fake_wire import FakeLink
from unit.pubsub.running_engine import RunningEngine


class Box:
    """A mailbox, and what was made of what was put into it."""

    def __init__(self) -> None:
        self.link = FakeLink(RunningEngine().engine)
        self.events: list[object] = []
        self.mailbox: Mailbox[int] = Mailbox(
            self.link, self.handle, lambda: self.events.append("emptied")
        )

    def handle(self, item: int) -> None:
        """Handles an item; 1 puts in another."""
        self.events.append(item)
        if item == 1:
            self.mailbox.put(100)


def test_what_has_gathered_is_handled_in_its_order_and_at_one_waking() -> None:
    box = Box()
    for item in (2, 3, 4):
        box.mailbox.put(item)
    assert (len(box.link.calls), box.events) == (1, [])
    box.link.run()
    assert box.events == [2, 3, 4, "emptied"]


def test_what_comes_later_wakes_it_again() -> None:
    box = Box()
    box.mailbox.put(2)
    box.link.run()
    box.mailbox.put(3)
    box.link.run()
    assert box.events == [2, "emptied", 3, "emptied"]


def test_what_is_put_in_while_another_is_handled_is_handled_too() -> None:
    box = Box()
    box.mailbox.put(1)
    box.link.run()
    assert box.events[:2] == [1, 100]
    assert box.mailbox is not None
    assert set(box.events[2:]) == {"emptied"}
