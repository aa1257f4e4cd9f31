//! What happens before what on the software device, rebuilt from its log of calls, and whether that
//! suffices: every value that a kernel reads was written before, and nothing is written that somebody may
//! still read. Exact to two bytes, since kernels are compiled to tell what they touch.
//!
//! The rules are CUDA's: work on a stream runs in order; a wait comes after the work that was recorded; a
//! captured graph keeps only the order that streams and events gave it, and one launch of it follows
//! another; what a thread enqueues after a synchronisation comes after what it waited for.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;

/// A line of the log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Line {
    pub call: String,
    thread: u64,
    device: Option<u64>,
    stream: Option<u64>,
    node: Option<u64>,
    kind: Option<String>,
    name: Option<String>,
    event: Option<u64>,
    graph: Option<u64>,
    exec: Option<u64>,
    begin: u64,
    end: u64,
    address: u64,
    bytes: u64,
    after: Vec<u64>,
    /// Address and length, in turn.
    reads: Vec<u64>,
    writes: Vec<u64>,
}

impl Line {
    /// A stream's wait for an event: in a capture (an edge of the graph), or enqueued.
    pub fn is_wait(&self) -> bool {
        self.call == "wait" || self.call == "enqueue" && self.is("wait")
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("?")
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

/// The lines of a log.
pub fn read(path: &std::path::Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[derive(Default)]
struct Graph {
    names: Vec<String>,
    /// Events that a node records, with times.
    records: Vec<Option<u64>>,
    after: Vec<Vec<usize>>,
    /// What each of its streams' next node follows.
    leaves: HashMap<u64, Vec<usize>>,
    origin: u64,
}

/// Numbers of executions that come before each, as sets of bits.
#[derive(Default)]
struct Order {
    names: Vec<String>,
    before: Vec<Vec<u64>>,
}

impl Order {
    fn add(&mut self, name: String, after: &[usize]) -> usize {
        let number = self.names.len();
        let mut bits = vec![0; number / 64 + 1];
        for &one in after {
            for (to, from) in bits.iter_mut().zip(&self.before[one]) {
                *to |= from;
            }
            bits[one / 64] |= 1 << (one % 64);
        }
        self.names.push(name);
        self.before.push(bits);
        number
    }

    fn is_before(&self, first: usize, second: usize) -> bool {
        first == second
            || self.before[second].get(first / 64).is_some_and(|bits| bits >> (first % 64) & 1 == 1)
    }
}

/// Bytes with the same history.
#[derive(Clone, Default)]
struct Segment {
    end: u64,
    writer: Option<usize>,
    readers: Vec<usize>,
}

/// Finds what is not in order. Feed it every line of a log.
#[derive(Default)]
struct Checker {
    order: Order,
    nodes: HashMap<u64, usize>,
    /// The last work of streams, by device and stream.
    tails: HashMap<(u64, u64), usize>,
    devices: HashMap<u64, u64>,
    /// What each thread knows to be done.
    known: HashMap<u64, usize>,
    events: HashMap<u64, usize>,
    captured: HashMap<u64, (u64, Vec<usize>)>,
    graphs: HashMap<u64, Graph>,
    execs: HashMap<u64, (u64, Option<usize>)>,
    memory: BTreeMap<u64, Segment>,
    problems: Vec<String>,
    said: HashSet<(usize, usize)>,
}

/// What is not in order in a log; empty where all is.
pub fn problems(lines: &[Line]) -> Vec<String> {
    let mut checker = Checker::default();
    for line in lines {
        checker.line(line);
    }
    checker.problems
}

impl Checker {
    fn line(&mut self, line: &Line) {
        match line.call.as_str() {
            "stream" => {
                self.devices.insert(line.stream.unwrap(), line.device.unwrap());
            }
            "begin_capture" => {
                let origin = line.stream.unwrap();
                let leaves = HashMap::from([(origin, Vec::new())]);
                self.graphs.insert(line.graph.unwrap(), Graph { leaves, origin, ..Graph::default() });
            }
            "end_capture" => self.end_capture(line.graph.unwrap()),
            "node" => self.graph_node(line),
            "record" => {
                let graph = line.graph.unwrap();
                let leaves = self.graphs[&graph].leaves.get(&line.stream.unwrap());
                self.captured.insert(line.event.unwrap(), (graph, leaves.cloned().unwrap_or_default()));
            }
            "wait" => self.captured_wait(line),
            "instantiate" => {
                self.execs.insert(line.exec.unwrap(), (line.graph.unwrap(), None));
            }
            "graph_launch" => self.graph_launch(line),
            "enqueue" => self.enqueue(line),
            "sync" => self.sync(line),
            "alloc" => self.forget(line.address, line.bytes),
            "ran" => self.ran(line),
            _ => {}
        }
    }

    fn graph_node(&mut self, line: &Line) {
        let graph = self.graphs.get_mut(&line.graph.unwrap()).expect("a capture");
        let number = line.node.unwrap() as usize;
        assert_eq!(number, graph.names.len(), "the nodes of a capture come in order");
        let stream = line.stream.unwrap();
        if !graph.leaves.contains_key(&stream) {
            self.problems.push(format!("{} on stream {stream} is not in the capture", line.name()));
        }
        let leaves = graph.leaves.entry(stream).or_default();
        graph.after.push(std::mem::replace(leaves, vec![number]));
        graph.names.push(line.name().to_owned());
        graph.records.push(line.event);
    }

    fn captured_wait(&mut self, line: &Line) {
        let (graph, leaves) = self.captured[&line.event.unwrap()].clone();
        let stream = line.stream.unwrap();
        let own = self.graphs.get_mut(&graph).expect("a capture").leaves.entry(stream).or_default();
        own.extend(leaves);
        own.sort_unstable();
        own.dedup();
    }

    /// All that was forked is joined; the driver refuses a capture otherwise.
    fn end_capture(&mut self, graph: u64) {
        let graph = &self.graphs[&graph];
        let mut todo = graph.leaves[&graph.origin].clone();
        let mut reached = HashSet::new();
        while let Some(node) = todo.pop() {
            if reached.insert(node) {
                todo.extend(&graph.after[node]);
            }
        }
        if reached.len() < graph.names.len() {
            self.problems.push("a capture ends with work that was not joined".into());
        }
    }

    fn after(&self, line: &Line, more: impl IntoIterator<Item = usize>) -> Vec<usize> {
        self.known.get(&line.thread).copied().into_iter().chain(more).collect()
    }

    fn graph_launch(&mut self, line: &Line) {
        let stream = line.stream.unwrap();
        let key = (self.devices[&stream], stream);
        let (number, last) = self.execs[&line.exec.unwrap()];
        let after = self.after(line, self.tails.get(&key).copied().into_iter().chain(last));
        let begin = self.order.add("a graph's begin".into(), &after);
        let graph = &self.graphs[&number];
        let mut made = Vec::new();
        for (i, name) in graph.names.iter().enumerate() {
            let after: Vec<usize> = match graph.after[i].as_slice() {
                [] => vec![begin],
                nodes => nodes.iter().map(|&node| made[node]).collect(),
            };
            let node = self.order.add(format!("{name} (node {i} of graph {number})"), &after);
            made.push(node);
            self.nodes.insert(line.begin + 1 + i as u64, node);
            if let Some(event) = graph.records[i] {
                self.events.insert(event, node);
            }
        }
        made.push(begin);
        let end = self.order.add("a graph's end".into(), &made);
        self.nodes.insert(line.end, end);
        self.tails.insert(key, end);
        self.execs.insert(line.exec.unwrap(), (number, Some(end)));
    }

    fn enqueue(&mut self, line: &Line) {
        let key = (line.device.unwrap(), line.stream.unwrap());
        let waited = line.event.filter(|_| line.is("wait")).map(|event| self.events[&event]);
        let after = self.after(line, self.tails.get(&key).copied().into_iter().chain(waited));
        let node = self.order.add(line.name().to_owned(), &after);
        self.nodes.insert(line.node.unwrap(), node);
        self.tails.insert(key, node);
        if let Some(event) = line.event.filter(|_| line.is("record")) {
            self.events.insert(event, node);
        }
    }

    fn sync(&mut self, line: &Line) {
        let done: Vec<usize> = match (line.node, line.device) {
            (Some(node), _) => self.nodes.get(&node).copied().into_iter().collect(),
            (None, device) => {
                let own = self.tails.iter().filter(|((of, _), _)| Some(*of) == device);
                own.map(|(_, node)| *node).collect()
            }
        };
        let after = self.after(line, done);
        let node = self.order.add("a synchronisation".into(), &after);
        self.known.insert(line.thread, node);
    }

    /// Makes segments end at `at`.
    fn split(&mut self, at: u64) {
        if let Some((_, segment)) = self.memory.range_mut(..at).next_back()
            && segment.end > at
        {
            let rest = segment.clone();
            segment.end = at;
            self.memory.insert(at, rest);
        }
    }

    fn forget(&mut self, address: u64, bytes: u64) {
        self.split(address);
        self.split(address + bytes);
        let gone: Vec<u64> =
            self.memory.range(address..address + bytes).map(|(start, _)| *start).collect();
        for start in gone {
            self.memory.remove(&start);
        }
    }

    fn ran(&mut self, line: &Line) {
        // a node whose line was taken out of the log has no place in the order
        let Some(&node) = self.nodes.get(&line.node.unwrap()) else { return };
        for range in line.reads.chunks(2) {
            self.read(node, range[0], range[0] + range[1]);
        }
        for range in line.writes.chunks(2) {
            self.write(node, range[0], range[0] + range[1]);
        }
    }

    fn say(&mut self, first: usize, second: usize, what: &str) {
        if self.said.insert((first, second)) {
            let name = |node: usize| format!("{} #{node}", self.order.names[node]);
            self.problems.push(format!("{} {what} {}", name(second), name(first)));
        }
    }

    fn read(&mut self, node: usize, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let (mut covered, mut unordered) = (0, Vec::new());
        for (at, segment) in self.memory.range_mut(start..end) {
            covered += segment.end - at;
            match segment.writer {
                Some(writer) if !self.order.is_before(writer, node) => unordered.push(writer),
                Some(_) => {}
                None => covered -= segment.end - at,
            }
            let order = &self.order;
            segment.readers.retain(|&reader| !order.is_before(reader, node));
            segment.readers.push(node);
        }
        for writer in unordered {
            self.say(writer, node, "reads what it need not come after:");
        }
        if covered < end - start && self.said.insert((node, node)) {
            let name = &self.order.names[node];
            let missing = end - start - covered;
            self.problems.push(format!("{name} #{node} reads {missing} bytes that nobody wrote"));
        }
    }

    fn write(&mut self, node: usize, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        let old: Vec<(u64, Segment)> =
            self.memory.range(start..end).map(|(at, segment)| (*at, segment.clone())).collect();
        for (at, segment) in old {
            self.memory.remove(&at);
            for other in segment.writer.into_iter().chain(segment.readers) {
                if !self.order.is_before(other, node) {
                    self.say(other, node, "writes over what it need not come after:");
                }
            }
        }
        self.memory.insert(start, Segment { end, writer: Some(node), readers: Vec::new() });
    }
}

/// For every graph, the edges that the device itself noted, against those rebuilt here.
pub fn edges_agree(lines: &[Line]) {
    let mut checker = Checker::default();
    for line in lines {
        checker.line(line);
        if line.call == "node" {
            let mut rebuilt =
                checker.graphs[&line.graph.unwrap()].after[line.node.unwrap() as usize].clone();
            rebuilt.sort_unstable();
            let mut noted: Vec<usize> = line.after.iter().map(|&node| node as usize).collect();
            noted.sort_unstable();
            assert_eq!(rebuilt, noted, "node {:?} of graph {:?}", line.node, line.graph);
        }
    }
}

/// A log as the device writes it.
#[cfg(test)]
fn lines(text: &str) -> Vec<Line> {
    text.trim().lines().map(|line| serde_json::from_str(line.trim()).expect(line)).collect()
}

#[test]
fn an_event_orders_two_streams_and_its_absence_is_found() {
    let log = |wait: &str| {
        lines(&format!(
            r#"{{"call":"stream","stream":1,"device":0}}
            {{"call":"stream","stream":2,"device":0}}
            {{"call":"alloc","address":100,"bytes":8,"device":0}}
            {{"call":"enqueue","node":10,"stream":1,"device":0,"kind":"kernel","name":"write"}}
            {{"call":"enqueue","node":11,"stream":1,"device":0,"kind":"record","name":"record","event":5}}
            {wait}
            {{"call":"enqueue","node":13,"stream":2,"device":0,"kind":"kernel","name":"read"}}
            {{"call":"ran","node":10,"name":"write","writes":[100,8]}}
            {{"call":"ran","node":13,"name":"read","reads":[104,4]}}"#
        ))
    };
    let wait =
        r#"{"call":"enqueue","node":12,"stream":2,"device":0,"kind":"wait","name":"wait","event":5}"#;
    assert_eq!(problems(&log(wait)), Vec::<String>::new());
    assert_eq!(
        problems(&log(r#"{"call":"other"}"#)),
        ["read #2 reads what it need not come after: write #0"]
    );
}

#[test]
fn memory_that_nobody_wrote_and_writes_under_a_reader_are_found() {
    let log = lines(
        r#"{"call":"stream","stream":1,"device":0}
        {"call":"enqueue","node":10,"stream":1,"device":0,"kind":"kernel","name":"first"}
        {"call":"enqueue","node":11,"stream":1,"device":0,"kind":"kernel","name":"second"}
        {"call":"enqueue","node":12,"stream":2,"device":0,"kind":"kernel","name":"third"}
        {"call":"ran","node":10,"writes":[100,4]}
        {"call":"ran","node":11,"reads":[98,6]}
        {"call":"ran","node":12,"writes":[102,2]}"#,
    );
    assert_eq!(
        problems(&log),
        [
            "second #1 reads 2 bytes that nobody wrote",
            "third #2 writes over what it need not come after: first #0",
            "third #2 writes over what it need not come after: second #1"
        ]
    );
}
