"""Values from a driver as Arrow columns, the same for every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from srj.errors import LookupFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence


def one_array(values: Sequence[Any], arrow: pa.DataType, name: str) -> pa.Array:
    """The values of a column as one array.

    Args:
        values: what the driver gives.
        arrow: their type.
        name: the column's name, for the message.

    Raises:
        LookupFailedError: text or bytes of more than 2 GiB, which one array can't hold.

    Example:
        >>> one_array(["a", None], pa.string(), "name").to_pylist()
        ['a', None]
    """
    try:
        array = pa.array(values, arrow)
    except pa.ArrowCapacityError:
        array = None
    if not isinstance(array, pa.Array):  # Arrow cuts what is too long into several
        raise LookupFailedError(
            f"expected at most 2 GiB of text or bytes in column {name} for one batch of keys, got more; "
            "use a smaller batch, such as batch=100, or shorten the column by an expression"
        )
    return array
