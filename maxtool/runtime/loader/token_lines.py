"""``--json-stream``: a line of JSON for each token as it comes, and then one about all."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .likelihood import LikelihoodSampler
from .reply import Reply
from .terminal import emit

SCHEMA = "maxtool.token_stream/1"


def write_tokens(reply: Reply, choose: LikelihoodSampler, max_tokens: int) -> None:
    """Write the tokens of a reply that ``choose`` picks, each at once, and then how it ended.

    The texts of all lines together are the text: a token has what it completes, and the last line
    what was held back behind the last of them.
    """
    rest = ""
    for number, text in enumerate(reply):
        if number == len(reply.made):
            rest = text
        else:
            logprob = choose.logprobs[number]
            _write({"text": text, "id": reply.made[number], "logprob": logprob})
    _write(
        {
            "schema": SCHEMA,
            "text": rest,
            "tokens": {"prompt": len(reply.ids), "made": len(reply.made)},
            "stopped": reply.stopped(max_tokens),
            "tokens_per_second": reply.speed(),
        }
    )


def _write(content: Mapping[str, object]) -> None:
    emit(json.dumps(content) + "\n")
