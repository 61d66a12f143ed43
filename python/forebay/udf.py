"""Python functions in pipelines.

    @fb.udf(reads=["pixels"], returns={"score": "float32"}, deterministic=True, cost=200)
    def sharpness(pixels):                        # a NumPy array [rows, H, W, C]
        return pixels.astype("float32").var(axis=(1, 2, 3))

    pipeline.map_batches(sharpness)               # adds the column "score"
    pipeline.select(s=sharpness(col("crop")))     # or an expression

The function's value for a row must depend only on the arguments in that row, since Forebay chooses which rows it passes
to the function together.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, cast, overload

from . import _by_value, _forebay, _worker
from ._declare import check_plain, found, type_of
from ._evaluate import Evaluator
from .errors import ConfigError, PlanError
from .expr import Expr, IntoExpr, col, node_of, sql_expr

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

    from .pipeline import Pipeline

__all__ = ["Udf", "UdfClass", "udf"]

#: Positional and keyword arguments with which a decorated class is instantiated.
Setup = tuple[tuple[Any, ...], dict[str, Any]]


class _Decorator(Protocol):
    """The type of the decorator that `udf` returns if `udf` is called without a function."""

    @overload
    def __call__(self, target: type[Any], /) -> UdfClass: ...

    @overload
    def __call__(self, target: Callable[..., Any], /) -> Udf: ...


class UdfOptions(TypedDict, total=False):
    """The options of `udf`. The docstring of `udf` describes them."""

    returns: Required[Any]
    reads: Sequence[str] | None
    mode: Literal["numpy", "arrow", "rows"]
    deterministic: bool | None
    cost: float | None
    concurrency: int | None
    batch_size: int | None
    version: int
    name: str | None


@overload
def udf(function: None = None, **options: Unpack[UdfOptions]) -> _Decorator: ...


@overload
def udf(function: type[Any], **options: Unpack[UdfOptions]) -> UdfClass: ...


@overload
def udf(function: Callable[..., Any], **options: Unpack[UdfOptions]) -> Udf: ...


def udf(
    function: Callable[..., Any] | None = None,
    *,
    returns: Any,
    reads: Sequence[str] | None = None,
    mode: Literal["numpy", "arrow", "rows"] = "numpy",
    deterministic: bool | None = None,
    cost: float | None = None,
    concurrency: int | None = None,
    batch_size: int | None = None,
    version: int = 1,
    name: str | None = None,
) -> Any:
    """Makes a pipeline function from a Python function or a class.

    If a class is decorated, `Tokenise("gpt2")` makes a pipeline function. Each process instantiates the class once with
    these arguments, and calls the object. Use a class for models and tokenisers.

    Args:
        function: The function or class; without it, `udf` returns a decorator.
        returns: Names and types of the returned columns, as in `{"score": "float32"}`, or the type of a single column
            with the function's name. A type is a name (`"int64"`, `"str"`, `"list<int32>"`,
            `"tensor<float32>[3,224,224]"`), a NumPy dtype, or an Arrow type. The function returns several columns as a
            dictionary, or as a tuple in the order of `returns`.
        reads: The columns that `map_batches` passes to the function, in the order of its arguments.
        mode: The form of the arguments. `"numpy"`: NumPy arrays with one element per row (read-only views, masked if
            there are nulls). `"arrow"`: PyArrow arrays, or `forebay.Column` objects if PyArrow is not installed.
            `"rows"`: the function is called for each row, with Python values.
        deterministic: True if equal arguments always give equal values. Only then may the optimiser move calls and
            cache their values. By default, the function counts as volatile.
        cost: Approximate microseconds per row on one core. The optimiser needs this to run filters before expensive
            functions.
        concurrency: Number of worker processes that call the function. By default, this process calls the function, and
            holds the GIL meanwhile.
        batch_size: Maximum number of rows per call.
        version: A number to raise when the function's meaning changes. The stream's identity includes this number, the
            function's name, and the arguments of a class, but not the code.
        name: The function's name in plans and errors; by default, `module.function`.
    """
    if mode not in ("numpy", "arrow", "rows"):
        raise ValueError(f'mode must be "numpy", "arrow" or "rows", found {mode!r}')
    for what, number, least in (("concurrency", concurrency, 0), ("batch_size", batch_size, 1), ("version", version, 0)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
            raise ValueError(f"{what} must be a whole number of at least {least}, found {number!r}")
    if cost is not None and not cost >= 0:
        raise ValueError(f"cost must be a number of microseconds of at least 0, found {cost!r}")
    if isinstance(reads, str):
        raise TypeError(f"reads must be a list of columns, found {reads!r}")
    options = {
        "returns": dict(returns) if isinstance(returns, Mapping) else returns,
        "reads": None if reads is None else tuple(reads),
        "mode": mode,
        "deterministic": deterministic,
        "cost": cost,
        "concurrency": concurrency or None,
        "batch_size": batch_size,
        "version": version,
        "name": name,
    }
    if options["returns"] == {}:
        raise ValueError("returns must have at least one column")

    def made(target: Callable[..., Any]) -> Udf | UdfClass:
        if not callable(target):
            raise TypeError(f"expected a function or a class, found {target!r}")
        return UdfClass(target, options) if isinstance(target, type) else Udf(target, options)

    return made if function is None else made(function)


class _Named:
    """The object with which the decorator replaces a function or class. It is pickled by the name of its module and its
    own name in that module, where possible."""

    __name__: str
    __qualname__: str
    __module__: str

    def __init__(self, target: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(cast(Any, self), target, updated=())
        self._target = target
        self._options = options

    def __reduce__(self) -> Any:
        if found(self.__module__, self.__qualname__) is self:
            return self.__qualname__
        if found(self.__module__, self.__qualname__) is self._target:
            return type(self), (self._target, self._options)
        try:
            return _uncloud, (_by_value.dumps((type(self), self._target, self._options)),)
        except ImportError:
            raise pickle.PicklingError(
                f"{self.__module__}.{self.__qualname__} cannot be pickled, since its module does not have it under "
                "this name; define it at the top of a module, or install cloudpickle"
            ) from None


class UdfClass(_Named):
    """A class decorated with `udf`. Calling a `UdfClass` with the arguments of the class returns a `Udf`."""

    def __call__(self, *args: Any, **named: Any) -> Udf:
        """Makes a pipeline function that calls an object of the class. Each process constructs the object with these
        arguments, which must be plain values, since they are part of the stream's identity."""
        for value in (*args, *named.values()):
            check_plain(value)
        wrong = _misfit(self._target, args, named)
        if wrong is not None:
            raise TypeError(f"the set-up of {self.__module__}.{self.__qualname__}: {wrong}")
        return Udf(self._target, self._options, (args, named), self)


class Udf(_Named):
    """A Python function for use in pipelines. Calling a `Udf` with expressions returns an expression."""

    def __init__(
        self,
        target: Callable[..., Any],
        options: dict[str, Any],
        setup: Setup | None = None,
        maker: UdfClass | None = None,
    ) -> None:
        super().__init__(target, options)
        self._setup = setup
        self._maker = maker
        self._own: tuple[int, _forebay.Function] | None = None

    @property
    def name(self) -> str:
        """The function's name in plans and errors. For a class, the name includes the arguments."""
        module = "__main__" if self.__module__ == "__mp_main__" else self.__module__
        name: str = self._options["name"] or f"{module}.{self.__qualname__}"
        if self._setup is None:
            return name
        args, named = self._setup
        return f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in sorted(named.items()))])})"

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The columns that `map_batches` passes to the function; None if the function does not declare them."""
        reads: tuple[str, ...] | None = self._options["reads"]
        return reads

    def __call__(self, *arguments: IntoExpr) -> Expr:
        """The expression that calls the function with `arguments`; without arguments, with the columns of `reads=`."""
        nodes = arguments or tuple(map(col, self.reads or ()))
        if self.reads is None or len(self.reads) == len(nodes):
            self._check_arguments(len(nodes))
        return Expr(("udf", self, tuple(map(node_of, nodes))))

    def __reduce__(self) -> Any:
        return super().__reduce__() if self._setup is None else (_configured, (self._maker, *self._setup))

    def __repr__(self) -> str:
        return f"<udf {self.name}>"

    def _check_arguments(self, count: int) -> None:
        """Raises an error if the function cannot be called with `count` arguments. This is a mistake in the pipeline,
        rather than a failure of rows."""
        target: Any = self._target
        places: tuple[None, ...] = (None,) * count
        if self._setup is not None:
            target = inspect.getattr_static(target, "__call__")
            if isinstance(target, types.FunctionType):
                places = (None, *places)
            elif isinstance(target, classmethod):
                target, places = target.__func__, (None, *places)
            elif isinstance(target, staticmethod):
                target = target.__func__
            else:
                # Other kinds of callables have no signature to check. A missing `__call__` is reported after the object
                # is constructed.
                return
        wrong = _misfit(target, places, {})
        if wrong is not None:
            raise PlanError(
                f"{self.name} cannot be called with {count} column(s): {wrong}; give it as many columns as it has "
                "arguments, with reads=[..] or in the call"
            )

    def _columns(self) -> dict[str, Any]:
        returns = self._options["returns"]
        return returns if isinstance(returns, dict) else {self.__name__: returns}

    def _is_struct(self) -> bool:
        return len(self._columns()) > 1

    def _function(self, serving: bool = False) -> _forebay.Function:
        """Returns the function of the extension module for this process. `serving` is true in a worker process, which
        calls the Python function itself."""
        if self._own is None or self._own[0] != os.getpid():
            self._own = (os.getpid(), self._make(serving))
        return self._own[1]

    def _make(self, serving: bool) -> _forebay.Function:
        options = self._options
        workers = None
        if options["concurrency"] is not None and not serving:
            if _worker.SETTING_UP:
                raise RuntimeError(
                    "a worker process that imports the main module must not run the module's pipelines; put the code "
                    'that runs them under: if __name__ == "__main__":'
                )
            workers = (options["concurrency"], _worker.command(), self._packed())
        function = _forebay.Function(
            self.name,
            options["version"],
            bool(options["deterministic"]),
            None if options["cost"] is None else round(options["cost"] * 1000),
            None if self.reads is None else len(self.reads),
            [(name, type_of(kind)) for name, kind in self._columns().items()],
            self._is_struct(),
            options["batch_size"],
            workers,
            # Not a method, which would keep this object alive.
            functools.partial(_for_workers, self._target, self._options, self._setup),
        )
        kinds = function.kinds()
        function.serve(Evaluator(self._target, self._setup, options["mode"], kinds, self._is_struct()))
        return function

    def _packed(self) -> bytes:
        """Returns the pickled function, to be sent to worker processes."""
        if self.__module__ not in ("__main__", "__mp_main__"):
            return pickle.dumps((None, pickle.dumps(self)))
        try:
            # The code of the function is included, so no worker has to import the main module.
            return pickle.dumps((None, _by_value.dumps((Udf, self._target, self._options, self._setup))))
        except ImportError:
            # Each worker imports the main module under another name, as workers of `multiprocessing` do.
            from multiprocessing.spawn import get_preparation_data

            keys = ("init_main_from_name", "init_main_from_path", "sys_argv", "dir")
            known = get_preparation_data("forebay")
            main = {key: known[key] for key in keys if key in known}
            if not main.keys() & {"init_main_from_name", "init_main_from_path"}:
                raise ConfigError(
                    f"{self.name} is defined in a notebook or at an interpreter's prompt, which its worker processes "
                    "cannot import; pip install cloudpickle, or define the function in a module"
                ) from None
            return pickle.dumps((main, pickle.dumps(self)))


def _for_workers(target: Any, options: dict[str, Any], setup: Any) -> tuple[str, str, bytes]:
    """Returns the versions of Python and cloudpickle that a pickled function needs, and the pickled function, to be sent
    to the workers of a cluster."""
    try:
        versions = _by_value.versions()
    except ImportError:
        raise ConfigError("cloudpickle is not installed; pip install cloudpickle") from None
    packed = _by_value.dumps_for_workers((Udf, target, options, setup))
    return (*versions, pickle.dumps((None, packed)))


def unpacked(packed: tuple[dict[str, Any] | None, bytes]) -> _forebay.Function:
    """Unpickles a function in a worker process, and instantiates its class if it has one."""
    main, data = packed
    if main is not None:
        from multiprocessing.spawn import prepare

        prepare(main)
    made = pickle.loads(data)
    function: Udf = made[0](*made[1:]) if isinstance(made, tuple) else made
    serving = function._function(serving=True)
    serving.ready()
    return serving


def mapped(pipeline: Pipeline, function: Udf | UdfClass) -> Pipeline:
    """Returns the pipeline with the columns that `function` returns added."""
    if isinstance(function, UdfClass):
        function = function()
    if not isinstance(function, Udf):
        raise TypeError(f"map_batches expects a function decorated with forebay.udf, found {function!r}")
    if function.reads is None:
        raise TypeError(f"{function.name} does not declare the columns that it reads: use udf(reads=[..])")
    names = list(function._columns())
    if not function._is_struct():
        return pipeline.with_column(names[0], function())
    # One call of the function computes a struct in a temporary column, and each returned column is a field of this
    # struct.
    whole = f"{function.name}()"
    pipeline = pipeline.with_column(whole, function())
    for name in names:
        pipeline = pipeline.with_column(name, col(whole)[name])
    quoted = whole.replace('"', '""')
    return pipeline.select(sql_expr(f'* EXCLUDE ("{quoted}")'))


def _misfit(target: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """Returns an error message if the number or the names of the arguments do not fit the signature of `target`; None
    if they fit or the signature is unknown."""
    try:
        # The wrapper that a decorator returns may have other parameters than the function that it wraps, and the
        # wrapper is called.
        signature = inspect.signature(target, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        return str(error)
    return None


def _configured(maker: UdfClass, args: tuple[Any, ...], named: dict[str, Any]) -> Udf:
    return maker(*args, **named)


def _uncloud(packed: bytes) -> Any:
    kind, *parts = pickle.loads(packed)
    return kind(*parts)
