"""GANs with a critic at each client and one generator (f2u-2019, sections 3 and 4; docs/protocol-f2u-2019.md).

One round is one iteration: every critic takes a step on its own real samples and on fake ones that all share, then the
generator takes one on fresh noise, or one after another. Methods differ in how they combine the critics' judgements,
and in which critics judge a step (its panel).

State: {"clients": {"critic": params [K, ...], "spectral": {layer: vectors [K, fan-in]}, "opt": Adam [K, ...]},
"server": {"generator": params, "running": statistics of batch norm, "opt": Adam, "strength": scalar, "strength_opt":
its Adam}}; "strength" only where it is learnt, "spectral" empty without spectral norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrepro import fused, gannets, optim, trees
from fedrepro.errors import UsageError
from fedrepro.lift import over_clients
from fedrepro.methods import judging
from fedrepro.methods.judging import LOSSES, Combine, Loss
from fedrepro.methods.options import options
from fedrepro.nets import pixels
from fedrepro.spectral import Normal, normalise, power_start, through
from fedrepro.types import Batch, Draw, Method, Metrics, Phase, State, Streams, Task

Panel = tuple[int, ...]  # the critics that judge one step of the generator


@dataclass(frozen=True)
class Recipe:
    """A method but for its networks and optimisers.

    combine: the generator's loss on the judgements of a panel
    cycle: for n critics, the panels of each iteration of the cycle, one for each step of the generator
    start: where `strength` begins, if it is learnt with the generator; None if it is not
    curves: what `combine` shows beside the loss
    """

    combine: Combine
    cycle: Callable[[int], tuple[tuple[Panel, ...], ...]] = lambda n: ((tuple(range(n)),),)
    start: float | None = None
    curves: tuple[str, ...] = ()


@dataclass(frozen=True)
class Game:
    """What all iterations share."""

    generator: gannets.Generator
    critic: gannets.Critic
    loss: Loss
    opt: Callable[[State], State]  # Adam's state at the start
    update: Callable[[State, State, State], tuple[State, State]]  # (params, gradient, opt) -> (params, opt)
    recipe: Recipe
    normal: bool  # spectral norm


Share = Annotated[float, Field(gt=0, lt=1)]
COMMON: dict[str, tuple[Any, Any]] = {
    "loss": (Literal["mse", "bce"], "mse"),
    "spectral": (bool, True),
    "batch": (int, 32),
    "lr": (float, 2e-4),
    "b1": (Share, 0.5),
    "b2": (Share, 0.999),
    "eps": (float, 1e-7),
}


def adversarial(task: Task, recipe: Recipe, *, loss: str, spectral: bool, batch: int, **adam) -> Method:
    """The method of a recipe; Adam has `lr`, `b1`, `b2` and `eps` for all networks."""
    if min(task.sizes) < batch:
        raise UsageError(f"a client has {min(task.sizes)} samples: set batch to that number or less.")
    generator, critic = gannets.choose(task.shape)
    game = Game(generator, critic, LOSSES[loss], optim.adam(**adam).init, fused.adam(**adam), recipe, spectral)
    cycle = recipe.cycle(task.clients)
    phases = tuple(iteration(game, panels, batch) for panels in cycle)

    def generate(state: State, z: Tensor) -> Tensor:
        server = state["server"]
        return generator.apply(server["generator"], server["running"], z, False)[0]

    return Method(start(game), phases, None, generate=generate, noise=generator.noise)


def start(game: Game) -> Callable[[Streams, tuple[int, ...]], State]:
    """Independent critics and one generator."""

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        clients = range(len(sizes))
        critic = trees.stack([game.critic.init(streams(k, "critic")) for k in clients])
        vectors = [directions(trees.rows(critic, [k]), streams(k, "spectral")) for k in clients]
        normal = {name: torch.cat([each[name] for each in vectors]) for name in vectors[0]} if game.normal else {}
        params = game.generator.init(streams(0, "generator"))
        server = {"generator": params, "running": game.generator.running(), "opt": game.opt(params)}
        if game.recipe.start is not None:
            strength = torch.tensor(game.recipe.start)
            server |= {"strength": strength, "strength_opt": game.opt(strength)}
        own = {"critic": critic, "spectral": normal, "opt": over_clients(game.opt)(critic)}
        return {"clients": own, "server": server}

    return init


def directions(critic: State, generator: torch.Generator) -> State:
    """A vector [1, fan-in] for the weight of each layer of a critic [1, ...]."""
    return {name: power_start(layer["weight"], generator) for name, layer in critic.items()}


def iteration(game: Game, panels: tuple[Panel, ...], size: int) -> Phase:
    """Every critic once, then the generator once for each panel. Rejected critics judge nothing."""

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        server = state["server"]
        real = batch.x[:, 0] if batch.x.is_floating_point() else pixels(batch.x[:, 0]) * 2 - 1
        with torch.no_grad():
            fake, running = game.generator.apply(server["generator"], server["running"], batch.noise[0], True)
        clients, risks, accepted = criticise(game, state["clients"], real, fake)
        server, shown = {**server, "running": running}, []
        for panel, z in zip(panels, batch.noise[1:], strict=True):
            judges = [k for k in panel if accepted[k]]
            if judges:
                vectors, server, curves = persuade(game, clients, server, judges, z)
                clients = {**clients, "spectral": vectors}
                shown.append(curves)
        lost = {name: risks.new_full((), torch.nan) for name in ("loss", *game.recipe.curves)}
        means = trees.map_tree(lambda *steps: torch.stack(steps).mean(), *shown) if shown else lost
        metrics = {**means, "accepted": accepted, "critic_loss": risks[accepted].mean()}
        return {"clients": clients, "server": server}, metrics

    return Phase(Draw(size=size, noise=(1 + len(panels), game.generator.noise)), step, alone=True)


def criticise(game: Game, clients: State, real: Tensor, fake: Tensor) -> tuple[State, Tensor, Tensor]:
    """One step of each critic on real [K, B, ...] and fake [B, ...]: its new state, its loss [K], whether finite [K].

    Both halves go through a critic in one pass, so with the same weights.
    """
    critic, count = clients["critic"], len(fake)
    weights, normals = effective(game, critic, clients["spectral"])
    gradient, risks = trees.map_tree(torch.empty_like, critic), []
    for k, own in enumerate(real):
        leaves = leaf(trees.one(weights, k))
        with torch.enable_grad():
            judged = game.critic.apply(leaves, torch.cat((own, fake)))
            risk = game.loss.real(judged[:count]).mean() + game.loss.fake(judged[count:]).mean()
        copied(slopes(risk, leaves), trees.one(gradient, k))
        risks.append(risk.detach())
    for name, normal in normals.items():
        gradient[name]["weight"] = through(gradient[name]["weight"], normal)
    critic, opt = game.update(critic, gradient, clients["opt"])
    new = {"critic": critic, "spectral": {name: normal.v for name, normal in normals.items()}, "opt": opt}
    return new, torch.stack(risks), trees.finite(gradient)


def persuade(game: Game, clients: State, server: State, judges: list[int], z: Tensor) -> tuple[State, State, Metrics]:
    """One step of the generator from z [B, noise], by frozen critics: their vectors, the server and its curves."""
    own = trees.rows({name: clients[name] for name in ("critic", "spectral")}, judges)
    weights, normals = effective(game, own["critic"], own["spectral"])
    learnt = {"generator": server["generator"]}
    learnt |= {"strength": server["strength"]} if "strength" in server else {}
    leaves = leaf(learnt)
    with torch.enable_grad():
        samples, running = game.generator.apply(leaves["generator"], server["running"], z, True)
        judged = torch.stack([game.critic.apply(trees.one(weights, k), samples) for k in range(len(judges))])
        loss, curves = game.recipe.combine(game.loss, judged, leaves.get("strength"))
    gradient = slopes(loss, leaves)
    new = {**server, "running": running}
    for name, opt in (("generator", "opt"), ("strength", "strength_opt")):
        if name in learnt:
            new[name], new[opt] = game.update(server[name], gradient[name], server[opt])
    fresh = {name: normal.v for name, normal in normals.items()}
    vectors = trees.put(clients["spectral"], judges, fresh) if fresh else fresh
    return vectors, new, {name: value.detach() for name, value in {"loss": loss, **curves}.items()}


def effective(game: Game, critic: State, vectors: State) -> tuple[State, dict[str, Normal]]:
    """The weights [K, ...] that critics judge by, and how each layer's was normalised."""
    if not game.normal:
        return critic, {}
    normals = {name: normalise(critic[name]["weight"], v) for name, v in vectors.items()}
    return {name: {**critic[name], "weight": each.weight} for name, each in normals.items()}, normals


def leaf(tree: State) -> State:
    """The same values, by which gradients can be taken."""
    return trees.map_tree(lambda values: values.detach().requires_grad_(), tree)


def slopes(loss: Tensor, leaves: State) -> State:
    """The gradient of a scalar by all leaves; zero by those that it does not depend on."""
    found = iter(torch.autograd.grad(loss, [each for _, each in trees.leaves(leaves)], materialize_grads=True))
    return trees.map_tree(lambda _: next(found), leaves)


def copied(source: State, into: State) -> None:
    trees.map_tree(torch.Tensor.copy_, into, source)


# The methods

TURNS: dict[str, Callable[[int], tuple[tuple[Panel, ...], ...]]] = {
    "sequential": lambda n: (tuple((k,) for k in range(n)),),
    "round_robin": lambda n: tuple(((k,),) for k in range(n)),
    "average": lambda n: ((tuple(range(n)),),),
}

gan = options({n: value for n, (_, value) in COMMON.items()}, {n: kind for n, (kind, _) in COMMON.items()}, adversarial)


@gan
def backbone(task: Task) -> Recipe:
    """The centralized GAN: one critic on the pooled data."""
    if task.clients != 1:
        raise UsageError(f"gan-backbone takes pooled data, not that of {task.clients} clients: set overlap=pooled.")
    return Recipe(judging.mean_loss)


@gan
def md_gan(task: Task, *, mode: Literal["sequential", "round_robin", "average"] = "sequential") -> Recipe:
    """MD-GAN: the generator steps along each critic's loss in turn.

    sequential: all critics in each iteration; round_robin: one of them; average: one step along their mean loss.
    """
    return Recipe(judging.mean_loss, TURNS[mode])


@gan
def gman_0(task: Task) -> Recipe:
    """GMAN-0: the generator minimises the mean of its losses by all critics."""
    return Recipe(judging.mean_loss)


@gan
def gman(task: Task, *, c: float = 0.001) -> Recipe:
    """GMAN*: the generator minimises an average that favours its highest losses, and learns how much at the price c."""
    return Recipe(judging.soft_worst(c), start=-2.0, curves=("lambda",))


@gan
def f2u(task: Task) -> Recipe:
    """F2U: the generator is judged, sample by sample, by the most forgiving critic."""
    return Recipe(judging.highest)


@gan
def f2a(task: Task, *, strength: Literal["learnt"] | float = "learnt", beta: float = 0.1) -> Recipe:
    """F2A: the generator is judged by an average that favours forgiving critics, and learns how much.

    `strength` is lambda where it is a number; `beta` weighs the regulariser of a learnt one.
    """
    if strength != "learnt" and strength < 0:
        raise UsageError(f"strength cannot be {strength}: set it to 0 or more, or to learnt.")
    curves = ("lambda", "weighted_variance")
    if strength == "learnt":
        return Recipe(judging.aggregated(beta, None), start=0.1, curves=curves)
    return Recipe(judging.aggregated(beta, float(strength)), curves=curves)
