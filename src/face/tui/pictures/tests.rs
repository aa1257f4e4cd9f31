//! What a terminal makes of the sequences: read back, they are the picture.

use proptest::prelude::*;

use super::*;

const WAY: Way = Way { kind: Kind::Kitty, tmux: false, id: 0x0012_3456 };

/// Paints Sixels as a terminal does: rows of pixels, `None` where nothing was painted.
fn painted(sequence: &str) -> (usize, Vec<Option<[u8; 3]>>) {
    let body = sequence.strip_prefix("\x1bP0;1;0q\"1;1;").unwrap().strip_suffix("\x1b\\").unwrap();
    let numbers = |text: &mut &str| -> Vec<usize> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        *text = rest;
        digits.split(';').map(|n| n.parse().unwrap()).collect()
    };
    let mut rest = body;
    let size = numbers(&mut rest);
    let (width, height) = (size[0], size[1]);
    let mut pixels = vec![None; width * height];
    let (mut colors, mut color) = (vec![], 0);
    let (mut column, mut band) = (0, 0);
    while let Some(command) = rest.chars().next() {
        if !('?'..='~').contains(&command) {
            rest = &rest[1..];
        }
        let mut count = 1;
        match command {
            '#' => match numbers(&mut rest)[..] {
                [number] => color = number,
                [number, 2, r, g, b] => {
                    assert_eq!(number, colors.len());
                    colors.push([r, g, b].map(|part| ((part * 255 + 50) / 100) as u8));
                }
                ref other => panic!("{other:?}"),
            },
            '$' => column = 0,
            '-' => (column, band) = (0, band + 1),
            '!' => count = numbers(&mut rest)[0],
            _ => assert!(('?'..='~').contains(&command), "{command:?}"),
        }
        if !('?'..='~').contains(&command) && command != '!' {
            continue;
        }
        let sixel = rest.chars().next().unwrap();
        rest = &rest[1..];
        for _ in 0..count {
            for bit in (0..6).filter(|bit| (sixel as u8 - b'?') >> bit & 1 == 1) {
                let at = (band * 6 + bit) * width + column;
                assert_eq!(pixels[at], None, "painted twice");
                pixels[at] = Some(colors[color]);
            }
            column += 1;
        }
        assert!(column <= width);
    }
    assert!(colors.len() <= 256);
    (width, pixels)
}

fn pixels(width: u32, height: u32, color: impl Fn(u32, u32) -> [u8; 3]) -> Pixels {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    Pixels { width, height, rgb: places.flat_map(|(x, y)| color(x, y)).collect() }
}

fn file_of(png: &[u8]) -> (u32, u32, Vec<[u8; 4]>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
    let mut rgba = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut rgba).unwrap();
    (info.width, info.height, rgba.as_chunks().0.to_vec())
}

fn with_alpha(pixels: &Pixels, clear: Option<[u8; 3]>) -> Vec<[u8; 4]> {
    let alpha = |pixel: &[u8; 3]| if Some(*pixel) == clear { 0 } else { 255 };
    let (rgb, _) = pixels.rgb.as_chunks::<3>();
    rgb.iter().map(|pixel| [pixel[0], pixel[1], pixel[2], alpha(pixel)]).collect()
}

proptest! {
    /// Few colours come back as they were, to the percent that the sequences know; of many each is near.
    #[test]
    fn sixels_paint_the_picture(
        (width, height, rgb) in (1u32..40, 1u32..20).prop_flat_map(|(width, height)| {
            let count = (width * height) as usize;
            let colors = vec![[0u8, 0, 0], [255; 3], [200, 30, 90], [1, 2, 3]];
            let few = prop::collection::vec(prop::sample::select(colors), count);
            let many = prop::collection::vec(any::<[u8; 3]>(), count);
            (Just(width), Just(height), prop_oneof![few, many])
        }),
        is_clear: bool,
    ) {
        let clear = is_clear.then_some(rgb[0]);
        let (found_width, found) = painted(&encode_sixel(&Pixels { width, height, rgb: rgb.concat() }, clear));
        prop_assert_eq!(found_width, width as usize);
        let different: std::collections::HashSet<_> = rgb.iter().collect();
        let near = if different.len() <= 256 { 2 } else { 64 };
        for (found, wanted) in found.iter().zip(&rgb) {
            prop_assert_eq!(found.is_none(), Some(*wanted) == clear);
            let Some(found) = found else { continue };
            prop_assert!(found.iter().zip(wanted).all(|(a, b)| a.abs_diff(*b) <= near), "{:?} {:?}", found, wanted);
        }
    }
}

#[test]
fn a_sixel_is_what_the_manual_says() {
    let red = |x: u32, y: u32| if x < 5 && y < 2 { [255, 0, 0] } else { [0, 0, 0] };
    let sequence = encode_sixel(&pixels(7, 7, red), Some([0, 0, 0]));
    // five columns of the upper two bits, and a band with nothing in it
    assert_eq!(sequence, "\x1bP0;1;0q\"1;1;7;7#0;2;100;0;0#0!5B$--\x1b\\");
}

#[test]
fn kitty_and_iterm2_are_given_the_picture_as_a_file() {
    // too much for one sequence: noise does not compress
    let noise = |x: u32, y: u32| {
        let [r, g, b, _] = fastrand::Rng::with_seed(u64::from(x << 16 | y)).u32(..).to_be_bytes();
        [r, g, b]
    };
    let pixels = pixels(90, 60, noise);
    let clear = Some(noise(3, 4));
    let wanted = (90, 60, with_alpha(&pixels, clear));
    for tmux in [false, true] {
        let Content::Placed(cells, color) =
            Picture::new(&pixels, clear, (9, 3), Way { tmux, ..WAY }).unwrap().content
        else {
            panic!("Kitty's picture is placed")
        };
        assert_eq!((cells.len(), color), (27, Color::Rgb(0x12, 0x34, 0x56)));
        let (sequence, _) = cells[0].split_once('\u{10eeee}').unwrap();
        let (start, escape, end) =
            if tmux { ("\x1bPtmux;", "\x1b\x1b", "\x1b\\") } else { ("", "\x1b", "") };
        let begins = format!("{start}{escape}_G");
        let mut data = String::new();
        let parts: Vec<_> = sequence.split(&begins).skip(1).collect();
        assert!(parts.len() > 2);
        for (at, part) in parts.iter().enumerate() {
            let (keys, part) = part.split_once(';').unwrap();
            let more = if at + 1 < parts.len() { "q=2,m=1" } else { "q=2,m=0" };
            let what = if at == 0 { "a=T,U=1,f=100,t=d,i=1193046,c=9,r=3," } else { "" };
            assert_eq!(keys, format!("{what}{more}"));
            let part = part.strip_suffix(&format!("{escape}\\{end}")).unwrap();
            assert!(part.len() <= 4096);
            data += part;
        }
        assert_eq!(file_of(&STANDARD.decode(data).unwrap()), wanted);

        let way = Way { kind: Kind::Iterm2, tmux, ..WAY };
        let Content::Sequence(sequence) = Picture::new(&pixels, clear, (9, 3), way).unwrap().content
        else {
            panic!("iTerm2's picture is one sequence")
        };
        let (erased, rest) = sequence.split_once(&format!("{escape}]1337;File=inline=1;")).unwrap();
        let [down, erase] = ["[1B", "[9X"].map(|code| format!("{escape}{code}"));
        let all = format!("{start}{escape}7{erase}{down}{erase}{down}{erase}{escape}8");
        assert_eq!(erased, all);
        let (keys, data) = rest.split_once(':').unwrap();
        let file = STANDARD.decode(data.strip_suffix(&format!("\x07{end}")).unwrap()).unwrap();
        let size = "width=9;height=3;preserveAspectRatio=0;doNotMoveCursor=1";
        assert_eq!(keys, format!("size={};{size}", file.len()));
        assert_eq!(file_of(&file), wanted);
    }
}

/// Cells of a picture name its parts, or are left alone after the first; nothing beyond it is touched, and what does
/// not fit is not drawn.
#[test]
fn a_picture_covers_its_cells() {
    let pixels = pixels(8, 8, |x, y| [(x * 30) as u8, (y * 30) as u8, 9]);
    let area = Rect::new(2, 1, 6, 5);
    for kind in [Kind::Kitty, Kind::Sixel, Kind::Iterm2, Kind::Halfblocks] {
        let picture = Picture::new(&pixels, None, (4, 2), Way { kind, ..WAY }).unwrap();
        assert_eq!(picture.size(), (4, 2));
        let mut buf = Buffer::filled(Rect::new(0, 0, 10, 8), ratatui::buffer::Cell::new("x"));
        let before = buf.clone();
        picture.draw(Rect::new(2, 1, 3, 5), &mut buf);
        assert_eq!(buf, before, "too narrow");
        picture.draw(area, &mut buf);
        let covered = Rect::new(2, 1, 4, 2);
        for at in buf.area.positions() {
            assert_eq!(buf[at] != before[at], covered.contains(at), "{kind:?} {at}");
        }
        let (first, second) = (&buf[(2, 1)], &buf[(3, 2)]);
        match kind {
            Kind::Kitty => {
                assert!(first.symbol().starts_with("\x1b_Ga=T"));
                assert!(first.symbol().ends_with("\x1b\\\u{10eeee}\u{305}\u{305}"));
                assert_eq!(second.symbol(), "\u{10eeee}\u{30d}\u{30d}");
                assert_eq!(second.fg, Color::Rgb(0x12, 0x34, 0x56));
            }
            Kind::Halfblocks => {
                // means of two by two pixels
                assert_eq!((first.symbol(), first.fg), ("▀", Color::Rgb(15, 15, 9)));
                assert_eq!((second.fg, second.bg), (Color::Rgb(75, 135, 9), Color::Rgb(75, 195, 9)));
            }
            Kind::Sixel | Kind::Iterm2 => {
                assert_eq!(first.diff_option, ONE_COLUMN);
                assert_eq!(second.diff_option, CellDiffOption::Skip);
            }
        }
    }
}

#[test]
fn half_blocks_show_pictures_of_any_size() {
    for (width, height) in [(1, 1), (3, 50), (200, 3)] {
        let pixels = pixels(width, height, |_, _| [10, 20, 30]);
        let found = halves(&pixels, (7, 5));
        assert_eq!(found, vec![[Color::Rgb(10, 20, 30); 2]; 35]);
    }
}

#[test]
fn rows_and_columns_have_the_numbers_of_the_protocol() {
    // the first three of the protocol's own example
    assert_eq!(
        placeholders((3, 2))[..3],
        ["\u{10eeee}\u{305}\u{305}", "\u{10eeee}\u{305}\u{30d}", "\u{10eeee}\u{305}\u{30e}"]
    );
    let cells = placeholders((298, 298));
    let cell = |column: usize, row: usize| cells[row * 298 + column].as_str();
    assert_eq!(cells.len(), 298 * 298);
    assert_eq!(cell(1, 2), "\u{10eeee}\u{30e}\u{30d}");
    assert_eq!(cell(296, 0), "\u{10eeee}\u{305}\u{1d244}");
    assert_eq!(cell(297, 2), "\u{10eeee}\u{30e}");
    assert_eq!(cell(0, 297), "\u{10eeee}");
    let different: std::collections::HashSet<_> = cells.iter().collect();
    assert_eq!(different.len(), 297 * 298 + 1);
}
