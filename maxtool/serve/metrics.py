"""Counters that Prometheus reads."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        model = ["model"]

        def counter(name: str, said: str, labels: Sequence[str]) -> Counter:
            return Counter(f"maxtool_{name}", said, labels, registry=registry)

        def gauge(name: str, said: str) -> Gauge:
            return Gauge(f"maxtool_{name}", said, model, registry=registry)

        def histogram(
            name: str, said: str, labels: Sequence[str], bounds: Sequence[float]
        ) -> Histogram:
            return Histogram(f"maxtool_{name}", said, labels, registry=registry, buckets=bounds)

        self.requests = counter("requests", "Requests answered.", ["path", "status"])
        self.prompt = counter("prompt_tokens", "Tokens of prompts.", model)
        self.cached = counter("cached_tokens", "Of these, tokens that were in memory.", model)
        self.made = counter("generated_tokens", "Tokens made.", model)
        self.running = gauge("texts_running", "Texts that are continued now.")
        self.waiting = gauge("texts_waiting", "Texts that wait for a place.")
        self.first = histogram("first_seconds", "Time to the first token.", model, SECONDS)
        self.seconds = histogram("request_seconds", "Time to the answer's end.", ["path"], SECONDS)
        self.rows = histogram("step_texts", "Texts that share a step.", model, ROWS)

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self._registry)
