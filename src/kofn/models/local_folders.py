"""Local model folders and their PEFT adapters: how they are found, and weights loaded once per process and shared.

One base model is in memory once, with any number of adapters beside it. Who wants the base computes with the adapters
off, so that a frozen critic and the actor trained on it share their weights. Nothing is ever merged or downloaded.
"""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kofn.errors import InputError, WorldError, import_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = "adapter_config.json"
WEIGHTS = ("*.safetensors", "*.bin")
# Threads that wait in a loop take the core that another process needs: two of them fall from 90 tokens/s to about 1.
PATIENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_EDGE = 1 << 20  # bytes of a weight file's beginning and end that its fingerprint looks at


def load_torch() -> Any:
    """torch, with threads that sleep while they wait; where it is imported already, as it is."""
    for name, value in PATIENT.items():
        os.environ.setdefault(name, value)
    return _load("torch")


def load_transformers() -> Any:
    """transformers, after torch."""
    load_torch()
    return _load("transformers")


def _load(name: str) -> Any:
    return import_extra(name, "hf", "a model of the form hf:PATH")


@dataclass(frozen=True, slots=True)
class ModelFolders:
    """A model folder, and an adapter folder on top of it or none."""

    base: Path
    adapter: Path | None = None


def find_model_folders(spec: str) -> ModelFolders:
    """The folders of `BASE`, `BASE+ADAPTER` or `ADAPTER`, with `hf:` in front or not.

    An adapter alone names its base in adapter_config.json: a folder (absolute, or relative to here, to the adapter or
    to its run), or the name of a model that has been downloaded already.
    """
    path = spec.removeprefix("hf:")
    if not path:
        raise InputError("hf: names no model: expected hf:FOLDER, hf:BASE+ADAPTER or hf:ADAPTER")
    named, adapter = _split(path)
    if adapter:
        if not (_expand(adapter) / CONFIG).is_file():
            raise InputError(f"{adapter}: no {CONFIG} there: expected the folder of an adapter, as in hf:BASE+ADAPTER")
        return ModelFolders(_model_folder(named), _expand(adapter))
    folder = _expand(path)
    if not (folder / CONFIG).is_file():
        return ModelFolders(_model_folder(path))
    try:
        base = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        raise InputError(f"{folder / CONFIG}: is not a JSON object: save the adapter again") from None
    if not isinstance(base, str) or not base:
        raise InputError(f"{folder / CONFIG}: names no base model: give it, hf:BASE+{folder}")
    tried = (_expand(base), folder / base, folder.parent / base)
    found = next((p for p in tried if p.is_dir()), None) or _find_downloaded(base)
    if found is None:
        raise InputError(f"{folder}: its base model {base!r} is not here: give its folder, hf:BASE+{folder}")
    return ModelFolders(found, folder)


def base_of(spec: str) -> str:
    """What the base of a model is called: its frozen critic. A model without an adapter is its own.

    >>> base_of("llama+runs/adapter_500"), base_of("llama")
    ('llama', 'llama')
    """
    path = spec.removeprefix("hf:")
    named, adapter = _split(path)
    return str(find_model_folders(path).base) if not adapter and (_expand(path) / CONFIG).is_file() else named


def _split(path: str) -> tuple[str, str]:
    """BASE and ADAPTER of BASE+ADAPTER. The name of a folder may hold a plus sign itself."""
    if _expand(path).exists() or "+" not in path:
        return path, ""
    ways = [(path[:at], path[at + 1 :]) for at in (m.start() for m in re.finditer(r"\+", path))]
    return next((way for way in ways if (_expand(way[1]) / CONFIG).is_file()), ways[0])


def find_adapters(folder: Path | str) -> list[Path]:
    """The adapters of a training run (adapter_500, adapter_1000, ...) in the order of their numbers.

    An adapter folder itself is the only one of its list.
    """
    path = Path(folder).expanduser()
    if (path / CONFIG).is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such folder: expected a training run with adapter folders such as adapter_500")
    found = [config.parent for config in path.glob(f"*/{CONFIG}")]
    if not found:
        raise InputError(f"{path}: holds no adapter: expected folders such as adapter_500 with {CONFIG}")
    return sorted(found, key=lambda one: (int((re.findall(r"\d+", one.name) or [-1])[-1]), one.name))


def _expand(path: str) -> Path:
    return Path(path).expanduser()


def _model_folder(named: str) -> Path:
    """The folder of a model, which may be one that was downloaded before."""
    folder = _expand(named)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder}: holds no config.json: expected a model folder or an adapter folder")
        return folder
    if (found := _find_downloaded(named)) is not None:
        return found
    if _HUB_ID.fullmatch(named) and not named.startswith("."):
        raise InputError(f"hf:{named}: no such folder, and kofn downloads no model: first run `hf download {named}`")
    raise InputError(f"hf:{named}: no such folder: expected a model folder, BASE+ADAPTER or an adapter folder")


def _find_downloaded(named: str) -> Path | None:
    """Where a model of the hub lies on this machine already."""
    if not _HUB_ID.fullmatch(named):
        return None
    hub, errors = _load("huggingface_hub"), _load("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(named, local_files_only=True))
    except (OSError, ValueError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError):
        return None


def fingerprint(folder: Path) -> str:
    """Sixteen hex digits that change with a folder's weights or configuration.

    Of every weight file its name, size, first and last MiB are looked at, so that it takes no time for large models.
    """
    from hashlib import blake2b

    digest = blake2b(digest_size=8)
    weights = sorted({path for pattern in WEIGHTS for path in folder.glob(pattern)})
    for path in filter(Path.is_file, [folder / "config.json", folder / CONFIG, *weights]):
        size = path.stat().st_size
        digest.update(f"{path.name}\x00{size}\x00".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE))
            file.seek(max(0, size - _EDGE))
            digest.update(file.read(_EDGE))
    return digest.hexdigest()


def pick_device(requested: str | None) -> str:
    """The device to compute on: what was asked for, else a GPU where there is one."""
    torch = load_torch()
    if requested is None:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=requested)
    except (RuntimeError, AssertionError) as problem:
        raise InputError(f"device {requested!r} is not there: {_first_line(problem)}") from None
    return str(requested)


class LoadedBase:
    """One base model in memory, with adapters by name. `using` hands it out to one caller at a time."""

    def __init__(self, folder: Path, device: str, dtype: str | None) -> None:
        self.folder, self.device, self.dtype = folder, device, dtype
        self.lock = threading.RLock()
        self.model = _load_model(folder, device, dtype)
        self.users: dict[str, int] = {}  # adapter -> how many hold it
        self._names: dict[tuple[str, str], str] = {}  # folder and fingerprint -> adapter
        self._number = count()

    def attach(self, folder: Path) -> str:
        """Load an adapter, or find it loaded; the name to use it by."""
        with self.lock:
            key = (str(folder.resolve()), fingerprint(folder))
            if key not in self._names:
                self._names[key] = self._load_adapter(folder)
            name = self._names[key]
            self.users[name] = self.users.get(name, 0) + 1
            for idle in [one for one, users in self.users.items() if not users]:
                self.model.set_adapter(next(iter(set(self.users) - {idle})))  # peft warns if it deletes the active one
                self.model.delete_adapter(idle)
                del self.users[idle]
                self._names = {key: other for key, other in self._names.items() if other != idle}
            return name

    def detach(self, name: str) -> None:
        """One user fewer. An adapter without users is dropped when the next one is loaded."""
        with self.lock:
            self.users[name] -= 1

    @contextmanager
    def using(self, adapter: str | None) -> Iterator[Any]:
        """The model with this adapter on, or with all of them off."""
        with self.lock, load_torch().inference_mode():
            if adapter is not None:
                self.model.set_adapter(adapter)
            with self.model.disable_adapter() if adapter is None and self._names else nullcontext():
                yield self.model

    def _load_adapter(self, folder: Path) -> str:
        peft = _load("peft")
        # not the folder's own name: peft does not accept dots, and two folders may share a name
        name = f"{re.sub(r'[^a-zA-Z0-9]', '_', folder.resolve().name)}_{next(self._number)}"
        try:
            config = peft.PeftConfig.from_pretrained(str(folder), local_files_only=True)
        except Exception as problem:
            raise InputError(f"{folder / CONFIG}: cannot be read: {_first_line(problem)}") from None
        if config.is_prompt_learning:
            kind = config.peft_type.value
            raise InputError(f"{folder}: a {kind} adapter: only adapters of the weights (LoRA) are run")
        try:
            with _quiet_random(), warnings.catch_warnings():
                # an adapter of other layers would be on and do nothing
                warnings.filterwarnings("error", message="Found missing adapter keys")
                if self._names:
                    self.model.load_adapter(str(folder), adapter_name=name, is_trainable=False)
                else:
                    self.model = peft.PeftModel.from_pretrained(self.model, str(folder), adapter_name=name)
            self.model.eval()
        except Exception as problem:
            # take away what it has left in the model
            if not self._names:
                self.model = _load_model(self.folder, self.device, self.dtype)
            elif name in self.model.peft_config:
                self.model.delete_adapter(name)
            raise InputError(f"{folder}: does not fit the base {self.folder}: {_first_line(problem)}") from None
        return name


_BASES: WeakValueDictionary[tuple[str, str, str | None], LoadedBase] = WeakValueDictionary()
_LOADING = threading.Lock()


def load_base(folder: Path, device: str, dtype: str | None) -> LoadedBase:
    """The base model of a folder: loaded when it is first asked for, and let go with its last user."""
    key = (str(folder.resolve()), device, dtype)
    with _LOADING:
        if (base := _BASES.get(key)) is None:
            base = _BASES[key] = LoadedBase(folder, device, dtype)
        return base


class LocalWeights:
    """Weights on disk, loaded when they are first used."""

    def __init__(self, folders: ModelFolders, device: str, dtype: str | None) -> None:
        self.folders, self.device, self.dtype = folders, device, dtype
        self._base: LoadedBase | None = None
        self._adapter: str | None = None
        self._lock = threading.Lock()

    @contextmanager
    def using(self) -> Iterator[Any]:
        """The model, for one caller at a time."""
        with self._lock:
            if self._base is None:
                base = load_base(self.folders.base, self.device, self.dtype)
                self._adapter = base.attach(self.folders.adapter) if self.folders.adapter else None
                self._base = base
        with self._base.using(self._adapter) as model:
            yield model

    def describe(self) -> dict[str, Any]:
        """What was loaded, for a manifest."""
        description = {"base": str(self.folders.base), "base_fingerprint": fingerprint(self.folders.base)}
        if (adapter := self.folders.adapter) is not None:
            description |= {"adapter": str(adapter), "adapter_fingerprint": fingerprint(adapter)}
        return {**description, "device": self.device, "dtype": self.dtype}

    def close(self) -> None:
        """Let the weights go; others may go on with the same base."""
        with self._lock:
            if self._base is not None and self._adapter is not None:
                self._base.detach(self._adapter)
            self._base = self._adapter = None


def _load_model(folder: Path, device: str, dtype: str | None) -> Any:
    """A causal model for evaluation. On a CPU it computes in float32, elsewhere as it was saved."""
    torch, transformers = load_torch(), load_transformers()
    requested = dtype or ("float32" if device == "cpu" else "auto")
    if requested != "auto" and not isinstance(getattr(torch, requested, None), torch.dtype):
        raise InputError(f"dtype {requested!r}: expected float32, bfloat16, float16 or auto")
    try:
        with _quiet_random(), _no_bar(transformers):
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, dtype=requested
            )
        return model.to(device).eval()
    except torch.OutOfMemoryError:
        raise WorldError(f"{folder}: does not fit in the memory of {device}") from None
    except Exception as problem:
        raise InputError(f"{folder}: cannot be loaded: {_why(problem)}") from None


def load_tokenizer(folders: ModelFolders) -> Any:
    """The adapter's own tokenizer where it has one, else the base's."""
    transformers = load_transformers()
    own = folders.adapter is not None and (folders.adapter / "tokenizer_config.json").is_file()
    folder = folders.adapter if own else folders.base
    try:
        return transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as problem:
        why = _why(problem)
        raise InputError(f"{folder}: its tokenizer cannot be loaded (tokenizer.save_pretrained): {why}") from None


def _why(problem: Exception) -> str:
    if "trust_remote_code" in str(problem):
        return "it needs code of its own, which kofn does not run"
    return _first_line(problem)


def _first_line(problem: BaseException) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)[:300]


@contextmanager
def _quiet_random() -> Iterator[None]:
    """Restore the random state afterwards: loading draws random numbers, and a training loop here must not notice."""
    torch = load_torch()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        yield


@contextmanager
def _no_bar(transformers: Any) -> Iterator[None]:
    logging = transformers.utils.logging
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
