"""The chooser against the virtual clock: what it takes is what is fastest there."""

import numpy as np
import pytest

from minidist.collectives import choose as chooser
from minidist.collectives import costs
from minidist.collectives.choose import FLAT, Choice, Network, between, choose, predict
from minidist.comm import Link, by_node, run
from minidist.errors import ConfigError, DataError
from minidist.network import DEFAULT, Measured, measured
from minidist.testing import laws
from minidist.testing.mutants import mutate

LINK = Link(64.0, 1.0)  # a knee at 64 bytes
SIZES = [0, 1, 8, 64, 120, 512, 4096, 65_536]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path))


def clock(call, ranks, links, nbytes):
    """Seconds of the slowest rank on the virtual clock."""

    def program(comm):
        start = comm.time
        call(comm, np.zeros(nbytes, np.uint8))
        return comm.time - start

    return max(run(program, ranks=ranks, links=links))


def chosen_and_best(ranks, nbytes, link=LINK):
    network = Network([0] * ranks, link, link)
    choice = run(lambda comm: choose(nbytes, comm, network), ranks=ranks)[0]
    taken = {name: clock(call, ranks, link, nbytes) for name, call in FLAT.items()}
    return choice, taken


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_the_chosen_one_is_the_fastest(ranks, nbytes):
    choice, taken = chosen_and_best(ranks, nbytes)
    uneven = 2 * ranks / LINK.bandwidth  # pieces differ by a byte in each step
    assert taken[choice.name] <= min(taken.values()) + uneven
    assert abs(choice.seconds - taken[choice.name]) <= uneven


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("ranks", [3, 5, 6, 7])
def test_other_numbers_of_ranks_come_close(ranks, nbytes):
    # Here formulas count a port per rank, and the clock a wire per pair: the tree is cheaper there.
    choice, taken = chosen_and_best(ranks, nbytes)
    assert taken[choice.name] <= 1.5 * min(taken.values())


def test_small_arrays_want_few_messages_and_large_ones_few_bytes():
    names = [chosen_and_best(8, n)[0].name for n in SIZES]
    assert names[1] == "doubling"
    assert names[-1] in ("ring", "halving")


def test_adding_overlaps_with_a_network_card_and_not_with_a_copy():
    link = Link(64.0, 64.0)
    for hosts, fastest in (([0] * 8, "ring"), (range(8), "segmented")):
        predicted = predict(1 << 26, Network(hosts, link, link, add=1 / 64))
        assert (predicted["ring"] < predicted["segmented"]) == (fastest == "ring")


def test_a_chooser_that_takes_the_slowest_is_rejected():
    worst = mutate(chooser.choose, "min(seconds", "max(seconds")
    choice = run(lambda comm: worst(8, comm, Network([0] * 8, LINK, LINK)), ranks=8)[0]
    _, taken = chosen_and_best(8, 8)
    assert taken[choice.name] > min(taken.values()) + 16


INSIDE, ACROSS = Link(1.0, 1024.0), Link(256.0, 8.0)


@pytest.mark.parametrize("nbytes", [8, 512, 4096, 65_536])
@pytest.mark.parametrize("sizes", [(4, 4), (2, 2, 2, 2), (2, 2, 2), (3, 2)])
def test_on_several_nodes_too(sizes, nbytes):
    hosts = [i for i, n in enumerate(sizes) for _ in range(n)]
    network = Network(hosts, INSIDE, ACROSS)
    links = by_node(sizes, INSIDE, ACROSS, shared_card=True)

    def program(comm):
        choice = choose(nbytes, comm, network)
        two_levels = chooser.two_levels(comm, hosts)
        start = comm.time
        choice(comm, np.zeros(nbytes, np.uint8))
        middle = comm.time
        two_levels(comm, np.zeros(nbytes, np.uint8), None, "sum")
        return choice, middle - start, comm.time - middle

    results = run(program, ranks=len(hosts), links=links)
    choice, taken = results[0][0], max(r[1] for r in results)
    best = min(
        max(r[2] for r in results),
        *[clock(call, len(hosts), links, nbytes) for call in FLAT.values()],
    )
    assert taken <= 1.6 * best
    assert (choice.name == "hierarchical") == (nbytes >= 4096)
    assert taken <= choice.seconds * 1.02 + 8


def test_two_levels_share_the_card_among_the_ranks_of_the_smallest_node():
    """That many ranks of each node have a piece to send across, and they send at once."""
    uneven = Network([0] * 4 + [1] * 2, INSIDE, ACROSS)
    inner, outer = costs.hierarchical_all_reduce([4, 2], 4096)
    card = ACROSS._replace(bandwidth=ACROSS.bandwidth / 2)
    want = inner.seconds(INSIDE) + outer.seconds(card)
    assert predict(4096, uneven)["hierarchical"] == want


def test_the_neighbours_of_a_ring_count():
    # The same eight ranks, node after node or in turn: then every hop of the ring crosses.
    blocks, turns = Network([0] * 4 + [1] * 4, INSIDE, ACROSS), Network([0, 1] * 4, INSIDE, ACROSS)
    assert predict(4096, blocks)["ring"] < predict(4096, turns)["ring"]
    assert predict(4096, blocks)["doubling"] == predict(4096, turns)["doubling"]


@pytest.mark.parametrize("ranks", range(1, 20))
def test_rounds_add_up_to_the_formulas(ranks):
    predicted = predict(840, Network([0] * ranks, LINK, LINK, add=2.0))
    for name, formula in (
        ("halving", costs.halving_all_reduce),
        ("doubling", costs.doubling_all_reduce),
        ("tree", costs.tree_all_reduce),
    ):
        want = formula(ranks, 840).seconds(LINK, add=2.0)
        if ranks & (ranks - 1) and name != "halving":  # some chains are shorter than the rounds
            assert want <= predicted[name] <= 1.5 * want
        else:
            assert predicted[name] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("hosts", [[0], [0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 2]])
@pytest.mark.parametrize("nbytes", [0, 8, 800, 80_000])
def test_what_is_chosen_is_an_all_reduce(hosts, nbytes):
    def program(comm):
        choice = choose(nbytes, comm, Network(hosts, LINK, Link(1e3, 1.0)))
        for _ in range(2):  # the nodes are split once
            x, out = laws.values(comm.rank, nbytes // 8), np.full(nbytes // 8, -1.0)
            assert choice(comm, x, out, op="max") is out
            laws.same(out, laws.combined(comm.size, nbytes // 8, "max"), choice.name)
            choice(comm, x)
            laws.same(x, laws.combined(comm.size, nbytes // 8, "sum"), choice.name)
        return choice

    choices = run(program, ranks=len(hosts))
    assert all(isinstance(c, Choice) and c.name == choices[0].name for c in choices)
    assert ("hierarchical" in choices[0].candidates) == (len(set(hosts)) in (2,))


def test_all_ranks_go_by_what_rank_0_has_measured(monkeypatch):
    known = Measured({"process": Link(3.0, 5.0)}, add=0.5)
    loads = iter([known] + [pytest.fail] * 9)  # nobody but rank 0 may look
    monkeypatch.setattr(chooser, "load", lambda: next(loads))

    def program(comm):
        choose(8, comm)
        choose(8, comm.channel("another call of the same group"))
        return chooser.surroundings(comm)

    for network in run(program, ranks=3):
        assert (network.inside, network.add) == (known.links["process"], 0.5)
        assert network.across == DEFAULT.links["network"]


def test_levels_go_by_node_and_process():
    one = Measured({"process": Link(1, 1), "node": Link(2, 2), "network": Link(3, 3)}, 0.0)
    assert between([("a", 1), ("a", 1)], one).inside.latency == 1
    assert between([("a", 1), ("a", 2)], one).inside.latency == 2
    apart = between([("a", 1), ("b", 1)], one)
    assert apart.sizes == [1, 1]
    assert apart.link(lambda r: 1 - r).latency == 3
    assert between([("a", 1), ("a", 2), ("b", 1)], one).inside.latency == 2


def test_wrong_use_is_refused():
    def program(comm):
        for nbytes in (-1, 1.5, float("nan"), 10**400):
            with pytest.raises(ConfigError, match="is no number of bytes"):
                choose(nbytes, comm)
        with pytest.raises(ConfigError, match="2 hosts, 3 ranks"):
            choose(8, comm, Network([0, 0], LINK, LINK))

    run(program, ranks=3)


@pytest.mark.parametrize("wrong", [Link(-1.0), Link(np.nan), Link(np.inf), Link(1.0, 0.0),
                                   Link(1.0, -1.0), Link(1.0, np.nan)])  # fmt: skip
def test_what_no_link_can_be_is_refused(wrong):
    for links in ((wrong, LINK), (LINK, wrong)):
        with pytest.raises(ConfigError, match="a link needs latency"):
            Network([0, 0], *links)


@pytest.mark.parametrize("add", [-1.0, np.nan, np.inf])
def test_what_adding_cannot_take_is_refused(add):
    with pytest.raises(ConfigError, match="s a byte; must be 0 or more"):
        Network([0, 0], LINK, LINK, add)


def test_a_damaged_cache_is_one_sentence():
    measured.cache_file().write_text("{}")
    with pytest.raises(DataError, match="run minidist measure-links"):
        run(lambda comm: choose(8, comm), ranks=1)
