"""Rules 1 and 2: child specifications and the options of supervisors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from supervisors import (
    ActorError,
    Backoff,
    ChildSpec,
    DynamicSupervisor,
    InvalidChildSpec,
    Supervisor,
    TaskSupervisor,
    open_supervisor,
    start_child,
    which_children,
)


def spec(id: str = "a", **options: Any) -> ChildSpec:
    return ChildSpec(id=id, start=lambda: None, **options)


def test_rule_1_defaults() -> None:
    made = spec()
    assert (made.restart, made.shutdown, made.type, made.significant, made.backoff) == (
        "permanent",
        None,
        "worker",
        False,
        None,
    )
    assert made.seconds_to_stop(supervises=False) == 5.0
    assert made.seconds_to_stop(supervises=True) == "infinity"
    assert spec(type="supervisor").seconds_to_stop(supervises=False) == "infinity"
    assert spec(shutdown=0).seconds_to_stop(supervises=True) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"shutdown": -1},
        {"shutdown": math.nan},
        {"shutdown": "soon"},
        {"restart": "always"},
        {"type": "boss"},
        {"id": ""},
        {"id": 3},
        {"backoff": 2.0},
        {"significant": True},  # and permanent
    ],
)
def test_rule_1_a_specification_that_cannot_work_is_rejected_by_itself(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidChildSpec) as caught:
        spec(**options)
    assert isinstance(caught.value, ActorError)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).endswith((".", "temporary."))


def test_rule_1_start_must_be_callable() -> None:
    with pytest.raises(InvalidChildSpec):
        ChildSpec(id="a", start=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("children", "options"),
    [
        ([spec("a"), spec("a")], {}),
        ([], {"max_restarts": -1}),
        ([], {"max_restarts": 1.5}),
        ([], {"max_seconds": 0}),
        ([], {"max_seconds": math.nan}),
        ([], {"strategy": "one_for_some"}),
        ([], {"auto_shutdown": "sometimes"}),
        ([spec(significant=True, restart="transient")], {}),
        ([spec(backoff=Backoff())], {"strategy": "one_for_all"}),
        ([spec(backoff=Backoff())], {"strategy": "rest_for_one"}),
        (["a"], {}),
    ],
)
async def test_rules_1_and_33_a_supervisor_that_cannot_work_is_rejected(
    children: list[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidChildSpec):
        Supervisor(children, **options)
    with pytest.raises(InvalidChildSpec):
        async with open_supervisor(children, **options):
            raise AssertionError("it must not open")


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_rule_1_max_children_is_a_count(limit: Any) -> None:
    with pytest.raises(InvalidChildSpec):
        DynamicSupervisor(max_children=limit)
    with pytest.raises(InvalidChildSpec):
        TaskSupervisor(max_children=limit)


def test_rule_1_unknown_options_are_a_type_error() -> None:
    with pytest.raises(TypeError):
        spec(colour="red")
    with pytest.raises(TypeError):
        Supervisor([], colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        open_supervisor([], colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [{"initial": -1}, {"initial": math.inf}, {"factor": 0.5}, {"maximum": 0.1}, {"jitter": 1.5}, {"reset_after": -1}],
)
def test_rule_1_a_backoff_that_cannot_work_is_rejected(options: dict[str, float]) -> None:
    with pytest.raises(InvalidChildSpec):
        Backoff(**options)


async def test_rule_1_start_child_rejects_what_does_not_fit(stage: Any) -> None:
    children = [ChildSpec(id="d", start=lambda: DynamicSupervisor(name="d"), type="supervisor")]
    async with open_supervisor(children, strategy="one_for_all") as root:
        for sup in (root, "d"):
            with pytest.raises(InvalidChildSpec):
                await start_child(sup, stage.spec("a", significant=True, restart="transient"))
        with pytest.raises(InvalidChildSpec):
            await start_child(root, stage.spec("a", backoff=Backoff()))
        assert [child.id for child in await which_children(root)] == ["d"]
        assert await which_children("d") == []


async def test_rule_2_the_default_intensity_is_three_restarts_in_five_seconds(
    stage: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_supervisor([stage.spec("a")]) as root:
        for _ in range(3):
            await stage.crash("a")
        await trio.sleep(5.001)
        for _ in range(3):
            await stage.crash("a")
        assert (await which_children(root))[0].restarts == 6
