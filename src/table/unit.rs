//! Units and value types of run-table columns.

/// Value type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Single text, such as a name.
    Text,
    Words,
    /// Comma-separated names, which may contain spaces.
    Names,
    /// Count, without decimals.
    Count,
    Ms,
    /// Bytes, displayed as GB of 1e9.
    Bytes,
    /// Percent: 62.5 is 62.5 %.
    Percent,
    /// Ratio displayed as percent: 0.625 is 62.5 %.
    Share,
    /// Ratio displayed as is.
    Factor,
    Rate,
    Nats,
}

impl Unit {
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Words | Self::Names)
    }

    /// Separator of multiple values in a text; `None` for single values.
    pub fn separator(self) -> Option<&'static str> {
        match self {
            Self::Words => Some(" "),
            Self::Names => Some(", "),
            _ => None,
        }
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Self::Count | Self::Bytes)
    }

    /// Unit symbol after a number; empty if the column name implies it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Bytes => "bytes",
            Self::Percent => "%",
            Self::Nats => "nats",
            _ => "",
        }
    }

    /// Unit name in files for other programs.
    pub const fn in_files(self) -> &'static str {
        match self {
            Self::Rate => "tokens/s",
            Self::Share | Self::Factor => "ratio",
            Self::Count => "count",
            _ => self.symbol(),
        }
    }

    pub const fn decimals(self) -> usize {
        match self {
            Self::Text | Self::Words | Self::Names | Self::Count | Self::Bytes => 0,
            Self::Percent | Self::Rate => 1,
            Self::Ms | Self::Share | Self::Factor => 3,
            Self::Nats => 4,
        }
    }
}
