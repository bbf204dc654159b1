"""Checks a PromQL expression against what is exported, by walking what the parser makes of it.

For every selector: the series exists, and so do the labels and the values that it names. For every grouping, matching
and legend: the label is still there at that place of the expression.
"""

from __future__ import annotations

from collections.abc import Mapping

import promql_parser as promql

Exported = Mapping[str, Mapping[str, set[str]]]
"""Name of a series → its labels → the values that were seen."""

OF_THE_SCRAPE = frozenset({"namespace", "pod", "job", "instance", "app_kubernetes_io_instance"})
"""Labels that Prometheus adds to every series: the chart's PodMonitor asks for the last."""
BOUND = "le"
RANGES = {"$__rate_interval": "5m"}
"""Grafana fills these in."""


class Wrong(AssertionError):
    """The expression asks for something that is not there."""


def names_in(expression: str) -> set[str]:
    return {selector.name for selector in _selectors(parse(expression))}


def parse(expression: str) -> promql.Expr:
    for variable, value in RANGES.items():
        expression = expression.replace(variable, value)
    return promql.parse(expression)


def check(expression: str, exported: Exported) -> frozenset[str]:
    """The labels that the result may have. Raises `Wrong`."""
    return _Checker(exported).labels(parse(expression)) or frozenset()


class _Checker:
    def __init__(self, exported: Exported) -> None:
        self._exported = exported

    def labels(self, node: promql.Expr) -> frozenset[str] | None:
        """None for a plain number, which has no labels and matches everything."""
        match node:
            case promql.VectorSelector():
                return self._of_selector(node)
            case promql.MatrixSelector():
                return self._of_selector(node.vector_selector)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self.labels(node.expr)
            case promql.AggregateExpr():
                return self._of_aggregate(node)
            case promql.BinaryExpr():
                return self._of_binary(node)
            case promql.Call():
                return self._of_call(node)
            case promql.NumberLiteral() | promql.StringLiteral():
                return None
        raise Wrong(f"not known here: {node!r}")

    def _of_selector(self, selector: promql.VectorSelector) -> frozenset[str]:
        found = self._exported.get(selector.name)
        if found is None:
            raise Wrong(f"no series {selector.name}")
        for matcher in selector.matchers.matchers:
            if matcher.name in OF_THE_SCRAPE:
                continue
            if matcher.name not in found:
                raise Wrong(f"{selector.name} has no label {matcher.name}")
            for value in matcher.value.split("|"):
                if not value.startswith("$") and value not in found[matcher.name]:
                    raise Wrong(f"{selector.name} never has {matcher.name}={value}: {found[matcher.name]}")
        return frozenset(found) | OF_THE_SCRAPE

    def _of_aggregate(self, node: promql.AggregateExpr) -> frozenset[str]:
        inner = self.labels(node.expr) or frozenset()
        if node.modifier is None:
            return frozenset()
        named = frozenset(node.modifier.labels)
        if node.modifier.type != promql.AggModifierType.By:
            return inner - named
        return self._those(named, inner)

    def _of_binary(self, node: promql.BinaryExpr) -> frozenset[str] | None:
        left, right = self.labels(node.lhs), self.labels(node.rhs)
        if left is None or right is None:
            return right if left is None else left
        modifier = node.modifier
        if modifier is None or modifier.matching is None:
            return left
        matching = frozenset(modifier.matching.labels)
        self._those(matching, left)
        self._those(matching, right)
        if modifier.card == promql.VectorMatchCardinality.ManyToOne:
            return left | self._those(frozenset(modifier.group_labels or ()), right)
        return left if modifier.card == promql.VectorMatchCardinality.ManyToMany else matching

    def _of_call(self, node: promql.Call) -> frozenset[str] | None:
        found = [labels for labels in map(self.labels, node.args) if labels is not None]
        if node.func.name == "histogram_quantile":
            return self._those(found[0], found[0]) - self._those(frozenset({BOUND}), found[0])
        if node.func.name == "absent":
            return frozenset()
        return found[0] if found else None

    @staticmethod
    def _those(named: frozenset[str], there: frozenset[str]) -> frozenset[str]:
        if not named <= there:
            raise Wrong(f"no label {', '.join(sorted(named - there))} there, only {', '.join(sorted(there))}")
        return named


def _selectors(node: promql.Expr) -> list[promql.VectorSelector]:
    match node:
        case promql.VectorSelector():
            return [node]
        case promql.MatrixSelector():
            return [node.vector_selector]
        case promql.BinaryExpr():
            return [*_selectors(node.lhs), *_selectors(node.rhs)]
        case promql.Call():
            return [selector for argument in node.args for selector in _selectors(argument)]
        case promql.NumberLiteral() | promql.StringLiteral():
            return []
    return _selectors(node.expr)
