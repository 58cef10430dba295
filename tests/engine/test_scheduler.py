"""Who runs and who waits when many requests are driven through one engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specli.engine.scheduler import Scheduler
from specli.engine.sequence import Sequence
from tests.engine.test_sequences import greedy, scripted


def test_requests_are_taken_when_there_is_room_and_come_back_when_they_end() -> None:
    engine = scripted(n_slots=2)
    taken: list[Sequence] = []

    def requests() -> Iterator[Sequence]:
        for n_predict in (6, 2, 2, 1):
            taken.append(engine.sequence([5, 6], greedy(n_predict)))
            yield taken[-1]

    ended, most = [], 0
    for each in Scheduler(engine).run(requests()):
        each.events.clear()
        most = max(most, sum(not other.is_done for other in taken))
        if each.is_done:
            ended.append((taken.index(each), len(each.tokens), len(taken)))
    assert most == 2
    assert ended == [(1, 2, 2), (2, 2, 3), (3, 1, 4), (0, 6, 4)]


def test_fewer_can_run_than_there_are_slots() -> None:
    engine = scripted(n_slots=4)
    scheduler = Scheduler(engine, 1)
    for _ in range(3):
        scheduler.add(engine.sequence([5, 6], greedy(3)))
    widths = []
    while n := scheduler.step():
        widths.append(n)
    assert widths == [1] * 9
    assert Scheduler(engine, 9).n_running == 4


def test_once_stopped_nothing_is_taken_and_what_runs_ends() -> None:
    engine = scripted(n_slots=2)
    made = [engine.sequence([5, 6], greedy(n)) for n in (2, 50, 50)]
    source = iter(made)
    done = [each for each in Scheduler(engine).run(source, lambda: made[0].is_done) if each.is_done]
    assert done == made[:1]
    assert [each.stop for each in made[1:]] == ["interrupt", "interrupt"]
    assert made[1].is_done
    assert next(source) is made[2]  # it was never asked for
    assert all(slot.sequence is None for slot in engine.slots)


def test_who_leaves_early_ends_what_runs() -> None:
    engine = scripted(n_slots=2)
    running = Scheduler(engine).run([engine.sequence([5, 6], greedy(50)) for _ in range(3)])
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert all(slot.sequence is None for slot in engine.slots)


def test_a_failing_step_ends_its_requests_and_leaves_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = scripted(n_slots=1)
    scheduler = Scheduler(engine)
    first, second = (engine.sequence([5, 6], greedy(2)) for _ in range(2))
    scheduler.add(first)
    scheduler.add(second)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "evaluate", lambda parts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scheduler.step()
    assert first.is_done
    assert scheduler.sequences == [second]
    while scheduler.step():
        pass
    assert (second.stop, len(second.tokens)) == ("limit", 2)
