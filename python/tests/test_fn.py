"""The functions of the catalogue as Python functions in `forebay.fn`."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import forebay as fb
from forebay import _forebay, col, fn

CATALOGUE = {entry["name"]: entry for entry in _forebay.catalogue()}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_function_is_documented_and_completes(name):
    entry, function = CATALOGUE[name], getattr(fn, name)
    assert name in dir(fn) and function is getattr(fn, name)
    document = inspect.getdoc(function)
    assert document.startswith(entry["summary"])
    parameters = inspect.signature(function).parameters
    for argument, text in entry["arguments"]:
        assert argument in parameters, f"{name}: {argument} is no parameter"
        assert f"{argument}: {text}" in document
    assert set(parameters) - {"stream"} == {argument for argument, _ in entry["arguments"]}
    assert ("stream" in parameters) == entry["random"]


def test_arguments_come_in_the_order_of_sql():
    image = col("image")
    assert repr(fn.rotate(image, 3, "bilinear", True)) == "rotate(col('image'), 3, 'bilinear', True)"
    crop = fn.random_resized_crop(image, width=4, height=2, filter="nearest", stream="s")
    assert repr(crop) == "random_resized_crop(col('image'), 2, 4, 'nearest', stream='s')"
    assert repr(fn.normalize(image, "imagenet")) == "normalize(col('image'), 'imagenet')"
    assert repr(fn.normalize(image, [0.5], std=[2])) == "normalize(col('image'), [0.5], [2.0])"


def test_wrong_calls_say_how_it_is_called():
    with pytest.raises(TypeError, match=r"resize: .*height.*; it is called as resize\(image, height, width"):
        fn.resize(col("image"))
    with pytest.raises(TypeError, match="rotate: expand also needs the argument filter .*'nearest' \\(default\\)"):
        fn.rotate(col("image"), 3, expand=True)
    with pytest.raises(TypeError, match=r"image is a column, found the text 'image'; write col\('image'\)"):
        fn.resize("image", 2, 2)
    with pytest.raises(AttributeError, match="did you mean resize?"):
        fn.resise
    with pytest.raises(AttributeError, match="lists all"):
        fn.xyz


def test_other_functions_of_sql_are_there(table):
    batch = next(iter(fb.read_parquet(table).take(1).select(v=fn.upper(col("name")))))
    assert batch["v"].numpy().tolist() == ["ROW 0"]


def test_declarations_are_up_to_date():
    script = Path(__file__).parent.parent / "typed_functions.py"
    made = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout
    kept = (Path(fb.__file__).parent / "fn.pyi").read_text()
    assert kept == made, "run `python typed_functions.py > forebay/fn.pyi` in the folder python"
