"""Comma-separated values under a header row, quotes taken strictly."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from ftx.data.formats.record import BLANK, BadRecord, Raw, bad_cell, column_names, first_line, text_of
from ftx.errors import DataError

LARGEST_CELL = 1 << 24  # characters; a quote left open ends here and not at the end of the disk


def read_csv(raw: Raw, origin: str) -> Iterator[tuple[int, Any]]:
    """Records with the physical line on which each begins. Raises DataError."""
    header: list[str] = []
    with text_of(raw) as text:
        for number, cells in _rows_of_cells(text, origin):
            if not cells or (len(header) != 1 and len(cells) == 1 and not cells[0].strip()):
                yield number, BLANK
            elif not header:
                header = column_names(cells, origin)
            else:
                yield number, _as_record(header, cells)
    if not header:
        raise DataError(f"{origin} is empty; expected a header row: write the columns' names into its first line")


def _rows_of_cells(text: io.TextIOBase, origin: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text, strict=True)
    while True:
        begin = reader.line_num + 1
        usual = csv.field_size_limit(LARGEST_CELL)  # it holds for all of the process: never across a yield
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{origin}:{begin}: not CSV: {first_line(error)}; expected quoted cells that are closed, with quotes "
                "in them doubled: mend the record that begins there"
            ) from error
        finally:
            csv.field_size_limit(usual)
        yield begin, cells


def _as_record(header: list[str], cells: list[str]) -> dict[str, str] | BadRecord:
    if len(cells) != len(header):
        return BadRecord(
            f"has {len(cells)} fields, expected the {len(header)} of the header (quote cells that hold commas)",
            "another number of fields than the header",
        )
    record = dict(zip(header, cells, strict=True))
    return next((bad for name, cell in record.items() if (bad := bad_cell(cell, f" of {name}"))), record)
