"""The modes of lift against a plain loop, and against each other for every method."""

import pytest
import torch

from fedrepro.core import lift, trees
from fedrepro.core.lift import modes, over_clients, over_seeds
from fedrepro.core.types import Batch, Task
from fedrepro.errors import UsageError
from fedrepro.nets import choose

MODES = ("vmap", 2, "loop")
SIZES, SEEDS = (20, 20, 20), (0, 1, 2)


def affine(w, x):
    """One client: a tree and a tuple come back, as from a training."""
    return {"y": w["m"] @ x + w["b"]}, (x * 2).sum()


def rows(count):
    generator = torch.Generator().manual_seed(0)
    w = {"m": torch.randn(count, 3, 4, generator=generator), "b": torch.randn(count, 3, generator=generator)}
    return w, torch.randn(count, 4, generator=generator)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 3])
def test_clients_are_the_plain_loop(mode, count):
    w, x = rows(count)
    with modes(clients=mode):
        shown, total = over_clients(affine)(w, x)
        shared, _ = over_clients(affine, (0, None))(w, x[0])
    assert total.shape == (count,)
    for k in range(count):
        torch.testing.assert_close(shown["y"][k], w["m"][k] @ x[k] + w["b"][k])
        torch.testing.assert_close(total[k], (x[k] * 2).sum())
        torch.testing.assert_close(shared["y"][k], w["m"][k] @ x[0] + w["b"][k])


@pytest.mark.parametrize("mode", MODES)
def test_seeds_are_the_plain_loop(mode):
    batches, states = [], []
    for seed in range(3):
        x = torch.full((2, 1, 4, 1), float(seed + 1))
        batches.append(Batch(torch.arange(2), x, torch.zeros(2, 1, 4), torch.ones(2, 1, 4, dtype=torch.bool)))
        states.append({"w": torch.tensor([1.0, 10.0]) * (seed + 1)})

    def step(state, batch):
        per_client = over_clients(lambda w, x: w * x.sum())(state["w"], batch.x)
        return {"w": per_client}, {"seen": per_client.sum()}

    with modes(seeds=mode):
        new, shown = over_seeds(step)(trees.stack(states), batches)
    assert new["w"].tolist() == [[4, 40], [16, 160], [36, 360]]  # 4 rows of s, times w s
    assert shown["seen"].tolist() == [44, 176, 396]


def calls(run):
    """How often a lifted function is entered: once where its rows are batched."""
    entered = []
    run(lambda *args: entered.append(1) or args[0])
    return len(entered)


def test_gradients_in_turn_are_the_plain_loop():
    params, x = rows(3)
    params["unused"] = torch.ones(3, 2)
    before = {name: leaf.clone() for name, leaf in params.items()}
    gradient, values = lift.in_turn(lambda own, k: ((own["m"] @ x[k] + own["b"]) ** 2).sum(), params)
    for k in range(3):
        out = params["m"][k] @ x[k] + params["b"][k]
        torch.testing.assert_close(values[k], (out**2).sum())
        torch.testing.assert_close(gradient["b"][k], 2 * out)
        torch.testing.assert_close(gradient["m"][k], 2 * out[:, None] * x[k])
    assert gradient["unused"].tolist() == [[0, 0]] * 3
    assert not values.requires_grad
    assert all(torch.equal(leaf, before[name]) and not leaf.requires_grad for name, leaf in params.items())


@pytest.mark.parametrize(("mode", "entered"), [("vmap", 1), (2, 2), ("loop", 3)])
def test_the_mode_decides_how_often_the_function_is_entered(mode, entered):
    with modes(clients=mode):
        assert calls(lambda fn: over_clients(fn)(torch.ones(3))) == entered


def test_a_single_row_is_not_batched():
    assert over_clients(lambda x: torch.tensor(x.item()))(torch.ones(1)).tolist() == [1]  # item() fails under vmap


@pytest.mark.parametrize(("rows", "entered"), [(4, 1), (5, 3)])
def test_seeds_are_batched_up_to_a_number_of_rows(monkeypatch, rows, entered):
    monkeypatch.setattr(lift, "_TOGETHER", 4)
    live = torch.ones(1, 1, rows, dtype=torch.bool)
    batches = [Batch(torch.arange(1), live, live, live)] * 3
    step = lambda fn: over_seeds(lambda state, batch: (fn(state), {}))(torch.ones(3), batches)  # noqa: E731
    assert calls(step) == entered
    with modes(seeds="vmap"):
        assert calls(step) == 1


def test_what_stacked_clients_have_of_their_own_is_taken_by_auto_alone():
    taken = []
    lifted = over_clients(lambda x: x, own=lambda x: taken.append(len(x)) or x)
    for mode in ("vmap", 2, "loop", "auto"):
        with modes(clients=mode):
            lifted(torch.ones(3))
    assert taken == [3]
    live = torch.ones(2, 1, 4, dtype=torch.bool)
    batches = [Batch(torch.arange(2), live, live, live)] * 3
    over_seeds(lambda state, batch: (lifted(state), {}))(torch.ones(3, 2), batches)
    assert taken == [3]  # not where seeds are batched around
    over_seeds(lambda state, batch: (lifted(state), {}), alone=True)(torch.ones(3, 2), batches)
    assert taken == [3, 2, 2, 2]


@pytest.mark.parametrize(("rows", "entered"), [(4, 1), (5, 2)])
def test_clients_are_batched_up_to_a_number_of_rows_of_a_step(monkeypatch, rows, entered):
    monkeypatch.setattr(lift, "_SIDE_BY_SIDE", 4)
    live = torch.ones(2, 1, rows, dtype=torch.bool)
    batches = [Batch(live, live, live, live)]

    def step(fn):
        over_seeds(lambda state, batch: (over_clients(fn)(state), {}))(torch.ones(1, 2), batches)

    assert calls(step) == entered


def test_which_networks_have_which_way_of_their_own():
    # docs/reference.md, "Modes"
    grey, coloured = (Task(shape, 10, (20, 20)) for shape in ((1, 28, 28), (3, 32, 32)))
    ways = {}
    for name, build in choose.NETS.items():
        ways.setdefault(build(coloured if name == "resnet18" else grey, 8).descend.__module__, set()).add(name)
    assert ways == {
        "fedrepro.nets.mlp": {"mlp"},
        "fedrepro.nets.cnn": {"cnn", "lenet", "cnn-large"},
        "fedrepro.nets.modules": {"cnn-fair", "resnet18"},
    }


def test_a_phase_alone_is_never_batched():
    live = torch.ones(1, 1, 2, dtype=torch.bool)
    with modes(seeds="vmap"):
        found = calls(
            lambda fn: over_seeds(lambda s, b: (fn(s), {}), alone=True)(torch.ones(3), [Batch(*[live] * 4)] * 3)
        )
    assert found == 3


@pytest.mark.parametrize(("asked", "entered"), [("vmap", 1), ("2", 2), ("loop", 3)])
def test_a_mode_as_it_is_typed(asked, entered):
    with lift.asked(asked):
        assert calls(lambda fn: over_clients(fn)(torch.ones(3))) == entered


@pytest.mark.parametrize("asked", ["", "0", "-1", "1.5", "fast"])
def test_a_mode_that_there_is_not(asked):
    with pytest.raises(UsageError, match="unknown mode"):
        lift.asked(asked)


def test_modes_end_with_the_block():
    with pytest.raises(ZeroDivisionError), modes(clients="loop"):
        1 / 0  # noqa: B018
    assert calls(lambda fn: over_clients(fn)(torch.ones(3))) == 1
    with modes(clients="loop"), modes(seeds=2):
        assert calls(lambda fn: over_clients(fn)(torch.ones(3))) == 3


@pytest.fixture(scope="module")
def cycles():
    """The results of one cycle by variant and mode, since each is compared with each."""
    return {}


@pytest.mark.parametrize(
    ("clients", "seeds"), [("auto", "loop"), ("vmap", "loop"), (2, "vmap"), ("loop", "vmap"), ("vmap", 2)]
)
def test_every_method_is_the_same_in_every_mode(training, toy, variant, cycles, clients, seeds):
    name, hyper = variant
    x = toy(9, SIZES).x

    def cycle(clients, seeds):
        run = training(name, sizes=SIZES, seeds=SEEDS, hyper=hyper, rounds=50)
        start = run.state
        with modes(clients=clients, seeds=seeds):
            for _ in zip(run.method.phases, run, strict=False):
                pass
        logits = [run.method.predict(trees.one(run.state, row), x) for row in range(len(SEEDS))]
        return start, run.state, torch.stack(logits)

    key = (name, *hyper.items())
    if key not in cycles:
        cycles[key] = cycle("loop", "loop")
    (start, plain, plain_logits), (_, lifted, logits) = cycles[key], cycle(clients, seeds)
    # As lift.py states it; here a learning rate is 0.02 (phi's 2.5e-5).
    torch.testing.assert_close(logits, plain_logits, rtol=0, atol=1e-5)
    moved = 0.0
    for (leaf, a), (_, b), (_, c) in zip(*map(trees.leaves, (plain, lifted, start)), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=0.002, msg=lambda m, leaf=leaf: f"{leaf}: {m}")
        moved = max(moved, (a.double() - c.double()).abs().max().item())
    assert moved > 0.005  # the cycle did train
