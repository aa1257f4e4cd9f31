//! What kinds of values the columns of tables of runs have.

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Words that stand for one thing, as a name does.
    Text,
    /// Words, separated by blanks.
    Words,
    /// Names, separated by a comma and a blank: there may be blanks in them.
    Names,
    /// A number of things, without decimals.
    Count,
    /// A time in milliseconds (ms).
    Ms,
    /// Bytes, which people see as GB of 1e9.
    Bytes,
    /// Percent: 62.5 is 62.5 %.
    Percent,
    /// A ratio that screens show as percent: 0.625 is 62.5 %.
    Share,
    /// A ratio that is shown as it is.
    Factor,
    /// Tokens in a second (tokens/s).
    Rate,
    /// Information of a token, by natural logarithms.
    Nats,
}

impl Unit {
    /// Whether values are numbers.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Words | Self::Names)
    }

    /// What separates several values in a text; `None` where the text is one value.
    pub fn separator(self) -> Option<&'static str> {
        match self {
            Self::Words => Some(" "),
            Self::Names => Some(", "),
            _ => None,
        }
    }

    /// Whether numbers are whole.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Count | Self::Bytes)
    }

    /// What stands behind a number; empty where its name says it.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Bytes => "bytes",
            Self::Percent => "%",
            Self::Nats => "nats",
            _ => "",
        }
    }

    /// The unit of a number as files for other programs name it.
    pub const fn in_files(self) -> &'static str {
        match self {
            Self::Rate => "tokens/s",
            Self::Share | Self::Factor => "ratio",
            Self::Count => "count",
            _ => self.symbol(),
        }
    }

    /// Decimals of a number in a table of the command line.
    pub const fn decimals(self) -> usize {
        match self {
            Self::Text | Self::Words | Self::Names | Self::Count | Self::Bytes => 0,
            Self::Percent | Self::Rate => 1,
            Self::Ms | Self::Share | Self::Factor => 3,
            Self::Nats => 4,
        }
    }
}
