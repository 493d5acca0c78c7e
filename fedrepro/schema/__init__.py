"""The format of papers/<paper>/paper.toml, part by part; specfile.py reads it."""

from fedrepro.schema.cells import (
    FIXED,
    Block,
    Cells,
    Point,
    Remark,
    When,
    first_fault,
    matches,
    points,
    product,
    remark_on,
    values,
    words,
)
from fedrepro.schema.claims import Claim, Gain, Pairs
from fedrepro.schema.figures import Curves, Figure, Gallery, Levels, Sheet, Spot
from fedrepro.schema.found import Chosen, Found, Pilot, Search
from fedrepro.schema.papers import Base, Budget, Label, Rule, Spec
from fedrepro.schema.quantities import (
    Final,
    FirstRound,
    Gap,
    Growth,
    Last,
    Median,
    Oscillation,
    Quantity,
    Rounds,
    Share,
)
from fedrepro.schema.tables import Instead, Read, Table, Tolerance

__all__ = [
    "FIXED", "Base", "Block", "Budget", "Cells", "Chosen", "Claim", "Curves", "Figure", "Final", "FirstRound", "Found",
    "Gain", "Gallery", "Gap", "Growth", "Instead", "Label", "Last", "Levels", "Median", "Oscillation", "Pairs", "Pilot",
    "Point", "Quantity", "Read", "Remark", "Rounds", "Rule", "Search", "Share", "Sheet", "Spec", "Spot", "Table",
    "Tolerance", "When", "first_fault", "matches", "points", "product", "remark_on", "values", "words",
]  # fmt: skip
