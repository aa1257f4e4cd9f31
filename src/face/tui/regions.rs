//! Areas of the window, and cuts of areas.

use ratatui::layout::Rect;

use super::context::Context;
use super::widgets::wrap::wrap;

/// Smallest supported window (columns, rows).
pub const SMALLEST: (u16, u16) = (60, 16);

/// Maximum rows of an error, title included.
const NOTICE_ROWS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    pub tabs: Rect,
    pub body: Rect,
    /// Error message; takes rows from the body.
    pub notice: Rect,
    pub footer: Rect,
}

/// Computes the areas of the window; `None` if it is too small.
pub fn regions(cx: &Context) -> Option<Regions> {
    let mut regions = regions_of(cx.size)?;
    if let Some(notice) = cx.notice.as_ref().filter(|n| n.error) {
        let lines = wrap(&notice.text, usize::from(regions.body.width.saturating_sub(2))).len();
        let rows = (lines + 1).min(NOTICE_ROWS) as u16;
        (regions.body, regions.notice) = cut_bottom(regions.body, rows);
    }
    Some(regions)
}

/// Computes the areas of a window of this size without an error; `None` if it is too small.
pub fn regions_of(size: (u16, u16)) -> Option<Regions> {
    let (width, height) = size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    Some(Regions {
        tabs: Rect::new(0, 0, width, 1),
        body: Rect::new(0, 1, width, height - 2),
        notice: Rect::new(0, height - 1, width, 0),
        footer: Rect::new(0, height - 1, width, 1),
    })
}

/// Splits `rows` rows off the top: (top, rest).
pub fn cut_top(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    let top = Rect { height: rows, ..area };
    (top, Rect { y: area.y + rows, height: area.height - rows, ..area })
}

/// Splits `rows` rows off the bottom: (rest, bottom).
pub fn cut_bottom(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    cut_top(area, area.height - rows)
}

/// Splits `columns` columns off the left: (left, rest).
pub fn cut_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    let left = Rect { width: columns, ..area };
    (left, Rect { x: area.x + columns, width: area.width - columns, ..area })
}

pub fn inside(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// Centred area of at most this size.
pub fn centered(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
