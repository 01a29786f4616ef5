//! Admins who write without pause: each sends its next write as soon as the last one is answered, also after a refusal.
//!
//! Owns: one task and one connection for each admin, a tally of its answers, and the writes that tests repeat.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http1::{Connection, Request, Response};
use crate::message::rest;
use crate::wait;

/// Maximum number of limits that an org may hold.
pub const MAX_LIMITS: usize = 1_000;
/// Capacities of the limits that [`limit_writes`] writes in turn.
pub const CAPACITIES: [u64; 2] = [1_000_000, 2_000_000];

/// Running admins; dropping them ends their writes.
pub struct Writers {
    tallies: Vec<Arc<Mutex<Tally>>>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// Answers to one admin.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub accepted: u64,
    /// Writes refused because there were too many (429).
    pub refused: u64,
    /// Writes with any other answer, or with none.
    pub failed: u64,
    pub first_failure: Option<String>,
    /// Place of the last accepted write in the admin's cycle.
    pub last: Option<usize>,
}

impl Writers {
    /// Starts an admin for each cycle of writes. An admin repeats a write until it is accepted, then sends the next one of its
    /// cycle: every accepted write of a cycle whose writes differ is a change.
    pub fn start(api: SocketAddr, cycles: Vec<Vec<Request>>) -> Writers {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut tallies = Vec::new();
        let mut tasks = JoinSet::new();
        for cycle in cycles {
            let tally = Arc::new(Mutex::new(Tally::default()));
            tallies.push(Arc::clone(&tally));
            tasks.spawn(write(api, cycle, tally, Arc::clone(&is_over)));
        }
        Writers { tallies, is_over, tasks }
    }

    /// The tallies so far, in the order of the cycles.
    pub fn tallies(&self) -> Vec<Tally> {
        self.tallies.iter().map(|tally| tally.lock().clone()).collect()
    }

    /// Waits until `more` further writes of each admin are accepted.
    pub async fn progress(&self, more: u64) -> Result<()> {
        let wanted: Vec<u64> = self.tallies().iter().map(|tally| tally.accepted + more).collect();
        let is_reached = || async {
            let tallies = self.tallies();
            tallies.iter().zip(&wanted).all(|(tally, wanted)| tally.accepted >= *wanted).then_some(())
        };
        let reached = wait::until("writes of every admin are accepted", wait::START, is_reached).await;
        reached.with_context(|| format!("{:?}", self.tallies()))
    }

    /// Lets each admin finish the write that is under way, and returns the tallies in the order of the cycles.
    pub async fn stop(mut self) -> Result<Vec<Tally>> {
        self.is_over.store(true, Ordering::Release);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(self.tallies())
    }
}

impl Tally {
    /// Adds the answer to the write at this place; whether it was accepted.
    fn add(&mut self, place: usize, answer: Result<Response>) -> bool {
        let failure = match answer {
            Ok(answer) if answer.status < 300 => {
                self.accepted += 1;
                self.last = Some(place);
                return true;
            }
            Ok(answer) if answer.status == 429 => {
                self.refused += 1;
                return false;
            }
            Ok(answer) => format!("{} {}", answer.status, answer.text()),
            Err(error) => format!("{error:#}"),
        };
        self.failed += 1;
        self.first_failure.get_or_insert(failure);
        false
    }
}

async fn write(api: SocketAddr, cycle: Vec<Request>, tally: Arc<Mutex<Tally>>, is_over: Arc<AtomicBool>) {
    let mut connection = Connection::to(api);
    let mut place = 0;
    while !is_over.load(Ordering::Acquire) {
        let Some(request) = cycle.get(place) else { return };
        let answer = connection.send(request).await;
        let is_accepted = tally.lock().add(place, answer);
        if is_accepted {
            place = (place + 1) % cycle.len();
        }
    }
}

/// Two lists of [`MAX_LIMITS`] limits that differ in each limit's capacity. A call draws from one limit at most.
pub fn limit_writes(org: &str, admin: &str) -> Vec<Request> {
    let path = format!("/api/ratelimits/orgs/{org}?force=true");
    CAPACITIES.iter().map(|capacity| rest("PUT", &path, admin, &limits(*capacity))).collect()
}

fn limits(capacity: u64) -> Value {
    let limit = |number: usize| {
        json!({
            "selector": {"user": format!("user-{number:04}")},
            "policy": {"capacity": capacity, "refill": "1000/s"},
        })
    };
    (0..MAX_LIMITS).map(limit).collect()
}

/// A write that switches the server `demo` off or on for an org.
pub fn exposure_write(org: &str, admin: &str, enabled: bool) -> Request {
    let path = format!("/api/policy/orgs/{org}/exposure?force=true");
    rest("PUT", &path, admin, &json!({"server": "demo", "protocol": "mcp", "enabled": enabled}))
}
