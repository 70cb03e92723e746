"""The text that ships with minidist. Where it comes from: SOURCE.md."""
