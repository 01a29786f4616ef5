//! Calls by way of the edge that go on while processes are replaced: some that need no store, and some that are kept in one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::message::{modern, rest};
use asp_e2e::wait;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Clients, and how long each rests between two calls.
const CLIENTS: u64 = 4;
const REST: Duration = Duration::from_millis(30);
const REFUSALS_SHOWN: usize = 3;

/// Outcomes of the calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub calls: u64,
    pub refused: u64,
    /// The first that were refused.
    pub shown: Vec<String>,
}

/// Clients that call until they are stopped.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts as soon as the edge serves.
    pub(super) async fn start(edge: SocketAddr, token: &str) -> Result<Load> {
        let first = call(token, 0, 0);
        let serves = || async { http1::send(edge, &first).await.ok().filter(|one| refusal(one).is_none()) };
        wait::until("the edge serves", wait::START, serves).await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Mutex::new(Counts::default()));
        let mut clients = JoinSet::new();
        for number in 1..=CLIENTS {
            let (is_over, counts, token) = (Arc::clone(&is_over), Arc::clone(&counts), token.to_owned());
            clients.spawn(async move {
                let began = Instant::now();
                let mut calls = 0;
                while !is_over.load(Ordering::Acquire) {
                    let refusal = match http1::send(edge, &call(&token, number, calls)).await {
                        Ok(answer) => refusal(&answer),
                        Err(error) => Some(format!("{error:#}")),
                    };
                    calls += 1;
                    counts.lock().add(began.elapsed(), refusal);
                    sleep(REST).await;
                }
            });
        }
        Ok(Load { is_over, counts, clients })
    }

    pub(super) async fn stop(mut self) -> Result<Counts> {
        self.is_over.store(true, Ordering::Release);
        while let Some(ended) = self.clients.join_next().await {
            ended?;
        }
        Ok(self.counts.lock().clone())
    }
}

impl Counts {
    fn add(&mut self, at: Duration, refusal: Option<String>) {
        self.calls += 1;
        let Some(refusal) = refusal else { return };
        self.refused += 1;
        if self.shown.len() < REFUSALS_SHOWN {
            self.shown.push(format!("{:.1} s: {refusal}", at.as_secs_f64()));
        }
    }
}

/// Every second call is over REST, under an id of its own.
fn call(token: &str, client: u64, number: u64) -> Request {
    if number % 2 == 1 {
        let path = format!("/demo/rest/tools/clock/calls/roll-{client}-{number}");
        let mut put = rest("PUT", &path, token, &json!({}));
        put.headers.push(("prefer".into(), b"wait=20".to_vec()));
        return put;
    }
    let params = json!({"name": "echo", "arguments": {"message": "rolled"}});
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}

/// Returns the answer unless it is the result.
fn refusal(answer: &Response) -> Option<String> {
    let text = answer.text();
    let is_served = match answer.status {
        201 => text.contains("\"success\""),
        status => status == 200 && text.contains("rolled") && !text.contains("\"isError\":true"),
    };
    (!is_served).then(|| format!("{} {text}", answer.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_result_is_a_refusal() {
        let answered = |status, body: &str| Response { status, body: body.into(), ..Response::default() };
        assert!(refusal(&answered(200, r#"{"result":{"content":[{"text":"rolled"}]}}"#)).is_none());
        assert!(refusal(&answered(201, r#"{"status":"success"}"#)).is_none());
        assert!(refusal(&answered(503, "rolled")).is_some());
        assert!(refusal(&answered(201, r#"{"status":"failed"}"#)).is_some());
        assert!(
            refusal(&answered(200, r#"{"result":{"isError":true,"content":[{"text":"rolled"}]}}"#)).is_some()
        );
        let mut counts = Counts::default();
        counts.add(Duration::ZERO, None);
        counts.add(Duration::ZERO, Some("503".to_owned()));
        assert_eq!((counts.calls, counts.refused, counts.shown.len()), (2, 1, 1));
    }
}
