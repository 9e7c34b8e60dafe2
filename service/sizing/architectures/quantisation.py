"""Reads ``quantization_config``: the scheme in which each tensor of the checkpoint is stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from service.errors import ConfigInvalid
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.module_patterns import ModulePatterns
from service.sizing.gguf import MIXTURES
from service.sizing.language_model import Component, WeightTensor
from service.sizing.precision import Precision
from service.sizing.weight_schemes import REST_SCHEME

ELEMENT_PRECISIONS: Final = {
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "half": Precision.FP16,
    "float32": Precision.FP32,
    "float": Precision.FP32,
}

# "expert_dtype" of DeepSeek-V4, whose routed experts alone are narrower than the rest.
EXPERT_SCHEMES: Final[Mapping[str, str | None]] = {"as the rest": None, "fp4": "mxfp4", "fp8": None}
FOUR_BIT_GROUPS: Final[Mapping[int, str]] = {128: "", 64: "-g64", 32: "-g32", -1: "-channel"}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """``scheme`` for every quantisable tensor, except what ``ignored`` names and ``overrides`` say of some.

    ``covers_heads``: methods that quantise every linear layer reach heads too, unless they are ignored by name.
    Routers they do not reach: published lists ignore them or, as of Kimi-K2, they are no linear layers.
    ``experts_scheme`` is for routed experts where the file gives them a format of their own.
    """

    scheme: str
    ignored: ModulePatterns
    overrides: tuple[tuple[ModulePatterns, str], ...] = ()
    only_overrides: bool = False
    experts_only: bool = False
    covers_heads: bool = False
    kv_cache: Precision | None = None
    experts_scheme: str | None = None

    def scheme_of(self, module: str, component: Component) -> str:
        if self.ignored.names(module):
            return REST_SCHEME
        override = next((scheme for patterns, scheme in self.overrides if patterns.names(module)), None)
        if override is None and component is Component.EXPERTS and self.experts_scheme is not None:
            return self.experts_scheme
        return override or (REST_SCHEME if self.only_overrides else self.scheme)

    @property
    def distinguishes_experts(self) -> bool:
        return self.ignored.distinguishes_experts or any(each.distinguishes_experts for each, _ in self.overrides)

    @property
    def expression_count(self) -> int:
        return self.ignored.expression_count + sum(each.expression_count for each, _ in self.overrides)

    def reaches(self, tensor: WeightTensor) -> bool:
        if self.experts_only and tensor.component is not Component.EXPERTS:
            return False
        is_head = tensor.component is Component.LM_HEAD and len(tensor.shape) == 2
        return tensor.quantisable or (self.covers_heads and is_head)


def read_quantisation(config: ConfigReader) -> Quantisation | None:
    """``None`` for a checkpoint in a plain format; an unknown method is refused by name."""
    section = config.optional_section("quantization_config") or config.optional_section("compression_config")
    if section is None:
        return None
    method = section.text("quant_method")
    if method not in METHODS:
        raise section.refuse("quant_method", f"is {method[:60]!r}; known are {', '.join(METHODS)}")
    quantisation = METHODS[method](section)
    experts = section if section.has("expert_dtype") else config
    return replace(quantisation, experts_scheme=experts.choice(EXPERT_SCHEMES, "expert_dtype", default="as the rest"))


def _ignored(section: ConfigReader, *names: str) -> ModulePatterns:
    name = next((name for name in names if section.has(name)), names[0])
    return ModulePatterns(section.texts(name) or (), key=section.key(name))


def _grouped(section: ConfigReader, base: str, group_name: str = "group_size") -> str:
    group = section.count(group_name, default=128, minimum=-1)
    if group not in FOUR_BIT_GROUPS:
        raise section.refuse(group_name, f"is {group}; known are {', '.join(map(str, FOUR_BIT_GROUPS))}")
    return base + FOUR_BIT_GROUPS[group]


def _awq(section: ConfigReader) -> Quantisation:
    bits = section.count("bits", "w_bit", default=4)
    if bits != 4:
        raise section.refuse("bits", f"is {bits}; AWQ checkpoints are known in 4 bits")
    return Quantisation(_grouped(section, "awq-int4"), _ignored(section, "modules_to_not_convert"))


def _gptq(section: ConfigReader) -> Quantisation:
    bits = section.count("bits", default=4)
    if section.has("dynamic"):
        raise section.refuse("dynamic", "changes the scheme module by module, which is not read for GPTQ")
    if bits == 8 and section.count("group_size", default=128, minimum=-1) == 128:
        scheme = "gptq-int8"
    elif bits == 4:
        scheme = _grouped(section, "gptq-int4")
    else:
        raise section.refuse("bits", f"is {bits}; known are 4, and 8 in groups of 128")
    covers_heads = section.flag("lm_head", default=False)
    return Quantisation(scheme, _ignored(section, "modules_to_not_convert"), covers_heads=covers_heads)


def _fp8(section: ConfigReader) -> Quantisation:
    ignored = _ignored(section, "modules_to_not_convert", "ignored_layers")
    block = section.counts("weight_block_size")
    if block is None:
        return Quantisation("fp8-tensor", ignored)
    if block != (128, 128):
        raise section.refuse("weight_block_size", f"is {list(block)[:4]}; known is [128, 128]")
    return Quantisation("fp8-block", ignored)


def _fbgemm_fp8(section: ConfigReader) -> Quantisation:
    return Quantisation("fp8", _ignored(section, "modules_to_not_convert"))


def _mxfp4(section: ConfigReader) -> Quantisation:
    """As published for gpt-oss: the routed experts alone, whatever else the list leaves open."""
    return Quantisation("mxfp4", _ignored(section, "modules_to_not_convert"), experts_only=True)


def _gguf(section: ConfigReader) -> Quantisation:
    """A GGUF file, whose mixture decides the format of every tensor."""
    scheme = f"gguf-{section.text('mixture').lower()}"
    if scheme not in MIXTURES:
        known = ", ".join(mixture.removeprefix("gguf-") for mixture in MIXTURES)
        raise section.refuse("mixture", f"is not known; known are {known}")
    return Quantisation(scheme, ModulePatterns((), key=section.key("mixture")))


MODELOPT_ALGORITHMS: Final = {
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "w4a16-nvfp4",
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8-block",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A16_AWQ": "awq-int4",
}


def _modelopt(section: ConfigReader) -> Quantisation:
    """NVIDIA ModelOpt, whose facts may lie one level deeper; ``MIXED_PRECISION`` names a scheme per module."""
    facts = section.optional_section("quantization") or section
    ignored = _ignored(facts, "exclude_modules", "ignore")
    kv_cache = _kv_cache(facts)
    algorithm = facts.text("quant_algo")
    if algorithm != "MIXED_PRECISION":
        return Quantisation(_modelopt_scheme(facts, algorithm), ignored, kv_cache=kv_cache)
    layers = facts.section("quantized_layers")
    by_scheme: dict[str, list[str]] = {}
    for module in layers.names():
        entry = layers.section(module)
        by_scheme.setdefault(_modelopt_scheme(entry, entry.text("quant_algo")), []).append(module)
    if not by_scheme:
        raise facts.refuse("quantized_layers", "names no module")
    key = facts.key("quantized_layers")
    overrides = tuple((ModulePatterns(modules, key=key), scheme) for scheme, modules in by_scheme.items())
    main = max(by_scheme, key=lambda scheme: len(by_scheme[scheme]))
    return Quantisation(main, ignored, overrides, only_overrides=True, kv_cache=kv_cache)


def _modelopt_scheme(section: ConfigReader, algorithm: str) -> str:
    if algorithm not in MODELOPT_ALGORITHMS:
        known = ", ".join(MODELOPT_ALGORITHMS)
        raise section.refuse("quant_algo", f"is {algorithm[:60]!r}; known are {known} and MIXED_PRECISION")
    return MODELOPT_ALGORITHMS[algorithm]


def _kv_cache(section: ConfigReader) -> Precision | None:
    """The precision that the checkpoint asks of the cache."""
    algorithm = section.text("kv_cache_quant_algo", default="")
    if not algorithm and section.has("kv_cache_scheme"):
        scheme = section.section("kv_cache_scheme")
        algorithm = "FP8" if (scheme.count("num_bits"), scheme.text("type")) == (8, "float") else "another"
    known = {"": None, "FP8": Precision.FP8, "INT8": Precision.INT8, "NVFP4": Precision.NVFP4}
    if algorithm not in known:
        raise section.refuse("kv_cache_scheme", "asks for a cache precision that is not known: FP8, INT8 or NVFP4")
    return known[algorithm]


def _compressed_tensors(section: ConfigReader) -> Quantisation:
    """Groups of targets, each with a description of its weights; ``Linear`` means every linear layer."""
    groups = section.section("config_groups")
    default: str | None = None
    overrides: list[tuple[ModulePatterns, str]] = []
    for name in groups.names():
        group = groups.section(name)
        scheme = _compressed_scheme(group)
        targets = group.texts("targets") or ("Linear",)
        if "Linear" in targets:
            default = scheme
        else:
            overrides.append((ModulePatterns(targets, key=group.key("targets")), scheme))
    if default is None and not overrides:
        raise section.refuse("config_groups", "holds no group")
    return Quantisation(
        default or overrides[0][1],
        _ignored(section, "ignore"),
        tuple(overrides),
        only_overrides=default is None,
        covers_heads=True,
        kv_cache=_kv_cache(section),
    )


def _compressed_scheme(group: ConfigReader) -> str:
    weights = group.section("weights")
    kind, bits = weights.text("type", default="int"), weights.count("num_bits")
    strategy = weights.text("strategy", default="tensor")
    group_size = weights.optional_count("group_size", minimum=-1)
    activations = group.optional_section("input_activations")
    if (kind, bits) == ("float", 8):
        block = weights.counts("block_structure")
        if strategy == "block" and block not in (None, (128, 128)):
            raise weights.refuse("block_structure", f"is {list(block or ())[:4]}; known is [128, 128]")
        schemes = {"channel": "fp8", "tensor": "fp8-tensor", "block": "fp8-block"}
    elif (kind, bits) == ("float", 4):
        schemes = {"tensor_group": "nvfp4", "group": "mxfp4" if group_size == 32 else "nvfp4"}
    elif (kind, bits) == ("int", 8) and group_size in (None, -1):
        schemes = {"channel": "w8a16" if activations is None else "int8"}
    elif (kind, bits) == ("int", 4) and (activations is None or activations.count("num_bits") == 16):
        base = "w4a16" if weights.flag("symmetric", default=True) else "awq-int4"
        schemes = {"group": _grouped(weights, base) if strategy == "group" else base, "channel": f"{base}-channel"}
    else:
        schemes = {}
    if strategy not in schemes:
        raise weights.refuse("strategy", f"{strategy[:40]!r} of {bits}-bit {kind[:20]!r} weights is not a known scheme")
    return schemes[strategy]


METHODS: Final[Mapping[str, Callable[[ConfigReader], Quantisation]]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm_fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
    "gguf": _gguf,
}


def read_element_precision(config: ConfigReader) -> Precision:
    """Of the tensors that are not quantised; a file that says none is taken for the usual BF16."""
    name = config.text("torch_dtype", "dtype", default="bfloat16").removeprefix("torch.")
    if name not in ELEMENT_PRECISIONS:
        key = "torch_dtype" if config.has("torch_dtype") else "dtype"
        raise ConfigInvalid(f"{key} is {name[:40]!r}; known are {', '.join(ELEMENT_PRECISIONS)}", key=key)
    return ELEMENT_PRECISIONS[name]
