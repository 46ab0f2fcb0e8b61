"""One history of a group by its seed. `python -m tests.support.failover.histories --seeds 1000` runs many.

A history that breaks a promise raises Violation with its seed; `--seed N --talk` shows how it came about.
"""

from __future__ import annotations

import argparse
import random

import attrs

from rocketpy.failover.rules.states import State

from .checker import Checker, Violation
from .faults import Faults, heal
from .world import Weather, World, config_of

FAULTS_S = 16.0
HEALED_S = 25.0


@attrs.frozen
class Result:
    """What a history held, so that many can be shown to hold something."""

    acknowledgements: int
    promotions: int
    is_whole: bool  # at the end there was a master, with everybody in sync


def play(seed: int, mode: str, *, talks: bool = False) -> Result:
    """Run the history of a seed. Raises: Violation."""
    try:
        return _play(seed, mode, talks)
    except Violation as exc:
        raise Violation(
            f"{exc} [replay: python -m tests.support.failover.histories --{mode} --seed {seed} --talk]"
        ) from exc


def _play(seed: int, mode: str, talks: bool) -> Result:
    chance = random.Random(f"{mode} {seed}")
    is_sync = mode == "sync"
    names = ["a", "b", "c"][: chance.choice([2, 3])]
    weather = Weather(lost=chance.choice([0.0, 0.05]), slow=chance.choice([0.0, 0.05]))
    if is_sync:
        weather.early = chance.choice([0.0, 0.1])
    world = World(random=chance, checker=Checker(is_sync), weather=weather, talks=talks)
    for name in names:
        spread = 0.2 if is_sync else 0.02
        world.add(name, config_of(names, mode), 1 + spread * (chance.random() - 0.5), 1e6 * chance.random())
    Faults(world, FAULTS_S, losses=chance.random() < 0.8, spares_one=chance.random() < 0.9).begin()
    world.run(FAULTS_S)
    heal(world)
    before = world.checker.acknowledgements
    world.run(HEALED_S)
    checker = world.checker
    is_whole = _is_whole(world)
    if is_whole:
        checker.ended({name: node.disk.log for name, node in world.nodes.items()})
    elif may_recover(world):
        raise Violation(f"no master with everybody in sync {HEALED_S} s after the last fault")
    if is_whole and checker.acknowledgements == before:
        raise Violation("nothing was acknowledged after the last fault")
    return Result(checker.acknowledgements, checker.promotions, is_whole)


def _is_whole(world: World) -> bool:
    state = world.etcd.view().state
    if state is None:
        return False
    in_sync = {name: node.disk.incarnation for name, node in world.nodes.items()}
    master = world.nodes[state.master].member
    return dict(state.in_sync) == in_sync and master is not None and master.state is State.MASTER


def may_recover(world: World) -> bool:
    """Whether a group without people must have a master: somebody still has all that was acknowledged."""
    view = world.etcd.view()
    if view.state is None:
        return True
    if world.checker.is_sync and world.checker.unclean:  # a member that has shown more than is left halts
        return False
    return any(view.state.names(name, node.disk.incarnation) for name, node in world.nodes.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories of each mode")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--talk", action="store_true", help="show what happens")
    parser.add_argument("--sync", action="append_const", dest="modes", const="sync")
    parser.add_argument("--async", action="append_const", dest="modes", const="async")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else [options.seed]
    for mode in options.modes or ["sync", "async"]:
        results = [play(seed, mode, talks=options.talk) for seed in seeds]
        print(
            f"{mode}: {len(results)} histories, {sum(one.promotions for one in results)} promotions, "
            f"{sum(one.acknowledgements for one in results)} acknowledgements, "
            f"{sum(one.is_whole for one in results)} whole at the end"
        )


if __name__ == "__main__":
    main()
