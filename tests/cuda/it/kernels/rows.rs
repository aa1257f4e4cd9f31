//! Checks of `embed`, `select_last` and `narrow`: copies, so every bit must be right.

use super::{Bench, DTYPES, checks, random};
use run::testing::cuda::geometry;

checks!(
    embed_copies_the_rows_of_tokens,
    select_last_copies_each_sequences_last_row,
    narrow_copies_the_first_columns
);

/// Widths with and without whole packs, one longer than a block's threads.
const COLUMNS: [usize; 6] = [8, 1, 37, 4096, 100, 9000];

fn embed_copies_the_rows_of_tokens(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for columns in COLUMNS {
            for rows in [1, 2, 33] {
                bench.start(dtype);
                let vocab = 50;
                let table = bench.numbers(&random(columns as u64, vocab * columns));
                let tokens: Vec<u32> = (0..rows).map(|row| row * 31 % vocab as u32).collect();
                let token_handle = bench.input(&tokens);
                let out = bench.output_numbers(tokens.len() * columns);
                let geometry = geometry::rows(rows, columns as u32);
                let arguments = [token_handle.into(), table.into(), out.into(), (columns as u32).into()];
                bench.launch("embed", &geometry, &arguments);
                let (table, got) = (bench.read_numbers(table), bench.read_numbers(out));
                for (token, row) in tokens.iter().zip(got.chunks_exact(columns)) {
                    assert_eq!(row, &table[*token as usize * columns..][..columns], "{columns} columns");
                }
            }
        }
    }
}

fn select_last_copies_each_sequences_last_row(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for columns in COLUMNS {
            for (sequences, tokens) in [(1, 1), (1, 7), (5, 3)] {
                bench.start(dtype);
                let x = bench.numbers(&random(tokens as u64, sequences * tokens * columns));
                let out = bench.output_numbers(sequences * columns);
                let geometry = geometry::rows(sequences as u32, columns as u32);
                let arguments = [x.into(), out.into(), (tokens as u32).into(), (columns as u32).into()];
                bench.launch("select_last", &geometry, &arguments);
                let (x, got) = (bench.read_numbers(x), bench.read_numbers(out));
                for (sequence, row) in got.chunks_exact(columns).enumerate() {
                    let from = (sequence * tokens + tokens - 1) * columns;
                    assert_eq!(row, &x[from..from + columns], "{columns} columns, {tokens} tokens");
                }
            }
        }
    }
}

fn narrow_copies_the_first_columns(bench: &mut Bench<'_>) {
    for dtype in DTYPES {
        for (columns, kept) in
            COLUMNS.into_iter().flat_map(|of| [(of, of.div_ceil(2)), (of, of / 8 * 4)])
        {
            if kept == 0 {
                continue;
            }
            bench.start(dtype);
            let rows = 3;
            let x = bench.numbers(&random(columns as u64, rows * columns));
            let out = bench.output_numbers(rows * kept);
            let geometry = geometry::rows(rows as u32, kept as u32);
            let arguments = [x.into(), out.into(), (columns as u32).into(), (kept as u32).into()];
            bench.launch("narrow", &geometry, &arguments);
            let (x, got) = (bench.read_numbers(x), bench.read_numbers(out));
            for (row, got) in x.chunks_exact(columns).zip(got.chunks_exact(kept)) {
                assert_eq!(&row[..kept], got, "{kept} of {columns} columns");
            }
        }
    }
}
