"""Domain generalisation: weightings against their formulas, penalties against autograd, methods against plain torch."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.types import Task
from fedrepro.data.draws import Feeder
from fedrepro.errors import UsageError
from fedrepro.methods import weightings
from fedrepro.methods.penalties import Penalty, penalised
from fedrepro.nets.choose import choose

SIZES = (20, 12, 16)
HYPER = {"net": "mlp", "hidden": 6, "lr": 0.02, "batch": 4}
SMOOTH = {"eps": 1e-3}  # Adam's, so that rounding does not decide the direction of a nearly zero gradient
ADAM = HYPER | SMOOTH
TWINS = ("erm", "groupdro", "mm-rex", "v-rex", "irm")

finite = st.floats(-20, 20, allow_nan=False, width=32)
five = st.lists(finite, min_size=5, max_size=5)


@pytest.fixture
def play(training):
    """play(method, rounds, **hyper) -> (the training after those rounds, its parameters at the start, its batches)."""

    def run(name, rounds, sizes=SIZES, data=None, **hyper):
        hyper = {key: value for key, value in (ADAM | hyper).items() if key in methods.find(name).hyper}
        made = training(name, sizes=sizes, rounds=rounds, hyper=hyper, data=data)
        begin, phases, lane = trees.one(made.state["server"]["params"], 0), made.method.phases, made.lanes[0]
        feeder = Feeder(lane.seed, lane.feeder.x, lane.feeder.y, lane.feeder.sizes)
        drawn = [feeder.draw(phases[t % len(phases)].draw, t) for t in range(rounds)]
        for _ in made:
            pass
        return made, begin, drawn

    return run


def flat(params):
    return torch.cat([leaf.flatten() for _, leaf in trees.leaves(params)])


def final(made):
    return trees.one(made.state["server"]["params"], 0)


def same_model(made, wanted, **tolerance):
    torch.testing.assert_close(flat(final(made)), flat(wanted), **({"rtol": 1e-4, "atol": 1e-5} | tolerance))


def copied(params):
    """Parameters that torch can differentiate and step."""
    return {name: leaf.clone().requires_grad_() for name, leaf in trees.leaves(params)}


def apply(params, x):
    """The toy network, written out on parameters by their dotted names."""
    h = x.flatten(1) / 255 if x.dtype == torch.uint8 else x.flatten(1)
    for layer in ("fc1", "fc2", "fc3"):
        h = F.linear(h, params[f"{layer}.weight"], params[f"{layer}.bias"])
        h = h if layer == "fc3" else F.elu(h)
    return h


def adam(params, lr=0.02):
    return torch.optim.Adam(params.values(), lr=lr, eps=SMOOTH["eps"])


def trained(begin, batch, k, optimiser=adam, loss=F.cross_entropy):
    """Client k's parameters after its steps from `begin`."""
    params = copied(begin)
    steps = optimiser(params)
    for x, y, live in zip(batch.x[k], batch.y[k], batch.live[k], strict=True):
        if live.any():
            steps.zero_grad()
            loss(apply(params, x[live]), y[live]).backward()
            steps.step()
    return {name: leaf.detach() for name, leaf in params.items()}


def whole_risk(params, batch, k):
    with torch.no_grad():
        return F.cross_entropy(apply(params, batch.x[k][batch.live[k]]), batch.y[k][batch.live[k]]).item()


def named(params):
    return dict(trees.leaves(params))


def mixed(models, weights):
    return {name: sum(w * model[name] for w, model in zip(weights, models, strict=True)) for name in models[0]}


# Projection


@settings(max_examples=30, deadline=None)
@given(five, st.sampled_from([-1.0, 0.0, 0.1]))
def test_the_projection_is_that_of_a_generic_solver(y, alpha):
    x = weightings.project(torch.tensor(y, dtype=torch.float64), alpha)
    assert x.sum().item() == pytest.approx(1, abs=1e-9)
    assert x.min() >= alpha - 1e-9
    y = np.array(y)
    sums_to_one = {"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(5)}
    found = minimize(
        lambda x: ((x - y) ** 2).sum(),
        np.full(5, 0.2),
        jac=lambda x: 2 * (x - y),
        bounds=[(alpha, None)] * 5,
        constraints=[sums_to_one],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(x, found.x, atol=1e-5)


@settings(deadline=None)
@given(five, st.floats(-3, 0.19))
def test_nothing_of_the_set_is_nearer_than_the_projection(y, alpha):
    y = torch.tensor(y, dtype=torch.float64)
    x = weightings.project(y, alpha)
    # The variational inequality at the corners, which span the set: (y - x) . (corner - x) <= 0.
    corners = torch.full((5, 5), alpha, dtype=torch.float64) + torch.eye(5, dtype=torch.float64) * (1 - 5 * alpha)
    assert ((corners - x) @ (y - x)).max() <= 1e-8 * (1 + y.abs().max() ** 2)


def test_the_projection_keeps_what_is_inside():
    inside = torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(weightings.project(inside), inside)
    assert weightings.project(torch.tensor([0.7, 0.2, 5.0])).tolist() == [0, 0, 1]


# Weightings are the gradients of the losses that they stand for

# Unequal in float32 too, where a maximum of several has another subgradient.
RISKS = st.lists(st.floats(0, 5, width=32), min_size=4, max_size=4, unique=True)
FORMULAS = {
    "erm": (weightings.equal(), lambda risks: risks.mean()),
    "v-rex": (weightings.v_rex(3.0, 0), lambda risks: risks.mean() + 3 * risks.var(correction=0)),
    "v-rex with v = 0": (weightings.v_rex(0.0, 0), lambda risks: risks.mean()),
    "v-rex at first": (weightings.v_rex(3.0, 1), lambda risks: risks.mean() + risks.var(correction=0)),
    "mm-rex": (weightings.mm_rex(-1.0), lambda risks: (1 + len(risks)) * risks.max() - risks.sum()),
    "mm-rex with lmin = 0": (weightings.mm_rex(0.0), lambda risks: risks.max()),
    "mm-rex with lmin = 1/m": (weightings.mm_rex(0.25), lambda risks: risks.mean()),
}


@pytest.mark.parametrize("name", FORMULAS)
@settings(deadline=None)
@given(RISKS)
def test_weights_are_the_gradient_of_the_combined_risk(name, risks):
    rule, combined = FORMULAS[name]
    risks = torch.tensor(risks, requires_grad=True)
    wanted = torch.autograd.grad(combined(risks), risks)[0]
    weights, _ = rule.update(risks.detach(), torch.ones(4).bool(), rule.init(torch.full((4,), 0.25)))
    torch.testing.assert_close(weights, wanted, rtol=1e-4, atol=1e-5)


RULES = {
    "equal": weightings.equal(),
    "held": weightings.held(),
    "group-dro": weightings.group_dro(0.5),
    "mm-rex": weightings.mm_rex(-1.0),
    "v-rex": weightings.v_rex(2.0, 0),
}


@pytest.mark.parametrize("name", RULES)
def test_an_absent_client_has_no_weight_and_the_others_those_of_being_alone(name):
    rule, risks = RULES[name], torch.tensor([0.5, 9.0, 0.2, 1.5])
    present = torch.tensor([True, False, True, True])
    weights, _ = rule.update(risks, present, rule.init(torch.full((4,), 1 / 4)))
    alone, _ = rule.update(risks[present], torch.ones(3).bool(), rule.init(torch.full((3,), 1 / 3)))
    assert weights[1] == 0
    torch.testing.assert_close(weights[present], alone)
    assert weights.sum().item() == pytest.approx(1, abs=1e-5)
    none, _ = rule.update(torch.zeros(4), torch.zeros(4).bool(), rule.init(torch.full((4,), 1 / 4)))
    assert none.tolist() == [0, 0, 0, 0]


def test_group_dro_by_hand():
    rule, eta = weightings.group_dro(0.5), 0.5
    s, q = rule.init(torch.full((2,), 0.5)), [0.5, 0.5]
    for risks in ((1.0, 2.0), (3.0, 0.5), (0.0, 4.0)):
        weights, s = rule.update(torch.tensor(risks), torch.ones(2).bool(), s)
        grown = [part * math.exp(eta * risk) for part, risk in zip(q, risks, strict=True)]
        q = [part / sum(grown) for part in grown]
        assert weights.tolist() == pytest.approx(q, abs=1e-6)
        assert s["q"].tolist() == pytest.approx(q, abs=1e-6)


# Penalties


def net_of(name):
    task = Task((1, 8, 8) if name == "cnn-fair" else (2, 3, 3), 3, (4, 4))
    return choose(task, name, 6, "scratch"), task


def penalty_by_autograd(net, params, kind, x, y):
    """P by torch's double backward, from the logits alone."""
    logits = net.apply(params, x)
    if kind == "weights":
        head = params[net.head]["weight"]
        return torch.autograd.grad(F.cross_entropy(logits, y), head, create_graph=True)[0].square().sum()
    scale = torch.ones((), requires_grad=True)
    halves = (F.cross_entropy(logits[i::2] * scale, y[i::2]) for i in (0, 1))
    even, odd = (torch.autograd.grad(half, scale, create_graph=True)[0] for half in halves)
    return even * odd


@pytest.mark.parametrize("kind", ["weights", "scalar"])
@pytest.mark.parametrize("name", ["mlp", "cnn-fair"])
def test_a_penalty_and_its_gradient_are_those_of_double_backward(name, kind):
    net, task = net_of(name)
    generator = torch.Generator().manual_seed(1)
    params = net.init(generator)
    x = torch.rand(1, 6, *task.shape, generator=generator)
    y, live = torch.tensor([[0, 1, 2, 2, 1, 0]]), torch.tensor([[1, 1, 1, 1, 1, 0]]).bool()  # the last is padding
    descend = penalised(net, Penalty(kind, nu=7.0, anneal=3))
    for updates, nu in ((2, 1.0), (3, 7.0)):
        gradient, risk = descend(trees.repeat(params, 1), x, y, live, torch.tensor([updates]))
        own = copied(params)
        tree = trees.fill(params, own)
        plain = F.cross_entropy(net.apply(tree, x[0, :5]), y[0, :5])
        objective = plain + nu * penalty_by_autograd(net, tree, kind, x[0, :5], y[0, :5])
        torch.testing.assert_close(risk[0], plain.detach())
        wanted = torch.autograd.grad(objective, list(own.values()))
        for (leaf, got), slope in zip(trees.leaves(gradient), wanted, strict=True):
            torch.testing.assert_close(got[0], slope, rtol=1e-4, atol=1e-5, msg=lambda m, leaf=leaf: f"{leaf}: {m}")


# Centralized twins

ANNEAL = 3


def combined(name, risks, penalties, t, q):
    """The loss that a twin's step t descends; q is GroupDRO's, which it changes."""
    mean, m = risks.mean(), len(risks)
    if name == "groupdro":
        q *= torch.exp(0.5 * risks.detach())
        q /= q.sum()
        return (q * risks).sum()
    if name == "irm":
        nu = 1 if t < ANNEAL else 5
        return (mean + nu * penalties.sum() / m) / nu
    return {
        "erm": lambda: mean,
        "mm-rex": lambda: (1 + m) * risks.max() - risks.sum(),
        "v-rex": lambda: mean + (1 if t < ANNEAL else 4) * (risks - mean).square().mean(),
    }[name]()


IRMS = [("irm", {"penalty": kind, "domains": which}) for kind in ("weights", "scalar") for which in ("average", "last")]
CASES = [*((name, {}) for name in TWINS if name != "irm"), *IRMS]


@pytest.mark.parametrize(("name", "more"), CASES, ids=["-".join([name, *more.values()]) for name, more in CASES])
def test_a_twin_is_adam_on_its_combined_loss(play, name, more):
    rounds = 6
    made, begin, drawn = play(name, rounds, eta=0.5, v=4.0, nu=5.0, anneal=ANNEAL, **more)
    params, q = copied(begin), torch.full((3,), 1 / 3)
    steps = adam(params)
    for t, batch in enumerate(drawn):
        if t == ANNEAL and name in ("v-rex", "irm"):
            steps = adam(params)
        steps.zero_grad()
        risks, penalties = [], []
        for k in range(3):
            x, y = batch.x[k, 0], batch.y[k, 0]
            logits = apply(params, x)
            risks.append(F.cross_entropy(logits, y))
            if name == "irm":
                net = choose(Task((2, 3, 3), 2, SIZES), "mlp", 6, "scratch")
                missed = penalty_by_autograd(net, trees.fill(begin, params), more["penalty"], x, y)
                penalties.append(missed * (more["domains"] == "average" or k == 2))
        loss = combined(name, torch.stack(risks), torch.stack(penalties) if penalties else None, t, q)
        loss.backward()
        steps.step()
    same_model(made, {name: leaf.detach() for name, leaf in params.items()})


@pytest.mark.parametrize("name", ["erm", "groupdro", "mm-rex", "v-rex"])
def test_with_one_domain_it_is_plain_adam(play, name):
    made, begin, drawn = play(name, 5, sizes=(20,))
    params = copied(begin)
    steps = adam(params)
    for batch in drawn:
        steps.zero_grad()
        F.cross_entropy(apply(params, batch.x[0, 0]), batch.y[0, 0]).backward()
        steps.step()
    same_model(made, {name: leaf.detach() for name, leaf in params.items()})


# Federated methods


@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_afl_and_gen_afl_are_their_listing(play, alpha):
    made, begin, drawn = play("gen-afl", 6, gamma=2.0, alpha=alpha)
    w, weights, seen = named(begin), torch.tensor(SIZES) / sum(SIZES), []
    for train, whole in zip(drawn[::2], drawn[1::2], strict=True):
        w = mixed([trained(trees.fill(begin, w), train, k) for k in range(3)], weights)
        f = torch.tensor([whole_risk(w, whole, k) for k in range(3)])
        weights = nearest(weights + 2.0 * f, alpha)
        seen.append(weights)
    same_model(made, w, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(made.state["server"]["weighting"]["lambda"][0], weights, rtol=1e-3, atol=1e-4)
    assert any((a - b).abs().max() > 0.05 for a, b in pairwise([torch.tensor(SIZES) / sum(SIZES), *seen]))


def nearest(y, alpha):
    """The projection by bisection: sum_i max(y_i - theta, alpha) = 1."""
    low, high = y.min() - 10, y.max() + 10
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (y - middle).clamp(min=alpha).sum() > 1 else (low, middle)
    return (y - low).clamp(min=alpha)


def test_afl_is_gen_afl_with_alpha_0(play, same):
    same(play("afl", 6, gamma=2.0)[0].state, play("gen-afl", 6, gamma=2.0, alpha=0.0)[0].state)


@pytest.mark.parametrize("gamma", [0.1, 3.0])
def test_gen_afl_with_alpha_near_1_over_n_is_fedavg_with_equal_weights(play, gamma):
    made, begin, drawn = play("gen-afl", 6, gamma=gamma, alpha=1 / 3 - 1e-7)
    w, weights = named(begin), torch.tensor(SIZES) / sum(SIZES)
    for train in drawn[::2]:
        w = mixed([trained(trees.fill(begin, w), train, k) for k in range(3)], weights)
        weights = [1 / 3] * 3  # from the second round on
    same_model(made, w)


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_vm_is_its_formula(play, scale):
    beta = 0.7
    made, begin, drawn = play("vm", 4, beta=beta, scale=scale)
    w, c = named(begin), 1.0 if scale == "sum" else 1 / 3
    for train, whole in zip(drawn[::2], drawn[1::2], strict=True):
        local = [trained(trees.fill(begin, w), train, k) for k in range(3)]
        f = [whole_risk(local[k], whole, k) for k in range(3)]
        for name, old in w.items():
            g = torch.stack([old - model[name] for model in local])
            spread = sum((f[k] - sum(f) / 3) * (g[k] - g.mean(0)) for k in range(3))
            w = {**w, name: old - g.mean(0) - 2 * beta * c * spread}
    same_model(made, w)


def test_vm_without_variance_is_fedavg(play, same):
    made = play("vm", 6, sizes=(12, 12, 12), beta=0.0)[0]
    same_model(made, final(play("fedavg", 3, sizes=(12, 12, 12))[0]), rtol=0, atol=1e-6)


def test_vm_of_identical_clients_is_fedavg(play, toy):
    one = toy(0, (12,))
    x, y = (torch.cat([each] * 3) for each in (one.x, one.y))
    data = {0: one.__class__(x, y, (12, 12, 12), one.tests, one.classes, one.facts)}
    alike = {"sizes": (12, 12, 12), "data": data, "batch": 12}  # whole batches, so that only their order differs
    same_model(play("vm", 6, **alike)[0], final(play("fedavg", 3, **alike)[0]))


def sgd(params):
    return torch.optim.SGD(params.values(), lr=0.02)


@pytest.mark.parametrize("penalty", ["scalar", "weights"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_fed_irm_without_penalty_is_fedavg(play, optimiser, penalty):
    own = {"optimiser": optimiser, "penalty": penalty, "anneal": 0}
    plain = play("fedavg", 3, optimiser=optimiser, epochs=2)[0]
    same_model(play("fed-irm", 3, nu=0.0, epochs=2, **own)[0], final(plain))
    assert (flat(final(play("fed-irm", 3, nu=50.0, epochs=2, **own)[0])) - flat(final(plain))).abs().max() > 1e-4


@pytest.mark.parametrize("form", ["plain", "release"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_fed_irm_anneals_over_each_clients_own_updates(play, optimiser, form):
    # Five, three and four steps a round, and nu changes after the seventh of each client.
    own = {"optimiser": optimiser, "form": form, "keep_optimiser": True}
    made, begin, drawn = play("fed-irm", 3, penalty="weights", nu=40.0, anneal=7, **own)
    anew = sgd if optimiser == "sgd" else adam
    w, counts, models = named(begin), [0, 0, 0], [copied(begin) for _ in SIZES]
    steps = [anew(params) for params in models]
    for batch in drawn:
        for k, params in enumerate(models):
            for name, leaf in params.items():
                leaf.data.copy_(w[name])
            for x, y, live in zip(batch.x[k], batch.y[k], batch.live[k], strict=True):
                if live.any():
                    if form == "release" and counts[k] == 7:
                        steps[k] = anew(params)
                    nu = 1 if counts[k] < 7 else 40
                    steps[k].zero_grad()
                    loss = F.cross_entropy(apply(params, x), y)
                    slope = torch.autograd.grad(loss, params["fc3.weight"], create_graph=True)[0]
                    ((loss + nu * slope.square().sum()) / (nu if form == "release" else 1)).backward()
                    steps[k].step()
                    counts[k] += 1
        ended = [{name: leaf.detach() for name, leaf in params.items()} for params in models]
        w = mixed(ended, [size / sum(SIZES) for size in SIZES])
    assert made.state["clients"]["updates"][0].tolist() == counts == [15, 9, 12]
    same_model(made, w)


# What cannot be used


@pytest.mark.parametrize("name", ["afl", "gen-afl", "vm", "fed-irm", *TWINS])
def test_a_client_with_non_finite_data_is_left_out_and_counted(training, toy, name):
    data = toy(0, (12, 12, 12))
    x = data.x.float() / 255
    x[24:] = math.nan
    broken = data.__class__(x, data.y, data.sizes, data.tests, data.classes, data.facts)
    hyper = {key: value for key, value in ADAM.items() if key in methods.find(name).hyper}
    watch = {"samples": 1, "train_every": 99}
    run = training(name, sizes=data.sizes, data={0: broken}, rounds=4, hyper=hyper, watch=watch)
    run.lanes[0].watched = (x[:4], data.y[:4])
    for _ in run:
        pass
    assert run.lanes[0].rejected >= 2
    assert torch.isfinite(flat(final(run))).all()
    if name in ("vm", "erm", "groupdro", "mm-rex", "v-rex"):  # as if it were not there
        kept = data.__class__(x[:24], data.y[:24], (12, 12), data.tests, data.classes, data.facts)
        two = training(name, sizes=(12, 12), data={0: kept}, rounds=4, hyper=hyper)
        for _ in two:
            pass
        same_model(run, final(two))


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("gen-afl", {"alpha": 0.25}, "alpha cannot be 0.25: 4 weights .* below 1/4"),
        ("mm-rex", {"lmin": 0.3}, "lmin cannot be 0.3"),
        ("irm", {"net": "cnn"}, "needs net=mlp, cnn-fair or resnet18, or penalty=scalar"),
        (
            "fed-irm",
            {"net": "cnn-large", "penalty": "weights"},
            "needs net=mlp, cnn-fair or resnet18, or penalty=scalar",
        ),
        ("vm", {"scale": "median"}, "'scale' of vm cannot be 'median'"),
        ("vm", {"beta": -1.0}, "'beta' of vm cannot be -1.0"),
        ("erm", {"steps": 3}, "unknown hyper-parameter of erm 'steps'"),
        ("afl", {"mask": "soft"}, "unknown hyper-parameter of afl 'mask'"),
    ],
)
def test_what_cannot_be_built(name, hyper, message):
    with pytest.raises(UsageError, match=message):
        methods.build(name, Task((1, 28, 28), 3, (8, 8, 8, 8)), hyper)
