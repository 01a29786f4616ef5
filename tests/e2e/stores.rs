//! The servers of a cluster's state start on this machine and answer.

use std::time::Duration;

use anyhow::{Result, ensure};
use asp_e2e::stores::{Postgres, Redis};

use crate::trial::{Shared, trials};

const END: Duration = Duration::from_secs(30);

trials! { stores:
    redis_keeps_what_it_is_told_and_ends_with_its_process,
    postgres_runs_as_its_own_user_and_ends_with_its_process,
}

async fn redis_keeps_what_it_is_told_and_ends_with_its_process(_: &Shared) -> Result<()> {
    let mut redis = Redis::start().await?;
    ensure!(redis.ask("SET k v").await? == "+OK");
    ensure!(redis.ask("STRLEN k").await? == ":1");
    redis.process.stop().await?;
    ensure!(redis.ask("PING").await.is_err());
    Ok(())
}

async fn postgres_runs_as_its_own_user_and_ends_with_its_process(_: &Shared) -> Result<()> {
    let mut postgres = Postgres::start().await?;
    ensure!(postgres.ask("CREATE TABLE t (n INTEGER)").await? == "CREATE TABLE");
    ensure!(postgres.ask("INSERT INTO t VALUES (7) RETURNING n").await?.starts_with('7'));
    postgres.process.stop().await?;
    postgres.process.wait(END).await?;
    ensure!(postgres.ask("SELECT 1").await.is_err());
    Ok(())
}
