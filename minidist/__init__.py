"""minidist: how large models are trained and served across many machines, by hand."""

__version__ = "0.1.0"
