"""Reading text, and which bytes a sample number stands for."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.bounds import bounds
from minidist.errors import DataError
from minidist.nn import At
from minidist.testing import fake_device
from minidist.testing.mutants import mutate
from minidist.train.corpus import Corpus, Text, read_text


def text_of(size):
    """Bytes that tell their place, as far as bytes can."""
    return Text("numbers", bytes((7 * i + i // 256) % 256 for i in range(size)))


def at(samples, positions, train=True):
    return At(0, train, np.asarray(samples), np.asarray(positions))


# --- reading -----------------------------------------------------


def test_the_plays_are_the_default():
    text = read_text()
    assert str(text) == "corpus shakespeare  1,036,483 bytes  sha256 28833bcb25bf"


def test_a_file_a_folder_and_the_standard_library(tmp_path):
    (tmp_path / "deep").mkdir()
    for name, data in {"b.txt": b"two", "a.py": b"one", "deep/c.txt": b"3", "d.md": b"no"}.items():
        (tmp_path / name).write_bytes(data)
    assert read_text(str(tmp_path / "b.txt")) == Text("b.txt", b"two")
    assert read_text(str(tmp_path)) == Text(tmp_path.name, b"onetwo3")
    library = read_text("stdlib")
    assert library.name == "stdlib"
    assert b"import " in library.data


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p / "absent.txt", "cannot be read: .*No such file"),
        (lambda p: (p / "void.txt").write_bytes(b"") or p / "void.txt", "has no bytes"),
        (lambda p: p, "no \\*.txt or \\*.py file in this folder"),
        (lambda p: "nul\0byte", "cannot be read: embedded null byte"),
        (lambda p: "/proc/self/mem", "cannot be read: .*Input/output error"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, make, words):
    with pytest.raises(DataError, match=f"--data .*{words}"):
        read_text(str(make(tmp_path)))


@pytest.mark.parametrize("size", [1, 4, 9])
def test_a_text_shorter_than_a_window_is_refused(size):
    with pytest.raises(DataError, match=f"numbers has {size} bytes, too few for windows of 8"):
        Corpus(text_of(size), 8, 0)


# --- windows -----------------------------------------------------


def check_windows(kind, size, length, seed):
    """Labels are the next bytes; an epoch visits disjoint windows; validation misses no byte.

    Computed from the text by slicing, window by window.
    """
    text = text_of(size)
    corpus = kind(text, length, seed)
    cut = size - size // 10
    for epoch in (0, 1, 5):
        samples = np.arange(epoch * corpus.windows, (epoch + 1) * corpus.windows)
        starts = corpus.starts(samples)
        assert 0 <= starts.min() < length
        assert starts.max() + length + 1 <= cut
        assert (np.diff(np.sort(starts)) == length).all()
    here = at(samples[:3], range(length))
    for tokens, labels, start in zip(
        corpus.tokens(here), corpus.labels(here), starts, strict=False
    ):
        window = list(text.data[start : start + length + 1])
        assert (tokens.tolist(), labels.tolist()) == (window[:-1], window[1:])
    here = at(range(corpus.validation_windows), range(length), train=False)
    tokens, labels = corpus.tokens(here).ravel(), corpus.labels(here).ravel()
    known = labels >= 0
    assert bytes(labels[known].astype(np.uint8)) == text.data[cut + 1 :]
    assert bytes(tokens[known].astype(np.uint8)) == text.data[cut:-1]
    assert (~known).sum() < length


@given(st.integers(1, 40), st.integers(0, 400), st.integers(0, 9))
def test_windows(length, more, seed):
    check_windows(Corpus, 2 * length + 30 + more, length, seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self._gather(at, 1, IGNORED)", "self._gather(at, 0, IGNORED)"),
        ("len(data) - len(data) // VALIDATION_SHARE", "len(data) // 2"),
        ("-(-(len(self.validation) - 1) // length)", "(len(self.validation) - 1) // length"),
        ("window * self.length + self._shift(e)", "window * (self.length - 1)"),
        ("window * self.length + self._shift(e)", "window * self.length + self.length * e"),
        ("min(self.length, len(self.train)", "max(self.length, len(self.train)"),
        ("(len(self.train) - 1) // length - 1", "len(self.train) // length + 1"),
    ],
)
def test_wrong_windows_are_seen(old, new):
    broken = mutate(Corpus, old, new)
    with pytest.raises((AssertionError, IndexError)):
        check_sizes(broken)


def check_sizes(kind):
    for size in (60, 61, 100, 321):
        check_windows(kind, size, 10, 3)


def test_epochs_differ_in_order_and_in_borders():
    corpus = Corpus(text_of(5000), 16, 0)
    n = corpus.windows
    first, second = corpus.starts(np.arange(n)), corpus.starts(np.arange(n, 2 * n))
    assert (first // 16).tolist() != (second // 16).tolist()
    shifts = {int(corpus.starts(np.array([e * n]))[0]) % 16 for e in range(60)}
    assert len(shifts) > 10


def test_a_sample_may_be_asked_for_alone_and_in_parts():
    """Any slice of positions is a column slice of the whole window, across the end of an epoch."""
    corpus = Corpus(text_of(600), 12, 4)
    samples = np.arange(corpus.windows - 3, corpus.windows + 3)
    whole = corpus.tokens(at(samples, range(12)))
    assert np.array_equal(corpus.tokens(at(samples[2:3], range(12))), whole[2:3])
    assert np.array_equal(corpus.tokens(at(samples, range(5, 9))), whole[:, 5:9])
    assert corpus.tokens(at([], range(12))).shape == (0, 12)


def test_tokens_live_where_the_samples_live():
    corpus = Corpus(text_of(600), 12, 4)
    xp = fake_device.xp
    here = At(0, True, xp.arange(4), xp.arange(12))
    assert isinstance(corpus.labels(here), fake_device.FakeArray)
    assert np.array_equal(corpus.labels(here).get(), corpus.labels(at(range(4), range(12))))


# --- the data order does not depend on the number of ranks -------


def steps_of(corpus, batch, ranks, steps):
    """The windows that `ranks` ranks read in each of `steps`, as the training step cuts them."""
    cuts = list(pairwise(bounds(batch, ranks)))
    return [
        [corpus.starts(np.arange(k * batch + a, k * batch + b)).tolist() for a, b in cuts]
        for k in steps
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_every_number_of_ranks_sees_the_same_samples(ranks):
    """nanoGPT draws batches per rank; here steps 0..9 hold the same windows in the same order."""
    corpus = Corpus(text_of(1000), 9, 2)
    flat = [[s for rank in step for s in rank] for step in steps_of(corpus, 6, ranks, range(10))]
    assert flat == [step[0] for step in steps_of(corpus, 6, 1, range(10))]


def test_a_resume_on_other_ranks_repeats_and_skips_nothing():
    """transformers#40245: 18 samples in threes; one worker for two steps, then two workers."""
    corpus = Corpus(text_of(210), 9, 2)
    corpus.windows = 18
    read = (
        steps_of(corpus, 3, 1, range(2))
        + steps_of(corpus, 3, 2, range(2, 4))
        + steps_of(corpus, 3, 4, range(4, 6))
    )
    flat = [s for step in read for rank in step for s in rank]
    assert flat == corpus.starts(np.arange(18)).tolist()
    assert len(set(flat)) == 18
