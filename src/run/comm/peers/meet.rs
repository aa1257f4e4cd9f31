//! How the processes of one run find each other: rank 0 listens at the launcher's address, the others knock at its
//! ports until it answers. Both sides prove that they have the job's secret before anything that they say counts;
//! then who comes is checked: version, rank, number of ranks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::mailbox::Mailbox;
use super::secret::{self, Secret};
use super::wire::{Answer, Frame, Greeting, Hello, Visitor};
use base::error::{Error, Result};

/// Between two looks at who came, and between two knocks at all ports.
const POLL: Duration = Duration::from_millis(20);
/// A greeting takes no longer than this, from its first byte to its last.
const MANNERS: Duration = Duration::from_secs(5);
/// So many greetings may be under way beyond those of the ranks that are awaited; of more, the oldest ends.
const STRANGERS: usize = 32;
/// So many odd visitors are told of; of the others, their number.
const TOLD: usize = 8;
/// How long one address may take to accept a connection.
const KNOCK: Duration = Duration::from_secs(2);

/// Where and as whom a rank meets the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// Rank 0's host, by name or address.
    pub address: String,
    /// Ports on which it may listen, the preferred one first: it takes the first that is free,
    /// others try them all.
    pub ports: Vec<u16>,
    /// Tells this meeting from others on the same ports.
    pub job: u64,
    /// The rank of this process, from 0.
    pub rank: usize,
    /// How many ranks meet, this one included.
    pub ranks: usize,
}

/// A remark on ranks that are late: the meeting goes on until its time-out.
#[derive(Clone, Copy)]
pub struct Late<'a> {
    /// Waiting time before the remark, which is made once.
    pub after: Duration,
    /// Takes the ranks that are missing.
    pub report: &'a dyn Fn(&[usize]),
}

/// The connections of one rank: rank 0's to all others, another's to rank 0.
#[derive(Debug)]
pub(super) struct Wires {
    /// By rank; none to itself and between others.
    to: Arc<Vec<Option<Mutex<TcpStream>>>>,
}

impl Meeting {
    /// Whether rank 0 can be reached from its own host alone.
    pub fn is_here(&self) -> bool {
        resolve(&self.address, 0).is_ok_and(|all| all.iter().all(|address| address.ip().is_loopback()))
    }
}

impl Wires {
    pub fn send(&self, to: usize, frame: &Frame) -> io::Result<()> {
        send(&self.to, to, frame)
    }

    /// To all that can be reached; who cannot be finds out by itself.
    pub fn abort(&self, why: &str) {
        let frame = Frame::Abort(why.to_owned());
        for rank in 0..self.to.len() {
            let _ = send(&self.to, rank, &frame);
        }
    }

    /// Says good-bye; what was sent still arrives.
    pub fn leave(&self) {
        for (rank, wire) in self.to.iter().enumerate() {
            let _ = send(&self.to, rank, &Frame::Leave);
            if let Some(wire) = wire {
                let wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = wire.shutdown(Shutdown::Write);
            }
        }
    }
}

fn send(wires: &[Option<Mutex<TcpStream>>], to: usize, frame: &Frame) -> io::Result<()> {
    match wires.get(to) {
        Some(Some(wire)) => frame.write(&mut *wire.lock().unwrap_or_else(PoisonError::into_inner)),
        _ => Err(io::Error::new(ErrorKind::NotConnected, "no connection")),
    }
}

/// Meets the others. Rank 0 returns when all have come, another when rank 0 let it in.
pub(super) fn connect(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    late: Option<Late<'_>>,
    mine: &Arc<Mailbox>,
) -> Result<Wires> {
    if meeting.rank >= meeting.ranks {
        return Err(Error::input(format!(
            "rank {} of {} ranks: ranks count from 0",
            meeting.rank, meeting.ranks
        )));
    }
    let streams = if meeting.rank == 0 {
        gather_all(meeting, secret, timeout, late)?
    } else {
        let mut streams: Vec<Option<TcpStream>> = (0..meeting.ranks).map(|_| None).collect();
        streams[0] = Some(knock(meeting, secret, timeout, late)?);
        streams
    };
    for stream in streams.iter().flatten() {
        // small messages go at once, and none blocks for ever
        let set = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(None))
            .and_then(|()| stream.set_write_timeout(Some(timeout)));
        set.map_err(|e| Error::failed(format!("a connection between ranks: {e}")))?;
    }
    let readers: Vec<(usize, TcpStream)> = streams
        .iter()
        .enumerate()
        .filter_map(|(rank, stream)| Some((rank, stream.as_ref()?.try_clone())))
        .map(|(rank, clone)| clone.map(|stream| (rank, stream)))
        .collect::<io::Result<_>>()
        .map_err(|e| Error::failed(format!("a connection between ranks: {e}")))?;
    let to = Arc::new(streams.into_iter().map(|stream| stream.map(Mutex::new)).collect::<Vec<_>>());
    for (rank, stream) in readers {
        let (to, mine, hub) = (Arc::clone(&to), Arc::clone(mine), meeting.rank == 0);
        std::thread::Builder::new()
            .name(format!("from rank {rank}"))
            .spawn(move || receive(rank, stream, &mine, hub.then_some(&to)))
            .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    }
    Ok(Wires { to })
}

/// Takes in what `rank` sends until its connection ends. Rank 0 passes the end of one rank on to all.
fn receive(
    rank: usize,
    mut stream: TcpStream,
    mine: &Mailbox,
    relay: Option<&Arc<Vec<Option<Mutex<TcpStream>>>>>,
) {
    let pass_on = |why: &str| {
        for other in (0..relay.map_or(0, |to| to.len())).filter(|other| *other != rank) {
            if let Some(to) = relay {
                let _ = send(to, other, &Frame::Abort(why.to_owned()));
            }
        }
    };
    loop {
        match Frame::read(&mut stream) {
            Ok(frame) => {
                if let Frame::Abort(why) = &frame {
                    pass_on(why);
                }
                mine.take(rank, frame);
            }
            Err(e) => {
                let place = stream.peer_addr().map(|a| format!(" at {a}")).unwrap_or_default();
                let phase = mine.missing(rank).unwrap_or_default();
                let how = match e.kind() {
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                        "its process ended without a word".to_owned()
                    }
                    _ => format!("its connection failed: {e}"),
                };
                let why = format!("rank {rank}{place}{phase} is gone: {how}");
                if mine.lost(rank, &why) {
                    pass_on(&why);
                }
                return;
            }
        }
    }
}

/// A connection that must be done with by a moment, however slowly its other end sends.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "it took too long to say who it is"));
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(to)
    }
}

/// How a greeting went, as rank 0 sees it.
enum Greeted {
    /// It has the job's secret.
    Known(Visitor),
    /// It belongs to another job.
    Stranger,
    /// It is nobody of ours, and why.
    Odd(String),
}

/// Rank 0's part of a greeting.
fn greet(meeting: &Meeting, secret: &Secret, mut stream: &TcpStream) -> io::Result<Greeted> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(MANNERS))?;
    let mut from = Until { stream, end: Instant::now() + MANNERS };
    let hello = Hello::read(&mut from)?;
    if hello.job != meeting.job {
        return Ok(Greeted::Stranger);
    }
    let nonce = secret::nonce().map_err(|e| io::Error::other(e.to_string()))?;
    let greeting = Greeting { hello, nonce, port: stream.local_addr()?.port() };
    Answer::Challenge { nonce, proof: greeting.first(secret) }.write(&mut stream)?;
    Ok(Greeted::Known(Visitor::read(&greeting, secret, &mut from)?))
}

/// Greetings that are under way, oldest first. Each has a thread of its own: a slow or silent visitor must not
/// keep others waiting; and of too many the oldest ends, so that silence in numbers does not either.
struct Door {
    under_way: VecDeque<Arc<TcpStream>>,
    most: usize,
    sender: crossbeam_channel::Sender<(Arc<TcpStream>, Greeted)>,
}

impl Door {
    fn let_in(&mut self, meeting: &Meeting, secret: &Secret, stream: TcpStream) {
        self.under_way.retain(|stream| Arc::strong_count(stream) > 1);
        if self.under_way.len() >= self.most
            && let Some(oldest) = self.under_way.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let stream = Arc::new(stream);
        self.under_way.push_back(Arc::clone(&stream));
        let (sender, meeting, secret) = (self.sender.clone(), meeting.clone(), secret.clone());
        let greeting = std::thread::Builder::new().name("a greeting".into()).spawn(move || {
            let greeted = greet(&meeting, &secret, &stream);
            let greeted = greeted.unwrap_or_else(|e| Greeted::Odd(e.to_string()));
            let _ = sender.send((stream, greeted));
        });
        // without a thread the connection closes, and whoever it was may come again
        drop(greeting);
    }
}

/// Rank 0's part of meeting: listens until every other rank has come, and answers each.
fn gather_all(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    mut late: Option<Late<'_>>,
) -> Result<Vec<Option<TcpStream>>> {
    let began = Instant::now();
    let mut streams: Vec<Option<TcpStream>> = (0..meeting.ranks).map(|_| None).collect();
    if meeting.ranks == 1 {
        return Ok(streams);
    }
    let listener = listen(meeting)?;
    let (sender, visitors) = crossbeam_channel::unbounded();
    let most = meeting.ranks + STRANGERS;
    let mut door = Door { under_way: VecDeque::new(), most, sender };
    let mut odd: Vec<String> = Vec::new();
    let missing = |streams: &[Option<TcpStream>]| -> Vec<usize> {
        (1..meeting.ranks).filter(|rank| streams[*rank].is_none()).collect()
    };
    while !missing(&streams).is_empty() {
        match listener.accept() {
            Ok((stream, _)) => door.let_in(meeting, secret, stream),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL),
            Err(e) => {
                odd.push(format!("a connection could not be taken: {e}"));
                std::thread::sleep(POLL);
            }
        }
        while let Ok((stream, greeted)) = visitors.try_recv() {
            let address = stream.peer_addr().map_or_else(|_| "?".into(), |a| a.to_string());
            let decision = match greeted {
                Greeted::Known(visitor) => decide(meeting, &visitor, &streams),
                Greeted::Stranger => Decision::Stranger,
                Greeted::Odd(why) => Decision::Refused(format!("what came from {address}: {why}")),
            };
            let answer = match &decision {
                Decision::Welcome(_) => Answer::Welcome,
                Decision::Stranger => Answer::Elsewhere,
                Decision::Refused(why) | Decision::Contradiction(why) => Answer::Refused(why.clone()),
            };
            let sent = answer.write(&mut &*stream);
            match decision {
                Decision::Welcome(rank) => match (sent, stream.try_clone()) {
                    (Ok(()), Ok(stream)) => streams[rank] = Some(stream),
                    _ => odd.push(format!("rank {rank} went away at once ({address})")),
                },
                Decision::Stranger => odd.push(format!("another job's rank came from {address}")),
                Decision::Refused(why) => odd.push(format!("{why} ({address})")),
                Decision::Contradiction(why) => {
                    tell_all(&streams, &why);
                    return Err(Error::failed(format!("{why} ({address})")));
                }
            }
        }
        let away = missing(&streams);
        if !away.is_empty() {
            report_late(began, &mut late, &away);
        }
        if began.elapsed() > timeout && !away.is_empty() {
            let why = never_came(meeting, &away, timeout, &odd);
            tell_all(&streams, &why);
            return Err(Error::failed(why));
        }
    }
    Ok(streams)
}

/// Reports the ranks that are missing once, when its time has come.
fn report_late(began: Instant, late: &mut Option<Late<'_>>, missing: &[usize]) {
    if let Some(now) = late.take_if(|late| began.elapsed() > late.after) {
        (now.report)(missing);
    }
}

fn never_came(meeting: &Meeting, late: &[usize], timeout: Duration, odd: &[String]) -> String {
    let names: Vec<String> = late.iter().map(usize::to_string).collect();
    let more = odd.len().saturating_sub(TOLD);
    let odd: String = odd.iter().take(TOLD).map(|odd| format!("; {odd}")).collect();
    let odd = if more > 0 { format!("{odd}; and {more} more") } else { odd };
    format!(
        "rank{} {} of {} did not come to {} within {:.0} s{odd}",
        if late.len() == 1 { "" } else { "s" },
        names.join(", "),
        meeting.ranks,
        meeting.address,
        timeout.as_secs_f64(),
    )
}

/// Tells the processes that came why the meeting ends.
fn tell_all(streams: &[Option<TcpStream>], why: &str) {
    for mut stream in streams.iter().flatten() {
        let _ = Frame::Abort(why.to_owned()).write(&mut stream);
    }
}

/// What becomes of a visitor.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Welcome(usize),
    /// It belongs to another job, and is sent elsewhere.
    Stranger,
    /// It goes; the right one may still come.
    Refused(String),
    /// It has this job's secret and says something else about the job: nothing can come of it.
    Contradiction(String),
}

fn decide(meeting: &Meeting, visitor: &Visitor, streams: &[Option<TcpStream>]) -> Decision {
    let version = env!("CARGO_PKG_VERSION");
    let (rank, ranks) = (visitor.rank as usize, visitor.ranks as usize);
    if visitor.version != version {
        return Decision::Contradiction(format!(
            "rank {rank} is ladderscope {}, rank 0 is {version}: start the same version everywhere",
            visitor.version
        ));
    }
    if ranks != meeting.ranks {
        return Decision::Contradiction(format!(
            "rank {rank} was started as one of {ranks} ranks, rank 0 as one of {}",
            meeting.ranks
        ));
    }
    match streams.get(rank) {
        _ if rank == 0 => Decision::Contradiction("rank 0 was started twice".into()),
        None => Decision::Contradiction(format!("rank {rank} of {ranks} ranks: ranks count from 0")),
        Some(Some(first)) => {
            let place = first.peer_addr().map(|a| format!(" from {a}")).unwrap_or_default();
            Decision::Refused(format!("rank {rank} came twice: it is here already{place}"))
        }
        Some(None) => Decision::Welcome(rank),
    }
}

fn listen(meeting: &Meeting) -> Result<TcpListener> {
    // the address by which others know this host, and no other one of its own
    let ip: IpAddr = resolve(&meeting.address, 0)?[0].ip();
    let mut problems = Vec::new();
    for port in &meeting.ports {
        match TcpListener::bind((ip, *port)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        }) {
            Ok(listener) => return Ok(listener),
            Err(e) if e.kind() == ErrorKind::AddrNotAvailable => {
                return Err(Error::failed(format!(
                    "rank 0 cannot listen on {ip}, which is no address of this host: MASTER_ADDR names it"
                )));
            }
            Err(e) => problems.push(format!("port {port}: {e}")),
        }
    }
    Err(Error::failed(format!(
        "rank 0 cannot listen on {ip} ({}); name free ports with LADDERSCOPE_PORT",
        problems.join(", ")
    )))
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let all: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::failed(format!("rank 0's host '{host}' has no address: {e}")))?
        .collect();
    if all.is_empty() {
        return Err(Error::failed(format!("rank 0's host '{host}' has no address")));
    }
    Ok(all)
}

/// Another rank's part: until rank 0 lets it in.
fn knock(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    mut late: Option<Late<'_>>,
) -> Result<TcpStream> {
    let began = Instant::now();
    let rank = meeting.rank;
    loop {
        let mut latest = String::new();
        for port in &meeting.ports {
            for address in resolve(&meeting.address, *port)? {
                match knock_once(meeting, secret, address) {
                    Ok(Ok(stream)) => return Ok(stream),
                    Ok(Err(Answer::Refused(why))) => {
                        return Err(Error::failed(format!(
                            "rank 0 at {address} does not let rank {rank} in: {why}"
                        )));
                    }
                    Ok(Err(_)) => latest = format!("{address}: it belongs to another job"),
                    Err(e) => latest = format!("{address}: {e}"),
                }
            }
        }
        report_late(began, &mut late, &[0]);
        if began.elapsed() > timeout {
            return Err(Error::failed(format!(
                "rank {rank} did not find rank 0 at {}, ports {}, within {:.0} s (last: {latest}); \
                 it was not started, has ended, or is elsewhere: MASTER_ADDR names its host",
                meeting.address,
                ports(&meeting.ports),
                timeout.as_secs_f64(),
            )));
        }
        std::thread::sleep(POLL);
    }
}

fn knock_once(
    meeting: &Meeting,
    secret: &Secret,
    address: SocketAddr,
) -> io::Result<Result<TcpStream, Answer>> {
    let stream = TcpStream::connect_timeout(&address, KNOCK)?;
    stream.set_write_timeout(Some(MANNERS))?;
    let mut from = Until { stream: &stream, end: Instant::now() + MANNERS };
    let nonce = secret::nonce().map_err(|e| io::Error::other(e.to_string()))?;
    let hello = Hello { job: meeting.job, nonce };
    hello.write(&mut &stream)?;
    let (nonce, proof) = match Answer::read(&mut from)? {
        Answer::Challenge { nonce, proof } => (nonce, proof),
        // nothing else has been proven yet, so that it may be anybody who says it
        Answer::Refused(why) => return Err(io::Error::other(why)),
        other => return Ok(Err(other)),
    };
    let greeting = Greeting { hello, nonce, port: address.port() };
    if !greeting.is_first(secret, &proof) {
        return Err(io::Error::other("who listens there does not have this job's secret"));
    }
    Visitor::new(meeting.rank, meeting.ranks).write(&greeting, secret, &mut &stream)?;
    let answer = Answer::read(&mut from)?;
    Ok(match answer {
        Answer::Welcome => Ok(stream),
        other => Err(other),
    })
}

fn ports(ports: &[u16]) -> String {
    match (ports.first(), ports.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(first), _) => first.to_string(),
        _ => "none".into(),
    }
}
