"""CSV tables: columns, labels, and errors that name lines and columns."""

import re

import numpy as np
import pytest

from deepsimplex import datasets


def write(path, header: str, row, rows: int = 12, encoding: str = "utf-8") -> None:
    """A table whose lines are made by ``row(i, i % 3)``."""
    lines = [header, *(row(i, i % 3) for i in range(rows))]
    path.write_bytes("".join(f"{line}\r\n" for line in lines).encode(encoding))


def load(path, target: str | int = "y"):
    """All samples, in the order of their first column, and the names of their classes."""
    data = datasets.load(path, target_column=target)
    x, y = np.concatenate([data.x, data.x_test]), np.concatenate([data.y, data.y_test])
    order = np.argsort(x[:, 0])
    return x[order], [data.class_names[k] for k in y[order]], data.class_names


def test_table_with_named_labels(tmp_path):
    rows = [f"{i}.5,{'dog' if i % 2 else 'cat'},{-i}e-1" for i in range(10)]
    (tmp_path / "a.csv").write_text("\ufefflength, kind ,mass\n" + "\n".join(rows) + "\n", encoding="utf-8")
    data = datasets.load(tmp_path / "a.csv", target_column="kind")
    assert data.class_names == ("cat", "dog")
    x, y = np.concatenate([data.x, data.x_test]), np.concatenate([data.y, data.y_test])
    order = np.argsort(x[:, 0])
    np.testing.assert_allclose(x[order], [[i + 0.5, -0.1 * i] for i in range(10)], rtol=1e-6)
    np.testing.assert_array_equal(y[order], np.arange(10) % 2)
    assert len(data.x_test) == 2


def test_table_with_numbered_labels(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(30)))
    data = datasets.load(tmp_path / "a.csv", target_column="y")
    assert data.class_names == ("0", "1", "2")
    np.testing.assert_array_equal(data.x[:, 0] % 3, data.y)


def test_codes_of_digits_are_names(tmp_path):
    (tmp_path / "a.csv").write_text("a,y\n" + "".join(f"{i},{('01', '1', '63')[i % 3]}\n" for i in range(30)))
    assert datasets.load(tmp_path / "a.csv", target_column="y").class_names == ("01", "1", "63")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("a,y", lambda i, k: f"{i}.5,{k}"),
        ("a;y", lambda i, k: f"{i}.5;{k}"),
        ("a\ty", lambda i, k: f"{i}.5\t{k}"),
        ("\ufeffy,a", lambda i, k: f"{k},{i}.5"),
        ('"a","y"', lambda i, k: f'"{i}.5","{k}"'),
        ('"length; cm";y', lambda i, k: f'"{i}.5";"{k}"'),
        ('"length, cm";"y"', lambda i, k: f'"{i}.5";"{k}"'),
        (" a , y ", lambda i, k: f" {i}.5e0 , {k} "),
    ],
    ids=["comma", "semicolon", "tab", "byte order mark", "quotes", "semicolon in a name", "comma in a name", "spaces"],
)
def test_separators_and_quotes_are_recognized(header, row, tmp_path):
    write(tmp_path / "a.csv", header, row)
    x, labels, _ = load(tmp_path / "a.csv")
    np.testing.assert_array_equal(x, np.arange(12)[:, None] + 0.5)
    assert labels == [str(i % 3) for i in range(12)]


@pytest.mark.parametrize(
    ("column", "index"),
    [
        ("", lambda i: i),
        ("", lambda i: 100 - 7 * i),  # the index of shuffled rows
        ("Unnamed: 0", lambda i: i),
        ("Unnamed: 0.1", lambda i: i),
        ("index", lambda i: i),
        ("ID", lambda i: i + 1),
    ],
)
def test_column_that_numbers_the_rows_is_left_out_with_a_warning(column, index, tmp_path):
    write(tmp_path / "a.csv", f"{column},a,y", lambda i, k: f"{index(i)},{i}.5,{k}")
    with pytest.warns(UserWarning, match=f"left out, as they number.*{column or 'number 1'}.*index=False") as caught:
        x, *_ = load(tmp_path / "a.csv")
    np.testing.assert_array_equal(x, np.arange(12)[:, None] + 0.5)
    assert [warning.filename for warning in caught] == [__file__]


def test_columns_with_names_are_read(tmp_path):
    write(tmp_path / "a.csv", "a,index,b", lambda i, k: f"{i},{k},{'True' if k else 'false'}")
    x, labels, _ = load(tmp_path / "a.csv", "index")
    np.testing.assert_array_equal(x, [[i, i % 3 > 0] for i in range(12)])
    assert labels == [str(i % 3) for i in range(12)]
    write(tmp_path / "a.csv", "0,id,2", lambda i, k: f"{i},{k + 3},{k}")  # an id that does not count the rows
    x, _, names = load(tmp_path / "a.csv", 2)
    assert x.shape == (12, 2)
    assert names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([1, 2, 3], ("1", "2", "3")),
        (["1.0", "2.0", "3.0"], ("1", "2", "3")),
        (["1", "2.0", "3"], ("1", "2", "3")),
        ([10, 9, 8], ("8", "9", "10")),
        ([-1, 0, 1], ("-1", "0", "1")),
        ([0.5, 10.5, 2], ("0.5", "2", "10.5")),
        (["False", "True", "True"], ("False", "True")),
        (["one", "2", "3"], ("2", "3", "one")),
        (["1_0", "1_1", "1_2"], ("1_0", "1_1", "1_2")),
        (['"a, b"', "None", "inf"], ("None", "a, b", "inf")),
        ([10**30, 1, 2], ("1", "2", str(10**30))),
    ],
)
def test_labels_are_names_of_classes(labels, names, tmp_path):
    write(tmp_path / "a.csv", "a,y", lambda i, k: f"{i},{labels[k]}")
    _, read, class_names = load(tmp_path / "a.csv")
    assert class_names == names
    text = [str(label).strip('"') for label in labels]
    assert [float(label) if label[0].isdigit() and "_" not in label else label for label in read[:3]] == [
        float(label) if label[0].isdigit() and "_" not in label else label for label in text
    ]


@pytest.mark.parametrize("missing", ["", "NaN", "NA", "n/a", "<NA>", "null", "?"])
def test_missing_labels_raise_with_all_their_lines(missing, tmp_path):
    write(tmp_path / "a.csv", "a,y", lambda i, k: f"{i},{missing if i in (2, 7) else k}")
    found = re.escape(repr(missing))
    with pytest.raises(
        ValueError, match=rf"column 'y' of .* must name a class in every line; found {found} in line 4, 9"
    ):
        load(tmp_path / "a.csv")


def test_single_sample_of_a_class_raises_with_its_name(tmp_path):
    write(tmp_path / "a.csv", "a,y", lambda i, k: f"{i},{k + i / 10}")
    with pytest.raises(ValueError, match=r"must have at least 2 samples; 12 of 12 classes have one, the first is '0'"):
        load(tmp_path / "a.csv")


def test_column_beyond_single_precision_warns(tmp_path):
    write(tmp_path / "a.csv", "a,time,y", lambda i, k: f"{i},{1.7e9 + 60 * i},{k}")
    with pytest.warns(
        UserWarning, match=r"rounds values of columns \[1\] to steps .*, 128 of \d+ in column 1"
    ) as caught:
        load(tmp_path / "a.csv")
    assert len(caught) == 1
    write(tmp_path / "a.csv", "a,constant,y", lambda i, k: f"{1e9 * i},1700000000,{k}")
    assert load(tmp_path / "a.csv")[0].shape == (12, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a,b,y\n1,2,0\n1,red,1\n",
            r"every column .* must hold finite numbers; found 'red' in line 3 of column 'b'",
        ),
        ("a,b,y\n1,nan,0\n", "found 'nan' in line 2 of column 'b'"),
        (
            "a,b,y\n1,,0\n,2,0\nx,2,1\n",
            "found '' in line 3 and 1 other lines of column 'a', '' in line 2 of",
        ),
        ("a,b,y\n1,1e39,0\n", "found '1e39' in line 2 of column 'b'"),
        ("a,b,y\n1,1_0,0\n", "found '1_0' in line 2 of column 'b'"),
        (
            "a;b;y\n1;2,5;0\n",
            "found '2,5' in line 2 of column 'b'; write decimals with a point: it has a decimal comma",
        ),
        ("a,b,y\n\n1,2\n1,2,3,4\n", r"every line of .* must have 3 values, as the header; found 2 in line 3, 4"),
        ("a,b,c\n1,2,3\n", r"target_column must.*found 'y'"),
        ("a,a,y\n1,2,3\n", "header of at least two different columns"),
        ("a,y,y\n1,2,3\n", "header of at least two different columns"),
        (",y\n0,2\n", "header of at least two different columns"),
        ("y\n2\n", "header of at least two different columns"),
        ("", "header of at least two different columns"),
        ("a,b,y\n", "must hold rows under its header"),
    ],
)
def test_invalid_table_raises(tmp_path, content, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        datasets.load(tmp_path / "a.csv", target_column="y")


def test_table_in_another_encoding_raises(tmp_path):
    for encoding in ("latin-1", "utf-16"):
        write(tmp_path / "a.csv", "a,y", lambda i, k: f"{i},café", encoding=encoding)
        with pytest.raises(ValueError, match=r"a\.csv must be a comma-separated table in UTF-8"):
            load(tmp_path / "a.csv")
