//! Sets of cells that differ only in architecture, TP, batch and P2P, for one figure or table.
//!
//! Settings in which cells differ, and those they share, as text: tables show differences per row and shared settings
//! once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::compare::Axis;
use base::statistics::distinct;
use plan::Architecture;
use table::options::{self, OPTIONS, OptionEntry};
use table::{P2p, Record, Spec, VARIANTS, aggregate};

#[derive(Clone, Debug, PartialEq)]
pub struct CellSet {
    /// Shared settings, for display: `llama-3-70b f16, prompt 1024, output 512, ...`.
    pub name: String,
    /// One record per cell (see [`aggregate`]), all with metrics; unique by architecture, TP, batch and P2P.
    pub cells: Vec<Record>,
}

impl CellSet {
    pub fn has_intervals(&self) -> bool {
        let mut metrics = self.cells.iter().filter_map(|cell| cell.metrics.as_ref());
        metrics.any(|metrics| metrics.tokens_per_s_ci95.is_some())
    }

    pub fn get(&self, architecture: &Architecture, tp: u32, batch: u32, p2p: P2p) -> Option<&Record> {
        self.cells.iter().find(|cell| {
            let spec = &cell.spec;
            spec.architecture == *architecture && (spec.tp, spec.batch, spec.p2p) == (tp, batch, p2p)
        })
    }

    /// Distinct values of an option over the cells, ascending.
    pub fn values<T: Ord>(&self, of: impl Fn(&Spec) -> T) -> Vec<T> {
        let all: BTreeSet<T> = self.cells.iter().map(|cell| of(&cell.spec)).collect();
        all.into_iter().collect()
    }
}

/// Sets of comparable cells, in order of their first cells. Ignores the link if P2P determines it (one link per P2P
/// setting), and P2P's own variables.
pub fn comparable(records: &[Record]) -> Vec<CellSet> {
    let cells: Vec<Record> = aggregate(records).into_iter().filter(Record::has_numbers).collect();
    let mut sets: Vec<CellSet> = Vec::new();
    // set indices by name, in order
    let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    // number of cells with the same name, architecture, TP, batch and P2P
    let mut seen_with_key: BTreeMap<(String, Architecture, u32, u32, P2p), usize> = BTreeMap::new();
    let mut links: BTreeMap<(String, &str), BTreeSet<String>> = BTreeMap::new();
    for cell in &cells {
        let (key, p2p) = (name(cell, false), cell.spec.p2p.as_str());
        links.entry((key, p2p)).or_default().insert(cell.spec.link.to_string());
    }
    for cell in &cells {
        let short = name(cell, false);
        let several = |p2p: &str| links.get(&(short.clone(), p2p)).is_some_and(|l| l.len() > 1);
        let name = if several("on") || several("off") { name(cell, true) } else { short };
        let spec = &cell.spec;
        let key = (name.clone(), spec.architecture.clone(), spec.tp, spec.batch, spec.p2p);
        // cells that differ otherwise (in a seed) share a name but not a set: the second goes to the second set of that
        // name
        let seen = seen_with_key.entry(key).or_default();
        let of_name = named.entry(name.clone()).or_default();
        match of_name.get(*seen) {
            Some(at) => sets[*at].cells.push(cell.clone()),
            None => {
                of_name.push(sets.len());
                sets.push(CellSet { name, cells: vec![cell.clone()] });
            }
        }
        *seen += 1;
    }
    sets
}

/// True if there are several sets that differ only in the model.
pub fn differ_in_model(sets: &[CellSet]) -> bool {
    let rest = |set: &CellSet| {
        let model = set.cells.first().map_or("", |cell| cell.spec.model.as_str());
        set.name.strip_prefix(model).map(str::to_owned)
    };
    let rests: BTreeSet<Option<String>> = sets.iter().map(rest).collect();
    let names: BTreeSet<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    sets.len() > 1 && rests.len() == 1 && names.len() == sets.len()
}

fn name(record: &Record, with_link: bool) -> String {
    let spec = &record.spec;
    let divisions = [("PP", spec.pp), ("EP", spec.ep), ("DP", spec.dp)];
    let divisions = divisions.into_iter().filter(|(_, ranks)| *ranks > 1);
    let env = spec.env.iter().filter(|(key, _)| !key.starts_with("NCCL_P2P_"));
    let mut words = vec![super::pareto::group(record)];
    words.extend(divisions.map(|(division, ranks)| format!("{division} {ranks}")));
    words.extend(spec.settings());
    words.extend(env.map(|(key, value)| format!("{key}={value}")));
    words.extend(with_link.then(|| format!("link {}", spec.link)));
    words.join(", ")
}

/// Options named for all cells; others only if they are not at their defaults.
const ALWAYS: [&str; 6] = ["model", "dtype", "tp", "batch", "prompt_tokens", "output_tokens"];

/// Options that count repetitions and do not change the workload.
const COUNTS: [&str; 2] = ["samples", "warmup"];

/// Options that experiments set once per model, hardware and P2P setting.
const WORKLOAD: [&str; 6] = ["dtype", "prompt_tokens", "output_tokens", "backend", "link", "stack"];

/// Joins labels, each once: a link may have the name of its P2P setting.
pub fn joined_labels(labels: impl IntoIterator<Item = String>) -> String {
    distinct(labels.into_iter().filter(|label| !label.is_empty())).join(" ")
}

/// True if each P2P setting has a single link.
fn link_follows<'a>(specs: impl Iterator<Item = &'a Spec> + Clone) -> bool {
    let link_of = |p2p| specs.clone().find(|spec| spec.p2p == p2p).map(|spec| spec.link);
    let [on, off] = [P2p::On, P2p::Off].map(link_of);
    let own = |spec: &Spec| Some(spec.link) == if spec.p2p == P2p::On { on } else { off };
    on.is_some() && off.is_some() && specs.clone().all(own)
}

/// Axes in which cells differ: options in table order, then variables and profile values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Varied {
    axes: Vec<Axis>,
    /// True if P2P determines the link, which then need not be named.
    link_follows: bool,
}

impl Varied {
    /// Axes in which these cells differ. Checks every option of every cell.
    pub fn from_specs<'a>(specs: impl Iterator<Item = &'a Spec> + Clone) -> Self {
        Self::in_options(specs, OPTIONS)
    }

    /// Axes in which these cells differ, among these options plus all variables and profile values.
    fn in_options<'a>(
        specs: impl Iterator<Item = &'a Spec> + Clone,
        among: impl IntoIterator<Item = &'static OptionEntry>,
    ) -> Self {
        let mut axes: Vec<Axis> = among.into_iter().map(|option| Axis::Option(option.name)).collect();
        let mut keys: BTreeSet<Axis> = BTreeSet::new();
        for spec in specs.clone() {
            let env = spec.env.keys().filter(|key| !key.starts_with("NCCL_P2P_"));
            keys.extend(env.cloned().map(Axis::Env));
            keys.extend(spec.set.keys().cloned().map(Axis::Set));
        }
        axes.extend(keys);
        Self { axes, link_follows: false }.among(specs)
    }

    /// Axes that vary among some of these cells. Only checks axes that vary among all.
    pub fn among<'a>(&self, specs: impl Iterator<Item = &'a Spec> + Clone) -> Self {
        let Some(first) = specs.clone().next() else { return Self::default() };
        let varies = |axis: &&Axis| match axis {
            Axis::Option(name) => options::option(name)
                .is_some_and(|option| specs.clone().any(|spec| !option.same(spec, first))),
            axis => {
                let value = axis.value(first);
                specs.clone().any(|spec| axis.value(spec) != value)
            }
        };
        let axes: Vec<Axis> = self.axes.iter().filter(varies).cloned().collect();
        let link_follows = axes.contains(&Axis::Option("link")) && link_follows(specs.clone());
        Self { axes, link_follows }
    }

    /// Axes without one that is shown elsewhere (as a column, say). Without P2P, links that follow from it go too.
    pub fn without(&self, axis: &Axis) -> Self {
        let mut other = self.clone();
        other.axes.retain(|varied| {
            varied != axis && !matches!(varied, Axis::Option(name) if axis.spans(name))
        });
        if *axis == Axis::ARCHITECTURE {
            // the architecture's values name them
            other.axes.retain(|varied| !varied.is_one_of(&VARIANTS));
        }
        if *axis == Axis::P2P && self.link_follows {
            other.axes.retain(|varied| *varied != Axis::Option("link"));
        }
        other
    }

    /// Axes for a narrow column: the model last, since many rows share it, and without options that model and hardware
    /// determine among these cells.
    pub fn model_last<'a>(&self, specs: impl Iterator<Item = &'a Spec> + Clone) -> Self {
        const MODEL: Axis = Axis::Option("model");
        let mut other = self.clone();
        if !other.axes.contains(&MODEL) {
            return other;
        }
        let follows = |axis: &Axis, of: &dyn Fn(&Spec) -> String| {
            let mut values: HashMap<String, String> = HashMap::new();
            specs.clone().all(|spec| {
                let value = axis.value(spec);
                *values.entry(of(spec)).or_insert_with(|| value.clone()) == value
            })
        };
        let model = |spec: &Spec| format!("{} {} {}", spec.model, spec.hardware, spec.p2p.as_str());
        let backend = |spec: &Spec| format!("{} {:?} {}", spec.model, spec.backend, spec.link);
        other.axes.retain(|axis| {
            *axis != MODEL
                && !(axis.is_one_of(&WORKLOAD) && follows(axis, &model))
                && !(axis.is_one_of(&COUNTS) && follows(axis, &backend))
        });
        other.axes.push(MODEL);
        other
    }

    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// Axes, without those that follow from others.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        let named = self.axes.contains(&Axis::ARCHITECTURE);
        self.axes.iter().filter(move |axis| {
            // the architecture's label includes the variant
            !(self.link_follows && **axis == Axis::Option("link") || named && axis.is_one_of(&VARIANTS))
        })
    }

    /// Label of a cell: `tp8 p2p-off link.alpha_us=20`; empty if nothing varies.
    pub fn words(&self, spec: &Spec) -> String {
        joined_labels(self.axes().map(|axis| axis.label(spec)))
    }

    /// Words of a cell for a sentence: `TP 8, batch 1, P2P off`; empty if nothing varies.
    pub fn phrase(&self, spec: &Spec) -> String {
        let phrases = self.axes().map(|axis| axis.phrase(spec)).filter(|phrase| !phrase.is_empty());
        phrases.collect::<Vec<_>>().join(", ")
    }

    /// Label of several cells, with all values: `tp8 link.alpha_us=5,20,50`.
    pub fn words_of<'a>(&self, specs: impl Iterator<Item = &'a Spec> + Clone) -> String {
        joined_labels(self.axes().map(|axis| {
            let mut labels: Vec<String> = Vec::new();
            for label in specs.clone().map(|spec| axis.label(spec)).filter(|label| !label.is_empty()) {
                // name a variable only before its first value
                let name = labels.first().and_then(|first| Some(first.split_once('=')?.0.to_owned()));
                let value = name.and_then(|name| label.strip_prefix(&name)?.strip_prefix('='));
                let label = value.filter(|_| labels.first() != Some(&label)).unwrap_or(&label);
                if !labels.iter().any(|known| known == label) {
                    labels.push(label.to_owned());
                }
            }
            labels.join(",")
        }))
    }

    /// Settings that this cell shares with all others: `tiny f32 tp2 b1 ...`.
    pub fn common(&self, spec: &Spec) -> String {
        let shown = OPTIONS.iter().filter(|option| {
            let used_by = option.about.used_by;
            let heeded = used_by.is_empty() || used_by.contains(&spec.backend);
            let is_set = heeded && !option.is_default(spec) && !COUNTS.contains(&option.name);
            ALWAYS.contains(&option.name) || is_set
        });
        let options = shown.map(|option| Axis::Option(option.name));
        let keys = spec.env.keys().cloned().map(Axis::Env);
        let keys = keys.chain(spec.set.keys().cloned().map(Axis::Set));
        let same = options.chain(keys).filter(|axis| !self.axes.contains(axis));
        joined_labels(same.map(|axis| axis.label(spec)))
    }
}

/// Label that distinguishes each run from the rest of its experiment, without the options in `but`, which have their own
/// columns: `link.alpha_us=20`; empty if nothing differs.
pub fn settings(records: &[Record], but: &[&str]) -> Vec<String> {
    let mut experiments: HashMap<Option<&str>, Vec<usize>> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        experiments.entry(record.experiment.as_deref()).or_default().push(at);
    }
    let mut settings = vec![String::new(); records.len()];
    for (experiment, runs) in experiments {
        // runs without an experiment are unrelated, so they only show settings that change what an architecture's name
        // means, such as another all-reduce
        let changes = |name: &str| name == "collective" || VARIANTS.contains(&name);
        let asked = OPTIONS.iter().filter(|option| {
            (experiment.is_some() || changes(option.name)) && !but.contains(&option.name)
        });
        let varied = Varied::in_options(runs.iter().map(|at| &records[*at].spec), asked);
        if !varied.is_empty() {
            runs.into_iter().for_each(|at| settings[at] = varied.words(&records[at].spec));
        }
    }
    settings
}

impl Axis {
    fn is_one_of(&self, options: &[&str]) -> bool {
        matches!(self, Self::Option(name) if options.contains(name))
    }

    /// Value of a cell on the axis as in labels: `tp8`, `p2p-off`, `link.alpha_us=20`.
    pub fn label(&self, spec: &Spec) -> String {
        match self {
            Self::Option("architecture") => spec.architecture_label(),
            Self::Option("link") => spec.link.label(),
            Self::Option(name) => {
                options::option(name).map(|option| option.label(spec)).unwrap_or_default()
            }
            Self::Division => self.value(spec),
            Self::Env(key) | Self::Set(key) => format!("{key}={}", self.value(spec)),
        }
    }

    /// Value of a cell on the axis as in sentences: `TP 8`, `P2P off`, `link.alpha_us=20`.
    pub fn phrase(&self, spec: &Spec) -> String {
        match self {
            Self::Option("tp") => format!("TP {}", spec.tp),
            Self::Option("pp") => format!("PP {}", spec.pp),
            Self::Option("ep") => format!("EP {}", spec.ep),
            Self::Option("dp") => format!("DP {}", spec.dp),
            Self::Option("batch") => format!("batch {}", spec.batch),
            Self::Option("p2p") => format!("P2P {}", spec.p2p.as_str()),
            Self::Division => {
                // EP always: without it, `TP 8` leaves open how the experts are divided
                let parts = [("TP", spec.tp, 2), ("DP", spec.dp, 2), ("EP", spec.ep, 1)].into_iter();
                let parts = parts.filter(|(_, ranks, least)| ranks >= least);
                parts.map(|(name, ranks, _)| format!("{name} {ranks}")).collect::<Vec<_>>().join(" + ")
            }
            _ => self.label(spec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::testing::{record, sim_record};
    use table::{Collective, Link};

    #[test]
    fn cells_of_one_grid_are_one_set_and_other_models_another() {
        let mut records = vec![
            sim_record("a", |_| (), 1.0, 1.0),
            sim_record("b", |s| s.tp = 4, 1.0, 1.0),
            sim_record("c", |s| s.p2p = P2p::Off, 1.0, 1.0),
            sim_record("d", |s| s.model = "1b".into(), 1.0, 1.0),
            sim_record("e", |s| s.collective = Collective::OneShot, 1.0, 1.0),
        ];
        records.push(records[0].clone());
        let sets = comparable(&records);
        assert_eq!(sets.iter().map(|set| set.cells.len()).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!(sets[0].values(|spec| spec.tp), [2, 4]);
        assert!(sets[0].get(&Architecture::Standard, 2, 1, P2p::Off).is_some());
        assert!(sets[2].name.contains("one-shot"), "{}", sets[2].name);
    }

    #[test]
    fn cells_that_differ_in_a_seed_alone_are_in_sets_of_their_own() {
        let of = |seed: u64, tp: u32| {
            sim_record(&format!("{seed}-{tp}"), |s| (s.seed, s.tp) = (seed, tp), 1.0, 1.0)
        };
        let records = [of(0, 2), of(1, 2), of(1, 4), of(2, 2), of(2, 4), of(2, 8)];
        let runs = |set: &CellSet| set.cells.iter().map(|cell| cell.run.clone()).collect::<Vec<_>>();
        let sets: Vec<Vec<String>> = comparable(&records).iter().map(runs).collect();
        assert_eq!(sets, [vec!["0-2", "1-4", "2-8"], vec!["1-2", "2-4"], vec!["2-2"]]);
    }

    #[test]
    fn a_link_that_p2p_chose_does_not_part_cells_but_others_do() {
        let link = |gb_s| Link::Emulated { alpha_us: 1.0, gb_s };
        let on = record("a", |s| s.link = link(9.0), 0, &[(1.0, 1.0)]);
        let off = record("b", |s| (s.p2p, s.link) = (P2p::Off, link(1.0)), 0, &[(1.0, 1.0)]);
        assert_eq!(comparable(&[on.clone(), off.clone()]).len(), 1);
        let other = record("c", |s| s.link = link(5.0), 0, &[(1.0, 1.0)]);
        let sets = comparable(&[on, off, other]);
        assert_eq!(sets.len(), 3, "which of the links is P2P's cannot be known");
        assert!(sets.iter().all(|set| set.name.contains("link emulated")));
    }

    #[test]
    fn a_narrow_column_says_first_what_rows_differ_in() {
        let spec = |model: &str, output_tokens, alpha: &str| {
            let mut spec = Spec { model: model.into(), output_tokens, ..Spec::default() };
            spec.set.insert("link.alpha_us".into(), alpha.into());
            spec
        };
        let specs = [spec("1b", 64, "5"), spec("1b", 64, "20"), spec("3b", 512, "5")];
        let varied = Varied::from_specs(specs.iter()).model_last(specs.iter());
        assert_eq!(varied.words(&specs[0]), "link.alpha_us=5 1b");
        assert_eq!(varied.words_of(specs[..2].iter()), "link.alpha_us=5,20 1b");
        // what one model was run with in two ways is said
        let more = [&specs[..], &[spec("1b", 128, "5")]].concat();
        let varied = Varied::from_specs(more.iter()).model_last(more.iter());
        assert_eq!(varied.words(&more[0]), "output64 link.alpha_us=5 1b");
    }

    #[test]
    fn a_link_with_the_name_of_its_p2p_setting_is_named_once() {
        let links = [(P2p::On, Link::P2pOn), (P2p::Off, Link::P2pOff), (P2p::On, Link::Native)];
        let specs = links.map(|(p2p, link)| Spec { p2p, link, ..Spec::default() });
        let varied = Varied::from_specs(specs.iter());
        assert_eq!(
            specs.each_ref().map(|spec| varied.words(spec)),
            ["p2p-on", "p2p-off", "p2p-on native"]
        );
        assert_eq!(varied.words_of(specs[..2].iter()), "p2p-on,p2p-off");
        let alike = Varied::from_specs(specs[1..2].iter());
        assert_eq!(alike.common(&specs[1]).matches("p2p-off").count(), 1);
    }

    #[test]
    fn runs_are_set_apart_within_their_experiment_by_what_has_no_column() {
        let of = |experiment: Option<&str>, tp, p2p, alpha_us, key: &str| {
            let link = Link::Emulated { alpha_us, gb_s: 5.0 };
            let change = move |spec: &mut Spec| (spec.tp, spec.p2p, spec.link) = (tp, p2p, link);
            let mut record = sim_record("run", change, 0.0, 1.0);
            record.spec.set.insert("link.alpha_us".into(), key.into());
            record.experiment = experiment.map(str::to_owned);
            record
        };
        let [on, off] = [P2p::On, P2p::Off];
        let mut records = vec![
            of(Some("a"), 2, on, 1.0, "5"),
            of(Some("a"), 4, off, 9.0, "5"),
            of(Some("b"), 2, on, 1.0, "5"),
            of(Some("b"), 2, on, 1.0, "20"),
            of(None, 2, on, 1.0, "5"),
            of(None, 8, off, 9.0, "5"),
        ];
        let but = ["tp", "p2p"];
        let shown = settings(&records, &but);
        // the link follows P2P, and runs of no experiment are not compared in their options
        assert_eq!(shown, ["", "", "link.alpha_us=5", "link.alpha_us=20", "", ""]);
        // what its name does not say of a plain cell is told of any
        records[5].spec.collective = Collective::OneShot;
        assert_eq!(settings(&records, &but)[4..], ["nccl", "one-shot"]);
        // another link at the same P2P does not
        records.push(of(Some("a"), 2, on, 3.0, "5"));
        let shown = settings(&records, &but);
        assert_eq!(shown[0], "1us+5GB/s");
        assert_eq!(shown[6], "3us+5GB/s");
    }
}
