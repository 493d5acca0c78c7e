"""The games, worked by hand: two rounds of each variant on two parameters a client, then against a slow reference.

The predictor is w z with w in R^2 (one logit a class) and z = phi(x) = p x with scalar x and p, so that everything is a
line of arithmetic: f = (w_k z + what k answers) / n, and dCE/dw_k = (softmax(f) - onehot(y)) z / n.
"""

import numpy as np
import pytest
import torch

from fedrepro import methods
from fedrepro.core.types import Batch, Net, Task
from fedrepro.errors import UsageError
from fedrepro.methods import games

LR, PHI_LR = 0.1, 0.01
ATOL = 1e-7
W = np.array([[0.5, -0.5], [-0.2, 0.4], [0.3, 0.1]])  # initial predictors of up to three clients
P = 1.5  # the initial phi
SIZES = (30, 10, 20)

# One sample a client and round: x [round][client], y [round][client].
X = [[1.0, 2.0, -1.0], [0.5, -1.0, 1.5], [-2.0, 1.0, 0.5], [1.5, 0.5, 2.0]]
Y = [[0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1]]


@pytest.fixture(autouse=True)
def tiny_networks(monkeypatch):
    """The games' own code on networks of two parameters (predictor) and one (phi)."""
    predictor = Net(lambda k: {"w": torch.tensor(W[k])}, lambda params, z: z * params["w"])
    phi = Net(lambda k: {"p": torch.tensor(P, dtype=torch.float64)}, lambda params, x: params["p"] * x)
    monkeypatch.setattr(games, "mlp", lambda *widths, last=True: predictor if last else phi)


def make(name, n, **hyper):
    """The method on n clients and its initial state; the "stream" of client k is k. Smooth is worked by Eq. 4."""
    defaults = {"lr": LR, "batch": 1, "eps": 1e-30}
    defaults |= {"phi_lr": PHI_LR} if name.startswith("v-") else {}
    defaults |= {"response": "literal"} if "smooth" in name else {}
    hyper = defaults | hyper
    method = methods.build(name, Task((1,), 2, SIZES[:n]), hyper)
    return method, method.init(lambda client, purpose: client, SIZES[:n])


def batch_of(clients, x, y):
    """x, y [C][T][B] as the phases take them."""
    x = torch.tensor(x, dtype=torch.float64)[..., None]
    return Batch(torch.tensor(clients), x, torch.tensor(y), torch.ones(x.shape[:-1], dtype=torch.bool))


def play_round(method, state, t):
    """Round t of the cycle on the samples X[t], Y[t] of those whose turn it is."""
    phase = method.phases[t % len(method.phases)]
    who = phase.draw.clients
    who = range(len(state["clients"]["w"]["w"])) if who == "all" else who
    batch = batch_of(list(who), [[[X[t][k]]] for k in who], [[[Y[t][k]]] for k in who])
    return phase.step(state, batch)[0]


def predictors(state):
    return state["clients"]["w"]["w"].numpy()


def softmax(f):
    return np.exp(f) / np.exp(f).sum()


def gradient(f, y, z, n=2):
    """dCE/dw_k of one sample where the ensemble's logits are f."""
    return (softmax(f) - np.eye(2)[y]) * z / n


def first(g, lr=LR):
    """Adam's first step without eps: m/(1-b1) = g and v/(1-b2) = g^2, so -lr sign(g)."""
    return -lr * np.sign(g)


def second(g1, g2, lr=LR):
    """Adam's second step without eps, after gradients g1 and then g2."""
    m = (0.9 * 0.1 * g1 + 0.1 * g2) / (1 - 0.9**2)
    v = (0.999 * 0.001 * g1**2 + 0.001 * g2**2) / (1 - 0.999**2)
    return -lr * m / np.sqrt(v)


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=ATOL)


# Two rounds of two clients, by hand


def test_parallel_f_irm():
    method, state = make("f-irm", 2, order="parallel")
    a, b = W[0], W[1]
    # Round 0: client 0 has x=1, y=0; client 1 has x=2, y=1. Both answer the initial predictors.
    ga0 = gradient((a * 1 + b * 1) / 2, 0, 1)
    gb0 = gradient((b * 2 + a * 2) / 2, 1, 2)
    assert (ga0 < 0).tolist() == [True, False]
    assert (gb0 > 0).tolist() == [True, False]
    a1, b1 = a + first(ga0), b + first(gb0)
    close(a1, [0.6, -0.6])
    close(b1, [-0.3, 0.5])
    state = play_round(method, state, 0)
    close(predictors(state), [a1, b1])
    # Round 1: client 0 has x=0.5, y=1; client 1 has x=-1, y=1. Both answer round 0's results.
    ga1 = gradient((a1 * 0.5 + b1 * 0.5) / 2, 1, 0.5)
    gb1 = gradient((b1 * -1 + a1 * -1) / 2, 1, -1)
    state = play_round(method, state, 1)
    close(predictors(state), [a1 + second(ga0, ga1), b1 + second(gb0, gb1)])


def test_sequential_f_irm():
    method, state = make("f-irm", 2, order="sequential")
    a, b = W[0], W[1]
    state = play_round(method, state, 0)  # client 0 alone: x=1, y=0
    a1 = a + first(gradient((a + b) / 2, 0, 1))
    close(predictors(state), [a1, b])
    state = play_round(method, state, 1)  # client 1 alone: x=-1, y=1, and sees what client 0 has become
    b1 = b + first(gradient((b * -1 + a1 * -1) / 2, 1, -1))
    close(predictors(state), [a1, b1])
    state = play_round(method, state, 2)  # client 0 again, with its own Adam: x=-2, y=0
    ga0, ga1 = gradient((a + b) / 2, 0, 1), gradient((a1 * -2 + b1 * -2) / 2, 0, -2)
    close(predictors(state), [a1 + second(ga0, ga1), b1])


def phi_gradient(p, w, x, y):
    """dCE/dp of one sample: f = mean_q w_q p x, so df/dp = mean_q w_q x."""
    mean = sum(w) / len(w)
    return (softmax(mean * p * x) - np.eye(2)[y]) @ (mean * x)


def test_parallel_v_irm():
    method, state = make("v-irm", 2, order="parallel")
    a, b = W[0], W[1]
    # Round 0 is phi's, weighted by N_k/N = 3/4 and 1/4, and moves no predictor.
    gp = 0.75 * phi_gradient(P, [a, b], 1, 0) + 0.25 * phi_gradient(P, [a, b], 2, 1)
    p = P + first(gp, PHI_LR)
    state = play_round(method, state, 0)
    close(state["server"]["phi"]["p"], p)
    close(predictors(state), [a, b])
    # Round 1 is the predictors', on z = p x, and moves no phi. Client 0: x=0.5, y=1; client 1: x=-1, y=1.
    z0, z1 = p * 0.5, p * -1
    a1 = a + first(gradient((a * z0 + b * z0) / 2, 1, z0))
    b1 = b + first(gradient((b * z1 + a * z1) / 2, 1, z1))
    state = play_round(method, state, 1)
    close(predictors(state), [a1, b1])
    close(state["server"]["phi"]["p"], p)
    # Round 2 is phi's again: x=-2, y=0 and x=1, y=0. Here the weights matter, since Adam has a past.
    gp2 = 0.75 * phi_gradient(p, [a1, b1], -2, 0) + 0.25 * phi_gradient(p, [a1, b1], 1, 0)
    state = play_round(method, state, 2)
    close(state["server"]["phi"]["p"], p + second(gp, gp2, PHI_LR))


def test_sequential_v_irm():
    method, state = make("v-irm", 2, order="sequential")
    assert len(method.phases) == 3  # phi, then one client a round
    a, b = W[0], W[1]
    gp = 0.75 * phi_gradient(P, [a, b], 1, 0) + 0.25 * phi_gradient(P, [a, b], 2, 1)
    p = P + first(gp, PHI_LR)
    state = play_round(method, play_round(method, state, 0), 1)  # client 0: x=0.5, y=1
    z = p * 0.5
    a1 = a + first(gradient((a * z + b * z) / 2, 1, z))
    close(predictors(state), [a1, b])
    close(state["server"]["phi"]["p"], p)
    state = play_round(method, state, 2)  # client 1: x=1, y=0
    close(predictors(state), [a1, b + first(gradient((b * p + a1 * p) / 2, 0, p))])


def test_parallel_smooth():
    method, state = make("f-fl-smooth", 2, order="parallel", capacity=2)
    a, b = W[0], W[1]
    # Round 0: the buffers hold the initial predictors alone, so opponents count twice (x=1, y=0; x=2, y=1).
    ga0 = gradient((a * 1 + b * 1 + b * 1) / 2, 0, 1)
    gb0 = gradient((b * 2 + a * 2 + a * 2) / 2, 1, 2)
    a1, b1 = a + first(ga0), b + first(gb0)
    state = play_round(method, state, 0)
    close(predictors(state), [a1, b1])
    # Round 1: the buffers hold two entries, initial and round 0's (x=0.5, y=1; x=-1, y=1).
    ga1 = gradient((a1 * 0.5 + b1 * 0.5 + (b + b1) / 2 * 0.5) / 2, 1, 0.5)
    gb1 = gradient((b1 * -1 + a1 * -1 + (a + a1) / 2 * -1) / 2, 1, -1)
    a2, b2 = a1 + second(ga0, ga1), b1 + second(gb0, gb1)
    state = play_round(method, state, 1)
    close(predictors(state), [a2, b2])
    # The initial predictors are now gone from buffers of two.
    past = state["clients"]["past"]
    close(past["0"]["w"], [a2, b2])
    close(past["1"]["w"], [a1, b1])


def test_sequential_smooth():
    method, state = make("f-fl-smooth", 2, order="sequential", capacity=2)
    a, b = W[0], W[1]
    state = play_round(method, state, 0)  # client 0 answers b twice: x=1, y=0
    a1 = a + first(gradient((a + b + b) / 2, 0, 1))
    close(predictors(state), [a1, b])
    state = play_round(method, state, 1)  # client 1 answers a1 and the mean of {a, a1}: x=-1, y=1
    b1 = b + first(gradient((-b - a1 - (a + a1) / 2) / 2, 1, -1))
    close(predictors(state), [a1, b1])
    close(state["clients"]["plays"], [1, 1])


def whole_data(x, y):
    """Fast's batch: all rows of every client as [C][T][B]."""
    return batch_of(list(range(len(x))), x, y)


def test_parallel_smooth_fast():
    method, state = make("v-fl-smooth-fast", 2, order="parallel", capacity=2)
    a, b = W[0], W[1]
    assert method.phases[0].draw.size is None
    # Round 0, Fast: G_k is the mean over all rows of client k, here three (in steps of two and one) and one.
    x, y = [[[1.0, 2.0], [-1.0, 9.0]], [[0.5, 9.0], [9.0, 9.0]]], [[[0, 1], [1, 0]], [[1, 0], [0, 0]]]
    batch = whole_data(x, y)
    live = torch.tensor([[[True, True], [True, False]], [[True, False], [False, False]]])
    state = method.phases[0].step(state, batch._replace(live=live))[0]
    g0 = sum(phi_gradient(P, [a, b], *row) for row in [(1, 0), (2, 1), (-1, 1)]) / 3
    g1 = phi_gradient(P, [a, b], 0.5, 1)
    gp = 0.75 * g0 + 0.25 * g1
    p = P + first(gp, PHI_LR)
    close(state["server"]["phi"]["p"], p)
    close(state["server"]["opt"]["m"]["p"], 0.1 * gp)
    # Round 1: x=0.5, y=1; x=-1, y=1, each opponent now and in a buffer of its initial self.
    z0, z1 = p * 0.5, p * -1
    a1 = a + first(gradient((a * z0 + b * z0 + b * z0) / 2, 1, z0))
    b1 = b + first(gradient((b * z1 + a * z1 + a * z1) / 2, 1, z1))
    state = play_round(method, state, 1)
    close(predictors(state), [a1, b1])


def test_sequential_smooth_fast():
    method, state = make("v-fl-smooth-fast", 2, order="sequential", capacity=2)
    a, b = W[0], W[1]
    state = method.phases[0].step(state, whole_data([[[1.0, 0.5]], [[2.0, -1.0]]], [[[0, 1]], [[1, 1]]]))[0]
    g0 = (phi_gradient(P, [a, b], 1, 0) + phi_gradient(P, [a, b], 0.5, 1)) / 2
    g1 = (phi_gradient(P, [a, b], 2, 1) + phi_gradient(P, [a, b], -1, 1)) / 2
    p = P + first(0.75 * g0 + 0.25 * g1, PHI_LR)
    close(state["server"]["opt"]["m"]["p"], 0.1 * (0.75 * g0 + 0.25 * g1))
    state = play_round(method, state, 1)  # client 0: x=0.5, y=1
    z = p * 0.5
    a1 = a + first(gradient((a * z + b * z + b * z) / 2, 1, z))
    close(predictors(state), [a1, b])
    state = play_round(method, state, 2)  # client 1: x=1, y=0
    b1 = b + first(gradient((b * p + a1 * p + (a + a1) / 2 * p) / 2, 0, p))
    close(predictors(state), [a1, b1])


# Longer play of three clients against a slow reference in numpy


class Adam:
    """Kingma and Ba 2015, Algorithm 1."""

    def __init__(self, lr, eps):
        self.lr, self.eps, self.m, self.v, self.t = lr, eps, 0, 0, 0

    def __call__(self, g):
        self.t += 1
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g * g
        return -self.lr * self.m / (1 - 0.9**self.t) / (np.sqrt(self.v / (1 - 0.999**self.t)) + self.eps)


def answered(response, now, past):
    return {"none": now, "literal": now + past, "buffer_only": past, "mixed": (now + past) / 2}[response]


def reference(batches, turns, learned, response, capacity, steps, phi_optimiser="adam", n=3, eps=1e-7):
    """Algorithm 1 of flgames-2022, row by row; batches[t] = (x [C][T][B], y). Yields predictors and phi."""
    w, p, shares = list(W[:n]), P if learned else 1.0, np.array(SIZES[:n]) / sum(SIZES[:n])
    adams = [Adam(LR, eps) for _ in range(n)]
    of_phi = Adam(PHI_LR, eps) if phi_optimiser == "adam" else lambda g: -PHI_LR * g
    buffers = [[w[k]] for k in range(n)]
    for (x, y), turn in zip(batches, turns, strict=True):
        if turn == "phi":
            pairs = [list(zip(np.ravel(x[k]), np.ravel(y[k]), strict=True)) for k in range(n)]
            p += of_phi(sum(shares[k] * np.mean([phi_gradient(p, w, *row) for row in pairs[k]]) for k in range(n)))
        fresh = {}
        for place, k in enumerate(() if turn == "phi" else turn):
            now = sum(w[q] for q in range(n) if q != k)
            past = sum(np.mean(buffers[q], axis=0) for q in range(n) if q != k)
            mine = w[k]
            for step in range(steps):
                rows = zip(p * np.array(x[place][step]), y[place][step], strict=True)
                f = lambda z: (mine * z + answered(response, now, past) * z) / n  # noqa: B023, E731
                mine = mine + adams[k](np.mean([gradient(f(z), label, z, n) for z, label in rows], axis=0))
            fresh[k] = mine
        for k, mine in fresh.items():
            w[k] = mine
            buffers[k] = [*buffers[k], mine][-capacity:]
        yield np.array(w), p


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize(
    ("name", "hyper"),
    [
        ("f-irm", {"steps": 1}),
        ("f-irm", {"steps": 3}),
        ("v-irm", {"steps": 2}),
        ("v-irm", {"steps": 1, "phi_optimiser": "sgd"}),
        ("f-fl-smooth", {"steps": 2, "capacity": 1, "response": "literal"}),
        ("f-fl-smooth", {"steps": 1, "capacity": 2, "response": "buffer_only"}),
        ("f-fl-smooth", {"steps": 1, "capacity": 3, "response": "mixed"}),
        ("v-fl-smooth-fast", {"steps": 2, "capacity": 2, "response": "literal"}),
        ("v-fl-smooth-fast", {"steps": 1, "capacity": 1, "response": "literal", "phi_optimiser": "sgd"}),
    ],
    ids=str,
)
def test_nine_rounds_of_three_clients(order, name, hyper):
    method, state = make(name, 3, order=order, eps=1e-7, batch=2, **hyper)
    rng = np.random.default_rng(1)
    cycle = [(0, 1, 2)] if order == "parallel" else [(0,), (1,), (2,)]
    cycle = ["phi", *cycle] if name.startswith("v") else cycle
    turns, batches, got = [cycle[t % len(cycle)] for t in range(9)], [], []
    for t, turn in enumerate(turns):
        who = [0, 1, 2] if turn == "phi" else turn
        steps = 1 if turn == "phi" else hyper["steps"]
        batches.append((rng.normal(size=(len(who), steps, 2)), rng.integers(0, 2, (len(who), steps, 2))))
        phase = method.phases[t % len(cycle)]
        assert phase.draw.clients in ("all", tuple(who))
        assert phase.draw.steps == steps
        state = phase.step(state, batch_of(list(who), *map(np.ndarray.tolist, batches[-1])))[0]
        got.append((predictors(state), float(state["server"]["phi"]["p"]) if turn == "phi" else None))
    arguments = {"response": "none", "capacity": 1} | hyper
    for (w, p), (right_w, right_p) in zip(got, reference(batches, turns, name[0] == "v", **arguments), strict=True):
        np.testing.assert_allclose(w, right_w, atol=4 * ATOL)
        assert p is None or p == pytest.approx(right_p, rel=1e-6)


@pytest.mark.parametrize("order", games.ORDERS)
def test_smooth_with_a_buffer_of_one_is_plain_f_irm(order):
    # The one entry is the opponent's last play, so its present predictor: equal bit for bit.
    (plain, a), (smooth, b) = (
        make(name, 3, order=order, **hyper)
        for name, hyper in (("f-irm", {}), ("f-fl-smooth", {"capacity": 1, "response": "buffer_only"}))
    )
    for t in range(4):
        a, b = play_round(plain, a, t), play_round(smooth, b, t)
        assert (predictors(a) == predictors(b)).all()
    assert (predictors(a) != W).all()


def test_the_ensemble_is_the_mean_of_logits():
    method, state = make("v-irm", 3)
    x = torch.tensor([[1.0], [-2.0]], dtype=torch.float64)
    close(method.predict(state, x), P * np.array([[1.0], [-2.0]]) * W.mean(0))
    close(method.members.logits(state, (2, 0), x), P * np.array([[[1.0], [-2.0]]]) * W[[2, 0]][:, None])


def test_a_phase_changes_nothing_that_it_is_given():
    for name in ("f-irm", "v-irm", "f-fl-smooth", "v-fl-smooth-fast"):
        for order in games.ORDERS:
            method, state = make(name, 3, order=order)
            before = str(state)
            for t in range(len(method.phases)):
                play_round(method, state, t)
            assert str(state) == before


@pytest.mark.parametrize("name", ["f-irm", "v-irm", "f-fl-smooth", "v-fl-smooth-fast"])
def test_a_round_in_turn_is_a_cycle_of_the_sequential_game_from_the_last_client_on(name):
    in_turn, state = make(name, 3, order="in-turn")
    one_by_one, other = make(name, 3, order="last-first")
    learnt = name.startswith("v-")
    rounds = len(one_by_one.phases)
    for t in range(2):
        everyone = batch_of([0, 1, 2], [[[X[t][k]]] for k in range(3)], [[[Y[t][k]]] for k in range(3)])
        for phase in in_turn.phases:
            state = phase.step(state, everyone)[0]
        for r, phase in enumerate(one_by_one.phases):
            k = min(rounds - 1 - r, 2)  # after a round of phi, if there is one: client 2, 1, 0
            alone = batch_of([k], [[[X[t][k]]]], [[[Y[t][k]]]])
            other = phase.step(other, everyone if learnt and r == 0 else alone)[0]
        np.testing.assert_allclose(predictors(state), predictors(other), atol=1e-12)


def test_a_turn_of_two_rounds_is_one_of_two_steps():
    stepping, state = make("f-irm", 2, order="sequential", steps=2)
    looked_at, other = make("f-irm", 2, order="sequential", repeat=2)
    for k in range(2):
        both = batch_of([k], [[[X[0][k]], [X[1][k]]]], [[[Y[0][k]], [Y[1][k]]]])
        state = stepping.phases[k].step(state, both)[0]
        for t, phase in enumerate(looked_at.phases[2 * k : 2 * k + 2]):
            other = phase.step(other, batch_of([k], [[[X[t][k]]]], [[[Y[t][k]]]]))[0]
    assert len(looked_at.phases) == 4
    np.testing.assert_allclose(predictors(state), predictors(other), atol=1e-12)


def test_in_turn_a_client_without_an_answer_is_answered_as_it_was():
    method, state = make("f-irm", 2, order="in-turn")
    batch = batch_of([0, 1], [[[1.0]], [[float("nan")]]], [[[0]], [[1]]])
    after, metrics = method.phases[0].step(state, batch)
    assert metrics["accepted"].tolist() == [True, False]
    np.testing.assert_array_equal(predictors(after)[1], W[1])
    f = (W[0] + W[1]) * 1.0 / 2
    np.testing.assert_allclose(predictors(after)[0], W[0] + first(gradient(f, 0, 1.0)), atol=ATOL)


def test_a_buffer_without_the_present_predictor_is_one_answer_behind():
    with_it, now = make("f-fl-smooth", 2, capacity=2, response="buffer_only")
    without, late = make("f-fl-smooth", 2, capacity=2, response="buffer_only", newest=False)
    now, late = play_round(with_it, now, 0), play_round(without, late, 0)
    np.testing.assert_array_equal(now["clients"]["past"]["0"]["w"], predictors(now))
    np.testing.assert_array_equal(late["clients"]["past"]["0"]["w"], W[:2])
    np.testing.assert_array_equal(predictors(late), predictors(now))  # the first answer is to the initial ones in both


@pytest.mark.parametrize(
    ("hyper", "known"),
    [
        ({"order": "paralel"}, "'parallel', 'sequential', 'last-first' or 'in-turn'"),
        ({"response": "all"}, "'buffer_only', 'literal' or 'mixed'"),
    ],
    ids=str,
)
def test_an_unknown_order_or_response_is_answered_by_those_that_there_are(hyper, known):
    with pytest.raises(UsageError, match=f"of f-fl-smooth cannot be .*: input should be {known}"):
        make("f-fl-smooth", 2, **hyper)
