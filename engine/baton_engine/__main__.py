"""python -m baton_engine --model PATH "prompt": one streamed answer, for use of the engine alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from baton_engine import LLM, EngineError, EngineRequest, RequestDelta, SamplingParams


def main() -> int:
    options = _parser().parse_args()
    try:
        llm = LLM(
            options.model,
            dtype=options.dtype,
            num_threads=options.threads,
            backend=options.backend,
            quantization=options.quantization,
        )
        sampling = SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed,
        )
        last = _print_answer(llm, _request(llm, options, sampling))
    except EngineError as error:
        print(f"baton_engine: {error}", file=sys.stderr)
        return 1
    _print_figures(last)
    return 0 if last.error is None else 1


def _request(llm: LLM, options: argparse.Namespace, sampling: SamplingParams) -> EngineRequest:
    if options.raw:
        token_ids = llm.tokenizer.encode(options.prompt)
        return EngineRequest("cli", prompt_token_ids=token_ids, sampling=sampling)
    messages = [{"role": "user", "content": options.prompt}]
    return EngineRequest("cli", messages=messages, sampling=sampling)


def _print_answer(llm: LLM, request: EngineRequest) -> RequestDelta:
    last = None
    for last in llm.stream(request):
        print(last.text, end="", flush=True)
    print()
    assert last is not None
    return last


def _print_figures(last: RequestDelta) -> None:
    assert last.usage is not None
    assert last.timings is not None
    if last.error is not None:
        print(f"baton_engine: {last.error.code}: {last.error.message}", file=sys.stderr)
    first_token_at = last.timings.first_token_at or last.timings.finished_at
    answer_seconds = last.timings.finished_at - first_token_at
    rate = (last.usage.completion_tokens - 1) / answer_seconds if answer_seconds > 0 else 0.0
    print(
        f"[{last.finish_reason}; {last.usage.prompt_tokens} prompt tokens, "
        f"{last.usage.completion_tokens} answer tokens; "
        f"TTFT {(first_token_at - last.timings.queued_at) * 1000:.0f} ms; {rate:.1f} tok/s]",
        file=sys.stderr,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baton_engine", description="One answer from a local model."
    )
    parser.add_argument("prompt")
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder or a .gguf file")
    parser.add_argument(
        "--raw", action="store_true", help="the prompt as plain text, without the chat template"
    )
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dtype", default="auto", help="auto, bfloat16 or float32")
    parser.add_argument("--backend", default="auto", help="auto, native or torch")
    parser.add_argument("--quantization", default=None, help="int8, int4, or nothing")
    parser.add_argument("--threads", type=int, default=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
