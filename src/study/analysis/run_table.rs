//! Table of runs for interactive use: each column stores the values of all runs and their ranks, so that
//! sorting and filtering a hundred thousand runs takes milliseconds. Built once per listing;
//! [`crate::analysis::filter`] selects its rows.
//!
//! [`::table::Field`] defines the columns. Files hold the same columns as a Polars data frame
//! (`table::frame`), but ranks sort faster: for 100,000 rows on two cores of an x86-64 server, Polars'
//! eager frame took 12.3 ms to sort by number, 6.0 ms by text in natural order (given a column of ranks,
//! which it cannot make itself), 0.25 ms to filter by text and 0.14 ms by number; ranks took 0.95, 0.56,
//! 0.12 and 0.13 ms (medians of 21). Computing the ranks, once per column, takes about as long as each
//! Polars sort.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use foldhash::fast::FixedState;
use memchr::memmem::Finder;
use rayon::prelude::*;

use crate::analysis::run_list::options_in_both_lists;
use crate::analysis::settings;
use base::error::{Error, Result, by_distance};
use base::text::{folded, natural_order, same_name};
use lab::store::Annotations;
use table::render::{Shown, csv};
use table::{Field, FieldSource, MeasureScope, Record};

/// Built-in fields, plus one for each variable and override in the runs.
fn fields(records: &[Record]) -> Vec<Field> {
    let (mut env, mut set): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for record in records {
        env.extend(record.spec.env.keys().map(String::as_str));
        set.extend(record.spec.set.keys().map(String::as_str));
    }
    let mut fields = table::fields();
    fields.extend(env.into_iter().map(Field::variable));
    fields.extend(set.into_iter().map(Field::setting));
    fields
}

impl RunTableColumn {
    fn new(field: Field, records: &[Record], annotations: &Annotations) -> Self {
        let annotation = |record: &Record| annotations.of(&record.run);
        fn some(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
            (!text.is_empty()).then_some(text)
        }
        let values = match field.source {
            FieldSource::Measure(measure) if measure.scope == MeasureScope::Runs => {
                let values = measure.of_all(&records.iter().collect::<Vec<_>>());
                Values::Number(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
            }
            FieldSource::Experiments => texts(records, |r| {
                let separator = field.unit.separator().unwrap_or_default();
                let own = r.experiment.as_deref();
                let found =
                    annotation(r).into_iter().flat_map(|a| a.experiments.iter().map(String::as_str));
                let mut all: Vec<&str> =
                    own.into_iter().chain(found.filter(|name| Some(*name) != own)).collect();
                match all.len() {
                    0 | 1 => all.pop().map(Cow::from),
                    _ => Some(all.join(separator).into()),
                }
            }),
            FieldSource::Tags => texts(records, |r| some(annotation(r)?.tags_in_a_line().into())),
            FieldSource::Setting => {
                let settings = settings(records, &options_in_both_lists());
                let mut settings = settings.into_iter();
                texts(records, |_| some(settings.next()?.into()))
            }
            FieldSource::Note => texts(records, |r| some(annotation(r)?.note.as_str().into())),
            _ if field.unit.is_number() => {
                Values::Number(records.iter().map(|r| field.number(r).unwrap_or(f64::NAN)).collect())
            }
            _ => texts(records, |record| field.text(record)),
        };
        let longest = match &values {
            Values::Text { texts, .. } => texts.iter().map(|text| text.chars().count()).max(),
            Values::Number(_) => None,
        };
        let (ranks, blank) = (OnceLock::new(), OnceLock::new());
        Self { field, values, ranks, blank, longest: longest.unwrap_or(0) }
    }
}

/// Dictionary-encodes texts: most columns have few distinct ones.
fn texts<'a>(records: &'a [Record], mut get: impl FnMut(&'a Record) -> Option<Cow<'a, str>>) -> Values {
    let mut known: HashMap<Cow<'a, str>, u32, FixedState> = HashMap::default();
    let mut texts: Vec<String> = Vec::new();
    let code = |record: &'a Record| {
        let Some(text) = get(record) else { return NOTHING };
        if let Some(code) = known.get(&text) {
            return *code;
        }
        let code = texts.len() as u32;
        texts.push(text.as_ref().to_owned());
        known.insert(text, code);
        code
    };
    let codes = records.iter().map(code).collect();
    let lower = FoldedTexts::new(&texts);
    Values::Text { codes, texts, lower }
}

/// Rank of each row's value among the distinct values.
fn ranks(values: &Values) -> Vec<u32> {
    match values {
        Values::Text { codes, texts, lower } => {
            let mut order: Vec<u32> = (0..texts.len() as u32).collect();
            let text = |code: &u32| (lower.get(*code as usize), &texts[*code as usize]);
            // ids are already in order, which a stable sort detects at once
            order.sort_by(|a, b| {
                natural_order(text(a).0, text(b).0).then_with(|| text(a).1.cmp(text(b).1))
            });
            let mut places = vec![0; texts.len()];
            for (place, code) in (0..).zip(order) {
                places[code as usize] = place;
            }
            codes.iter().map(|code| places.get(*code as usize).copied().unwrap_or(NOTHING)).collect()
        }
        Values::Number(values) => {
            let mut order: Vec<(f64, u32)> = values.iter().copied().zip(0..).collect();
            order.retain(|(value, _)| !value.is_nan());
            order.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let mut ranks = vec![NOTHING; values.len()];
            for (rank, equal) in (0..).zip(order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())) {
                equal.iter().for_each(|(_, row)| ranks[*row as usize] = rank);
            }
            ranks
        }
    }
}

/// Rank or code of a missing value.
pub(in crate::analysis) const NOTHING: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub struct RunTableColumn {
    pub field: Field,
    pub(in crate::analysis) values: Values,
    /// Rank of each row's value among the distinct values, or [`NOTHING`]. Computed on first use: most columns are
    /// never sorted.
    ranks: OnceLock<Vec<u32>>,
    blank: OnceLock<bool>,
    pub longest: usize,
}

#[derive(Clone, Debug)]
pub(in crate::analysis) enum Values {
    /// Code of each row's text, or [`NOTHING`].
    Text { codes: Vec<u32>, texts: Vec<String>, lower: FoldedTexts },
    /// Number of each row, NaN if missing.
    Number(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunCell<'a> {
    Nothing,
    Text(&'a str),
    /// Number in the column's unit.
    Number(f64),
}

impl RunTableColumn {
    fn ranks(&self) -> &[u32] {
        self.ranks.get_or_init(|| ranks(&self.values))
    }

    /// True if no row has a value. Scans the rows once: for a hundred thousand rows that takes longer than a frame.
    pub fn is_blank(&self) -> bool {
        *self.blank.get_or_init(|| match &self.values {
            Values::Text { codes, .. } => codes.iter().all(|code| *code == NOTHING),
            Values::Number(values) => values.iter().all(|value| value.is_nan()),
        })
    }

    /// True if some of these rows have different values.
    pub fn differs(&self, mut rows: impl Iterator<Item = usize>) -> bool {
        let Some(first) = rows.next() else { return false };
        match &self.values {
            Values::Text { codes, .. } => rows.any(|row| codes.get(row) != codes.get(first)),
            Values::Number(values) => {
                // a missing number is one NaN everywhere
                let bits = |row: usize| values.get(row).map(|value| value.to_bits());
                rows.any(|row| bits(row) != bits(first))
            }
        }
    }

    pub fn cell(&self, row: usize) -> RunCell<'_> {
        match &self.values {
            Values::Text { codes, texts, .. } => {
                let text = codes.get(row).and_then(|code| texts.get(*code as usize));
                text.map_or(RunCell::Nothing, |text| RunCell::Text(text))
            }
            Values::Number(values) => {
                let value = values.get(row).copied().filter(|value| !value.is_nan());
                value.map_or(RunCell::Nothing, RunCell::Number)
            }
        }
    }

    /// Value of a row for display: the first line of a text.
    pub fn shown(&self, row: usize) -> Shown {
        match (self.cell(row), self.field.unit) {
            (RunCell::Nothing, _) => Shown::None,
            (RunCell::Text(text), _) => Shown::text(text.lines().next().unwrap_or_default()),
            (RunCell::Number(value), unit) if unit.is_whole() => Shown::Whole(value as u64),
            (RunCell::Number(value), unit) => Shown::Number(value, unit.decimals()),
        }
    }

    fn full(&self, row: usize) -> Cow<'_, str> {
        match self.cell(row) {
            RunCell::Nothing => "".into(),
            RunCell::Text(text) => text.into(),
            RunCell::Number(value) => value.to_string().into(),
        }
    }

    /// Distinct values as users type them, in the column's order, with their number of `rows`; `None` if there are more
    /// than `most`.
    pub fn distinct(
        &self,
        rows: impl Iterator<Item = usize>,
        most: usize,
    ) -> Option<Vec<(String, usize)>> {
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        let ranks = self.ranks();
        for row in rows {
            let Some(rank) = ranks.get(row).filter(|rank| **rank != NOTHING) else { continue };
            counts.entry(*rank).or_insert((row, 0)).1 += 1;
            if counts.len() > most {
                return None;
            }
        }
        let mut values: Vec<_> = counts.into_iter().collect();
        values.sort_unstable();
        Some(values.into_iter().map(|(_, (row, count))| (self.full(row).into_owned(), count)).collect())
    }

    /// True if a text contains a word ([`base::text::folded`]).
    pub fn has_text(&self, word: &str) -> bool {
        matches!(&self.values, Values::Text { lower, .. } if lower.holds(word))
    }

    pub fn same(&self, a: usize, b: usize) -> bool {
        self.ranks().get(a) == self.ranks().get(b)
    }

    /// Counting sort: one stable pass with one bucket per distinct value.
    fn sort(&self, rows: &mut Vec<u32>, descending: bool) {
        let ranks = self.ranks();
        // one lookup per row: after another sort key, rows are in random order
        let mut heaps: Vec<u32> =
            rows.iter().map(|row| ranks.get(*row as usize).copied().unwrap_or(NOTHING)).collect();
        let highest = heaps.iter().copied().filter(|rank| *rank != NOTHING).max();
        let Some(highest) = highest else { return };
        for heap in &mut heaps {
            *heap = match *heap {
                NOTHING => highest + 1,
                rank if descending => highest - rank,
                rank => rank,
            };
        }
        // few rows in a column with many values: comparing is cheaper
        if highest as usize > 4 * rows.len() {
            let mut pairs: Vec<(u32, u32)> = heaps.into_iter().zip(rows.iter().copied()).collect();
            pairs.sort_by_key(|(heap, _)| *heap);
            *rows = pairs.into_iter().map(|(_, row)| row).collect();
            return;
        }
        let mut starts = vec![0_u32; highest as usize + 3];
        heaps.iter().for_each(|heap| starts[*heap as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut sorted = vec![0; rows.len()];
        for (row, heap) in rows.iter().zip(heaps) {
            let place = &mut starts[heap as usize];
            sorted[*place as usize] = *row;
            *place += 1;
        }
        *rows = sorted;
    }
}

/// Folded texts ([`folded`]) in one string, so that one search covers all.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct FoldedTexts {
    all: String,
    /// Start of each text, plus the end of the last.
    begins: Vec<usize>,
}

impl FoldedTexts {
    /// Separator of texts: a character that no text of a run contains.
    const BORDER: char = '\0';

    pub fn new(texts: &[String]) -> Self {
        let mut lower = Self { all: String::new(), begins: Vec::with_capacity(texts.len() + 1) };
        for text in texts {
            lower.begins.push(lower.all.len());
            lower.all.push_str(&folded(text));
            lower.all.push(Self::BORDER);
        }
        lower.begins.push(lower.all.len());
        lower
    }

    pub fn len(&self) -> usize {
        self.begins.len().saturating_sub(1)
    }

    pub fn get(&self, code: usize) -> &str {
        let end = self.begins.get(code + 1).map_or(0, |end| end.saturating_sub(1));
        self.begins.get(code).and_then(|begin| self.all.get(*begin..end)).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|code| self.get(code))
    }

    pub fn holds(&self, word: &str) -> bool {
        Finder::new(word.as_bytes()).find(self.all.as_bytes()).is_some()
    }

    /// Calls `found` with the code of each text that contains the word.
    pub fn holding(&self, word: &str, mut found: impl FnMut(usize)) {
        let bytes = self.all.as_bytes();
        let finder = Finder::new(word.as_bytes());
        let (mut from, mut code) = (0, 0);
        while let Some(at) = bytes.get(from..).and_then(|rest| finder.find(rest)) {
            // usually one of the next few
            let place = from + at;
            code += self.begins.get(code + 1..).map_or(0, |ends| {
                let near = ends.iter().take(8).take_while(|end| **end <= place).count();
                if near < 8 { near } else { ends.partition_point(|end| *end <= place) }
            });
            found(code);
            match self.begins.get(code + 1) {
                Some(next) => (from, code) = (*next, code + 1),
                None => return,
            }
        }
    }
}

/// Runs under columns. Row numbers are the indices of the records.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    rows: usize,
    columns: Vec<Arc<RunTableColumn>>,
}

/// Sort columns by priority, each with a flag for descending order.
pub type SortKeys = Vec<(usize, bool)>;

impl RunTable {
    pub fn new(records: &[Record], annotations: &Annotations) -> Self {
        let fields = fields(records);
        let column = |field: Field| Arc::new(RunTableColumn::new(field, records, annotations));
        Self { rows: records.len(), columns: fields.into_par_iter().map(column).collect() }
    }

    /// Rebuilds only the columns of tags and notes.
    pub fn annotated(&self, records: &[Record], annotations: &Annotations) -> Self {
        let column = |column: &Arc<RunTableColumn>| match column.field.is_added() {
            true => Arc::new(RunTableColumn::new(column.field.clone(), records, annotations)),
            false => column.clone(),
        };
        Self { rows: self.rows, columns: self.columns.iter().map(column).collect() }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// All columns; the built-in ones come first, in a fixed order.
    pub fn columns(&self) -> &[Arc<RunTableColumn>] {
        &self.columns
    }

    /// Column with this name: a built-in's name or alias, `env.NAME`, `set.NAME`, or the bare name of a variable or
    /// override.
    pub fn find(&self, name: &str) -> Option<usize> {
        let by_name = self.columns.iter().position(|column| column.field.is(name));
        by_name.or_else(|| {
            let bare = |column: &Arc<RunTableColumn>| same_name(&column.field.title, name);
            self.columns.iter().position(|c| c.field.is_dynamic() && bare(c))
        })
    }

    /// Column found by [`Self::find`]. Returns an error with the nearest name if there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.find(name).ok_or_else(|| self.unknown(name))
    }

    /// Error for an unknown name. The first line of its help has the nearest names, the second one all columns.
    pub fn unknown(&self, name: &str) -> Error {
        /// Maximum number of near names.
        const MOST: usize = 3;
        let names = self
            .columns
            .iter()
            .flat_map(|c| std::iter::once(c.field.name.as_ref()).chain(c.field.aliases.iter().copied()));
        let mut near: Vec<(Option<usize>, String)> = Vec::new();
        for close in by_distance(name, names).into_iter().filter(|_| name.len() > 1) {
            // one of the names of a column
            let column = self.find(close);
            if near.len() < MOST && near.iter().all(|(known, _)| *known != column) {
                near.push((column, format!("'{close}'")));
            }
        }
        let near: Vec<String> = near.into_iter().map(|(_, name)| name).collect();
        let meant = match near.is_empty() {
            true => "no column has a similar name".to_owned(),
            false => format!("did you mean {}?", near.join(" or ")),
        };
        let shown: Vec<&str> = self.shown().map(|c| c.field.short()).collect();
        let help = format!("{meant}\ncolumns: {}", shown.join(", "));
        Error::input_help(format!("unknown column '{name}'"), help)
    }

    /// Visible columns: all but the one that is only searched.
    pub fn shown(&self) -> impl Iterator<Item = &RunTableColumn> {
        self.columns.iter().map(Arc::as_ref).filter(|column| column.field.name != "cell")
    }

    pub fn cell(&self, row: usize, column: usize) -> RunCell<'_> {
        self.columns.get(column).map_or(RunCell::Nothing, |column| column.cell(row))
    }

    /// Parses sort keys, the most important first: `tpot:desc,arch`, with `-tpot` short for `tpot:desc`. Returns an
    /// error with the nearest name for an unknown column.
    pub fn sort_keys(&self, text: &str) -> Result<SortKeys> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| {
                let (name, descending) = match (word.strip_prefix('-'), word.rsplit_once(':')) {
                    (Some(name), _) => (name, true),
                    (None, Some((name, "desc"))) => (name, true),
                    (None, Some((name, "asc"))) => (name, false),
                    (None, _) => (word, false),
                };
                Ok((self.column(name)?, descending))
            })
            .collect()
    }

    /// Sorts rows by the first key, ties by the next, and full ties stably. Rows without a value come last in either
    /// direction.
    pub fn sort(&self, rows: &mut Vec<u32>, keys: &[(usize, bool)]) {
        // one stable pass per key, the least important first
        for (column, descending) in keys.iter().rev() {
            let Some(column) = self.columns.get(*column) else { continue };
            column.sort(rows, *descending);
        }
    }

    /// CSV (RFC 4180, with plain line feeds) of these rows and columns with a header; numbers round-trip exactly.
    pub fn csv(&self, rows: &[u32], columns: &[usize]) -> String {
        let columns: Vec<&Arc<RunTableColumn>> =
            columns.iter().filter_map(|at| self.columns.get(*at)).collect();
        csv(
            columns.iter().map(|column| column.field.name.as_ref()),
            rows.iter().map(|row| columns.iter().map(|column| column.full(*row as usize))),
        )
    }

    /// Columns determined by a record alone: no tags, notes or measures that depend on other runs.
    pub fn columns_of_records(&self) -> Vec<usize> {
        let own = |at: &usize| self.columns.get(*at).is_some_and(|column| column.field.is_of_record());
        self.csv_columns().into_iter().filter(own).collect()
    }

    /// Default columns of a CSV file: all except those that are part of another.
    pub fn csv_columns(&self) -> Vec<usize> {
        let all = self.columns.iter().enumerate();
        all.filter(|(_, c)| !c.field.is_dynamic() && c.field.name != "cell").map(|(at, _)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Tables of runs: order, CSV, gap closed.

    use super::*;
    use ::table::testing::{record, sim_record};
    use ::table::{Link, Record, Spec, Status};
    use base::error::Error;
    use lab::store::Annotations;

    pub(crate) fn records() -> Vec<Record> {
        let mut failed = record("c", |s| s.tp = 16, 0, &[(1.0, 1.0)]);
        (failed.status, failed.metrics) = (Status::Failed, None);
        failed.reason = Some("rank 1 said \"no\",\nand died".into());
        let link = |s: &mut Spec| (s.tp, s.link) = (8, Link::Emulated { alpha_us: 1.0, gb_s: 2.0 });
        vec![record("a", link, 0, &[(1.0, 3.0)]), sim_record("b", |_| (), 1.0, 2.0), failed]
    }

    fn table(records: &[Record]) -> RunTable {
        RunTable::new(records, &Annotations::default())
    }

    fn sorted(table: &RunTable, keys: &str) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..table.len() as u32).collect();
        table.sort(&mut rows, &table.sort_keys(keys).unwrap());
        rows
    }

    #[test]
    fn numbers_sort_as_numbers_and_nothing_comes_last() {
        let table = table(&records());
        assert_eq!(sorted(&table, "tpot_p50_ms"), [1, 0, 2]);
        assert_eq!(sorted(&table, "-tpot_p50_ms"), [0, 1, 2]);
        assert_eq!(sorted(&table, "tpot:desc"), [0, 1, 2]);
        assert_eq!(sorted(&table, "tp:desc"), [2, 0, 1]);
        assert_eq!(sorted(&table, ""), [0, 1, 2]);
        let Error::Input { help: Some(help), .. } = table.sort_keys("tpot_p50").unwrap_err() else {
            panic!("no help")
        };
        assert!(help.contains("'tpot_p50_ms'"), "{help}");
    }

    #[test]
    fn equal_rows_stay_in_order_and_a_second_key_decides_between_them() {
        let of = |arch: &str, tp| {
            let arch: plan::Architecture = arch.parse().unwrap();
            sim_record("x", move |s| (s.architecture, s.tp) = (arch.clone(), tp), 1.0, 1.0)
        };
        let table = table(&[
            of("standard", 8),
            of("ladder:16", 2),
            of("standard", 2),
            of("ladder:8", 8),
            of("standard", 2),
        ]);
        assert_eq!(sorted(&table, "arch"), [3, 1, 0, 2, 4], "ladder:8 comes before ladder:16");
        assert_eq!(sorted(&table, "arch:desc"), [0, 2, 4, 1, 3], "equal ones stay in their order");
        assert_eq!(sorted(&table, "tp,arch:desc"), [2, 4, 1, 0, 3]);
    }

    #[test]
    fn few_rows_of_a_long_column_sort_as_many_do() {
        let records: Vec<Record> =
            (0..500).map(|i| sim_record("x", |_| (), 1.0, f64::from((i * 7919) % 500))).collect();
        let table = table(&records);
        let all = sorted(&table, "tpot:desc");
        let mut few: Vec<u32> = all.iter().copied().filter(|row| row % 50 == 0).collect();
        let wanted = few.clone();
        few.sort_unstable();
        table.sort(&mut few, &table.sort_keys("tpot:desc").unwrap());
        assert_eq!(few, wanted);
    }

    #[test]
    fn csv_reads_back_and_an_empty_table_has_its_columns() {
        let table = table(&records());
        let csv = table.csv(&[0, 1, 2], &table.columns_of_records());
        let (head, body) = csv.split_once('\n').unwrap();
        assert!(head.starts_with("run,status,provenance,architecture,model"));
        assert!(body.starts_with(
            "a,ok,emulated-link,standard,tiny,f32,8,1,16,5,on,cpu,\"emulated:alpha_us=1,gb_s=2\","
        ));
        assert!(body.contains(",\"rank 1 said \"\"no\"\",\nand died\","));
        assert!(!head.contains("hidden_share"), "other runs decide it");
        let empty = self::table(&[]);
        assert_eq!(empty.csv(&[], &empty.csv_columns()).lines().count(), 1);
        assert!(sorted(&empty, "tp").is_empty());
    }

    #[test]
    fn variables_and_overrides_are_columns_of_their_own() {
        let set = |s: &mut Spec| {
            s.env.insert("NCCL_ALGO".into(), "Ring".into());
            s.set.insert("link.alpha_us".into(), "5".into());
        };
        let table = table(&[sim_record("a", set, 1.0, 1.0), sim_record("b", |_| (), 1.0, 1.0)]);
        let at = table.find("nccl_algo").unwrap();
        assert_eq!(table.find("env.NCCL_ALGO"), Some(at));
        assert_eq!((table.cell(0, at), table.cell(1, at)), (RunCell::Text("Ring"), RunCell::Nothing));
        assert_eq!(table.cell(0, table.find("set.link.alpha_us").unwrap()), RunCell::Text("5"));
    }

    #[test]
    fn the_gap_closed_is_that_of_matching_runs() {
        let of = |arch: &str, tp, ms| {
            let arch: plan::Architecture = arch.parse().unwrap();
            sim_record("x", move |s| (s.architecture, s.tp) = (arch.clone(), tp), 1.0, ms)
        };
        let records = [
            of("standard", 2, 10.0),
            of("upper-bound", 2, 6.0),
            of("ladder", 2, 7.0),
            of("ladder", 4, 7.0),
            of("standard", 8, 5.0),
            of("upper-bound", 8, 5.0),
            of("ladder", 8, 4.0),
        ];
        let table = table(&records);
        let at = table.find("gap").unwrap();
        let share = |row| match table.cell(row, at) {
            RunCell::Number(share) => Some(share),
            _ => None,
        };
        assert_eq!((share(0), share(1), share(2)), (Some(0.0), Some(1.0), Some(0.75)));
        assert_eq!(share(3), None, "TP 4 has no standard to compare with");
        assert_eq!(share(6), None, "there is nothing to hide");
    }
}
