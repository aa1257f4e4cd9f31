//! Rendezvous of a run's processes: rank 0 listens at the launcher's address, the others try its ports until it
//! answers. Both sides prove that they know the job's secret before anything else is accepted; then rank 0 checks
//! version, rank and number of ranks.

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

/// Poll interval for new connections, and between two rounds over all ports.
const POLL: Duration = Duration::from_millis(20);
/// Timeout of a handshake, from its first byte to its last.
const MANNERS: Duration = Duration::from_secs(5);
/// Maximum number of handshakes in progress beyond the awaited ranks; the oldest is dropped.
const STRANGERS: usize = 32;
/// Maximum number of failed handshakes listed in the error; the rest are counted.
const TOLD: usize = 8;
/// Timeout for connecting to one address.
const KNOCK: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    pub address: String,
    /// Candidate ports in order of preference: rank 0 listens on the first free one, others try them all.
    pub ports: Vec<u16>,
    /// Job id, to tell apart jobs on the same ports.
    pub job: u64,
    pub rank: usize,
    pub ranks: usize,
}

/// One-time report about late ranks; the rendezvous continues until its timeout.
#[derive(Clone, Copy)]
pub struct Late<'a> {
    pub after: Duration,
    pub report: &'a dyn Fn(&[usize]),
}

/// Connections of one rank: rank 0 connects to all others, every other rank to rank 0.
#[derive(Debug)]
pub(super) struct Wires {
    /// By rank; `None` if there is no connection.
    to: Arc<Vec<Option<Mutex<TcpStream>>>>,
}

impl Meeting {
    /// True if rank 0 is reachable only from its own host (loopback).
    pub fn is_here(&self) -> bool {
        resolve(&self.address, 0).is_ok_and(|all| all.iter().all(|address| address.ip().is_loopback()))
    }
}

impl Wires {
    pub fn send(&self, to: usize, frame: &Frame) -> io::Result<()> {
        send(&self.to, to, frame)
    }

    /// Sends the abort to every reachable rank; the others notice the closed connection.
    pub fn abort(&self, why: &str) {
        let frame = Frame::Abort(why.to_owned());
        for rank in 0..self.to.len() {
            let _ = send(&self.to, rank, &frame);
        }
    }

    /// Announces a normal exit; data already sent still arrives.
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

/// Runs the rendezvous. Rank 0 returns when all ranks have connected, another rank when rank 0 accepts it.
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
        // sends small messages at once, and bounds every write
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

/// Receives frames from `rank` until its connection closes. Rank 0 forwards a rank's failure to all others.
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

/// Reader with a deadline for the whole handshake, however slowly the peer sends.
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

/// Outcome of a handshake on rank 0.
enum Greeted {
    Known(Visitor),
    Stranger,
    /// The handshake failed, with the reason.
    Odd(String),
}

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

/// Handshakes in progress, oldest first. Each runs on its own thread so that a slow peer does not delay others; above
/// the limit the oldest is dropped, so many silent peers cannot block the rendezvous.
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
        // if no thread starts, the connection closes and the peer may retry
        drop(greeting);
    }
}

/// Rank 0's side: listens until every other rank has connected, and answers each.
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

fn tell_all(streams: &[Option<TcpStream>], why: &str) {
    for mut stream in streams.iter().flatten() {
        let _ = Frame::Abort(why.to_owned()).write(&mut stream);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Welcome(usize),
    Stranger,
    /// Rejected; the right process may still connect.
    Refused(String),
    /// Has this job's secret but contradicts its parameters: the rendezvous fails.
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
    // the address that other ranks use for this host, not any other one
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

/// Another rank's side: retries until rank 0 accepts it.
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
        // the peer is not authenticated yet, so a refusal may come from anyone
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
