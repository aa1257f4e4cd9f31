//! Ranks as threads, over mailboxes and over TCP: the same answers, and an end for everybody.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::mailbox::Frame;
use super::*;
use crate::testing::port;
use base::error::Result;

const TIMEOUT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);

fn meeting(port: u16, rank: usize, ranks: usize) -> Meeting {
    Meeting { address: "127.0.0.1".into(), ports: vec![port], job: 42, rank, ranks }
}

fn secret() -> Secret {
    Secret::from_text("what the ranks of these tests know")
}

/// Runs `body` on every rank, over both ways; the ranks' results by rank.
fn both_ways<T: Send>(
    ranks: usize,
    timeout: Duration,
    body: impl Fn(&Peers) -> T + Sync,
) -> [Vec<T>; 2] {
    let body = &body;
    let threads = thread::scope(|scope| {
        let all: Vec<_> = Peers::threads(ranks, timeout)
            .into_iter()
            .map(|peers| scope.spawn(move || body(&peers)))
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let port = port();
    let processes = thread::scope(|scope| {
        let all: Vec<_> = (0..ranks)
            .map(|rank| {
                scope.spawn(move || {
                    // others come before rank 0 listens, and after
                    thread::sleep(Duration::from_millis(if rank == 0 { 60 } else { 40 * rank as u64 }));
                    let peers =
                        Peers::connect(&meeting(port, rank, ranks), &secret(), TIMEOUT, None).unwrap();
                    body(&peers.with_timeout(timeout))
                })
            })
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    [threads, processes]
}

fn text<T>(result: Result<T>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

/// Error of a rank that joins; empty if it is admitted.
fn join_error(meeting: &Meeting, timeout: Duration) -> String {
    text(Peers::connect(meeting, &secret(), timeout, None))
}

#[test]
fn barriers_gathers_and_broadcasts_are_the_same_over_both_ways() {
    for ranks in [1, 2, 5] {
        let results = both_ways(ranks, TIMEOUT, |peers| {
            let mut seen = Vec::new();
            for round in 0..20_u8 {
                peers.barrier().unwrap();
                let all = peers.gather(vec![round, peers.rank() as u8]).unwrap();
                assert_eq!(all.is_some(), peers.rank() == 0);
                seen.extend(all.into_iter().flatten().flatten());
                let own = vec![round; 1 + peers.rank()];
                assert_eq!(peers.broadcast(own).unwrap(), vec![round]);
                assert_eq!(peers.broadcast_unhurried(vec![7]).unwrap(), vec![7]);
            }
            seen
        });
        for by_rank in results {
            let wanted: Vec<u8> =
                (0..20).flat_map(|round| (0..ranks).flat_map(move |rank| [round, rank as u8])).collect();
            assert_eq!(by_rank[0], wanted);
            assert!(by_rank[1..].iter().all(Vec::is_empty));
        }
    }
}

#[test]
fn large_reports_arrive_whole() {
    let results = both_ways(3, TIMEOUT, |peers| {
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|i| (i * 31 + peers.rank() as u32) as u8).collect();
        let all = peers.gather(bytes.clone()).unwrap();
        all.is_none_or(|all| {
            all.iter().enumerate().all(|(rank, got)| {
                got.iter().zip(&bytes).all(|(got, mine)| *got == mine.wrapping_add(rank as u8))
            })
        })
    });
    assert_eq!(results, [vec![true; 3], vec![true; 3]]);
}

#[test]
fn clocks_are_compared_between_question_and_answer() {
    let zero = Instant::now();
    let results = both_ways(3, TIMEOUT, |peers| {
        // rank 2's clock is an hour ahead
        let ahead = if peers.rank() == 2 { 3_600_000_000_000 } else { 0 };
        peers.compare_clocks(10, || zero.elapsed().as_nanos() as i64 + ahead).unwrap()
    });
    for by_rank in results {
        assert!(by_rank[1].is_empty() && by_rank[2].is_empty() && by_rank[0][0].is_empty());
        for (rank, ahead) in [(1, 0), (2, 3_600_000_000_000)] {
            let questions = &by_rank[0][rank];
            assert_eq!(questions.len(), 10);
            assert!(
                questions.iter().all(|q| q.sent <= q.theirs - ahead && q.theirs - ahead <= q.received)
            );
        }
    }
}

#[test]
fn a_rank_that_gives_up_ends_all_waits_with_its_reason() {
    let results = both_ways(3, TIMEOUT, |peers| {
        // met, or ended already: rank 2 may be quicker than another's wakening
        let _ = peers.barrier();
        if peers.rank() == 2 {
            peers.abort("rank 2: out of memory");
            peers.abort("and something later");
        }
        let first = text(peers.barrier());
        (first, text(peers.gather(Vec::new())), text(peers.check()))
    });
    let why = "rank 2: out of memory".to_owned();
    for by_rank in results {
        for (rank, (first, second, checked)) in by_rank.iter().enumerate() {
            assert_eq!([first, second, checked], [&why; 3], "rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_leaves_because_another_gave_up_passes_the_reason_on() {
    let mut all = Peers::threads(3, TIMEOUT);
    let Transport::Threads(boxes) = &all[2].transport else { unreachable!() };
    // rank 2 is in the midst of telling: rank 0 has heard, rank 1 has not
    boxes[0].abort("rank 2: out of memory");
    drop(all.remove(0));
    assert_eq!(text(all[0].barrier()), "rank 2: out of memory");
}

#[test]
fn a_rank_that_does_not_come_is_named_with_what_it_was_doing() {
    let results = both_ways(3, SHORT, |peers| {
        let began = Instant::now();
        peers.phase("loading weights");
        peers.barrier().unwrap();
        if peers.rank() == 1 {
            peers.phase("capturing a graph");
            // it hangs, until somebody else ends it
            while peers.check().is_ok() {
                assert!(began.elapsed() < TIMEOUT);
                thread::sleep(Duration::from_millis(5));
            }
        }
        text(peers.barrier())
    });
    for by_rank in results {
        for message in &by_rank {
            assert!(message.starts_with("rank 1 (capturing a graph) did not come within"), "{message}");
            assert!(message.contains("(barrier)") && !message.contains("rank 2"), "{message}");
        }
    }
}

#[test]
fn progress_prolongs_the_wait() {
    let results = both_ways(2, SHORT, |peers| {
        if peers.rank() == 1 {
            for part in 0..8 {
                peers.phase(&format!("loading weights {part}/8"));
                thread::sleep(SHORT / 3);
            }
        }
        text(peers.barrier())
    });
    assert_eq!(results, [vec![String::new(); 2], vec![String::new(); 2]]);
}

#[test]
fn a_rank_that_ends_early_and_one_that_panics_are_told_apart() {
    let results = both_ways(2, TIMEOUT, |peers| {
        if peers.rank() == 1 { String::new() } else { text(peers.gather(Vec::new())) }
    });
    for by_rank in results {
        assert!(by_rank[0].contains("rank 1"), "{by_rank:?}");
    }
    let mut peers = Peers::threads(2, TIMEOUT);
    let dies = peers.pop().unwrap();
    let panicked = thread::spawn(move || {
        let _dies = dies;
        std::panic::resume_unwind(Box::new("without a message"));
    });
    assert_eq!(text(peers[0].barrier()), "rank 1 panicked");
    assert!(panicked.join().is_err());
}

#[test]
fn ranks_that_take_different_ways_are_told_so() {
    let results = both_ways(2, TIMEOUT, |peers| {
        if peers.rank() == 0 { text(peers.barrier()) } else { text(peers.gather(Vec::new())) }
    });
    for by_rank in results {
        assert!(by_rank[0].contains("rank 1 is at its gathering of reports (operation"), "{by_rank:?}");
    }
}

/// What rank 0 of two says when `visit` happens to it.
fn visited(visit: impl FnOnce(u16) + Send) -> String {
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || join_error(&meeting(port, 0, 2), SHORT * 3));
        visit(port);
        first.join().unwrap()
    })
}

fn come(meeting: &Meeting) -> Result<Peers> {
    Peers::connect(meeting, &secret(), TIMEOUT, None)
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let message = visited(|_| ());
    assert!(message.starts_with("rank 1 of 2 did not come to 127.0.0.1 within"), "{message}");
    let began = Instant::now();
    let message = join_error(&meeting(port(), 1, 2), SHORT);
    assert!(message.starts_with("rank 1 did not find rank 0 at 127.0.0.1, ports "), "{message}");
    assert!(began.elapsed() < TIMEOUT);
}

/// Who waits says so once, and goes on waiting: a rank that comes after all is let in.
#[test]
fn ranks_that_are_late_are_reported_and_still_let_in() {
    let port = port();
    let said = std::sync::Mutex::new(Vec::new());
    let note = |from: usize| move |missing: &[usize]| (from, missing.to_vec());
    thread::scope(|scope| {
        let wait = |rank: usize| {
            let (said, note) = (&said, note(rank));
            scope.spawn(move || {
                let report = |missing: &[usize]| said.lock().unwrap().push(note(missing));
                // time enough for rank 2 to come to rank 0
                let late =
                    LateRanks { after: SHORT * (3 - rank as u32), report: &report, stop: &|| false };
                Peers::connect(&meeting(port, rank, 3), &secret(), TIMEOUT, Some(late)).map(|_| ())
            })
        };
        let second = wait(2);
        while said.lock().unwrap().is_empty() {
            thread::sleep(SHORT / 20);
        }
        let first = wait(0);
        while said.lock().unwrap().len() < 2 {
            thread::sleep(SHORT / 20);
        }
        come(&meeting(port, 1, 3)).unwrap();
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(said.into_inner().unwrap(), [(2, vec![0]), (0, vec![1])]);
}

#[test]
fn a_rank_that_waits_for_others_can_be_stopped() {
    for rank in [0, 1] {
        let late = LateRanks { after: TIMEOUT, report: &|_| (), stop: &|| true };
        let found = Peers::connect(&meeting(port(), rank, 2), &secret(), TIMEOUT, Some(late));
        assert!(matches!(found, Err(Error::Interrupted)), "rank {rank}: {found:?}");
    }
}

#[test]
fn those_who_came_hear_who_did_not() {
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || join_error(&meeting(port, 0, 3), SHORT * 2));
        let second = scope.spawn(move || join_error(&meeting(port, 1, 3), TIMEOUT));
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert!(first.starts_with("rank 2 of 3 did not come to"), "{first}");
        assert_eq!(first, second);
    });
}

#[test]
fn those_who_came_hear_that_rank_0_was_stopped() {
    let port = port();
    thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let stop = || began.elapsed() > SHORT * 2;
            let late = LateRanks { after: TIMEOUT, report: &|_| (), stop: &stop };
            let first = Peers::connect(&meeting(port, 0, 3), &secret(), TIMEOUT, Some(late));
            assert!(matches!(first, Err(Error::Interrupted)), "{first:?}");
        });
        let second = join_error(&meeting(port, 1, 3), TIMEOUT);
        assert_eq!(second, "rank 0 was stopped before all ranks came");
    });
}

#[test]
fn strangers_and_contradictions_do_not_take_part() {
    let of = |port, rank, ranks, job| Meeting { job, ..meeting(port, rank, ranks) };
    // a scanner of ports, and a rank of another job, keep nobody from coming
    let message = visited(|port| {
        let mut scanner = loop {
            if let Ok(scanner) = TcpStream::connect(("127.0.0.1", port)) {
                break scanner;
            }
        };
        scanner.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let other = join_error(&of(port, 1, 2, 43), SHORT / 2);
        assert!(other.contains("did not find rank 0"), "{other}");
        let rank = come(&meeting(port, 1, 2)).unwrap();
        let mut answer = Vec::new();
        let _ = scanner.read_to_end(&mut answer);
        assert!(String::from_utf8_lossy(&answer).contains("not ladderscope"));
        drop(rank);
    });
    assert_eq!(message, "");
    let message = visited(|port| {
        let theirs = join_error(&of(port, 1, 8, 42), TIMEOUT);
        assert!(
            theirs.contains("does not let rank 1 in: rank 1 was started as one of 8 ranks"),
            "{theirs}"
        );
    });
    assert!(
        message.starts_with("rank 1 was started as one of 8 ranks, rank 0 as one of 2"),
        "{message}"
    );
}

#[test]
fn without_the_secret_nobody_takes_part_and_nobody_is_disturbed() {
    let stranger = Secret::from_text("what somebody else on this host guesses");
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || join_error(&meeting(port, 0, 2), TIMEOUT));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(!first.is_finished(), "rank 0 listens");
        }
        // a false rank 1, and one that would contradict: neither is believed
        for ranks in [2, 8] {
            let false_rank = Peers::connect(&meeting(port, 1, ranks), &stranger, SHORT, None);
            assert!(text(false_rank).contains("does not have this job's secret"));
        }
        // an abort before any greeting
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Frame::Abort("go home".into()).write(&mut stream).unwrap();
        assert!(come(&meeting(port, 1, 2)).is_ok());
        assert_eq!(first.join().unwrap(), "");
    });
    // a false rank 0 gets no rank to follow it
    let port = crate::testing::port();
    thread::scope(|scope| {
        let first =
            scope.spawn(|| text(Peers::connect(&meeting(port, 0, 2), &stranger, SHORT * 8, None)));
        let other = join_error(&meeting(port, 1, 2), SHORT);
        assert!(other.contains("who listens there does not have this job's secret"), "{other}");
        assert!(first.join().unwrap().starts_with("rank 1 of 2 did not come"));
    });
}

#[test]
fn silence_in_numbers_keeps_nobody_out() {
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || join_error(&meeting(port, 0, 2), TIMEOUT));
        let began = Instant::now();
        let mut silent = Vec::new();
        while silent.len() < 100 && began.elapsed() < TIMEOUT {
            silent.extend(TcpStream::connect(("127.0.0.1", port)));
        }
        assert!(come(&meeting(port, 1, 2)).is_ok());
        assert_eq!(first.join().unwrap(), "");
    });
}

#[test]
fn a_rank_that_comes_twice_is_named_at_both_ends() {
    let port = port();
    thread::scope(|scope| {
        let first = scope.spawn(move || join_error(&meeting(port, 0, 3), SHORT * 3));
        let twins: Vec<_> =
            (0..2).map(|_| scope.spawn(move || join_error(&meeting(port, 1, 3), TIMEOUT))).collect();
        let mut theirs: Vec<String> = twins.into_iter().map(|twin| twin.join().unwrap()).collect();
        theirs.sort_by_key(|message| message.contains("does not let"));
        let first = first.join().unwrap();
        assert!(theirs[1].contains("does not let rank 1 in: rank 1 came twice"), "{theirs:?}");
        assert!(
            first.starts_with("rank 2 of 3 did not come") && first.contains("rank 1 came twice"),
            "{first}"
        );
    });
}

#[test]
fn a_taken_port_is_passed_over() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = vec![taken.local_addr().unwrap().port(), port()];
    let of = |rank| Meeting { ports: ports.clone(), ..meeting(0, rank, 2) };
    thread::scope(|scope| {
        // somebody else's service, that answers something else
        scope.spawn(|| {
            let (mut stream, _) = taken.accept().unwrap();
            let _ = stream.write_all(b"220 mail.example\r\n and some more text to fill the answer");
        });
        let first = scope.spawn(|| come(&of(0)).is_ok());
        assert!(come(&of(1)).is_ok() && first.join().unwrap());
    });
    let only_taken = Meeting { ports: vec![taken.local_addr().unwrap().port()], ..meeting(0, 0, 2) };
    assert!(text(come(&only_taken)).contains("LADDERSCOPE_PORT"));
}

proptest::proptest! {
    #[test]
    fn garbage_is_an_error_not_a_panic_and_allocates_no_more_than_came(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)
    ) {
        rendezvous::read_any_message(&bytes);
    }
}
