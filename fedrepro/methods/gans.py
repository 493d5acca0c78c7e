"""GANs with a critic at each client and one generator (f2u-2019, sections 3 and 4; papers/f2u-2019/PROTOCOL.md).

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
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrepro.core import optim, trees
from fedrepro.core.lift import in_turn, leaf, over_clients, slopes
from fedrepro.core.parameters import completed_by
from fedrepro.core.types import Batch, Draw, Method, Metrics, Phase, Rule, State, Streams, Task
from fedrepro.errors import UsageError
from fedrepro.methods import gan_losses
from fedrepro.methods.gan_losses import Combine, Kind, Loss
from fedrepro.nets import gan
from fedrepro.nets.gan import Normal, normalise, power_start, through
from fedrepro.nets.mlp import pixels

Panel = tuple[int, ...]  # the critics that judge one step of the generator


@dataclass(frozen=True)
class Guidance:
    """How critics guide the generator: a method but for its networks and optimisers.

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
class Pair:
    """The networks of critics and generator, and what all iterations share of their training."""

    generator: gan.Generator
    critic: gan.Critic
    loss: Loss
    opt: Rule
    guidance: Guidance
    normal: bool  # spectral norm


def start(pair: Pair, streams: Streams, sizes: tuple[int, ...]) -> State:
    """Independent critics and one generator."""
    critics = [pair.critic.init(streams(k, "critic")) for k in range(len(sizes))]
    vectors = [power_start(each, streams(k, "spectral")) for k, each in enumerate(critics) if pair.normal]
    critic, normal = trees.stack(critics), trees.stack(vectors) if vectors else {}
    params = pair.generator.init(streams(0, "generator"))
    server = {"generator": params, "running": pair.generator.running(), "opt": pair.opt.init(params)}
    if pair.guidance.start is not None:
        strength = torch.tensor(pair.guidance.start)
        server |= {"strength": strength, "strength_opt": pair.opt.init(strength)}
    own = {"critic": critic, "spectral": normal, "opt": over_clients(pair.opt.init)(critic)}
    return {"clients": own, "server": server}


def iterate(pair: Pair, panels: tuple[Panel, ...], state: State, batch: Batch) -> tuple[State, Metrics]:
    """Every critic once, then the generator once for each panel. Rejected critics judge nothing."""
    server = state["server"]
    real = batch.x[:, 0] if batch.x.is_floating_point() else pixels(batch.x[:, 0]) * 2 - 1
    with torch.no_grad():
        fake, running = pair.generator.apply(server["generator"], server["running"], batch.noise[0], True)
    clients, risks, accepted = criticise(pair, state["clients"], real, fake)
    server, shown = {**server, "running": running}, []
    for panel, z in zip(panels, batch.noise[1:], strict=True):
        judges = [k for k in panel if accepted[k]]
        if judges:
            vectors, server, curves = persuade(pair, clients, server, judges, z)
            clients = {**clients, "spectral": vectors}
            shown.append(curves)
    lost = {name: risks.new_full((), torch.nan) for name in ("loss", *pair.guidance.curves)}
    means = trees.map_tree(lambda *steps: torch.stack(steps).mean(), *shown) if shown else lost
    metrics = {**means, "accepted": accepted, "critic_loss": risks[accepted].mean()}
    return {"clients": clients, "server": server}, metrics


def criticise(pair: Pair, clients: State, real: Tensor, fake: Tensor) -> tuple[State, Tensor, Tensor]:
    """One step of each critic on real [K, B, ...] and fake [B, ...]: its new state, its loss [K], whether finite [K].

    Both halves go through a critic in one pass, so with the same weights.
    """
    critic, count = clients["critic"], len(fake)
    weights, normals = effective(pair, critic, clients["spectral"])

    def risk(own: State, k: int) -> Tensor:
        judged = pair.critic.apply(own, torch.cat((real[k], fake)))
        return pair.loss.real(judged[:count]).mean() + pair.loss.fake(judged[count:]).mean()

    gradient, risks = in_turn(risk, weights)
    for name, normal in normals.items():
        gradient[name]["weight"] = through(gradient[name]["weight"], normal)
    critic, opt = pair.opt.together(critic, gradient, clients["opt"])
    new = {"critic": critic, "spectral": {name: normal.v for name, normal in normals.items()}, "opt": opt}
    return new, risks, trees.finite(gradient)


def persuade(pair: Pair, clients: State, server: State, judges: list[int], z: Tensor) -> tuple[State, State, Metrics]:
    """One step of the generator from z [B, noise], by frozen critics: their vectors, the server and its curves."""
    own = trees.rows({name: clients[name] for name in ("critic", "spectral")}, judges)
    weights, normals = effective(pair, own["critic"], own["spectral"])
    learnt = {"generator": server["generator"]}
    learnt |= {"strength": server["strength"]} if "strength" in server else {}
    leaves = leaf(learnt)
    with torch.enable_grad():
        samples, running = pair.generator.apply(leaves["generator"], server["running"], z, True)
        judged = torch.stack([pair.critic.apply(trees.one(weights, k), samples) for k in range(len(judges))])
        loss, curves = pair.guidance.combine(pair.loss, judged, leaves.get("strength"))
    gradient = slopes(loss, leaves)
    new = {**server, "running": running}
    for name, opt in (("generator", "opt"), ("strength", "strength_opt")):
        if name in learnt:
            new[name], new[opt] = pair.opt.together(server[name], gradient[name], server[opt])
    fresh = {name: normal.v for name, normal in normals.items()}
    vectors = trees.put(clients["spectral"], judges, fresh) if fresh else fresh
    return vectors, new, {name: value.detach() for name, value in {"loss": loss, **curves}.items()}


def effective(pair: Pair, critic: State, vectors: State) -> tuple[State, dict[str, Normal]]:
    """The weights [K, ...] that critics judge by, and how each layer's was normalised."""
    if not pair.normal:
        return critic, {}
    normals = {name: normalise(critic[name]["weight"], v) for name, v in vectors.items()}
    return {name: {**critic[name], "weight": each.weight} for name, each in normals.items()}, normals


# The methods


Share = Annotated[float, Field(gt=0, lt=1)]


def adversarial(
    task: Task,
    guidance: Guidance,
    *,
    loss: Kind = "mse",
    generator_loss: Literal["same"] | Kind = "same",
    spectral: bool = True,
    norm: bool = False,
    batch: int = 32,
    lr: float = 2e-4,
    b1: Share = 0.5,
    b2: Share = 0.999,
    eps: float = 1e-7,
) -> Method:
    """The method of some guidance; all networks have Adam with `lr`, `b1`, `b2` and `eps`.

    loss:           of the critics, and of the generator unless `generator_loss` is another
    spectral:       spectral norm in the critics
    norm:           batch norm in the generator of points; those of images have it in any case
    """
    if min(task.sizes) < batch:
        raise UsageError(f"a client has {min(task.sizes)} samples: set batch to that number or less.")
    generator, critic = gan.choose(task.shape, norm)
    scored = gan_losses.crossed(loss, loss if generator_loss == "same" else generator_loss)
    pair = Pair(generator, critic, scored, optim.fused(lr, b1, b2, eps), guidance, spectral)
    phases = tuple(
        Phase(Draw(batch, noise=(1 + len(panels), generator.noise)), partial(iterate, pair, panels), alone=True)
        for panels in guidance.cycle(task.clients)
    )

    def generate(state: State, z: Tensor) -> Tensor:
        server = state["server"]
        return generator.apply(server["generator"], server["running"], z, False)[0]

    return Method(partial(start, pair), phases, None, generate=generate, noise=generator.noise)


adversary = completed_by(adversarial)


TURNS: dict[str, Callable[[int], tuple[tuple[Panel, ...], ...]]] = {
    "sequential": lambda n: (tuple((k,) for k in range(n)),),
    "round_robin": lambda n: tuple(((k,),) for k in range(n)),
    "average": lambda n: ((tuple(range(n)),),),
}


@adversary
def backbone(task: Task) -> Guidance:
    """The centralized GAN: one critic on the pooled data."""
    if task.clients != 1:
        raise UsageError(f"gan-backbone takes pooled data, not that of {task.clients} clients: set overlap=pooled.")
    return Guidance(gan_losses.mean_loss)


@adversary
def md_gan(task: Task, *, mode: Literal["sequential", "round_robin", "average"] = "sequential") -> Guidance:
    """MD-GAN: the generator steps along each critic's loss in turn.

    sequential: all critics in each iteration; round_robin: one of them; average: one step along their mean loss.
    """
    return Guidance(gan_losses.mean_loss, TURNS[mode])


@adversary
def gman_0(task: Task) -> Guidance:
    """GMAN-0: the generator minimises the mean of its losses by all critics."""
    return Guidance(gan_losses.mean_loss)


@adversary
def gman(task: Task, *, c: float = 0.001) -> Guidance:
    """GMAN*: the generator minimises an average that favours its highest losses, and learns how much at the price c."""
    return Guidance(gan_losses.soft_worst(c), start=-2.0, curves=("lambda",))


@adversary
def f2u(task: Task) -> Guidance:
    """F2U: the generator is judged, sample by sample, by the most forgiving critic."""
    return Guidance(gan_losses.highest)


@adversary
def f2a(task: Task, *, strength: Literal["learnt"] | float = "learnt", beta: float = 0.1) -> Guidance:
    """F2A: the generator is judged by an average that favours forgiving critics, and learns how much.

    `strength` is lambda where it is a number; `beta` weighs the regulariser of a learnt one.
    """
    if strength != "learnt" and strength < 0:
        raise UsageError(f"strength cannot be {strength}: set it to 0 or more, or to learnt.")
    curves = ("lambda", "weighted_variance")
    if strength == "learnt":
        return Guidance(gan_losses.aggregated(beta, None), start=0.1, curves=curves)
    return Guidance(gan_losses.aggregated(beta, float(strength)), curves=curves)
