//! Whoever connects and says nothing keeps nobody else out, of the admin API as of the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use libtest_mimic::Trial;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::message::modern;
use crate::trial::Shared;

/// More than a listener has places.
const SILENT: u64 = 10_500;
/// Files that this process needs for everything else.
const SPARE: u64 = 4_000;
/// Silence alone ends a connection after 10 s: it must not take as long as that.
const ANSWER: Duration = Duration::from_secs(8);

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![shared.trial("silent::ten_thousand_sockets_that_say_nothing_keep_nobody_out", |_| silent())]
}

async fn silent() -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let list = modern(&stack.alice().await?, "tools/list", json!({}), &[]);
    let crowd = crowd(stack.admin()).await?;
    let answer = timeout(ANSWER, http1::get(stack.admin(), "/healthz", &[])).await;
    ensure!(answer.context("the admin API answers in time")??.status == 200);
    drop(crowd);
    let crowd = self::crowd(stack.gateway()).await?;
    let direct = timeout(ANSWER, http1::send(stack.gateway(), &list)).await;
    ensure!(direct.context("the gateway answers in time")??.status == 200);
    for _ in 0..20 {
        let answer = timeout(ANSWER, http1::send(stack.edge(), &list)).await;
        ensure!(answer.context("Envoy gets its answer in time")??.status == 200);
    }
    drop(crowd);
    stack.stop(&[]).await
}

/// Connections that say nothing, as many as this machine lets one process have.
async fn crowd(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let count = SILENT.min(files.map_or(SILENT, |files| files.saturating_sub(SPARE)));
    let mut crowd = Vec::new();
    for _ in 0..count {
        // The listener's queue may be full for a moment: the kernel tries again.
        let connected = timeout(ANSWER, TcpStream::connect(address)).await;
        match connected {
            Ok(stream) => crowd.push(stream.context("connect")?),
            // Nobody is taken any more: what was to be shown.
            Err(_) => break,
        }
    }
    Ok(crowd)
}
