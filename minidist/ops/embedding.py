"""Embedding: read rows of a table; backward, add gradients to the rows that were read.

Suffixes: N tokens, V vocabulary, D width; ... any leading shape.
"""

from minidist.arrays import Array, namespace, to_host
from minidist.errors import ArrayError
from minidist.ops import half


def embedding(ids: Array, table_VD: Array) -> Array:
    """Return the rows (..., D) of the table for integer ids (...). Ids must be in [0, V)."""
    rows = table_VD.shape[0]
    if ids.size and not bool(to_host(((ids >= 0) & (ids < rows)).all())):
        host = to_host(ids)
        raise ArrayError(
            f"embedding: ids from {host.min()} to {host.max()} do not fit a table of {rows} rows; "
            "check the vocabulary"
        )
    return table_VD[ids]


@half.stored(0)
def embedding_backward(dy_D: Array, ids: Array, rows: int) -> Array:
    """Return the gradient (V, D) of the table: for each row, the sum over the tokens that read it.

    Written as a product with a one-hot matrix. A scatter-add does less arithmetic, but on a GPU it
    adds in the order in which threads arrive, so two runs would differ in the last bit.

    The gradient of a half dy is float32.
    """
    xp = namespace(dy_D)
    ids_N, dy_ND = ids.reshape(ids.size), dy_D.reshape(ids.size, dy_D.shape[-1])
    onehot_VN = (xp.arange(rows)[:, None] == ids_N).astype(dy_D.dtype)
    return onehot_VN @ dy_ND
