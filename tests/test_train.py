"""The trainer's laws: seeds do not see each other, ended seeds stay as they ended, rejected clients as they were."""

import copy
import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedrepro.core import lift, trees
from fedrepro.errors import UsageError
from fedrepro.judges.scoring import EVALUATION_ROWS, EVALUATION_VALUES, by_colour, in_parts, norm, score
from fedrepro.nets.mlp import mlp
from fedrepro.records.config import Crossings, Stop, Watch
from fedrepro.training import runs
from fedrepro.training.provenance import beginning
from fedrepro.training.train import Training

SEEDS = (3, 5, 8)
SHOWN = ("status", "rounds", "rejected", "armed", "curve", "metrics")  # of a lane; the rest is tensors and time


def shown(lane):
    return {name: copy.deepcopy(getattr(lane, name)) for name in SHOWN}


def playing(run):
    """Play to the end; returns the last state of each seed while it was running."""
    last = {}
    rows = {lane.seed: row for row, lane in enumerate(run.running)}
    before = Training._leave

    def leave(self, ended, seconds):
        for seed, row in rows.items():
            last[seed] = trees.map_tree(torch.clone, trees.one(self.state, row))
        before(self, ended, seconds)
        rows.clear()
        rows.update({lane.seed: row for row, lane in enumerate(self.running)})

    run._leave = leave.__get__(run)
    for _ in run:
        pass
    return last


@pytest.fixture
def made_accuracies(monkeypatch):
    """made_accuracies({seed: [accuracy after round 1, 2, ...]}): what the watched rows show, of 40 rows."""

    def patch(curves):
        def logits(self, lane, row):
            y = lane.watched[1]
            right = round(curves[lane.seed][self.round - 1] * len(y))
            answer = torch.where(torch.arange(len(y)) < right, y, 1 - y)
            return F.one_hot(answer, 2).float()

        monkeypatch.setattr(Training, "_watched_logits", logits)

    return patch


# Seeds do not see each other


def test_seeds_one_after_another_are_seeds_alone(training, variant, same):
    name, hyper = variant
    with lift.modes(seeds="loop"):
        together = training(name, seeds=SEEDS, hyper=hyper, rounds=12)
        states = playing(together)
        for lane in together.lanes:
            alone = training(name, seeds=(lane.seed,), hyper=hyper, rounds=12)
            same(playing(alone)[lane.seed], states[lane.seed])
            assert shown(alone.lanes[0]) == shown(lane)


def test_seeds_batched_are_seeds_alone_but_for_rounding(training, variant, toy):
    name, hyper = variant
    with lift.modes(seeds="vmap"):
        together = training(name, seeds=SEEDS, hyper=hyper, rounds=12)
        states = playing(together)
    for lane in together.lanes:
        alone = training(name, seeds=(lane.seed,), hyper=hyper, rounds=12)
        state = playing(alone)[lane.seed]
        x = lane.data.tests["test"][0]
        predict = together.method.predict
        torch.testing.assert_close(predict(states[lane.seed], x), predict(state, x), rtol=0, atol=1e-4)
        for (leaf, a), (_, b) in zip(trees.leaves(states[lane.seed]), trees.leaves(state), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0.002, msg=lambda m, leaf=leaf: f"{leaf}: {m}")
        for key, value in alone.lanes[0].metrics.items():
            assert lane.metrics[key] == pytest.approx(value, abs=1e-4)


def test_the_number_of_watched_rows_moves_no_parameter(training, same):
    states = []
    for samples in (7, 40):
        states.append(playing(training("f-irm", rounds=5, watch={"samples": samples, "test_every": samples}))[0])
    same(*states)


# Stopping

RULES = {  # threshold, warm start, margin; accuracies; status, rounds
    "falls below the threshold": ((0.5, 0, 0.1), [0.2, 0.7, 0.6, 0.4, 0.9], "stopped", 4),
    "never armed": ((0.5, 0, 0.1), [0.2, 0.3, 0.4, 0.3, 0.2], "cap", 5),
    "armed and never below": ((0.5, 0, 0.1), [0.7, 0.6, 0.5, 0.6, 0.7], "cap", 5),
    "exactly threshold + margin does not arm": ((0.5, 0, 0.25), [0.75, 0.4, 0.3, 0.75, 0.2], "cap", 5),
    "just above threshold + margin arms": ((0.5, 0, 0.25), [0.8, 0.4, 0.3, 0.75, 0.2], "stopped", 2),
    "exactly the threshold does not stop": ((0.5, 0, 0.1), [0.7, 0.5, 0.5, 0.45, 0.2], "stopped", 4),
    "not before the warm start": ((0.5, 4, 0.1), [0.7, 0.4, 0.3, 0.4, 0.2], "stopped", 4),
    "armed during the warm start, up at its end": ((0.5, 3, 0.1), [0.7, 0.3, 0.6, 0.6, 0.2], "stopped", 5),
    "armed by the last round": ((0.5, 0, 0.0), [0.2, 0.2, 0.2, 0.2, 0.7], "cap", 5),
    "stops in the last round": ((0.5, 5, 0.1), [0.7, 0.2, 0.2, 0.2, 0.2], "stopped", 5),
    "warm start beyond the cap": ((0.5, 100, 0.1), [0.7, 0.2, 0.2, 0.2, 0.2], "cap", 5),
}


@pytest.mark.parametrize("case", RULES)
def test_the_stopping_rule(training, made_accuracies, case):
    (threshold, warm_start, margin), accuracies, status, rounds = RULES[case]
    made_accuracies({0: accuracies})
    run = training("f-irm", stop=Stop(threshold=threshold, warm_start=warm_start, margin=margin))
    assert list(run) == list(range(1, rounds + 1))
    lane = run.lanes[0]
    assert (lane.status, lane.rounds) == (status, rounds)
    curve = [(round, value) for round, metric, value in lane.curve if metric == "train_accuracy"]
    assert curve == [(t + 1, pytest.approx(accuracies[t])) for t in range(rounds)]
    assert set(lane.metrics) == {"train_accuracy", "train_loss", "test_accuracy", "test_loss"}


def test_without_a_rule_a_run_is_finished(training, made_accuracies):
    made_accuracies({0: [0.9, 0.1, 0.1, 0.1, 0.1]})
    run = training("f-irm")
    assert list(run) == [1, 2, 3, 4, 5]
    assert run.lanes[0].status == "finished"


def test_a_seed_that_stops_reports_what_a_run_of_as_many_rounds_does(training, made_accuracies):
    made_accuracies({0: [0.9, 0.9, 0.2, 0.9, 0.9]})
    stopping, alone = {"stop": Stop(threshold=0.5, warm_start=0)}, {"rounds": 3}
    stopped, plain = (ended(training("f-irm", watch={"test_every": 2}, **own)).lanes[0] for own in (stopping, alone))
    assert (stopped.status, plain.status) == ("stopped", "finished")
    for name in ("rounds", "rejected", "curve", "metrics"):
        assert getattr(stopped, name) == getattr(plain, name)
    assert [round for round, metric, _ in stopped.curve if metric == "test_loss"] == [2, 3]


def test_a_resumed_seed_is_still_armed(training, made_accuracies):
    made_accuracies({0: [0.9, 0.55, 0.55, 0.4, 0.4]})
    run, resumed = (training("f-irm", stop=Stop(threshold=0.5, warm_start=0)) for _ in range(2))
    for _ in zip(range(2), run, strict=False):
        pass
    resumed.restore(*run.snapshot())
    assert list(resumed) == [3, 4]
    assert resumed.lanes[0].status == "stopped"


def test_rounds_that_are_not_looked_at_neither_arm_nor_stop(training, made_accuracies):
    # Looked at: rounds 3, 6 and the last, 8.
    made_accuracies({0: [0.9, 0.1, 0.6, 0.9, 0.1, 0.7, 0.1, 0.6]})
    run = training("f-irm", rounds=8, watch={"train_every": 3}, stop=Stop(threshold=0.5, warm_start=0, margin=0.15))
    assert len(list(run)) == 8
    assert [round for round, metric, _ in run.lanes[0].curve if metric == "train_loss"] == [3, 6, 8]
    assert (run.lanes[0].status, run.lanes[0].armed) == ("cap", True)


def test_curves_have_a_row_when_one_is_due_and_at_the_end(training):
    run = training("fedsgd", rounds=11, watch={"train_every": 2, "test_every": 4})
    for _ in run:
        pass
    seen = {}
    for round, metric, _ in run.lanes[0].curve:
        seen.setdefault(metric, []).append(round)
    assert seen["train_accuracy"] == seen["train_loss"] == [2, 4, 6, 8, 10, 11]
    assert seen["test_accuracy"] == seen["test_loss"] == [4, 8, 11]


def test_the_final_metrics_are_of_all_rows(training):
    run = training("fedsgd", rounds=3, watch={"samples": 5})
    for _ in run:
        pass
    lane, state = run.lanes[0], trees.one(run.state, 0)
    for name, (x, y) in {"train": (lane.data.x, lane.data.y), **lane.data.tests}.items():
        logits = run.method.predict(state, x)
        assert lane.metrics[f"{name}_accuracy"] == pytest.approx((logits.argmax(1) == y).float().mean().item())
        assert lane.metrics[f"{name}_loss"] == pytest.approx(nn.CrossEntropyLoss()(logits, y).item(), rel=1e-5)
    assert lane.curve[-1] == (3, "test_loss", lane.metrics["test_loss"])


def test_a_seed_that_stops_stays_as_it_was_and_moves_no_other(training, made_accuracies, same, variant):
    early = SEEDS[1]  # rows of the stack move up behind it
    ends = {seed: [0.9] * 3 + [0.1 if seed == early else 0.9] * 7 for seed in SEEDS}
    made_accuracies(ends)
    settings = {"hyper": variant[1], "rounds": 10, "stop": Stop(threshold=0.5, warm_start=0)}
    with lift.modes(seeds="loop"):
        run = training(variant[0], seeds=SEEDS, **settings)
        at_end = {}
        for round in run:
            for lane in run.lanes:
                if lane.status == "running":
                    continue
                at_end.setdefault(lane.seed, (shown(lane), lane.feeder.cursors.copy(), lane.seconds))
                left, cursors, seconds = at_end[lane.seed]
                assert shown(lane) == left
                assert (lane.feeder.cursors == cursors).all()
                assert lane.seconds == seconds
            assert len(next(trees.leaves(run.state))[1]) == (3 if round < 4 else 2)
        others = [lane.seed for lane in run.lanes if lane.seed != early]
        states = {seed: trees.one(run.state, row) for row, seed in enumerate(others)}
        for lane in run.lanes:
            alone = training(variant[0], seeds=(lane.seed,), **settings)
            for _ in alone:
                pass
            assert shown(alone.lanes[0]) == shown(lane)
            assert max(round for round, _, _ in lane.curve) == lane.rounds == (4 if lane.seed == early else 10)
            if lane.seed != early:
                same(trees.one(alone.state, 0), states[lane.seed])


# Members' logits


@pytest.mark.parametrize("every", [1, 3])
def test_kept_logits_are_those_of_a_fresh_prediction(training, variant, monkeypatch, every):
    seen = []
    plain = Training._watched_logits

    def compared(self, lane, row):
        got = plain(self, lane, row)
        fresh = self.method.predict(trees.one(self.state, row), lane.watched[0])
        torch.testing.assert_close(got, fresh, rtol=0, atol=1e-6)
        seen.append(fresh)
        return got

    monkeypatch.setattr(Training, "_watched_logits", compared)
    settings = {"sizes": (20, 20, 20), "hyper": variant[1], "rounds": 13, "watch": {"train_every": every}}
    run = training(variant[0], **settings)
    for round in run:
        if round == 7:
            saved = copy.deepcopy(run.snapshot())
    resumed = training(variant[0], **settings)
    resumed.restore(*saved)
    for _ in resumed:
        pass
    assert len(seen) == len(range(every, 13, every)) + 1 + len(range(7 // every * every + every, 13, every)) + 1
    # Members' logits do move between evaluations, far more than the tolerance: kept ones would show.
    assert (
        not run.method.members or min((a - b).abs().max().item() for a, b in zip(seen, seen[1:], strict=False)) > 1e-4
    )


def test_a_round_that_is_broken_off_is_played_again_to_the_same_bits(training, variant, same, broken_off):
    whole, run = (training(variant[0], hyper=variant[1], rounds=6, seeds=(0, 1)) for _ in range(2))
    assert [*whole]
    broken_off(run)
    same(run.state, whole.state)
    assert [*map(shown, run.lanes)] == [*map(shown, whole.lanes)]


def test_only_members_that_moved_are_computed(training):
    run = training("f-irm", sizes=(20, 20, 20), hyper={"order": "sequential"})
    asked, members = [], run.method.members

    def logits(state, chosen, x):
        asked.append(chosen)
        return members.logits(state, chosen, x)

    run.method = dataclasses.replace(run.method, members=dataclasses.replace(members, logits=logits))
    for _ in run:
        pass
    assert asked == [(0, 1, 2), (1,), (2,), (0,), (1,)]


def test_a_cycle_that_moves_no_member_needs_no_logits(training, same):
    run = training("f-irm", sizes=(20, 20, 20))
    still = dataclasses.replace(run.method.members, changed=((),))
    run.method = dataclasses.replace(run.method, members=still)
    states = watch_states(run, 3)
    first = run.method.predict(states[1], run.lanes[0].watched[0])
    torch.testing.assert_close(run.lanes[0].kept.mean(0), first)


# Updates that are not finite


def poison(lane, rounds, clients):
    """In these rounds (from 0) the clients' inputs are NaN; the others' are the same floats as without."""
    draw = lane.feeder.draw

    def poisoned(want, round):
        batch = draw(want, round)
        x = batch.x.float() / 255
        hit = torch.isin(batch.clients, torch.tensor(clients)) & (round in rounds)
        return batch._replace(x=torch.where(hit.view(-1, *[1] * (x.dim() - 1)), torch.nan, x))

    lane.feeder.draw = poisoned


def watch_states(run, rounds):
    """The states (of seed row 0) before round 0 and after each of the first rounds."""
    states = [trees.map_tree(torch.clone, trees.one(run.state, 0))]
    for _ in zip(range(rounds), run, strict=False):
        states.append(trees.map_tree(torch.clone, trees.one(run.state, 0)))
    return states


def test_a_rejected_client_keeps_its_rows_and_the_others_are_as_without_it(training, variant, same):
    name, hyper = variant
    clean = training(name, sizes=(20, 20, 20), hyper=hyper, rounds=20)
    cycle = len(clean.method.phases)
    for hit in range(cycle, 2 * cycle):  # every phase of the second cycle
        rejecting = training(name, sizes=(20, 20, 20), hyper=hyper, rounds=20)
        clean = training(name, sizes=(20, 20, 20), hyper=hyper, rounds=20)
        poison(rejecting.lanes[0], {hit}, [1])
        poison(clean.lanes[0], {}, [1])
        left, right = watch_states(rejecting, hit + 1), watch_states(clean, hit + 1)
        same(left[hit], right[hit])
        asked = clean.method.phases[hit % cycle].draw.clients
        assert rejecting.lanes[0].rejected == int(asked == "all" or 1 in asked)
        assert rejecting.lanes[0].status == "running"
        for (leaf, before), (_, after), (_, wanted) in zip(
            *(trees.leaves(state["clients"]) for state in (left[hit], left[hit + 1], right[hit + 1])), strict=True
        ):
            assert torch.equal(after[1], before[1]), leaf
            blind = [2] if hyper.get("order") == "in-turn" else [0, 2]  # in turn, client 0 answers client 1's answer
            assert torch.equal(after[blind], wanted[blind]), leaf
        assert trees.finite(trees.stack([left[hit + 1]]))


@pytest.mark.parametrize("name", ["fedsgd", "fedavg"])
def test_the_server_averages_those_that_are_accepted(training, name):
    # Client 1 never brings anything, so the model is that of client 0 alone.
    with_it, alone = training(name, sizes=(20, 12), rounds=4), training(name, sizes=(20,), rounds=4)
    poison(with_it.lanes[0], range(10), [1])
    for left, right in zip(watch_states(with_it, 4), watch_states(alone, 4), strict=True):
        for (leaf, a), (_, b) in zip(
            trees.leaves(left["server"]["params"]), trees.leaves(right["server"]["params"]), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=lambda m, leaf=leaf: f"{leaf}: {m}")
    assert (with_it.lanes[0].rejected, alone.lanes[0].rejected) == (4, 0)
    assert with_it.lanes[0].status == "finished"


@pytest.mark.parametrize("name", ["v-irm", "v-fl-smooth-fast"])
def test_phi_follows_those_that_are_accepted(training, name):
    run, twin = training(name, sizes=(20, 12), rounds=4), training(name, sizes=(20, 12), rounds=4)
    poison(run.lanes[0], {0}, [1])
    batch = twin.lanes[0].feeder.draw(run.method.phases[0].draw, 0)
    start, after = watch_states(run, 1)
    phi = {name: leaf.clone().requires_grad_() for name, leaf in trees.leaves(start["server"]["phi"])}

    def ensemble(x):
        z = F.elu(F.linear(x.flatten(1), phi["fc1.weight"], phi["fc1.bias"]))
        answers = []
        for k in range(2):
            h = z
            for i, layer in enumerate(trees.one(start["clients"]["w"], k).values()):
                h = F.linear(h if i == 0 else F.elu(h), layer["weight"], layer["bias"])
            answers.append(h)
        return sum(answers) / 2

    rows = batch.live[0]
    F.cross_entropy(ensemble(batch.x[0][rows].float() / 255), batch.y[0][rows]).backward()
    for leaf, m in trees.leaves(after["server"]["opt"]["m"]):
        torch.testing.assert_close(m, 0.1 * phi[leaf].grad, rtol=1e-4, atol=1e-7)


def test_rejections_are_counted_for_their_seed(training, same):
    run = training("f-irm", sizes=(20, 20, 20), seeds=SEEDS, rounds=6)
    poison(run.lanes[0], {}, [])
    poison(run.lanes[1], {1, 4}, [0, 2])
    poison(run.lanes[2], {2}, [1])
    for _ in run:
        pass
    assert [lane.rejected for lane in run.lanes] == [0, 4, 1]
    assert {lane.status for lane in run.lanes} == {"finished"}


def test_nobody_accepted_for_a_whole_cycle_is_divergence(training, variant):
    name, hyper = variant
    run = training(name, seeds=SEEDS, hyper=hyper, rounds=12)
    cycle, first = len(run.method.phases), 4
    for lane in run.lanes:
        poison(lane, range(first, 12) if lane.seed == SEEDS[1] else {}, [0, 1])
    for _ in run:
        pass
    assert [lane.status for lane in run.lanes] == ["finished", "diverged", "finished"]
    lost = run.lanes[1]
    assert lost.rounds == first + cycle
    assert lost.metrics == {}
    assert lost.rejected == sum(
        2 if run.method.phases[t % cycle].draw.clients in ("all", (0, 1)) else 1 for t in range(first, first + cycle)
    )
    assert all(set(lane.metrics) for lane in (run.lanes[0], run.lanes[2]))


def test_one_lost_round_fewer_than_a_cycle_is_none(training, variant):
    name, hyper = variant
    run = training(name, hyper=hyper, rounds=12)
    cycle = len(run.method.phases)
    poison(run.lanes[0], set(range(3, 12)) - set(range(3 + cycle - 1, 12, cycle)), [0, 1])
    for _ in run:
        pass
    assert run.lanes[0].status == "finished"
    assert run.lanes[0].rounds == 12


def test_a_loss_that_is_not_a_number_is_divergence(training, variant):
    # The first step is finite, and so large that the logits are not: nor is the next gradient of a round of many steps.
    run = training(variant[0], hyper=variant[1] | {"lr": 1e30}, rounds=12)
    for _ in run:
        pass
    lane = run.lanes[0]
    assert lane.status == "diverged"
    assert lane.rounds <= 2 * len(run.method.phases)
    assert lane.metrics == {}
    *before, last = [math.isfinite(value) for _, metric, value in lane.curve if metric == "train_loss"]
    assert all(before)  # it ends with the first loss that is none
    assert lane.rejected or not last


@pytest.mark.parametrize("last", [True, False])
def test_test_sets_on_which_the_loss_is_not_a_number_are_divergence(training, last):
    run = training("fedavg", rounds=6, watch=Watch(test_every=100 if last else 4))
    for lane in run.lanes:
        x, y = lane.judge.sets["test"]
        lane.judge.sets["test"] = torch.full(x.shape, torch.inf), y
    for _ in run:
        pass
    for lane in run.lanes:
        assert (lane.status, lane.rounds, lane.metrics) == ("diverged", 6 if last else 4, {})
        assert all(math.isfinite(value) for _, _, value in lane.curve)


def test_a_seed_that_stops_with_a_loss_that_is_not_a_number_has_diverged(training, made_accuracies):
    made_accuracies({0: [0.9, 0.2, 0.9, 0.9, 0.9, 0.9]})
    run = training("fedavg", seeds=(0,), rounds=6, stop=Stop(threshold=0.5, warm_start=0))
    x, y = run.lanes[0].judge.sets["test"]
    run.lanes[0].judge.sets["test"] = torch.full(x.shape, torch.inf), y
    assert list(run) == [1, 2]
    assert (run.lanes[0].status, run.lanes[0].metrics) == ("diverged", {})


# Evaluation


def test_evaluation_in_parts_is_evaluation():
    x = torch.arange(2 * EVALUATION_ROWS + 3, dtype=torch.float32)[:, None]
    parts = []
    assert torch.equal(in_parts(lambda part: parts.append(len(part)) or part * 2, x), x * 2)
    assert parts == [EVALUATION_ROWS, EVALUATION_ROWS, 3]
    assert torch.equal(in_parts(lambda part: torch.stack([part, -part]), x, dim=1), torch.stack([x, -x]))


def test_images_are_sorted_by_their_colour():
    channel = [2, 0, 1, 0, 2]
    x = torch.zeros(5, 3, 2, 2, dtype=torch.uint8)
    x[range(5), channel] = torch.arange(1, 6, dtype=torch.uint8)[:, None, None]
    sorted_x, y = by_colour(x, torch.arange(5))
    assert y.tolist() == [1, 3, 2, 0, 4]
    assert torch.equal(sorted_x, x[y])
    for whole in (x + 1, torch.zeros(5, 2)):  # no channel is empty, or there are none
        assert by_colour(whole, y)[0] is whole


@pytest.mark.parametrize("empty", [True, False])
def test_the_weights_of_an_empty_channel_are_left_out_where_images_are_evaluated(empty):
    net = mlp(8, 3)
    params = net.init(torch.Generator().manual_seed(0))
    params["fc1"]["weight"][:, 4:] = torch.nan
    x = torch.ones(6, 2, 2, 2, dtype=torch.uint8)
    x[:, 1] = not empty
    assert in_parts(lambda part: net.apply(params, part), x).isfinite().all() == empty


def test_score_by_hand():
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    accuracy, loss = score(logits, torch.tensor([1, 0, 1, 1]))
    assert accuracy == 0.5  # the first is a tie, which argmax gives to class 0
    terms = torch.tensor([2.0, 1 + 2.718281828**-2, 1 + 2.718281828**-3, 1 + 2.718281828])
    assert loss == pytest.approx(terms.log().mean().item(), rel=1e-5)


def test_parts_of_large_images_have_fewer_rows():
    x = torch.zeros(1).expand(5, 3, 1000, EVALUATION_VALUES // 8000)
    parts = []
    in_parts(lambda part: parts.append(len(part)) or part[:, 0, 0, :2], x)
    assert parts == [2, 2, 1]
    in_parts(lambda part: parts.append(len(part)) or part[:, 0, :2], x.flatten(2))
    assert parts[3:] == parts[:3]
    in_parts(lambda part: parts.append(len(part)) or part[:, :2], torch.zeros(1).expand(2, 2 * EVALUATION_VALUES))
    assert parts[6:] == [1, 1]


def test_the_norm_of_a_mean_gradient_by_hand():
    x = torch.arange(600.0).view(300, 2)  # more rows than one part has
    gradient = lambda x, y: {"w": {"a": x.sum(0)}, "b": (2.0 * y).sum()}  # noqa: E731
    wanted = math.sqrt(299**2 + 300**2 + 6**2)  # means 299 and 300 of the columns, 3 of y
    assert norm(gradient, x, torch.full((300,), 3)) == pytest.approx(wanted)


# Test sets by domain


@pytest.fixture
def domains(toy):
    """domains(seed) -> Federation with three test sets of very unequal size, the first two of them in a group."""

    def make(seed=0, **changes):
        tests = {name: toy(10 * seed + rows, (rows,)) for name, rows in {"0": 7, "15": 300, "75": 40}.items()}
        tests = {name: (each.x, each.y) for name, each in tests.items()}
        groups = {"id": ("0", "15"), "ood": ("75",)}
        return dataclasses.replace(toy(seed), **({"tests": tests, "groups": groups} | changes))

    return make


def ended(run):
    for _ in run:
        pass
    return run


def test_a_group_is_the_plain_mean_over_its_test_sets(training, domains):
    run = ended(training("fedavg", data={0: domains()}, rounds=4, watch={"test_every": 2}))
    lane, state = run.lanes[0], trees.one(run.state, 0)
    shares, losses = {}, {}
    for name, (x, y) in lane.data.tests.items():
        logits = run.method.predict(state, x)
        shares[name] = (logits.argmax(1) == y).float().mean().item()
        losses[name] = F.cross_entropy(logits, y).item()
    assert len(set(shares.values())) == 3
    for kind, each in (("accuracy", shares), ("loss", losses)):
        assert lane.metrics[f"id_{kind}"] == pytest.approx((each["0"] + each["15"]) / 2)
        assert lane.metrics[f"ood_{kind}"] == pytest.approx(each["75"])
        for name in ("0", "15", "75", "id", "ood"):
            points = {round: value for round, metric, value in lane.curve if metric == f"{name}_{kind}"}
            assert list(points) == [2, 4]
            assert points[4] == lane.metrics[f"{name}_{kind}"]


def test_groups_add_metrics_and_move_none(training, domains):
    grouped, plain = (ended(training("fedavg", data={0: domains(groups=groups)})) for groups in (GROUPS, {}))
    left, right = grouped.lanes[0], plain.lanes[0]
    added = {f"{name}_{kind}" for name in GROUPS for kind in ("accuracy", "loss")}
    assert left.metrics.keys() - right.metrics.keys() == added
    assert right.metrics.items() <= left.metrics.items()
    assert [point for point in left.curve if point[1] not in added] == right.curve


GROUPS = {"near": ("0", "15"), "all": ("0", "15", "75")}


def test_gradient_norms_are_autograds_on_the_whole_set_at_once(training, domains, variant):
    if training(variant[0], hyper=variant[1]).method.gradient is None:
        pytest.skip(f"{variant[0]} has no single model")
    run = ended(training(variant[0], data={0: domains()}, hyper=variant[1], watch={"grad_norm": True}))
    lane, state, norms = run.lanes[0], trees.one(run.state, 0), {}
    params = {name: leaf.requires_grad_() for name, leaf in trees.leaves(state["server"]["params"])}
    for name, (x, y) in lane.data.tests.items():
        slopes = torch.autograd.grad(F.cross_entropy(run.method.predict(state, x), y), list(params.values()))
        norms[name] = torch.cat([slope.flatten() for slope in slopes]).norm().item()
        assert lane.metrics[f"grad_norm_{name}"] == pytest.approx(norms[name], rel=1e-4)
    mean = sum(norms.values()) / 3
    assert lane.metrics["grad_norm_all"] == pytest.approx(mean, rel=1e-4)
    spread = math.sqrt(sum((each - mean) ** 2 for each in norms.values()) / 2)
    assert lane.metrics["grad_norm_std"] == pytest.approx(spread, rel=1e-3)
    assert not any("grad_norm" in metric for _, metric, _ in lane.curve)


def test_one_test_set_has_no_spread_of_gradient_norms(training):
    lane = ended(training("fedavg", watch={"grad_norm": True})).lanes[0]
    assert lane.metrics["grad_norm_all"] == lane.metrics["grad_norm_test"] > 0
    assert "grad_norm_std" not in lane.metrics


def test_gradient_norms_are_asked_for_and_move_nothing(training, domains, same):
    plain, asked = (ended(training("fedavg", data={0: domains()}, watch={"grad_norm": on})) for on in (False, True))
    same(plain.state, asked.state)
    assert not any("grad_norm" in name for name in plain.lanes[0].metrics)
    assert plain.lanes[0].metrics.items() <= asked.lanes[0].metrics.items()
    assert plain.config.digest() == training("fedavg", data={0: domains()}).config.digest() != asked.config.digest()


def test_gradient_norms_of_an_ensemble_are_refused(training):
    with pytest.raises(UsageError, match="f-irm has no single model whose gradient could be taken"):
        training("f-irm", watch={"grad_norm": True})


def test_a_resumed_run_reports_the_same_of_every_domain(training, domains):
    settings = {"seeds": SEEDS, "data": {seed: domains(seed) for seed in SEEDS}, "watch": {"grad_norm": True}}
    whole, first, second = (training("fedavg", **settings) for _ in range(3))
    ended(whole)
    for _ in zip(range(3), first, strict=False):
        pass
    second.restore(*first.snapshot())
    ended(second)
    for lane, resumed in zip(whole.lanes, second.lanes, strict=True):
        assert shown(resumed) == shown(lane)
        began = beginning(second.device)
        assert runs.outcome(resumed, second.config, second.device, began).seed.metrics == lane.metrics
        assert {"id_accuracy", "ood_loss", "grad_norm_75", "grad_norm_all", "grad_norm_std"} <= lane.metrics.keys()


def test_training_batches_alone_are_augmented(training, domains, same):
    # Black images instead: the parameters are those of training on black images, all that is looked at is as it was.
    black = lambda images, generator: torch.zeros_like(images)  # noqa: E731
    plain, data = training("fedavg", data={0: domains()}), domains()
    augmented = ended(training("fedavg", data={0: dataclasses.replace(data, augment=black)}))
    trained = ended(training("fedavg", data={0: dataclasses.replace(data, x=torch.zeros_like(data.x))}))
    same(augmented.state, trained.state)
    lane, other = augmented.lanes[0], plain.lanes[0]
    assert torch.equal(lane.watched[0], other.watched[0])
    logits = augmented.method.predict(trees.one(augmented.state, 0), data.x)
    assert lane.metrics["train_loss"] == pytest.approx(F.cross_entropy(logits, data.y).item(), rel=1e-5)
    assert lane.metrics["ood_loss"] == trained.lanes[0].metrics["ood_loss"]
    assert lane.metrics["train_loss"] != trained.lanes[0].metrics["train_loss"]


def test_a_run_tests_where_it_first_falls_below_a_level(training, made_accuracies):
    rule = Crossings(warm_start=2, step=0.1)
    watch = Watch(samples=40, test_every=100, crossings=rule)
    made_accuracies({3: [0.9, 0.9, 0.65, 0.9, 0.65, 0.45, 0.9, 0.45, 0.9, 0.9]})
    run = training("f-irm", sizes=(20, 20), rounds=10, seeds=(3,), watch=watch)
    for _ in run:
        pass
    tested = [round for round, metric, _ in run.lanes[0].curve if metric == "test_accuracy"]
    assert tested == [3, 6, 10]


def test_a_seed_ends_below_the_floor_of_the_levels_and_the_others_go_on(training, made_accuracies):
    watch = Watch(samples=40, test_every=100, crossings=Crossings(warm_start=3, step=0.1, floor=0.5))
    made_accuracies({3: [0.9, 0.4, 0.9, 0.45, 0.9, 0.9], 4: [0.9, 0.9, 0.9, 0.9, 0.9, 0.6]})
    run = ended(training("f-irm", sizes=(20, 20), rounds=6, seeds=(3, 4), watch=watch))
    assert [(lane.status, lane.rounds) for lane in run.lanes] == [("finished", 4), ("finished", 6)]
    assert [lane.curve[-1][0] for lane in run.lanes] == [4, 6]
    assert all(lane.metrics.keys() >= {"train_accuracy", "test_accuracy"} for lane in run.lanes)


def test_a_resumed_run_tests_no_level_twice(training, made_accuracies):
    watch = Watch(samples=40, test_every=100, crossings=Crossings(warm_start=2, step=0.1))
    made_accuracies({3: [0.9, 0.9, 0.65, 0.9, 0.65, 0.45, 0.9, 0.45, 0.9, 0.9]})
    whole, broken, resumed = (training("f-irm", sizes=(20, 20), rounds=10, seeds=(3,), watch=watch) for _ in range(3))
    for _ in whole:
        pass
    for played in broken:
        if played == 4:
            break
    resumed.restore(*copy.deepcopy(broken.snapshot()))
    for _ in resumed:
        pass
    assert resumed.lanes[0].curve == whole.lanes[0].curve
