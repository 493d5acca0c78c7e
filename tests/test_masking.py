"""The laws of the federated family: drifts, adaptive servers, masks and FedGMA, against references written out here."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad

from fedrepro import methods
from fedrepro.core import lift, trees
from fedrepro.core.optim import sgd
from fedrepro.core.types import Batch, Report, Task
from fedrepro.data.draws import Feeder
from fedrepro.errors import UsageError
from fedrepro.methods import parts
from fedrepro.nets.mlp import cross_entropy, mlp

SIZES = (20, 9, 14)
MLP = {"net": "mlp", "hidden": 5, "batch": 4, "epochs": 2, "lr": 0.05}
FIVE = {
    "fedavg": {"optimiser": "sgd"},
    "fedprox": {"mu": 0.3},
    "scaffold": {},
    "fedadam": {"server_lr": 0.02},
    "fedyogi": {"server_lr": 0.02},
}


@pytest.fixture
def play(training):
    """play(method, rounds, **hyper) -> the training after that many rounds, on three clients of unequal size."""

    def run(name, rounds=4, sizes=SIZES, seeds=(0,), **hyper):
        trained = training(name, sizes=sizes, seeds=seeds, rounds=rounds, hyper=MLP | FIVE.get(name, {}) | hyper)
        for _ in trained:
            pass
        return trained

    return run


def final(trained, row=0):
    return trees.one(trained.state["server"]["params"], row)


def flat(params):
    return torch.cat([leaf.flatten() for _, leaf in trees.leaves(params)])


def drawn(trained, rounds, seed=0):
    """The batches that the training saw, drawn by a feeder of its own."""
    lane = trained.lanes[seed]
    feeder = Feeder(lane.seed, lane.feeder.x, lane.feeder.y, lane.feeder.sizes)
    return [feeder.draw(trained.method.phases[0].draw, t) for t in range(rounds)]


def start(training, name, sizes=SIZES, **hyper):
    made = training(name, sizes=sizes, rounds=1, hyper=MLP | FIVE.get(name, {}) | hyper)
    return trees.one(made.state["server"]["params"], 0)


NET = mlp(18, 5, 5, 2)


def slope(params, x, y):
    return grad(lambda p: cross_entropy(NET.apply(p, x), y, torch.ones(len(y), dtype=torch.bool)))(params)


def minus(a, b, scale=1.0):
    return trees.map_tree(lambda a, b: a - scale * b, a, b)


def local(params, batch, k, lr, pull=lambda w: None):
    """One client's plain steps; returns its weights, the number of steps and its last gradient."""
    w, count = params, 0
    for x, y, live in zip(batch.x[k], batch.y[k], batch.live[k], strict=True):
        if live.any():
            last = slope(w, x[live], y[live])
            extra = pull(w)
            w, count = minus(w, trees.add(last, extra) if extra else last, lr), count + 1
    return w, count, last


@pytest.mark.parametrize("mask", ["soft", "hard"])
@pytest.mark.parametrize("name", FIVE)
def test_a_mask_with_tau_0_is_plain_averaging_bit_for_bit(play, same, name, mask):
    same(final(play(name)), final(play(name, mask=mask, tau=0.0)))


@pytest.mark.parametrize("name", FIVE)
def test_a_mask_changes_the_result_where_clients_disagree(play, name):
    assert not torch.equal(flat(final(play(name))), flat(final(play(name, mask="soft", tau=1.0))))


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_without_a_drift_it_is_fedavg(play, same, name):
    hyper, rounds = ({"mu": 0.0}, 4) if name == "fedprox" else ({}, 1)  # SCAFFOLD's variates begin at 0
    same(final(play(name, rounds, **hyper)), final(play("fedavg", rounds)))


def test_fedprox_is_its_formula(play, training):
    trained, mu, lr = play("fedprox", 3), 0.3, MLP["lr"]
    w = start(training, "fedprox")
    for batch in drawn(trained, 3):
        each = [
            local(w, batch, k, lr, lambda at, w=w: trees.map_tree(lambda a, b: mu * (a - b), at, w))[0]
            for k in range(3)
        ]
        w = trees.mean(trees.stack(each), torch.tensor(SIZES) / sum(SIZES))
    torch.testing.assert_close(flat(final(trained)), flat(w), rtol=1e-5, atol=1e-6)


def test_scaffold_is_the_ten_line_reference(play, training):
    trained, lr = play("scaffold", 4), MLP["lr"]
    w = start(training, "scaffold")
    zero = trees.map_tree(torch.zeros_like, w)
    c, own = zero, [zero, zero, zero]
    for batch in drawn(trained, 4):
        each, new = [], []
        for k in range(3):
            to, count, _ = local(w, batch, k, lr, lambda at, c=c, c_k=own[k]: minus(c, c_k))
            new.append(trees.add(minus(own[k], c), trees.map_tree(lambda a, b, n=count: (a - b) / (n * lr), w, to)))
            each.append(to)
        c = trees.add(
            c, trees.mean(trees.stack([minus(a, b) for a, b in zip(new, own, strict=True)]), torch.full((3,), 1 / 3))
        )
        w, own = trees.mean(trees.stack(each), torch.tensor(SIZES) / sum(SIZES)), new
    torch.testing.assert_close(flat(final(trained)), flat(w), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(flat(trees.one(trained.state["server"]["shared"], 0)), flat(c), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("steps", [0, 5])
def test_scaffolds_server_moves_against_its_variate_where_all_take_equal_steps(play, training, steps):
    trained, lr = play("scaffold", 1, steps=steps), MLP["lr"]
    w, (batch,) = start(training, "scaffold"), drawn(trained, 1)
    each, counts, _ = zip(*(local(w, batch, k, lr) for k in range(3)), strict=True)
    assert counts == ((5, 5, 5) if steps else (10, 4, 6))
    moved = minus(w, trees.mean(trees.stack(list(each)), torch.full((3,), 1 / 3)))
    variate = flat(trees.one(trained.state["server"]["shared"], 0))
    along = flat(moved) / (sum(counts) / 3 * lr)
    assert torch.allclose(variate, along, rtol=1e-4, atol=1e-5) == bool(steps)  # else those of few steps weigh more


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_adaptive_servers_by_hand(name):
    # Reddi et al. 2021, Algorithm 2, on one coordinate and the mean deltas 0.5, -0.25, 0.125.
    second = {"fedadam": parts.adam_moment, "fedyogi": parts.yogi_moment}[name]
    rule = parts.average(parts.adaptive(0.1, 0.9, 0.99, 1e-3, second))
    s, w, got, m, v = rule.init({"w": torch.zeros(1)}), 0.0, 0.0, 0.0, 1e-6
    for delta in (0.5, -0.25, 0.125):
        m = 0.9 * m + 0.1 * delta
        v = 0.99 * v + 0.01 * delta**2 if name == "fedadam" else v - 0.01 * delta**2 * math.copysign(1, v - delta**2)
        w += 0.1 * m / (math.sqrt(v) + 1e-3)
        report = Report({"w": torch.tensor([[delta]])}, torch.zeros(1), {})
        step, s = rule.update(report, torch.ones(1), s)
        got += step["w"].item()
        assert got == pytest.approx(w, rel=1e-5)
        assert s["v"]["w"].item() == pytest.approx(v, rel=1e-5)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20))
def test_yogis_second_moment_stays_non_negative(gradients):
    v = torch.tensor([1e-6])
    for g in gradients:
        v = parts.yogi_moment(v, torch.tensor([g]).square(), 0.99)
        assert v.item() >= 0


def report(*deltas):
    return Report({"w": torch.tensor(deltas)}, torch.zeros(len(deltas)), {})


def test_a_mask_worked_by_hand():
    # Signs (+,+,-): 1/3; (+,+,+): 1; (+,0,-): 0; (+,0,+): 2/3. Weights 1/2, 1/4, 1/4.
    deltas = report([4.0, 1.0, 2.0, 8.0], [4.0, 2.0, 0.0, 0.0], [-4.0, 3.0, -2.0, 4.0])
    weights, mean = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([2.0, 1.75, 0.5, 5.0])
    for mask, tau, signs, factor in (
        ("soft", 0.5, "equal", [1 / 3, 1, 0, 1]),
        ("hard", 0.5, "equal", [0, 1, 0, 1]),
        ("soft", 1.0, "equal", [1 / 3, 1, 0, 2 / 3]),
        ("soft", 1.0, "size", [1 / 2, 1, 1 / 4, 3 / 4]),
        ("hard", 0.5, "size", [1, 1, 0, 1]),
    ):
        rule = parts.masked(parts.average(sgd(1.0)), mask, tau, signs)
        step, s = rule.update(deltas, weights, rule.init({"w": torch.zeros(4)}))
        torch.testing.assert_close(step["w"], mean * torch.tensor(factor))
        agreed = {"equal": [1 / 3, 1, 0, 2 / 3], "size": [1 / 2, 1, 1 / 4, 3 / 4]}[signs]
        assert s["survival"]["all"].item() == pytest.approx(sum(a >= tau for a in agreed) / 4)


def test_a_rescaled_mask_worked_by_hand():
    # The masks of test_a_mask_worked_by_hand, [1/3, 1, 0, 1] and [0, 1, 0, 1], have the means 7/12 and 1/2.
    deltas = report([4.0, 1.0, 2.0, 8.0], [4.0, 2.0, 0.0, 0.0], [-4.0, 3.0, -2.0, 4.0])
    weights, mean = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([2.0, 1.75, 0.5, 5.0])
    for mask, factor in (("soft", [4 / 7, 12 / 7, 0, 12 / 7]), ("hard", [0, 2, 0, 2])):
        rule = parts.masked(parts.average(sgd(1.0)), mask, 0.5, "equal", rescale=True)
        step, _ = rule.update(deltas, weights, rule.init({"w": torch.zeros(4)}))
        torch.testing.assert_close(step["w"], mean * torch.tensor(factor))


@pytest.mark.parametrize("positive", range(11))
def test_agreement_of_ten_clients_is_exact(positive):
    # A threshold of 0.4 must let 7 against 3 pass, whatever a sum of tenths rounds to.
    deltas = {"w": torch.tensor([[1.0]] * positive + [[-1.0]] * (10 - positive))}
    agreed = parts.agreement(deltas, torch.full((10,), 0.1))["w"]
    assert agreed.item() == pytest.approx(abs(2 * positive - 10) / 10)
    assert bool(agreed >= 0.4) == (abs(2 * positive - 10) >= 4)


@given(st.integers(1, 6), st.sampled_from(["soft", "hard"]), st.floats(0, 1))
def test_equal_updates_pass_any_mask(clients, mask, tau):
    deltas = report(*[[0.5, -2.0, 3.0]] * clients)
    weights = torch.full((clients,), 1 / clients)
    plain, rule = parts.average(sgd(1.0)), parts.masked(parts.average(sgd(1.0)), mask, tau, "equal")
    step, s = rule.update(deltas, weights, rule.init({"w": torch.zeros(3)}))
    assert torch.equal(step["w"], plain.update(deltas, weights, {})[0]["w"])
    assert s["survival"]["all"] == 1


def test_rejected_clients_have_no_vote():
    deltas = report([1.0], [1.0], [0.0])  # the third was rejected: its update is zero and so is its weight
    assert parts.agreement(deltas.delta, torch.tensor([0.5, 0.5, 0.0]))["w"].item() == 1


@pytest.mark.parametrize("gradient", ["initial", "sum", "last"])
def test_fedgma_without_a_server_step_is_fedavg(play, gradient):
    averaged = play("fedavg", 3)
    masked = play("fedgma", 3, cohort=0, server_lr=0.0, gradient=gradient)
    assert torch.equal(flat(final(averaged)), flat(final(masked)))


@pytest.mark.parametrize("gradient", ["initial", "sum", "last"])
@pytest.mark.parametrize(("mask_rule", "threshold"), [("formula", 0.3), ("formula", 0.5), ("fraction", 0.6)])
def test_fedgma_is_its_formula(play, training, gradient, mask_rule, threshold):
    # Of three clients 2 against 1 agree by |2f - 1| = 1/3 and by f = 2/3.
    sizes, lr, server_lr = (20, 8, 12), MLP["lr"], 0.2  # whole batches of four
    hyper = {"cohort": 0, "server_lr": server_lr, "gradient": gradient}
    trained = play("fedgma", 3, sizes, mask_rule=mask_rule, threshold=threshold, **hyper)
    w, shares = start(training, "fedgma", sizes, cohort=0), torch.tensor(sizes) / sum(sizes)
    for batch in drawn(trained, 3):
        each, gradients = [], []
        for k, size in enumerate(sizes):
            to, _, last = local(w, batch, k, lr)
            x, y, live = (of[k, : size // 4].flatten(0, 1) for of in (batch.x, batch.y, batch.live))
            whole = slope(w, x[live], y[live])
            summed = trees.map_tree(lambda a, b: (a - b) / lr, w, to)
            gradients.append({"initial": whole, "sum": summed, "last": last}[gradient])
            each.append(to)
        stacked = trees.stack(gradients)
        votes = trees.map_tree(lambda g: g.sign().sum(0).abs() / 3, stacked)
        kept = trees.map_tree(lambda a: a >= threshold if mask_rule == "formula" else (a + 1) / 2 >= threshold, votes)
        step = trees.map_tree(torch.mul, trees.mean(stacked, shares), kept)
        w = minus(trees.mean(trees.stack(each), shares), step, server_lr)
    torch.testing.assert_close(flat(final(trained)), flat(w), rtol=1e-4, atol=1e-5)


def test_survival_is_on_the_curves(play):
    for trained, masked in (
        (play("fedgma", 3, cohort=0), True),
        (play("fedavg", 3, mask="soft"), True),
        (play("fedavg", 3), False),
    ):
        points = {(t, name): value for t, name, value in trained.lanes[0].curve if name.startswith("mask_survival")}
        assert bool(points) == masked
        if masked:
            assert {t for t, _ in points} == {1, 2, 3}
            assert {name for _, name in points} == {f"mask_survival_{part}" for part in ("all", "fc1", "fc2", "fc3")}
            assert all(0 <= value <= 1 for value in points.values())


def test_a_cohort_leaves_the_others_memory_alone(play):
    trained = play("scaffold", 1, sizes=(8, 8, 8, 8), cohort=2)
    took_part = drawn(trained, 1)[0].clients.tolist()
    moved = [flat(trees.one(trees.one(trained.state["clients"], 0), k)).abs().sum() > 0 for k in range(4)]
    assert [k for k, is_moved in enumerate(moved) if is_moved] == took_part


@pytest.mark.parametrize("name", FIVE)
def test_a_client_with_non_finite_data_is_left_out_and_counted(training, toy, name):
    data = toy(0, (12, 12, 12))
    x = data.x.float() / 255
    x[12:24] = math.nan
    broken = data.__class__(x, data.y, data.sizes, data.tests, data.classes, data.facts)
    others = data.__class__(x, data.y, data.sizes, data.tests, data.classes, data.facts)
    hyper = MLP | FIVE[name] | {"mask": "soft"}
    trained = training(
        name, sizes=data.sizes, data={0: broken}, rounds=3, hyper=hyper, watch={"samples": 1, "train_every": 99}
    )
    trained.lanes[0].watched = (others.x[:4], others.y[:4])
    for _ in trained:
        pass
    assert trained.lanes[0].rejected == 3
    assert torch.isfinite(flat(final(trained))).all()


@pytest.mark.parametrize(("cohort", "drawn"), [(0, "all"), (2, 2), (3, "all")])
def test_a_cohort_is_drawn_where_there_are_more_clients(cohort, drawn):
    method = methods.build("fedprox", Task((2, 3, 3), 2, (4, 4, 4)), {"cohort": cohort, "net": "mlp"})
    assert method.phases[0].draw.clients == drawn


def test_a_cohort_larger_than_the_clients_is_refused():
    with pytest.raises(UsageError, match="cohort=4 is more than the 3 clients"):
        methods.build("fedprox", Task((2, 3, 3), 2, (4, 4, 4)), {"cohort": 4, "net": "mlp"})


@pytest.mark.parametrize(
    ("key", "value"), [("mask", "medium"), ("net", "vgg"), ("tau", -0.1), ("tau", 1.5), ("cohort", -1)]
)
def test_bad_values_are_refused(key, value):
    with pytest.raises(UsageError, match=key):
        methods.build("fedyogi", Task((2, 3, 3), 2, (4, 4)), {"net": "mlp", key: value})


@pytest.mark.parametrize("name", [*FIVE, "fedgma"])
def test_seeds_together_are_seeds_alone(play, name):
    hyper = {"mask": "soft"} if name in FIVE else {"cohort": 2}
    together = play(name, 3, seeds=(0, 1, 2), **hyper)
    for row, seed in enumerate((0, 1, 2)):
        alone = play(name, 3, seeds=(seed,), **hyper)
        torch.testing.assert_close(flat(final(together, row)), flat(final(alone)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stacked", [False, True])
def test_steps_of_unequal_clients_are_those_of_each_alone(stacked):
    live = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()[..., None]
    x = torch.arange(12.0).view(3, 4, 1)

    def step(state, batch):
        carry = lift.over_steps(
            lambda carry, fixed, x, live: {"w": carry["w"] * fixed["a"] + x.flatten(1).sum(1)},
            {"w": state["w"]}, {"a": state["a"]}, (batch.x,), batch.live,
        )  # fmt: skip
        return carry, {}

    state = {"w": torch.tensor([1.0, 2.0, 3.0]), "a": torch.tensor([0.5, 2.0, -1.0])}
    batch = Batch(torch.arange(3), x, torch.zeros(3, 4, 1), live)
    count = 2
    with lift.modes(seeds="vmap" if stacked else "loop"):
        out, _ = lift.over_seeds(step)(trees.stack([state] * count), [batch] * count)
    for k, steps in enumerate((2, 4, 1)):
        w = state["w"][k].item()
        for t in range(steps):
            w = w * state["a"][k].item() + x[k, t].item()
        assert out["w"][:, k].tolist() == [w] * count
