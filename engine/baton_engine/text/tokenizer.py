"""Text to ids and back for one model.

Owns which strings become control tokens: in plain text none do, in a chat only those that the model's
template writes. Where no such string is in play the ids are the `tokenizers` library's own, so they equal
the reference's. Knows nothing of streaming (see `detokenizer`) or of how templates run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from baton_engine.errors import RequestRejected
from baton_engine.text.chat_messages import require_text
from baton_engine.text.chat_template import ChatTemplate
from baton_engine.text.plain_text import PlainTextEncoder, any_of, protected_tokens
from baton_engine.text.template_marks import Piece, cut_behind
from baton_engine.text.token_bytes import TokenBytes
from baton_engine.text.tokenizer_files import TokenizerFiles, read_tokenizer_files


class Tokenizer:
    """A model's tokenizer and chat template. Safe to use from several threads.

    vocab_size: one more than the highest id that has a token (the model's logits may be wider).
    bos_token_id: the token that begins a text, or None.
    eos_token_ids: the tokens that end an answer.
    special_token_ids: control tokens, which are never shown; added tokens that carry content, such as
        `<tool_call>`, are not among them.
    fingerprint: equal ones give equal ids, of texts and of chats.
    """

    def __init__(self, files: TokenizerFiles) -> None:
        self._full = files.tokenizer
        self.fingerprint = files.fingerprint()
        added = files.tokenizer.get_added_tokens_decoder()
        self._protected = protected_tokens(added, files.chat_templates.values())
        self._plain = PlainTextEncoder(files.tokenizer, self._protected)
        self._control = any_of(token.content for token in self._protected.values())
        self._bytes = TokenBytes(files.tokenizer)
        self.strips_first_space = self._bytes.strips_first_space
        self.special_token_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.vocab_size: int = 1 + max(files.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self.bos_token_id = self._role_id(files, "bos_token")
        eos = self._role_id(files, "eos_token")
        self.eos_token_ids = files.stated_eos_ids if eos is None else files.stated_eos_ids | {eos}
        self._template = self._chat_template(files)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """From a Hugging Face folder or a .gguf file. Raises ModelLoadError."""
        return cls(read_tokenizer_files(path))

    @property
    def chat_template_source(self) -> str:
        """The template's own text, with all its variants: it tells how its model was taught to write."""
        return "\n".join(self._template.sources.values()) if self._template else ""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of plain text: strings of control tokens in it stay ordinary text.

        add_special_tokens: what the model expects around a bare text, mostly a BOS in front.
        Raises RequestRejected for what is no text (half of a surrogate pair).
        """
        require_text(text, "prompt")
        ids = self._library_ids(text, [])
        if ids is None:
            ids = self._plain.encode(text)
        if not add_special_tokens:
            return ids
        before, after = self._text_frame()
        return [*before, *ids, *after]

    def encode_raw(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a prompt that is its caller's own from end to end: in it strings of control tokens are those
        tokens, as in the `tokenizers` library. Raises RequestRejected for what is no text.
        """
        require_text(text, "prompt")
        return self._full.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole list of ids; broken UTF-8 becomes U+FFFD."""
        skipped = self.special_token_ids if skip_special_tokens else frozenset[int]()
        raw = b"".join(self._bytes.of(token_id) for token_id in ids if token_id not in skipped)
        text = raw.decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_first_space else text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for; empty for ids that have no token."""
        return self._bytes.of(token_id)

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> list[int]:
        """Prompt ids of a chat, with the BOS that the template itself writes and no other.

        continue_final_message: the prompt ends with the last message's text, which is to go on.
        `variables` are passed to the template (`enable_thinking=False`). Raises RequestRejected if the
        messages don't fit the template, with the template's own message.
        """
        pieces = self._render(messages, tools, add_generation_prompt, variables)
        if continue_final_message:
            pieces = cut_behind(pieces, str(messages[-1].get("content") or ""))
        return self._encode_pieces(pieces)

    def render_chat(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt as text, for people to read: in it a user's `<|im_end|>` looks like the real one."""
        return "".join(map(self._piece_text, self._render(messages, tools, add_generation_prompt, variables)))

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        variables: dict[str, Any],
    ) -> list[Piece]:
        if self._template is None:
            raise RequestRejected(
                "chat_template_missing",
                "messages",
                "This model has no chat template. Send a prompt to /v1/completions, or put a "
                "chat_template.jinja into the model folder.",
            )
        return self._template.render(messages, tools, add_generation_prompt, **variables)

    def _encode_pieces(self, pieces: list[Piece]) -> list[int]:
        ids = self._library_ids("".join(map(self._piece_text, pieces)), pieces)
        if ids is not None:
            return ids
        # Somebody's text holds what looks like a control token: the library must not see it.
        return list(chain.from_iterable(self._encode_piece(pieces, place) for place in range(len(pieces))))

    def _encode_piece(self, pieces: list[Piece], place: int) -> list[int]:
        """As the library does it: control tokens cut the text, and each part is encoded by itself."""
        piece = pieces[place]
        if isinstance(piece, int):
            return [piece]
        before = pieces[place - 1] if place else None
        after = pieces[place + 1] if place + 1 < len(pieces) else None
        if isinstance(before, int) and self._protected[before].rstrip:
            piece = piece.lstrip()
        if isinstance(after, int) and self._protected[after].lstrip:
            piece = piece.rstrip()
        return self._plain.encode(piece, at_start=place == 0)

    def _library_ids(self, text: str, pieces: list[Piece]) -> list[int] | None:
        """The library's ids of `text`, if it finds in it just the protected tokens that `pieces` state.

        Compared by place, since a forged token could stand for a real one, and by id, since the library
        may find some only after normalising the text.
        """
        if [match.span() for match in self._control.finditer(text)] != list(self._piece_spans(pieces)):
            return None
        ids: list[int] = self._full.encode(text, add_special_tokens=False).ids
        stated = [piece for piece in pieces if isinstance(piece, int)]
        return ids if [token_id for token_id in ids if token_id in self._protected] == stated else None

    def _piece_spans(self, pieces: list[Piece]) -> Iterator[tuple[int, int]]:
        start = 0
        for piece in pieces:
            end = start + len(self._piece_text(piece))
            if isinstance(piece, int):
                yield start, end
            start = end

    def _piece_text(self, piece: Piece) -> str:
        return self._protected[piece].content if isinstance(piece, int) else piece

    def _text_frame(self) -> tuple[list[int], list[int]]:
        """Ids that the library puts before and after a text."""
        bare = self._full.encode("a", add_special_tokens=False).ids
        framed = self._full.encode("a", add_special_tokens=True).ids
        for start in range(len(framed) - len(bare) + 1):
            if framed[start : start + len(bare)] == bare:
                return framed[:start], framed[start + len(bare) :]
        return [], []

    def _role_id(self, files: TokenizerFiles, role: str) -> int | None:
        text = files.special_tokens.get(role)
        return None if text is None else files.tokenizer.token_to_id(text)

    def _chat_template(self, files: TokenizerFiles) -> ChatTemplate | None:
        if not files.chat_templates:
            return None
        control_tokens = {token.content: token_id for token_id, token in self._protected.items()}
        return ChatTemplate(files.chat_templates, files.special_tokens, control_tokens)
