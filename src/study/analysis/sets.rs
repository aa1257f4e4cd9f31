//! Sets of cells that differ only in architecture, TP, batch and P2P, for one figure or table.

use std::collections::{BTreeMap, BTreeSet};

use plan::Architecture;
use table::{Collective, P2p, Record, Spec, aggregate};

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
    let mut alike: BTreeMap<(String, Architecture, u32, u32, P2p), usize> = BTreeMap::new();
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
        let seen = alike.entry(key).or_default();
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
    let mut name = super::pareto::group(record);
    if spec.collective != Collective::Nccl {
        name.push_str(&format!(", {} all-reduce", spec.collective));
    }
    let variant = spec.variant_label();
    if !variant.is_empty() {
        name.push_str(&format!(", {variant}"));
    }
    for (key, value) in spec.env.iter().filter(|(key, _)| !key.starts_with("NCCL_P2P_")) {
        name.push_str(&format!(", {key}={value}"));
    }
    if with_link {
        name.push_str(&format!(", link {}", spec.link));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Link;
    use table::testing::{record, sim_record};

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
}
