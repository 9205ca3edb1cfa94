"""The named-entity network of spaCy's models in numpy: it finds what spaCy finds, in a fraction of the time.

Owns the weights of one recogniser and the vectors of words it has seen. Knows neither text nor tokens: rows
of word attributes in, runs of rows with a label out. The network is spaCy's `Tok2Vec.v2` below a
`TransitionBasedParser.v2` (spacy.io/api/architectures): each word becomes a vector, convolutions look at its
neighbours, and a state machine gives each word a move (B-egin, I-n, L-ast, U-nit of an entity, or O-ut).

What is saved: a known word's vector is looked up; and since a state in which no entity is open depends on its
word alone, all of those are scored with one product. Only inside an entity is there a step for each word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH
from thinc.api import NumpyOps

Floats = NDArray[np.float32]
Attributes = NDArray[np.uint64]
"""A row a word: its hash, its norm's, and those of the columns that the network reads."""

_MOST_WORDS = 20_000
"""Whose vectors are kept: about 500 bytes each."""
_VARIANCE_FLOOR = 1e-8
_LEAVES = {
    "extract_features",
    "list2ragged",
    "ints-getitem",
    "hashembed",
    "static_vectors",
    "maxout",
    "layernorm",
    "dropout",
    "ragged2list",
    "expand_window",
    "list2array",
    "linear",
    "precomputable_affine",
}


_OF_THE_WORD = {"ORTH", "NORM", "LOWER", "PREFIX", "SUFFIX", "SHAPE", "IS_SPACE"}
"""Columns that depend on the word alone, so that its vector may be kept. SPACY, say, does not."""


class Run(NamedTuple):
    """Rows `start` to `end` (the first behind it) are one entity."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Linear:
    weights: Floats
    """(inputs, outputs)"""
    bias: Floats

    @classmethod
    def of(cls, node: Any) -> Self:
        return cls(np.ascontiguousarray(node.get_param("W").T), node.get_param("b"))

    def __call__(self, inputs: Floats) -> Floats:
        mapped = inputs @ self.weights
        mapped += self.bias
        return mapped


@dataclass(frozen=True)
class Maxout:
    """The greatest of several linear maps, then a layer norm."""

    linear: Linear
    """To pieces x outputs."""
    pieces: int
    gain: Floats
    shift: Floats

    @classmethod
    def of(cls, maxout: Any, norm: Any) -> Self:
        weights: Floats = maxout.get_param("W")  # (outputs, pieces, inputs)
        outputs, pieces, inputs = weights.shape
        linear = Linear(
            np.ascontiguousarray(weights.transpose(2, 1, 0).reshape(inputs, pieces * outputs)),
            np.ascontiguousarray(maxout.get_param("b").T.reshape(-1)),
        )
        return cls(linear, pieces, norm.get_param("G"), norm.get_param("b"))

    def __call__(self, inputs: Floats) -> Floats:
        best = _greatest(self.linear(inputs), self.pieces)
        width = best.shape[1]
        best -= np.add.reduce(best, axis=1, keepdims=True) / np.float32(width)
        variance = np.einsum("ij,ij->i", best, best) / np.float32(width)
        best *= (1 / np.sqrt(variance + np.float32(_VARIANCE_FLOOR)))[:, None]
        best *= self.gain
        best += self.shift
        return best


def _greatest(mapped: Floats, pieces: int) -> Floats:
    """Of the pieces, which lie one behind the other in each row."""
    width = mapped.shape[-1] // pieces
    best = mapped[..., :width].copy()
    for piece in range(1, pieces):
        np.maximum(best, mapped[..., piece * width : (piece + 1) * width], out=best)
    return best


class WordVectors:
    """The first layers: a word's vector, which depends on nothing but the word."""

    def __init__(
        self, tables: Sequence[tuple[int, Floats]], static: Any, vectors: Any, mixed: Maxout
    ) -> None:
        """`tables` are the hash embeddings with their seeds, one a column; `vectors` spaCy's."""
        self._tables = tables
        self._static: Floats = np.ascontiguousarray(static.get_param("W").T)
        self._vectors = vectors
        self._mixed = mixed
        self._known: dict[tuple[int, int], Floats] = {}
        self._hash = NumpyOps().hash

    def of(self, attributes: Attributes) -> Floats:
        """May run in several threads: each change of the memory is one operation on a dict."""
        keys = list(zip(attributes[:, 0].tolist(), attributes[:, 1].tolist(), strict=True))
        found = [self._known.get(key) for key in keys]
        new = {keys[row]: row for row, vector in enumerate(found) if vector is None}
        if new:
            computed = dict(zip(new, self._compute(attributes[list(new.values())]), strict=True))
            if len(self._known) > _MOST_WORDS:
                self._known.clear()
            self._known.update((key, vector.copy()) for key, vector in computed.items())
            found = [
                computed[key] if vector is None else vector for key, vector in zip(keys, found, strict=True)
            ]
        return np.array(found)

    def _compute(self, attributes: Attributes) -> Floats:
        parts: list[Floats] = []
        for column, (seed, table) in enumerate(self._tables, start=2):
            rows = self._hash(np.ascontiguousarray(attributes[:, column]), seed) % np.uint32(len(table))
            parts.append(table[rows].sum(axis=1))
        rows = self._vectors.find(keys=attributes[:, 0])
        static = self._vectors.data[rows] @ self._static
        static[rows < 0] = 0
        return self._mixed(np.concatenate([*parts, static], axis=1))


@dataclass(frozen=True)
class Moves:
    """What the state machine may do. Move ids are rows of the last layer."""

    labels: tuple[str, ...]
    """By move id; "" for Out."""
    into: dict[str, int]
    last: dict[str, int]
    out: int
    unit: frozenset[int]
    closed: Floats
    """0 for a move that is allowed while no entity is open, else -inf."""
    at_the_end: Floats
    """The same for the last word: an entity can't begin there, only be it."""

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """From names such as `B-PERSON` and `O`."""
        kinds = [name.partition("-")[0] for name in names]
        labels = tuple(name.partition("-")[2] for name in names)

        def only(allowed: str) -> Floats:
            return np.array([0 if kind in allowed else -np.inf for kind in kinds], np.float32)

        def ids(wanted: str) -> dict[str, int]:
            return {labels[move]: move for move, kind in enumerate(kinds) if kind == wanted and labels[move]}

        # U without a label is what spaCy gives a word that somebody barred before: nobody does here.
        barred = np.array([-np.inf if name in ("U-", "U") else 0 for name in names], np.float32)
        unit = frozenset(ids("U").values())
        return cls(
            labels, ids("I"), ids("L"), kinds.index("O"), unit, only("BUO") + barred, only("UO") + barred
        )


class EntityNetwork:
    def __init__(self, recogniser: Any) -> None:
        """From spaCy's `ner` component. Raises ValueError if it is another network than this one."""
        model = recogniser.model
        _check(recogniser)
        leaves: dict[str, list[Any]] = {}
        for node in model.walk():
            leaves.setdefault(node.name, []).append(node)
        mixed, *convolved = (
            Maxout.of(maxout, norm)
            for maxout, norm in zip(leaves["maxout"], leaves["layernorm"], strict=True)
        )
        tables = [(int(node.attrs["seed"]), node.get_param("E")) for node in leaves["hashembed"]]
        self.columns: tuple[str, ...] = ("ORTH", "NORM", *leaves["extract_features"][0].attrs["columns"])
        """Of the attributes that `runs` wants."""
        self._words = WordVectors(tables, leaves["static_vectors"][0], recogniser.vocab.vectors, mixed)
        self._convolutions = convolved
        lower = model.layers[1]
        self._narrow = Linear.of(model.layers[0].layers[-1])
        self._upper = Linear.of(model.layers[2])
        weights: Floats = lower.get_param("W")  # (features, outputs, pieces, inputs)
        features, outputs, self._pieces, inputs = weights.shape
        self._hidden = outputs * self._pieces
        self._lower = np.ascontiguousarray(
            weights.transpose(3, 0, 2, 1).reshape(inputs, features * self._hidden)
        )
        pads: Floats = lower.get_param("pad")[0].transpose(0, 2, 1).reshape(features, self._hidden)
        self._bias: Floats = lower.get_param("b").T.reshape(-1)
        self._bias_when_closed: Floats = self._bias + pads[1] + pads[2]
        moves = recogniser.moves
        self._moves = Moves.of([moves.get_class_name(move) for move in range(moves.n_moves)])

    def runs(self, attributes: Attributes, spaces: NDArray[np.bool_]) -> list[Run]:
        """`attributes` has `self.columns`; no entity begins at a row that is space."""
        if not len(attributes):
            return []
        vectors = self._convolved(self._words.of(attributes))
        features: Floats = self._narrow(vectors) @ self._lower
        closed = self._scores(features[:, : self._hidden] + self._bias_when_closed)
        closed += self._moves.closed
        closed[-1] += self._moves.at_the_end
        best = closed.argmax(axis=1)
        best[spaces] = self._moves.out
        return self._walk(features, best)

    def _convolved(self, words: Floats) -> Floats:
        """Each layer looks one row to both sides; around the text are as many empty ones as layers."""
        margin = len(self._convolutions)
        vectors = np.zeros((len(words) + 2 * margin, words.shape[1]), np.float32)
        vectors[margin:-margin] = words
        for convolution in self._convolutions:
            middle = vectors[1:-1]
            vectors = middle + convolution(np.concatenate((vectors[:-2], middle, vectors[2:]), axis=1))
        return vectors

    def _scores(self, hidden: Floats) -> Floats:
        return self._upper(_greatest(hidden, self._pieces))

    def _walk(self, features: Floats, best: NDArray[np.intp]) -> list[Run]:
        """`best` is the best move at each word if no entity is open there."""
        runs: list[Run] = []
        end = 0
        for start in np.flatnonzero(best != self._moves.out).tolist():
            if start < end:
                continue
            move = int(best[start])
            label = self._moves.labels[move]
            end = start + 1 if move in self._moves.unit else self._last_word(features, start, label) + 1
            runs.append(Run(start, end, label))
        return runs

    def _last_word(self, features: Floats, start: int, label: str) -> int:
        """Of the entity that begins at `start`. Inside, the machine chooses between In and Last."""
        into, last = self._moves.into[label], self._moves.last[label]
        begun: Floats = features[start, self._hidden : 2 * self._hidden]
        for word in range(start + 1, len(features) - 1):
            hidden: Floats = features[word, : self._hidden] + self._bias
            hidden += begun
            hidden += features[word - 1, 2 * self._hidden :]
            scores = self._scores(hidden)
            wins = scores[last] > scores[into] if into < last else scores[last] >= scores[into]
            if wins:
                return word
        return len(features) - 1


def _check(recogniser: Any) -> None:
    model = recogniser.model
    names = [node.name for node in model.walk() if not node.layers]
    windows = {node.attrs["window_size"] for node in model.walk() if node.name == "expand_window"}
    columns = {name for node in model.walk() for name in node.attrs.get("columns", ())}
    as_expected = (
        len(model.layers) == 3
        and set(names) == _LEAVES
        and names.count("static_vectors") == 1
        and names.count("linear") == 2
        and model.layers[1].get_dim("nF") == 3
        and model.attrs["has_upper"]
        and not model.attrs["unseen_classes"]
        and windows == {1}
        and columns <= _OF_THE_WORD
        and recogniser.cfg["beam_width"] == 1
        and recogniser.vocab.vectors.mode == "default"
        and recogniser.vocab.vectors.attr == ORTH
    )
    if not as_expected:
        raise ValueError(f"another network than Tok2Vec.v2 below TransitionBasedParser.v2: {model.name}")
