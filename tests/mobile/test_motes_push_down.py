"""Filters pushed down onto motes: unchanged firmware on the virtual radio."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from motes_kit import HOT, SOURCE, constants, listening, programs, until, wanted
from radio_kit import Scene, linked, on_air, program

from spinney.mote import addressed
from spinney_mobile.motes.mote import IN_REACH_SECONDS, UNWANTED_SECONDS


def test_a_wanted_state_filter_goes_onto_the_mote_which_tells_when_its_bit_changes(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await until(lambda: broker.infos)
            assert programs(scene) == []
            asked = asyncio.get_running_loop().time()
            broker.motes.want(SOURCE, wanted(HOT), epoch=3)
            await until(lambda: broker.on_mote() == {HOT})
            assert asyncio.get_running_loop().time() - asked < 2.0
            assert len(programs(scene)) == 1
            await until(lambda: broker.bits(HOT) == [False])
            for temperature, bits in ((30.0, [False, True]), (24.0, [False, True]), (20.0, [False, True, False])):
                scene.readings["temperature"] = temperature
                await until(lambda expected=bits: broker.bits(HOT) == expected)
            assert [sample.values for sample in broker.samples] == [{"temperature": t} for t in (20.0, 30.0, 20.0)]
            mark = broker.samples[1].marks[HOT]
            assert mark.order == (0, broker.samples[1].boot, broker.samples[1].sequence)

    on_air(tmp_path, play)


def test_what_nobody_wants_any_more_is_withdrawn(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT, "temperature > 40"), epoch=1)
            await until(lambda: len(programs(scene)) == 2)
            broker.motes.want(SOURCE, wanted("temperature > 40"), epoch=1)
            await until(lambda: len(programs(scene)) == 1)
            assert broker.on_mote() == frozenset()
            broker.motes.want(SOURCE, {}, epoch=1)
            await until(lambda: not programs(scene))

    on_air(tmp_path, play)


def test_a_content_filter_lets_through_what_it_matches_and_nothing_else(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted("temperature > 25"), epoch=1)
            await until(lambda: programs(scene))
            for count, temperature in enumerate((26.0, 20.0, 27.0, 10.0, 28.0), 1):
                scene.readings["temperature"] = temperature
                if temperature > 25:
                    await until(lambda t=temperature: {"temperature": t} in [one.values for one in broker.samples])
                else:
                    seen = scene.life.samples
                    await until(lambda before=seen, more=count: scene.life.samples >= before + 1 + more % 2)
            assert {sample.values["temperature"] for sample in broker.samples} == {26.0, 27.0, 28.0}
            assert all(sample.passed for sample in broker.samples)
            assert broker.on_mote() == frozenset(), "it keeps no bit"

    on_air(tmp_path, play)


def test_a_weaker_filter_sends_what_the_broker_then_decides(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted("temperature > 25 AND lat > 45"), epoch=1)
            await until(lambda: programs(scene))
            before = scene.life.samples
            await until(lambda: scene.life.samples >= before + 3)
            assert broker.samples == []
            scene.readings["temperature"] = 26.0
            await until(lambda: broker.samples)
            assert broker.samples[0].passed
            mote = broker.health()
            assert "lat" in mote["here"]["temperature > 25 AND lat > 45"]

    on_air(tmp_path, play)


def test_for_what_the_mote_cannot_decide_at_all_it_sends_every_sample(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted("lat > 45", "temperature > 25", HOT), epoch=1)
            await until(lambda: len(broker.samples) >= 5)
            numbers = [sequence for _, sequence in broker.numbers()]
            assert numbers == list(range(numbers[0] or 0, (numbers[0] or 0) + len(numbers))), "not one is left out"
            assert broker.on_mote() == {HOT}
            assert not any(sample.passed for sample in broker.samples)
            assert len(programs(scene)) == 2, "a program that only lets samples through is not needed beside"
            broker.motes.want(SOURCE, wanted("temperature > 25", HOT), epoch=1)
            await until(lambda: broker.health()["here"] == {})
            await until(lambda: len(programs(scene)) == 2)
            before, seen = len(broker.samples), scene.life.samples
            await until(lambda: scene.life.samples >= seen + 3)
            assert len(broker.samples) <= before + 1

    on_air(tmp_path, play)


def test_constants_of_a_source_decide_before_anything_is_put(tmp_path: Path) -> None:
    text = "WHEN temperature > 25 AND room = 'kit' UNTIL temperature <= 22"

    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(text), constants(room="kit"), epoch=1)
            await until(lambda: broker.on_mote() == {text})
            broker.motes.want(SOURCE, wanted(text), constants(room="lab"), epoch=1)
            await until(lambda: len(programs(scene)) == 1 and b"room" not in programs(scene)[0])
            scene.readings["temperature"] = 30.0
            broker.motes.want(SOURCE, wanted("room = 'kit'"), constants(room="lab"), epoch=1)
            await until(lambda: not programs(scene))

    on_air(tmp_path, play)


def test_a_scope_that_is_constant_on_the_mote_is_told_with_its_bit(tmp_path: Path) -> None:
    text = HOT + " EACH room"

    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(text), constants(room="kit"), epoch=1)
            await until(lambda: broker.bits(text) == [False])
            scene.readings["temperature"] = 30.0
            await until(lambda: broker.bits(text) == [False, True])
            assert [sample.marks[text].value for sample in broker.samples] == [None, "kit"]

    on_air(tmp_path, play)


def test_a_new_epoch_makes_bits_unknown_and_tells_them_anew(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [True])
            broker.motes.want(SOURCE, wanted(HOT), epoch=2)
            await until(lambda: broker.bits(HOT) == [True, True])
            assert [int.from_bytes(one[6:10], "little") for one in programs(scene)] == [2]
            assert all(HOT in digests for _, digests in broker.tables[broker.tables.index((SOURCE, {HOT})) :])

    on_air(tmp_path, play)


def test_a_table_too_small_for_all_keeps_what_fits_and_sends_the_rest(tmp_path: Path) -> None:
    texts = [f"WHEN temperature > {25 + n} UNTIL temperature <= 22" for n in range(12)]

    async def play(_: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(*texts), epoch=1)
            await until(lambda: broker.on_mote())
            await until(lambda: broker.bits(texts[0]) == [False])
            held = broker.on_mote()
            assert held < set(texts)
            assert held == set(texts[: len(held)]), "the oldest stay"
            mote = broker.health()
            assert set(mote["here"]) == set(texts) - held
            await until(lambda: len(broker.samples) >= 3)
            assert broker.motes.counts["failures"] == 0
            broker.motes.want(SOURCE, wanted(*texts[2:]), epoch=1)
            await until(
                lambda: len(broker.on_mote() & set(texts[2:])) == len(held) and texts[0] not in broker.on_mote()
            )
            assert held & set(texts[2:]) < broker.on_mote()

    on_air(tmp_path, play, table_bytes=256)


def test_a_table_that_somebody_else_changed_is_put_right(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            (ours,) = programs(scene)
            await until(lambda: not broker.is_connected)
            async with linked() as other:
                await other.change_filters(
                    {500: program("temperature > 0", 500)}, [int.from_bytes(ours[2:4], "little")]
                )
            await until(lambda: programs(scene) == [ours])

    on_air(tmp_path, play)


def test_what_another_program_tells_under_a_number_of_ours_is_not_taken_for_our_filters_bit(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            await broker.puts_hot()
            broker.is_deaf = True
            (ours,) = programs(scene)
            number = int.from_bytes(ours[2:4], "little")
            async with linked() as other:
                theirs = program("WHEN temperature > 10 UNTIL temperature <= 5", number)
                await other.change_filters({number: addressed(theirs, number, 1)}, [])
            await until(lambda: len(scene.life.ring) == 1)  # it says that its bit is set
            broker.is_deaf = False
            await until(lambda: len(broker.bits(HOT)) == 2)
            assert broker.bits(HOT) == [False, False], "told anew, by our own program"
            assert broker.motes.counts["stray labels"] == 1
            (again,) = programs(scene)
            assert int.from_bytes(again[2:4], "little") != number

    on_air(tmp_path, play)


def test_a_broker_that_restarts_knows_what_waiting_events_mean_and_changes_nothing(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as before:
            await before.puts_hot()
        generation = scene.life.table.generation
        scene.readings["temperature"] = 30.0
        await until(lambda: len(scene.life.ring) == 1)
        async with listening(kept=before.kept) as after:
            after.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: after.bits(HOT) == [True])
            assert after.on_mote() == {HOT}
        assert scene.life.table.generation == generation

    on_air(tmp_path, play)


def test_a_broker_that_is_killed_right_after_a_commit_knows_what_it_has_put(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.air.interval_s = 0.15
        async with listening() as before:
            before.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: programs(scene))
            kept = dict(before.kept)
            assert not before.on_mote(), "it has not heard yet that the commit was made"
        generation = scene.life.table.generation
        scene.readings["temperature"] = 30.0
        async with listening(kept=kept) as after:
            after.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: after.bits(HOT)[-1:] == [True])
            assert after.motes.counts["stray labels"] == 0
        assert scene.life.table.generation == generation

    on_air(tmp_path, play)


def test_a_broker_that_has_lost_what_it_knew_makes_the_table_its_own(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as before:
            before.motes.want(SOURCE, wanted("temperature > 30", HOT), epoch=1)
            await until(lambda: before.bits(HOT) == [False])
        async with listening() as after:
            after.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: after.bits(HOT) == [False])
            assert len(programs(scene)) == 1

    on_air(tmp_path, play)


def test_a_mote_that_nobody_wants_anything_of_stops_sampling_until_somebody_does(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [False])
            broker.motes.want(SOURCE, {}, epoch=1)
            await until(lambda: not programs(scene))
            await until(lambda: not broker.is_connected)
            assert scene.life.sampling, "it may be wanted again soon, and each switch is written to flash"
            await until(lambda: not scene.life.sampling, UNWANTED_SECONDS + 60)
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: scene.life.sampling)
            await until(lambda: broker.bits(HOT) == [False, False])
            assert (broker.motes.counts["sampling off"], broker.motes.counts["sampling on"]) == (1, 1)

    on_air(tmp_path, play)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_filter_that_was_withdrawn_and_comes_back_at_once_starts_with_its_bit_unknown(
    tmp_path: Path, restarts: bool
) -> None:
    """Within one lease, and before the mote could be told (rule S2): what it had told by then is not of the new one."""

    async def play(_: Scene) -> None:
        async with listening() as before:
            before.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: before.bits(HOT) == [False])
            before.is_deaf = True
            await until(lambda: not before.is_connected)
            before.motes.want(SOURCE, {}, epoch=1)
            if not restarts:
                before.motes.want(SOURCE, wanted(HOT), epoch=1)
                before.is_deaf = False
                await until(lambda: before.bits(HOT) == [False, False])
        if restarts:
            async with listening(kept=before.kept) as broker:
                broker.motes.want(SOURCE, wanted(HOT), epoch=1)
                await until(lambda: broker.bits(HOT) == [False])

    on_air(tmp_path, play)


def test_what_a_mote_tells_of_a_filter_while_nobody_wants_it_is_not_missed_when_it_comes_back(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT, "temperature > 100"), epoch=1)
            await until(lambda: broker.bits(HOT) == [True])
            broker.is_deaf = True
            await until(lambda: not broker.is_connected)
            await asyncio.sleep(IN_REACH_SECONDS)
            broker.motes.want(SOURCE, wanted("temperature > 100"), epoch=1)
            scene.readings["temperature"] = 20.0
            taken = scene.life.ring.next
            await until(lambda: scene.life.ring.next > taken)
            broker.is_deaf = False
            await until(lambda: broker.motes.counts["stray labels"] == 1)
            broker.motes.want(SOURCE, wanted(HOT, "temperature > 100"), epoch=1)
            await until(lambda: broker.bits(HOT) == [True, False])

    on_air(tmp_path, play)


def test_a_mote_tells_its_bits_anew_when_one_more_subscription_shares_their_filter_r3(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [True])
            broker.motes.want(SOURCE, {HOT: replace(wanted(HOT)[HOT], start=9)}, epoch=1)
            await until(lambda: broker.bits(HOT) == [True, True])
            broker.motes.want(SOURCE, {HOT: replace(wanted(HOT)[HOT], start=8)}, epoch=1)
            scene.readings["temperature"] = 20.0
            await until(lambda: broker.bits(HOT) == [True, True, False])

    on_air(tmp_path, play)


def test_a_mote_that_is_given_up_and_taken_back_under_the_same_lease_tells_its_bits_anew(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        scene.readings["temperature"] = 30.0
        async with listening() as broker:
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [True])
            broker.motes.release(SOURCE)
            await until(lambda: not broker.is_connected)
            broker.motes.want(SOURCE, wanted(HOT), epoch=1)
            await until(lambda: broker.bits(HOT) == [True, True])

    on_air(tmp_path, play)
