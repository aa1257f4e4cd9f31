//! Kitty graphics protocol: the PNG is transmitted once under an id, and placeholder cells show parts of
//! it. Overwriting a placeholder removes that part, so nothing needs deleting.
//! (<https://sw.kovidgoyal.net/kitty/graphics-protocol/#unicode-placeholders>)

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ratatui::style::Color;

const PLACEHOLDER: char = '\u{10EEEE}';

/// Maximum base64 bytes per sequence, by the protocol.
const CHUNK: usize = 4096;

/// Combining characters that encode row and column numbers, as code point ranges. Source: Kitty's
/// `rowcolumn-diacritics.txt` (class 230 in Unicode 6.0, not part of any precomposed character).
#[rustfmt::skip]
const ROW_COLUMN_DIACRITICS: [(u32, u32); 86] = [
    (0x305, 0x305), (0x30d, 0x30e), (0x310, 0x310), (0x312, 0x312), (0x33d, 0x33f), (0x346,
    0x346), (0x34a, 0x34c), (0x350, 0x352), (0x357, 0x357), (0x35b, 0x35b), (0x363, 0x36f),
    (0x483, 0x487), (0x592, 0x595), (0x597, 0x599), (0x59c, 0x5a1), (0x5a8, 0x5a9), (0x5ab,
    0x5ac), (0x5af, 0x5af), (0x5c4, 0x5c4), (0x610, 0x617), (0x657, 0x65b), (0x65d, 0x65e),
    (0x6d6, 0x6dc), (0x6df, 0x6e2), (0x6e4, 0x6e4), (0x6e7, 0x6e8), (0x6eb, 0x6ec), (0x730,
    0x730), (0x732, 0x733), (0x735, 0x736), (0x73a, 0x73a), (0x73d, 0x73d), (0x73f, 0x741),
    (0x743, 0x743), (0x745, 0x745), (0x747, 0x747), (0x749, 0x74a), (0x7eb, 0x7f1), (0x7f3,
    0x7f3), (0x816, 0x819), (0x81b, 0x823), (0x825, 0x827), (0x829, 0x82d), (0x951, 0x951),
    (0x953, 0x954), (0xf82, 0xf83), (0xf86, 0xf87), (0x135d, 0x135f), (0x17dd, 0x17dd),
    (0x193a, 0x193a), (0x1a17, 0x1a17), (0x1a75, 0x1a7c), (0x1b6b, 0x1b6b), (0x1b6d,
    0x1b73), (0x1cd0, 0x1cd2), (0x1cda, 0x1cdb), (0x1ce0, 0x1ce0), (0x1dc0, 0x1dc1),
    (0x1dc3, 0x1dc9), (0x1dcb, 0x1dcc), (0x1dd1, 0x1de6), (0x1dfe, 0x1dfe), (0x20d0,
    0x20d1), (0x20d4, 0x20d7), (0x20db, 0x20dc), (0x20e1, 0x20e1), (0x20e7, 0x20e7),
    (0x20e9, 0x20e9), (0x20f0, 0x20f0), (0x2cef, 0x2cf1), (0x2de0, 0x2dff), (0xa66f,
    0xa66f), (0xa67c, 0xa67d), (0xa6f0, 0xa6f1), (0xa8e0, 0xa8f1), (0xaab0, 0xaab0),
    (0xaab2, 0xaab3), (0xaab7, 0xaab8), (0xaabe, 0xaabf), (0xaac1, 0xaac1), (0xfe20,
    0xfe26), (0x10a0f, 0x10a0f), (0x10a38, 0x10a38), (0x1d185, 0x1d189), (0x1d1aa, 0x1d1ad),
    (0x1d242, 0x1d244),
];

/// Escape sequences that transmit a PNG for placeholder display over this many columns and rows. Replies
/// from the terminal are suppressed.
pub fn transmission(png: &[u8], (columns, rows): (u16, u16), id: u32) -> Vec<String> {
    let data = STANDARD.encode(png);
    let chunks = data.len().div_ceil(CHUNK);
    let header = format!("a=T,U=1,f=100,t=d,i={id},c={columns},r={rows},");
    let sequence = |index: usize| {
        let header = if index == 0 { &header } else { "" };
        let more = u8::from(index + 1 < chunks);
        let data = &data[index * CHUNK..data.len().min((index + 1) * CHUNK)];
        format!("\x1b_G{header}q=2,m={more};{data}\x1b\\")
    };
    (0..chunks).map(sequence).collect()
}

/// Placeholder text of each cell, row by row. Past the last encodable number, the terminal counts on
/// from the cell to the left.
pub fn placeholders((columns, rows): (u16, u16)) -> Vec<String> {
    let numbers =
        || ROW_COLUMN_DIACRITICS.iter().flat_map(|(first, last)| *first..=*last).map(char::from_u32);
    let numbered = |count: u16| -> Vec<Option<char>> {
        numbers().chain(std::iter::repeat(None)).take(usize::from(count)).collect()
    };
    let columns = numbered(columns);
    let cell = |row: Option<char>, column: Option<char>| {
        let numbers = row.into_iter().chain(column.filter(|_| row.is_some()));
        std::iter::once(PLACEHOLDER).chain(numbers).collect()
    };
    let rows = numbered(rows);
    rows.iter().flat_map(|row| columns.iter().map(|column| cell(*row, *column))).collect()
}

/// Foreground colour of placeholder cells; encodes the image id.
pub fn id_color(id: u32) -> Color {
    let [_, r, g, b] = id.to_be_bytes();
    Color::Rgb(r, g, b)
}
