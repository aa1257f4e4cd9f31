//! Half blocks: two colours per cell, for any colour terminal.

use ratatui::style::Color;

use study::plot::Pixels;

/// Mean colours of the upper and lower half of each cell.
pub fn halves(pixels: &Pixels, (columns, rows): (u16, u16)) -> Vec<[Color; 2]> {
    let (across, down) = (usize::from(columns), usize::from(rows) * 2);
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let (rgb, _) = pixels.rgb.as_chunks::<3>();
    // at least one pixel per half, even if the picture has fewer pixels than halves
    let span = |at: usize, parts: usize, of: usize| {
        let from = (at * of / parts).min(of - 1);
        from..((at + 1) * of / parts).max(from + 1)
    };
    let mean = |x: usize, y: usize| {
        let (columns, rows) = (span(x, across, width), span(y, down, height));
        let count = (columns.len() * rows.len()) as u32;
        let mut sum = [0u32; 3];
        for row in rows {
            for pixel in &rgb[row * width..][columns.clone()] {
                sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += u32::from(*part));
            }
        }
        let [r, g, b] = sum.map(|sum| (sum / count) as u8);
        Color::Rgb(r, g, b)
    };
    let cells = (0..down / 2).flat_map(|row| (0..across).map(move |column| (column, row * 2)));
    cells.map(|(x, y)| [mean(x, y), mean(x, y + 1)]).collect()
}
