"""How complete an answer is: never called so where anything is missing, and mostly called so where nothing is."""

from __future__ import annotations

from collections import Counter

import pytest
from held_back_world import World

QUICK = range(60)
LONG = range(1_000, 3_000)
LEAST_SHARE = 0.9


def compare(seeds: range) -> tuple[int, int, Counter[str]]:
    """Of all questions: how often nothing was missing, how often that was said, and why not else."""
    so = said = 0
    why: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed)
        world.run()
        for text, since, until in world.questions(6):
            answer = world.judged(text, since, until)
            missing = world.missing(text, since, until)
            if answer.verdict == "complete":
                assert not missing, f"seed {seed}, {text!r} from {since} to {until}: {missing[0]}"
            if not missing:
                so += 1
                said += answer.verdict == "complete"
                if answer.verdict != "complete":
                    why.update({one.why for one in answer.reasons})
    return so, said, why


def test_complete_is_said_where_it_is_so_and_nowhere_else() -> None:
    so, said, why = compare(QUICK)
    print(f"\nsimulated: complete in {so} answers, said in {said} ({said / so:.1%}); else: {dict(why.most_common())}")
    assert said / so >= LEAST_SHARE


@pytest.mark.soak
def test_complete_is_said_where_it_is_so_and_nowhere_else_for_long() -> None:
    so, said, why = compare(LONG)
    print(f"\nsimulated: complete in {so} answers, said in {said} ({said / so:.1%}); else: {dict(why.most_common())}")
    assert said / so >= LEAST_SHARE
