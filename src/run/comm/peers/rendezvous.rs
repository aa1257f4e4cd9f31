//! Rendezvous of a run's processes: rank 0 listens at the launcher's address, the others try its ports until it
//! answers. After the handshake ([`super::handshake`]) rank 0 checks version, rank and number of ranks.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::handshake::{Admission, Handshake, MeetingMember, answer};
use super::mailbox::{Frame, Mailbox};
use super::secret::Secret;
use base::error::{Error, Result};

/// Poll interval for new connections, and between two rounds over all ports.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of a handshake, from its first byte to its last.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of handshakes in progress beyond the awaited ranks; the oldest is dropped.
const EXTRA_HANDSHAKES: usize = 32;
/// Maximum number of failed handshakes in the error; the rest are counted.
const MAX_LISTED_HANDSHAKES: usize = 8;
/// Timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Place at which the processes of a run connect, and this process's rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    pub address: String,
    /// Candidate ports in order of preference: rank 0 listens on the first free one, others try them all.
    pub ports: Vec<u16>,
    /// Job id, to tell apart jobs on the same ports.
    pub job: u64,
    pub rank: usize,
    pub ranks: usize,
}

/// Handling of late ranks: `report` gets them once, after this time; the rendezvous goes on until its timeout or until
/// `stop` returns true.
#[derive(Clone, Copy)]
pub struct LateRanks<'a> {
    pub after: Duration,
    pub report: &'a dyn Fn(&[usize]),
    pub stop: &'a dyn Fn() -> bool,
}

/// Connections of one rank: rank 0 connects to all others, every other rank to rank 0.
#[derive(Clone, Debug)]
pub(super) struct Wires {
    /// Connections by rank; `None` if there is no connection.
    to: Arc<Vec<Option<Mutex<TcpStream>>>>,
}

impl Wires {
    pub fn send(&self, to: usize, frame: &Frame) -> io::Result<()> {
        match self.to.get(to) {
            Some(Some(wire)) => frame.write(&mut *wire.lock().unwrap_or_else(PoisonError::into_inner)),
            _ => Err(io::Error::new(ErrorKind::NotConnected, "no connection")),
        }
    }

    /// Sends the abort to every reachable rank; the others notice the closed connection.
    pub fn abort(&self, why: &str) {
        let frame = Frame::Abort(why.to_owned());
        for rank in 0..self.to.len() {
            let _ = self.send(rank, &frame);
        }
    }

    /// Announces a normal exit; data already sent still arrives.
    pub fn leave(&self) {
        for (rank, wire) in self.to.iter().enumerate() {
            let _ = self.send(rank, &Frame::Leave);
            if let Some(wire) = wire {
                let wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = wire.shutdown(Shutdown::Write);
            }
        }
    }
}

/// Probes an idle connection, so that a host that lost power or its network is noticed within 90 s.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 6)
}

/// Runs the rendezvous. Rank 0 returns when all ranks have connected, another rank when rank 0 accepts it.
pub(super) fn connect(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    late: Option<LateRanks<'_>>,
    mine: &Arc<Mailbox>,
) -> Result<Wires> {
    let Meeting { rank, ranks, .. } = *meeting;
    if rank >= ranks {
        return Err(Error::input(format!("rank {rank} of {ranks} ranks: ranks count from 0")));
    }
    let streams = if rank == 0 {
        gather_all(meeting, secret, timeout, late)?
    } else {
        let mut streams: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
        streams[0] = Some(join(meeting, secret, timeout, late)?);
        streams
    };
    let failed = |e: io::Error| Error::failed(format!("a connection between ranks: {e}"));
    let mut readers = Vec::new();
    for (rank, stream) in streams.iter().enumerate() {
        let Some(stream) = stream else { continue };
        // sends small messages at once, and bounds every write
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(None).map_err(failed)?;
        stream.set_write_timeout(Some(timeout)).map_err(failed)?;
        keep_alive(stream).map_err(|e| failed(e.into()))?;
        readers.push((rank, stream.try_clone().map_err(failed)?));
    }
    let wires =
        Wires { to: Arc::new(streams.into_iter().map(|stream| stream.map(Mutex::new)).collect()) };
    for (from, stream) in readers {
        let (relay, mine) = ((rank == 0).then(|| wires.clone()), Arc::clone(mine));
        std::thread::Builder::new()
            .name(format!("from rank {from}"))
            .spawn(move || receive(from, stream, &mine, relay.as_ref()))
            .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    }
    Ok(wires)
}

/// Receives frames from `rank` until its connection closes. Rank 0 forwards a rank's failure to all others.
fn receive(rank: usize, mut stream: TcpStream, mine: &Mailbox, relay: Option<&Wires>) {
    let pass_on = |why: &str| {
        let Some(wires) = relay else { return };
        for other in (0..wires.to.len()).filter(|other| *other != rank) {
            let _ = wires.send(other, &Frame::Abort(why.to_owned()));
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
                        "its process ended without a message".to_owned()
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
struct DeadlineReader<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "it did not identify itself in time"));
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(to)
    }
}

/// Both directions of a connection for a handshake.
fn bounded(stream: &TcpStream) -> io::Result<(DeadlineReader<'_>, &TcpStream)> {
    stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
    Ok((DeadlineReader { stream, end: Instant::now() + HANDSHAKE_TIMEOUT }, stream))
}

/// Connection whose handshake has ended, with the identity of the process or the reason of a failure.
type Greeted = (Arc<TcpStream>, Result<MeetingMember, String>);

/// Handshakes in progress on rank 0, oldest first. Each runs on its own thread so that a slow peer does not delay
/// others; above the limit the oldest is dropped, so many silent peers cannot block the rendezvous.
struct Handshakes {
    in_progress: VecDeque<Arc<TcpStream>>,
    most: usize,
    sender: crossbeam_channel::Sender<Greeted>,
}

impl Handshakes {
    fn start(&mut self, meeting: &Meeting, secret: &Secret, stream: TcpStream) {
        self.in_progress.retain(|stream| Arc::strong_count(stream) > 1);
        if self.in_progress.len() >= self.most
            && let Some(oldest) = self.in_progress.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let stream = Arc::new(stream);
        self.in_progress.push_back(Arc::clone(&stream));
        let (sender, secret, job) = (self.sender.clone(), secret.clone(), meeting.job);
        // if no thread starts, the connection closes and the peer may retry
        let _ = std::thread::Builder::new().name("a handshake".into()).spawn(move || {
            let member = accept(&stream, &secret, job).map_err(|e| e.to_string());
            let _ = sender.send((stream, member));
        });
    }
}

fn accept(stream: &TcpStream, secret: &Secret, job: u64) -> io::Result<MeetingMember> {
    stream.set_nonblocking(false)?;
    let port = stream.local_addr()?.port();
    let mut handshake = Handshake::new(bounded(stream)?, secret, job, port);
    let member = handshake.accept();
    if let Err(e) = &member {
        let _ = answer(stream, Err(&e.to_string()));
    }
    member
}

/// Failed handshakes, for the error if ranks are missing at the end.
#[derive(Default)]
struct FailedHandshakes {
    listed: Vec<String>,
    more: usize,
}

impl FailedHandshakes {
    fn push(&mut self, why: String) {
        match self.listed.len() < MAX_LISTED_HANDSHAKES {
            true => self.listed.push(why),
            false => self.more += 1,
        }
    }
}

impl fmt::Display for FailedHandshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listed.iter().try_for_each(|why| write!(f, "; {why}"))?;
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Rank 0's side: listens until every other rank has connected, and answers each.
fn gather_all(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    late: Option<LateRanks<'_>>,
) -> Result<Vec<Option<TcpStream>>> {
    let began = Instant::now();
    let mut is_reported = false;
    let mut streams: Vec<Option<TcpStream>> = (0..meeting.ranks).map(|_| None).collect();
    if meeting.ranks == 1 {
        return Ok(streams);
    }
    let listener = listen(meeting)?;
    let (sender, greeted) = crossbeam_channel::unbounded();
    let most = meeting.ranks + EXTRA_HANDSHAKES;
    let mut handshakes = Handshakes { in_progress: VecDeque::new(), most, sender };
    let mut odd = FailedHandshakes::default();
    loop {
        match listener.accept() {
            Ok((stream, _)) => handshakes.start(meeting, secret, stream),
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(CONNECT_POLL_INTERVAL),
            Err(e) => {
                odd.push(format!("a connection could not be taken: {e}"));
                std::thread::sleep(CONNECT_POLL_INTERVAL);
            }
        }
        while let Ok((stream, member)) = greeted.try_recv() {
            let address = stream.peer_addr().map_or_else(|_| "?".into(), |a| a.to_string());
            let member = match member {
                Ok(member) => member,
                Err(why) => {
                    odd.push(format!("what came from {address}: {why}"));
                    continue;
                }
            };
            if let Some(why) = contradiction(meeting, &member) {
                let _ = answer(&*stream, Err(&why));
                tell_all(&streams, &why);
                return Err(Error::failed(format!("{why} ({address})")));
            }
            let rank = member.rank;
            if let Some(first) = &streams[rank] {
                let place = first.peer_addr().map(|a| format!(" from {a}")).unwrap_or_default();
                let why = format!("rank {rank} came twice: it is here already{place}");
                let _ = answer(&*stream, Err(&why));
                odd.push(format!("{why} ({address})"));
                continue;
            }
            match (answer(&*stream, Ok(())), stream.try_clone()) {
                (Ok(()), Ok(stream)) => streams[rank] = Some(stream),
                _ => odd.push(format!("rank {rank} went away at once ({address})")),
            }
        }
        let missing: Vec<usize> = (1..meeting.ranks).filter(|rank| streams[*rank].is_none()).collect();
        if missing.is_empty() {
            return Ok(streams);
        }
        wait_on(began, late, &mut is_reported, &missing)
            .inspect_err(|_| tell_all(&streams, "rank 0 was stopped before all ranks came"))?;
        if began.elapsed() > timeout {
            let why = never_came(meeting, &missing, timeout, &odd);
            tell_all(&streams, &why);
            return Err(Error::failed(why));
        }
    }
}

/// Reports late ranks once. Returns an error if the rendezvous is to stop.
fn wait_on(
    began: Instant,
    late: Option<LateRanks<'_>>,
    is_reported: &mut bool,
    missing: &[usize],
) -> Result<()> {
    let Some(late) = late else { return Ok(()) };
    if (late.stop)() {
        return Err(Error::Interrupted);
    }
    if !*is_reported && began.elapsed() > late.after {
        *is_reported = true;
        (late.report)(missing);
    }
    Ok(())
}

fn never_came(meeting: &Meeting, late: &[usize], timeout: Duration, odd: &FailedHandshakes) -> String {
    let names: Vec<String> = late.iter().map(usize::to_string).collect();
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

/// Contradiction between this job's parameters and those of a process that knows its secret: the rendezvous fails.
fn contradiction(meeting: &Meeting, member: &MeetingMember) -> Option<String> {
    let MeetingMember { version, rank, ranks } = member;
    if version != VERSION {
        return Some(format!(
            "rank {rank} is ladderscope {version}, rank 0 is {VERSION}: start the same version everywhere"
        ));
    }
    if *ranks != meeting.ranks {
        return Some(format!(
            "rank {rank} was started as one of {ranks} ranks, rank 0 as one of {}",
            meeting.ranks
        ));
    }
    match rank {
        0 => Some("rank 0 was started twice".into()),
        rank if rank >= ranks => Some(format!("rank {rank} of {ranks} ranks: ranks count from 0")),
        _ => None,
    }
}

fn listen(meeting: &Meeting) -> Result<TcpListener> {
    // the address that other ranks use for this host, not any other one
    let mut ip: IpAddr = resolve(&meeting.address, 0)?[0].ip();
    let is_loopback_asked = meeting.address == "localhost"
        || meeting.address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if ip.is_loopback() && !is_loopback_asked {
        // Debian maps a host's own name to 127.0.1.1, which other hosts cannot reach; ranks prove the job's secret
        ip = std::net::Ipv4Addr::UNSPECIFIED.into();
    }
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
fn join(
    meeting: &Meeting,
    secret: &Secret,
    timeout: Duration,
    late: Option<LateRanks<'_>>,
) -> Result<TcpStream> {
    let began = Instant::now();
    let mut is_reported = false;
    let rank = meeting.rank;
    loop {
        let mut latest = String::new();
        for port in &meeting.ports {
            for address in resolve(&meeting.address, *port)? {
                match try_join(meeting, secret, address) {
                    Ok((stream, Ok(()))) => return Ok(stream),
                    Ok((_, Err(why))) => {
                        return Err(Error::failed(format!(
                            "rank 0 at {address} does not let rank {rank} in: {why}"
                        )));
                    }
                    Err(e) => latest = format!("{address}: {e}"),
                }
            }
        }
        wait_on(began, late, &mut is_reported, &[0])?;
        if began.elapsed() > timeout {
            return Err(Error::failed(format!(
                "rank {rank} did not find rank 0 at {}, ports {}, within {:.0} s (last: {latest}); \
                 it was not started, has ended, or is elsewhere: MASTER_ADDR names its host, and hosts without a \
                 common home directory need the same LADDERSCOPE_SECRET",
                meeting.address,
                ports(&meeting.ports),
                timeout.as_secs_f64(),
            )));
        }
        std::thread::sleep(CONNECT_POLL_INTERVAL);
    }
}

fn try_join(
    meeting: &Meeting,
    secret: &Secret,
    address: SocketAddr,
) -> io::Result<(TcpStream, Admission)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    let Meeting { job, rank, ranks, .. } = *meeting;
    let member = MeetingMember { version: VERSION.to_owned(), rank, ranks };
    let admission = Handshake::new(bounded(&stream)?, secret, job, address.port()).join(member)?;
    Ok((stream, admission))
}

fn ports(ports: &[u16]) -> String {
    match (ports.first(), ports.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(first), _) => first.to_string(),
        _ => "none".into(),
    }
}

/// Parses arbitrary bytes as every message type, for fuzzing; only termination matters.
#[cfg(any(test, fuzzing))]
pub fn read_any_message(bytes: &[u8]) {
    let mut from = bytes;
    while Frame::read(&mut from).is_ok() {}
    let handshake = || Handshake::new((bytes, io::sink()), &Secret::from_text("s"), 9, 23_000);
    let _ = handshake().accept();
    let _ = handshake().join(MeetingMember { version: VERSION.to_owned(), rank: 1, ranks: 2 });
}
