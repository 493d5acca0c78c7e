"""The generated pipeline: root dvc.yaml, and for each paper runs.json and dvc.yaml, the latter for each dataset too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedrepro import claims, digests, evaluate, figures, page, quantities, summary, tables, verdicts
from fedrepro.config import RunConfig
from fedrepro.drafts import OPEN
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.files import json_text, write_text
from fedrepro.schema import Gallery, Levels, Rounds
from fedrepro.spec import Paper, find, load_papers

HEADER = "# Written by `fedrepro plan` from papers/*/paper.toml and params.yaml: change those, and run it again.\n"
KEPT = {"cache": False, "persist": True}  # in git, and there while its stage runs: a record keeps the seeds it has
SHOWN = {"cache": False}  # in git, made anew
SOURCES = ("__init__", "catalogue", "downloads", "files", "kinds", "readers")  # modules behind a manifest


@dataclass(frozen=True)
class Sources:
    """What a run's numbers depend on beside its settings.

    `code`: method -> the source files, relative to the root. `data`: dataset -> the name of its source. `samples`:
    (method, dataset) -> the name of the file with a generator's samples, None of a method that generates none.
    `sheets`: the source files behind the sample sheets. `check` raises UsageError where a run's method or dataset does
    not have its settings.
    """

    code: Callable[[str], list[str]]
    data: Callable[[str], str]
    samples: Callable[[str, str], str | None] = lambda method, dataset: None
    sheets: Callable[[], list[str]] = list
    check: Callable[[RunConfig], None] = lambda config: None

    def extractor(self, config: RunConfig) -> str | None:
        """The source whose extractor judges the images that a run generates."""
        shown = self.samples(config.method, config.dataset) or ""
        return self.data(config.dataset) if shown.endswith(".png") else None


def write(root: str | Path = ".", sources: Sources | None = None) -> list[Path]:
    """Write the generated files and return those that changed."""
    stale = _stale(Path(root), sources)
    for path, text in stale.items():
        if text is None:
            path.unlink()
        else:
            write_text(path, text)
    return list(stale)


def check(root: str | Path = ".", sources: Sources | None = None) -> None:
    """Raise FedreproError if a generated file is not what `write` would write."""
    if stale := list(_stale(Path(root), sources)):
        raise FedreproError(f"{', '.join(map(str, stale))}: stale; run `fedrepro plan` and commit what it writes.")


def planned(paper: str, run: str, root: str | Path = ".") -> tuple[str, RunConfig]:
    """The budget and the configuration of a planned run, as in runs.json, which is what its stage depends on.

    Raises UsageError for an unknown paper or run, and where the file is missing or broken.
    """
    find(paper, root)
    path = Path(root) / "papers" / paper / "runs.json"
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: write it with `fedrepro plan`.") from error
    if run not in runs:
        raise unknown(f"run of {paper}", run, runs)
    return runs[run]["budget"], RunConfig.model_validate(runs[run]["config"])


def files(root: str | Path = ".", sources: Sources | None = None) -> dict[Path, str]:
    """The generated files: path -> text.

    Raises UsageError where a spec is at fault, or a pilot or a search is missing.
    """
    loaded, sources = load_papers(root), sources or _installed()
    for paper in loaded:
        _check_settings(paper, sources)
    texts = {Path(root) / "dvc.yaml": _yaml(_root(loaded, sources))}
    for paper in loaded:
        runs = paper.runs()
        dumps = {run: config.model_dump(mode="json") for run, config in runs.items()}
        texts[paper.folder / "runs.json"] = json_text(
            {r: {"budget": paper.budget, "config": d} for r, d in dumps.items()}
        )
        texts[paper.folder / "dvc.yaml"] = _yaml(_inside("../..", _paper(paper, sources)))
        groups = {run: draft.group for run, draft in paper.drafts().items()}
        for group in dict.fromkeys(groups.values()):
            stages = {f"train-{r}": _train(paper.name, r, runs[r], sources) for r in runs if groups[r] == group}
            texts[paper.folder / group / "dvc.yaml"] = _yaml(_inside("../../..", stages))
    return texts


def _check_settings(paper: Paper, sources: Sources) -> None:
    """Before a pilot or a search is asked for that could not be made."""
    for run, draft in paper.drafts().items():
        try:
            sources.check(draft.config)
        except UsageError as error:
            raise UsageError(f"{paper.folder / 'paper.toml'}: run {run}: {error}") from error


def _stale(root: Path, sources: Sources | None) -> dict[Path, str | None]:
    """The files that are not as they should be, with their text; None for one that should not be there."""
    wanted: dict[Path, str | None] = files(root, sources)
    wanted |= dict.fromkeys(set(root.glob("papers/*/*/dvc.yaml")) - set(wanted))
    return {path: text for path, text in wanted.items() if text is None or _differs(path, text)}


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_bytes() != text.encode()


def _inside(up: str, stages: dict[str, Any]) -> dict[str, Any]:
    """A dvc.yaml whose paths are relative to the root, which is `up` from it."""
    return {"stages": {name: {"cmd": stage.pop("cmd"), "wdir": up, **stage} for name, stage in stages.items()}}


def _paper(paper: Paper, sources: Sources) -> dict[str, Any]:
    """The stages but for the runs, which have files of their own, since DVC is slow with large ones."""
    stages = {f"sheet-{sheet}": _sheet(paper, sheet, sources) for sheet in paper.sheets}
    stages |= {f"evaluate-{table}": _evaluate(paper, table) for table in paper.spec.tables}
    stages |= {f"evaluate-{figure}": _figure(paper, figure) for figure in paper.figures}
    return stages | ({"evaluate-claims": _claims(paper)} if paper.spec.claims else {})


def _train(paper: str, run: str, config: RunConfig, sources: Sources) -> dict[str, Any]:
    record = evaluate.record_path(paper, run)
    shown, judged_by = sources.samples(config.method, config.dataset), sources.extractor(config)
    made = [*([record.with_name(shown)] if shown else []), record, record.with_name("curves.csv")]
    extractor = [_extracted(judged_by)[-1]] if judged_by else []
    return {
        "cmd": f"fedrepro train --paper {paper} --run {run}",
        "deps": [_manifest(sources.data(config.dataset)), *extractor],
        "params": [{f"papers/{paper}/runs.json": [run]}, digests.of_code(config.method)],
        "outs": [{str(path): KEPT} for path in made],
    }


def _sheet(paper: Paper, sheet: str, sources: Sources) -> dict[str, Any]:
    dataset, _ = paper.sheet(sheet)
    return {
        "cmd": f"fedrepro data show --paper {paper.name} --sheet {sheet}",
        "deps": [_manifest(sources.data(dataset))],
        "params": [digests.of_sheet(paper.name, sheet)],
        "outs": [{str(paper.sheet_path(sheet)): KEPT}],
    }


def _evaluate(paper: Paper, table: str) -> dict[str, Any]:
    runs = paper.table_runs(table)
    records = [str(evaluate.record_path(paper.name, run)) for run in runs]
    over = paper.table(table).over_curves
    return {
        "cmd": f"fedrepro evaluate --paper {paper.name} --table {table}",
        "deps": [*_code("curves", "evaluate"), *_watched(paper, runs)] if over else ["fedrepro/evaluate.py", *records],
        "params": [digests.of_section(paper, "tables", table)],
        "outs": [{str(evaluate.path(paper.name, table)): SHOWN}],
    }


def _figure(paper: Paper, figure: str) -> dict[str, Any]:
    spec = paper.figure(figure)
    read = ["quantities"] if isinstance(spec, Levels) and not isinstance(spec.quantity, Rounds) else []
    read += ["gallery"] if isinstance(spec, Gallery) else []
    return {
        "cmd": f"fedrepro evaluate --paper {paper.name} --figure {figure}",
        "deps": [
            *_code("curves", "evaluate", "figures", *read),
            *_watched(paper, paper.figure_runs(figure)),
            *_samples(paper, figure),
        ],
        "params": [digests.of_section(paper, "figures", figure)],
        "outs": [{str(figures.path(paper.name, figure)): SHOWN}],
    }


def _claims(paper: Paper) -> dict[str, Any]:
    return {
        "cmd": f"fedrepro evaluate --paper {paper.name} --claims",
        "deps": [*_code("curves", "evaluate", "quantities"), *_watched(paper, paper.claim_runs())],
        "params": [digests.of_section(paper, "claims")],
        "outs": [{str(quantities.path(paper.name)): SHOWN}],
    }


def _watched(paper: Paper, runs: list[str]) -> list[str]:
    """The records of runs, each with its curves."""
    records = [evaluate.record_path(paper.name, run) for run in runs]
    return [str(path) for record in records for path in (record, record.with_name("curves.csv"))]


def _samples(paper: Paper, figure: str) -> list[str]:
    """The files of samples that a figure shows; none of one that is no gallery."""
    spec = paper.figure(figure)
    runs = paper.figure_runs(figure) if isinstance(spec, Gallery) else []
    return [str(evaluate.record_path(paper.name, run).with_name(spec.file)) for run in runs]


def _paged(paper: Paper) -> list[str]:
    """What the page shows of a paper beside tables, figures and claims: records, sample sheets, what is left open."""
    records = [str(evaluate.record_path(paper.name, run)) for run in paper.drafts()]
    sheets = [str(paper.sheet_path(sheet)) for sheet in paper.sheets]
    protocol = page.protocol_path(paper.name, paper.root)
    return [*records, *sheets, *([str(page.protocol_path(paper.name))] if protocol.exists() else [])]


def _code(*modules: str) -> list[str]:
    return [f"fedrepro/{module}.py" for module in modules]


def _root(papers: list[Paper], sources: Sources) -> dict[str, Any]:
    """dvc.yaml: data, report and check; through the measures it depends on every paper's stages."""
    configs = [draft.config for paper in papers for draft in paper.drafts().values()]
    datasets = {config.dataset for config in configs}
    datasets |= {paper.sheet(sheet)[0] for paper in papers for sheet in paper.sheets}
    data = sorted(map(sources.data, datasets))
    specs = [f"papers/{paper.name}/{file}" for paper in papers for file in ("paper.toml", "published.csv")]
    specs += [f"papers/{paper.name}/searches.json" for paper in papers if paper.searched]
    named = [(paper.name, table) for paper in papers for table in paper.spec.tables]
    metrics = [str(evaluate.path(*name)) for name in named]
    drawn = [str(page.path()), *(str(path) for name in named for path in tables.paths(*name))]
    code = _code("latex", "layout", "rankings", "results", "tables")
    if pictured := [(paper.name, figure) for paper in papers for figure in paper.figures]:
        code += _code("plot")
        metrics += [str(figures.path(*name)) for name in pictured]
        drawn += [str(path) for name in pictured for path in figures.pictures(*name)]
    shown = [path for paper in papers for figure in paper.figures for path in _samples(paper, figure)]
    code += _code("gallery", "panels") if shown else []
    if claiming := [paper.name for paper in papers if paper.spec.claims]:
        code += _code("claims", "wording")
        metrics += [str(quantities.path(name)) for name in claiming]
        drawn += [str(path) for name in claiming for path in claims.paths(name)]
    code += _code("summary")
    drawn += map(str, summary.paths([paper.name for paper in papers]))
    agreements = [verdicts.agreement(paper.name) for paper in papers]
    read = [path for paper in papers for path in _paged(paper)]
    report = {
        "cmd": "fedrepro report",
        "deps": [*code, *page.sources(), *specs, *metrics, *shown, *read],
        "outs": [{path: SHOWN} for path in drawn],
    }
    check = {
        "cmd": "fedrepro check",
        "deps": [*_code("check", "verdicts", "verify"), *code, *page.sources(), *specs, *metrics, *shown, *drawn],
        "outs": [{str(verdicts.path()): SHOWN}, *({str(points): SHOWN} for _, points in agreements)],
        "metrics": [{str(counts): SHOWN} for counts, _ in agreements],
    }
    stages = {"digests": _digests(papers, {config.method for config in configs}, sources)}
    stages |= {f"data-{source}": _fetch(source) for source in data}
    for source in sorted({sources.extractor(config) for config in configs} - {None}):
        stages[f"extractor-{source}"] = _extractor(source)
    return {"stages": {**stages, "report": report, "check": check}, "plots": _plots(papers)}


def _plots(papers: list[Paper]) -> list[dict[str, Any]]:
    """What `dvc plots` shows: for each paper the compared numbers against the published ones, and all figures."""
    against = [
        {
            f"Reproduced against published: {paper.name}": {
                "template": "scatter",
                "x": "published",
                # The published numbers against themselves are where the reproduced ones would all be.
                "y": {str(verdicts.agreement(paper.name)[1]): ["reproduced", "published"]},
                "x_label": "published, in the unit of its table",
                "y_label": "reproduced",
            }
        }
        for paper in papers
        if _compares(paper)
    ]
    pictures = [figures.pictures(paper.name, figure)[0] for paper in papers for figure in paper.figures]
    return [*against, *({str(picture): None} for picture in pictures)]


def _compares(paper: Paper) -> bool:
    """Whether any number of a paper is held against its published one, at the budget in use."""
    cells = (cell for table in paper.spec.tables for cell in paper.cells(table))
    return paper.spec.budgets[paper.budget].compare and any(cell.runs and not cell.read.substitute for cell in cells)


def _digests(papers: list[Paper], methods: set[str], sources: Sources) -> dict[str, Any]:
    behind = {file for method in methods for file in sources.code(method)} | set(sources.sheets())
    specs = [f"papers/{paper.name}/paper.toml" for paper in papers]
    return {
        "cmd": "fedrepro digests",
        "deps": [*sorted(behind), *specs, "params.yaml"],
        "outs": [{str(digests.PATH): SHOWN}],
    }


def _fetch(source: str) -> dict[str, Any]:
    return {
        "cmd": f"fedrepro data fetch {source}",
        "deps": _code("data/femnist", "data/images", "data/pictures", *(f"data/sources/{name}" for name in SOURCES)),
        "outs": [{_manifest(source): KEPT}],
    }


def _extractor(source: str) -> dict[str, Any]:
    return {
        "cmd": f"fedrepro extractor {source}",
        "deps": [*_code("extractors", "modules", "optim"), _manifest(source)],
        "outs": [{path: SHOWN} for path in _extracted(source)],
    }


def _extracted(source: str) -> list[str]:
    """The weights of a source's extractor, and what is said of them."""
    return [f"data/extractors/{source}-cnn.{kind}" for kind in ("safetensors", "json")]


def _manifest(source: str) -> str:
    return f"data/manifests/{source}.json"


def _yaml(pipeline: dict[str, Any]) -> str:
    return HEADER + yaml.dump(pipeline, Dumper=_Plain, sort_keys=False, width=120)


class _Plain(yaml.SafeDumper):
    """YAML without anchors: what occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _installed() -> Sources:
    """What the installed methods and datasets say; imported here, since they are slow to import."""
    from fedrepro import methods
    from fedrepro.data import DATASETS, parameters
    from fedrepro.lineage import samples, sheet_files, source_files

    def source(dataset: str) -> str:
        if dataset not in DATASETS:
            raise unknown("dataset", dataset, DATASETS)
        return DATASETS[dataset].source

    def check(config: RunConfig) -> None:
        methods.check(config.method, {key: value for key, value in config.hyper.items() if value != OPEN})
        known = parameters(config.dataset)
        for key in config.data:
            if key not in known:
                raise unknown(f"setting of {config.dataset}", key, known)

    return Sources(source_files, source, samples, sheet_files, check)
