"""One estimate with evidence among 10,000 stored runs and among 1,000,000: its latency at both, as a ratio.

Runs are generated: sweeps over concurrency of one configuration each, configurations spread as a store's are after
years, most of them on a few accelerators and models; a fifth of all runs are of one release, which is swept over the
engine's settings. An estimate is timed warm (its neighbourhood is kept) and cold (the nearest runs are found and
factored first), the latter also about that release. Bars, of cold ones: 5 ms among the small, no more than 1.5 times
as long among the large.

    python -m benchmarks.evidence [--small 10000] [--large 1000000]
"""

import argparse
import gc
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from statistics import median

from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import Configuration, EngineFlags, Point, Run, as_question
from service.sizing.run_terms import Phase

BAR_S, BAR_RATIO = 0.005, 1.5
RUNS_AT_ONCE = 20_000
ASKED, REPEATS = 100, 3
BUSY_SHARE = 0.1  # of the configurations: they have more runs each than the others
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LENGTHS = ((1024, 1024), (1024, 8192), (8192, 1024), (4096, 512), (512, 128))
ENGINES = ("vllm", "sglang", "tensorrt-llm", "lmdeploy")
KINDS = ("dense", "moe", "mla moe")
WEIGHTS = ("16", "8", "4", "int4")
PHASES = (Phase.SERVING, Phase.TTFT, Phase.SINGLE_STREAM, Phase.OFFLINE, Phase.PREFILL)


def harmonic(choices: random.Random, count: int) -> int:
    """A number below ``count``; number n is 1 / (n + 1) times as frequent as 0."""
    return min(count, int(count ** choices.random())) - 1 if count > 1 else 0


def configurations(choices: random.Random) -> Iterator[Configuration]:
    while True:
        accelerator, model = harmonic(choices, 80), harmonic(choices, 150)
        tp = 2 ** harmonic(choices, 5)
        yield Configuration(
            phase=PHASES[harmonic(choices, len(PHASES))],
            accelerator=f"accelerator {accelerator}",
            architecture=f"model {model}",
            engine=ENGINES[harmonic(choices, len(ENGINES))],
            engine_version=f"0.{harmonic(choices, 40)}",
            weight_class=WEIGHTS[harmonic(choices, len(WEIGHTS))],
            kind=KINDS[model % 3],
            family=f"family {accelerator % 12}",
            layout=(tp, 1, 1, 1),
            device_count=tp,
            campaign=f"campaign {harmonic(choices, 500)}",
        )


def busy_release(choices: random.Random) -> Iterator[Configuration]:
    """Configurations of one release: by layout, by the engine's settings and by who measured."""
    base = replace(next(configurations(random.Random(1))), phase=Phase.SERVING, engine_version="busy")  # noqa: S311 - one
    while True:
        tp = 2 ** harmonic(choices, 4)
        flags = EngineFlags(max_num_seqs=1 + harmonic(choices, 1000), prefix_caching=choices.random() < 0.5)
        campaign = f"campaign {harmonic(choices, 500)}"
        yield replace(base, layout=(tp, 1, 1, 1), device_count=tp, flags=flags, campaign=campaign)


def generated_runs(count: int) -> Iterator[Run]:
    choices = random.Random(20261202)  # noqa: S311 - the same runs every time
    number = 0
    swept, busy = configurations(choices), busy_release(choices)
    while True:
        configuration = next(busy if choices.random() < BUSY_SHARE else swept)
        isl, osl = choices.choice(LENGTHS)
        sweep = CONCURRENCIES if configuration.phase in (Phase.SERVING, Phase.TTFT) else CONCURRENCIES[:1]
        for concurrency in sweep:
            shares = [choices.random() for _ in range(7)]
            point = Point(float(concurrency), isl, osl, tuple(share / sum(shares) for share in shares))
            yield Run(f"{number:09d} {configuration.phase}", configuration, point, choices.gauss(0, 0.2), 0.02)
            number += 1
            if number == count:
                return


def store_of(count: int) -> EvidenceStore:
    store, runs, started = EvidenceStore.of(), generated_runs(count), time.perf_counter()
    while some := list(islice(runs, RUNS_AT_ONCE)):
        store = store.with_runs(some)
        print(f"\r{store.run_count:9,} runs after {time.perf_counter() - started:4.0f} s", end="", flush=True)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f", {len(store.cells):,} configurations, {memory:.2f} GB at most")
    return store


def shortest_s(*timed: Callable[[], object]) -> list[float]:
    """Of each, of several; they take turns, so that a busy machine is as busy for one as for the other."""
    took = [[] for _ in timed]  # type: list[list[float]]
    for _ in range(REPEATS):
        for each, times in zip(timed, took, strict=True):
            started = time.perf_counter()
            each()
            times.append(time.perf_counter() - started)
    return [min(times) for times in took]


def timings(stores: tuple[EvidenceStore, EvidenceStore]) -> dict[str, list[float]]:
    """Medians over questions like the stored runs: most are about what many runs are about."""
    choices = random.Random(7)  # noqa: S311 - the same questions every time
    asked = [replace(as_question(each), engine_version="9.9") for each in islice(configurations(choices), ASKED)]
    of_busy = [as_question(each) for each in islice(busy_release(choices), ASKED)]
    point = Point(32.0, 1024, 1024, (0.4, 0.1, 0.2, 0.1, 0.1, 0.05, 0.05))
    gc.collect()
    gc.freeze()

    def cold(store: EvidenceStore, question: Configuration) -> None:
        store._near.clear()
        store.refine(question, point)

    found: dict[str, list[list[float]]] = defaultdict(list)
    for number, (question, busy) in enumerate(zip(asked, of_busy, strict=True)):
        new = Run(f"new {number}", question, point, 0.1, 0.02)
        old = next(islice(generated_runs(ASKED), number, None)).id
        found["cold"].append(shortest_s(*(partial(cold, store, question) for store in stores)))
        found["cold, busy"].append(shortest_s(*(partial(cold, store, busy) for store in stores)))
        found["warm"].append(shortest_s(*(partial(store.refine, question, point) for store in stores)))
        found["adding a run"].append(shortest_s(*(partial(store.with_runs, [new]) for store in stores)))
        found["deleting one"].append(shortest_s(*(partial(store.without_runs, [old]) for store in stores)))
    return {name: [median(times) for times in zip(*pairs, strict=True)] for name, pairs in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    asked = parser.parse_args()
    found = timings((store_of(asked.small), store_of(asked.large)))
    for name, (small, large) in found.items():
        print(f"{name:14} {1e3 * small:8.3f} ms {1e3 * large:8.3f} ms   x{large / small:.2f}")
    print(f"bars: {1e3 * BAR_S:g} ms cold among {asked.small:,}, {BAR_RATIO:g} times as long among {asked.large:,}")
    cold = [found["cold"], found["cold, busy"]]
    raise SystemExit(0 if all(small <= BAR_S and large <= BAR_RATIO * small for small, large in cold) else 1)


if __name__ == "__main__":
    main()
