//! How the processes of one run find each other: rank 0 listens, the others knock at its ports until it
//! answers. Who comes is checked: program, version, job, rank, number of ranks.

use std::io::{self, ErrorKind};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::mailbox::Mailbox;
use super::wire::{Answer, Frame, Hello};
use crate::base::error::{Error, Result};

/// Between two looks at who came, and between two knocks at all ports.
const POLL: Duration = Duration::from_millis(20);
/// Who knocks must say who it is within this, and gets an answer within this.
const MANNERS: Duration = Duration::from_secs(5);
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

/// The connections of one rank: rank 0's to all others, another's to rank 0.
#[derive(Debug)]
pub(super) struct Wires {
    /// By rank; none to itself and between others.
    to: Arc<Vec<Option<Mutex<TcpStream>>>>,
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
pub(super) fn connect(meeting: &Meeting, timeout: Duration, mine: &Arc<Mailbox>) -> Result<Wires> {
    if meeting.rank >= meeting.ranks {
        return Err(Error::input(format!(
            "rank {} of {} ranks: ranks count from 0",
            meeting.rank, meeting.ranks
        )));
    }
    let streams = if meeting.rank == 0 {
        gather_all(meeting, timeout)?
    } else {
        let mut streams: Vec<Option<TcpStream>> = (0..meeting.ranks).map(|_| None).collect();
        streams[0] = Some(knock(meeting, timeout)?);
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

/// Who knocked, or what was wrong with it.
type Visitor = (TcpStream, SocketAddr, io::Result<Hello>);

/// Rank 0's part of meeting: listens until every other rank has come, and answers each.
fn gather_all(meeting: &Meeting, timeout: Duration) -> Result<Vec<Option<TcpStream>>> {
    let began = Instant::now();
    let mut streams: Vec<Option<TcpStream>> = (0..meeting.ranks).map(|_| None).collect();
    if meeting.ranks == 1 {
        return Ok(streams);
    }
    let listener = listen(meeting)?;
    let (sender, visitors) = crossbeam_channel::unbounded::<Visitor>();
    let mut odd: Vec<String> = Vec::new();
    let missing = |streams: &[Option<TcpStream>]| -> Vec<usize> {
        (1..meeting.ranks).filter(|rank| streams[*rank].is_none()).collect()
    };
    while !missing(&streams).is_empty() {
        match listener.accept() {
            // a slow or silent visitor must not keep others waiting
            Ok((stream, address)) => {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut stream = stream;
                    let hello = stream
                        .set_nonblocking(false)
                        .and_then(|()| stream.set_read_timeout(Some(MANNERS)))
                        .and_then(|()| stream.set_write_timeout(Some(MANNERS)))
                        .and_then(|()| Hello::read(&mut stream));
                    let _ = sender.send((stream, address, hello));
                });
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL),
            Err(e) => odd.push(format!("a connection could not be taken: {e}")),
        }
        while let Ok((mut stream, address, hello)) = visitors.try_recv() {
            let decision = match hello {
                Ok(hello) => decide(meeting, &hello, &streams),
                Err(e) => Decision::Refused(format!("what came from {address}: {e}")),
            };
            let answer = match &decision {
                Decision::Welcome(_) => Answer::Welcome,
                Decision::Stranger => Answer::Elsewhere,
                Decision::Refused(why) | Decision::Contradiction(why) => Answer::Refused(why.clone()),
            };
            let sent = answer.write(&mut stream);
            match decision {
                Decision::Welcome(rank) if sent.is_ok() => streams[rank] = Some(stream),
                Decision::Welcome(rank) => {
                    odd.push(format!("rank {rank} went away at once ({address})"))
                }
                Decision::Stranger => odd.push(format!("another job's rank came from {address}")),
                Decision::Refused(why) => odd.push(format!("{why} ({address})")),
                Decision::Contradiction(why) => {
                    tell_all(&streams, &why);
                    return Err(Error::failed(format!("{why} ({address})")));
                }
            }
        }
        let late = missing(&streams);
        if began.elapsed() > timeout && !late.is_empty() {
            let why = never_came(meeting, &late, timeout, &odd);
            tell_all(&streams, &why);
            return Err(Error::failed(why));
        }
    }
    Ok(streams)
}

fn never_came(meeting: &Meeting, late: &[usize], timeout: Duration, odd: &[String]) -> String {
    let names: Vec<String> = late.iter().map(usize::to_string).collect();
    let odd = if odd.is_empty() { String::new() } else { format!("; {}", odd.join("; ")) };
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
    /// It is of this job and says something else about it: nothing can come of it.
    Contradiction(String),
}

fn decide(meeting: &Meeting, hello: &Hello, streams: &[Option<TcpStream>]) -> Decision {
    if hello.job != meeting.job {
        return Decision::Stranger;
    }
    let version = env!("CARGO_PKG_VERSION");
    let (rank, ranks) = (hello.rank as usize, hello.ranks as usize);
    if hello.version != version {
        return Decision::Contradiction(format!(
            "rank {rank} is ladderscope {}, rank 0 is {version}: start the same version everywhere",
            hello.version
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
    let ip = listening_address(&meeting.address)?;
    let mut problems = Vec::new();
    for port in &meeting.ports {
        match TcpListener::bind((ip, *port)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        }) {
            Ok(listener) => return Ok(listener),
            Err(e) => problems.push(format!("port {port}: {e}")),
        }
    }
    Err(Error::failed(format!(
        "rank 0 cannot listen on {ip} ({}); name free ports with LADDERSCOPE_PORT",
        problems.join(", ")
    )))
}

/// Loopback where the ranks are all here; otherwise every address: the name by which others know this
/// host may not be one of its own.
fn listening_address(host: &str) -> Result<IpAddr> {
    Ok(match resolve(host, 0)?.first().map(SocketAddr::ip) {
        Some(ip) if ip.is_loopback() => ip,
        Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    })
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
fn knock(meeting: &Meeting, timeout: Duration) -> Result<TcpStream> {
    let began = Instant::now();
    let rank = meeting.rank;
    loop {
        let mut latest = String::new();
        for port in &meeting.ports {
            for address in resolve(&meeting.address, *port)? {
                match knock_once(meeting, address) {
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

fn knock_once(meeting: &Meeting, address: SocketAddr) -> io::Result<Result<TcpStream, Answer>> {
    let mut stream = TcpStream::connect_timeout(&address, KNOCK)?;
    stream.set_read_timeout(Some(MANNERS))?;
    stream.set_write_timeout(Some(MANNERS))?;
    Hello::new(meeting.job, meeting.rank, meeting.ranks).write(&mut stream)?;
    Ok(match Answer::read(&mut stream)? {
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
