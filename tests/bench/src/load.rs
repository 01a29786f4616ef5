//! The load generator: an open loop with a fixed arrival rate, and a closed loop that asks as fast as it is
//! answered.
//!
//! Keeps true: in the open loop latency counts from the moment a request was due, not from when it could be
//! sent, so a stall is seen by every request it delayed. One blocking thread per keep-alive connection: on
//! two cores that wakes more exactly than a timer wheel does.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use memchr::memmem;

use crate::framing::Framing;
use crate::traffic::Traffic;

/// Hang guard of one exchange.
const EXCHANGE: Duration = Duration::from_secs(30);
/// Time for the threads to be there before the first request is due.
const LEAD: Duration = Duration::from_millis(20);
/// Latencies up to a minute, in nanoseconds, to three digits.
const LONGEST: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// `requests` of them, `rate` a second.
    Open { rate: f64, requests: u64 },
    /// The next when the last was answered.
    Closed { length: Duration },
}

/// What came of a load.
pub(crate) struct Outcome {
    pub requests: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub seconds: f64,
    /// Nanoseconds.
    pub latency: Histogram<u64>,
}

/// Sends `traffic` to `address`. Blocks; threads end before it returns.
pub(crate) fn run(address: SocketAddr, traffic: Traffic, pace: Pace, connections: usize) -> Result<Outcome> {
    let shared = Arc::new(Shared {
        traffic,
        pace,
        start: Instant::now() + LEAD,
        next: AtomicU64::new(0),
        first_error: Mutex::new(None),
    });
    let mut threads = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(EXCHANGE))?;
        let shared = shared.clone();
        threads.push(thread::spawn(move || worker(stream, &shared)));
    }
    let mut outcome = Outcome {
        requests: 0,
        errors: 0,
        first_error: None,
        seconds: 0.0,
        latency: Histogram::new_with_max(LONGEST, DIGITS)?,
    };
    for handle in threads {
        let Ok(done) = handle.join() else { bail!("a thread of the load generator ended early") };
        let (latency, errors) = done?;
        outcome.latency.add(&latency)?;
        outcome.errors += errors;
    }
    outcome.seconds = shared.start.elapsed().as_secs_f64();
    outcome.requests = outcome.latency.len();
    outcome.first_error = shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(outcome)
}

struct Shared {
    traffic: Traffic,
    pace: Pace,
    start: Instant,
    next: AtomicU64,
    first_error: Mutex<Option<String>>,
}

impl Shared {
    /// The next slot and when it is due; `None` when the load is over.
    fn slot(&self) -> Option<(u64, Instant)> {
        let slot = self.next.fetch_add(1, Ordering::Relaxed);
        match self.pace {
            Pace::Open { rate, requests } => {
                let due = self.start + Duration::from_secs_f64(slot as f64 / rate);
                (slot < requests).then_some((slot, due))
            }
            Pace::Closed { length } => {
                let now = Instant::now().max(self.start);
                (now < self.start + length).then_some((slot, now))
            }
        }
    }
}

fn worker(mut stream: TcpStream, shared: &Shared) -> Result<(Histogram<u64>, u64)> {
    // The default lets the kernel wake a sleeper 50 us late; a failure only costs that precision.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut latency = Histogram::new_with_max(LONGEST, DIGITS)?;
    let mut errors = 0;
    let mut framing = Framing::default();
    let mut request = Vec::new();
    while let Some((slot, due)) = shared.slot() {
        shared.traffic.write(slot, &mut request);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(&request)?;
        let answer = framing.next(&mut stream)?.context("the connection was closed")?;
        let taken = u64::try_from(due.elapsed().as_nanos())?;
        if !succeeded(answer.head, answer.body) {
            errors += 1;
            let text = || String::from_utf8_lossy(&[answer.head, answer.body].concat()).into_owned();
            shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(text);
        }
        latency.saturating_record(taken.max(1));
    }
    Ok((latency, errors))
}

/// Whether it is a result, and neither a tool error nor a failed task.
fn succeeded(head: &[u8], body: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 200")
        && memmem::find(body, b"\"result\"").is_some()
        && memmem::find(body, b"\"isError\":true").is_none()
        && memmem::find(body, b"TASK_STATE_FAILED").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Caller, Shape};

    fn traffic() -> Traffic {
        let callers = vec![Caller { token: "t".into(), session: "s".into() }];
        let target = "/demo/mcp".to_owned();
        Traffic { shape: Shape::Legacy, target, tool: "echo", authority: "h".into(), callers }
    }

    #[test]
    fn an_open_loop_sends_every_request_at_its_rate() {
        let backend = crate::backend::start().unwrap();
        let pace = Pace::Open { rate: 1000.0, requests: 100 };
        let outcome = run(backend, traffic(), pace, 4).unwrap();
        assert_eq!((outcome.requests, outcome.errors), (100, 0));
        assert!(outcome.seconds >= 0.099, "the last request is due after 99 ms: {}", outcome.seconds);
    }

    #[test]
    fn a_closed_loop_ends_with_its_time() {
        let backend = crate::backend::start().unwrap();
        let outcome = run(backend, traffic(), Pace::Closed { length: Duration::from_secs(1) }, 2).unwrap();
        assert!(outcome.requests > 0 && outcome.errors == 0);
    }

    #[test]
    fn a_refusal_and_a_tool_error_are_errors() {
        let ok = b"HTTP/1.1 200 OK\r\n\r\n";
        assert!(succeeded(ok, b"{\"result\":{\"isError\":false}}"));
        assert!(!succeeded(b"HTTP/1.1 401 Unauthorized\r\n\r\n", b"{\"result\":{}}"));
        assert!(!succeeded(ok, b"{\"error\":{}}"));
        assert!(!succeeded(ok, b"{\"result\":{\"isError\":true}}"));
        assert!(!succeeded(ok, b"{\"result\":{\"task\":{\"status\":{\"state\":\"TASK_STATE_FAILED\"}}}}"));
    }
}
