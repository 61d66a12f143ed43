"""The HTML that notebooks display."""

import re

import pytest

import forebay as fb
from forebay import col, fn


def test_a_pipeline_shows_its_plan_and_columns(photos):
    image = fn.resize(fn.decode_image(col("image")), 8, 8)
    page = fb.images(photos).select("label", pixels=image).batch(4)._repr_html_()
    assert "<svg" in page and "<b>pixels</b></td><td>u8[8, 8, 3]" in page


def test_a_pipeline_that_cannot_be_planned_shows_why():
    page = fb.read_csv("<missing>.csv").select("a")._repr_html_()
    assert page.startswith("<pre>read_csv(&#x27;&lt;missing&gt;.csv&#x27;)")
    assert "no file or folder" in page


def test_a_function_that_is_no_function_shows_why(table):
    page = fb.read_parquet(table).map_batches(fb.udf(len, reads=["id"], returns={"v": "no type"}))._repr_html_()
    assert page.startswith("<pre>read_parquet(") and "no type" in page


def test_a_batch_shows_its_images(photos, table):
    images = fb.images(photos).select("class", "image", pixels=fn.resize(fn.decode_image(col("image")), 200, 100))
    page = next(iter(images.batch(20)))._repr_html_()
    assert len(re.findall(r'<img src="data:image/png;base64,[A-Za-z0-9+/=]+"', page)) == 2 * 16
    assert "<td>cats</td>" in page and "16 of 20 rows" in page
    rows = next(iter(fb.read_parquet(table).select("id", "name", "gaps", "tokens", less=fb.lit("<"))))._repr_html_()
    assert "<td>row 3</td>" in rows and "<td>&lt;</td>" in rows and "<td>[0 1 2]</td>" in rows


def test_preview_computes_and_shows_a_few_rows(photos, tmp_path):
    pixels = fn.resize(fn.decode_image(col("image")), 8, 8)
    pipeline = fb.images(photos).select("label", pixels=pixels).shuffle(40, seed=2).batch(32).repeat()
    preview = pipeline.preview(3)
    assert preview.batch.row_keys == next(iter(pipeline)).row_keys[:3]
    assert preview._repr_html_().count("<img") == 3
    lines = repr(preview).splitlines()
    assert len(lines) == 1 + 3 + 1 and lines[0].split() == ["label", "pixels"]
    preview.save(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no rows"):
        fb.images(photos).filter("label > 7").preview()


def test_an_explanation_shows_as_it_is(table):
    explained = fb.read_parquet(table).explain()
    assert repr(explained) == str(explained)
    assert explained._repr_html_().startswith("<pre>Pipeline")
    assert fb.read_parquet(table).explain(format="svg")._repr_html_().startswith("<svg")
